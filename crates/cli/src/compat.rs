//! `zfs` and `zpool`: from the words of a command line to a subcommand.
//!
//! What OpenZFS says about a command line before it looks at any pool is said here; the subcommands are looked
//! up in [`run`].

mod aux_owner;
mod changing;
mod damaged;
mod dataset_value;
pub(crate) mod dataset_values;
mod doomed;
mod features;
mod history_event;
mod mounting;
mod no_effect;
pub(crate) mod owner_quota;
mod parents;
mod pool_values;
mod recovery;
mod repeat;
mod scan;
mod scripts;
mod select;
mod vdev_spec;
mod vdev_values;
mod view;
mod zfs_allow;
mod zfs_bookmark;
mod zfs_change;
mod zfs_destroy;
mod zfs_diff;
mod zfs_get;
mod zfs_hold;
mod zfs_list;
pub(crate) mod zfs_mount;
mod zfs_mount_turns;
mod zfs_project;
mod zfs_receive;
mod zfs_receive_heal;
mod zfs_receive_props;
mod zfs_receive_tree;
mod zfs_receive_words;
mod zfs_rewrite;
mod zfs_send;
mod zfs_send_rest;
mod zfs_send_words;
mod zfs_snapshot;
mod zfs_upgrade;
mod zfs_userspace;
mod zfs_wait;
mod zpool_attach;
mod zpool_create;
mod zpool_devices;
mod zpool_events;
mod zpool_import;
pub(crate) mod zpool_iostat;
mod zpool_list;
mod zpool_misc;
mod zpool_props;
mod zpool_scrub;
mod zpool_status;
mod zpool_status_advice;
pub(crate) mod zpool_upgrade;
mod zpool_vdev_props;
mod zpool_wait;

use pool::props::dataset::Owner;

use crate::args::{ArgError, Parsed};
use crate::messages::Failure;
use crate::out::Console;
use crate::usage::{Command, Program};
use crate::{Surroundings, json};

/// The OpenZFS release whose behaviour is kept, as `version` prints it.
const USERLAND: &str = concat!("zfs-2.4.0-cenote-", env!("CARGO_PKG_VERSION"));
/// What scripts take for the running engine.
const KERNEL: &str = "zfs-kmod-2.4.0-1";

/// A command line of `zfs` or `zpool`, ready to be carried out.
#[derive(Debug)]
pub struct Call<'a> {
    pub program: Program,
    pub command: &'static Command,
    pub args: Parsed,
    pub around: &'a Surroundings,
    /// The command line for the pool's history: program and words, one blank apart.
    pub line: String,
}

/// Carries out a command line; `words` are those after the program's name. Gives the exit status.
pub fn main(program: Program, words: &[String], around: &Surroundings, mut console: Console) -> u8 {
    let Some((word, rest)) = words.split_first() else {
        return console.finish(Err(Failure::usage("missing command")), || program.usage());
    };
    let mut about = None;
    let ended = match word.as_str() {
        "-?" | "--help" | "-h" | "help" if rest.is_empty() || word != "help" => {
            console.line(program.usage().trim_end())
        }
        "help" => help(program, rest, &mut console),
        "--version" | "-V" => versions(&mut console),
        word => match program.command(word) {
            None => Err(unrecognized(program, word, &mut console)),
            Some(command) => {
                about = Some(command);
                let whole = around.served.as_ref().and_then(|served| served.whole()).map(str::to_owned);
                let line = whole.unwrap_or_else(|| format!("{} {}", program.name(), words.join(" ")));
                let carry_out = |args| {
                    let call = Call { program, command, args, around, line };
                    crate::forward::or_here(&call, words, &mut console, run)
                };
                match command.options.parse(rest, around.posix) {
                    Err(ArgError::MissingArgument(option))
                        if option == "c" && runs_scripts(program, command) =>
                    {
                        scripts::list(&mut console, command.name)
                    }
                    parsed => parsed.map_err(misread).and_then(carry_out),
                }
            }
        },
    };
    console.finish(ended, || about.map_or_else(|| program.usage(), Command::usage))
}

/// The answer to a word that is no subcommand: the nearest subcommand when one is near, else the usage of all.
fn unrecognized(program: Program, word: &str, console: &mut Console) -> Failure {
    let first = format!("unrecognized command '{word}'");
    let Some(near) = program.nearest(word) else { return Failure::usage(first) };
    let name = program.name();
    console.remark(&first);
    console.remark(&format!("did you mean '{name} {near}'? '{name} help' lists all commands"));
    Failure::Ended(2)
}

fn misread(error: ArgError) -> Failure {
    match error {
        // A long option that wants an argument is named as it was typed.
        ArgError::Help => Failure::usage(""),
        error => error.into(),
    }
}

/// Whether `-c` names programs that are asked about vdevs.
fn runs_scripts(program: Program, command: &Command) -> bool {
    program == Program::Zpool && matches!(command.name, "status" | "iostat")
}

/// The words of `iostat` with its scripts as they were found here and the names that variables ask for, for a server that
/// looks for neither; `None` if there is nothing to add.
///
/// # Errors
/// They may not be run, or not be told to a server.
pub fn with_surroundings(call: &Call) -> Result<Option<Vec<String>>, Failure> {
    if call.program != Program::Zpool || call.command.name != "iostat" {
        return Ok(None);
    }
    let scripts = scripts::Scripts::of(call)?;
    let mut naming =
        view::Naming::of(call).options().filter(|option| !call.args.has(&option[1..])).peekable();
    if scripts.is_none() && naming.peek().is_none() {
        return Ok(None);
    }
    let mut words = vec![call.command.name.to_owned()];
    words.extend(naming.map(str::to_owned));
    for (name, value) in &call.args.options {
        words.push(if name.len() == 1 { format!("-{name}") } else { format!("--{name}") });
        let found = scripts.as_ref().filter(|_| *name == "c").map(scripts::Scripts::to_argument);
        words.extend(found.transpose()?.or_else(|| value.clone()));
    }
    words.push("--".to_owned());
    words.extend(call.args.operands.iter().cloned());
    Ok(Some(words))
}

fn versions(console: &mut Console) -> Result<(), Failure> {
    console.line(USERLAND)?;
    console.line(KERNEL)
}

/// `help COMMAND` and `help properties`.
fn help(program: Program, topics: &[String], console: &mut Console) -> Result<(), Failure> {
    for topic in topics {
        match (topic.as_str(), program) {
            ("properties", Program::Zfs) => {
                for p in pool::props::dataset::VISIBLE {
                    console.line(&format!("\t{:<24} {}", p.name, p.summary))?;
                }
            }
            ("properties", Program::Zpool) => {
                for p in pool::props::pool::VISIBLE {
                    console.line(&format!("\t{:<24} {}", p.name, p.summary))?;
                }
            }
            (word, program) => match program.command(word) {
                Some(command) => console.line(command.usage().trim_end())?,
                None => return Err(unrecognized(program, word, console)),
            },
        }
    }
    Ok(())
}

/// Runs a subcommand.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let (program, name) = (call.program, call.command.name);
    if name == "version" {
        if call.args.has("j") {
            let command = format!("{} version", program.name());
            return console.line(&json::versions(&command, USERLAND, KERNEL).to_string());
        }
        return versions(console);
    }
    let done = match program {
        Program::Zpool => run_zpool(call, console),
        Program::Zfs => run_zfs(call, console),
    };
    done.unwrap_or_else(|| {
        let why = reason_of(program, name).map(|why| format!(" ({why})")).unwrap_or_default();
        Err(Failure::refused(format!("cenote: not supported yet: {} {name}{why}", program.name())))
    })
}

/// The subcommands of `zpool`; `None` for one that is not there yet.
fn run_zpool(call: &Call, console: &mut Console) -> Option<Result<(), Failure>> {
    Some(match call.command.name {
        "clear" => zpool_scrub::clear(call),
        "attach" => zpool_attach::join(call, console, false),
        "detach" => zpool_attach::detach(call, console),
        "replace" => zpool_attach::join(call, console, true),
        "create" => zpool_create::run(call, console),
        "destroy" => zpool_import::destroy(call),
        "export" => zpool_import::export(call, console),
        "events" => zpool_events::run(call, console),
        "get" => zpool_props::get(call, console),
        "history" => zpool_misc::history(call, console),
        "import" => zpool_import::import(call, console),
        "iostat" => zpool_iostat::run(call, console),
        "labelclear" => zpool_misc::labelclear(call, console),
        "list" => zpool_list::run(call, console),
        "offline" | "online" | "resilver" => zpool_devices::run(call),
        "reguid" => zpool_misc::reguid(call),
        "reopen" => zpool_misc::reopen(call, console),
        "scrub" => zpool_scrub::scrub(call, console),
        "set" => zpool_props::set(call),
        "status" => zpool_status::run(call, console),
        "sync" => zpool_misc::sync(call, console),
        "wait" => zpool_wait::run(call, console),
        "upgrade" => zpool_upgrade::upgrade(call, console),
        "prefetch" => zpool_misc::prefetch(call),
        "condense" if call.args.has("types") => console.line("log_spacemap"),
        _ => return None,
    })
}

/// The subcommands of `zfs`; `None` for one that is not there yet.
fn run_zfs(call: &Call, console: &mut Console) -> Option<Result<(), Failure>> {
    Some(match call.command.name {
        "allow" => zfs_allow::allow(call, console),
        "unallow" => zfs_allow::unallow(call, console),
        "bookmark" => zfs_bookmark::create(call, console),
        "clone" => zfs_snapshot::clone(call, console),
        "create" => zfs_change::create(call, console),
        "destroy" => zfs_destroy::run(call, console),
        "diff" => zfs_diff::run(call, console),
        "get" => zfs_get::run(call, console),
        "hold" => zfs_hold::change(call, console, false),
        "holds" => zfs_hold::show(call, console),
        "inherit" => zfs_change::inherit(call, console),
        "mount" => zfs_mount::mount(call, console),
        "unmount" => zfs_mount::unmount(call, console),
        "list" => zfs_list::run(call, console),
        "promote" => zfs_snapshot::promote(call),
        "groupspace" => zfs_userspace::run(call, console, Owner::Group),
        "project" => zfs_project::run(call, console),
        "projectspace" => zfs_userspace::run(call, console, Owner::Project),
        "rewrite" => zfs_rewrite::run(call, console),
        "release" => zfs_hold::change(call, console, true),
        "receive" => zfs_receive::run(call, console),
        "rename" => zfs_change::rename(call, console),
        "rollback" => zfs_snapshot::rollback(call, console),
        "send" => zfs_send::run(call, console),
        "set" => zfs_change::set(call, console),
        "snapshot" => zfs_snapshot::snapshot(call, console),
        "upgrade" => zfs_upgrade::upgrade(call, console),
        "wait" => zfs_wait::run(call, console),
        "userspace" => zfs_userspace::run(call, console, Owner::User),
        _ => return None,
    })
}

/// Why a subcommand is not there, where there is more to say than that.
fn reason_of(program: Program, name: &str) -> Option<&'static str> {
    Some(match (program, name) {
        (Program::Zpool, "add" | "remove") => "the devices of a pool are those it was made with",
        (Program::Zpool, "split") => "attach and detach change a mirror; the sides stay in one pool",
        (Program::Zpool, "checkpoint") => "a snapshot of each file system, zfs snapshot -r, comes nearest",
        (Program::Zpool, "initialize" | "trim") => "free space is left as it is",
        (Program::Zpool, "ddtprune") => "pools with a deduplication table are only read",
        (Program::Zfs, "load-key" | "unload-key" | "change-key") => "encrypted datasets are not read",
        (Program::Zfs, "share" | "unshare") => {
            "share the mounted folder with the NFS or SMB server of the system"
        }
        (Program::Zfs, "zone" | "unzone" | "jail" | "unjail") => "there is no kernel module to tell of it",
        (Program::Zfs, "program") => "there is no Lua here",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(program: Program, line: &str) -> (u8, String, String) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let around = Surroundings::default();
        let status = main(program, &words, &around, Console::new(&mut out, &mut err));
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (status, text(out), text(err))
    }

    #[test]
    fn a_misspelt_command_is_answered_with_the_nearest_one() {
        for (program, word, near) in [
            (Program::Zpool, "craete", "zpool create"),
            (Program::Zpool, "imprt", "zpool import"),
            (Program::Zfs, "snapshto", "zfs snapshot"),
            (Program::Zfs, "help lsit", "zfs list"),
        ] {
            let (status, out, err) = call(program, word);
            let typed = word.rsplit(' ').next().unwrap();
            let name = program.name();
            let said = format!(
                "unrecognized command '{typed}'\ndid you mean '{near}'? '{name} help' lists all commands\n"
            );
            assert_eq!((status, out.as_str(), err.as_str()), (2, "", said.as_str()));
        }
    }

    #[test]
    fn mistakes_are_named_before_the_usage() {
        for (line, first) in [
            ("", "missing command"),
            ("frob", "unrecognized command 'frob'"),
            ("create -z tank/q", "invalid option 'z'"),
            ("get -o", "missing argument for 'o' option"),
            ("send --nosuch tank/a@s1", "invalid option '--nosuch'"),
        ] {
            let (status, out, err) = call(Program::Zfs, line);
            assert_eq!((status, out.as_str()), (2, ""), "{line}");
            let mut lines = err.lines();
            assert_eq!(lines.next(), Some(first), "{line}");
            assert!(lines.next().is_some_and(|l| l.starts_with("usage:")), "{line}");
        }
        let (status, _, err) = call(Program::Zfs, "list -?");
        assert!(status == 2 && err.starts_with("usage:\n\tlist"));
    }

    #[test]
    fn help_and_versions_go_to_standard_output() {
        for word in ["help", "--help", "-?"] {
            let (status, out, err) = call(Program::Zpool, word);
            assert!(status == 0 && err.is_empty() && out.starts_with("usage: zpool"), "{word}");
        }
        let (status, out, _) = call(Program::Zpool, "help create");
        assert!(status == 0 && out.contains("create [-dfn]"));
        for word in ["version", "--version", "-V"] {
            let (status, out, _) = call(Program::Zfs, word);
            let lines: Vec<&str> = out.lines().collect();
            assert!(status == 0 && lines.len() == 2 && lines[1].starts_with("zfs-kmod-2.4"), "{word}");
        }
        assert!(
            call(Program::Zfs, "version -j").1.starts_with(r#"{"output_version":{"command":"zfs version""#)
        );
    }

    #[test]
    fn what_is_not_there_yet_says_so() {
        let (status, out, err) = call(Program::Zfs, "jail 1 tank/a");
        assert_eq!((status, out.as_str()), (1, ""));
        assert!(err.starts_with("cenote: not supported yet: zfs jail (there is no kernel module"), "{err}");
    }
}

//! `zfs project`: projects of files and folders, and the inheritance flag of folders.

use format::ObjectId;
use format::znode::pflags;
use serde_json::json;
use zpl::{FileKind, Filesystem, SetAttr, Stat};

use super::Call;
use crate::args::{Parsed, flag, value};
use crate::command::{Beside, Command, Run, Targets};
use crate::files::operand::Operand;
use crate::files::pools::{Pools, refused};
use crate::files::walk::{Order, Walk};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, quoted};
use crate::stop::Stop;

/// `zfs project`.
pub static COMMAND: Command = Command {
    name: "project",
    about: "shows, sets and checks the project of files",
    syntax: &[
        "project [-j] [-d|-r] DIRECTORY|FILE…",
        "project -c [-0|-j] [-d|-r] [-p ID] DIRECTORY|FILE…",
        "project -C [-k] [-r] DIRECTORY|FILE…",
        "project [-p ID] [-r] [-s] DIRECTORY|FILE…",
    ],
    examples: &["zfs project -s -p 100 -r /tank/home/project", "zfs project -c -r /tank/home/project"],
    options: &[
        flag("c", "checks, and lists what differs"),
        flag("C", "takes the project off"),
        flag("d", "the folder itself, not what is in it"),
        flag("r", "all that is in folders, too"),
        flag("k", "keeps the number, takes off only the inheriting"),
        flag("s", "has new files inherit the project"),
        flag("0", "a zero byte after each name instead of a line end"),
        value("p", "the number of the project"),
        flag("j|json", "prints JSON"),
    ],
    targets: Targets::All,
    beside: Beside::TakesTurns,
    takes_files: true,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs project`.
struct Options {
    check: bool,
    clear: bool,
    alone: bool,
    recursive: bool,
    keep: bool,
    set: bool,
    nul: bool,
    id: Option<String>,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        check: args.has("c"),
        clear: args.has("C"),
        alone: args.has("d"),
        recursive: args.has("r"),
        keep: args.has("k"),
        set: args.has("s"),
        nul: args.has("0"),
        id: args.text("p"),
        json: args.has("j"),
    }
}

/// The task for each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    List,
    /// `-c`: lists files with another project and folders without the inheritance flag.
    Check {
        nul: bool,
    },
    /// `-C`: takes the flag away, and the project unless `keep`.
    Clear {
        keep: bool,
    },
    /// Sets the project, and with `-s` the flag.
    Set {
        flag: bool,
    },
}

/// Runs `zfs project`.
///
/// # Errors
/// The arguments are wrong, or files cannot be read or changed. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    if [call.options.check, call.options.clear, call.options.set].into_iter().filter(|given| *given).count()
        > 1
    {
        return Err(Failure::usage("cannot specify '-c' '-C' '-s' together"));
    }
    let wanted = match call.options.id.as_deref() {
        None => None,
        Some(text) => match text.parse::<u64>() {
            Ok(id) if id < u64::from(u32::MAX) => Some(id),
            _ => return Err(Failure::usage(format!("invalid project ID '{text}'"))),
        },
    };
    let task = match () {
        () if call.options.check => Task::Check { nul: call.options.nul },
        () if call.options.clear => Task::Clear { keep: call.options.keep },
        () if call.options.set || wanted.is_some() => Task::Set { flag: call.options.set },
        () => Task::List,
    };
    if args.operands.is_empty() {
        return Err(Failure::usage("missing file or directory target(s)"));
    }
    if call.options.json && (call.options.nul || !matches!(task, Task::List | Task::Check { .. })) {
        return Err(Failure::usage("-j can only be used where files are listed, and not with -0"));
    }
    let intent = match task {
        Task::List | Task::Check { .. } => Intent::Files,
        Task::Clear { .. } | Task::Set { .. } => Intent::Write,
    };
    let mut places = Vec::new();
    for word in &args.operands {
        match Operand::read(word, call.around) {
            Ok(Some(place)) => places.push(place),
            Ok(None) => console.complain(Failure::refused(format!(
                "cannot use '{word}': not in a ZFS filesystem (write DATASET:/path)"
            )))?,
            Err(error) => console.complain(Failure::refused(error.to_string()))?,
        }
    }
    let stop = &call.around.stop()?;
    let pools = Pools::open(places.iter().map(|operand| (&operand.place, intent)), call.around)?;
    let Options { alone, recursive, .. } = call.options;
    let asked = Asked { task, wanted, alone, recursive, json: call.options.json, stop };
    for operand in &places {
        let fs = pools.filesystem(&operand.place, intent)?;
        if let Err(failure) = one(&asked, console, &fs, operand) {
            console.complain(failure)?;
        }
    }
    pools.finish()?;
    if stop.asked() { Err(Failure::Ended(stop.status())) } else { Ok(()) }
}

/// A task for all operands.
struct Asked<'a> {
    task: Task,
    /// The project id; without one, that of each operand.
    wanted: Option<u64>,
    /// Folders themselves, not their contents.
    alone: bool,
    /// All that is in folders.
    recursive: bool,
    json: bool,
    stop: &'a Stop,
}

fn one(asked: &Asked, console: &mut Console, fs: &Filesystem, operand: &Operand) -> Result<(), Failure> {
    let Asked { task, wanted, alone, recursive, json, stop } = *asked;
    let failed = |error: zpl::Error| refused("use", operand.shown(b"."), error);
    let id = fs.resolve(&operand.place.path, true).map_err(failed)?;
    let stat = fs.stat(id).map_err(failed)?;
    match stat.kind {
        FileKind::Directory => {}
        FileKind::Regular if alone || recursive => {
            let option = if alone { "-d" } else { "-r" };
            return Err(failed_words(operand, &format!("only support {option} option on directory")));
        }
        FileKind::Regular => {}
        _ => return Err(failed_words(operand, "only support project quota on regular file or directory")),
    }
    // Without -p the others are held against the first.
    let job = Job { task, wanted: wanted.unwrap_or(stat.projid), json };
    let shows = matches!(task, Task::List | Task::Check { .. });
    if stat.kind == FileKind::Regular || alone || !(recursive || shows) {
        return apply(console, fs, &operand.shown(b"."), id, job).map_err(failed);
    }
    for step in Walk::new(fs, id, recursive, Order::Forward).map_err(failed)? {
        if stop.asked() {
            break;
        }
        let step = step.map_err(|(path, error)| refused("use", operand.shown(&path), error))?;
        let shown = operand.shown(&step.path);
        apply(console, fs, &shown, step.id, job).map_err(|error| refused("use", &shown, error))?;
    }
    Ok(())
}

fn failed_words(operand: &Operand, words: &str) -> Failure {
    Failure::refused(format!("{}: {words}", operand.shown(b".")))
}

const fn hands_down(stat: &Stat) -> bool {
    stat.flags & pflags::PROJINHERIT != 0
}

/// A task for one file or folder.
#[derive(Clone, Copy)]
struct Job {
    task: Task,
    /// The project id.
    wanted: u64,
    /// The list has a JSON object for each file.
    json: bool,
}

/// Does the task for one file or folder; others have no project.
fn apply(
    console: &mut Console,
    fs: &Filesystem,
    name: &str,
    id: ObjectId,
    job: Job,
) -> Result<(), zpl::Error> {
    let Job { task, wanted, json } = job;
    let stat = fs.stat(id)?;
    if !matches!(stat.kind, FileKind::Regular | FileKind::Directory) {
        return Ok(());
    }
    let flag = hands_down(&stat);
    let mut say = |text: &str| {
        use std::io::Write;
        // A reader that went away is noticed at the end of the command.
        let _ = console.out().write_all(text.as_bytes());
    };
    let line = quoted(name.as_bytes());
    let (projid, inherit) = match task {
        Task::List | Task::Check { .. } if json => {
            let mut object = json!({ "path": name, "project": stat.projid, "inherits": flag });
            if matches!(task, Task::Check { .. }) {
                object["wanted"] = wanted.into();
            }
            let differs = task == Task::List || stat.projid != wanted || !flag;
            if differs {
                say(&format!("{object}\n"));
            }
            return Ok(());
        }
        Task::List => {
            say(&format!("{:5} {} {line}\n", stat.projid, if flag { 'P' } else { '-' }));
            return Ok(());
        }
        Task::Check { nul } => {
            if nul && (stat.projid != wanted || !flag) {
                say(&format!("{name}\0"));
                return Ok(());
            }
            if stat.projid != wanted {
                say(&format!("{line} - project ID is not set properly ({}/{wanted})\n", stat.projid));
            }
            if !flag {
                say(&format!("{line} - project inherit flag is not set\n"));
            }
            return Ok(());
        }
        Task::Clear { keep } => (if keep { stat.projid } else { 0 }, false),
        Task::Set { flag: set } => (wanted, flag || set),
    };
    if (projid, inherit) == (stat.projid, flag) {
        return Ok(());
    }
    let flags = if inherit { stat.flags | pflags::PROJINHERIT } else { stat.flags & !pflags::PROJINHERIT };
    fs.setattr(id, &SetAttr { projid: Some(projid), flags: Some(flags), ..SetAttr::default() })
}

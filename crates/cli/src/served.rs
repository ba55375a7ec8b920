//! Running command lines for clients, in the process that holds the pool.
//!
//! From:   `server`, which hands over a client's words with its standard input, output and error.
//! To:     the same code that runs on a pool without a server.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use server::messages::Job;
use server::visitors::Question;
use server::{Live, Stdio};

use crate::args;
use crate::around::{Served, Surroundings};
use crate::command::{Beside, Command, Program};
use crate::messages::Failure;
use crate::out::{Console, columns_of, quoted};
use crate::stop::Stop;
use crate::{compat, mount_helper, own, programs, visit};

/// Carries out command lines with this crate.
#[derive(Debug)]
pub struct Roof;

impl server::Commands for Roof {
    fn note_devices(&self, pool: &pool::Pool) -> Result<(), String> {
        let noted = compat::note_devices_of(pool, &std::collections::BTreeMap::new());
        noted.map_err(|error| error.to_string())
    }

    fn run(&self, job: &Job, live: &Arc<Live>, stdio: Stdio, stop: &Arc<AtomicBool>) -> u8 {
        let Stdio { input, out, err } = stdio;
        let err = Arc::new(err);
        let served = Served {
            live: live.clone(),
            folder: PathBuf::from(&job.folder),
            umask: job.umask,
            stop: Stop::raised_by(stop.clone()),
            input: Arc::new(input),
            err: err.clone(),
            whole: job.whole.clone(),
        };
        let around = Surroundings { posix: job.posix, served: Some(served), ..Surroundings::default() };
        let (terminal, watched) = (out.is_terminal(), err.is_terminal());
        let width = columns_of(&out);
        let remark_width = columns_of(&*err);
        let console = Console::new(out, Shared(err)).on_terminal(terminal).watched(watched).width(width);
        let console = console.remark_width(remark_width);
        let program = match job.program.as_str() {
            "zfs" => Program::Zfs,
            "zpool" => Program::Zpool,
            name if mount_helper::NAMES.contains(&name) => {
                let _turn = match around.served.as_ref().map(Served::turn).transpose() {
                    Ok(turn) => turn,
                    Err(failure) => return console.finish(Err(failure), String::new),
                };
                return mount_helper::served(job, live, console);
            }
            _ => return own::served(&job.words, around, console),
        };
        // Only one command at a time changes datasets and properties; reading commands take no lock. A long command takes
        // the turn when it needs it: a scrub to begin, a receive to begin and to end. Files are changed beside each other.
        let waits = command(program, job).is_none_or(|command| command.beside == Beside::Alone);
        let turn = if waits { around.served.as_ref().map(Served::turn) } else { None };
        let _turn = match turn.transpose() {
            Ok(turn) => turn,
            Err(failure) => return console.finish(Err(failure), String::new),
        };
        programs::run(program, job.words.iter().cloned(), &around, console)
    }

    fn looks_on(&self, job: &Job) -> bool {
        let program = Program::ALL.into_iter().find(|program| program.name() == job.program);
        let command = program.and_then(|program| command(program, job));
        command.is_some_and(|command| command.beside == Beside::Watches)
    }

    fn judge(&self, question: &Question) -> Result<(), String> {
        judge_question(question)
    }
}

/// A file written to by several.
struct Shared(Arc<File>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.0).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

/// The subcommand that a client asks for.
fn command(program: Program, job: &Job) -> Option<&'static Command> {
    job.words.first().and_then(|word| compat::command(program, word.to_str()?))
}

/// Parses a question of another user and decides whether it may be answered.
///
/// # Errors
/// One line that says why it is not answered.
pub fn judge_question(question: &Question) -> Result<(), String> {
    // The refused question is quoted: it may hold control characters.
    taken_apart(question).map_err(|line| quoted(line.as_bytes()))
}

fn taken_apart(question: &Question) -> Result<(), String> {
    let first_line = |failure: Failure| match failure {
        Failure::Refused(lines) => lines.into_iter().next().unwrap_or_default(),
        Failure::Usage(line) => line,
        Failure::PipeClosed | Failure::Ended(_) => String::new(),
    };
    let program = Program::ALL.into_iter().find(|program| program.name() == question.program);
    let command = question.words.first().and_then(|word| compat::command(program?, word));
    let Some(command) = command else {
        return Err(format!(
            "cenote: permission denied: on a pool of another user only {} work",
            visit::ANSWERED
        ));
    };
    let args = args::parse(command.options, &question.words[1..], question.posix);
    let args = args.map_err(|error| first_line(Failure::from(error)))?;
    visit::judge(command, &args).map_err(first_line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Subjects;
    use server::visitors::PROTOCOL;

    fn judged(line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().expect("a program");
        judge_question(&Question { protocol: PROTOCOL, program, words: words.collect(), posix: false })
    }

    #[test]
    fn every_command_that_is_not_on_the_list_is_refused_with_one_line() {
        let mut answered = Vec::new();
        for program in Program::ALL {
            for command in compat::commands(program) {
                for word in std::iter::once(command.name).chain(command.alias) {
                    match judged(&format!("{} {word}", program.name())) {
                        Ok(()) => answered.push(format!("{} {word}", program.name())),
                        Err(line) => assert!(
                            line.contains("permission denied") && !line.contains('\n'),
                            "{word}: {line:?}"
                        ),
                    }
                }
            }
        }
        let mut list = vec!["zfs list", "zfs get", "zfs holds", "zfs mount", "zfs upgrade", "zpool list"];
        list.extend(["zpool iostat", "zpool status", "zpool get", "zpool upgrade"]);
        list.sort_unstable();
        answered.sort_unstable();
        assert_eq!(answered, list);
    }

    #[test]
    fn every_option_that_is_not_on_the_list_is_refused_with_one_line() {
        let mut refused = Vec::new();
        let all = Program::ALL.into_iter().flat_map(compat::commands);
        for (command, allowed) in all.filter_map(|command| Some((command, command.visitors?))) {
            for choice in command.options {
                let (name, takes) = (choice.name(), choice.takes());
                let spelling = choice.spellings().next().expect("it has a name");
                let dashes = if spelling.len() == 1 { "-" } else { "--" };
                let value = if takes { " name" } else { "" };
                let line = format!("{} {} {dashes}{spelling}{value}", command.program.name(), command.name);
                if allowed.operands == Subjects::None {
                    assert!(allowed.options.contains(&name) || judged(&line).is_err(), "{line}");
                    continue;
                }
                match judged(&line) {
                    Ok(()) => assert!(allowed.options.contains(&name), "{line}"),
                    Err(why) => {
                        assert!(!allowed.options.contains(&name) && !why.contains('\n'), "{line}: {why}");
                        refused.push(format!("{} {dashes}{spelling}", command.name));
                    }
                }
            }
            assert!(
                allowed.options.iter().all(|name| command.options.iter().any(|known| known.name() == *name))
            );
        }
        let list = ["iostat -h", "iostat -L", "iostat -c", "list -L"];
        let status = ["status -L", "status --power", "status -c"];
        let mut expected = [&list[..], &status].concat();
        expected.sort_unstable();
        refused.sort_unstable();
        assert_eq!(refused, expected);
    }

    #[test]
    fn only_names_and_harmless_properties_are_asked_about() {
        for line in [
            "zfs list -t all -o name,used -s used tank/fs tank@snap tank#mark",
            "zfs get all",
            "zfs get used,com.example:note,written@snap tank/fs",
            "zpool status -v tank dozer",
            "zpool get size,feature@lz4_compress tank",
            "zpool iostat -yn tank 1 2",
            "zpool status 0.5 4",
            "zfs mount",
            "zpool upgrade",
        ] {
            assert_eq!(judged(line), Ok(()), "{line}");
        }
        for (line, why) in [
            ("zfs get userused@root tank", "the property 'userused@root'"),
            ("zfs list -o name,groupquota@7", "the property 'groupquota@7'"),
            ("zfs list -S userobjused@7", "the property 'userobjused@7'"),
            ("zfs list /etc", "cannot open '/etc'"),
            ("zfs get used ../x", "cannot open '../x'"),
            ("zpool status 1", "an interval"),
            ("zpool iostat tank 1", "an interval"),
            ("zpool iostat tank 5 4", "an interval"),
            ("zpool iostat 0 1", "an interval"),
            ("zpool list tank 0.001 4294967296", "an interval"),
            ("zpool status 1 2 3", "an interval"),
            ("zfs mount tank", "permission denied"),
            ("zfs upgrade tank", "permission denied"),
            ("zpool upgrade tank", "permission denied"),
            ("zpool upgrade -a", "the option '-a'"),
            ("zpool get all tank /dev/sda", "cannot open '/dev/sda'"),
            ("zpool iostat /dev/sda", "cannot open '/dev/sda'"),
            ("zpool list --nosuch", "invalid option"),
            ("zfs list a\x1b[2J", "cannot open 'a\\0033[2J'"),
            ("zfs", "permission denied"),
            ("zfs --version", "permission denied"),
            ("cenote cat tank:/file", "permission denied"),
            ("mount.zfs tank /mnt", "permission denied"),
        ] {
            let said = judged(line).expect_err(line);
            assert!(said.contains(why) && !said.contains('\n'), "{line}: {said}");
        }
    }

    #[test]
    fn the_commands_listed_for_other_users_are_the_allowed_ones() {
        let of = |program: Program| {
            let about_pools = |command: &&&Command| {
                command.visitors.is_some_and(|visitors| visitors.operands != Subjects::None)
            };
            let commands = compat::commands(program).iter().filter(about_pools);
            let mut names: Vec<&str> = commands.map(|command| command.name).collect();
            names.sort_unstable();
            format!("'{} {}'", program.name(), names.join("|"))
        };
        assert_eq!(visit::ANSWERED, format!("{} and {}", of(Program::Zfs), of(Program::Zpool)));
    }
}

//! What other users of the machine may ask of a pool that belongs to root: the list of commands, and nothing that is not on it.
//!
//! From:   a command line taken apart, in the visitor's process, in the pool's server, and in the reader that answers.
//! To:     permission, or the one line that says why not. The rules are those of OpenZFS, where everybody may open
//!         /dev/zfs and the kernel module refuses what an ordinary user may not do.
//! Why it is so: docs/decisions/0016-visitors.md.

use std::io;

use pool::props::dataset::{self as props, Asked};
use pool::props::names;
use rustix::process::{Resource, Rlimit, Signal};
use server::visitors::{OUTPUT_MAX, Question};

use crate::args::Parsed;
use crate::messages::{Action, Failure};
use crate::out::quoted;
use crate::usage::{Command, Program};

/// What the operands of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operands {
    /// There are none: with them the command changes something.
    None,
    Datasets,
    /// A list of properties, then datasets.
    PropertiesOfDatasets,
    Pools,
    /// A list of properties, then pools.
    PropertiesOfPools,
}

/// A command that other users may ask for, with the options that it may have then.
struct Allowed {
    program: Program,
    command: &'static str,
    options: &'static [&'static str],
    operands: Operands,
}

/// The longest time, in seconds, that a command with an interval and a count may take: its reader and its lease live as long.
const ROUNDS_MAX: f64 = 15.0;

/// All that other users may ask for. Not among the options are those that run programs (`-c`) or follow paths (`-L`).
const ALLOWED: [Allowed; 10] = [
    Allowed { program: Program::Zfs, command: "mount", options: &["j"], operands: Operands::None },
    Allowed { program: Program::Zfs, command: "upgrade", options: &[], operands: Operands::None },
    Allowed { program: Program::Zpool, command: "upgrade", options: &[], operands: Operands::None },
    Allowed {
        program: Program::Zfs,
        command: "get",
        options: &["H", "p", "r", "j", "json-int", "d", "o", "s", "t"],
        operands: Operands::PropertiesOfDatasets,
    },
    Allowed {
        program: Program::Zfs,
        command: "holds",
        options: &["r", "H", "p"],
        operands: Operands::Datasets,
    },
    Allowed {
        program: Program::Zfs,
        command: "list",
        options: &["H", "p", "r", "j", "json-int", "d", "o", "s", "S", "t"],
        operands: Operands::Datasets,
    },
    Allowed {
        program: Program::Zpool,
        command: "get",
        options: &["H", "p", "j", "json-int", "json-pool-key-guid", "o"],
        operands: Operands::PropertiesOfPools,
    },
    Allowed {
        program: Program::Zpool,
        command: "iostat",
        options: &["g", "H", "n", "p", "P", "v", "l", "q", "r", "w", "y", "T"],
        operands: Operands::Pools,
    },
    Allowed {
        program: Program::Zpool,
        command: "list",
        options: &["g", "H", "p", "P", "v", "j", "json-int", "json-pool-key-guid", "o", "T"],
        operands: Operands::Pools,
    },
    Allowed {
        program: Program::Zpool,
        command: "status",
        options: &[
            "d",
            "D",
            "e",
            "g",
            "i",
            "p",
            "P",
            "s",
            "t",
            "v",
            "x",
            "j",
            "json-int",
            "json-flat-vdevs",
            "json-pool-key-guid",
            "T",
        ],
        operands: Operands::Pools,
    },
];

/// The reader's limits: bytes of address space, seconds of a processor, and how far it gives way to others.
const MEMORY_MAX: u64 = 512 << 20;
const PROCESSOR_SECONDS: u64 = 20;
const NICENESS: i32 = 10;

fn allowed(program: Program, command: &Command) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|allowed| allowed.program == program && allowed.command == command.name)
}

/// Whether a command is one that other users may ask for, as far as its kind goes. A command that only looks as long as it
/// has no operands is none with operands, or with an option that makes it do something.
#[must_use]
pub fn is_allowed(program: Program, command: &Command, args: &Parsed) -> bool {
    allowed(program, command).is_some_and(|allowed| {
        let looks = || args.options.iter().all(|(name, _)| allowed.options.contains(name));
        allowed.operands != Operands::None || args.operands.is_empty() && looks()
    })
}

/// The commands that other users may ask for, in words.
#[must_use]
pub fn in_words() -> String {
    let of = |program: Program| {
        let names =
            ALLOWED.iter().filter(|allowed| allowed.program == program && allowed.operands != Operands::None);
        let names = names.map(|allowed| allowed.command);
        format!("{} {}", program.name(), names.collect::<Vec<_>>().join("|"))
    };
    format!("'{}' and '{}'", of(Program::Zfs), of(Program::Zpool))
}

/// The operands that name datasets or pools.
#[must_use]
pub fn subjects<'a>(program: Program, command: &Command, operands: &'a [String]) -> &'a [String] {
    let lists = allowed(program, command).map_or(0, |allowed| match allowed.operands {
        Operands::None | Operands::Datasets | Operands::Pools => 0,
        Operands::PropertiesOfDatasets | Operands::PropertiesOfPools => 1,
    });
    operands.get(lists..).unwrap_or_default()
}

/// Whether another user may have this command line carried out.
///
/// # Errors
/// One line that says why not.
pub fn judge(program: Program, command: &Command, args: &Parsed) -> Result<(), Failure> {
    let called = format!("{} {}", program.name(), command.name);
    let Some(allowed) = allowed(program, command) else {
        return Err(Failure::refused(format!(
            "cenote: {called}: permission denied: on a pool of another user only {} work",
            in_words()
        )));
    };
    let refused = |what: &str| {
        Failure::refused(format!("cenote: {called}: {what} is not possible on a pool of another user"))
    };
    if let Some((option, _)) = args.options.iter().find(|(name, _)| !allowed.options.contains(name)) {
        let dashes = if option.len() == 1 { "-" } else { "--" };
        return Err(refused(&format!("the option '{dashes}{option}'")));
    }
    let mut lists: Vec<&str> = ["o", "s", "S"].into_iter().flat_map(|name| args.values(name)).collect();
    if allowed.operands == Operands::PropertiesOfDatasets {
        lists.extend(args.operands.first().map(String::as_str));
    }
    let mut words = lists.into_iter().flat_map(|list| list.split(','));
    if let Some(word) = words.find(|word| matches!(props::ask(word), Some(Asked::Account(_)))) {
        return Err(refused(&format!("the property '{word}'")));
    }
    let named = match without_rounds(subjects(program, command, &args.operands)) {
        Some(named) if allowed.operands != Operands::PropertiesOfPools => named,
        Some(_) => subjects(program, command, &args.operands),
        None => return Err(refused("an interval without a count, or for more than 15 s in all,")),
    };
    for name in named {
        match allowed.operands {
            Operands::None => {
                return Err(Failure::refused(format!("cenote: {called}: permission denied")));
            }
            Operands::Datasets | Operands::PropertiesOfDatasets => {
                names::check(name).map_err(|error| Action::Open(name).failed(error))?;
            }
            Operands::Pools | Operands::PropertiesOfPools => {
                names::check_pool(name, false).map_err(|error| Action::Open(name).failed(error))?;
            }
        }
    }
    Ok(())
}

/// The names among operands, without the interval and the count that may follow them; `None` for an interval that is not
/// allowed.
fn without_rounds(operands: &[String]) -> Option<&[String]> {
    let is_number = |word: &&String| word.starts_with(|c: char| c.is_ascii_digit());
    let names = operands.len() - operands.iter().rev().take_while(is_number).count();
    let (names, rounds) = operands.split_at(names);
    let is_short = match rounds {
        [] => true,
        [interval, count] => {
            let seconds = interval.parse::<f64>().ok().zip(count.parse::<u32>().ok());
            seconds.is_some_and(|(interval, count)| {
                interval > 0.0 && count > 0 && interval * f64::from(count) <= ROUNDS_MAX
            })
        }
        _ => false,
    };
    is_short.then_some(names)
}

/// Takes a question of another user apart and judges it.
///
/// # Errors
/// One line that says why it is not answered.
pub fn judge_question(question: &Question) -> Result<(), String> {
    // What is refused is quoted: it may hold control characters.
    taken_apart(question).map_err(|line| quoted(line.as_bytes()))
}

fn taken_apart(question: &Question) -> Result<(), String> {
    let first_line = |failure: Failure| match failure {
        Failure::Refused(lines) => lines.into_iter().next().unwrap_or_default(),
        Failure::Usage(line) => line,
        Failure::PipeClosed | Failure::Ended(_) => String::new(),
    };
    let program =
        [Program::Zfs, Program::Zpool].into_iter().find(|program| program.name() == question.program);
    let command = question.words.first().and_then(|word| program?.command(word));
    let (Some(program), Some(command)) = (program, command) else {
        return Err(format!("cenote: permission denied: on a pool of another user only {} work", in_words()));
    };
    let args = command.options.parse(&question.words[1..], question.posix);
    let args = args.map_err(|error| first_line(Failure::from(error)))?;
    judge(program, command, &args).map_err(first_line)
}

/// Limits this process, which answers one question of another user: it ends with the thread that started it, and when it
/// takes more memory, time or output than one answer may.
///
/// # Errors
/// The system refuses the limits.
pub fn limit_this_process() -> io::Result<()> {
    let limits = [
        (Resource::As, MEMORY_MAX),
        (Resource::Cpu, PROCESSOR_SECONDS),
        (Resource::Fsize, OUTPUT_MAX),
        (Resource::Core, 0),
    ];
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    for (resource, most) in limits {
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    rustix::process::nice(NICENESS)?;
    // On a machine without memory the kernel ends a reader before anything else.
    std::fs::write("/proc/self/oom_score_adj", "1000")
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::visitors::PROTOCOL;

    fn judged(line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().expect("a program");
        judge_question(&Question { protocol: PROTOCOL, program, words: words.collect(), posix: false })
    }

    #[test]
    fn every_command_that_is_not_on_the_list_is_refused_with_one_line() {
        let mut answered = Vec::new();
        for program in [Program::Zfs, Program::Zpool] {
            for command in program.commands() {
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
        for allowed in &ALLOWED {
            let command = allowed.program.command(allowed.command).expect("it is a command");
            for (name, mut spellings, takes) in command.options.options() {
                let spelling = spellings.next().expect("it has a name");
                let dashes = if spelling.len() == 1 { "-" } else { "--" };
                let value = if takes { " name" } else { "" };
                let line =
                    format!("{} {} {dashes}{spelling}{value}", allowed.program.name(), allowed.command);
                if allowed.operands == Operands::None {
                    assert!(allowed.options.contains(&name) || judged(&line).is_err(), "{line}");
                    continue;
                }
                match judged(&line) {
                    Ok(()) => assert!(allowed.options.contains(&name), "{line}"),
                    Err(why) => {
                        assert!(!allowed.options.contains(&name) && !why.contains('\n'), "{line}: {why}");
                        refused.push(format!("{} {dashes}{spelling}", allowed.command));
                    }
                }
            }
            assert!(
                allowed.options.iter().all(|name| command.options.options().any(|known| known.0 == *name))
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
}

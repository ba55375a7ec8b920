//! `zfs` and `zpool`: from the words of a command line to a subcommand.
//!
//! From:   the words behind the program's name.
//! To:     the subcommand, here or in a server ([`forward`]). Errors that OpenZFS reports before it opens a pool are
//!         reported here, from the tables in [`compat`].

use std::ffi::OsString;

use pool::props::{Access, Property};

use crate::args::{self, ArgError};
use crate::around::Surroundings;
use crate::command::{Call, Command, Program};
use crate::compat::{self, misspelt_device, owner_quota, version};
use crate::forward;
use crate::messages::Failure;
use crate::out::Console;
use crate::{near, suggest, wrap};

/// Runs `zfs` or `zpool`. Names of datasets and properties are ASCII and paths given to these two are kept in
/// text structures on disk, so arguments must be UTF-8.
pub fn run(
    program: Program,
    words: impl IntoIterator<Item = OsString>,
    around: &Surroundings,
    console: Console,
) -> u8 {
    let words: Result<Vec<String>, OsString> = words.into_iter().map(OsString::into_string).collect();
    match words {
        Ok(words) => main(program, &words, around, console),
        Err(word) => {
            let line = format!("argument '{}' is not UTF-8", word.to_string_lossy());
            console.finish(Err(Failure::usage(line)), || usage(program))
        }
    }
}

/// Carries out a command line; `words` are those after the program's name. Returns the exit status.
fn main(program: Program, words: &[String], around: &Surroundings, mut console: Console) -> u8 {
    let typed = words;
    let words = quieted(words, &mut console);
    let Some((word, rest)) = words.split_first() else {
        return console.finish(Err(Failure::usage("missing command")), || usage(program));
    };
    let mut about = None;
    let mut is_usage_asked = false;
    let ended = match word.as_str() {
        "-?" | "--help" | "-h" | "help" if rest.is_empty() || word != "help" => {
            help(program, &[], &mut console)
        }
        "help" => help(program, rest, &mut console),
        "--version" | "-V" => version::print(&mut console),
        word => match compat::command(program, word) {
            None => Err(unrecognized(program, word, &mut console)),
            Some(command) => {
                about = Some(command);
                let whole = around.served.as_ref().and_then(|served| served.whole()).map(str::to_owned);
                let line = whole.unwrap_or_else(|| format!("{} {}", program.name(), typed.join(" ")));
                let carry_out = |args| {
                    let call = Call { command, args, around, line };
                    forward::or_here(&call, &words, &mut console)
                };
                match (args::parse(command.options, rest, around.posix), command.scripts) {
                    (Err(ArgError::MissingArgument(option)), Some(list)) if option == "c" => {
                        list(&mut console, command.name)
                    }
                    (Err(ArgError::Help), _) => console.help(&command.help()),
                    (parsed, _) => {
                        is_usage_asked = matches!(parsed, Err(ArgError::Usage));
                        parsed.map_err(Failure::from).and_then(carry_out)
                    }
                }
            }
        },
    };
    let ended = match about {
        Some(command) => {
            let of_line = |line: &str| {
                suggest::of_line(line, program, command, rest)
                    .or_else(|| near::of_words(line, rest, around))
                    .or_else(|| misspelt_device::of_words(line, rest, around))
                    .or_else(|| owner_quota::of_line(line))
            };
            near::told(ended, of_line, around, &mut console)
        }
        None => ended,
    };
    let text = |command: &Command| if is_usage_asked { command.help() } else { command.usage() };
    console.finish(ended, || about.map_or_else(|| usage(program), text))
}

/// The words of a command line without `-q` and `--quiet` before the command. Where it is to be quiet, the word behind the
/// command tells a server.
fn quieted(words: &[String], console: &mut Console) -> Vec<String> {
    let before = words.iter().take_while(|word| ["-q", "--quiet"].contains(&word.as_str())).count();
    let mut kept = words[before..].to_vec();
    let behind = kept.iter().skip(1).take_while(|word| *word != "--").any(|word| word == args::QUIET);
    console.set_quiet(console.is_quiet() || before > 0 || behind);
    let is_command = kept.first().is_some_and(|word| !word.starts_with('-') && word != "help");
    if console.is_quiet() && !behind && is_command {
        kept.insert(1, args::QUIET.to_owned());
    }
    kept
}

/// The answer to a word that is no subcommand: the same one of the other program, the nearest subcommand when one is near, else
/// the usage of all.
fn unrecognized(program: Program, word: &str, console: &mut Console) -> Failure {
    let first = format!("unrecognized command '{word}'");
    let name = program.name();
    let line = match (Program::ALL.into_iter().find(|other| compat::command(*other, word).is_some()), word) {
        (Some(other), _) => format!("did you mean '{} {word}'?", other.name()),
        (None, "-d") => format!("'-d DIR|FILE' stands before the program: 'cenote -d DIR|FILE {name} …'"),
        (None, _) => match nearest(program, word) {
            Some(near) => format!("did you mean '{name} {near}'?"),
            None if suggest::nearest(word, [PROPERTIES].into_iter()).is_some() => {
                format!("did you mean '{name} help {PROPERTIES}'?")
            }
            None if suggest::nearest(word, ["help"].into_iter()).is_some() => {
                format!("did you mean '{name} help'?")
            }
            None => return Failure::usage(first),
        },
    };
    console.remark(&first);
    console.remark(&format!("{line} '{name} help' lists all commands"));
    Failure::Ended(2)
}

/// The topic of help that is no command.
pub const PROPERTIES: &str = "properties";
/// Columns for the name of a property.
const NAME: usize = 24;

/// `help`, `help COMMAND` and `help properties`.
///
/// # Errors
/// There is no such command; standard output is gone.
pub fn help(program: Program, topics: &[String], console: &mut Console) -> Result<(), Failure> {
    if topics.is_empty() {
        let examples: String = examples(program).iter().map(|line| format!("  {line}\n")).collect();
        return console.help(&format!("{}\nExamples:\n{examples}", usage(program)));
    }
    for topic in topics {
        match (topic.as_str(), program, compat::command(program, topic)) {
            (_, _, Some(command)) => console.help(&command.help())?,
            (PROPERTIES, Program::Zfs, _) => properties(pool::props::dataset::VISIBLE, console)?,
            (PROPERTIES, Program::Zpool, _) => properties(pool::props::pool::VISIBLE, console)?,
            _ => return Err(unrecognized(program, topic, console)),
        }
    }
    Ok(())
}

/// Prints a table of properties with their values.
///
/// # Errors
/// Standard output is gone.
pub fn properties(table: &[Property], console: &mut Console) -> Result<(), Failure> {
    for property in table {
        let (first, next) = (format!("  {:<NAME$} ", property.name), " ".repeat(NAME + 3));
        let text = format!("{}{}", property.summary, access(property.access));
        let lines = wrap::lines(&text, console.help_width(), (&first, &next));
        lines.iter().try_for_each(|line| console.line(line))?;
    }
    Ok(())
}

/// The words of the table for a property that a user cannot simply set.
const fn access(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => " (read-only)",
        Access::CreateOnly => " (only when it is created)",
        Access::Inherit => " (inherited)",
        Access::Set => "",
    }
}

/// Whole command lines of a program, for its help and its manual page.
pub const fn examples(program: Program) -> &'static [&'static str] {
    match program {
        Program::Zfs => &[
            "zfs create -o compression=zstd tank/home",
            "zfs snapshot -r tank@monday",
            "zfs list -t all -o name,used,refer",
            "zfs send tank/home@monday | zfs receive backup/home",
        ],
        Program::Zpool => &[
            "zpool create tank /srv/tank.img",
            "zpool status tank",
            "zpool import -d /srv tank",
            "zpool scrub -w tank",
        ],
    }
}

/// The subcommand that `word` is most likely a misspelling of, if any is near.
pub fn nearest(program: Program, word: &str) -> Option<&'static str> {
    suggest::nearest(word, compat::commands(program).iter().map(|command| command.name))
}

/// The usage of everything.
pub fn usage(program: Program) -> String {
    let mut text = format!("usage: {} COMMAND [OPTIONS] [OPERANDS]\nThe commands are:\n\n", program.name());
    for line in compat::commands(program).iter().flat_map(|c| c.syntax) {
        text.push_str(&format!("\t{line}\n"));
    }
    text.push_str(match program {
        Program::Zfs => {
            "\nErrors and results only: zfs -q COMMAND, or --quiet behind the command.\n\
             A dataset is named pool[/component]…, a snapshot dataset@name, a bookmark dataset#name.\n\
             Properties and their values: zfs help properties\n"
        }
        Program::Zpool => {
            "\nErrors and results only: zpool -q COMMAND, or --quiet behind the command.\n\
             Properties and their values: zpool help properties\n"
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
            (Program::Zfs, "scrub", "zpool scrub"),
            (Program::Zpool, "snapshot", "zfs snapshot"),
            (Program::Zfs, "help propertis", "zfs help properties"),
            (Program::Zfs, "hlep", "zfs help"),
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
    fn every_supported_command_has_examples_that_parse() {
        for command in Program::ALL.into_iter().flat_map(|program| compat::commands(program)) {
            let is_supported = matches!(command.run, crate::command::Run::Here(_));
            assert_eq!(!command.examples.is_empty(), is_supported, "{}", command.called());
            for example in command.examples {
                let of_this = example.split(" | ").filter(|part| {
                    let words: Vec<&str> = part.split_whitespace().take(2).collect();
                    words.join(" ") == command.called()
                });
                let parts: Vec<&str> = of_this.collect();
                assert_eq!(parts.len(), 1, "'{example}' is an example of {}", command.called());
                let words = parts[0].split_whitespace().skip(2).map(str::to_owned);
                let words: Vec<String> = words.take_while(|word| word != ">" && word != "<").collect();
                let parsed = args::parse(command.options, &words, false);
                assert!(parsed.is_ok(), "'{example}': {parsed:?}");
            }
        }
    }

    /// Commands without JSON, and why they have none.
    const WITHOUT_JSON: [(&str, &[&str]); 5] = [
        (
            "they print nothing, or sentences about a trial run",
            &[
                "zfs create",
                "zfs destroy",
                "zfs snapshot",
                "zfs rollback",
                "zfs clone",
                "zfs promote",
                "zfs rename",
                "zfs bookmark",
                "zfs set",
                "zfs inherit",
                "zfs unmount",
                "zfs share",
                "zfs unshare",
                "zfs unallow",
                "zfs hold",
                "zfs release",
                "zfs load-key",
                "zfs unload-key",
                "zfs change-key",
                "zfs redact",
                "zpool create",
                "zpool destroy",
                "zpool add",
                "zpool remove",
                "zpool labelclear",
                "zpool checkpoint",
                "zpool prefetch",
                "zpool online",
                "zpool offline",
                "zpool clear",
                "zpool attach",
                "zpool detach",
                "zpool replace",
                "zpool split",
                "zpool initialize",
                "zpool resilver",
                "zpool scrub",
                "zpool trim",
                "zpool export",
                "zpool reguid",
                "zpool reopen",
                "zpool set",
                "zpool sync",
                "zpool ddtprune",
            ],
        ),
        ("they write or read a stream", &["zfs send", "zfs receive"]),
        ("they print how far they are", &["zfs wait", "zpool wait"]),
        ("it prints the names of what it rewrote, one a line", &["zfs rewrite"]),
        ("it is not supported yet", &["zpool condense"]),
    ];

    #[test]
    fn every_command_that_prints_a_result_has_json() {
        for command in Program::ALL.into_iter().flat_map(|program| compat::commands(program)) {
            let has =
                command.options.iter().any(|choice| choice.spellings().any(|spelling| spelling == "json"));
            let called = command.called();
            let is_listed = WITHOUT_JSON.iter().any(|(_, all)| all.contains(&called.as_str()));
            let is_supported = matches!(command.run, crate::command::Run::Here(_));
            assert_eq!(has, is_supported && !is_listed, "{called}");
        }
    }

    #[test]
    fn help_shows_examples_and_a_mistake_does_not() {
        let (status, out, _) = call(Program::Zfs, "help rollback");
        assert_eq!(status, 0);
        assert!(out.contains("\nExamples:\n  zfs rollback tank/home@monday\n"), "{out}");
        for asked in ["rollback --help", "rollback -h"] {
            let (status, out, err) = call(Program::Zfs, asked);
            assert_eq!((status, err.as_str()), (0, ""), "{asked}");
            assert!(out.contains("  zfs rollback tank/home@monday\n"), "{out}");
        }
        let (status, _, err) = call(Program::Zfs, "rollback -z");
        assert_eq!(status, 2);
        assert!(err.contains("usage:") && !err.contains("Examples:"), "{err}");
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
        let topics = |program| {
            let of_commands =
                compat::commands(program).iter().map(|command| format!("{} --help", command.name));
            of_commands.chain(["help".to_owned(), "help properties".to_owned()])
        };
        for (program, line) in
            Program::ALL.into_iter().flat_map(|program| topics(program).map(move |line| (program, line)))
        {
            let (status, out, err) = call(program, &line);
            assert!(status == 0 && err.is_empty() && !out.is_empty(), "{line}");
            let columns = |line: &str| line.chars().count() + 7 * line.matches('\t').count();
            assert_eq!(out.lines().find(|line| columns(line) > 80), None, "{} {line}", program.name());
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
    fn zfs_and_zpool_can_be_quiet() {
        for (line, kept, is_quiet) in [
            ("-q list tank", "list --quiet tank", true),
            ("--quiet", "", true),
            ("list --quiet tank", "list --quiet tank", true),
            ("list -- --quiet", "list -- --quiet", false),
            ("-q help list", "help list", true),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let mut console = Console::new(std::io::sink(), std::io::sink());
            assert_eq!(quieted(&words, &mut console).join(" "), kept);
            assert_eq!(console.is_quiet(), is_quiet, "{line}");
        }
        let words = ["--quiet".to_owned()];
        for command in Program::ALL.into_iter().flat_map(compat::commands) {
            assert!(
                args::parse(command.options, &words, false).is_ok_and(|parsed| parsed.options.is_empty())
            );
        }
    }

    #[test]
    fn unsupported_commands_say_so() {
        let (status, out, err) = call(Program::Zfs, "jail 1 tank/a");
        assert_eq!((status, out.as_str()), (1, ""));
        assert!(err.starts_with("cenote: not supported yet: zfs jail (there is no kernel module"), "{err}");
        let (_, out, _) = call(Program::Zfs, "help program");
        assert!(out.contains("Not supported yet: there is no Lua here; a shell"), "{out}");
    }

    #[test]
    fn every_subcommand_is_known_once_and_shows_its_own_name() {
        for program in Program::ALL {
            let mut names = HashSet::new();
            for command in compat::commands(program) {
                assert!(names.insert(command.name), "{}", command.name);
                assert!(command.alias.is_none_or(|alias| names.insert(alias)));
                assert!(!command.syntax.is_empty(), "{}", command.name);
                assert!(command.syntax.iter().all(|line| line.starts_with(command.name)), "{}", command.name);
                assert!(usage(program).contains(command.syntax[0]));
            }
        }
        let named = |program, word| compat::command(program, word).map(|command| command.name);
        assert_eq!(named(Program::Zfs, "snap"), Some("snapshot"));
        assert_eq!(named(Program::Zfs, "recv"), Some("receive"));
        assert_eq!(named(Program::Zpool, "nosuch"), None);
    }

    #[test]
    fn every_subcommand_and_option_is_explained() {
        for program in Program::ALL {
            for command in compat::commands(program) {
                assert_eq!(command.program, program);
                assert!(!command.about.is_empty());
                for choice in command.options {
                    assert!(!choice.about.is_empty(), "{} {}", command.name, choice.name());
                }
            }
        }
    }

    #[test]
    fn every_letter_that_a_syntax_line_shows_is_an_option() {
        for command in Program::ALL.into_iter().flat_map(compat::commands) {
            for line in command.syntax {
                for word in line.split(|c: char| c.is_whitespace() || "[]|…".contains(c)) {
                    let Some(letters) = word.strip_prefix('-').filter(|l| !l.starts_with('-')) else {
                        continue;
                    };
                    for letter in letters.chars() {
                        let probe = [format!("-{letter}"), "x".to_owned()];
                        let parsed = args::parse(command.options, &probe, false);
                        assert!(parsed.is_ok(), "{}: -{letter} is shown but not taken", command.name);
                    }
                }
            }
        }
    }
}

//! `zfs` and `zpool`: from the words of a command line to a subcommand.
//!
//! From:   the words behind the program's name.
//! To:     the subcommand, here or in a server ([`forward`]). Errors that OpenZFS reports before it opens a pool are
//!         reported here, from the tables in [`compat`].

use std::ffi::OsString;

use crate::args::{self, ArgError};
use crate::around::Surroundings;
use crate::command::{Call, Command, Program};
use crate::compat::{self, version};
use crate::forward;
use crate::messages::Failure;
use crate::out::Console;
use crate::suggest;

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

/// Carries out a command line; `words` are those after the program's name. Gives the exit status.
fn main(program: Program, words: &[String], around: &Surroundings, mut console: Console) -> u8 {
    let Some((word, rest)) = words.split_first() else {
        return console.finish(Err(Failure::usage("missing command")), || usage(program));
    };
    let mut about = None;
    let mut is_help_asked = false;
    let ended = match word.as_str() {
        "-?" | "--help" | "-h" | "help" if rest.is_empty() || word != "help" => {
            console.line(usage(program).trim_end())
        }
        "help" => help(program, rest, &mut console),
        "--version" | "-V" => version::print(&mut console),
        word => match compat::command(program, word) {
            None => Err(unrecognized(program, word, &mut console)),
            Some(command) => {
                about = Some(command);
                let whole = around.served.as_ref().and_then(|served| served.whole()).map(str::to_owned);
                let line = whole.unwrap_or_else(|| format!("{} {}", program.name(), words.join(" ")));
                let carry_out = |args| {
                    let call = Call { command, args, around, line };
                    forward::or_here(&call, words, &mut console)
                };
                match (args::parse(command.options, rest, around.posix), command.scripts) {
                    (Err(ArgError::MissingArgument(option)), Some(list)) if option == "c" => {
                        list(&mut console, command.name)
                    }
                    (parsed, _) => {
                        is_help_asked = matches!(parsed, Err(ArgError::Help));
                        parsed.map_err(misread).and_then(carry_out)
                    }
                }
            }
        },
    };
    let ended = match about {
        Some(command) if console.is_watched() => {
            ended.map_err(|failure| suggest::with_suggestion(failure, program, command, rest))
        }
        _ => ended,
    };
    let text = |command: &Command| if is_help_asked { command.help() } else { command.usage() };
    console.finish(ended, || about.map_or_else(|| usage(program), text))
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
            None => return Failure::usage(first),
        },
    };
    console.remark(&first);
    console.remark(&format!("{line} '{name} help' lists all commands"));
    Failure::Ended(2)
}

fn misread(error: ArgError) -> Failure {
    match error {
        // A long option that wants an argument is named as it was typed.
        ArgError::Help => Failure::usage(""),
        error => error.into(),
    }
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
            (word, program) => match compat::command(program, word) {
                Some(command) => console.line(command.help().trim_end())?,
                None => return Err(unrecognized(program, word, console)),
            },
        }
    }
    Ok(())
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
            "\nA dataset is named pool[/component]…, a snapshot dataset@name, a bookmark dataset#name.\n\
             Properties and their values: zfs help properties\n"
        }
        Program::Zpool => "\nProperties and their values: zpool help properties\n",
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

    #[test]
    fn help_shows_examples_and_a_mistake_does_not() {
        let (status, out, _) = call(Program::Zfs, "help rollback");
        assert_eq!(status, 0);
        assert!(out.contains("\nExamples:\n  zfs rollback tank/home@monday\n"), "{out}");
        let (status, _, err) = call(Program::Zfs, "rollback --help");
        assert_eq!(status, 2);
        assert!(err.contains("  zfs rollback tank/home@monday\n"), "{err}");
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
    fn unsupported_commands_say_so() {
        let (status, out, err) = call(Program::Zfs, "jail 1 tank/a");
        assert_eq!((status, out.as_str()), (1, ""));
        assert!(err.starts_with("cenote: not supported yet: zfs jail (there is no kernel module"), "{err}");
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

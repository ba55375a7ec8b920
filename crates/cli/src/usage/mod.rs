//! What the subcommands of `zfs` and `zpool` take: their options and their syntax in one line each.
//!
//! One table feeds the option parser, the usage texts and the list of known subcommands.

mod zfs;
mod zpool;

use crate::args::Spec;

/// A subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    pub name: &'static str,
    /// Another name for it.
    pub alias: Option<&'static str>,
    pub options: Spec,
    /// Syntax lines, without the name of the program.
    pub syntax: &'static [&'static str],
}

/// The two programs whose interface is OpenZFS's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Zfs,
    Zpool,
}

impl Program {
    pub const fn name(self) -> &'static str {
        match self {
            Program::Zfs => "zfs",
            Program::Zpool => "zpool",
        }
    }

    pub const fn commands(self) -> &'static [Command] {
        match self {
            Program::Zfs => zfs::COMMANDS,
            Program::Zpool => zpool::COMMANDS,
        }
    }

    /// The subcommand called `word`.
    pub fn command(self, word: &str) -> Option<&'static Command> {
        self.commands().iter().find(|c| c.name == word || c.alias == Some(word))
    }

    /// The usage of everything.
    pub fn usage(self) -> String {
        let mut text = format!("usage: {} COMMAND [OPTIONS] [OPERANDS]\nThe commands are:\n\n", self.name());
        for line in self.commands().iter().flat_map(|c| c.syntax) {
            text.push_str(&format!("\t{line}\n"));
        }
        text.push_str(match self {
            Program::Zfs => {
                "\nA dataset is named pool[/component]…, a snapshot dataset@name, a bookmark dataset#name.\n\
                 Properties and their values: zfs help properties\n"
            }
            Program::Zpool => "\nProperties and their values: zpool help properties\n",
        });
        text
    }
}

impl Command {
    /// The usage of this subcommand.
    pub fn usage(&self) -> String {
        let mut text = "usage:\n".to_owned();
        for line in self.syntax {
            text.push_str(&format!("\t{line}\n"));
        }
        if self.syntax.iter().any(|line| line.contains("PROPERTY")) {
            text.push_str("\nProperties and their values: 'help properties'.\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_subcommand_is_known_once_and_shows_its_own_name() {
        for program in [Program::Zfs, Program::Zpool] {
            let mut names = HashSet::new();
            for command in program.commands() {
                assert!(names.insert(command.name), "{}", command.name);
                assert!(command.alias.is_none_or(|alias| names.insert(alias)));
                assert!(!command.syntax.is_empty(), "{}", command.name);
                assert!(command.syntax.iter().all(|line| line.starts_with(command.name)), "{}", command.name);
                assert!(program.usage().contains(command.syntax[0]));
            }
        }
        assert_eq!(Program::Zfs.command("snap").map(|c| c.name), Some("snapshot"));
        assert_eq!(Program::Zfs.command("recv").map(|c| c.name), Some("receive"));
        assert_eq!(Program::Zpool.command("nosuch"), None);
    }

    #[test]
    fn every_letter_that_a_syntax_line_shows_is_an_option() {
        for command in Program::Zfs.commands().iter().chain(Program::Zpool.commands()) {
            for line in command.syntax {
                for word in line.split(|c: char| c.is_whitespace() || "[]|…".contains(c)) {
                    let Some(letters) = word.strip_prefix('-').filter(|l| !l.starts_with('-')) else {
                        continue;
                    };
                    for letter in letters.chars() {
                        let probe = [format!("-{letter}"), "x".to_owned()];
                        let parsed = command.options.parse(&probe, false);
                        assert!(parsed.is_ok(), "{}: -{letter} is shown but not taken", command.name);
                    }
                }
            }
        }
    }
}

//! What the subcommands of `zfs` and `zpool` take: their options and their syntax in one line each.
//!
//! One table feeds the option parser, the usage texts and the list of known subcommands; another says what they are for,
//! in manuals and completions.

mod about_zfs;
mod about_zpool;
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

/// What a subcommand is for: its name, what it does, what each of its options does.
#[derive(Debug, Clone, Copy)]
pub struct About(pub &'static str, pub &'static str, pub &'static [(&'static str, &'static str)]);

/// An option of a subcommand.
#[derive(Debug, Clone)]
pub struct Choice {
    /// All spellings, without dashes.
    pub spellings: Vec<&'static str>,
    /// It wants an argument.
    pub takes: bool,
    /// What it does.
    pub about: &'static str,
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

    const fn about(self) -> &'static [About] {
        match self {
            Program::Zfs => about_zfs::ABOUT,
            Program::Zpool => about_zpool::ABOUT,
        }
    }

    /// What a subcommand does.
    pub fn summary(self, command: &Command) -> &'static str {
        self.about().iter().find(|about| about.0 == command.name).map_or("", |about| about.1)
    }

    /// The options of a subcommand.
    pub fn choices(self, command: &Command) -> Vec<Choice> {
        let about = self.about().iter().find(|about| about.0 == command.name);
        let does = |name: &str| {
            let all = about.map_or([].as_slice(), |about| about.2);
            all.iter().find(|(option, _)| *option == name).map_or("", |(_, does)| does)
        };
        let options = command.options.options();
        options
            .map(|(name, spellings, takes)| Choice {
                spellings: spellings.collect(),
                takes,
                about: does(name),
            })
            .collect()
    }

    /// The subcommand called `word`.
    pub fn command(self, word: &str) -> Option<&'static Command> {
        self.commands().iter().find(|c| c.name == word || c.alias == Some(word))
    }

    /// The subcommand that `word` is most likely a misspelling of, if any is near.
    pub fn nearest(self, word: &str) -> Option<&'static str> {
        /// Similarity (Jaro, 0 to 1) of a misspelt word: one changed or swapped letter leaves 0.85 and more.
        const NEAR: f64 = 0.8;
        let all = self.commands().iter().map(|command| (strsim::jaro(command.name, word), command.name));
        let near = all.filter(|(similarity, _)| *similarity > NEAR);
        near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
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
    fn every_subcommand_and_option_is_explained() {
        for program in [Program::Zfs, Program::Zpool] {
            let names: Vec<&str> = program.commands().iter().map(|command| command.name).collect();
            let about: Vec<&str> = program.about().iter().map(|about| about.0).collect();
            assert_eq!(about, names);
            for (command, about) in program.commands().iter().zip(program.about()) {
                assert!(!program.summary(command).is_empty());
                let choices = program.choices(command);
                for choice in &choices {
                    assert!(!choice.about.is_empty(), "{} {:?}", command.name, choice.spellings);
                }
                assert_eq!(choices.len(), about.2.len(), "{}: explains what is not taken", command.name);
            }
        }
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

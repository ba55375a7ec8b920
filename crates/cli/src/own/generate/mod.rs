//! `cenote generate`: manual pages and completions for shells, from the tables that command lines are read with.
//!
//! From:   the subcommands of `zfs` and `zpool` in [`crate::compat`], cenote's own in [`super::Cenote`].
//! To:     files in a folder.

mod bash;
mod fish;
mod man;
mod zsh;

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use pool::props::{Access, Kind, Property};

use super::args::What;
use super::{Cenote, Generate};
use crate::command::{Command, Program};
use crate::messages::{Failure, io_words};
use crate::out::Console;
use crate::{args, compat, programs};

/// A program with subcommands.
pub struct Tool {
    pub name: &'static str,
    /// Of the manual.
    pub section: u8,
    pub summary: &'static str,
    pub commands: Vec<Sub>,
    /// Options before the subcommand.
    pub choices: Vec<Choice>,
    pub properties: &'static [Property],
    /// Whole command lines.
    pub examples: &'static [&'static str],
}

/// A subcommand.
pub struct Sub {
    pub names: Vec<String>,
    pub summary: String,
    /// Each begins with the name.
    pub syntax: Vec<String>,
    pub choices: Vec<Choice>,
    /// More about it.
    pub notes: String,
    pub operands: Operands,
}

/// An option.
pub struct Choice {
    pub short: Vec<char>,
    pub long: Vec<String>,
    /// The kind of its argument, if it takes one.
    pub argument: Option<Argument>,
    pub about: String,
}

/// The argument of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// `PROPERTY=VALUE` or `PROPERTY`.
    Property,
    /// A value with this name in the syntax, a file perhaps.
    Named(String),
}

/// The kinds of operands that a subcommand takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    pub pools: bool,
    pub datasets: bool,
    pub snapshots: bool,
    pub properties: bool,
    pub files: bool,
    /// `DATASET:/path`.
    pub places: bool,
}

/// Carries out `generate`.
///
/// # Errors
/// A file cannot be written.
pub fn run(generate: &Generate, console: &mut Console) -> Result<(), Failure> {
    let tools = [cenote(), compatible(Program::Zfs), compatible(Program::Zpool)];
    let mut files: Vec<(String, String)> = Vec::new();
    for tool in &tools {
        match generate.what {
            What::Man => files.extend(man::pages(tool)),
            What::Completions => files.extend([
                (format!("bash/{}", tool.name), bash::script(tool)),
                (format!("zsh/_{}", tool.name), zsh::script(tool)),
                (format!("fish/{}.fish", tool.name), fish::script(tool)),
            ]),
        }
    }
    let mut written = Vec::new();
    for (name, text) in files {
        let path = generate.dir.join(name);
        write(&path, &text).map_err(|error| {
            Failure::refused(format!("cannot write '{}': {}", path.display(), io_words(&error)))
        })?;
        written.push(path.display().to_string());
    }
    if generate.json {
        return console.line(&serde_json::json!({ "schema": 1, "files": written }).to_string());
    }
    if console.is_quiet() {
        return Ok(());
    }
    written.iter().try_for_each(|path| console.line(path))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// `zfs` or `zpool`.
fn compatible(program: Program) -> Tool {
    let (summary, properties) = match program {
        Program::Zfs => ("datasets of OpenZFS pools", pool::props::dataset::VISIBLE),
        Program::Zpool => ("OpenZFS pools", pool::props::pool::VISIBLE),
    };
    let sub = |command: &&'static Command| {
        let choices: Vec<Choice> = command.options.iter().map(choice).collect();
        Sub {
            names: std::iter::once(command.name).chain(command.alias).map(str::to_owned).collect(),
            summary: command.about.to_owned(),
            syntax: command.syntax.iter().map(|line| (*line).to_owned()).collect(),
            operands: operands(command.syntax.iter().copied(), &choices),
            choices,
            notes: command.examples_text(),
        }
    };
    let commands = compat::commands(program).iter().map(sub).collect();
    Tool {
        name: program.name(),
        section: 8,
        summary,
        commands,
        choices: Vec::new(),
        properties,
        examples: programs::examples(program),
    }
}

fn choice(choice: &args::Choice) -> Choice {
    let (short, long): (Vec<&str>, Vec<&str>) =
        choice.spellings().partition(|spelling| spelling.chars().count() == 1);
    let argument = match choice.argument {
        args::Argument::None | args::Argument::NoneForEveryPool => None,
        args::Argument::Property => Some(Argument::Property),
        args::Argument::Value => Some(Argument::Named("VALUE".to_owned())),
    };
    Choice {
        short: short.iter().flat_map(|letter| letter.chars()).collect(),
        long: long.into_iter().map(str::to_owned).collect(),
        argument,
        about: choice.about.to_owned(),
    }
}

/// `cenote`, as clap knows it.
fn cenote() -> Tool {
    let mut all = Cenote::command();
    all.build();
    let commands = all.get_subcommands().filter(|sub| sub.get_name() != "help").map(|sub| {
        let usage = sub.clone().render_usage().to_string();
        let lines = usage.trim_start_matches("Usage: ").lines().map(str::trim);
        let syntax: Vec<String> =
            lines.map(|line| line.strip_prefix("cenote ").unwrap_or(line).to_owned()).collect();
        let choices: Vec<Choice> = options(sub);
        Sub {
            names: vec![sub.get_name().to_owned()],
            summary: lower(&sub.get_about().map(ToString::to_string).unwrap_or_default()),
            operands: operands(syntax.iter().map(String::as_str), &choices),
            syntax,
            choices,
            notes: sub.get_after_help().map(ToString::to_string).unwrap_or_default(),
        }
    });
    let commands = commands.collect();
    let summary = "OpenZFS pools in user space";
    Tool {
        name: "cenote",
        section: 1,
        summary,
        commands,
        choices: options(&all),
        properties: &[],
        examples: &super::help::EXAMPLES,
    }
}

fn options(command: &clap::Command) -> Vec<Choice> {
    let shown = command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    shown
        .map(|arg| Choice {
            short: arg.get_short_and_visible_aliases().unwrap_or_default(),
            long: arg.get_long().map(str::to_owned).into_iter().collect(),
            argument: arg.get_action().takes_values().then(|| {
                let names = arg.get_value_names().unwrap_or_default();
                Argument::Named(names.first().map_or_else(|| "VALUE".to_owned(), ToString::to_string))
            }),
            about: lower(&arg.get_help().map(ToString::to_string).unwrap_or_default()),
        })
        .collect()
}

/// Without a capital and a full stop: part of a list.
fn lower(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        // "SHA-256" stays what it is.
        (Some(first), Some(second)) if !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// The operands that the syntax of a command shows; arguments of options are none.
fn operands<'a>(syntax: impl Iterator<Item = &'a str>, choices: &[Choice]) -> Operands {
    let takes = |word: &str| {
        let word = word.trim_start_matches('[');
        let option = |choice: &Choice| {
            choice.short.iter().any(|letter| word == format!("-{letter}"))
                || choice.long.iter().any(|long| word == format!("--{long}"))
        };
        choices.iter().any(|choice| choice.argument.is_some() && option(choice))
    };
    let mut found = Operands::default();
    for line in syntax {
        let mut words = line.split_whitespace().skip(1);
        while let Some(word) = words.next() {
            if takes(word) {
                words.next();
                continue;
            }
            if word.trim_start_matches('[').starts_with('-') && !word.contains('|') {
                continue;
            }
            if word.contains(":/PATH") {
                found.places = true;
                continue;
            }
            for part in word.split(|c: char| !c.is_ascii_alphanumeric()) {
                match part {
                    "POOL" => found.pools = true,
                    "FILESYSTEM" | "VOLUME" | "DATASET" | "CLONE" => found.datasets = true,
                    "SNAPSHOT" | "SNAP" => (found.datasets, found.snapshots) = (true, true),
                    "PROPERTY" | "VDEVPROPERTY" => found.properties = true,
                    "FILE" | "DIRECTORY" | "DIR" | "PATH" | "MOUNTPOINT" | "DEVICE" | "NEWDEVICE"
                    | "VDEV" | "IMAGE" => found.files = true,
                    "SOURCE" | "DESTINATION" => (found.files, found.places) = (true, true),
                    _ => {}
                }
            }
        }
    }
    found
}

/// The words a property may be, where they are fixed.
fn values(property: &Property) -> Vec<&'static str> {
    match property.kind {
        Kind::Index(words) if property.access != Access::ReadOnly => {
            words.iter().map(|(word, _)| *word).collect()
        }
        _ => Vec::new(),
    }
}

/// The first sentence of every generated file, behind `mark`.
fn origin(mark: &str, tool: &str) -> String {
    format!("{mark} {tool}, by cenote {} (cenote generate)\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sub<'a>(tool: &'a Tool, name: &str) -> &'a Sub {
        tool.commands.iter().find(|sub| sub.names[0] == name).expect(name)
    }

    #[test]
    fn operands_are_what_the_syntax_says() {
        let zfs = compatible(Program::Zfs);
        let datasets = Operands { datasets: true, ..Operands::default() };
        assert_eq!(sub(&zfs, "create").operands, datasets);
        assert_eq!(sub(&zfs, "rollback").operands, Operands { snapshots: true, ..datasets });
        let get = sub(&zfs, "get").operands;
        assert!(get.datasets && get.properties && !get.pools);
        let zpool = compatible(Program::Zpool);
        assert_eq!(sub(&zpool, "scrub").operands, Operands { pools: true, ..Operands::default() });
        assert!(sub(&zpool, "create").operands.files);
        let cenote = cenote();
        let cp = sub(&cenote, "cp").operands;
        assert!(cp.files && cp.places && !cp.properties);
        assert!(sub(&cenote, "ls").operands.places);
    }

    #[test]
    fn every_command_of_cenote_has_an_example() {
        let tool = cenote();
        let own = tool.commands.iter().filter(|sub| !["zfs", "zpool"].contains(&sub.names[0].as_str()));
        for sub in own {
            let shown = sub.notes.split_once("Examples:\n").map_or("", |(_, examples)| examples);
            assert!(
                shown.contains(&format!("cenote {}", sub.names[0])) || shown.contains("cenote -d"),
                "{}",
                sub.names[0]
            );
        }
    }

    #[test]
    fn every_option_has_a_description() {
        for tool in [cenote(), compatible(Program::Zfs), compatible(Program::Zpool)] {
            for sub in &tool.commands {
                assert!(!sub.summary.is_empty() && !sub.syntax.is_empty(), "{}", sub.names[0]);
                assert!(sub.syntax.iter().all(|line| line.starts_with(&sub.names[0])), "{:?}", sub.syntax);
                for choice in &sub.choices {
                    let named = !choice.short.is_empty() || !choice.long.is_empty();
                    assert!(named && !choice.about.is_empty(), "{}", sub.names[0]);
                }
            }
        }
    }
}

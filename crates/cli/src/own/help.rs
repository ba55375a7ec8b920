//! `cenote help TOPIC`: the guides of docs/guide, which are part of the program.
//!
//! From:   the word behind `help`.
//! To:     a guide, as text for a terminal. Other words are for clap: help about a command.

use std::ffi::OsString;

mod guide;

use super::Cenote;
use crate::messages::Failure;
use crate::out::Console;
use crate::wrap;
use clap::CommandFactory;

/// Names of guides, what they are about, and their text.
const GUIDES: [(&str, &str); 9] = [
    ("truenas", include_str!("../../guide/truenas.md")),
    ("compression", include_str!("../../guide/compression.md")),
    ("images", include_str!("../../guide/images.md")),
    ("backup", include_str!("../../guide/backup.md")),
    ("recompress", include_str!("../../guide/recompress.md")),
    ("without-root", include_str!("../../guide/without-root.md")),
    ("openzfs", include_str!("../../guide/openzfs.md")),
    ("damage", include_str!("../../guide/damage.md")),
    ("how", include_str!("../../guide/how.md")),
];
/// How like a word must be to be suggested: 1 is the same.
const LIKE: f64 = 0.7;

/// What stands below `cenote --help`.
pub(super) fn topics() -> String {
    let mut text = "Guides (cenote help TOPIC):\n".to_owned();
    for (name, guide) in GUIDES {
        text += &format!("  {name:13} {}\n", title(guide));
    }
    text
}

/// Prints the guide that `cenote help TOPIC` asks for; `None` if the words ask for something else.
///
/// # Errors
/// There is no such topic and no such command; standard output is gone.
pub(super) fn run(words: &[OsString], console: &mut Console) -> Option<Result<(), Failure>> {
    let [help, topic, rest @ ..] = words else { return None };
    let topic = topic.to_str().filter(|_| help == "help" && rest.is_empty())?;
    if let Some((_, guide)) = GUIDES.iter().find(|(name, _)| *name == topic) {
        return Some(print(guide, console));
    }
    let commands: Vec<String> =
        Cenote::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    if topic.starts_with('-') || topic == "help" || commands.iter().any(|name| name == topic) {
        return None;
    }
    let names = GUIDES.iter().map(|(name, _)| (*name).to_owned()).chain(commands);
    let like = names.map(|name| (strsim::jaro_winkler(topic, &name), name)).filter(|(like, _)| *like > LIKE);
    let best = like.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let failure = Failure::refused(format!("cenote: there is no guide and no command '{topic}'"));
    Some(Err(match best {
        Some((_, name)) => failure.hint(format!("Did you mean 'cenote help {name}'?")),
        None => failure.hint("'cenote --help' lists them all"),
    }))
}

fn title(guide: &str) -> &str {
    guide.lines().next().unwrap_or_default().trim_start_matches("# ")
}

/// Prints a guide for a terminal; where standard output is none, as for one of the usual width.
fn print(guide: &str, console: &mut Console) -> Result<(), Failure> {
    let width = console.columns().unwrap_or(wrap::USUAL).min(wrap::USUAL);
    guide::lines(guide, width).iter().try_for_each(|line| console.line(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<(String, Result<(), Failure>)> {
        let mut out = Vec::new();
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let mut console = Console::new(&mut out, std::io::sink());
        let done = run(&words, &mut console)?;
        console.flush().expect("printed");
        drop(console);
        Some((String::from_utf8(out).expect("text"), done))
    }

    #[test]
    fn every_guide_fits_a_terminal_and_is_named_in_the_help() {
        for (name, guide) in GUIDES {
            let (text, done) = said(&format!("help {name}")).expect("a guide");
            assert_eq!(done, Ok(()), "{name}");
            let long = text.lines().find(|line| line.chars().count() > wrap::USUAL);
            assert!(long.is_none() && !text.contains("```") && !text.contains("**"), "{name}: {long:?}");
            assert!(topics().contains(title(guide)), "{name}");
        }
    }

    #[test]
    fn a_misspelt_topic_gets_a_suggestion_and_commands_are_left_to_clap() {
        let (_, done) = said("help recompres").expect("a topic");
        let Err(Failure::Refused(lines)) = done else { panic!("{done:?}") };
        assert_eq!(lines[1], "Did you mean 'cenote help recompress'?");
        assert!(said("help cp").is_none() && said("help").is_none() && said("cp help").is_none());
    }
}

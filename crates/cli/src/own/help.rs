//! `cenote help TOPIC`: the guides of docs/guide, which are part of the program.
//!
//! From:   the word behind `help`.
//! To:     a guide, as text for a terminal. Other words are for clap: help about a command.

mod guide;

use std::ffi::OsString;

use clap::CommandFactory;
use pool::props::{Access, Property, dataset, pool as pool_props, vdev};

use super::Cenote;
use crate::messages::Failure;
use crate::out::Console;
use crate::wrap;

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
/// The topic that is no guide.
const PROPERTIES: &str = "properties";
const OF_PROPERTIES: &str = "Properties and their values";
/// Columns for the name of a property.
const NAME: usize = 24;
/// How like a word must be to be suggested: 1 is the same.
const LIKE: f64 = 0.7;

/// What stands below `cenote --help`.
pub(super) fn topics() -> String {
    let mut text = "Guides (cenote help TOPIC):\n".to_owned();
    for (name, guide) in GUIDES {
        text += &format!("  {name:13} {}\n", title(guide));
    }
    text + &format!("  {PROPERTIES:13} {OF_PROPERTIES}\n")
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
    if topic == PROPERTIES {
        return Some(properties(console));
    }
    let commands: Vec<String> =
        Cenote::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    if topic.starts_with('-') || topic == "help" || commands.iter().any(|name| name == topic) {
        return None;
    }
    let topics = GUIDES.iter().map(|(name, _)| *name).chain([PROPERTIES]);
    let names = topics.map(str::to_owned).chain(commands);
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

/// Prints the properties of datasets and pools with their values.
fn properties(console: &mut Console) -> Result<(), Failure> {
    let width = width(console);
    console.line(&OF_PROPERTIES.to_uppercase())?;
    let tables: [(&str, &[Property]); 3] = [
        ("Datasets: zfs get, set, create -o", dataset::VISIBLE),
        ("Pools: zpool get, set, create -o", pool_props::VISIBLE),
        ("Devices: zpool get PROPERTY POOL DEVICE", vdev::VISIBLE),
    ];
    for (title, table) in tables {
        console.line("")?;
        console.line(title)?;
        for property in table {
            let (first, next) = (format!("  {:<NAME$} ", property.name), " ".repeat(NAME + 3));
            let text = format!("{}{}", property.summary, access(property.access));
            wrap::lines(&text, width, (&first, &next)).iter().try_for_each(|line| console.line(line))?;
        }
    }
    Ok(())
}

/// What the table says of a property that a user cannot simply set.
fn access(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => " (read-only)",
        Access::CreateOnly => " (only when it is created)",
        Access::Inherit => " (inherited)",
        Access::Set => "",
    }
}

/// Columns for text: those of the terminal, but no more than people like to read.
fn width(console: &Console) -> usize {
    console.columns().unwrap_or(wrap::USUAL).clamp(wrap::NARROW, wrap::USUAL)
}

/// Prints a guide for a terminal; where standard output is none, as for one of the usual width.
fn print(guide: &str, console: &mut Console) -> Result<(), Failure> {
    guide::lines(guide, width(console)).iter().try_for_each(|line| console.line(line))
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
    fn the_lists_of_guides_have_all_pages_and_topics() {
        let (table, summary) =
            (include_str!("../../guide/README.md"), include_str!("../../guide/SUMMARY.md"));
        for (name, _) in GUIDES {
            assert!(
                table.contains(&format!("\n| {name} | [")) && table.contains(&format!("({name}.md)")),
                "{name}"
            );
            assert!(summary.contains(&format!("({name}.md)")), "{name}");
        }
        assert!(table.contains(&format!("\n| {PROPERTIES} | ")));
        let pages = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/guide")).expect("there");
        let is_page = |name: &String| name.ends_with(".md") && name != "SUMMARY.md";
        let pages = pages.map(|page| page.expect("there").file_name().to_string_lossy().into_owned());
        let missing: Vec<String> =
            pages.filter(is_page).filter(|name| !summary.contains(&format!("({name})"))).collect();
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn all_properties_are_listed_with_their_values() {
        let (text, done) = said("help properties").expect("a topic");
        assert_eq!(done, Ok(()));
        let long = text.lines().find(|line| line.chars().count() > wrap::USUAL);
        assert_eq!(long, None);
        for name in ["compression", "autotrim", "compressratio"] {
            assert!(text.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}");
        }
        assert!(text.contains("zstd-fast") && text.contains("(read-only)") && topics().contains(PROPERTIES));
    }

    #[test]
    fn a_misspelt_topic_gets_a_suggestion_and_commands_are_left_to_clap() {
        let (_, done) = said("help recompres").expect("a topic");
        let Err(Failure::Refused(lines)) = done else { panic!("{done:?}") };
        assert_eq!(lines[1], "Did you mean 'cenote help recompress'?");
        assert!(said("help cp").is_none() && said("help").is_none() && said("cp help").is_none());
    }
}

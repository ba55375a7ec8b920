//! `cenote help TOPIC`: the guides of docs/guide, which are part of the program.
//!
//! From:   the word behind `help`.
//! To:     a guide, as text for a terminal. Other words are for clap: help about a command.

mod guide;

use std::ffi::OsString;

use clap::CommandFactory;
use pool::props::{Property, dataset, pool as pool_props, vdev};

use super::Cenote;
use crate::command::Program;
use crate::messages::Failure;
use crate::out::Console;
use crate::programs::{self, PROPERTIES};
use crate::wrap;

/// The guides: name, subject and text.
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
/// Other words for the subject of a guide.
const ALIASES: [(&str, &str); 15] = [
    ("container", "without-root"),
    ("docker", "without-root"),
    ("podman", "without-root"),
    ("rootless", "without-root"),
    ("wsl", "without-root"),
    ("gzip", "compression"),
    ("lz4", "compression"),
    ("zstd", "compression"),
    ("ci", "images"),
    ("restore", "backup"),
    ("send", "backup"),
    ("migrate", "openzfs"),
    ("repair", "damage"),
    ("recover", "damage"),
    ("freenas", "truenas"),
];
const OF_PROPERTIES: &str = "Properties and their values";
/// How like a word must be to be suggested: 1 is the same.
const LIKE: f64 = 0.7;

/// Whole command lines, for `cenote --help` and its manual page.
pub(super) const EXAMPLES: [&str; 6] = [
    "cenote mkfs -d folder -o compression=zstd disk.img",
    "cenote -d disk.img ls -l disk:/",
    "cenote cp -rp tank/home:/photos .",
    "cenote zfs list",
    "cenote advise folder",
    "cenote check tank",
];

/// The text below `cenote --help`.
pub(super) fn topics() -> String {
    let mut text = "Guides (cenote help TOPIC):\n".to_owned();
    for (name, guide) in GUIDES {
        text += &format!("  {name:13} {}\n", title(guide));
    }
    text += &format!("  {PROPERTIES:13} {OF_PROPERTIES}\n\nExamples:\n");
    text + &EXAMPLES.map(|line| format!("  {line}\n")).concat()
}

/// Prints the guide that `cenote help TOPIC` asks for; `None` if the words ask for something else.
///
/// # Errors
/// There is no such topic and no such command; standard output is gone.
pub(super) fn run(words: &[OsString], console: &mut Console) -> Option<Result<(), Failure>> {
    let [help, topic, rest @ ..] = words else { return None };
    let topic = topic.to_str().filter(|_| help == "help")?;
    if let Some(program) = Program::ALL.into_iter().find(|program| program.name() == topic) {
        let rest: Option<Vec<String>> = rest.iter().map(|word| word.to_str().map(str::to_owned)).collect();
        return Some(programs::help(program, &rest?, console));
    }
    if !rest.is_empty() {
        return None;
    }
    let topic = ALIASES.iter().find(|(word, _)| *word == topic).map_or(topic, |(_, guide)| guide);
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
    console.line(&OF_PROPERTIES.to_uppercase())?;
    let tables: [(&str, &[Property]); 3] = [
        ("Datasets: zfs get, set, create -o", dataset::VISIBLE),
        ("Pools: zpool get, set, create -o", pool_props::VISIBLE),
        ("Devices: zpool get PROPERTY POOL DEVICE", vdev::VISIBLE),
    ];
    for (title, table) in tables {
        console.line("")?;
        console.line(title)?;
        programs::properties(table, console)?;
    }
    Ok(())
}

/// Columns for text: those of the terminal, but no more than people like to read.
fn width(console: &Console) -> usize {
    console.help_width().clamp(wrap::NARROW, wrap::USUAL)
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
    fn help_about_a_command_of_zfs_and_zpool_is_there_and_other_words_lead_to_guides() {
        let (text, done) = said("help zfs list").expect("a command");
        assert!(
            done == Ok(()) && text.starts_with("usage:\n\tlist") && text.contains("zfs list -r -t"),
            "{text}"
        );
        let (text, done) = said("help zpool").expect("a program");
        assert!(done == Ok(()) && text.starts_with("usage: zpool") && text.contains("Examples:"), "{text}");
        assert_eq!(
            said("help zfs nosuch").expect("refused").1,
            Err(Failure::usage("unrecognized command 'nosuch'"))
        );
        for (word, name) in ALIASES {
            let guide = GUIDES.iter().find(|(guide, _)| *guide == name).expect("a guide").1;
            let (text, done) = said(&format!("help {word}")).expect("a guide");
            assert!(
                done == Ok(()) && text.to_lowercase().contains(&title(guide).to_lowercase()),
                "{word}: {text}"
            );
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

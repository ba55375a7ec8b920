//! What a misspelt word probably means.
//!
//! From:   a failure of a command of `zfs` or `zpool` that names a property or an option.
//! To:     one more line, which people alone are shown: programs expect the words of OpenZFS and nothing else.

use std::path::Path;

use pool::props::{Property, dataset, pool as pool_props, vdev};

use crate::command::{Command, Program};
use crate::messages::{Failure, io_words};

/// Similarity (Jaro, 0 to 1) of a misspelt word: one changed or swapped letter leaves 0.85 and more.
const NEAR: f64 = 0.8;
/// What stands before a word that is no property.
const PROPERTIES: [&str; 2] = ["invalid property '", "invalid property: '"];
/// What stands before a property that a new pool is given, and behind it.
const GIVEN_PROPERTY: (&str, &str) = ("property '", "' is not a valid pool or vdev property");
/// What stands between a property and the values that it takes.
const VALUES: &str = "' must be one of '";
/// What stands before a word that is no device, and behind it.
const NO_DEVICE: (&str, &str) = ("cannot open '", "': no such device in /dev");
/// Words among devices that say how they are used.
const LAYOUTS: [&str; 12] = [
    "mirror", "raidz", "raidz1", "raidz2", "raidz3", "draid1", "draid2", "draid3", "spare", "log", "cache",
    "special",
];
/// What stands before the path of a device that cannot be found.
const DEVICE: &str = "cannot resolve path '";
/// What stands before a word that is no option.
const OPTION: &str = "invalid option '--";

/// The word among `all` that `word` is most likely a misspelling of, if any is near.
pub fn nearest<'a>(word: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = all.map(|other| (strsim::jaro(other, word), other)).filter(|(alike, _)| *alike > NEAR);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// The failure with a suggestion below its first line, where a word of it is nearly right.
#[must_use]
pub fn with_suggestion(failure: Failure, program: Program, command: &Command, words: &[String]) -> Failure {
    let of_line = |line: &str| of_value(line, words).or_else(|| suggestion(line, program, command));
    match failure {
        Failure::Usage(line) => match of_line(&line) {
            Some(more) => Failure::Usage(format!("{line}\n{more}")),
            None => Failure::Usage(line),
        },
        other => hinted(other, of_line),
    }
}

/// The failure of one of cenote's own commands with a suggestion, where a value of a property is nearly right.
#[must_use]
pub fn with_value(failure: Failure, words: &[String]) -> Failure {
    hinted(failure, |line| of_value(line, words))
}

/// The failure with the first suggestion that `of_line` has for a line of a refusal.
fn hinted(failure: Failure, of_line: impl Fn(&str) -> Option<String>) -> Failure {
    match failure {
        Failure::Refused(lines) => match lines.iter().find_map(|line| of_line(line)) {
            Some(more) => Failure::Refused(lines).hint(more),
            None => Failure::Refused(lines),
        },
        other => other,
    }
}

/// What a misspelt value of a property probably means: the line has the values that the property takes, and the line or a word
/// of the command line has `property=value`.
fn of_value(line: &str, words: &[String]) -> Option<String> {
    let (before, values) = line.split_once(VALUES)?;
    let assigned = format!("{}=", before.rsplit('\'').next()?);
    let given = std::iter::once(line).chain(words.iter().map(String::as_str));
    let value = given.filter_map(|text| text.split_once(&assigned)).map(|(_, value)| value).next()?;
    let value = value.split([':', ' ', ',']).next()?;
    let values: Vec<String> =
        values.split('\'').next()?.split(" | ").map(|form| spelt(form, value)).collect();
    let near = nearest(value, values.iter().map(String::as_str)).filter(|near| *near != value)?;
    Some(format!("did you mean '{assigned}{near}'?"))
}

/// A form of values, such as `zstd-[1-19]`, with the number that `value` ends in.
fn spelt(form: &str, value: &str) -> String {
    let number = &value[value.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    match form.split_once('[') {
        Some((stem, _)) if !number.is_empty() => format!("{stem}{number}"),
        Some((stem, _)) => stem.trim_end_matches('-').to_owned(),
        None => form.to_owned(),
    }
}

/// A property as two tables have it may be a property of the other one.
fn properties(program: Program) -> impl Iterator<Item = &'static str> {
    let tables: [&'static [Property]; 2] = match program {
        Program::Zfs => [dataset::VISIBLE, &[]],
        Program::Zpool => [pool_props::VISIBLE, vdev::VISIBLE],
    };
    let both = tables.into_iter().flatten();
    // A list of properties can have the name of what they belong to, too.
    both.flat_map(|property| std::iter::once(property.name).chain(property.alias)).chain(["name"])
}

fn suggestion(line: &str, program: Program, command: &Command) -> Option<String> {
    let quoted = |start: &str| line.split_once(start)?.1.split('\'').next();
    let between = |(start, end): (&str, &str)| line.strip_prefix(start)?.strip_suffix(end);
    if let Some(word) = between(NO_DEVICE) {
        return not_a_device(word);
    }
    let property = PROPERTIES.iter().find_map(|start| quoted(start));
    if let Some(word) = property.or_else(|| between(GIVEN_PROPERTY)) {
        let near = nearest(word, properties(program))?;
        return Some(format!("did you mean '{near}'? '{} help properties' lists them all", program.name()));
    }
    if let Some(path) = quoted(DEVICE) {
        return unreachable(path);
    }
    let word = quoted(OPTION)?.split('=').next()?;
    let long =
        command.options.iter().flat_map(|option| option.spellings()).filter(|spelling| spelling.len() > 1);
    let near = nearest(word, long)?;
    Some(format!("did you mean '--{near}'?"))
}

/// What a word that is no device in /dev probably means.
fn not_a_device(word: &str) -> Option<String> {
    if let Some(near) = nearest(word, LAYOUTS.into_iter()) {
        return Some(format!("did you mean '{near}'?"));
    }
    let is_file = Path::new(word).extension().is_some() || word.contains('/');
    let path = std::path::absolute(word).ok().filter(|path| is_file && !path.exists())?;
    Some(format!("an image is written with its whole path: 'truncate -s 1G {0}' makes '{0}'", path.display()))
}

/// Why there is no device at `path`.
fn unreachable(path: &str) -> Option<String> {
    let error = std::fs::metadata(path).err()?;
    Some(match error.kind() {
        std::io::ErrorKind::NotFound if path.starts_with("/dev/") => "there is no such device".to_owned(),
        std::io::ErrorKind::NotFound => {
            format!("there is no such file: 'truncate -s 1G {path}' makes one that a pool can be in")
        }
        _ => format!("'{path}': {}", io_words(&error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat;

    fn said_of(program: Program, command: &str, line: &str) -> Option<String> {
        suggestion(line, program, compat::command(program, command).expect(command))
    }

    #[test]
    fn every_name_of_a_property_and_of_an_option_is_found_with_a_letter_missing() {
        for program in Program::ALL {
            let command = compat::commands(program)[0];
            for name in properties(program).filter(|name| name.len() > 6) {
                let typed = &name[..name.len() - 1];
                if properties(program).any(|other| other == typed) {
                    continue;
                }
                let line = format!("cannot set property for 'tank': invalid property '{typed}'");
                assert!(suggestion(&line, program, command).is_some(), "{name}");
            }
        }
        let lines = [
            (Program::Zfs, "set", "invalid property 'compresion'", "did you mean 'compression'? "),
            (
                Program::Zfs,
                "list",
                "bad property list: invalid property 'refrenced'",
                "did you mean 'referenced'? ",
            ),
            (
                Program::Zpool,
                "set",
                "cannot set property for 'tank': invalid property 'autotirm'",
                "did you mean 'autotrim'? ",
            ),
            (Program::Zfs, "list", "invalid option '--jsno-int'", "did you mean '--json-int'?"),
            (
                Program::Zpool,
                "create",
                "cannot resolve path '/no/such'",
                "there is no such file: 'truncate -s 1G /no/such' makes one",
            ),
        ];
        for (program, command, line, wanted) in lines {
            let said = said_of(program, command, line).expect(line);
            assert!(said.starts_with(wanted), "{said}");
        }
    }

    #[test]
    fn values_and_layouts_that_are_nearly_right_are_named() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let values = "'compression' must be one of 'on | off | gzip | gzip-[1-9] | lz4 | zstd | zstd-[1-19] | zstd-fast'";
        for (line, meant) in [
            ("set compression=zst tank", "zstd"),
            ("create -ocompression=zst-3 tank/a", "zstd-3"),
            ("create -o compression=gzi-9 tank/a", "gzip-9"),
        ] {
            let said = of_value(&format!("cannot set property for 'tank': {values}"), &words(line));
            assert_eq!(said, Some(format!("did you mean 'compression={meant}'?")), "{line}");
        }
        let said = of_value(&format!("cannot measure compression=zsdt-1: {values}"), &[]);
        assert_eq!(said.as_deref(), Some("did you mean 'compression=zstd-1'?"));
        assert_eq!(of_value(values, &words("set compression=xyzzy tank")), None);
        assert_eq!(of_value(values, &words("set compression=gzip-77 tank")), None);
        let create = |line: &str| said_of(Program::Zpool, "create", line);
        assert_eq!(
            create("cannot open 'miror': no such device in /dev").as_deref(),
            Some("did you mean 'mirror'?")
        );
        let said = create("cannot open 'no.img': no such device in /dev").expect("a file is meant");
        assert!(said.contains("whole path") && said.contains("/no.img'"), "{said}");
        assert_eq!(create("cannot open 'xyzzy': no such device in /dev"), None);
        let said = create("property 'ashfit' is not a valid pool or vdev property").expect("near");
        assert!(said.starts_with("did you mean 'ashift'?"), "{said}");
    }

    #[test]
    fn nothing_is_guessed_where_nothing_is_near() {
        for line in [
            "invalid property 'xyzzy'",
            "invalid option '--xyzzy'",
            "invalid option 'q'",
            "missing pool name",
        ] {
            assert_eq!(said_of(Program::Zfs, "list", line), None, "{line}");
        }
    }
}

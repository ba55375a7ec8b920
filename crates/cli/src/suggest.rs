//! Suggestions for a misspelt word.
//!
//! From:   a failure of a command of `zfs` or `zpool` that names a property or an option.
//! To:     one more line, which people alone are shown: programs expect the words of OpenZFS and nothing else.

use std::path::Path;

use format::features;
use pool::props::{Property, dataset, pool as pool_props, vdev};

use crate::command::{Command, Program};
use crate::messages::io_words;

/// Similarity (Jaro, 0 to 1) of a misspelt word: one changed or swapped letter leaves 0.85 and more.
const NEAR: f64 = 0.8;
/// In a word of so many letters, one changed letter makes the likeness lower than [`NEAR`].
const SHORT: usize = 3;
/// The message before a word that is no kind of dataset, and the kinds that there are.
const KIND: &str = "invalid type '";
const KINDS: [&str; 5] = ["filesystem", "volume", "snapshot", "bookmark", "all"];
/// The message before a word that is no column of `get`, and the columns that there are.
const FIELD: &str = "invalid column name '";
const FIELDS: [&str; 6] = ["name", "property", "value", "received", "source", "all"];
/// Words that other programs know, and the letter that says it here.
const LETTERS: [(&str, &str); 4] = [("recursive", "r"), ("verbose", "v"), ("dry-run", "n"), ("parents", "p")];
/// The messages before a word that is no property.
const PROPERTIES: [&str; 2] = ["invalid property '", "invalid property: '"];
/// The message before and behind a property that a new pool is given.
const GIVEN_PROPERTY: (&str, &str) = ("property '", "' is not a valid pool or vdev property");
/// The message before and behind a property that the root dataset of a new pool is given.
const ROOT_PROPERTY: (&str, &str) = ("property '", "' is not a valid filesystem property");
/// The beginning of a property that stands for a feature of a pool.
const FEATURE: &str = "feature@";
/// The message before and behind the name of a feature that does not exist.
const NO_FEATURE: (&str, &str) = ("feature '", "' unsupported by kernel");
/// The message before the names of sets of features of which one does not exist.
const FEATURE_SETS: &str = "Error: could not read/parse feature file(s): ";
/// The message before and behind the path of a missing device that is added to a pool.
const NO_FILE: (&str, &str) = ("cannot open '", "': No such file or directory");
/// The message between a property and the values that it takes.
const VALUES: &str = "' must be one of '";
/// The message before and behind a word that is no device.
const NO_DEVICE: (&str, &str) = ("cannot open '", "': no such device in /dev");
/// Words among devices that say how they are used.
const LAYOUTS: [&str; 12] = [
    "mirror", "raidz", "raidz1", "raidz2", "raidz3", "draid1", "draid2", "draid3", "spare", "log", "cache",
    "special",
];
/// The message before the path of a device that cannot be found.
const DEVICE: &str = "cannot resolve path '";
/// The message before a word that is no option.
const OPTION: &str = "invalid option '--";

/// The word among `all` that `word` is most likely a misspelling of, if any is near.
pub fn nearest<'a>(word: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_short = word.chars().count() == SHORT;
    let is_near =
        |alike: f64, other: &str| alike > NEAR || is_short && strsim::osa_distance(other, word) == 1;
    let near =
        all.map(|other| (strsim::jaro(other, word), other)).filter(|(alike, other)| is_near(*alike, other));
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// The line that says which of `all` a misspelt word probably means.
pub fn meant<'a>(word: &str, all: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(word, all).map(|near| format!("did you mean '{near}'?"))
}

/// `line`, which says that `word` is none of `all`, and below it which one was probably meant.
pub fn with_nearest<'a>(line: String, word: &str, all: impl Iterator<Item = &'a str>) -> String {
    match meant(word, all) {
        Some(more) => format!("{line}\n{more}"),
        None => line,
    }
}

/// A suggestion for the words of a command of `zfs` or `zpool`, from a line of its failure.
pub fn of_line(line: &str, program: Program, command: &Command, words: &[String]) -> Option<String> {
    of_value(line, words).or_else(|| suggestion(line, program, command))
}

/// A suggestion for a misspelt value of a property. The line has the values that the property takes, and the line or a
/// word of the command line has `property=value`.
pub fn of_value(line: &str, words: &[String]) -> Option<String> {
    let (before, values) = line.split_once(VALUES)?;
    let assigned = format!("{}=", before.rsplit('\'').next()?);
    let given = std::iter::once(line).chain(words.iter().map(String::as_str));
    let value = given.filter_map(|text| text.split_once(&assigned)).map(|(_, value)| value).next()?;
    let value = value.split([':', ' ', ',']).next()?;
    let forms: Vec<&str> = values.split('\'').next()?.split(" | ").collect();
    let values: Vec<String> = forms.iter().map(|form| spelt(form, value)).collect();
    let stem = value.trim_end_matches(|c: char| c.is_ascii_digit());
    // A number that is too large belongs to the form that has the other letters.
    let same = forms.iter().position(|form| form.split_once('[').is_some_and(|(letters, _)| letters == stem));
    let near = match same.filter(|_| stem != value) {
        Some(at) => values[at].as_str(),
        None => nearest(value, values.iter().map(String::as_str))?,
    };
    if near == value {
        return None;
    }
    Some(format!("did you mean '{assigned}{near}'?"))
}

/// A form of values, such as `zstd-[1-19]`, with the number that `value` ends in.
fn spelt(form: &str, value: &str) -> String {
    let number = &value[value.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
    match form.split_once('[') {
        Some((stem, range)) if !number.is_empty() => format!("{stem}{}", within(number, range)),
        Some((stem, _)) => stem.trim_end_matches('-').to_owned(),
        None => form.to_owned(),
    }
}

/// The number of `range` (`1-19]`) that is nearest to `number`.
fn within(number: &str, range: &str) -> String {
    let ends = range.trim_end_matches(']').split_once('-');
    let ends = ends.and_then(|(low, high)| Some((low.parse::<u64>().ok()?, high.parse::<u64>().ok()?)));
    match (ends.filter(|(low, high)| low <= high), number.parse::<u64>()) {
        (Some((low, high)), Ok(number)) => number.clamp(low, high).to_string(),
        _ => number.to_owned(),
    }
}

/// A property as two tables have it may be a property of the other one.
fn properties(program: Program) -> impl Iterator<Item = &'static str> {
    let tables: [&'static [Property]; 2] = match program {
        Program::Zfs => [dataset::VISIBLE, &[]],
        Program::Zpool => [pool_props::VISIBLE, vdev::VISIBLE],
    };
    let both = tables.into_iter().flatten();
    // A list of properties may also contain the column `name`.
    both.flat_map(|property| std::iter::once(property.name).chain(property.alias)).chain(["name"])
}

fn suggestion(line: &str, program: Program, command: &Command) -> Option<String> {
    let quoted = |start: &str| line.split_once(start)?.1.split('\'').next();
    let between = |(start, end): (&str, &str)| line.strip_prefix(start)?.strip_suffix(end);
    if let Some(word) = between(NO_DEVICE) {
        return not_a_device(word);
    }
    if let Some(near) = feature(line) {
        return Some(near);
    }
    if let Some(word) = between(ROOT_PROPERTY) {
        return nearest(word, properties(Program::Zfs))
            .map(|near| format!("did you mean '{near}'? 'zfs help properties' lists them all"));
    }
    let property = PROPERTIES.iter().find_map(|start| quoted(start));
    if let Some(word) = property.or_else(|| between(GIVEN_PROPERTY)) {
        let near = nearest(word, properties(program))?;
        return Some(format!("did you mean '{near}'? '{} help properties' lists them all", program.name()));
    }
    let missing = || inside(line, NO_FILE).filter(|path| program == Program::Zpool && path.starts_with('/'));
    if let Some(path) = quoted(DEVICE).or_else(missing) {
        return unreachable(path);
    }
    for (start, all) in [(KIND, &KINDS[..]), (FIELD, &FIELDS[..])] {
        if let Some(word) = quoted(start) {
            return nearest(word, all.iter().copied()).map(|near| format!("did you mean '{near}'?"));
        }
    }
    if line == "invalid option 'q'" {
        return Some(format!("did you mean '{} -q {}'?", program.name(), command.name));
    }
    let word = quoted(OPTION)?.split('=').next()?;
    let long =
        command.options.iter().flat_map(|option| option.spellings()).filter(|spelling| spelling.len() > 1);
    if let Some(near) = nearest(word, long) {
        return Some(format!("did you mean '--{near}'?"));
    }
    let known = nearest(word, LETTERS.into_iter().map(|(word, _)| word))?;
    let (_, letter) = LETTERS.into_iter().find(|(word, _)| *word == known)?;
    let is_taken = command.options.iter().any(|option| option.spellings().any(|spelling| spelling == letter));
    is_taken.then(|| format!("did you mean '-{letter}'?"))
}

/// The text between two parts of a line.
pub fn inside<'a>(line: &'a str, (start, end): (&str, &str)) -> Option<&'a str> {
    Some(line.split_once(start)?.1.split_once(end)?.0)
}

/// A suggestion for a misspelt feature or set of features.
fn feature(line: &str) -> Option<String> {
    let names = features::ALL.iter().map(|feature| feature.name);
    if let Some(list) = line.strip_prefix(FEATURE_SETS) {
        let unknown = list.trim().split(',').find(|name| features::set(name).is_none())?;
        return meant(unknown, features::SETS.iter().map(|set| set.name));
    }
    let property = PROPERTIES.iter().find_map(|start| line.split_once(start)?.1.split('\'').next());
    let word = property.and_then(|word| word.strip_prefix(FEATURE)).or_else(|| inside(line, NO_FEATURE))?;
    nearest(word, names).map(|near| format!("did you mean '{FEATURE}{near}'?"))
}

/// A suggestion for a word that is no device in /dev.
fn not_a_device(word: &str) -> Option<String> {
    if let Some(near) = nearest(word, LAYOUTS.into_iter()) {
        return Some(format!("did you mean '{near}'?"));
    }
    let is_file = Path::new(word).extension().is_some() || word.contains('/');
    let path = std::path::absolute(word).ok().filter(|path| is_file && !path.exists())?;
    Some(format!("{WHOLE_PATH}: 'truncate -s 1G {0}' makes '{0}'", path.display()))
}

/// How the advice begins that is given where an image is not there.
pub const NO_IMAGE: &str = "there is no such image";

/// How the advice begins that is given where an image is named without its folder.
pub const WHOLE_PATH: &str = "an image is written with its whole path";

/// Whether a path looks like that of an image: its name has an ending.
fn is_image(path: &str) -> bool {
    !path.starts_with("/dev/") && Path::new(path).extension().is_some()
}

/// Why there is no device at `path`.
fn unreachable(path: &str) -> Option<String> {
    let error = std::fs::metadata(path).err()?;
    Some(match error.kind() {
        std::io::ErrorKind::NotFound if is_image(path) => {
            format!("{NO_IMAGE}: 'truncate -s 1G {path}' makes one that a pool can be in")
        }
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
            (Program::Zfs, "list", "invalid option '--recursve'", "did you mean '-r'?"),
            (Program::Zfs, "list", "invalid option 'q'", "did you mean 'zfs -q list'?"),
            (Program::Zfs, "list", "invalid type 'snapshto'", "did you mean 'snapshot'?"),
            (Program::Zfs, "list", "bad property list: invalid property 'nmae'", "did you mean 'name'?"),
            (Program::Zfs, "get", "invalid column name 'nmae'", "did you mean 'name'?"),
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
            ("set compression=lz5 tank", "lz4"),
            ("set compression=zstd-33 tank", "zstd-19"),
            ("set compression=gzip-77 tank", "gzip-9"),
        ] {
            let said = of_value(&format!("cannot set property for 'tank': {values}"), &words(line));
            assert_eq!(said, Some(format!("did you mean 'compression={meant}'?")), "{line}");
        }
        let said = of_value(&format!("cannot measure compression=zsdt-1: {values}"), &[]);
        assert_eq!(said.as_deref(), Some("did you mean 'compression=zstd-1'?"));
        assert_eq!(of_value(values, &words("set compression=xyzzy tank")), None);
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
    fn no_word_is_suggested_where_none_is_similar() {
        for line in [
            "invalid property 'xyzzy'",
            "invalid option '--xyzzy'",
            "invalid option 'Q'",
            "missing pool name",
        ] {
            assert_eq!(said_of(Program::Zfs, "list", line), None, "{line}");
        }
    }
}

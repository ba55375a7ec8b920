//! Suggestions for a misspelt name of a pool, a dataset, a snapshot or a file.
//!
//! From:   a message which says that something does not exist.
//! To:     one more line that names what does exist and is nearly called so.

use std::ffi::OsStr;

use pool::props::names;
use pool::{DatasetInfo, Pool};

use crate::around::Surroundings;
use crate::files::pools::Pools;
use crate::messages::{Failure, reason};
use crate::open::{self, Intent};
use crate::out::Console;
use crate::place::Place;
use crate::suggest::{NO_IMAGE, WHOLE_PATH, inside, nearest};

/// The beginning of a suggestion.
const QUESTION: &str = "did you mean ";
/// Texts around a name, in messages which say that nothing has this name.
const MISSING: [(&str, &str); 4] = [
    ("bookmark '", "' does not exist"),
    (": dataset '", "' does not exist"),
    (": there is no dataset '", "'"),
    (": pool '", "' is not imported"),
];
/// Beginnings of messages that do not say which word of the command line names nothing.
const UNNAMED: [&str; 4] = [
    "could not find any snapshots to destroy",
    "Unable to obtain diffs: No such file",
    "Unable to parse pools/vdevs list",
    "Cannot get properties of ",
];
/// Failures that a command went on after for which names are looked for.
const COMPLAINTS: usize = 3;
/// Most names of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// The end of a command with a suggestion for each of its failures that names a misspelt word: below the first line, or behind
/// all that was printed for those that it went on after. `of_line` knows words that are no names. What is only advice is for people,
/// unless it is about an image: programs of OpenZFS know no other words.
pub fn told(
    ended: Result<(), Failure>,
    of_line: impl Fn(&str) -> Option<String>,
    around: &Surroundings,
    console: &mut Console,
) -> Result<(), Failure> {
    let is_shown = console.is_watched();
    let of_line = |line: &str| {
        let more = of_line(line).or_else(|| suggestion(line, around));
        more.filter(|more| {
            is_shown || [QUESTION, NO_IMAGE, WHOLE_PATH].iter().any(|start| more.starts_with(start))
        })
    };
    let mores: Vec<String> =
        console.complaints().iter().take(COMPLAINTS).filter_map(|line| of_line(line)).collect();
    if !mores.is_empty() {
        // The result comes before it.
        console.flush()?;
        mores.iter().for_each(|more| console.remark(more));
    }
    ended.map_err(|failure| match failure {
        Failure::Usage(line) => match of_line(&line) {
            Some(more) => Failure::Usage(format!("{line}\n{more}")),
            None => Failure::Usage(line),
        },
        Failure::Refused(lines) => match lines.iter().find_map(|line| of_line(line)) {
            Some(more) => Failure::Refused(lines).hint(more),
            None => Failure::Refused(lines),
        },
        other => other,
    })
}

/// The name that the message `line` probably should have had.
fn suggestion(line: &str, around: &Surroundings) -> Option<String> {
    if around.visited {
        return None;
    }
    if let Some(word) = MISSING.iter().find_map(|part| inside(line, *part)) {
        return name(word, false, around)
            .filter(|near| near != word)
            .map(|near| format!("{QUESTION}'{near}'?"));
    }
    let (what, word, why) = parts(line)?;
    let near = match why.to_lowercase().contains("no such file") {
        true => place(word, around)?,
        false if is_missing(why) => name(word, what.starts_with("cannot create"), around)?,
        false => return None,
    };
    (near != word).then(|| format!("{QUESTION}'{near}'?"))
}

/// A suggestion for a failure that does not say which of the `words` of the command line is misspelt.
pub fn of_words(line: &str, words: &[String], around: &Surroundings) -> Option<String> {
    if around.visited || !UNNAMED.iter().any(|start| line.starts_with(start)) {
        return None;
    }
    let names = words.iter().filter(|word| !word.starts_with('-'));
    let near = |word: &String| name(word, false, around).filter(|near| near != word);
    names.filter_map(near).next().map(|near| format!("{QUESTION}'{near}'?"))
}

/// Divides a message into the action, its object and the reason: `cannot open`, `tank/hoem`, `dataset does not exist`.
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    let (before, why) = line.split_once("': ")?;
    let (what, word) = before.split_once('\'')?;
    (!word.contains('\'')).then_some((what, word, why))
}

fn is_missing(why: &str) -> bool {
    [reason::DATASET_MISSING, reason::NO_SUCH_POOL, reason::PARENT_MISSING]
        .iter()
        .any(|known| why.starts_with(known))
}

/// The pool, dataset or snapshot that is nearly called `word`. The last part of what is to be created is new.
fn name(word: &str, creates: bool, around: &Surroundings) -> Option<String> {
    names::check(word).ok()?;
    let (dataset, snapshot) = match word.split_once(['@', '#']) {
        Some((dataset, snapshot)) => (dataset, Some(snapshot)),
        None => (word, None),
    };
    let is_bookmark = word.contains('#');
    let mut parts: Vec<&str> = dataset.split('/').collect();
    let new = if creates && parts.len() > 1 { parts.pop() } else { None };
    let pools = open::names(around).ok()?;
    let (first, rest) = parts.split_first()?;
    let mut near = like(first, pools.iter().map(String::as_str))?;
    let session = open::open_for(&near, around, Intent::Read).ok()?;
    let pool = session.pool();
    for part in rest {
        let below = below(pool, &near, false);
        let children = below.iter().filter_map(|info| info.name.strip_prefix(&near)?.strip_prefix('/'));
        near = format!("{near}/{}", like(part, children)?);
    }
    if let Some(snapshot) = snapshot {
        let mark = if is_bookmark { '#' } else { '@' };
        let below = match is_bookmark {
            true => pool.bookmarks(&near).unwrap_or_default(),
            false => below(pool, &near, true),
        };
        let taken = below.iter().filter_map(|info| info.name.strip_prefix(&near)?.strip_prefix(mark));
        if let Some(found) = like(snapshot, taken) {
            return Some(format!("{near}{mark}{found}"));
        }
        return (near != dataset).then_some(near);
    }
    Some(new.map_or(near.clone(), |new| format!("{near}/{new}")))
}

/// The children of a dataset: other datasets, or its snapshots, too.
fn below(pool: &Pool, dataset: &str, snapshots: bool) -> Vec<DatasetInfo> {
    pool.survey(dataset, Some(1), snapshots, &mut |_, _| {}).unwrap_or_default()
}

/// The word itself if it is one of `all`, else the nearest.
fn like<'a>(word: &str, all: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    let same = all.clone().find(|other| *other == word);
    same.or_else(|| nearest(word, all)).map(str::to_owned)
}

/// The file or folder in a pool that is nearly called `word` (`tank:/dosc`).
fn place(word: &str, around: &Surroundings) -> Option<String> {
    let place = Place::parse_in_pool(OsStr::new(word)).ok()?;
    let pools = Pools::open([(&place, Intent::Read)], around).ok()?;
    let fs = pools.filesystem(&place, Intent::Read).ok()?;
    let path = std::str::from_utf8(&place.path).ok()?;
    let mut near = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let above = if near.is_empty() { "/" } else { &near };
        let folder = fs.resolve(above.as_bytes(), true).ok()?;
        let entries = fs.entries(folder).ok()?.take(ENTRIES_MAX);
        let names: Vec<String> =
            entries.flatten().filter_map(|entry| String::from_utf8(entry.name.clone()).ok()).collect();
        near = format!("{near}/{}", like(part, names.iter().map(String::as_str))?);
    }
    Some(format!("{}:{near}", place.dataset_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_apart() {
        assert_eq!(
            parts("cannot create 'bakcup/x': no such pool 'bakcup'"),
            Some(("cannot create ", "bakcup/x", "no such pool 'bakcup'"))
        );
        assert!(is_missing("dataset does not exist") && !is_missing("dataset is busy"));
        assert_eq!(parts("missing pool name"), None);
        assert_eq!(like("hoem", ["home", "var"].into_iter()).as_deref(), Some("home"));
        assert_eq!(like("xyzzy", ["home", "var"].into_iter()), None);
    }
}

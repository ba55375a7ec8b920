//! Selecting the datasets for `zfs list` and `zfs get`.
//!
//! From:   operands, `-r`, `-d`, `-t`.
//! To:     the rows of both, in the order of their names.

use pool::DatasetInfo;
use pool::props::pool as pool_props;
use pool::props::{DatasetKind, Value, names};

use crate::around::Surroundings;
use crate::messages::{Action, Failure};
use crate::open::{self, NotOpen, Session, Sessions};
use crate::out::Console;

/// A set of kinds of datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// File systems and volumes.
    pub const HEADS: Kinds = Kinds(3);
    /// Everything.
    pub const ALL: Kinds = Kinds(15);

    pub const fn has(self, kind: DatasetKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Reads the lists given to `-t`; `None` when there is none.
    ///
    /// # Errors
    /// A word that names no kind.
    pub fn parse<'a>(lists: impl Iterator<Item = &'a str>) -> Result<Option<Kinds>, Failure> {
        let mut kinds = None;
        for word in lists.flat_map(|list| list.split(',')) {
            let bits = match word {
                "filesystem" | "fs" => 1 << DatasetKind::Filesystem as u8,
                "volume" | "vol" => 1 << DatasetKind::Volume as u8,
                "snapshot" | "snap" => 1 << DatasetKind::Snapshot as u8,
                "bookmark" => 1 << DatasetKind::Bookmark as u8,
                "all" => Kinds::ALL.0,
                other => return Err(Failure::usage(format!("invalid type '{other}'"))),
            };
            kinds = Some(Kinds(kinds.map_or(0, |Kinds(bits)| bits) | bits));
        }
        Ok(kinds)
    }
}

/// Options that select datasets, as typed.
pub struct Scope {
    pub recursive: bool,
    pub depth: Option<String>,
    pub types: Vec<String>,
}

/// The datasets that a command selects.
pub struct Selection {
    /// Kinds given with `-t`, if any.
    pub asked: Option<Kinds>,
    /// Kinds when none are given.
    pub default: Kinds,
    /// Levels below the operands; `None`: all.
    pub depth: Option<usize>,
    /// `-r` or `-d` was given.
    pub recursive: bool,
}

impl Selection {
    /// Reads how deep and which types are asked for.
    ///
    /// # Errors
    /// Words that are no numbers or kinds.
    pub fn read(scope: &Scope, default: Kinds) -> Result<Selection, Failure> {
        let depth = match &scope.depth {
            None => None,
            Some(text) => match text.parse::<i64>() {
                Ok(depth) if depth < 0 => return Err(Failure::usage("Depth can not be negative.")),
                Ok(depth) => Some(depth as usize),
                Err(_) => return Err(Failure::usage(format!("{text} is not an integer"))),
            },
        };
        let asked = Kinds::parse(scope.types.iter().map(String::as_str))?;
        Ok(Selection { asked, default, depth, recursive: scope.recursive || depth.is_some() })
    }

    /// The datasets of `operands`, or all, sorted by name. Reports datasets that cannot be opened.
    ///
    /// # Errors
    /// The file of known pools cannot be read, or a pool cannot be listed.
    pub fn find(
        &self,
        operands: &[String],
        sessions: &mut Sessions,
        console: &mut Console,
    ) -> Result<Vec<DatasetInfo>, Failure> {
        let mut found = Vec::new();
        if operands.is_empty() {
            // The pools themselves are level 0.
            let depth = self.depth.filter(|_| self.recursive);
            for name in sessions.names()? {
                match sessions.of(&name) {
                    Ok(session) => self.add(session, &name, depth, &mut found, console)?,
                    Err(error) => console.complain(error.into())?,
                }
            }
        }
        for name in operands {
            if let Err(failure) = self.add_operand(sessions, name, &mut found, console) {
                console.complain(failure)?;
            }
        }
        found.sort_by(|a, b| order(a).cmp(&order(b)));
        found.dedup_by(|a, b| a.name == b.name);
        Ok(found)
    }

    fn add_operand(
        &self,
        sessions: &mut Sessions,
        name: &str,
        found: &mut Vec<DatasetInfo>,
        console: &mut Console,
    ) -> Result<(), Failure> {
        let action = Action::Open(name);
        if let Some(dataset) = dataset_at(name, sessions.around())? {
            return self.add_operand(sessions, &dataset, found, console);
        }
        let form = names::check(name).map_err(|error| action.failed(error))?;
        let kinds = self.asked;
        if form == DatasetKind::Bookmark && kinds.is_some_and(|kinds| !kinds.has(DatasetKind::Bookmark)) {
            return Err(action.failed(names::NameError::BookmarkUnexpected));
        }
        if form == DatasetKind::Snapshot && kinds.is_some_and(|kinds| !kinds.has(DatasetKind::Snapshot)) {
            return Err(action.failed(names::NameError::SnapshotUnexpected));
        }
        let session = sessions.of(name).map_err(|error| error.dataset(name))?;
        let info = session.pool().dataset(name).map_err(|error| dataset_failure(name, &error))?;
        if matches!(form, DatasetKind::Snapshot | DatasetKind::Bookmark) {
            found.push(info);
            return Ok(());
        }
        let below = kinds.is_some_and(|kinds| !kinds.has(info.kind));
        match (self.recursive, below) {
            (true, _) => self.add(session, name, self.depth, found, console),
            // Asked for snapshots of a file system: those directly below it.
            (false, true) => self.add(session, name, Some(1), found, console),
            (false, false) => {
                found.push(info);
                Ok(())
            }
        }
    }

    /// Adds a dataset and what lies below it, down to `depth` levels.
    fn add(
        &self,
        session: &Session,
        top: &str,
        depth: Option<usize>,
        found: &mut Vec<DatasetInfo>,
        console: &mut Console,
    ) -> Result<(), Failure> {
        let mut kinds = self.asked.unwrap_or(self.default);
        if self.asked.is_none() && !kinds.has(DatasetKind::Snapshot) && lists_snapshots(session) {
            kinds.0 |= 1 << DatasetKind::Snapshot as u8;
        }
        let snapshots = kinds.has(DatasetKind::Snapshot);
        let list = survey(session, top, (depth, snapshots), console)?;
        if kinds.has(DatasetKind::Bookmark) {
            let level = |name: &str| name.matches('/').count() - top.matches('/').count();
            for head in list.iter().filter(|info| !info.is_snapshot()) {
                // They count as one level below their dataset, as snapshots do.
                if depth.is_none_or(|depth| level(&head.name) < depth) {
                    found.extend(marks_of(session, &head.name, console)?);
                }
            }
        }
        found.extend(list.into_iter().filter(|info| kinds.has(info.kind)));
        Ok(())
    }
}

/// A dataset and all readable ones below it. Reports the others.
fn survey(
    session: &Session,
    top: &str,
    (depth, snapshots): (Option<usize>, bool),
    console: &mut Console,
) -> Result<Vec<DatasetInfo>, Failure> {
    let mut left_out = Vec::new();
    let mut report = |name: String, error: pool::Error| left_out.push(dataset_failure(&name, &error));
    let list = session.pool().survey(top, depth, snapshots, &mut report);
    let list = list.map_err(|error| dataset_failure(top, &error))?;
    left_out.into_iter().try_for_each(|failure| console.complain(failure))?;
    Ok(list)
}

/// The bookmarks of a dataset. Reports invalid names.
fn marks_of(session: &Session, head: &str, console: &mut Console) -> Result<Vec<DatasetInfo>, Failure> {
    let mut left_out = Vec::new();
    let mut report = |name: String, error: pool::Error| left_out.push(dataset_failure(&name, &error));
    let marks = session.pool().survey_bookmarks(head, &mut report);
    let marks = marks.map_err(|error| dataset_failure(head, &error))?;
    left_out.into_iter().try_for_each(|failure| console.complain(failure))?;
    Ok(marks)
}

fn lists_snapshots(session: &Session) -> bool {
    let property = pool_props::parse("listsnapshots").map(|property| property.name);
    let stored = session.pool().pool_properties().unwrap_or_default();
    stored.iter().any(|(name, value)| Some(name.as_str()) == property && *value == Value::Number(1))
}

/// The dataset that contains the path `word`; `None` if `word` is no path.
///
/// # Errors
/// It lies in none, or is not there.
pub fn dataset_at(word: &str, around: &Surroundings) -> Result<Option<String>, Failure> {
    if !word.starts_with('/') && !word.starts_with("./") {
        return Ok(None);
    }
    match open::dataset_of(std::path::Path::new(word), around) {
        Ok(Some(mount)) => Ok(Some(mount.dataset)),
        Ok(None) => Err(Action::Open(word).failed("not a ZFS filesystem")),
        Err(_) => Err(Action::Open(word).failed("No such file or directory")),
    }
}

/// Order of datasets: by name, snapshots behind their dataset by age.
fn order(info: &DatasetInfo) -> (&str, u64, &str) {
    match info.name.split_once('@') {
        Some((dataset, snapshot)) => (dataset, info.phys.creation_txg.0, snapshot),
        None => (&info.name, 0, ""),
    }
}

/// Why a dataset cannot be opened.
pub fn dataset_failure(name: &str, error: &pool::Error) -> Failure {
    match error {
        pool::Error::NoDataset(_) => NotOpen::Missing(name.to_owned()).dataset(name),
        error => Action::Open(name).failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_by_name_and_by_their_short_form() {
        let parse = |list: &str| Kinds::parse(std::iter::once(list));
        assert_eq!(parse("filesystem,volume").expect("known"), Some(Kinds::HEADS));
        assert_eq!(parse("fs,vol").expect("known"), Some(Kinds::HEADS));
        assert_eq!(parse("all").expect("known"), Some(Kinds::ALL));
        assert_eq!(Kinds::parse(std::iter::empty()).expect("none"), None);
        assert_eq!(parse("nosuch"), Err(Failure::usage("invalid type 'nosuch'")));
    }
}

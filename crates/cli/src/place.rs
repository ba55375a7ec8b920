//! Places: a path inside a dataset (`tank/fs@monday:/a/b`) or an ordinary local path.
//!
//! From:   operands of `cenote cp`, `ls`, `cat` and so on.
//! To:     those commands.
//!
//! A word is a place in a pool if it holds `:/`, or ends in `:`, and does not begin with `/` or `.`; what stands before the
//! first `:/` is the dataset. `tank:` is the root of `tank`, `./tank:/x` a local path.

use pool::props::DatasetKind;
use pool::props::names::{self, NameError};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A path inside a dataset or snapshot. File names are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPath {
    /// Name of a file system, without a snapshot.
    pub dataset: String,
    /// Name of the snapshot after `@`.
    pub snapshot: Option<String>,
    /// Begins with `/`, the root of the dataset.
    pub path: Vec<u8>,
}

/// The place that an operand points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// A path in a dataset.
    InPool(PoolPath),
}

/// An operand that looks like a place in a pool but names no dataset.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text of each says what it means")]
pub enum PlaceError {
    #[error("'{name}' before ':/' names no dataset: {source} (a local file is written './{text}')")]
    Name { text: String, name: String, source: NameError },
    #[error("'{text}' is not a place in a pool: write DATASET[@SNAPSHOT]:/path")]
    Local { text: String },
}

impl Place {
    /// Reads an operand.
    ///
    /// # Errors
    /// [`PlaceError::Name`] when the part before `:/` cannot be a dataset or snapshot.
    pub fn parse(word: &OsStr) -> Result<Place, PlaceError> {
        let bytes = word.as_encoded_bytes();
        let split = bytes.windows(2).position(|pair| pair == b":/");
        let split = split.or_else(|| bytes.ends_with(b":").then(|| bytes.len() - 1));
        let (Some(at), false) = (split, bytes.starts_with(b"/") || bytes.starts_with(b".")) else {
            return Ok(Place::Local(PathBuf::from(word)));
        };
        let name = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let kind = names::check(&name).and_then(|kind| match kind {
            DatasetKind::Bookmark => Err(NameError::BookmarkUnexpected),
            kind => Ok(kind),
        });
        if let Err(source) = kind {
            return Err(PlaceError::Name { text: word.to_string_lossy().into_owned(), name, source });
        }
        let path = match &bytes[at + 1..] {
            b"" => b"/".to_vec(),
            path => path.to_vec(),
        };
        Ok(Place::InPool(PoolPath::new(name, path)))
    }

    /// As [`Place::parse_in_pool`]; the name of a dataset alone is its root, unless a local file has that name.
    ///
    /// # Errors
    /// As [`Place::parse_in_pool`].
    pub fn parse_to_read(word: &OsStr) -> Result<PoolPath, PlaceError> {
        let place = Place::parse_in_pool(word);
        let is_local =
            || word.as_encoded_bytes().starts_with(b".") || Path::new(word).symlink_metadata().is_ok();
        match (&place, word.to_str()) {
            (Err(PlaceError::Local { .. }), Some(name)) if !is_local() => match names::check(name) {
                Ok(DatasetKind::Bookmark) | Err(_) => place,
                Ok(_) => Ok(PoolPath::new(name.to_owned(), b"/".to_vec())),
            },
            _ => place,
        }
    }

    /// The place, if it is one in a pool.
    #[must_use]
    pub fn in_pool(&self) -> Option<&PoolPath> {
        match self {
            Place::InPool(place) => Some(place),
            Place::Local(_) => None,
        }
    }

    /// Reads an operand that must be a place in a pool.
    ///
    /// # Errors
    /// As [`Place::parse`], and [`PlaceError::Local`] for a local path.
    pub fn parse_in_pool(word: &OsStr) -> Result<PoolPath, PlaceError> {
        match Place::parse(word)? {
            Place::InPool(place) => Ok(place),
            Place::Local(_) => Err(PlaceError::Local { text: word.to_string_lossy().into_owned() }),
        }
    }
}

impl PoolPath {
    /// A path in the dataset or snapshot of this name.
    fn new(name: String, path: Vec<u8>) -> PoolPath {
        match name.split_once('@') {
            Some((dataset, snapshot)) => {
                PoolPath { dataset: dataset.to_owned(), snapshot: Some(snapshot.to_owned()), path }
            }
            None => PoolPath { dataset: name, snapshot: None, path },
        }
    }

    /// The dataset or snapshot: `tank/fs@monday`.
    pub fn dataset_name(&self) -> String {
        match &self.snapshot {
            Some(snapshot) => format!("{}@{snapshot}", self.dataset),
            None => self.dataset.clone(),
        }
    }
}

impl fmt::Display for PoolPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dataset_name(), String::from_utf8_lossy(&self.path))
    }
}

/// For clap: never fails on a local path, refuses what names no dataset.
impl TryFrom<OsString> for Place {
    type Error = PlaceError;

    fn try_from(word: OsString) -> Result<Place, PlaceError> {
        Place::parse(&word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn parse(word: &str) -> Result<Place, String> {
        Place::parse(OsStr::new(word)).map_err(|e| e.to_string())
    }

    fn in_pool(word: &str) -> (String, Option<String>, Vec<u8>) {
        match parse(word) {
            Ok(Place::InPool(p)) => (p.dataset, p.snapshot, p.path),
            other => panic!("{word}: {other:?}"),
        }
    }

    #[test]
    fn a_place_in_a_pool_has_a_dataset_and_a_path() {
        assert_eq!(in_pool("tank:/"), ("tank".into(), None, b"/".to_vec()));
        assert_eq!(in_pool("tank/fs:/a/b"), ("tank/fs".into(), None, b"/a/b".to_vec()));
        assert_eq!(in_pool("tank/fs@mon:/a:/b"), ("tank/fs".into(), Some("mon".into()), b"/a:/b".to_vec()));
        assert_eq!(in_pool("tank/x:y:/a").0, "tank/x:y");
        assert_eq!(in_pool("tank/a b:/c d").0, "tank/a b");
        assert_eq!(in_pool("tank/a:"), ("tank/a".into(), None, b"/".to_vec()));
        assert_eq!(in_pool("tank@s:"), ("tank".into(), Some("s".into()), b"/".to_vec()));
    }

    #[test]
    fn the_name_of_a_dataset_alone_is_its_root_where_nothing_is_changed() {
        let read = |word: &str| Place::parse_to_read(OsStr::new(word)).map(|place| place.to_string());
        assert_eq!(read("tank/a"), Ok("tank/a:/".to_owned()));
        assert_eq!(read("tank@s"), Ok("tank@s:/".to_owned()));
        // `src` is a folder beside this test, `/tmp` a path and `tank#m` a bookmark.
        for word in ["src", "/tmp", "./x", "tank#m", "tank/*"] {
            assert!(read(word).is_err(), "{word}");
        }
        assert!(Place::parse_in_pool(OsStr::new("tank/a")).is_err());
    }

    #[test]
    fn local_paths_stay_local() {
        for word in ["a", "/a:/b", "./tank:/x", "../tank:/x", ".", "a:b", "./C:", "/C:", "dir/a:b", ""] {
            assert_eq!(parse(word), Ok(Place::Local(PathBuf::from(word))), "{word}");
        }
    }

    #[test]
    fn impossible_dataset_names_are_refused_with_a_hint() {
        let refused = parse("tank/*:/x").expect_err("bad name");
        assert_eq!(
            refused,
            "'tank/*' before ':/' names no dataset: invalid character '*' in name (a local file is written './tank/*:/x')"
        );
        assert!(parse("tank#m:/x").is_err() && parse(":/x").is_err() && parse("a@b@c:/x").is_err());
        assert!(Place::parse_in_pool(OsStr::new("/tmp")).is_err());
    }

    #[test]
    fn file_names_are_bytes() {
        let word = OsStr::from_bytes(b"tank:/\xff\xfe");
        let place = Place::parse_in_pool(word).expect("good");
        assert_eq!(place.path, b"/\xff\xfe");
    }

    proptest! {
        #[test]
        fn places_survive_a_round_trip(dataset in "[a-z][a-z0-9/]{0,3}[a-z]", snapshot in prop::option::of("[a-z]{1,4}"), path in "/[a-z:/]{0,8}") {
            prop_assume!(!dataset.contains("//"));
            let place = PoolPath { dataset, snapshot, path: path.into_bytes() };
            prop_assert_eq!(parse(&place.to_string()), Ok(Place::InPool(place)));
        }
    }
}

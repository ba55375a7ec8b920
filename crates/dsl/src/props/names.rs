//! Names of pools, datasets, snapshots, bookmarks and user properties: which are allowed, and why not.
//!
//! From:   what a user types; names in streams.
//! To:     everything that creates or opens by name. The text of an error is the reason OpenZFS prints.

use super::value::TEXT_MAX;
use super::{DatasetKind, PropertyError, Value};
use thiserror::Error;

/// Names are shorter than this, snapshot part included, in bytes.
pub const NAME_MAX: usize = 256;
/// Pool names are shorter than this, so that internal names still fit behind them.
const POOL_NAME_MAX: usize = 242;
/// Datasets nest no deeper than this.
const DEPTH_MAX: usize = 50;

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text of each says what it means")]
pub enum NameError {
    #[error("name is too long")]
    TooLong,
    #[error("leading slash in name")]
    LeadingSlash,
    #[error("trailing slash in name")]
    TrailingSlash,
    #[error("empty component or misplaced '@' or '#' delimiter in name")]
    EmptyComponent,
    #[error("empty component in name")]
    EmptyPool,
    #[error("invalid character '{0}' in name")]
    Character(char),
    #[error("invalid character '{0}' in pool name")]
    PoolCharacter(char),
    #[error("invalid character % in name")]
    Percent,
    #[error("multiple '@' and/or '#' delimiters in name")]
    ManyDelimiters,
    #[error("pool doesn't begin with a letter")]
    NoLetter,
    #[error("name must begin with a letter")]
    PoolNoLetter,
    #[error("name is reserved")]
    Reserved,
    #[error("self reference, '.' is found in name")]
    Dot,
    #[error("parent reference, '..' is found in name")]
    DotDot,
    #[error("snapshot delimiter '@' is not expected here")]
    SnapshotUnexpected,
    #[error("missing '@' delimiter in snapshot name")]
    SnapshotMissing,
    #[error("bookmark delimiter '#' is not expected here")]
    BookmarkUnexpected,
    #[error("missing '#' delimiter in bookmark name")]
    BookmarkMissing,
    #[error("maximum name nesting depth exceeded")]
    TooDeep,
}

/// Whether `name` may name an existing dataset of some kind; says which kind its form is of
/// ([`DatasetKind::Filesystem`] stands for volumes too).
///
/// # Errors
/// The first reason found from left to right, lengths first.
pub fn check(name: &str) -> Result<DatasetKind, NameError> {
    if name.len() >= NAME_MAX {
        return Err(NameError::TooLong);
    }
    if name.starts_with('/') {
        return Err(NameError::LeadingSlash);
    }
    let (path, part) = match name.find(['@', '#']) {
        Some(at) => (&name[..at], Some((name.as_bytes()[at], &name[at + 1..]))),
        None => (name, None),
    };
    if part.is_none() && path.ends_with('/') && !path.ends_with("//") {
        check_path(&path[..path.len() - 1])?;
        return Err(NameError::TrailingSlash);
    }
    check_path(path)?;
    let Some((delimiter, part)) = part else { return Ok(DatasetKind::Filesystem) };
    if part.contains(['@', '#']) {
        return Err(NameError::ManyDelimiters);
    }
    if part.is_empty() || part.contains('/') {
        return Err(NameError::EmptyComponent);
    }
    check_component(part)?;
    Ok(if delimiter == b'@' { DatasetKind::Snapshot } else { DatasetKind::Bookmark })
}

fn check_path(path: &str) -> Result<(), NameError> {
    path.split('/').try_for_each(check_component)?;
    if !path.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(NameError::NoLetter);
    }
    Ok(())
}

fn check_component(component: &str) -> Result<(), NameError> {
    if component.is_empty() {
        return Err(NameError::EmptyComponent);
    }
    // '%' belongs to internal names; they exist, but no user can create them.
    match component.chars().find(|c| !is_name_char(*c) && *c != '%') {
        Some(c) => Err(NameError::Character(c)),
        None if component == "." => Err(NameError::Dot),
        None if component == ".." => Err(NameError::DotDot),
        None => Ok(()),
    }
}

const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ' ')
}

/// Whether `name` is of the form of a file system or volume, a snapshot, or a bookmark, as wanted.
///
/// # Errors
/// As [`check`], and the delimiter that is missing or not expected.
pub fn check_kind(name: &str, wanted: DatasetKind) -> Result<(), NameError> {
    use DatasetKind::*;
    // A delimiter of the wrong kind is said before the rest of the name is looked at.
    match wanted {
        Filesystem | Volume if name.contains('@') => return Err(NameError::SnapshotUnexpected),
        Filesystem | Volume | Snapshot if name.contains('#') => return Err(NameError::BookmarkUnexpected),
        Snapshot if !name.contains('@') => return Err(NameError::SnapshotMissing),
        Bookmark if !name.contains('#') => return Err(NameError::BookmarkMissing),
        _ => {}
    }
    check(name).map(drop)
}

/// Whether `name` is of the form of anything but a bookmark.
///
/// # Errors
/// As [`check`], and [`NameError::BookmarkUnexpected`].
pub fn check_no_bookmark(name: &str) -> Result<(), NameError> {
    check_kind(name, if name.contains('@') { DatasetKind::Snapshot } else { DatasetKind::Filesystem })
}

/// As [`check_kind`] for a name that is to be made.
///
/// # Errors
/// Also internal names and too deep ones.
pub fn check_new(name: &str, wanted: DatasetKind) -> Result<(), NameError> {
    check_kind(name, wanted)?;
    if name.contains('%') {
        return Err(NameError::Percent);
    }
    if name.split('/').count() > DEPTH_MAX {
        return Err(NameError::TooDeep);
    }
    Ok(())
}

/// Whether `name` may name a pool; `creating` refuses more of the words that vdev types begin with.
///
/// # Errors
/// The reason in the words used for pools.
pub fn check_pool(name: &str, creating: bool) -> Result<(), NameError> {
    const WORDS: [&str; 4] = ["mirror", "raidz", "draid", "spare"];
    if name.len() >= POOL_NAME_MAX {
        return Err(NameError::TooLong);
    }
    if name.is_empty() {
        return Err(NameError::EmptyPool);
    }
    if let Some(c) = name.chars().find(|c| !is_name_char(*c)) {
        return Err(NameError::PoolCharacter(c));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(NameError::PoolNoLetter);
    }
    if name == "log" || WORDS.iter().any(|w| if creating { name.starts_with(w) } else { name == *w }) {
        return Err(NameError::Reserved);
    }
    Ok(())
}

/// Whether a snapshot may be held under `tag`.
pub(crate) fn is_tag(tag: &str) -> bool {
    !tag.is_empty() && tag.len() < NAME_MAX && !tag.contains(char::is_control)
}

/// The user property that names the gzip engine (docs/decisions/0009-gzip-engines.md). Other software inherits and sends
/// it like any user property and does not act on it.
pub const GZIP_ENGINE: &str = "org.cenote:gzip_engine";

/// Whether `name` has the form of a user property: it holds a colon and only lower-case letters, digits and
/// `:+._-`.
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b":+._-".contains(&b))
}

/// Whether a name that comes from a disk is one that a user property could have been given.
pub fn is_stored_user_property(name: &str) -> bool {
    is_user_property(name) && name.len() < NAME_MAX
}

/// Whether a pool can keep a property of this name, what follows it there included (`$recvd`), with this value: asked before
/// any part of a change is written.
///
/// # Errors
/// Without a name; name or value too long.
pub fn check_storable(name: &str, suffix: &str, value: Option<&Value>) -> Result<(), PropertyError> {
    if name.is_empty() {
        return Err(PropertyError::Unknown { name: String::new() });
    }
    if name.len() + suffix.len() >= NAME_MAX {
        return Err(PropertyError::NameTooLong { name: name.to_owned() });
    }
    match value {
        Some(Value::Text(text)) if text.len() > TEXT_MAX => Err(PropertyError::ValueTooLong),
        _ => Ok(()),
    }
}

/// Whether a user property may be set so.
///
/// # Errors
/// Unknown (it has not the form of one), name or value too long.
pub fn check_user_property(name: &str, value: &str) -> Result<(), PropertyError> {
    if !is_user_property(name) {
        return Err(PropertyError::Unknown { name: name.to_owned() });
    }
    if name.len() >= NAME_MAX {
        return Err(PropertyError::NameTooLong { name: name.to_owned() });
    }
    if value.len() > TEXT_MAX {
        return Err(PropertyError::ValueTooLong);
    }
    if name == GZIP_ENGINE && storage::GzipEngine::named(value).is_none() {
        return Err(PropertyError::NotOneOf { name: GZIP_ENGINE, summary: "auto | libdeflate | isal" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::DatasetKind::*;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_refused_in_the_words_of_openzfs() {
        let long = format!("tank/{}", "n".repeat(300));
        let deep = format!("tank/{}z", "n/".repeat(60));
        for (name, reason) in [
            ("tank/", "trailing slash in name"),
            ("tank//a", "empty component or misplaced '@' or '#' delimiter in name"),
            ("/tank/a", "leading slash in name"),
            ("tank/a@snap", "snapshot delimiter '@' is not expected here"),
            ("tank/a#mark", "bookmark delimiter '#' is not expected here"),
            ("tank/a%b", "invalid character % in name"),
            ("tank/a*b", "invalid character '*' in name"),
            ("tank/.", "self reference, '.' is found in name"),
            ("tank/..", "parent reference, '..' is found in name"),
            ("1tank/a", "pool doesn't begin with a letter"),
            ("", "empty component or misplaced '@' or '#' delimiter in name"),
            (&long, "name is too long"),
            (&deep, "maximum name nesting depth exceeded"),
        ] {
            let refused = check_new(name, Filesystem).expect_err(name);
            assert_eq!(refused.to_string(), reason, "{name}");
        }
        for good in ["tank/a b", "tank/a:b_c-d.e", "t", "tank/.a"] {
            assert_eq!(check_new(good, Filesystem), Ok(()), "{good}");
        }
    }

    #[test]
    fn snapshots_and_bookmarks_have_one_delimiter_at_the_end() {
        assert_eq!(check("tank/a@s"), Ok(Snapshot));
        assert_eq!(check("tank#m"), Ok(Bookmark));
        assert_eq!(check("tank/a@s@t"), Err(NameError::ManyDelimiters));
        assert_eq!(check("tank/a@"), Err(NameError::EmptyComponent));
        assert_eq!(check("tank/a@/b"), Err(NameError::EmptyComponent));
        assert_eq!(check("tank/%recv"), Ok(Filesystem));
        assert_eq!(check_kind("tank/a", Snapshot), Err(NameError::SnapshotMissing));
        assert_eq!(check_kind("tank/a@s", Bookmark), Err(NameError::BookmarkMissing));
        assert_eq!(check_new("tank/a@s", Snapshot), Ok(()));
    }

    #[test]
    fn pool_names_stay_clear_of_vdev_words() {
        for (name, reason) in [
            ("mirror", "name is reserved"),
            ("raidz1", "name is reserved"),
            ("spare", "name is reserved"),
            ("log", "name is reserved"),
            ("1abc", "name must begin with a letter"),
            ("a/b", "invalid character '/' in pool name"),
            ("a@b", "invalid character '@' in pool name"),
        ] {
            assert_eq!(check_pool(name, true).expect_err(name).to_string(), reason, "{name}");
        }
        for good in ["c0t0d0", "a b", "logs", "tank"] {
            assert_eq!(check_pool(good, true), Ok(()), "{good}");
        }
        assert_eq!(check_pool("raidz1", false), Ok(()));
        assert_eq!(check_pool(&"n".repeat(242), true), Err(NameError::TooLong));
    }

    #[test]
    fn the_engine_of_gzip_is_one_that_there_is() {
        assert_eq!(check_user_property(GZIP_ENGINE, "auto"), Ok(()));
        assert_eq!(
            check_user_property(GZIP_ENGINE, "zlib").expect_err("unknown").to_string(),
            "'org.cenote:gzip_engine' must be one of 'auto | libdeflate | isal'"
        );
    }

    #[test]
    fn names_that_are_too_long_are_none_of_stored_user_properties() {
        assert!(is_stored_user_property("a:b") && !is_stored_user_property("a:\u{1b}b"));
        assert!(!is_stored_user_property(&format!("a:{}", "b".repeat(254))));
    }

    #[test]
    fn user_properties_have_a_colon_and_lower_case() {
        assert_eq!(check_user_property("com.example:note", "hello world"), Ok(()));
        for bad in ["User:Note", "nocolon", "bad name:x"] {
            assert_eq!(
                check_user_property(bad, "hi").expect_err(bad).to_string(),
                format!("invalid property '{bad}'")
            );
        }
        assert_eq!(check_user_property("a:b", &"v".repeat(8191)), Ok(()));
        assert_eq!(check_user_property("a:b", &"v".repeat(8192)), Err(PropertyError::ValueTooLong));
        let long = format!("a:{}", "b".repeat(254));
        assert_eq!(check_user_property(&long, ""), Err(PropertyError::NameTooLong { name: long.clone() }));
    }

    proptest! {
        #[test]
        fn any_name_is_judged(name in "[a-z@#/%. é]{0,12}") {
            if check(&name).is_ok() {
                prop_assert!(!name.contains("//") && name.matches(['@', '#']).count() <= 1);
            }
            let _ = check_pool(&name, true);
        }
    }
}

//! Checks the names of new datasets, snapshots, bookmarks and holds before any change.
//!
//! From:   names of file systems, snapshots, bookmarks and holds, as commands and streams bring them.
//! To:     every call that makes or renames something.

use crate::props::DatasetKind;
use crate::props::names::{self, NameError};
use crate::{Error, Result};

/// Checks the full name `name` for a new dataset of this kind.
///
/// # Errors
/// [`Error::NameTooLong`]; [`Error::InvalidName`] for any other fault.
pub fn check(name: &str, kind: DatasetKind) -> Result<()> {
    names::check_new(name, kind).map_err(|why| match why {
        NameError::TooLong => Error::NameTooLong(name.to_owned()),
        why => Error::InvalidName { name: name.to_owned(), why },
    })
}

/// Whether a snapshot may be held under `tag`.
///
/// # Errors
/// [`Error::BadTag`].
pub fn check_tag(tag: &str) -> Result<()> {
    if names::is_tag(tag) { Ok(()) } else { Err(Error::BadTag(tag.to_owned())) }
}

//! Errors of objects.

use format::{Corrupt, ObjectId};
use storage::{ReadError, WriteError};

/// Why an object could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The number names no allocated object.
    #[error("object {0} does not exist")]
    NoObject(ObjectId),
    /// A block of the object could not be read.
    #[error("object {object} block {blkid} (level {level}): {source}")]
    Block {
        /// The object.
        object: ObjectId,
        /// Level of the block; 0 holds data.
        level: u8,
        /// Index of the block at its level.
        blkid: u64,
        /// Why.
        source: ReadError,
    },
    /// A structure inside the object is impossible.
    #[error("object {object}: {source}")]
    Corrupt {
        /// The object.
        object: ObjectId,
        /// Field and value.
        source: Corrupt,
    },
    /// The objset itself could not be read.
    #[error("cannot read the root of the objset: {0}")]
    Root(#[source] ReadError),
    /// A block could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The ZAP already has this key.
    #[error("the entry exists already")]
    Exists,
    /// The ZAP has no such key.
    #[error("no such entry")]
    NoEntry,
    /// Key or value is longer than a ZAP holds.
    #[error("key or value too long")]
    TooLong,
    /// The object has no room: all numbers or the whole ZAP table are used.
    #[error("no room for another {0}")]
    Full(&'static str),
    /// This build does not do it.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

impl Error {
    /// A [`Error::Corrupt`] maker for `map_err`.
    pub fn corrupt(object: ObjectId) -> impl FnOnce(Corrupt) -> Error {
        move |source| Error::Corrupt { object, source }
    }
}

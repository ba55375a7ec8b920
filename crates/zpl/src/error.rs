//! Errors of files and directories, and their errno values.

use format::{Corrupt, ObjectId};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a range cannot be cloned. The caller can copy its bytes instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCloned {
    /// The pool has no feature for that.
    #[error("the feature block_cloning is not enabled in this pool")]
    Disabled,
    /// The datasets cannot have blocks in common.
    #[error("the datasets have other keys or other properties, or are in other pools")]
    Across,
    /// The blocks of the range do not fit the block size or the offsets of the other file.
    #[error("the ranges are not on borders of blocks of the same size")]
    Unaligned,
    /// The blocks are not on disk yet.
    #[error("the blocks are not on disk yet")]
    Unsettled,
}

/// Why a file system operation failed. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name or object.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDir,
    /// A directory is in the way.
    #[error("is a directory")]
    IsDir,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// Longer than a name (255 bytes) or a link's target (4095 bytes) may be.
    #[error("file name too long")]
    NameTooLong,
    /// The file system takes UTF-8 only.
    #[error("the name is not valid UTF-8")]
    NotUtf8,
    /// Too many symbolic links on the way.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The pool is full.
    #[error("no space left on device")]
    NoSpace,
    /// A quota is used up.
    #[error("disk quota exceeded")]
    Quota,
    /// Nothing may be changed here.
    #[error("read-only file system: {0}")]
    ReadOnly(String),
    /// The mode or the ACL does not grant the access.
    #[error("permission denied")]
    Denied,
    /// The object is in use.
    #[error("device or resource busy")]
    Busy,
    /// Its object no longer exists.
    #[error("stale file handle")]
    Stale,
    /// The file system could not be opened again after a rollback or receive replaced it.
    #[error("the file system is closed")]
    Closed,
    /// Only the owner or root may do this, or flags of the object forbid it (immutable, append-only, read-only).
    #[error("operation not permitted")]
    NotPermitted,
    /// The request makes no sense for this object.
    #[error("invalid argument")]
    Invalid,
    /// The objects belong to different projects.
    #[error("cross-project link")]
    CrossProject,
    /// The file would become larger than a file can be.
    #[error("file too large")]
    FileTooBig,
    /// The value is larger than an extended attribute may be.
    #[error("extended attribute too large")]
    XattrTooBig,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoXattr,
    /// This build does not do it.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The file system has a structure that OpenZFS could not have written.
    #[error("object {object} is damaged: {source}")]
    Damaged {
        /// The object.
        object: ObjectId,
        /// What is wrong.
        source: Corrupt,
    },
    /// A signal interrupted the waiting program before any change.
    #[error("interrupted system call")]
    Interrupted,
    /// A block of an object could not be read, or changed.
    #[error(transparent)]
    Dmu(dmu::Error),
    /// The pool refused, or stopped.
    #[error(transparent)]
    Pool(pool::Error),
    /// A range cannot be cloned. Its bytes can be copied.
    #[error("{0}")]
    NotCloned(#[from] NotCloned),
    /// The change has to wait before it can begin its transaction. It releases its locks, waits, and starts again. No
    /// public function returns this error.
    #[error("resource temporarily unavailable")]
    Waits(pool::Wait),
}

impl Error {
    /// The number that a program on Linux sees in `errno`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => 2,                                                        // ENOENT
            Error::Interrupted => 4,                                                     // EINTR
            Error::Exists => 17,                                                         // EEXIST
            Error::NotDir => 20,                                                         // ENOTDIR
            Error::IsDir => 21,                                                          // EISDIR
            Error::NotEmpty => 39,                                                       // ENOTEMPTY
            Error::NameTooLong => 36,                                                    // ENAMETOOLONG
            Error::NotUtf8 => 84,                                                        // EILSEQ
            Error::Loop => 40,                                                           // ELOOP
            Error::NoSpace => 28,                                                        // ENOSPC
            Error::Quota => 122,                                                         // EDQUOT
            Error::ReadOnly(_) => 30,                                                    // EROFS
            Error::NotPermitted => 1,                                                    // EPERM
            Error::Denied => 13,                                                         // EACCES
            Error::Busy => 16,                                                           // EBUSY
            Error::Stale => 116,                                                         // ESTALE
            Error::Invalid => 22,                                                        // EINVAL
            Error::CrossProject => 18,                                                   // EXDEV
            Error::FileTooBig => 27,                                                     // EFBIG
            Error::XattrTooBig => 7,                                                     // E2BIG
            Error::NoXattr => 61,                                                        // ENODATA
            Error::NotCloned(NotCloned::Across) => 18,                                   // EXDEV
            Error::NotCloned(NotCloned::Unaligned) => 22,                                // EINVAL
            Error::NotCloned(NotCloned::Unsettled) => 11,                                // EAGAIN
            Error::Unsupported(_) | Error::NotCloned(NotCloned::Disabled) => 95,         // EOPNOTSUPP
            Error::Waits(_) => 11,                                                       // EAGAIN
            Error::Closed | Error::Damaged { .. } | Error::Dmu(_) | Error::Pool(_) => 5, // EIO
        }
    }

    /// An [`Error::Damaged`] maker for `map_err`.
    pub(crate) fn damaged(object: ObjectId) -> impl FnOnce(Corrupt) -> Error {
        move |source| Error::Damaged { object, source }
    }
}

impl From<dmu::Error> for Error {
    fn from(error: dmu::Error) -> Error {
        match error {
            dmu::Error::NoObject(_) | dmu::Error::NoEntry => Error::NotFound,
            dmu::Error::Exists => Error::Exists,
            dmu::Error::TooLong => Error::NameTooLong,
            dmu::Error::Full(_) => Error::NoSpace,
            dmu::Error::Unsupported(what) => Error::Unsupported(what),
            dmu::Error::Corrupt { object, source } => Error::Damaged { object, source },
            other => Error::Dmu(other),
        }
    }
}

impl From<pool::Error> for Error {
    fn from(error: pool::Error) -> Error {
        match error {
            pool::Error::Quota => Error::Quota,
            pool::Error::Interrupted => Error::Interrupted,
            pool::Error::ReadOnly { reason, .. } => Error::ReadOnly(reason.to_string()),
            pool::Error::Dmu(error) => error.into(),
            other if other.is_no_space() => Error::NoSpace,
            other => Error::Pool(other),
        }
    }
}

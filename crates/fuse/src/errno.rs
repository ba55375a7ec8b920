//! What a program sees for each error: the one place where that is decided is [`zpl::Error::errno`]; here it gets
//! the protocol's type.

use fuser::Errno;

/// Result of a request.
pub(crate) type Answer<T> = std::result::Result<T, Errno>;

/// The errno for `error`. What a program cannot make sense of (`EIO`) is written to the log as well.
pub(crate) fn of(error: &zpl::Error) -> Errno {
    let errno = Errno::from_i32(error.errno());
    // A file system that could not be opened again was logged when that failed.
    if errno == Errno::EIO && !matches!(error, zpl::Error::Closed) {
        tracing::warn!(%error, "a request failed");
    }
    errno
}

/// For `map_err`.
pub(crate) fn from(error: zpl::Error) -> Errno {
    of(&error)
}

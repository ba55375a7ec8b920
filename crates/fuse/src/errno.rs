//! Conversion of errors to the protocol's errno type. [`zpl::Error::errno`] decides the number.

use fuser::Errno;

/// Result of a request.
pub(crate) type Answer<T> = std::result::Result<T, Errno>;

/// The errno for `error`. The cause of an `EIO` is also written to the log.
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

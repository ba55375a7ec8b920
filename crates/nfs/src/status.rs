//! The status of a procedure that fails.

use crate::xdr::Garbage;

/// A status of NFS, other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const PERM: Status = Status(1);
    pub(crate) const NOENT: Status = Status(2);
    pub(crate) const IO: Status = Status(5);
    pub(crate) const ACCES: Status = Status(13);
    pub(crate) const EXIST: Status = Status(17);
    pub(crate) const XDEV: Status = Status(18);
    pub(crate) const NOTDIR: Status = Status(20);
    pub(crate) const ISDIR: Status = Status(21);
    pub(crate) const INVAL: Status = Status(22);
    pub(crate) const FBIG: Status = Status(27);
    pub(crate) const ROFS: Status = Status(30);
    pub(crate) const NAMETOOLONG: Status = Status(63);
    pub(crate) const NOTEMPTY: Status = Status(66);
    pub(crate) const DQUOT: Status = Status(69);
    pub(crate) const STALE: Status = Status(70);
    pub(crate) const BADHANDLE: Status = Status(10001);
    pub(crate) const NOT_SYNC: Status = Status(10002);
    pub(crate) const NOTSUPP: Status = Status(10004);
    pub(crate) const TOOSMALL: Status = Status(10005);
    pub(crate) const BADTYPE: Status = Status(10007);
    /// The client must try again later.
    pub(crate) const JUKEBOX: Status = Status(10008);
}

/// Why a procedure has no results.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The arguments cannot be decoded.
    Garbage,
    /// It failed.
    Status(Status),
}

pub(crate) type Answer<T> = Result<T, Fail>;

impl From<Garbage> for Fail {
    fn from(_: Garbage) -> Fail {
        Fail::Garbage
    }
}

impl From<Status> for Fail {
    fn from(status: Status) -> Fail {
        Fail::Status(status)
    }
}

impl From<zpl::Error> for Fail {
    fn from(error: zpl::Error) -> Fail {
        Fail::Status(of(&error))
    }
}

/// The status for `error`. I/O errors are written to the log, because the client sees no reason.
pub(crate) fn of(error: &zpl::Error) -> Status {
    match error.errno() {
        // EINTR, EAGAIN
        4 | 11 => Status::JUKEBOX,
        // EBUSY, which the protocol does not know.
        16 => Status::ACCES,
        // ENAMETOOLONG
        36 => Status::NAMETOOLONG,
        // ENOTEMPTY
        39 => Status::NOTEMPTY,
        // ELOOP, EILSEQ
        40 | 84 => Status::INVAL,
        // EOPNOTSUPP
        95 => Status::NOTSUPP,
        // ESTALE
        116 => Status::STALE,
        // EDQUOT
        122 => Status::DQUOT,
        5 => {
            if !matches!(error, zpl::Error::Closed) {
                tracing::warn!(%error, "an NFS request failed");
            }
            Status::IO
        }
        // Errors that have the same number in both: EPERM, ENOENT, EACCES, EEXIST, EXDEV, ENOTDIR, EISDIR, EINVAL, EFBIG,
        // ENOSPC, EROFS.
        same @ (1 | 2 | 13 | 17 | 18 | 20 | 21 | 22 | 27 | 28 | 30) => Status(same as u32),
        _ => Status::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_status_of_its_errno() {
        assert_eq!(of(&zpl::Error::NotFound), Status::NOENT);
        assert_eq!(of(&zpl::Error::NotEmpty), Status::NOTEMPTY);
        assert_eq!(of(&zpl::Error::ReadOnly(String::new())), Status::ROFS);
        assert_eq!(of(&zpl::Error::NoXattr), Status::IO);
    }
}

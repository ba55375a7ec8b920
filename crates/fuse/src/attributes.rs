//! The messages that read attributes (`stat`) and change them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use zpl::session::{Caller, Change, When};
use zpl::{FileKind, ObjectId, Stat, Time};

use crate::errno::{self, Answer};
use crate::shared::Shared;

const NANOS_MAX: u64 = 999_999_999;
/// How long the kernel may cache names and attributes. Only this server changes the file system, so this is long.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the kernel may cache attributes of an object with unsynced changes, whose space is not known yet.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Time of the protocol. Times that no `SystemTime` can hold are shown as 1970.
pub(crate) fn to_system(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let base = if time.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(time.nanos.min(NANOS_MAX))))
        .unwrap_or(UNIX_EPOCH)
}

/// Time as a request has it. Before 1970, `fuser` 0.18 counts the nanoseconds backwards when it reads a request (not
/// when it answers), so they are turned round here.
pub(crate) fn from_request(time: SystemTime) -> Time {
    let (distance, sign) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after, 1),
        Err(before) => (before.duration(), -1),
    };
    Time { secs: sign * distance.as_secs() as i64, nanos: distance.subsec_nanos().into() }
}

/// A time to set, as a request has it.
pub(crate) fn when(time: TimeOrNow) -> When {
    match time {
        TimeOrNow::SpecificTime(time) => When::At(from_request(time)),
        TimeOrNow::Now => When::Now,
    }
}

pub(crate) const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

/// Attributes as the protocol has them, under the number `ino`.
pub(crate) fn attr(stat: &Stat, ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: stat.size,
        blocks: stat.blocks,
        atime: to_system(stat.atime),
        mtime: to_system(stat.mtime),
        ctime: to_system(stat.ctime),
        crtime: to_system(stat.crtime),
        kind: file_type(stat.kind),
        perm: stat.mode as u16,
        nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
        uid: stat.uid,
        gid: stat.gid,
        // makedev as programs see it and as the kernel sends it agree in these bits, for devices that exist.
        rdev: stat.rdev as u32,
        blksize: u32::try_from(stat.block_size).unwrap_or(u32::MAX),
        flags: 0,
    }
}

/// How long the kernel may cache these attributes.
pub(crate) fn attr_ttl(stat: &Stat) -> Duration {
    if stat.dirty { SHORT } else { LONG }
}

/// The entry for a missing name, which the kernel caches.
pub(crate) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

impl Shared {
    /// Attributes of a node under its own number, as `stat` shows it.
    pub(crate) fn stat(&self, id: ObjectId) -> Answer<(FileAttr, Duration)> {
        let stat = self.session.stat(id).map_err(errno::from)?;
        Ok((attr(&stat, self.kernel.shown(id)), attr_ttl(&stat)))
    }

    /// Changes attributes for the caller `by`; `thread` is the thread that sent the request.
    pub(crate) fn set_attributes(
        &self,
        id: ObjectId,
        (by, thread): (&Caller, u32),
        change: &Change,
    ) -> Answer<(FileAttr, Duration)> {
        if self.refresh.is_asked(id, thread) {
            return self.stat(id);
        }
        self.session.check_writable().map_err(errno::from)?;
        self.kernel.limits.refusal(id, change)?;
        self.session.set_attributes(by, id, change).map_err(errno::from)?;
        self.stat(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_protocol() {
        let half = Duration::from_millis(500);
        assert_eq!(
            to_system(Time { secs: 7, nanos: 500_000_000 }),
            UNIX_EPOCH + Duration::from_secs(7) + half
        );
        assert_eq!(
            to_system(Time { secs: -7, nanos: 500_000_000 }),
            UNIX_EPOCH - Duration::from_secs(7) + half
        );
        assert_eq!(from_request(UNIX_EPOCH + half), Time { secs: 0, nanos: 500_000_000 });
        // fuser decodes −7 s and half a second forward as this time.
        let request = UNIX_EPOCH - Duration::from_secs(7) - half;
        assert_eq!(from_request(request), Time { secs: -7, nanos: 500_000_000 });
    }

    #[test]
    fn a_time_beyond_all_clocks_is_no_panic() {
        for secs in [i64::MIN, i64::MAX] {
            to_system(Time { secs, nanos: 0 });
            to_system(Time { secs, nanos: u64::MAX });
        }
    }
}

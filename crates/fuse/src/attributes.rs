//! What `stat` shows, and changing it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use zpl::{FileKind, ObjectId, SetAttr, Stat, Time};

use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::xattrs::Caller;

const NANOS_MAX: u64 = 999_999_999;
/// How long the kernel may go by what it was told: nobody but this server changes the file system.
pub(crate) const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// The same for attributes of an object with unsynced changes, whose space is not known yet.
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

/// How long the kernel may go by these attributes.
pub(crate) fn attr_ttl(stat: &Stat) -> Duration {
    if stat.dirty { SHORT } else { LONG }
}

/// A change of attributes as the kernel asks for it.
pub(crate) struct Wanted {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
    pub(crate) ctime: Option<SystemTime>,
}

impl Wanted {
    /// Whether it sets nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        let Wanted { mode, uid, gid, size, atime, mtime, ctime } = self;
        let numbers = [mode, uid, gid].into_iter().any(Option::is_some);
        let times = atime.is_some() || mtime.is_some() || ctime.is_some();
        !numbers && size.is_none() && !times
    }
}

impl Bridge {
    /// Attributes of a node under its own number, as `stat` shows it.
    pub(crate) fn stat(&self, id: ObjectId) -> Answer<(FileAttr, Duration)> {
        let stat = self.fs()?.stat(id).map_err(errno::from)?;
        Ok((attr(&stat, self.shown(id)), attr_ttl(&stat)))
    }

    pub(crate) fn set_attributes(
        &self,
        id: ObjectId,
        caller: Caller,
        wanted: Wanted,
    ) -> Answer<(FileAttr, Duration)> {
        if self.refresh.is_asked(id, caller.pid) {
            return self.stat(id);
        }
        self.check_writable()?;
        self.limits.refusal(id, &wanted)?;
        let now = || from_request(SystemTime::now());
        let when = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => from_request(time),
            TimeOrNow::Now => now(),
        };
        let set = SetAttr {
            mode: wanted.mode.map(|mode| mode & 0o7777),
            uid: wanted.uid,
            gid: wanted.gid,
            size: wanted.size,
            atime: wanted.atime.map(when),
            mtime: wanted.mtime.map(when),
            ctime: wanted.ctime.map(from_request),
            ..SetAttr::default()
        };
        // The kernel leaves this to us (FUSE_HANDLE_KILLPRIV_V2). A mode that comes along says what it is to be.
        let changes_owner = set.uid.is_some() || set.gid.is_some();
        if set.mode.is_none() && (changes_owner || set.size.is_some() && caller.uid != 0) {
            self.fs()?.drop_privileges(id).map_err(errno::from)?;
        }
        if set != SetAttr::default() {
            self.fs()?.setattr(id, &set).map_err(errno::from)?;
        }
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
        // What fuser makes of −7 s and half a second forward.
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

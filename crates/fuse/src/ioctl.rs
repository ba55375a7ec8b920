//! File flags and project ids in the form of ioctls: `chattr`, `lsattr`, `zfs project`, and the DOS attributes of OpenZFS.
//!
//! From:   `ioctl` messages. For `FS_IOC_*` the kernel itself has checked who asks: only the owner may change flags, and
//!         only a process with `CAP_LINUX_IMMUTABLE` the immutable and append-only flags. It sends nothing of other ioctls.
//! To:     the session, which decides who may change them.
//! Source: docs/format/07-zpl-sa.md §4.1; Linux `linux/fs.h`; OpenZFS 2.2 `sys/fs/zfs.h` (DOS attributes).

use fuser::{Errno, INodeNo, ReplyIoctl, Request};
use zpl::session::FlagChange;
use zpl::{Stat, pflags};

use crate::bridge::Bridge;
use crate::caller;
use crate::errno::{self, Answer};

// Numbers of the ioctls: direction, size of the argument in bytes, group, number.
const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_ATTRIBUTES: u32 = 0x801c_581f;
const SET_ATTRIBUTES: u32 = 0x401c_5820;
const GET_VERSION: u32 = 0x8008_7601;
const GET_DOS_FLAGS: u32 = 0x8008_8301;
const SET_DOS_FLAGS: u32 = 0x4008_8302;

/// Each flag that Linux and OpenZFS share: as stored, in `FS_IOC_GETFLAGS`, and in `FS_IOC_FSGETXATTR`.
const SHARED: [(u64, u32, u32); 4] = [
    (pflags::IMMUTABLE, 0x10, 0x8),
    (pflags::APPENDONLY, 0x20, 0x10),
    (pflags::NODUMP, 0x40, 0x80),
    (pflags::PROJINHERIT, 0x2000_0000, 0x200),
];
/// A flag that `FS_IOC_FSGETXATTR` adds when any flag is set that has no name in it (`FS_XFLAG_HASATTR`); it cannot be set.
const HAS_ATTRIBUTES: u32 = 0x8000_0000;
/// The flags that the ioctl for DOS attributes shows and sets.
const DOS: u64 = pflags::READONLY
    | pflags::HIDDEN
    | pflags::SYSTEM
    | pflags::ARCHIVE
    | pflags::IMMUTABLE
    | pflags::NOUNLINK
    | pflags::APPENDONLY
    | pflags::NODUMP
    | pflags::REPARSE
    | pflags::OFFLINE
    | pflags::SPARSE;
/// Bytes of `struct fsxattr`: flags, extent size, extents, project, copy-on-write extent size, padding.
const ATTRIBUTES_LEN: usize = 28;
/// The project id that means "none".
const NO_PROJECT: u32 = u32::MAX;

/// An `ioctl` message.
pub(crate) struct Ioctl<'a> {
    pub(crate) command: u32,
    /// The argument.
    pub(crate) data: &'a [u8],
    /// Bytes that the answer may have.
    pub(crate) out: usize,
}

fn shown(stored: u64, column: impl Fn(&(u64, u32, u32)) -> u32) -> u32 {
    SHARED.iter().filter(|flag| stored & flag.0 != 0).fold(0, |shown, flag| shown | column(flag))
}

/// # Errors
/// `EOPNOTSUPP` for a flag that is not shared.
fn stored(shown: u32, column: impl Fn(&(u64, u32, u32)) -> u32) -> Answer<u64> {
    let known = SHARED.iter().fold(0, |known, flag| known | column(flag));
    if shown & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(SHARED.iter().filter(|flag| shown & column(flag) != 0).fold(0, |stored, flag| stored | flag.0))
}

fn number(data: &[u8], at: usize) -> Answer<u32> {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(Errno::EINVAL)
}

/// The change that the argument `data` of an ioctl asks for; `None` when the ioctl changes nothing.
fn change(command: u32, data: &[u8]) -> Answer<Option<FlagChange>> {
    let shared = SHARED.iter().fold(0, |all, flag| all | flag.0);
    Ok(Some(match command {
        SET_FLAGS => {
            let flags = stored(number(data, 0)?, |flag| flag.1)?;
            FlagChange { known: shared, flags, projid: None, kernel_checks: true }
        }
        SET_ATTRIBUTES => {
            let flags = stored(number(data, 0)? & !HAS_ATTRIBUTES, |flag| flag.2)?;
            let (extent, copy_extent) = (number(data, 4)?, number(data, 16)?);
            if extent != 0 || copy_extent != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let projid = Some(number(data, 12)?);
            if projid == Some(NO_PROJECT) {
                return Err(Errno::EINVAL);
            }
            FlagChange { known: shared, flags, projid: projid.map(u64::from), kernel_checks: true }
        }
        SET_DOS_FLAGS => {
            let bytes = data.get(..8).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::EINVAL)?;
            let flags = u64::from_ne_bytes(bytes);
            if flags & !DOS != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            FlagChange { known: DOS, flags, projid: None, kernel_checks: false }
        }
        _ => return Ok(None),
    }))
}

/// The answer to an ioctl that reads, cut to the `size` bytes that the kernel has room for.
fn answer(command: u32, stat: &Stat, size: usize) -> Answer<Vec<u8>> {
    let mut data = match command {
        GET_FLAGS => shown(stat.flags, |flag| flag.1).to_ne_bytes().to_vec(),
        GET_ATTRIBUTES => {
            let projid = u32::try_from(stat.projid).unwrap_or(NO_PROJECT);
            let fields = [shown(stat.flags, |flag| flag.2), 0, 0, projid, 0];
            let mut data: Vec<u8> = fields.iter().flat_map(|field| field.to_ne_bytes()).collect();
            data.resize(ATTRIBUTES_LEN, 0);
            data
        }
        GET_VERSION => (stat.generation as u32).to_ne_bytes().to_vec(),
        GET_DOS_FLAGS => (stat.flags & DOS).to_ne_bytes().to_vec(),
        _ => return Err(Errno::ENOTTY),
    };
    data.truncate(size);
    Ok(data)
}

impl Bridge {
    /// Answers an `ioctl` message.
    pub(crate) fn control(&self, request: &Request, ino: INodeNo, ioctl: Ioctl<'_>, reply: ReplyIoctl) {
        let Ioctl { command, data, out } = ioctl;
        let (id, by) = (self.id(ino), caller::of(request));
        match self.answer_at(id, || change(command, data)) {
            Ok(None) => {
                let stat = || self.session.stat(id).map_err(errno::from);
                match self.answer_at(id, || answer(command, &stat()?, out)) {
                    Ok(data) => reply.ioctl(0, &data),
                    Err(errno) => reply.error(errno),
                }
            }
            Ok(Some(change)) if self.writeback && change.forbids_writes() => {
                // A program may have written pages that the kernel still holds: they belong to the file as it was
                // before it became read-only. Writing them back needs the threads that serve requests.
                let shared = self.shared.clone();
                self.seeker.run(Box::new(move || {
                    shared.kernel.call_back_pages(id);
                    let done = || shared.session.set_flags(&by, id, change).map_err(errno::from);
                    match shared.answer_at(id, done) {
                        Ok(()) => reply.ioctl(0, &[]),
                        Err(errno) => reply.error(errno),
                    }
                }));
            }
            Ok(Some(change)) => self.change(move |bridge| {
                let done = || bridge.session.set_flags(&by, id, change).map_err(errno::from);
                match bridge.answer_at(id, done) {
                    Ok(()) => reply.ioctl(0, &[]),
                    Err(errno) => reply.error(errno),
                }
            }),
            Err(errno) => reply.error(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_both_ways_through_linux_numbers() {
        for bits in 0..16_u64 {
            let flags =
                (0..4).filter(|at| bits >> at & 1 != 0).fold(0, |all, at| all | SHARED[at as usize].0);
            assert_eq!(stored(shown(flags, |flag| flag.1), |flag| flag.1).ok(), Some(flags));
            assert_eq!(stored(shown(flags, |flag| flag.2), |flag| flag.2).ok(), Some(flags));
        }
        assert_eq!(shown(pflags::HIDDEN | pflags::ARCHIVE, |flag| flag.1), 0);
    }

    #[test]
    fn invalid_arguments_are_refused() {
        let asked = |command, data: &[u8]| change(command, data).map_err(|errno| errno.code());
        let refused = |errno: Errno| Err(errno.code());
        assert_eq!(asked(GET_FLAGS, &[]), Ok(None));
        assert_eq!(asked(SET_FLAGS, &[0; 3]), refused(Errno::EINVAL));
        assert_eq!(asked(SET_FLAGS, &4_u32.to_ne_bytes()), refused(Errno::EOPNOTSUPP), "compressed");
        assert_eq!(asked(SET_ATTRIBUTES, &[0; 19]), refused(Errno::EINVAL));
        let mut attributes = [0; ATTRIBUTES_LEN];
        attributes[12..16].copy_from_slice(&7_u32.to_ne_bytes());
        let found = asked(SET_ATTRIBUTES, &attributes).unwrap().unwrap();
        assert_eq!((found.flags, found.projid), (0, Some(7)));
        attributes[12..16].copy_from_slice(&NO_PROJECT.to_ne_bytes());
        assert_eq!(asked(SET_ATTRIBUTES, &attributes), refused(Errno::EINVAL));
        assert_eq!(asked(SET_DOS_FLAGS, &1_u64.to_ne_bytes()), refused(Errno::EOPNOTSUPP));
        assert_eq!(asked(SET_DOS_FLAGS, &[0; 7]), refused(Errno::EINVAL));
        assert_eq!(
            asked(SET_DOS_FLAGS, &pflags::HIDDEN.to_ne_bytes()).unwrap().unwrap().flags,
            pflags::HIDDEN
        );
    }
}

//! Contents of regular files.

use fuser::{Errno, WriteFlags};
use zpl::session::{Allocation, Caller, Position};
use zpl::{ObjectId, Seek};

use crate::errno::{self, Answer};
use crate::shared::Shared;

const KEEP_SIZE: i32 = 0x1;
const PUNCH_HOLE: i32 = 0x2;
const ZERO_RANGE: i32 = 0x10;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    Data,
    Hole,
}

impl Sought {
    /// As the request has it; `None` for anything else.
    pub(crate) const fn of(whence: i32) -> Option<Sought> {
        match whence {
            SEEK_DATA => Some(Sought::Data),
            SEEK_HOLE => Some(Sought::Hole),
            _ => None,
        }
    }
}

/// What the mode of `fallocate` asks for.
pub(crate) fn allocation(mode: i32) -> Answer<Allocation> {
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Allocation::Reserve { keep_size }),
        ZERO_RANGE => Ok(Allocation::Zero { keep_size }),
        PUNCH_HOLE if keep_size => Ok(Allocation::Punch),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

impl Shared {
    /// Reads up to `size` bytes to the start of `data`, which is made as long as needed; gives their number.
    pub(crate) fn read_range(
        &self,
        by: &Caller,
        at: Position,
        size: u32,
        data: &mut Vec<u8>,
    ) -> Answer<usize> {
        let size = size as usize;
        if data.len() < size {
            data.resize(size, 0);
        }
        self.session.read(by, at, &mut data[..size]).map_err(errno::from)
    }

    pub(crate) fn write_range(
        &self,
        by: &Caller,
        at: Position,
        data: &[u8],
        flags: WriteFlags,
    ) -> Answer<u32> {
        self.refresh.check_known(at.file)?;
        // Pages from the kernel's cache come some time after they were written, perhaps even after the message with
        // the file's new times.
        let times_come_apart = self.writeback && flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let drops = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        if times_come_apart || drops {
            self.session.check_writable().map_err(errno::from)?;
        }
        if drops {
            self.session.drop_privileges(at.file).map_err(errno::from)?;
        }
        if times_come_apart {
            self.store_pages(at.file, at.offset, data)?;
        } else {
            self.session.write(by, at, data).map_err(errno::from)?;
        }
        Ok(data.len() as u32)
    }

    pub(crate) fn allocate(&self, by: &Caller, at: Position, len: u64, mode: i32) -> Answer<()> {
        let what = allocation(mode)?;
        self.session.allocate(by, at, len, what).map_err(errno::from)
    }

    pub(crate) fn copy(&self, by: &Caller, from: Position, to: Position, len: u64) -> Answer<u32> {
        // A session copies less than 32 bits can count.
        self.session.copy(by, from, to, len).map(|copied| copied as u32).map_err(errno::from)
    }

    /// Finds the next data or hole. Runs on the seeker's thread.
    pub(crate) fn seek(&self, id: ObjectId, offset: i64, whence: i32) -> Answer<i64> {
        let what = match Sought::of(whence).ok_or(Errno::EINVAL)? {
            Sought::Data => Seek::Data,
            Sought::Hole => Seek::Hole,
        };
        if self.writeback {
            // Pages that the kernel has not sent yet are data, too, but the kernel does not count them.
            self.kernel.call_back_pages(id);
        }
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = self.session.seek(id, offset, what).map_err(errno::from)?;
        found.and_then(|at| i64::try_from(at).ok()).ok_or(Errno::ENXIO)
    }
}

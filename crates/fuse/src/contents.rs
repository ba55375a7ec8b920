//! Contents of regular files.

use fuser::{Errno, WriteFlags};
use zpl::{ObjectId, Seek};

use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::shared::Shared;

const KEEP_SIZE: i32 = 0x1;
const PUNCH_HOLE: i32 = 0x2;
const ZERO_RANGE: i32 = 0x10;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// Bytes copied for one message: the answer has 32 bits, and others wait meanwhile.
const COPY_MAX: u64 = 64 << 20;

impl Bridge {
    /// Reads up to `size` bytes to the start of `data`, which is made as long as needed; gives their number.
    pub(crate) fn read_range(
        &self,
        id: ObjectId,
        offset: u64,
        size: u32,
        data: &mut Vec<u8>,
    ) -> Answer<usize> {
        let size = size as usize;
        if data.len() < size {
            data.resize(size, 0);
        }
        self.fs()?.read(id, offset, &mut data[..size]).map_err(errno::from)
    }

    pub(crate) fn write_range(
        &self,
        id: ObjectId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Answer<u32> {
        self.check_writable()?;
        self.refresh.check_known(id)?;
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.drop_privileges(id)?;
        }
        // Pages from the kernel's cache come some time after they were written, perhaps even after the message with
        // the file's new times.
        let times_come_apart = self.writeback && flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if times_come_apart {
            self.store_pages(id, offset, data)?;
        } else {
            self.fs()?.write(id, offset, data).map_err(errno::from)?;
        }
        Ok(data.len() as u32)
    }

    /// Waits until the node's changes would survive a crash.
    pub(crate) fn make_durable(&self, id: ObjectId) -> Answer<()> {
        self.fs()?.fsync(id).map_err(errno::from)
    }

    /// Takes off the file what makes a program run with more rights than its user's.
    fn drop_privileges(&self, id: ObjectId) -> Answer<()> {
        self.fs()?.drop_privileges(id).map_err(errno::from)?;
        // The kernel goes on showing the mode that it knows otherwise.
        self.forget_attributes(id);
        Ok(())
    }

    /// Refuses a change of contents on behalf of `caller` that cannot be, and drops the file's privileges as a write does:
    /// the kernel leaves that to us (`FUSE_HANDLE_KILLPRIV_V2`), and has no flag for it in these messages.
    fn prepare_change(&self, id: ObjectId, caller: u32) -> Answer<()> {
        self.check_writable()?;
        if caller == 0 { Ok(()) } else { self.drop_privileges(id) }
    }

    pub(crate) fn allocate(&self, id: ObjectId, caller: u32, offset: u64, len: u64, mode: i32) -> Answer<()> {
        let keep_size = mode & KEEP_SIZE != 0;
        let known = [0, ZERO_RANGE].contains(&(mode & !KEEP_SIZE)) || mode == PUNCH_HOLE | KEEP_SIZE;
        if !known {
            return Err(Errno::EOPNOTSUPP);
        }
        self.prepare_change(id, caller)?;
        let fs = self.fs()?;
        match mode & !KEEP_SIZE {
            0 => fs.preallocate(id, offset, len, keep_size),
            PUNCH_HOLE => fs.punch(id, offset, len),
            _ => fs.punch(id, offset, len).and_then(|()| {
                // The kernel counts on the file reaching to the end of the range.
                if keep_size { Ok(()) } else { fs.extend(id, offset.saturating_add(len)) }
            }),
        }
        .map_err(errno::from)
    }

    pub(crate) fn copy(
        &self,
        caller: u32,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        len: u64,
    ) -> Answer<u32> {
        self.prepare_change(to.0, caller)?;
        let copied = self.fs()?.copy_range(from, to, len.min(COPY_MAX)).map_err(errno::from)?;
        Ok(copied as u32)
    }
}

impl Shared {
    /// Where the next data or hole is. Runs on the seeker's thread.
    pub(crate) fn seek(&self, id: ObjectId, offset: i64, whence: i32) -> Answer<i64> {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        if self.writeback {
            // What was written but not sent here yet is data, too: the kernel does not see to that.
            self.call_back_pages(id);
        }
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = self.fs()?.seek(id, offset, what).map_err(errno::from)?;
        found.and_then(|at| i64::try_from(at).ok()).ok_or(Errno::ENXIO)
    }
}

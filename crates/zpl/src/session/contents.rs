//! Contents of regular files.

use super::permission::Access;
use super::{Caller, Notice, Session};
use crate::{Error, ObjectId, Place, Records, Result, Seek};

/// Maximal bytes that one call copies, because other calls wait meanwhile.
const COPY_MAX: u64 = 64 << 20;
/// The same limit for a call that clones blocks.
const CLONE_MAX: u64 = 1 << 30;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: ObjectId,
    /// Bytes from its start.
    pub offset: u64,
}

/// The effect of `fallocate` on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Sets space aside.
    Reserve {
        /// The file does not get longer.
        keep_size: bool,
    },
    /// Makes a hole, as far as the file reaches.
    Punch,
    /// Makes it zeros.
    Zero {
        /// The file does not get longer.
        keep_size: bool,
    },
}

impl Session {
    /// Reads from `at` on into `buf`; returns how many bytes there were.
    ///
    /// # Errors
    /// [`Error::Denied`](crate::Error::Denied); as [`crate::Filesystem::read`].
    pub fn read(&self, by: &Caller, at: Position, buf: &mut [u8]) -> Result<usize> {
        self.demand_contents(by, at.file, Access::READ)?;
        // The kernel reads ahead for its mounts.
        let streams = self.checks_here().then_some(&self.streams);
        self.fs()?.read_within(streams, at.file, at.offset, buf)
    }

    /// The records of a file in order, read ahead on all cores.
    ///
    /// # Errors
    /// [`Error::Denied`](crate::Error::Denied); as [`crate::Filesystem::read_records`].
    pub fn records(&self, by: &Caller, id: ObjectId) -> Result<Records> {
        self.demand(by, id, Access::READ)?;
        self.fs()?.read_records(id)
    }

    /// Writes `data` at `at`. A write by a user other than root drops set-id bits; where the kernel checks permissions, it
    /// says when it must, and the front end calls [`Session::drop_privileges`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly); [`Error::Denied`](crate::Error::Denied); as [`crate::Filesystem::write`].
    pub fn write(&self, by: &Caller, at: Position, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        if self.checks_here() {
            self.demand_contents(by, at.file, Access::WRITE)?;
            if !by.is_root() {
                self.drop_set_ids(by, at.file)?;
                self.changed(Notice::Attributes(at.file));
            }
        }
        self.fs()?.write(at.file, at.offset, data)
    }

    /// Waits until the changes of an object are durable.
    ///
    /// # Errors
    /// As [`crate::Filesystem::fsync`].
    pub fn fsync(&self, id: ObjectId) -> Result<()> {
        self.fs()?.fsync(id)
    }

    /// Refuses an invalid change of contents, and drops the set-id bits of the file as a write does. No front end's protocol
    /// tells whether it must.
    fn prepare_change(&self, by: &Caller, id: ObjectId) -> Result<()> {
        self.check_writable()?;
        self.demand_contents(by, id, Access::WRITE)?;
        if by.is_root() {
            return Ok(());
        }
        self.drop_set_ids(by, id)?;
        // Without this, the front end would still show the mode that it knows.
        self.changed(Notice::Attributes(id));
        Ok(())
    }

    /// Carries out an `fallocate`.
    ///
    /// # Errors
    /// As [`Session::write`].
    pub fn allocate(&self, by: &Caller, at: Position, len: u64, what: Allocation) -> Result<()> {
        let Position { file: id, offset } = at;
        self.prepare_change(by, id)?;
        let fs = self.fs()?;
        match what {
            Allocation::Reserve { keep_size } => fs.preallocate(id, offset, len, keep_size),
            Allocation::Punch => fs.punch(id, offset, len),
            Allocation::Zero { keep_size } => {
                fs.punch(id, offset, len)?;
                // The caller relies on the file reaching to the end of the range.
                if keep_size { Ok(()) } else { fs.extend(id, offset.saturating_add(len)) }
            }
        }
    }

    /// Copies up to `len` bytes between files; returns how many. Where the pool allows it, the copy shares the blocks.
    ///
    /// # Errors
    /// As [`Session::read`] and [`Session::write`].
    pub fn copy(&self, by: &Caller, from: Position, to: Position, len: u64) -> Result<u64> {
        self.prepare_change(by, to.file)?;
        self.demand_contents(by, from.file, Access::READ)?;
        let fs = self.fs()?;
        let source = Place { fs: &fs, id: from.file, offset: from.offset };
        match fs.clone_range(source, (to.file, to.offset), len.min(CLONE_MAX)) {
            Err(Error::NotCloned(_)) => {
                fs.copy_range((from.file, from.offset), (to.file, to.offset), len.min(COPY_MAX))
            }
            cloned => cloned,
        }
    }

    /// Where the next data or hole is, from `offset` on; `None` beyond the end.
    ///
    /// # Errors
    /// As [`crate::Filesystem::seek`].
    pub fn seek(&self, id: ObjectId, offset: u64, what: Seek) -> Result<Option<u64>> {
        self.fs()?.seek(id, offset, what)
    }
}

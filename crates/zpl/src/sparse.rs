//! Holes and ranges of regular files: seeking, preallocating, copying.
//!
//! Source: docs/format/07-zpl-sa.md §9.

use format::ObjectId;

use crate::file::end_of;
use crate::{Error, Filesystem, Result};

/// Bytes copied in one step.
const COPY_STEP: u64 = 4 << 20;
/// Free space asked for by a preallocation, in percent of its length, as in OpenZFS.
const RESERVE_PERCENT: u64 = 110;

/// The target of [`Filesystem::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`
    Data,
    /// `SEEK_HOLE`; the end of the file is one.
    Hole,
}

/// The rest of a copy: from a byte of one file to a byte of another.
struct CopyStep {
    from: ObjectId,
    from_offset: u64,
    to: ObjectId,
    to_offset: u64,
    /// Bytes.
    len: u64,
}

impl Filesystem {
    /// The first byte at or behind `offset` that is data, or in a hole; `None` when there is none (`ENXIO`). A single
    /// block whose size is no power of two counts as data, as in OpenZFS.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn seek(&self, id: ObjectId, offset: u64, what: Seek) -> Result<Option<u64>> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.file(id)?;
        if offset >= znode.size {
            return Ok(None);
        }
        let block = object.block_size();
        if !block.is_power_of_two() {
            return Ok(Some(if what == Seek::Data { offset } else { znode.size }));
        }
        let first = offset / block;
        let found = match what {
            Seek::Data => object.next_block(first)?,
            Seek::Hole => {
                // A hole begins at the end of the file, even if the object has blocks behind it.
                let (mut blkid, end) = (first, znode.size.div_ceil(block));
                let mut trail = dmu::Trail::default();
                while blkid < end && object.next_block_on(blkid, &mut trail)? == Some(blkid) {
                    blkid += 1;
                }
                Some(blkid)
            }
        };
        let at = found.map(|blkid| blkid.saturating_mul(block).max(offset));
        Ok(match what {
            Seek::Data => at.filter(|at| *at < znode.size),
            Seek::Hole => at.map(|at| at.min(znode.size)),
        })
    }

    /// `fallocate` without a mode that makes holes. A copy-on-write file system reserves no blocks, but a range that could
    /// not be written now is refused. The file grows to the end of the range unless `keep_size`.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; as [`Filesystem::truncate`].
    pub fn preallocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Error::FileTooBig)?;
        end_of(end, 0)?;
        self.changing(|| {
            let _node = self.inner.nodes.write(id);
            let (object, znode) = self.file_for_change(id)?;
            if u128::from(self.space()?.available) * 100 < u128::from(len) * u128::from(RESERVE_PERCENT) {
                return Err(Error::NoSpace);
            }
            if keep_size || end <= znode.size { Ok(()) } else { self.reach_to(&object, znode, end) }
        })
    }

    /// Makes a file reach to `size` at least, with a hole.
    ///
    /// # Errors
    /// As [`Filesystem::truncate`].
    pub fn extend(&self, id: ObjectId, size: u64) -> Result<()> {
        self.changing(|| {
            let _node = self.inner.nodes.write(id);
            let (object, znode) = self.file_for_change(id)?;
            if size <= znode.size { Ok(()) } else { self.reach_to(&object, znode, size) }
        })
    }

    /// Whether data or a hole is at offset `at` of a file, and where it ends; searched up to `end`. `None` after the end of
    /// the file.
    fn run(&self, id: ObjectId, at: u64, end: u64) -> Result<Option<(Seek, u64)>> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.file(id)?;
        let (block, end) = (object.block_size(), end.min(znode.size));
        if at >= end {
            return Ok(None);
        }
        let first = at / block;
        let next = object.next_block(first)?;
        if next != Some(first) {
            let data = next.map_or(end, |blkid| blkid.saturating_mul(block));
            return Ok(Some((Seek::Hole, data.min(end))));
        }
        let mut behind = first + 1;
        while behind.saturating_mul(block) < end && object.next_block(behind)? == Some(behind) {
            behind += 1;
        }
        Ok(Some((Seek::Data, behind.saturating_mul(block).min(end))))
    }

    /// Copies up to `len` bytes within a file or between files, and returns their number. Holes stay holes. Concurrent
    /// changes of the source may be copied in part.
    ///
    /// # Errors
    /// As [`Filesystem::read`] and [`Filesystem::write`], if nothing could be copied. [`Error::Invalid`] when the ranges
    /// overlap.
    pub fn copy_range(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        if from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len) {
            return Err(Error::Invalid);
        }
        let mut buf = Vec::new();
        let mut done = 0;
        while done < len {
            let step = CopyStep {
                from: from.0,
                from_offset: from.1.saturating_add(done),
                to: to.0,
                to_offset: to.1.saturating_add(done),
                len: len - done,
            };
            match self.copy_step(&step, &mut buf) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                // Returns the copied bytes first. The caller then asks for the rest and gets the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies a piece of data, or a hole; 0 at the end of the source.
    fn copy_step(&self, step: &CopyStep, buf: &mut Vec<u8>) -> Result<u64> {
        let CopyStep { from, from_offset, to, to_offset, len } = *step;
        match self.run(from, from_offset, from_offset.saturating_add(len))? {
            None => Ok(0),
            Some((Seek::Hole, end)) => {
                let len = end - from_offset;
                let reach = end_of(to_offset, len as usize)?;
                self.punch(to, to_offset, len)?;
                self.extend(to, reach)?;
                Ok(len)
            }
            Some((Seek::Data, end)) => {
                buf.resize(COPY_STEP.min(end - from_offset) as usize, 0);
                let got = self.read(from, from_offset, buf)?;
                self.write(to, to_offset, &buf[..got])?;
                Ok(got as u64)
            }
        }
    }
}

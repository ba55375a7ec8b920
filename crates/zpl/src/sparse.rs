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

/// What [`Filesystem::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`
    Data,
    /// `SEEK_HOLE`; the end of the file is one.
    Hole,
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
                let mut blkid = first;
                while object.next_block(blkid)? == Some(blkid) {
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

    /// `fallocate` without a mode that makes holes: nothing is set aside in a copy-on-write file system, but what could
    /// not be written now is refused. The file grows to the end of the range unless `keep_size`.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; as [`Filesystem::truncate`].
    pub fn preallocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Error::FileTooBig)?;
        end_of(end, 0)?;
        self.changing(|| {
            let _node = self.inner.nodes.write(id);
            let (_, znode) = self.file_for_change(id)?;
            if u128::from(self.space()?.available) * 100 < u128::from(len) * u128::from(RESERVE_PERCENT) {
                return Err(Error::NoSpace);
            }
            if keep_size || end <= znode.size { Ok(()) } else { self.resize(id, end) }
        })
    }

    /// Makes a file reach to `size` at least, with a hole.
    ///
    /// # Errors
    /// As [`Filesystem::truncate`].
    pub fn extend(&self, id: ObjectId, size: u64) -> Result<()> {
        self.changing(|| {
            let _node = self.inner.nodes.write(id);
            let (_, znode) = self.file_for_change(id)?;
            if size <= znode.size { Ok(()) } else { self.resize(id, size) }
        })
    }

    /// Copies up to `len` bytes from one place to another, in this or another file; returns how many there were.
    /// Changes of the source meanwhile may be seen in part.
    ///
    /// # Errors
    /// As [`Filesystem::read`] and [`Filesystem::write`]; the steps before stay written. [`Error::Invalid`] when
    /// the ranges overlap.
    pub fn copy_range(&self, from: (ObjectId, u64), to: (ObjectId, u64), len: u64) -> Result<u64> {
        if from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len) {
            return Err(Error::Invalid);
        }
        let mut buf = vec![0; len.min(COPY_STEP) as usize];
        let mut done = 0;
        while done < len {
            let want = (len - done).min(COPY_STEP) as usize;
            let got = self.read(from.0, from.1.saturating_add(done), &mut buf[..want])?;
            if got == 0 {
                break;
            }
            self.write(to.0, to.1.saturating_add(done), &buf[..got])?;
            done += got as u64;
        }
        Ok(done)
    }
}

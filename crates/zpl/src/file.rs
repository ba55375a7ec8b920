//! Contents of regular files: reading, writing, truncating, holes.
//!
//! Source: docs/format/03-dmu.md §5.1, docs/format/07-zpl-sa.md §9.

use std::sync::Arc;

use dmu::{Object, Tx};
use format::zil::Body;
use format::znode::{Znode, pflags};
use format::{Corrupt, ObjectId};
use pool::{Hold, Reach};

use crate::change::{self, WRITE_STEP};
use crate::fs::ATTRIBUTE_COST;
use crate::hole::{Hole, hole};
use crate::node::modified;
use crate::stat::is_kind;
use crate::streams::Streams;
use crate::{Error, FileKind, Filesystem, Result};

/// End of the largest file.
const OFFSET_MAX: u64 = i64::MAX as u64;
const SECTOR: u64 = 512;

/// The new block size of a file with one block of `block` bytes that grows to `end`; `None` if it stays. `max` is the record
/// size.
fn grown_block(block: u64, end: u64, max: u64) -> Option<u64> {
    if end <= block || (block.is_power_of_two() && block >= max) {
        return None;
    }
    // If the record size was lowered below a block of odd size, the block may still grow to the next power of two.
    let limit = if block > max { block.next_power_of_two() } else { max };
    Some(end.min(limit).next_multiple_of(SECTOR))
}

/// The block size that `object`, a file of `size` bytes, has after a write up to `end`; `max` is the record size.
fn written_block(object: &Object, size: u64, end: u64, max: u64) -> u64 {
    let old = object.block_size();
    let may_grow = size <= old && object.max_blkid() == 0;
    if may_grow { grown_block(old, end.max(size), max).unwrap_or(old) } else { old }
}

/// The effect of a write on the times of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    /// It was changed now.
    Now,
    /// The times are not changed: another caller sets them.
    Kept,
}

/// A write to a file.
struct Written<'a> {
    id: ObjectId,
    /// Byte at which it begins.
    offset: u64,
    data: &'a [u8],
    times: Times,
    /// Whether the write was acknowledged to a program.
    reach: Reach,
}

impl Filesystem {
    /// A regular file, for reading. The caller holds its lock.
    pub(crate) fn file(&self, id: ObjectId) -> Result<(Arc<Object>, Znode)> {
        let (object, znode) = self.node(id)?;
        check_regular(&znode)?;
        Ok((object, znode))
    }

    pub(crate) fn file_for_change(&self, id: ObjectId) -> Result<(Arc<Object>, Znode)> {
        let (object, znode) = self.node_for_change(id)?;
        check_regular(&znode)?;
        self.check_contents_change(&znode)?;
        Ok((object, znode))
    }

    /// Refuses a write of `data` at `offset` that changes existing bytes of an append-only file. The kernel's cache sends
    /// whole pages, so equal bytes are allowed.
    fn check_appends(
        &self,
        object: &Arc<Object>,
        znode: &Znode,
        offset: u64,
        data: &[u8],
        times: Times,
    ) -> Result<()> {
        let append_only = znode.flags & pflags::APPENDONLY != 0 && !self.inner.dataset.is_replaying();
        if !append_only || data.is_empty() || offset >= znode.size {
            return Ok(());
        }
        if times == Times::Kept {
            let len = (znode.size - offset).min(data.len() as u64) as usize;
            let mut held = vec![0; len];
            self.read_blocks(object, offset, &mut held)?;
            if held == data[..len] {
                return Ok(());
            }
        }
        Err(Error::NotPermitted)
    }

    /// Reads from byte `offset` into `buf`; returns how many bytes there were. Holes are zeros.
    ///
    /// # Errors
    /// [`Error::IsDir`], [`Error::Invalid`] for anything but a regular file; a block that cannot be read.
    pub fn read(&self, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_within(None, id, offset, buf)
    }

    /// As [`Filesystem::read`]. Reads that follow each other in `streams` are read ahead of.
    pub(crate) fn read_within(
        &self,
        streams: Option<&Streams>,
        id: ObjectId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.file(id)?;
        let len = znode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        if let Some(streams) = streams.filter(|_| self.inner.dataset.settings().cache_data) {
            streams.note(&self.inner.objset, &object, znode.size, offset, len);
        }
        self.read_blocks(&object, offset, &mut buf[..len])?;
        Ok(len)
    }

    /// The whole content of a small file.
    ///
    /// # Errors
    /// As [`Filesystem::read`]; [`Error::FileTooBig`] beyond `max` bytes.
    pub fn read_all(&self, id: ObjectId, max: u64) -> Result<Vec<u8>> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.file(id)?;
        if znode.size > max {
            return Err(Error::FileTooBig);
        }
        let mut data = vec![0; znode.size as usize];
        object.read(0, &mut data)?;
        Ok(data)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn readlink(&self, id: ObjectId) -> Result<Vec<u8>> {
        let _shared = self.inner.nodes.read(id);
        let (_, znode) = self.node(id)?;
        if !is_kind(&znode, FileKind::Symlink) {
            return Err(Error::Invalid);
        }
        znode.symlink.ok_or_else(|| Error::damaged(id)(Corrupt::new("symbolic link without target", 0)))
    }

    /// Ranges of data, as (offset, length), cut at the end of the file, as `SEEK_DATA` and `SEEK_HOLE` report them. A single
    /// block whose size is no power of two counts as data, as in OpenZFS.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn data_runs(&self, id: ObjectId) -> Result<Vec<(u64, u64)>> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.file(id)?;
        let block = object.block_size();
        if !block.is_power_of_two() && znode.size > 0 {
            return Ok(vec![(0, znode.size)]);
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let (mut from, mut trail) = (0, dmu::Trail::default());
        while let Some(blkid) = object.next_block_on(from, &mut trail)? {
            let offset = blkid.saturating_mul(block);
            if offset >= znode.size {
                break;
            }
            let len = block.min(znode.size - offset);
            match runs.last_mut() {
                Some((start, run)) if *start + *run == offset => *run += len,
                _ => runs.push((offset, len)),
            }
            from = blkid + 1;
        }
        Ok(runs)
    }

    /// Writes `data` at byte `offset` and extends the file if necessary. A large write takes several transactions.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] as the file's flags have it; [`Error::FileTooBig`]; [`Error::NoSpace`], [`Error::Quota`]: the
    /// steps before stay written.
    pub fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.changing(|| {
            self.write_steps(&Written { id, offset, data, times: Times::Now, reach: Reach::Limits })
        })
    }

    /// As [`Filesystem::write`], for a write-back cache. The cache sets the time of the write separately with
    /// [`Filesystem::setattr`]. `reach`: whether the write was acknowledged to a program before.
    ///
    /// # Errors
    /// As [`Filesystem::write`].
    pub fn write_back(&self, id: ObjectId, offset: u64, data: &[u8], reach: Reach) -> Result<()> {
        self.changing(|| self.write_steps(&Written { id, offset, data, times: Times::Kept, reach }))
    }

    /// Writes in steps of one transaction each.
    fn write_steps(&self, written: &Written<'_>) -> Result<()> {
        let end = end_of(written.offset, written.data.len())?;
        let mut at = written.offset;
        while at < end {
            at = self.retrying(|| self.write_steps_from(at, written))?;
        }
        Ok(())
    }

    /// Runs the steps from `at` on under one lock, until a step must wait. Returns the offset of the next step.
    fn write_steps_from(&self, from: u64, written: &Written<'_>) -> Result<u64> {
        let end = end_of(written.offset, written.data.len())?;
        let _node = self.inner.nodes.write(written.id);
        let mut at = from;
        while at < end {
            match self.write_one_step(at, written) {
                Ok(next) => at = next,
                Err(Error::Waits(_)) if at > from => break,
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    }

    /// Writes the bytes of one transaction from `at` on. The caller holds the lock of the file. Returns the offset of the
    /// next step.
    fn write_one_step(&self, at: u64, written: &Written<'_>) -> Result<u64> {
        let Written { id, offset, data, times, reach } = *written;
        let end = end_of(offset, data.len())?;
        let (object, mut znode) = self.file_for_change(id)?;
        if at == offset {
            self.check_appends(&object, &znode, offset, data, times)?;
        }
        if reach == Reach::Limits {
            self.check_space(&znode)?;
        }
        let max = self.inner.dataset.settings().record_size;
        let block = written_block(&object, znode.size, end, max);
        let step = self.write_step(block);
        let until = ((at / step + 1) * step).min(end);
        let part = &data[(at - offset) as usize..(until - offset) as usize];
        let now = object.block_size();
        object.check_indirect(at / now, until.div_ceil(now))?;
        let hold = Hold::write(part.len() as u64 + ATTRIBUTE_COST).in_blocks(at, until, block);
        let tx = self.begin(Hold { reach, ..hold })?;
        self.count_pending_bytes(&tx, &znode, part.len() as u64, block)?;
        self.grow_block(&object, &tx, znode.size, until, max)?;
        object.write(&tx, at, part)?;
        znode.size = znode.size.max(until);
        let (mtime, ctime) = (znode.mtime, znode.ctime);
        modified(&mut znode, self.now());
        if times == Times::Kept {
            (znode.mtime, znode.ctime) = (mtime, ctime);
        }
        self.store(&object, &tx, &znode)?;
        self.note_data(&tx, id, &znode, at, until - at);
        Ok(until)
    }

    /// Bytes of a write into blocks of `block` bytes that go into one transaction.
    fn write_step(&self, block: u64) -> u64 {
        if self.inner.dataset.is_replaying() {
            // The replay of a record uses one transaction, or two.
            return WRITE_STEP.max(block);
        }
        change::write_step(&self.inner.objset, block)
    }

    /// A buffer of `len` bytes with undefined contents for [`Filesystem::write_record`]. Reuses the buffer of a finished
    /// record if there is one.
    #[must_use]
    pub fn record_buffer(&self, len: usize) -> Vec<u8> {
        self.inner.objset.buffers().take(len)
    }

    /// As [`Filesystem::write`], for data of one record. The buffer is used without a copy if it starts at a record border
    /// and fills the record or ends the file.
    ///
    /// # Errors
    /// As [`Filesystem::write`].
    pub fn write_record(&self, id: ObjectId, offset: u64, mut data: Vec<u8>) -> Result<()> {
        self.changing(|| match self.retrying(|| self.write_whole(id, offset, &mut data))? {
            true => Ok(()),
            false => {
                let data = &data;
                self.write_steps(&Written { id, offset, data, times: Times::Now, reach: Reach::Limits })
            }
        })
    }

    /// Uses `data` as a whole record inside the transaction. Returns whether it fits a record.
    fn write_whole(&self, id: ObjectId, offset: u64, data: &mut Vec<u8>) -> Result<bool> {
        let end = end_of(offset, data.len())?;
        if data.is_empty() {
            return Ok(true);
        }
        let _node = self.inner.nodes.write(id);
        let (object, mut znode) = self.file_for_change(id)?;
        self.check_appends(&object, &znode, offset, data, Times::Now)?;
        self.check_space(&znode)?;
        let max = self.inner.dataset.settings().record_size;
        let block = written_block(&object, znode.size, end, max);
        let fits = data.len() as u64 == block || (data.len() as u64) < block && end >= znode.size;
        if !offset.is_multiple_of(block) || !fits {
            return Ok(false);
        }
        object.check_indirect(offset / block, offset / block + 1)?;
        let tx = self.begin(Hold::write(block + ATTRIBUTE_COST).in_blocks(offset, end, block))?;
        self.count_pending_bytes(&tx, &znode, block, block)?;
        self.grow_block(&object, &tx, znode.size, end, max)?;
        znode.size = znode.size.max(end);
        modified(&mut znode, self.now());
        let mut record = std::mem::take(data);
        record.resize(block as usize, 0);
        object.put_block(&tx, offset / block, Arc::new(record));
        self.store(&object, &tx, &znode)?;
        self.note_data(&tx, id, &znode, offset, end - offset);
        Ok(true)
    }

    /// Enlarges the block of a one-block file so that it reaches to `end`, up to `max`. `size` is the present size of the
    /// file.
    pub(crate) fn grow_block(
        &self,
        object: &Arc<Object>,
        tx: &Tx,
        size: u64,
        end: u64,
        max: u64,
    ) -> Result<()> {
        let block = object.block_size();
        if size <= block
            && object.max_blkid() == 0
            && let Some(grown) = grown_block(block, end.max(size), max)
        {
            object.set_block_size(tx, grown)?;
        }
        let block = object.block_size();
        if end > block && !block.is_power_of_two() {
            return Err(Error::damaged(object.id())(Corrupt::new(
                "block size of a file with many blocks",
                block,
            )));
        }
        Ok(())
    }

    /// Sets the size of a file, in steps that take its lock for themselves. The caller holds no locks.
    pub(crate) fn resize(&self, id: ObjectId, size: u64) -> Result<()> {
        if size > OFFSET_MAX {
            return Err(Error::FileTooBig);
        }
        while !self.retrying(|| self.resize_step(id, size))? {}
        Ok(())
    }

    /// Runs one step in one transaction. Returns whether the file has the wanted size now.
    fn resize_step(&self, id: ObjectId, size: u64) -> Result<bool> {
        let _node = self.inner.nodes.write(id);
        let (object, znode) = self.file_for_change(id)?;
        if size >= znode.size {
            return self.reach_to(&object, znode, size).map(|()| true);
        }
        self.check_attributes_change(&znode, pflags::APPENDONLY)?;
        let block = object.block_size();
        // One transaction frees a bounded number of blocks: each may have to be listed for a snapshot.
        let blocks = object.max_blkid() + 1;
        let kept = blocks.saturating_sub(change::free_step(&self.inner.dataset, blocks));
        let is_last = kept <= size.div_ceil(block);
        self.cut(id, if is_last { size } else { kept * block })?;
        Ok(is_last)
    }

    /// Makes a file end at `size`, which is not below its present end. The caller holds its lock.
    pub(crate) fn reach_to(&self, object: &Arc<Object>, mut znode: Znode, size: u64) -> Result<()> {
        if size > OFFSET_MAX {
            return Err(Error::FileTooBig);
        }
        let tx = self.begin(Hold::write(ATTRIBUTE_COST + object.block_size()))?;
        let max = self.inner.dataset.settings().record_size;
        self.grow_block(object, &tx, znode.size, size, max)?;
        znode.size = size;
        modified(&mut znode, self.now());
        self.store(object, &tx, &znode)?;
        let id = object.id();
        self.note_node(&tx, id, &znode, || cut_off(id, size, 0));
        Ok(())
    }

    /// Makes a file shorter, in one transaction. The caller holds its lock.
    fn cut(&self, id: ObjectId, size: u64) -> Result<()> {
        let (object, mut znode) = self.file_for_change(id)?;
        let block = object.block_size();
        let (first_gone, within) = (size.div_ceil(block), size % block);
        let cut = within != 0 && object.next_block(size / block)? == Some(size / block);
        if cut {
            // Read (into the cache) before the transaction begins.
            object.block(size / block)?;
        }
        object.check_indirect(first_gone, u64::MAX)?;
        let tx = self.begin(Hold::free().of_blocks(object.blocks_to_free(first_gone, u64::MAX)))?;
        if cut {
            object.edit_block(&tx, size / block, |raw| raw[within as usize..].fill(0))?;
        }
        object.free_blocks(&tx, first_gone, u64::MAX);
        znode.size = size;
        modified(&mut znode, self.now());
        self.store(&object, &tx, &znode)?;
        self.note_node(&tx, id, &znode, || cut_off(id, size, 0));
        Ok(())
    }

    /// Cuts a file to `size` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// [`Error::FileTooBig`]; as [`Filesystem::read`].
    pub fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.changing(|| self.resize(id, size))
    }

    /// Makes a hole of `len` bytes at `offset`, up to the end of the file. The size of the file stays.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        self.changing(|| {
            let mut from = Some(offset);
            while let Some(at) = from {
                from = self.retrying(|| self.punch_step(id, at, end))?;
            }
            Ok(())
        })
    }

    /// Makes the part of a hole from `at` to `end` that fits one transaction. Returns the offset of the next step, if there
    /// is one.
    fn punch_step(&self, id: ObjectId, at: u64, end: u64) -> Result<Option<u64>> {
        let _node = self.inner.nodes.write(id);
        let (object, znode) = self.file_for_change(id)?;
        let (block, end) = (object.block_size(), end.min(znode.size));
        if at >= end {
            return Ok(None);
        }
        // As in a truncation, one transaction frees a bounded number of blocks.
        let blocks = object.max_blkid() + 1;
        let step = change::free_step(&self.inner.dataset, blocks).saturating_mul(block);
        let is_behind = at / block >= blocks;
        let next = if is_behind { end } else { (at / step + 1).saturating_mul(step).min(end) };
        self.punch_hole(id, at, next - at)?;
        Ok((next < end).then_some(next))
    }

    /// Makes a hole of `len` bytes in one transaction. The caller holds the lock of the file.
    fn punch_hole(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let (object, mut znode) = self.file_for_change(id)?;
        let end = offset.saturating_add(len).min(znode.size);
        if offset >= end {
            return Ok(());
        }
        self.check_attributes_change(&znode, pflags::APPENDONLY)?;
        let block = object.block_size();
        // All bytes after the end of the file are zero.
        let Hole { whole, cuts } = hole(block, offset, end, end == znode.size);
        let mut edits = Vec::new();
        for (blkid, range) in cuts {
            if object.next_block(blkid)? == Some(blkid) {
                object.block(blkid)?;
                edits.push((blkid, range));
            }
        }
        modified(&mut znode, self.now());
        object.check_indirect(whole.start, whole.end)?;
        let tx = self.begin(Hold::free().of_blocks(object.blocks_to_free(whole.start, whole.end)))?;
        for (blkid, range) in edits {
            object.edit_block(&tx, blkid, |raw| raw[range].fill(0))?;
        }
        object.free_blocks(&tx, whole.start, whole.end);
        self.store(&object, &tx, &znode)?;
        self.note_node(&tx, id, &znode, || cut_off(id, offset, end - offset));
        Ok(())
    }
}

/// The record of a truncation to `offset`, or of a hole of `length` bytes there.
const fn cut_off(object: ObjectId, offset: u64, length: u64) -> Body {
    Body::Truncate { object, offset, length }
}

pub(crate) fn end_of(offset: u64, len: usize) -> Result<u64> {
    offset.checked_add(len as u64).filter(|end| *end <= OFFSET_MAX).ok_or(Error::FileTooBig)
}

fn check_regular(znode: &Znode) -> Result<()> {
    if is_kind(znode, FileKind::Regular) {
        Ok(())
    } else if is_kind(znode, FileKind::Directory) {
        Err(Error::IsDir)
    } else {
        Err(Error::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_has_one_block_that_fits() {
        assert_eq!(grown_block(512, 6, 128 << 10), None);
        assert_eq!(grown_block(512, 100_000, 128 << 10), Some(100_352));
        assert_eq!(grown_block(100_352, 100_353, 128 << 10), Some(100_864));
        assert_eq!(grown_block(100_352, 1 << 30, 128 << 10), Some(128 << 10));
        assert_eq!(grown_block(128 << 10, 1 << 30, 128 << 10), None);
    }

    #[test]
    fn a_block_grows_to_a_power_of_two_after_recordsize_was_lowered() {
        assert_eq!(grown_block(100_352, 1 << 20, 4096), Some(128 << 10));
        assert_eq!(grown_block(100_352, 100_400, 4096), Some(100_864));
        assert_eq!(grown_block(8192, 1 << 20, 4096), None);
        assert_eq!(grown_block(4096, 5000, 128 << 10), Some(5120));
    }
}

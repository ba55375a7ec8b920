//! Block cloning: a range of a file refers to the same blocks as a range of another file.
//!
//! From:   `copy_file_range`, and copies inside a pool.
//! To:     pointers in the open txg, which its sync counts (`pool/brt.rs`).
//! Source: docs/format/14-dedup-and-cloning.md §11, §13, §14.

use std::ops::Range;
use std::sync::Arc;

use dmu::Object;
use format::ObjectId;
use format::blkptr::{Block, BlockPtr};
use format::zil::{Body, CloneRange};
use format::znode::{Znode, pflags};
use pool::Hold;

use crate::file::end_of;
use crate::fs::ATTRIBUTE_COST;
use crate::locks::Guard;
use crate::node::modified;
use crate::{Error, Filesystem, NotCloned, Result};

/// Pointers that one transaction and one record of an intent log take.
const STEP: u64 = 512;
/// A range whose blocks are not on disk yet is cloned after a sync only if it has at least this many bytes. Copying a
/// shorter range is faster.
const WAIT_MIN: u64 = 16 << 20;
/// Maximal number of syncs that one step waits for while other threads change its source.
const WAITS: u32 = 3;

/// A place in a file.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The file system.
    pub fs: &'a Filesystem,
    /// The file.
    pub id: ObjectId,
    /// Bytes from its start.
    pub offset: u64,
}

/// Changes of the destination in one step.
struct Step {
    offset: u64,
    /// Length in bytes. The last block may extend beyond the end of the file.
    length: u64,
    block: u64,
    ptrs: Vec<BlockPtr>,
}

impl Step {
    /// Numbers of the blocks that it replaces.
    fn blocks(&self) -> Range<u64> {
        let first = self.offset / self.block;
        first..first + self.ptrs.len() as u64
    }

    /// Puts the pointers into `object`, whose blocks have the right size.
    fn put(&self, object: &Arc<Object>, tx: &dmu::Tx) {
        let mut blkid = self.blocks().start;
        for run in self.ptrs.chunk_by(|a, b| a.is_hole() && b.is_hole()) {
            match run {
                [ptr] if !ptr.is_hole() => object.put_cloned(tx, blkid, *ptr),
                holes => object.free_blocks(tx, blkid, blkid + holes.len() as u64),
            }
            blkid += run.len() as u64;
        }
    }

    fn record(self, object: ObjectId) -> Body {
        let Step { offset, length, block, ptrs } = self;
        Body::CloneRange(CloneRange { object, offset, length, block_size: block, ptrs })
    }
}

/// Whether `ptr` can be that of a block of `size` bytes of a file.
fn is_data_of(ptr: &BlockPtr, size: u64) -> bool {
    // A gang block that a dedup table contains is copied instead.
    let is_data = |block: &Block| {
        block.level == 0 && !block.object_type.is_metadata() && !(block.dedup && block.is_gang())
    };
    ptr.is_hole() || ptr.lsize() == size && ptr.block().is_none_or(is_data)
}

impl Filesystem {
    /// Clones up to `len` bytes of `source`, which may be in another file system of the pool, into the file `id` at
    /// `offset`. Returns the number of cloned bytes. It is smaller at the end of the source, or if the last block would be
    /// shared only in part.
    ///
    /// # Errors
    /// [`Error::NotCloned`]: nothing was changed, and the caller may copy. [`Error::Invalid`] when the ranges
    /// overlap. As [`Filesystem::read`] and [`Filesystem::write`]. Bytes that were cloned before another error stay cloned.
    pub fn clone_range(&self, source: Place<'_>, (id, offset): (ObjectId, u64), len: u64) -> Result<u64> {
        if !self.inner.dataset.is_cloning() {
            return Err(NotCloned::Disabled.into());
        }
        if !self.inner.dataset.may_share(&source.fs.inner.dataset) {
            return Err(NotCloned::Across.into());
        }
        let is_same = self.is_same_file(source, id);
        if is_same && source.offset < offset.saturating_add(len) && offset < source.offset.saturating_add(len)
        {
            return Err(Error::Invalid);
        }
        let (mut done, mut waits) = (0, 0);
        while done < len {
            let from = Place { offset: source.offset.saturating_add(done), ..source };
            let to = (id, offset.saturating_add(done));
            let mut step = self.changing(|| self.clone_step(from, to, len - done));
            let is_unsettled = matches!(step, Err(Error::NotCloned(NotCloned::Unsettled)));
            if is_unsettled && waits < WAITS && len >= WAIT_MIN {
                waits += 1;
                match self.inner.dataset.sync() {
                    Ok(()) => continue,
                    Err(error) => step = Err(error.into()),
                }
            }
            match step {
                Ok(0) => break,
                Ok(cloned) => (done, waits) = (done + cloned, 0),
                // The blocks cloned so far are reported before the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Whether `id` of this file system is the file of `place`.
    fn is_same_file(&self, place: Place<'_>, id: ObjectId) -> bool {
        place.id == id && Arc::ptr_eq(&self.inner, &place.fs.inner)
    }

    /// The locks of both files, in one order for all.
    fn lock_both<'a>(&'a self, source: Place<'a>, id: ObjectId) -> Vec<Guard<'a>> {
        if Arc::ptr_eq(&self.inner, &source.fs.inner) {
            return self.inner.nodes.write_all(&[source.id, id]);
        }
        let (own, other) = (|| self.inner.nodes.write(id), || source.fs.inner.nodes.write(source.id));
        if self.inner.dataset.precedes(&source.fs.inner.dataset) {
            let first = own();
            return vec![first, other()];
        }
        let first = other();
        vec![first, own()]
    }

    /// Clones as much as one transaction can.
    fn clone_step(&self, from: Place<'_>, (id, offset): (ObjectId, u64), len: u64) -> Result<u64> {
        let _both = self.lock_both(from, id);
        let (object, znode) = self.file_for_change(id)?;
        if znode.flags & pflags::APPENDONLY != 0 && offset < znode.size {
            return Err(Error::NotPermitted);
        }
        self.check_space(&znode)?;
        let (source, facts) = from.fs.file(from.id)?;
        let len = len.min(facts.size.saturating_sub(from.offset));
        if len == 0 {
            return Ok(0);
        }
        let block = source.block_size();
        let length = self.cloneable(from.offset, (offset, len), (block, facts.size), (&object, &znode))?;
        let first = from.offset / block;
        let end = first + length.div_ceil(block);
        let synced = self.inner.dataset.synced_txg();
        let ptrs = source.shareable(first, end, synced)?.ok_or(NotCloned::Unsettled)?;
        if !ptrs.iter().all(|ptr| is_data_of(ptr, block)) {
            return Err(NotCloned::Unaligned.into());
        }
        self.clone_ptrs((&object, znode), Step { offset, length, block, ptrs })?;
        Ok(length)
    }

    /// How many of the bytes at `from` can be cloned in one step to `offset` of a file: the blocks of the source have `block` bytes, and
    /// it has `size`.
    fn cloneable(
        &self,
        from: u64,
        (offset, len): (u64, u64),
        (block, size): (u64, u64),
        (object, znode): (&Object, &Znode),
    ) -> Result<u64> {
        let is_one =
            block == object.block_size() || object.max_blkid() == 0 && znode.size <= object.block_size();
        let is_aligned = from.is_multiple_of(block) && offset.is_multiple_of(block);
        let end = end_of(offset, len as usize)?;
        // A short file has one block of odd size, with which the other file could not grow as usual.
        let record = self.inner.dataset.settings().record_size;
        let stays_small = size <= block && block < record && end > block;
        let is_odd = !block.is_power_of_two() && (offset > 0 || end > block);
        if block < object.block_size() || !is_one || !is_aligned || stays_small || is_odd {
            return Err(NotCloned::Unaligned.into());
        }
        let step = len.min(STEP * block);
        if step.is_multiple_of(block) || from + step == size && offset + step >= znode.size {
            return Ok(step);
        }
        // The bytes after the range in the last block would be shared, too.
        match step - step % block {
            0 => Err(NotCloned::Unaligned.into()),
            whole => Ok(whole),
        }
    }

    /// Carries out a step. The caller holds the locks of both files.
    fn clone_ptrs(&self, (object, mut znode): (&Arc<Object>, Znode), step: Step) -> Result<()> {
        let blocks = step.blocks();
        object.check_indirect(blocks.start, blocks.end)?;
        let charged = step.ptrs.iter().map(|ptr| self.inner.objset.dsize_of(ptr)).sum();
        let freed = object.blocks_to_free(blocks.start, blocks.end) + blocks.end - blocks.start;
        let tx = self.begin(Hold::write(ATTRIBUTE_COST).cloning(charged).of_blocks(freed))?;
        self.count_pending_bytes(&tx, &znode, charged, 0)?;
        if object.block_size() != step.block {
            object.set_block_size(&tx, step.block)?;
        }
        step.put(object, &tx);
        znode.size = znode.size.max(step.offset + step.length);
        modified(&mut znode, self.now());
        self.store(object, &tx, &znode)?;
        self.note_node(&tx, object.id(), &znode, || step.record(object.id()));
        Ok(())
    }

    /// Replays a record. The log refers to the blocks, so they are still allocated.
    pub(crate) fn replay_clone(&self, clone: &CloneRange) -> Result<()> {
        let CloneRange { object: id, offset, length, block_size: block, ptrs } = clone;
        self.wait_for_room();
        self.retrying(|| {
            let _node = self.inner.nodes.write(*id);
            let (object, znode) = self.file_for_change(*id)?;
            let end = end_of(*offset, *length as usize)?;
            let grows = object.max_blkid() == 0 && znode.size <= *block && *block >= object.block_size();
            let is_shaped = *block > 0 && offset.is_multiple_of(*block) && *block <= format::MAX_BLOCK;
            let is_whole = (end - offset).div_ceil(*block.max(&1)) == ptrs.len() as u64;
            let is_even = block.is_power_of_two() || end <= *block && block.is_multiple_of(512);
            let has_blocks = object.block_size() == *block || grows;
            if !is_shaped
                || !has_blocks
                || !is_even
                || !is_whole
                || !ptrs.iter().all(|ptr| is_data_of(ptr, *block))
            {
                return Err(Error::Invalid);
            }
            let step = Step { offset: *offset, length: *length, block: *block, ptrs: ptrs.clone() };
            self.clone_ptrs((&object, znode), step)
        })
    }
}

//! Writing one object's block tree: new leaves in, a new dnode out.
//!
//! Leaves and freed ranges arrive in ascending order. One indirect block per level is open at a time; when
//! the next leaf lies under another one, the open one is written and its pointer goes into its parent. The memory
//! for this is one indirect block per level, for objects of any size.
//! Source: docs/format/03-dmu.md §5, 02-blocks-checksums-compression.md §1.5.

use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, Hole, SIZE as PTR};
use format::dnode::{self, Dnode};
use format::{ByteOrder, ObjectId};
use storage::Record;

use crate::context::SyncCtx;
use crate::object::reborn;
use crate::place::TreeSlot;
use crate::walk::{Spot, Step, Walk};
use crate::{Error, Result};

/// An indirect block being changed.
struct Node {
    index: u64,
    raw: Vec<u8>,
    /// The pointer to the old block, which the new block replaces.
    old: BlockPtr,
}

/// The tree of one object while it is synced.
pub(crate) struct TreeWriter {
    object: ObjectId,
    dnode: Dnode,
    /// Open indirect blocks; index 0 is level 1. If a level is open, so are all above it.
    open: Vec<Option<Node>>,
}

impl TreeWriter {
    /// `dnode` is the object as on disk (or fresh, without blocks); the tree grows to reach `max_blkid`.
    pub(crate) fn new(object: ObjectId, dnode: Dnode, max_blkid: u64) -> TreeWriter {
        TreeWriter::with_levels(object, dnode, max_blkid, 1)
    }

    /// As [`TreeWriter::new`]; the tree has `least` levels at least.
    pub(crate) fn with_levels(object: ObjectId, mut dnode: Dnode, max_blkid: u64, least: u8) -> TreeWriter {
        let wanted = dnode::levels_for(max_blkid, dnode.block_ptrs.len(), dnode.indirect_shift).max(least);
        let mut open: Vec<Option<Node>> = (1..wanted.max(dnode.levels)).map(|_| None).collect();
        while dnode.levels < wanted {
            // The old roots become the first entries of a new block above them.
            let level = dnode.levels;
            dnode.levels += 1;
            let above_old_root = level > 1 && open[usize::from(level) - 2].is_some();
            if above_old_root || dnode.block_ptrs.iter().any(|ptr| *ptr != BlockPtr::HOLE) {
                let mut raw = vec![0; 1 << dnode.indirect_shift];
                for (slot, ptr) in raw.chunks_exact_mut(PTR).zip(&dnode.block_ptrs) {
                    slot.copy_from_slice(&ptr.encode(ByteOrder::Little));
                }
                dnode.block_ptrs.fill(BlockPtr::HOLE);
                open[usize::from(level) - 1] = Some(Node { index: 0, raw, old: BlockPtr::HOLE });
            }
        }
        TreeWriter { object, dnode, open }
    }

    fn shift(&self) -> u32 {
        self.dnode.fanout_shift()
    }

    fn top(&self) -> u8 {
        self.dnode.levels - 1
    }

    /// The pointer to block `index` of `level`.
    pub(crate) fn entry(&mut self, ctx: &mut SyncCtx<'_, '_>, level: u8, index: u64) -> Result<BlockPtr> {
        if level == self.top() {
            return Ok(self.dnode.block_ptrs.get(index as usize).copied().unwrap_or_default());
        }
        let (object, at) = (self.object, self.slot(index));
        let node = self.node(ctx, level + 1, index >> self.shift())?;
        BlockPtr::decode(&node.raw[at..], ByteOrder::Little).map_err(Error::corrupt(object))
    }

    fn set_entry(&mut self, ctx: &mut SyncCtx<'_, '_>, level: u8, index: u64, ptr: BlockPtr) -> Result<()> {
        if level == self.top() {
            self.dnode.block_ptrs[index as usize] = ptr;
            return Ok(());
        }
        let at = self.slot(index);
        let node = self.node(ctx, level + 1, index >> self.shift())?;
        node.raw[at..at + PTR].copy_from_slice(&ptr.encode(ByteOrder::Little));
        Ok(())
    }

    fn slot(&self, index: u64) -> usize {
        (index & ((1 << self.shift()) - 1)) as usize * PTR
    }

    /// The open indirect block `index` of `level`. Closes another open block of the level first.
    fn node(&mut self, ctx: &mut SyncCtx<'_, '_>, level: u8, index: u64) -> Result<&mut Node> {
        let i = usize::from(level) - 1;
        if self.open[i].as_ref().is_none_or(|node| node.index != index) {
            self.flush(ctx, level)?;
            let old = self.entry(ctx, level, index)?;
            let raw = self.load(ctx, &old, level, index)?;
            self.open[i] = Some(Node { index, raw, old });
        }
        Ok(self.open[i].as_mut().expect("the block was opened above"))
    }

    fn load(&self, ctx: &SyncCtx<'_, '_>, old: &BlockPtr, level: u8, index: u64) -> Result<Vec<u8>> {
        let size = 1usize << self.dnode.indirect_shift;
        match old {
            BlockPtr::Hole(hole) if hole.birth.0 == 0 => Ok(vec![0; size]),
            BlockPtr::Hole(hole) => {
                // Children of a block that was freed keep the txg of the freeing, or incremental sends
                // would miss it.
                let child = BlockPtr::Hole(Hole {
                    lsize: self.dnode.level_size(level - 1),
                    object_type: self.dnode.object_type,
                    level: level - 1,
                    birth: hole.birth,
                });
                Ok(child.encode(ByteOrder::Little).repeat(size / PTR))
            }
            ptr => Ok(self.read(ctx, ptr, Spot { level, index })?.to_vec()),
        }
    }

    /// The indirect block at `spot`.
    fn read(&self, ctx: &SyncCtx<'_, '_>, ptr: &BlockPtr, spot: Spot) -> Result<Record> {
        let Spot { level, index: blkid } = spot;
        let block = |source| Error::Block { object: self.object, level, blkid, source };
        let record = ctx.storage().read(ptr).map_err(block)?;
        if record.len() != 1 << self.dnode.indirect_shift {
            let corrupt = format::Corrupt::new("indirect block size", record.len() as u64);
            return Err(Error::Corrupt { object: self.object, source: corrupt });
        }
        Ok(record)
    }

    /// Writes the open blocks of `level` and below; parents get their new pointers.
    fn flush(&mut self, ctx: &mut SyncCtx<'_, '_>, level: u8) -> Result<()> {
        for level in 1..=level {
            let Some(node) = self.open[usize::from(level) - 1].take() else { continue };
            let ptr = self.write_node(ctx, level, &node)?;
            self.set_entry(ctx, level, node.index, ptr)?;
        }
        Ok(())
    }

    fn write_node(&mut self, ctx: &mut SyncCtx<'_, '_>, level: u8, node: &Node) -> Result<BlockPtr> {
        let mut fill = 0;
        let mut all_holes = true;
        for raw in node.raw.chunks_exact(PTR) {
            if raw.iter().all(|&byte| byte == 0) {
                continue;
            }
            let child = BlockPtr::decode(raw, ByteOrder::Little).map_err(Error::corrupt(self.object))?;
            all_holes &= child.is_hole();
            fill += child.fill();
        }
        if all_holes {
            let hole = self.hole(ctx, level, &node.old);
            self.forget(ctx, &node.old)?;
            return Ok(hole);
        }
        let record = Arc::new(node.raw.clone());
        let encoding = ctx.encoding(&self.dnode, level);
        let slot = TreeSlot { owner: &self.dnode, level, fill, old: &node.old };
        let ptr = ctx.write(&record, encoding, slot)?;
        self.account(ctx, &node.old, &ptr);
        Ok(ptr)
    }

    /// The new pointer in a slot whose block `old` is freed.
    fn hole(&self, ctx: &SyncCtx<'_, '_>, level: u8, old: &BlockPtr) -> BlockPtr {
        match old {
            BlockPtr::Hole(_) => *old,
            _ if ctx.policy.hole_birth && old.birth().0 != 0 => BlockPtr::Hole(Hole {
                lsize: self.dnode.level_size(level),
                object_type: self.dnode.object_type,
                level,
                birth: ctx.txg,
            }),
            _ => BlockPtr::HOLE,
        }
    }

    fn forget(&mut self, ctx: &mut SyncCtx<'_, '_>, old: &BlockPtr) -> Result<()> {
        self.account(ctx, old, &BlockPtr::HOLE);
        ctx.kill(old)?;
        Ok(())
    }

    /// Adjusts the object's space for `new` in place of `old`.
    fn account(&mut self, ctx: &SyncCtx<'_, '_>, old: &BlockPtr, new: &BlockPtr) {
        let vdevs = ctx.storage().vdevs();
        let used = self.dnode.used_bytes() + vdevs.dsize_of(new);
        // In an old pool, the count may be lower than the freed bytes; the figure must not wrap.
        let used = used.saturating_sub(vdevs.dsize_of(old));
        if ctx.policy.counts_sectors {
            self.dnode.used = used / dnode::SLOT as u64;
            self.dnode.flags &= !dnode::FLAG_USED_BYTES;
        } else {
            self.dnode.used = used;
            self.dnode.flags |= dnode::FLAG_USED_BYTES;
        }
    }

    /// Replaces block `blkid` by `encoded`. Blocks must come in ascending order.
    pub(crate) fn set(
        &mut self,
        ctx: &mut SyncCtx<'_, '_>,
        blkid: u64,
        encoded: storage::Encoded,
        fill: u64,
    ) -> Result<()> {
        let old = self.entry(ctx, 0, blkid)?;
        let new = match encoded {
            storage::Encoded::Hole => {
                let hole = self.hole(ctx, 0, &old);
                self.forget(ctx, &old)?;
                hole
            }
            encoded => {
                let slot = TreeSlot { owner: &self.dnode, level: 0, fill, old: &old };
                let ptr = ctx.place(encoded, slot)?;
                self.account(ctx, &old, &ptr);
                ptr
            }
        };
        if new != old { self.set_entry(ctx, 0, blkid, new) } else { Ok(()) }
    }

    /// As [`TreeWriter::set`], of a leaf with data, unless the block in its place is already the same.
    pub(crate) fn set_if_new(
        &mut self,
        ctx: &mut SyncCtx<'_, '_>,
        blkid: u64,
        encoded: storage::Encoded,
    ) -> Result<()> {
        let old = self.entry(ctx, 0, blkid)?;
        if ctx.is_stored_at(&old, &encoded, &self.dnode) {
            return Ok(());
        }
        self.set(ctx, blkid, encoded, 1)
    }

    /// As [`TreeWriter::set`], of a leaf that was written early.
    pub(crate) fn set_written(&mut self, ctx: &mut SyncCtx<'_, '_>, blkid: u64, block: Block) -> Result<()> {
        let old = self.entry(ctx, 0, blkid)?;
        let new = ctx.adopt(block, &self.dnode, &old)?;
        self.account(ctx, &old, &new);
        self.set_entry(ctx, 0, blkid, new)
    }

    /// Replaces block `blkid` by a cloned block on disk. The pool has counted the new reference.
    pub(crate) fn set_cloned(&mut self, ctx: &mut SyncCtx<'_, '_>, blkid: u64, ptr: &BlockPtr) -> Result<()> {
        let old = self.entry(ctx, 0, blkid)?;
        let new = reborn(ptr, ctx.txg);
        ctx.kill(&old)?;
        ctx.space.born(&new);
        self.account(ctx, &old, &new);
        self.set_entry(ctx, 0, blkid, new)
    }

    /// As [`TreeWriter::set`] from the record itself, rewriting in place where the txg allows it.
    pub(crate) fn set_record(
        &mut self,
        ctx: &mut SyncCtx<'_, '_>,
        blkid: u64,
        record: &storage::Record,
        fill: u64,
    ) -> Result<()> {
        let old = self.entry(ctx, 0, blkid)?;
        let encoding = ctx.encoding(&self.dnode, 0);
        let slot = TreeSlot { owner: &self.dnode, level: 0, fill, old: &old };
        let ptr = ctx.write(record, encoding, slot)?;
        let new = if ptr.is_hole() { self.hole(ctx, 0, &old) } else { ptr };
        self.account(ctx, &old, &ptr);
        if new != old { self.set_entry(ctx, 0, blkid, new) } else { Ok(()) }
    }

    /// Frees the blocks `start..end`. Ranges and blocks must come in ascending order.
    pub(crate) fn free(&mut self, ctx: &mut SyncCtx<'_, '_>, start: u64, end: u64) -> Result<()> {
        let shift = self.shift() * u32::from(self.top());
        for i in 0..self.dnode.block_ptrs.len() as u64 {
            let base = u128::from(i) << shift;
            if base < u128::from(end) && base + (1u128 << shift) > u128::from(start) {
                self.free_below(ctx, self.top(), i, start, end)?;
            }
        }
        Ok(())
    }

    fn free_below(
        &mut self,
        ctx: &mut SyncCtx<'_, '_>,
        level: u8,
        index: u64,
        start: u64,
        end: u64,
    ) -> Result<()> {
        let ptr = self.entry(ctx, level, index)?;
        // A block that is open was a hole before or is newer than its pointer.
        let is_open =
            level > 0 && self.open[usize::from(level) - 1].as_ref().is_some_and(|n| n.index == index);
        if ptr.is_hole() && !is_open {
            return Ok(());
        }
        let span = self.shift() * u32::from(level);
        let base = u128::from(index) << span;
        let covered = base >= u128::from(start) && base + (1u128 << span) <= u128::from(end);
        if covered && !is_open {
            self.kill_tree(ctx, &ptr, Spot { level, index })?;
            let hole = self.hole(ctx, level, &ptr);
            return self.set_entry(ctx, level, index, hole);
        }
        let child_span = span - self.shift();
        let first = index << self.shift();
        for child in first..first + (1 << self.shift()) {
            let base = u128::from(child) << child_span;
            if base < u128::from(end) && base + (1u128 << child_span) > u128::from(start) {
                self.free_below(ctx, level - 1, child, start, end)?;
            }
        }
        Ok(())
    }

    /// Frees the block of `ptr`, after all blocks below it.
    fn kill_tree(&mut self, ctx: &mut SyncCtx<'_, '_>, ptr: &BlockPtr, spot: Spot) -> Result<()> {
        let mut walk = Walk::below(self.shift(), spot, *ptr);
        while let Some(step) = walk.next() {
            match step.map_err(Error::corrupt(self.object))? {
                Step::At(_, ptr) if ptr.is_hole() => {}
                Step::At(spot, ptr) if spot.level > 0 => walk.enter(spot, ptr, self.read(ctx, &ptr, spot)?),
                Step::At(_, ptr) | Step::Left(_, ptr) => self.forget(ctx, &ptr)?,
            }
        }
        Ok(())
    }

    /// Frees everything: the object is gone.
    pub(crate) fn free_all(mut self, ctx: &mut SyncCtx<'_, '_>) -> Result<()> {
        for i in 0..self.dnode.block_ptrs.len() {
            let ptr = self.dnode.block_ptrs[i];
            self.kill_tree(ctx, &ptr, Spot { level: self.top(), index: i as u64 })?;
        }
        if let Some(spill) = self.dnode.spill {
            ctx.kill(&spill)?;
        }
        Ok(())
    }

    /// Writes the open blocks and returns the dnode with its new pointers and space.
    pub(crate) fn finish(mut self, ctx: &mut SyncCtx<'_, '_>) -> Result<Dnode> {
        if self.top() > 0 {
            self.flush(ctx, self.top())?;
        }
        Ok(self.dnode)
    }

    /// Replaces the spill block. Its type is the bonus type.
    pub(crate) fn set_spill(
        &mut self,
        ctx: &mut SyncCtx<'_, '_>,
        content: Option<&storage::Draft>,
    ) -> Result<()> {
        let old = self.dnode.spill.unwrap_or_default();
        match content {
            None => {
                self.forget(ctx, &old)?;
                self.dnode.spill = None;
            }
            Some(draft) => {
                let mut owner = self.dnode.clone();
                owner.object_type = self.dnode.bonus_type;
                let encoding = ctx.encoding(&owner, 0);
                let ptr = match draft.as_moved() {
                    None => {
                        let slot = TreeSlot { owner: &owner, level: 0, fill: 1, old: &old };
                        ctx.write(draft.record(), encoding, slot)?
                    }
                    Some(moved) => {
                        owner.block_size = moved.lsize as u32;
                        let salt = ctx.storage().salt();
                        let guard = storage::Guard::default();
                        let encoded = ctx.storage().encode(draft, encoding.recipe, &salt, guard);
                        ctx.place(encoded, TreeSlot { owner: &owner, level: 0, fill: 1, old: &old })?
                    }
                };
                self.account(ctx, &old, &ptr);
                self.dnode.spill = Some(ptr);
            }
        }
        Ok(())
    }

    /// The dnode, for changes of fields that are no pointers.
    pub(crate) fn dnode_mut(&mut self) -> &mut Dnode {
        &mut self.dnode
    }
}

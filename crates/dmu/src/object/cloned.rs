//! Cloned blocks: copying block pointers of one object into another.
//!
//! From:   an object whose blocks are on disk.
//! To:     the open txg of another object; the sync puts the pointers into its tree.
//! Source: docs/format/14-dedup-and-cloning.md §11.

use std::sync::Arc;

use format::Txg;
use format::blkptr::{Block, BlockPtr, Embedded};

use super::dirty::Dirty;
use super::{Object, State};
use crate::budget::CLONE_COST;
use crate::walk::{Step, Walk};
use crate::{Error, Result, Tx};

/// The known state of a block.
enum Known {
    /// The open or the syncing txg changes it to this pointer.
    Ptr(BlockPtr),
    /// The pointer in the tree on disk is current.
    OnDisk,
    /// Its content is dirty.
    Changed,
}

impl Dirty {
    /// Whether no block gets content.
    pub(super) fn has_no_blocks(&self) -> bool {
        self.blocks.is_empty() && self.cloned.is_empty()
    }

    /// The blocks from `from` on that get data, in order.
    pub(super) fn filled_from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let (mut blocks, mut cloned) =
            (self.blocks.range(from..).peekable(), self.cloned.range(from..).peekable());
        std::iter::from_fn(move || {
            let take_block = match (blocks.peek(), cloned.peek()) {
                (Some((block, _)), Some((clone, _))) => block < clone,
                (block, _) => block.is_some(),
            };
            if take_block {
                blocks.next().map(|(blkid, _)| *blkid)
            } else {
                cloned.next().map(|(blkid, _)| *blkid)
            }
        })
    }

    fn known(&self, blkid: u64) -> Known {
        if self.blocks.contains_key(&blkid) {
            return Known::Changed;
        }
        match self.cloned.get(&blkid) {
            Some(ptr) => Known::Ptr(*ptr),
            None if self.freed.contains(blkid) => Known::Ptr(BlockPtr::HOLE),
            None => Known::OnDisk,
        }
    }
}

impl State {
    fn known(&self, blkid: u64) -> Known {
        match (self.open.known(blkid), &self.syncing) {
            (Known::OnDisk, Some(closed)) => closed.dirty.known(blkid),
            (known, _) => known,
        }
    }
}

/// `ptr` in the form for another object from `txg` on.
pub(crate) fn reborn(ptr: &BlockPtr, txg: Txg) -> BlockPtr {
    match ptr {
        BlockPtr::Hole(_) => BlockPtr::HOLE,
        BlockPtr::Embedded(embedded) => BlockPtr::Embedded(Embedded { birth: txg, ..*embedded }),
        BlockPtr::Block(block) => {
            let mut pad = block.pad;
            // Removes the mark of a block that was rewritten in place.
            pad[0] &= !(1 << 63);
            BlockPtr::Block(Block { birth: txg, physical_birth: block.physical_birth(), pad, ..*block })
        }
    }
}

impl Object {
    /// The pointers to the blocks `start..end`, for cloning. `None` if one of the blocks is not on disk as of `synced`, the
    /// newest durable txg. The caller holds a lock against changes of the object.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn shareable(&self, start: u64, end: u64, synced: Txg) -> Result<Option<Vec<BlockPtr>>> {
        let mut stale = None;
        loop {
            let (disk, mut ptrs, on_disk) = {
                let state = self.lock();
                let (mut ptrs, mut on_disk) = (Vec::new(), Vec::new());
                for blkid in start..end {
                    ptrs.push(match state.known(blkid) {
                        Known::Changed => return Ok(None),
                        Known::Ptr(ptr) => ptr,
                        Known::OnDisk => {
                            on_disk.push(ptrs.len());
                            BlockPtr::HOLE
                        }
                    });
                }
                (state.disk.clone(), ptrs, on_disk)
            };
            if let Some(dnode) = &disk
                && !on_disk.is_empty()
            {
                let found = match self.ptrs_in(Walk::starting_at(dnode.clone(), start), start, end) {
                    // The tree may have been rewritten, and its old space used again, since it was looked up.
                    Err(_) if stale.as_ref() != Some(dnode) => {
                        stale = Some(dnode.clone());
                        continue;
                    }
                    found => found?,
                };
                on_disk.into_iter().for_each(|at| ptrs[at] = found[at]);
            }
            let is_new = |ptr: &BlockPtr| ptr.block().is_some_and(|block| block.physical_birth() > synced);
            return Ok((!ptrs.iter().any(is_new)).then_some(ptrs));
        }
    }

    /// The pointers to the blocks `start..end` that `walk` finds.
    fn ptrs_in(&self, mut walk: Walk, start: u64, end: u64) -> Result<Vec<BlockPtr>> {
        let mut found = vec![BlockPtr::HOLE; (end - start) as usize];
        while let Some(step) = walk.next() {
            let Step::At(spot, ptr) = step.map_err(Error::corrupt(self.id))? else { continue };
            let below = walk.blocks_at(spot);
            if below.start >= u128::from(end) {
                break;
            }
            if ptr.is_hole() || below.end <= u128::from(start) {
                continue;
            }
            match spot.level {
                0 => found[(spot.index - start) as usize] = ptr,
                _ => walk.enter(spot, ptr, self.read_ptr(&ptr, spot, crate::io::Reading::Kept)?),
            }
        }
        Ok(found)
    }

    /// Makes block `blkid` a clone of the block at `ptr`, which is on disk and has the block size of the object.
    ///
    /// # Panics
    /// If it is a hole, or has another length.
    pub fn put_cloned(self: &Arc<Self>, tx: &Tx, blkid: u64, ptr: BlockPtr) {
        assert!(!ptr.is_hole(), "a hole is freed");
        let mut state = self.lock();
        assert_eq!(ptr.lsize(), u64::from(state.head.block_size), "a block is replaced whole");
        assert!(blkid == 0 || state.head.block_size.is_power_of_two(), "many blocks need a power of two");
        self.forget_records(&mut state, blkid, blkid + 1);
        state.head.max_blkid = state.head.max_blkid.max(blkid);
        if state.open.cloned.insert(blkid, ptr).is_none() {
            let budget = &self.shared.budget;
            self.charge(&mut state, CLONE_COST, 0);
            budget.add_space(self.shared.bound.pointer());
            budget.add_entries(self.shared.bound.cloned(budget.has_table()));
            self.count_path(&mut state, blkid);
        }
        self.list(&mut state, tx);
    }

    /// Drops the pointers of the open txg in `start..end`.
    pub(super) fn forget_cloned(&self, state: &mut State, start: u64, end: u64) {
        let doomed: Vec<u64> = state.open.cloned.range(start..end).map(|(&blkid, _)| blkid).collect();
        for blkid in doomed {
            state.open.cloned.remove(&blkid);
            self.charge(state, 0, CLONE_COST);
            self.shared.budget.sub_space(self.shared.bound.pointer());
        }
    }
}

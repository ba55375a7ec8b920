//! Changing an object: its dirty state in the open txg.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::blkptr::BlockPtr;
use storage::{Draft, Recipe, Record};

use super::{Object, State};
use crate::bound::{Nodes, Reach};
use crate::budget::{OBJECT_COST, RECORD_COST};
use crate::{Head, Ranges, Result, SealedForm, Tx};

/// Blocks below this size, in bytes, are not encoded ahead, because they are often changed again.
const AHEAD_BLOCK_MIN: u32 = 32 << 10;

/// The change of the spill block.
#[derive(Clone, Debug, Default)]
pub(crate) enum Spill {
    /// As on disk.
    #[default]
    Kept,
    /// Removed.
    Gone,
    /// New content.
    Set(Draft),
}

/// Changes of one txg.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) blocks: BTreeMap<u64, Draft>,
    /// Blocks that become pointers to blocks that are on disk. None of them is in `blocks`.
    pub(crate) cloned: BTreeMap<u64, BlockPtr>,
    pub(crate) freed: Ranges,
    pub(crate) spill: Spill,
    /// For a raw receive: the bytes of the dnode after its pointers.
    pub(crate) area: Option<Arc<Vec<u8>>>,
    /// Indirect blocks whose space is counted.
    pub(super) nodes: Nodes,
    /// The object is in the objset's dirty list.
    pub(super) listed: bool,
    pub(super) cost: u64,
}

/// The changes of a closed txg with the head as it was then.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) head: Head,
    /// The object was freed.
    pub(crate) gone: bool,
    pub(crate) dirty: Dirty,
}

impl Object {
    /// Writes `data` at byte `offset`. Whole blocks are taken without reading; partial ones are read first.
    ///
    /// # Errors
    /// If a block that is only partly overwritten cannot be read.
    pub fn write(self: &Arc<Self>, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let size = self.block_size();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (blkid, within) = (at / size, (at % size) as usize);
            let take = (data.len() - done).min(size as usize - within);
            let part = &data[done..done + take];
            if take == size as usize {
                self.put_block(tx, blkid, Arc::new(self.storage().buffers().copy_of(part)));
            } else {
                self.edit_block(tx, blkid, |block| block[within..within + take].copy_from_slice(part))?;
            }
            done += take;
        }
        Ok(())
    }

    /// Replaces block `blkid` by `record`.
    ///
    /// # Panics
    /// If the record is not `block_size` bytes long.
    pub fn put_block(self: &Arc<Self>, tx: &Tx, blkid: u64, record: Record) {
        let mut state = self.lock();
        assert_eq!(record.len(), state.head.block_size as usize, "a block is replaced whole");
        self.insert(&mut state, tx, blkid, record);
    }

    /// Replaces block `blkid` by one from a raw stream, which is written unchanged.
    ///
    /// # Panics
    /// If it has another size than the blocks of the object when it is opened.
    pub fn put_moved(self: &Arc<Self>, tx: &Tx, blkid: u64, draft: Draft) {
        let mut state = self.lock();
        let lsize = draft.as_moved().map(|moved| moved.lsize);
        assert_eq!(lsize, Some(state.head.block_size.into()), "a block is replaced whole");
        self.insert(&mut state, tx, blkid, draft);
    }

    /// Gives the dnode exactly this form. Blocks after its end must be free already.
    ///
    /// # Panics
    /// If an object on disk has another number of pointers, or more levels.
    pub fn reform(self: &Arc<Self>, tx: &Tx, form: SealedForm) {
        let mut state = self.lock();
        if let Some(disk) = &state.disk {
            let fits = disk.block_ptrs.len() == usize::from(form.nblkptr) && disk.levels <= form.levels;
            assert!(fits, "the tree of an object keeps its shape");
        }
        state.head.nblkptr = form.nblkptr;
        state.head.levels = form.levels;
        state.head.max_blkid = form.max_blkid;
        state.open.area = Some(Arc::new(form.area));
        self.list(&mut state, tx);
    }

    fn insert(self: &Arc<Self>, state: &mut State, tx: &Tx, blkid: u64, record: impl Into<Draft>) {
        let record: Draft = record.into();
        assert!(blkid == 0 || state.head.block_size.is_power_of_two(), "many blocks need a power of two");
        let len = record.record().len() as u64;
        let cost = len + RECORD_COST;
        let bound = self.bound_of(state, len);
        self.forget_cloned(state, blkid, blkid + 1);
        let old = state.open.blocks.insert(blkid, record).map(|old| old.record().len() as u64);
        state.head.max_blkid = state.head.max_blkid.max(blkid);
        self.charge(state, cost, old.map_or(0, |len| len + RECORD_COST));
        self.shared.budget.add_space(bound);
        match old {
            Some(len) => self.shared.budget.sub_space(self.bound_of(state, len)),
            None => {
                self.count_path(state, blkid);
                let is_metadata = state.head.object_type.is_metadata();
                let budget = &self.shared.budget;
                budget.add_entries(self.shared.bound.entries(is_metadata, budget.has_table()));
            }
        }
        self.list(state, tx);
    }

    /// Bytes of space that a changed record of `len` bytes takes at most.
    fn bound_of(&self, state: &State, len: u64) -> u64 {
        self.shared.bound.record(self.storage(), len, state.head.object_type.is_metadata())
    }

    /// Counts the space of the indirect blocks above block `blkid`.
    pub(super) fn count_path(&self, state: &mut State, blkid: u64) {
        let levels = state.disk.as_ref().map_or(1, |disk| disk.levels);
        let reach = Reach::of(&state.head, levels, blkid);
        let bytes = self.shared.bound.path(self.storage(), &mut state.open.nodes, &reach, blkid);
        self.shared.budget.add_space(bytes);
    }

    /// Counts the space in the MOS for freeing the blocks on disk among `start..end`.
    fn count_killed(&self, state: &State, start: u64, end: u64) {
        let killed = self.blocks_on_disk(state, start, end);
        let budget = &self.shared.budget;
        budget.add_space(self.shared.bound.killed(killed));
        if budget.has_table() && !state.head.object_type.is_metadata() {
            budget.add_entries(killed);
        }
    }

    /// How many of the blocks `start..end` are on disk, at most.
    fn blocks_on_disk(&self, state: &State, start: u64, end: u64) -> u64 {
        let Some(disk) = &state.disk else { return 0 };
        // A sparse file has far more block numbers than blocks.
        let most = disk.used_bytes() / self.storage().vdevs().min_alloc();
        end.min(disk.max_blkid + 1).saturating_sub(start).min(most)
    }

    /// Upper bound of the blocks on disk that freeing `start..end` frees.
    #[must_use]
    pub fn blocks_to_free(&self, start: u64, end: u64) -> u64 {
        self.blocks_on_disk(&self.lock(), start, end)
    }

    pub(super) fn charge(&self, state: &mut State, more: u64, less: u64) {
        state.open.cost = state.open.cost + more - less;
        self.shared.budget.add(more);
        self.shared.budget.sub(less);
    }

    /// Changes block `blkid` in place.
    ///
    /// # Errors
    /// If its present content cannot be read.
    pub fn edit_block<R>(
        self: &Arc<Self>,
        tx: &Tx,
        blkid: u64,
        edit: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R> {
        {
            let mut state = self.lock();
            if let Some(draft) = state.open.blocks.get_mut(&blkid) {
                return Ok(edit(draft.edit()));
            }
        }
        // Only the open txg's version may change; the block is fetched without the lock. Callers that edit
        // one block from several threads hold a lock of their own (ZAP lock, range lock).
        let mut record = self.block(blkid)?;
        let result = edit(Arc::make_mut(&mut record));
        let mut state = self.lock();
        self.insert(&mut state, tx, blkid, record);
        Ok(result)
    }

    /// Changes the block size of an object with at most one block, whose content is kept (and cut or filled
    /// with zeros).
    ///
    /// # Errors
    /// If block 0 cannot be read.
    ///
    /// # Panics
    /// If the object has more than one block, or `size` is not a whole number of sectors.
    pub fn set_block_size(self: &Arc<Self>, tx: &Tx, size: u64) -> Result<()> {
        assert!(
            size > 0 && size.is_multiple_of(512) && size <= format::MAX_BLOCK,
            "block sizes are whole sectors"
        );
        let empty = {
            let state = self.lock();
            assert_eq!(state.head.max_blkid, 0, "only an object of one block changes its block size");
            if u64::from(state.head.block_size) == size {
                return Ok(());
            }
            let freed = state.open.freed.contains(0);
            state.open.blocks.is_empty()
                && state.open.cloned.is_empty()
                && (freed || state.syncing.as_ref().is_none_or(|closed| closed.dirty.has_no_blocks()))
                && (freed
                    || state.disk.as_ref().is_none_or(|d| d.levels == 1 && d.block_ptrs[0] == BlockPtr::HOLE))
        };
        let record = if empty { None } else { Some(self.block(0)?) };
        let mut state = self.lock();
        state.head.block_size = size as u32;
        if let Some(mut record) = record {
            Arc::make_mut(&mut record).resize(size as usize, 0);
            self.insert(&mut state, tx, 0, record);
        } else {
            self.list(&mut state, tx);
        }
        Ok(())
    }

    /// Frees the whole blocks `start..end`; `u64::MAX` as `end` truncates, and lowers `max_blkid`.
    pub fn free_blocks(self: &Arc<Self>, tx: &Tx, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let mut state = self.lock();
        self.forget_records(&mut state, start, end);
        self.forget_cloned(&mut state, start, end);
        state.open.freed.insert(start, end);
        // Only the blocks above both ends of the range are written, the others are freed.
        let max_blkid = state.head.max_blkid;
        for edge in [start, end - 1] {
            if edge <= max_blkid {
                self.count_path(&mut state, edge);
            }
        }
        self.count_killed(&state, start, end);
        if end == u64::MAX {
            state.head.max_blkid = state.head.max_blkid.min(start.saturating_sub(1));
        }
        self.list(&mut state, tx);
    }

    /// Drops the records of the open txg in `start..end`.
    pub(super) fn forget_records(&self, state: &mut State, start: u64, end: u64) {
        let doomed: Vec<u64> = state.open.blocks.range(start..end).map(|(&blkid, _)| blkid).collect();
        for blkid in doomed {
            if let Some(draft) = state.open.blocks.remove(&blkid) {
                let len = draft.record().len() as u64;
                self.charge(state, 0, len + RECORD_COST);
                self.shared.budget.sub_space(self.bound_of(state, len));
            }
        }
    }

    pub(crate) fn mark_gone(self: &Arc<Self>, tx: &Tx) {
        let mut state = self.lock();
        assert!(!state.gone, "an object is freed once");
        state.gone = true;
        let cost = state.open.cost;
        state.open.blocks.clear();
        state.open.cloned.clear();
        state.open.cost = 0;
        self.shared.budget.sub(cost);
        self.count_killed(&state, 0, u64::MAX);
        state.open.listed = false;
        self.list(&mut state, tx);
    }

    /// Puts the object on the objset's dirty list once per txg.
    pub(super) fn list(self: &Arc<Self>, state: &mut State, _tx: &Tx) {
        self.shared.note_change();
        if !state.open.listed {
            state.open.listed = true;
            state.open.cost += OBJECT_COST;
            self.shared.budget.add(OBJECT_COST);
            self.shared.list_dirty(self.clone());
        }
    }

    /// Marks its dnode dirty without a change.
    pub fn touch(self: &Arc<Self>, tx: &Tx) {
        let mut state = self.lock();
        self.list(&mut state, tx);
    }

    /// Records of the open txg that are worth encoding ahead, `left` bytes of them; the last block may still grow.
    pub(crate) fn settled_records(&self, left: &mut u64) -> Vec<Draft> {
        let state = self.lock();
        let is_moved = |draft: &Draft| draft.as_moved().is_some();
        if state.gone
            || state.head.block_size < AHEAD_BLOCK_MIN
            || state.open.blocks.values().next().is_some_and(is_moved)
        {
            return Vec::new();
        }
        let mut fits = |draft: &Draft| {
            let rest = left.checked_sub(draft.record().len() as u64);
            *left = rest.unwrap_or(0);
            rest.is_some()
        };
        let before_last = state.open.blocks.range(..state.head.max_blkid);
        before_last.take_while(|(_, draft)| fits(draft)).map(|(_, draft)| draft.share()).collect()
    }

    /// The block with byte `offset`, if it is dirty in the open txg and has one copy: its draft and its recipe.
    #[must_use]
    pub fn dirty_leaf(&self, _tx: &Tx, offset: u64) -> Option<(Draft, Recipe)> {
        let policy = self.shared.io.policy()?;
        let min_alloc = self.storage().vdevs().min_alloc();
        let state = self.lock();
        let head = &state.head;
        let draft = state.open.blocks.get(&(offset / u64::from(head.block_size)))?;
        let plan = policy.plan(head.object_type, head.compress, head.checksum, 0, min_alloc);
        (!state.gone && plan.copies == 1).then(|| (draft.share(), plan.recipe))
    }
}

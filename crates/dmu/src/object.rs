//! One object in memory: its state on disk, in the syncing txg and in the open txg.
//!
//! A record dirtied in the open txg while its previous version syncs is a new record; readers see the newest.
//! The state lock is held for pointers, never across disk I/O.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use format::blkptr::{BlockPtr, SIZE as PTR};
use format::dnode::{self, Dnode};
use format::zap::micro::Index;
use format::{ByteOrder, ObjectId, ObjectType};
use storage::{Recipe, Record, Storage};

use crate::budget::{OBJECT_COST, RECORD_COST};
use crate::objset::Shared;
use crate::{Error, Policy, Ranges, Result, Tx};

/// Smaller blocks, in bytes, are not encoded ahead: they tend to be changed again.
const AHEAD_BLOCK_MIN: u32 = 32 << 10;

/// What an object is, apart from its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Type of the object and its blocks.
    pub object_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Type of the bonus, and of the spill block.
    pub bonus_type: ObjectType,
    /// The bonus bytes in use.
    pub bonus: Vec<u8>,
    /// 512-byte slots that the dnode takes.
    pub slots: u8,
    /// Pointers in the dnode.
    pub nblkptr: u8,
    /// Checksum kind by number; 0: the dataset's.
    pub checksum: u8,
    /// Compression by number; 0: the dataset's.
    pub compress: u8,
    /// Largest block id written and not truncated.
    pub max_blkid: u64,
}

impl Head {
    fn of(dnode: &Dnode) -> Head {
        Head {
            object_type: dnode.object_type,
            block_size: dnode.block_size,
            indirect_shift: dnode.indirect_shift,
            bonus_type: dnode.bonus_type,
            bonus: dnode.bonus.clone(),
            slots: dnode.slots,
            nblkptr: dnode.block_ptrs.len() as u8,
            checksum: dnode.checksum,
            compress: dnode.compress,
            max_blkid: dnode.max_blkid,
        }
    }

    /// The dnode of an object that has no blocks yet.
    pub(crate) fn to_dnode(&self) -> Dnode {
        Dnode {
            object_type: self.object_type,
            indirect_shift: self.indirect_shift,
            levels: 1,
            bonus_type: self.bonus_type,
            checksum: self.checksum,
            compress: self.compress,
            flags: 0,
            block_size: self.block_size,
            slots: self.slots,
            max_blkid: 0,
            used: 0,
            block_ptrs: vec![BlockPtr::HOLE; usize::from(self.nblkptr)],
            bonus: self.bonus.clone(),
            spill: None,
        }
    }
}

/// What changes about the spill block.
#[derive(Clone, Debug, Default)]
pub(crate) enum Spill {
    /// As on disk.
    #[default]
    Kept,
    /// Removed.
    Gone,
    /// New content.
    Set(Record),
}

/// Changes of one txg.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) blocks: BTreeMap<u64, Record>,
    pub(crate) freed: Ranges,
    pub(crate) spill: Spill,
    /// The object is in the objset's dirty list.
    listed: bool,
    cost: u64,
}

/// The changes of a closed txg with the head as it was then.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) head: Head,
    /// The object was freed.
    pub(crate) gone: bool,
    pub(crate) dirty: Dirty,
}

#[derive(Debug)]
pub(crate) struct State {
    /// As last synced; `None` for an object not yet on disk.
    pub(crate) disk: Option<Dnode>,
    head: Head,
    gone: bool,
    open: Dirty,
    pub(crate) syncing: Option<Arc<Closed>>,
}

/// A handle on an object. Cloned freely within an `Arc`.
pub struct Object {
    id: ObjectId,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// Serialises operations that touch several blocks of a ZAP, and keeps the order of a micro ZAP entries.
    pub(crate) zap: RwLock<Option<Index>>,
}

/// Where the newest version of a block is.
enum Place {
    Memory(Record),
    Zeros,
    Disk(Box<Dnode>),
}

impl Object {
    pub(crate) fn from_disk(id: ObjectId, shared: Arc<Shared>, dnode: Dnode) -> Object {
        let head = Head::of(&dnode);
        Object::with(id, shared, Some(dnode), head)
    }

    pub(crate) fn new(id: ObjectId, shared: Arc<Shared>, head: Head) -> Object {
        Object::with(id, shared, None, head)
    }

    fn with(id: ObjectId, shared: Arc<Shared>, disk: Option<Dnode>, head: Head) -> Object {
        let state = State { disk, head, gone: false, open: Dirty::default(), syncing: None };
        Object { id, shared, state: Mutex::new(state), zap: RwLock::new(None) }
    }

    /// Number within the objset.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding an object's state")
    }

    /// Type, block size, bonus and so on, as of the open txg.
    #[must_use]
    pub fn head(&self) -> Head {
        self.lock().head.clone()
    }

    /// Bytes of a data block.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        self.lock().head.block_size.into()
    }

    /// Type of the object.
    #[must_use]
    pub fn object_type(&self) -> ObjectType {
        self.lock().head.object_type
    }

    /// Largest block id written and not truncated.
    #[must_use]
    pub fn max_blkid(&self) -> u64 {
        self.lock().head.max_blkid
    }

    /// Bytes of space taken on disk by all blocks, as of the last sync.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.lock().disk.as_ref().map_or(0, Dnode::used_bytes)
    }

    /// The dnode as last synced.
    #[must_use]
    pub fn synced(&self) -> Option<Dnode> {
        self.lock().disk.clone()
    }

    /// Whether changes are not on disk yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        let state = self.lock();
        state.open.listed || state.syncing.is_some()
    }

    /// The bonus bytes.
    #[must_use]
    pub fn bonus(&self) -> Vec<u8> {
        self.lock().head.bonus.clone()
    }

    /// Calls `read` with the bonus type and bytes, without a copy.
    pub fn with_bonus<R>(&self, read: impl FnOnce(ObjectType, &[u8]) -> R) -> R {
        let state = self.lock();
        read(state.head.bonus_type, &state.head.bonus)
    }

    /// Replaces the bonus.
    ///
    /// # Panics
    /// If the bonus does not fit beside the pointers.
    pub fn set_bonus(self: &Arc<Self>, tx: &Tx, bonus: Vec<u8>) {
        let mut state = self.lock();
        let room = dnode::bonus_capacity(
            state.head.slots.into(),
            state.head.nblkptr.into(),
            self.has_spill_locked(&state),
        );
        assert!(bonus.len() <= room, "the bonus fits in the dnode");
        state.head.bonus = bonus;
        self.list(&mut state, tx);
    }

    /// Changes the bonus in place, keeping its length.
    pub fn edit_bonus<R>(self: &Arc<Self>, tx: &Tx, edit: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut state = self.lock();
        let result = edit(&mut state.head.bonus);
        self.list(&mut state, tx);
        result
    }

    /// Takes over bonus, compression and checksum of `new`; type, block size and shape of the dnode must be the same.
    ///
    /// # Panics
    /// If the bonus does not fit beside the pointers.
    pub fn redefine(self: &Arc<Self>, tx: &Tx, new: crate::NewObject) {
        {
            let mut state = self.lock();
            assert_eq!(state.head.object_type, new.object_type, "the blocks stay what they are");
            state.head.compress = new.compress;
            state.head.checksum = new.checksum;
        }
        self.set_bonus(tx, new.bonus);
    }

    /// Changes the object's type (zapified DSL objects only: blocks written from now on carry it).
    pub fn set_type(self: &Arc<Self>, tx: &Tx, object_type: ObjectType) {
        let mut state = self.lock();
        state.head.object_type = object_type;
        self.list(&mut state, tx);
    }

    fn has_spill_locked(&self, state: &State) -> bool {
        match &state.open.spill {
            Spill::Gone => return false,
            Spill::Set(_) => return true,
            Spill::Kept => {}
        }
        match state.syncing.as_ref().map(|closed| &closed.dirty.spill) {
            Some(Spill::Gone) => false,
            Some(Spill::Set(_)) => true,
            _ => state.disk.as_ref().is_some_and(|d| d.spill.is_some()),
        }
    }

    /// The spill block, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn spill(&self) -> Result<Option<Record>> {
        let ptr = {
            let state = self.lock();
            match &state.open.spill {
                Spill::Gone => return Ok(None),
                Spill::Set(record) => return Ok(Some(record.clone())),
                Spill::Kept => {}
            }
            match state.syncing.as_ref().map(|closed| &closed.dirty.spill) {
                Some(Spill::Gone) => return Ok(None),
                Some(Spill::Set(record)) => return Ok(Some(record.clone())),
                _ => {}
            }
            match state.disk.as_ref().and_then(|dnode| dnode.spill) {
                Some(ptr) => ptr,
                None => return Ok(None),
            }
        };
        self.read_ptr(&ptr, 0, u64::MAX).map(Some)
    }

    /// Replaces or removes the spill block. The bonus must already leave room for its pointer.
    pub fn set_spill(self: &Arc<Self>, tx: &Tx, content: Option<Vec<u8>>) {
        let mut state = self.lock();
        let had = self.has_spill_locked(&state);
        state.open.spill = match content {
            Some(bytes) => Spill::Set(Arc::new(bytes)),
            None if had => Spill::Gone,
            None => Spill::Kept,
        };
        self.list(&mut state, tx);
    }

    fn place(&self, blkid: u64) -> Place {
        let state = self.lock();
        if let Some(record) = state.open.blocks.get(&blkid) {
            return Place::Memory(record.clone());
        }
        if state.open.freed.contains(blkid) {
            return Place::Zeros;
        }
        if let Some(closed) = &state.syncing {
            if let Some(record) = closed.dirty.blocks.get(&blkid) {
                return Place::Memory(record.clone());
            }
            if closed.dirty.freed.contains(blkid) {
                return Place::Zeros;
            }
        }
        match &state.disk {
            Some(dnode) if blkid <= dnode.max_blkid => Place::Disk(Box::new(dnode.clone())),
            _ => Place::Zeros,
        }
    }

    /// As [`Object::block`] for a reader that passes through the object once: see [`Storage::read_once`].
    ///
    /// # Errors
    /// As [`Object::block`].
    pub fn block_once(&self, blkid: u64) -> Result<Record> {
        self.block_by(blkid, Storage::read_once)
    }

    fn read_ptr(&self, ptr: &BlockPtr, level: u8, blkid: u64) -> Result<Record> {
        self.storage().read(ptr).map_err(|source| Error::Block { object: self.id, level, blkid, source })
    }

    /// The pointer to block `blkid` as last synced.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn synced_ptr(&self, blkid: u64) -> Result<BlockPtr> {
        match self.synced() {
            Some(dnode) if blkid <= dnode.max_blkid => self.ptr_in(&dnode, blkid),
            _ => Ok(BlockPtr::HOLE),
        }
    }

    fn ptr_in(&self, dnode: &Dnode, blkid: u64) -> Result<BlockPtr> {
        let shift = dnode.fanout_shift();
        let index = |level: u8| blkid.checked_shr(u32::from(level) * shift).unwrap_or(0);
        let root = usize::try_from(index(dnode.levels - 1)).ok();
        let Some(mut ptr) = root.and_then(|i| dnode.block_ptrs.get(i).copied()) else {
            return Ok(BlockPtr::HOLE);
        };
        for level in (1..dnode.levels).rev() {
            if ptr.is_hole() {
                return Ok(BlockPtr::HOLE);
            }
            let indirect = self.read_ptr(&ptr, level, index(level))?;
            let slot = (index(level - 1) & ((1 << shift) - 1)) as usize * PTR;
            let raw = indirect
                .get(slot..slot + PTR)
                .ok_or(format::Corrupt::new("indirect block size", indirect.len() as u64))
                .map_err(Error::corrupt(self.id))?;
            ptr = BlockPtr::decode(raw, ByteOrder::Little).map_err(Error::corrupt(self.id))?;
        }
        Ok(ptr)
    }

    /// Block `blkid`, `block_size` bytes; zeros where nothing was written.
    ///
    /// # Errors
    /// If the block or one above it cannot be read.
    pub fn block(&self, blkid: u64) -> Result<Record> {
        self.block_by(blkid, Storage::read)
    }

    fn block_by(
        &self,
        blkid: u64,
        read: fn(&Storage, &BlockPtr) -> std::result::Result<Record, storage::ReadError>,
    ) -> Result<Record> {
        let mut stale = None;
        loop {
            let (ptr, error) = match self.place(blkid) {
                Place::Memory(record) => return Ok(record),
                Place::Zeros => return Ok(Arc::new(vec![0; self.block_size() as usize])),
                Place::Disk(dnode) => match self.ptr_in(&dnode, blkid) {
                    Ok(BlockPtr::Hole(_)) => return Ok(Arc::new(vec![0; self.block_size() as usize])),
                    Ok(ptr) => match read(self.storage(), &ptr) {
                        Ok(record) => return self.sized(record, dnode.block_size),
                        Err(source) => (Some(ptr), Error::Block { object: self.id, level: 0, blkid, source }),
                    },
                    Err(error) => (None, error),
                },
            };
            // The block may have been rewritten and its old space reused since the pointer was looked up.
            if stale == Some(ptr) {
                return Err(error);
            }
            stale = Some(ptr);
        }
    }

    fn sized(&self, record: Record, expected: u32) -> Result<Record> {
        if record.len() == expected as usize {
            return Ok(record);
        }
        let source = format::Corrupt::new("block size", record.len() as u64);
        Err(Error::Corrupt { object: self.id, source })
    }

    /// Reads `buf.len()` bytes at byte `offset`, crossing blocks; zeros where nothing was written.
    ///
    /// # Errors
    /// If a block cannot be read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_by(offset, buf, Object::block)
    }

    /// As [`Object::read`] for data that is not to be kept in the cache: see [`Object::block_once`].
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn read_once(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_by(offset, buf, Object::block_once)
    }

    fn read_by(
        &self,
        offset: u64,
        buf: &mut [u8],
        block_at: impl Fn(&Object, u64) -> Result<Record>,
    ) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let size = self.block_size();
            let at = offset + done as u64;
            let (blkid, within) = (at / size, (at % size) as usize);
            let take = (buf.len() - done).min(size as usize - within);
            let block = block_at(self, blkid)?;
            let out = &mut buf[done..done + take];
            let have = block.len().saturating_sub(within).min(take);
            out[..have].copy_from_slice(&block[within..within + have]);
            out[have..].fill(0);
            done += take;
        }
        Ok(())
    }

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

    fn insert(self: &Arc<Self>, state: &mut State, tx: &Tx, blkid: u64, record: Record) {
        assert!(blkid == 0 || state.head.block_size.is_power_of_two(), "many blocks need a power of two");
        let cost = record.len() as u64 + RECORD_COST;
        let freed = state.open.blocks.insert(blkid, record).map_or(0, |old| old.len() as u64 + RECORD_COST);
        state.head.max_blkid = state.head.max_blkid.max(blkid);
        self.charge(state, cost, freed);
        self.list(state, tx);
    }

    fn charge(&self, state: &mut State, more: u64, less: u64) {
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
            if let Some(record) = state.open.blocks.get_mut(&blkid) {
                return Ok(edit(Arc::make_mut(record)));
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
                && (freed || state.syncing.as_ref().is_none_or(|closed| closed.dirty.blocks.is_empty()))
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
        let mut state = self.lock();
        let doomed: Vec<u64> = state.open.blocks.range(start..end).map(|(&blkid, _)| blkid).collect();
        for blkid in doomed {
            if let Some(record) = state.open.blocks.remove(&blkid) {
                self.charge(&mut state, 0, record.len() as u64 + RECORD_COST);
            }
        }
        state.open.freed.insert(start, end);
        if end == u64::MAX {
            state.head.max_blkid = state.head.max_blkid.min(start.saturating_sub(1));
        }
        self.list(&mut state, tx);
    }

    /// First block ≥ `from` that is not a hole, up to `max_blkid`.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn next_block(&self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        loop {
            let (dnode, dirty) = {
                let state = self.lock();
                let mut next = state.open.blocks.range(at..).next().map(|(&blkid, _)| blkid);
                if let Some(closed) = &state.syncing {
                    let visible = closed
                        .dirty
                        .blocks
                        .range(at..)
                        .map(|(&blkid, _)| blkid)
                        .find(|&blkid| !state.open.freed.contains(blkid));
                    next = [next, visible].into_iter().flatten().min();
                }
                (state.disk.clone(), next)
            };
            let on_disk = match &dnode {
                Some(dnode) => self.next_in(dnode, at)?,
                None => None,
            };
            let Some(found) = [on_disk, dirty].into_iter().flatten().min() else { return Ok(None) };
            if dirty == Some(found) {
                return Ok(Some(found));
            }
            let outside = {
                let state = self.lock();
                let open = state.open.freed.first_outside(found);
                state.syncing.as_ref().map_or(open, |c| open.max(c.dirty.freed.first_outside(found)))
            };
            if outside == found {
                return Ok(Some(found));
            }
            at = outside;
        }
    }

    /// First allocated block ≥ `from` in the tree of `dnode`.
    pub(crate) fn next_in(&self, dnode: &Dnode, from: u64) -> Result<Option<u64>> {
        let shift = dnode.fanout_shift() * u32::from(dnode.levels - 1);
        let first = from.checked_shr(shift).unwrap_or(0);
        for (i, ptr) in dnode.block_ptrs.iter().enumerate().skip(first as usize) {
            let base = (i as u64) << shift;
            if let Some(found) = self.next_below(dnode, ptr, dnode.levels - 1, base, from.max(base))? {
                return Ok((found <= dnode.max_blkid).then_some(found));
            }
        }
        Ok(None)
    }

    fn next_below(
        &self,
        dnode: &Dnode,
        ptr: &BlockPtr,
        level: u8,
        base: u64,
        from: u64,
    ) -> Result<Option<u64>> {
        if ptr.is_hole() {
            return Ok(None);
        }
        if level == 0 {
            return Ok(Some(base));
        }
        let shift = dnode.fanout_shift() * u32::from(level - 1);
        let indirect = self.read_ptr(ptr, level, base >> (shift + dnode.fanout_shift()))?;
        let first = ((from - base) >> shift) as usize;
        for (i, raw) in indirect.chunks_exact(PTR).enumerate().skip(first) {
            let child = BlockPtr::decode(raw, ByteOrder::Little).map_err(Error::corrupt(self.id))?;
            let child_base = base + ((i as u64) << shift);
            if let Some(found) =
                self.next_below(dnode, &child, level - 1, child_base, from.max(child_base))?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Records of the open txg that are worth encoding ahead, `left` bytes of them; the last block may still grow.
    pub(crate) fn settled_records(&self, left: &mut u64) -> Vec<Record> {
        let state = self.lock();
        if state.gone || state.head.block_size < AHEAD_BLOCK_MIN {
            return Vec::new();
        }
        let mut fits = |record: &Record| {
            let rest = left.checked_sub(record.len() as u64);
            *left = rest.unwrap_or(0);
            rest.is_some()
        };
        let before_last = state.open.blocks.range(..state.head.max_blkid);
        before_last.map(|(_, record)| record.clone()).take_while(|record| fits(record)).collect()
    }

    /// The block that holds byte `offset`, if the open txg changed it and it is written once: its record and how that is
    /// encoded. `policy`: see [`SyncCtx`](crate::SyncCtx).
    #[must_use]
    pub fn dirty_leaf(&self, _tx: &Tx, offset: u64, policy: &Policy) -> Option<(Record, Recipe)> {
        let min_alloc = self.shared.storage.vdevs().min_alloc();
        let state = self.lock();
        let head = &state.head;
        let record = state.open.blocks.get(&(offset / u64::from(head.block_size)))?;
        let plan = policy.plan(head.object_type, head.compress, head.checksum, 0, min_alloc);
        (!state.gone && plan.copies == 1).then(|| (record.clone(), plan.recipe))
    }

    pub(crate) fn mark_gone(self: &Arc<Self>, tx: &Tx) {
        let mut state = self.lock();
        assert!(!state.gone, "an object is freed once");
        state.gone = true;
        let cost = state.open.cost;
        state.open.blocks.clear();
        state.open.cost = 0;
        self.shared.budget.sub(cost);
        state.open.listed = false;
        self.list(&mut state, tx);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.lock().gone
    }

    /// Puts the object on the objset's dirty list once per txg.
    fn list(self: &Arc<Self>, state: &mut State, _tx: &Tx) {
        self.shared.note_change();
        if !state.open.listed {
            state.open.listed = true;
            state.open.cost += OBJECT_COST;
            self.shared.budget.add(OBJECT_COST);
            self.shared.list_dirty(self.clone());
        }
    }

    pub(crate) fn touch(self: &Arc<Self>, tx: &Tx) {
        let mut state = self.lock();
        self.list(&mut state, tx);
    }

    /// Closes the open txg: its changes become the syncing ones.
    pub(crate) fn close(&self) -> Arc<Closed> {
        let mut state = self.lock();
        assert!(state.syncing.is_none(), "one txg syncs at a time");
        let dirty = std::mem::take(&mut state.open);
        let closed = Arc::new(Closed { head: state.head.clone(), gone: state.gone, dirty });
        state.syncing = Some(closed.clone());
        closed
    }

    /// The syncing changes are on disk as `dnode`.
    pub(crate) fn synced_as(&self, dnode: Option<Dnode>) {
        let mut state = self.lock();
        let closed = state.syncing.take().expect("only a syncing object becomes synced");
        state.disk = dnode;
        self.shared.budget.sub(closed.dirty.cost);
    }

    /// The meta-dnode was written as `dnode`.
    pub(crate) fn replace_disk(&self, dnode: Dnode) {
        let mut state = self.lock();
        state.head = Head::of(&dnode);
        state.disk = Some(dnode);
    }
}

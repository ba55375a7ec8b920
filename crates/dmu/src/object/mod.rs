//! One object in memory: its state on disk, in the syncing txg and in the open txg.
//!
//! A record dirtied in the open txg while its previous version syncs is a new record; readers see the newest.
//! The state lock is held for pointers, never across disk I/O.

mod cloned;
mod dirty;
mod read;
mod shared;

use std::sync::Arc;

use format::dnode::{self, Dnode};
use format::zap::micro::Index;
use format::{ObjectId, ObjectType};
use storage::rank::{MutexHeld, Rank, RankedMutex, RankedRwLock};
use storage::{Draft, Record, Storage};

pub(crate) use self::cloned::reborn;
pub(crate) use self::dirty::{Closed, Spill};
pub use self::read::{AtHand, Trail};
pub(crate) use self::shared::{NUMBERS_MAX, Shared};

use self::dirty::Dirty;
use crate::io::Reading;
use crate::walk::Spot;
use crate::{Head, NewObject, Result, Tx};

#[derive(Debug)]
pub(crate) struct State {
    /// As last synced; `None` for an object not yet on disk.
    pub(crate) disk: Option<Arc<Dnode>>,
    head: Head,
    gone: bool,
    open: Dirty,
    pub(crate) syncing: Option<Arc<Closed>>,
}

/// A handle on an object. Cloned freely within an `Arc`.
pub struct Object {
    id: ObjectId,
    shared: Arc<Shared>,
    state: RankedMutex<State>,
    /// Serialises operations that touch several blocks of a ZAP, and keeps the order of a micro ZAP entries.
    pub(crate) zap: RankedRwLock<Option<Index>>,
}

impl Object {
    pub(crate) fn from_disk(id: ObjectId, shared: Arc<Shared>, dnode: Dnode) -> Object {
        let head = Head::of(&dnode);
        Object::with(id, shared, Some(Arc::new(dnode)), head)
    }

    pub(crate) fn new(id: ObjectId, shared: Arc<Shared>, head: Head) -> Object {
        Object::with(id, shared, None, head)
    }

    fn with(id: ObjectId, shared: Arc<Shared>, disk: Option<Arc<Dnode>>, head: Head) -> Object {
        let state = State { disk, head, gone: false, open: Dirty::default(), syncing: None };
        Object {
            id,
            shared,
            state: RankedMutex::new(Rank::Object, state),
            zap: RankedRwLock::new(Rank::Zap, None),
        }
    }

    /// Number within the objset.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.shared.io.storage()
    }

    pub(crate) fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
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

    /// Upper bound of its length in bytes. All bytes after it read as zeros.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let head = &self.lock().head;
        head.max_blkid.saturating_add(1).saturating_mul(head.block_size.into())
    }

    /// Bytes of space taken on disk by all blocks, as of the last sync.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.lock().disk.as_ref().map_or(0, |dnode| dnode.used_bytes())
    }

    /// The dnode as last synced.
    #[must_use]
    pub fn synced(&self) -> Option<Arc<Dnode>> {
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

    /// Takes over the bonus and its type, the compression and the checksum of `new`. The object keeps its block size
    /// and the shape of its dnode, so `new` must have the same.
    ///
    /// # Panics
    /// If `new` has another object type, or its bonus does not fit beside the pointers.
    pub fn redefine(self: &Arc<Self>, tx: &Tx, new: NewObject) {
        {
            let mut state = self.lock();
            assert_eq!(state.head.object_type, new.object_type, "the blocks stay what they are");
            state.head.bonus_type = new.bonus_type;
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
                Spill::Set(draft) => return Ok(Some(draft.record().clone())),
                Spill::Kept => {}
            }
            match state.syncing.as_ref().map(|closed| &closed.dirty.spill) {
                Some(Spill::Gone) => return Ok(None),
                Some(Spill::Set(draft)) => return Ok(Some(draft.record().clone())),
                _ => {}
            }
            match state.disk.as_ref().and_then(|dnode| dnode.spill) {
                Some(ptr) => ptr,
                None => return Ok(None),
            }
        };
        self.read_ptr(&ptr, Spot { level: 0, index: u64::MAX }, Reading::Kept).map(Some)
    }

    /// Replaces or removes the spill block. The bonus must already leave room for its pointer.
    pub fn set_spill(self: &Arc<Self>, tx: &Tx, content: Option<Vec<u8>>) {
        self.set_spill_draft(tx, content.map(|bytes| Draft::from(Arc::new(bytes))));
    }

    /// Replaces the spill block by one from a raw stream, which is written unchanged.
    pub fn set_moved_spill(self: &Arc<Self>, tx: &Tx, draft: Draft) {
        self.set_spill_draft(tx, Some(draft));
    }

    fn set_spill_draft(self: &Arc<Self>, tx: &Tx, content: Option<Draft>) {
        let mut state = self.lock();
        let had = self.has_spill_locked(&state);
        let bound = |spill: &Spill| match spill {
            Spill::Set(draft) => self.shared.bound.record(self.storage(), draft.record().len() as u64, true),
            Spill::Kept | Spill::Gone => 0,
        };
        self.shared.budget.sub_space(bound(&state.open.spill));
        state.open.spill = match content {
            Some(draft) => Spill::Set(draft),
            None if had => Spill::Gone,
            None => Spill::Kept,
        };
        self.shared.budget.add_space(bound(&state.open.spill));
        self.list(&mut state, tx);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.lock().gone
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
        state.disk = dnode.map(Arc::new);
        self.shared.budget.sub(closed.dirty.cost);
    }

    /// The meta-dnode was written as `dnode`.
    pub(crate) fn replace_disk(&self, dnode: Dnode) {
        let mut state = self.lock();
        state.head = Head::of(&dnode);
        state.disk = Some(Arc::new(dnode));
    }
}

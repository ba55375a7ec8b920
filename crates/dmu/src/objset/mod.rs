//! Objsets: the numbered objects of a dataset or of the MOS.

mod arriving;
mod numbers;
mod slots;

use std::collections::HashMap;
use std::sync::Arc;

use format::blkptr::{Block, BlockPtr};
use format::dnode;
use format::objset::{Objset as Phys, ObjsetType, ZilHeader};
use format::{ByteOrder, ObjectId};
use storage::rank::{MutexHeld, Rank, RankedMutex};
use storage::{Buffers, Vdevs, Workers};

use self::arriving::Arriving;
use self::numbers::Numbers;
pub(crate) use self::slots::slots_at;
use crate::bound::Bound;
use crate::budget::DirtyBudget;
use crate::io::{BlockIo, Reading};
use crate::object::{Closed, NUMBERS_MAX, Object, Shared};
use crate::{Error, NewObject, Policy, Result, Tx};

/// Clean objects kept in memory without a user, at most.
const IDLE_OBJECTS_MAX: usize = 16 << 10;
/// Changed objects looked at for records to encode ahead.
const AHEAD_OBJECTS_MAX: usize = 256;

/// Space accounting ZAPs, which live in the objset block itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl Special {
    /// All of them, in on-disk order.
    pub const ALL: [Special; 3] = [Special::User, Special::Group, Special::Project];

    /// The number by which messages name it (−1, −2, −3).
    #[must_use]
    pub const fn id(self) -> ObjectId {
        ObjectId(u64::MAX - self as u64)
    }
}

struct Inner {
    objects: HashMap<ObjectId, Arc<Object>>,
    numbers: Numbers,
    /// Counts syncs: a dnode read before one may be stale after it.
    syncs: u64,
    /// With this many objects in memory, idle ones are evicted.
    crowded: usize,
}

impl Inner {
    /// Evicts idle clean objects when there are many. Objects in a running sync are in use.
    fn thin_out(&mut self) {
        if self.objects.len() <= self.crowded {
            return;
        }
        self.objects
            .retain(|id, object| id.0 >= NUMBERS_MAX || Arc::strong_count(object) > 1 || object.is_dirty());
        self.crowded = self.objects.len() + IDLE_OBJECTS_MAX;
    }
}

/// The root of an objset as last synced.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) phys: Phys,
    pub(crate) ptr: BlockPtr,
    pub(crate) size: usize,
}

impl Root {
    /// Blocks of the accounting ZAPs, holes included.
    pub(crate) fn account_blocks(&self) -> u64 {
        let zaps = [&self.phys.user_used, &self.phys.group_used, &self.phys.project_used];
        zaps.into_iter().flatten().map(|dnode| dnode.max_blkid + 1).sum()
    }
}

/// An open objset.
pub struct Objset {
    pub(crate) shared: Arc<Shared>,
    pub(crate) meta: Arc<Object>,
    inner: RankedMutex<Inner>,
    pub(crate) root: RankedMutex<Root>,
    /// State of a raw receive, while it runs.
    arriving: RankedMutex<Option<Arriving>>,
}

/// The dirty state of a closed txg, ready to be synced.
pub struct Frozen {
    pub(crate) objects: Vec<(Arc<Object>, Arc<Closed>)>,
}

impl Frozen {
    /// No changes: the sync writes the root block alone.
    #[must_use]
    pub const fn nothing() -> Frozen {
        Frozen { objects: Vec::new() }
    }

    /// The cloned blocks, one entry for each new pointer.
    pub fn cloned(&self) -> impl Iterator<Item = Block> + '_ {
        let objects = self.objects.iter().filter(|(_, closed)| !closed.gone);
        objects.flat_map(|(_, closed)| closed.dirty.cloned.values().filter_map(BlockPtr::block).copied())
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl Drop for Objset {
    /// A sync that fails leaves objects that it changed itself: without this, they and the list of them would stay in memory and
    /// keep the devices open.
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Objset {
    /// Opens the objset whose root block is `ptr`.
    ///
    /// # Errors
    /// If the root block cannot be read or is no objset.
    pub fn open(io: impl Into<BlockIo>, budget: Arc<DirtyBudget>, ptr: BlockPtr) -> Result<Objset> {
        let io = io.into();
        let record = io.reader(Reading::Kept).read(&ptr).map_err(Error::Root)?;
        let phys = Phys::decode(&record, ByteOrder::Little).map_err(|c| Error::Root(c.into()))?;
        Ok(Objset::with(io, budget, Root { phys, ptr, size: record.len() }))
    }

    /// A new objset without objects, which exists on disk from the first sync. `size`: bytes of its block.
    #[must_use]
    pub fn create(
        io: impl Into<BlockIo>,
        budget: Arc<DirtyBudget>,
        os_type: ObjsetType,
        flags: u64,
        size: usize,
    ) -> Objset {
        let levels = if os_type == ObjsetType::Meta { 1 } else { dnode::META_LEVELS };
        let mut phys = Phys::new(os_type, levels);
        phys.flags = flags;
        Objset::with(io.into(), budget, Root { phys, ptr: BlockPtr::HOLE, size })
    }

    fn with(io: BlockIo, budget: Arc<DirtyBudget>, root: Root) -> Objset {
        let meta_dnode = root.phys.meta_dnode.clone();
        let blocks = if root.ptr.is_hole() { 0 } else { meta_dnode.max_blkid + 1 };
        let bound = Bound::new(root.phys.os_type != ObjsetType::Meta, blocks);
        let shared = Arc::new(Shared::new(io, budget, bound));
        let numbers = Numbers::after(blocks);
        let meta = Arc::new(Object::from_disk(ObjectId(0), shared.clone(), meta_dnode));
        let mut objects = HashMap::new();
        let specials = [&root.phys.user_used, &root.phys.group_used, &root.phys.project_used];
        for (special, dnode) in Special::ALL.into_iter().zip(specials) {
            if let Some(dnode) = dnode {
                let object = Object::from_disk(special.id(), shared.clone(), dnode.clone());
                objects.insert(special.id(), Arc::new(object));
            }
        }
        shared.bound.set_account_blocks(root.account_blocks());
        Objset {
            shared,
            meta,
            inner: RankedMutex::new(
                Rank::Objects,
                Inner { objects, numbers, syncs: 0, crowded: IDLE_OBJECTS_MAX },
            ),
            root: RankedMutex::leaf(root),
            arriving: RankedMutex::default(),
        }
    }

    fn lock(&self) -> MutexHeld<'_, Inner> {
        self.inner.lock()
    }

    fn arriving(&self) -> MutexHeld<'_, Option<Arriving>> {
        self.arriving.lock()
    }

    /// Its block I/O.
    #[must_use]
    pub fn io(&self) -> &BlockIo {
        &self.shared.io
    }

    /// Threads that read ahead.
    #[must_use]
    pub fn readers(&self) -> &Workers {
        self.io().readers()
    }

    /// Bytes that the cache of the pool holds at most.
    #[must_use]
    pub fn cache_limit(&self) -> u64 {
        self.io().storage().cache().limit()
    }

    /// Memory for records.
    #[must_use]
    pub fn buffers(&self) -> &Buffers {
        self.io().storage().buffers()
    }

    /// The pool's devices, as they are now.
    #[must_use]
    pub fn vdevs(&self) -> &Vdevs {
        self.io().storage().vdevs()
    }

    /// Bytes of space that a block of `len` bytes takes at most.
    #[must_use]
    pub fn largest_asize_of(&self, len: u64) -> u64 {
        self.vdevs().largest_asize_of(len)
    }

    /// Bytes that datasets are charged for a block.
    #[must_use]
    pub fn dsize_of(&self, ptr: &BlockPtr) -> u64 {
        self.vdevs().dsize_of(ptr)
    }

    /// The type of the objset.
    #[must_use]
    pub fn os_type(&self) -> ObjsetType {
        self.root().phys.os_type
    }

    /// The root block as last synced: decoded, and the pointer to it.
    ///
    /// # Panics
    /// If another thread panicked while storing it.
    #[must_use]
    pub fn synced_root(&self) -> (Phys, BlockPtr) {
        let root = self.root();
        (root.phys.clone(), root.ptr)
    }

    pub(crate) fn root(&self) -> MutexHeld<'_, Root> {
        self.root.lock()
    }

    /// Sets how its blocks are written.
    pub fn set_policy(&self, policy: Policy) {
        self.shared.bound.set_policy(&policy);
        self.io().set_policy(policy);
    }

    /// The rules for writing its blocks; `None` if they were not set yet.
    #[must_use]
    pub fn policy(&self) -> Option<Policy> {
        self.io().policy()
    }

    /// Removes the intent log from the root. The next sync writes the change.
    pub fn clear_log(&self) {
        self.root().phys.zil_header = ZilHeader::default();
    }

    /// The header of the intent log, as of the last sync or as set since.
    #[must_use]
    pub fn zil_header(&self) -> ZilHeader {
        self.root().phys.zil_header
    }

    /// Sets the header of the intent log, to be written with the sync that is about to begin. Only the thread that
    /// syncs may.
    pub fn set_zil_header(&self, header: ZilHeader) {
        self.root().phys.zil_header = header;
    }

    /// Object `id`.
    ///
    /// # Errors
    /// [`Error::NoObject`], or the dnode's block cannot be read.
    pub fn object(&self, id: ObjectId) -> Result<Arc<Object>> {
        loop {
            let syncs = {
                let inner = self.lock();
                if let Some(object) = inner.objects.get(&id) {
                    return if object.is_gone() { Err(Error::NoObject(id)) } else { Ok(object.clone()) };
                }
                inner.syncs
            };
            let dnode = self.read_dnode(id)?.ok_or(Error::NoObject(id))?;
            let mut inner = self.lock();
            if inner.syncs == syncs && !inner.objects.contains_key(&id) {
                let object = Arc::new(Object::from_disk(id, self.shared.clone(), dnode));
                inner.objects.insert(id, object.clone());
                inner.thin_out();
                return Ok(object);
            }
        }
    }

    /// The space accounting ZAP, if it exists.
    #[must_use]
    pub fn special(&self, special: Special) -> Option<Arc<Object>> {
        self.lock().objects.get(&special.id()).cloned()
    }

    /// The space accounting ZAP, created if need be.
    pub(crate) fn special_or_new(&self, special: Special, new: NewObject) -> Arc<Object> {
        let fresh = || Arc::new(Object::new(special.id(), self.shared.clone(), new.head()));
        self.lock().objects.entry(special.id()).or_insert_with(fresh).clone()
    }

    /// Frees an object with all its blocks.
    pub fn free_object(&self, tx: &Tx, object: &Arc<Object>) {
        object.mark_gone(tx);
    }

    /// Whether anything is dirty in the open txg.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.shared.lock_dirty().objects.is_empty()
    }

    /// Drops the list of dirty objects, whose changes will never be synced. The objects and the list refer to each other and
    /// would keep the devices open.
    pub fn give_up(&self) {
        let dirty = std::mem::take(&mut *self.shared.lock_dirty());
        drop(dirty);
    }

    /// Number of changes since the objset was opened. It shows whether a failed job changed something.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared.changes()
    }

    /// Closes the open txg for this objset. No change may be in flight.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let dirty = std::mem::take(&mut *self.shared.lock_dirty());
        let close = |object: Arc<Object>| {
            let closed = object.close();
            (object, closed)
        };
        Frozen { objects: dirty.objects.into_values().map(close).collect() }
    }

    /// Takes the accounting ZAPs off the dirty list and freezes them, because the sync changes them last.
    pub(crate) fn freeze_specials(&self) -> Frozen {
        let mut dirty = self.shared.lock_dirty();
        let taken: Vec<_> = Special::ALL.iter().filter_map(|s| dirty.objects.remove(&s.id())).collect();
        drop(dirty);
        Frozen {
            objects: taken
                .into_iter()
                .map(|object| {
                    let c = object.close();
                    (object, c)
                })
                .collect(),
        }
    }

    /// Objects freed by a finished sync may be used again.
    pub(crate) fn settle(&self, gone: &[(ObjectId, u8)]) {
        let mut inner = self.lock();
        inner.syncs += 1;
        for &(id, slots) in gone {
            inner.objects.remove(&id);
            inner.numbers.reuse(id, slots);
        }
    }

    /// Drops clean objects that are not in use from memory when there are many.
    pub(crate) fn thin_out(&self) {
        self.lock().thin_out();
    }

    /// Lets the workers encode up to `left` bytes of the open txg's records ahead of their sync: whole blocks that are
    /// followed by others, so that the writer has probably finished them.
    pub fn encode_ahead(&self, left: &mut u64) {
        let (Some(policy), storage) = (self.policy(), self.io().storage()) else { return };
        let min_alloc = self.vdevs().min_alloc();
        let dirty: Vec<_> =
            self.shared.lock_dirty().objects.values().take(AHEAD_OBJECTS_MAX).cloned().collect();
        let wanted = dirty.iter().flat_map(|object| {
            let head = object.head();
            let plan = policy.plan(head.object_type, head.compress, head.checksum, 0, min_alloc);
            let drafts = object.settled_records(left);
            drafts.into_iter().map(move |draft| (draft, plan.recipe))
        });
        storage.encode_ahead(wanted);
    }
}

#[cfg(test)]
mod tests {
    use format::objset::SIZE_V3;
    use format::{ObjectType, Txg};
    use storage::{Options, Storage};

    use super::*;

    #[test]
    fn changes_that_are_never_synced_do_not_keep_the_devices_open() {
        let options = Options {
            cache_bytes: 0,
            free_bytes: 0,
            io_threads: 0,
            workers: 1,
            gzip_engine: None,
            slow_io: std::time::Duration::MAX,
            second: Default::default(),
        };
        let storage = Arc::new(Storage::new(Vdevs::new(Vec::new()), options));
        let objset = Objset::create(storage.clone(), Arc::default(), ObjsetType::Meta, 0, SIZE_V3);
        objset.create_object(&Tx::new(Txg(4)), NewObject::plain(ObjectType::OBJECT_DIRECTORY)).unwrap();
        drop(objset);
        assert_eq!(Arc::strong_count(&storage), 1);
    }
}

//! Objsets: the numbered objects of a dataset or of the MOS.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use format::blkptr::BlockPtr;
use format::dnode::{self, Dnode, SLOT, SLOTS_PER_BLOCK};
use format::objset::{Objset as Phys, ObjsetType, ZilHeader};
use format::{ByteOrder, ObjectId, ObjectType};
use storage::Storage;

use crate::bound::{Bound, Nodes};
use crate::budget::DirtyBudget;
use crate::object::{Closed, Head, Object, Trail};
use crate::sync::account_blocks;
use crate::{Error, Policy, Result, Tx};

/// Clean objects kept in memory without a user, at most.
const IDLE_OBJECTS_MAX: usize = 16 << 10;
/// Changed objects looked at for records to encode ahead.
const AHEAD_OBJECTS_MAX: usize = 256;
/// Dnode blocks looked at for free numbers before a never-used number is taken.
const SCAN_BLOCKS: u64 = 64;
/// Object numbers have 48 bits.
const NUMBERS_MAX: u64 = 1 << 48;

/// What all objects of an objset share.
pub(crate) struct Shared {
    pub(crate) storage: Arc<Storage>,
    pub(crate) budget: Arc<DirtyBudget>,
    pub(crate) bound: Bound,
    dirty: Mutex<DirtyList>,
    changes: AtomicU64,
}

/// The objects that the open txg changes.
#[derive(Default)]
struct DirtyList {
    objects: BTreeMap<ObjectId, Arc<Object>>,
    /// Blocks of the meta-dnode whose space is counted.
    nodes: Nodes,
}

impl Shared {
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn list_dirty(&self, object: Arc<Object>) {
        let mut dirty = self.lock_dirty();
        let (listed, id) = (dirty.objects.len() as u64, object.id());
        if dirty.objects.insert(id, object).is_none() && id.0 < NUMBERS_MAX {
            self.budget.add_space(self.bound.dnode(&self.storage, &mut dirty.nodes, id, listed));
        }
    }

    fn lock_dirty(&self) -> MutexGuard<'_, DirtyList> {
        self.dirty.lock().expect("no code panics while holding the dirty list")
    }
}

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

/// What a new object is to be.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// Type of the object and its blocks.
    pub object_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Type of the bonus.
    pub bonus_type: ObjectType,
    /// The bonus.
    pub bonus: Vec<u8>,
    /// log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Dnode size in 512-byte slots.
    pub slots: u8,
    /// Compression by number; 0: the dataset's.
    pub compress: u8,
    /// Checksum kind by number; 0: the dataset's.
    pub checksum: u8,
}

impl NewObject {
    /// An object of 512-byte blocks without a bonus, in a dnode of one slot.
    #[must_use]
    pub fn plain(object_type: ObjectType) -> NewObject {
        NewObject {
            object_type,
            block_size: 512,
            bonus_type: ObjectType::NONE,
            bonus: Vec::new(),
            indirect_shift: dnode::MAX_INDIRECT_SHIFT,
            slots: 1,
            compress: 0,
            checksum: 0,
        }
    }

    /// With another block size in bytes.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> NewObject {
        self.block_size = bytes;
        self
    }

    /// With a bonus.
    #[must_use]
    pub fn bonus(mut self, bonus_type: ObjectType, bonus: Vec<u8>) -> NewObject {
        self.bonus_type = bonus_type;
        self.bonus = bonus;
        self
    }

    fn head(self) -> Head {
        let slots = usize::from(self.slots);
        let nblkptr = dnode::nblkptr_for(self.bonus_type, self.bonus.len(), slots);
        assert!(self.bonus.len() <= dnode::bonus_capacity(slots, nblkptr, false), "the bonus fits");
        Head {
            object_type: self.object_type,
            block_size: self.block_size,
            indirect_shift: self.indirect_shift,
            bonus_type: self.bonus_type,
            bonus: self.bonus,
            slots: self.slots,
            nblkptr: nblkptr as u8,
            checksum: self.checksum,
            compress: self.compress,
            max_blkid: 0,
        }
    }
}

/// Which numbers are free.
struct Numbers {
    /// Lowest number never used; everything above is free.
    cursor: u64,
    /// Freed and synced numbers below the cursor.
    reusable: BTreeSet<u64>,
    /// Dnode blocks up to here were searched for free slots.
    scanned: u64,
    /// Dnode blocks that existed when the objset was opened.
    scan_end: u64,
    /// Objects were made under numbers chosen by others: their slots may lie where free ones are sought.
    chosen: bool,
}

/// Whether an object in memory takes slot `id`.
fn is_taken(objects: &HashMap<ObjectId, Arc<Object>>, id: u64) -> bool {
    let first = id - id % SLOTS_PER_BLOCK as u64;
    let reaches = |at: u64| objects.get(&ObjectId(at)).is_some_and(|o| at + u64::from(o.head().slots) > id);
    (first..=id).any(reaches)
}

struct Inner {
    objects: HashMap<ObjectId, Arc<Object>>,
    numbers: Numbers,
    /// Counts syncs: a dnode read before one may be stale after it.
    syncs: u64,
    /// With so many objects in memory, it is time to look for idle ones.
    crowded: usize,
}

impl Inner {
    /// Idle clean objects leave memory when there are many. Those that a sync has in hand are in use.
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

/// An open objset.
pub struct Objset {
    pub(crate) shared: Arc<Shared>,
    pub(crate) meta: Arc<Object>,
    inner: Mutex<Inner>,
    pub(crate) root: Mutex<Root>,
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

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl Objset {
    /// Opens the objset whose root block is `ptr`.
    ///
    /// # Errors
    /// If the root block cannot be read or is no objset.
    pub fn open(storage: Arc<Storage>, budget: Arc<DirtyBudget>, ptr: BlockPtr) -> Result<Objset> {
        let record = storage.read(&ptr).map_err(Error::Root)?;
        let phys = Phys::decode(&record, ByteOrder::Little).map_err(|c| Error::Root(c.into()))?;
        Ok(Objset::with(storage, budget, Root { phys, ptr, size: record.len() }))
    }

    /// A new objset without objects, which exists on disk from the first sync. `size`: bytes of its block.
    #[must_use]
    pub fn create(
        storage: Arc<Storage>,
        budget: Arc<DirtyBudget>,
        os_type: ObjsetType,
        flags: u64,
        size: usize,
    ) -> Objset {
        let levels = if os_type == ObjsetType::Meta { 1 } else { dnode::META_LEVELS };
        let mut phys = Phys::new(os_type, levels);
        phys.flags = flags;
        Objset::with(storage, budget, Root { phys, ptr: BlockPtr::HOLE, size })
    }

    fn with(storage: Arc<Storage>, budget: Arc<DirtyBudget>, root: Root) -> Objset {
        let meta_dnode = root.phys.meta_dnode.clone();
        let blocks = if root.ptr.is_hole() { 0 } else { meta_dnode.max_blkid + 1 };
        let shared = Arc::new(Shared {
            storage,
            budget,
            bound: Bound::new(root.phys.os_type != ObjsetType::Meta, blocks),
            dirty: Mutex::default(),
            changes: AtomicU64::new(0),
        });
        let numbers = Numbers {
            cursor: (blocks * SLOTS_PER_BLOCK as u64).max(1),
            reusable: BTreeSet::new(),
            scanned: 0,
            scan_end: blocks,
            chosen: false,
        };
        let meta = Arc::new(Object::from_disk(ObjectId(0), shared.clone(), meta_dnode));
        let mut objects = HashMap::new();
        let specials = [&root.phys.user_used, &root.phys.group_used, &root.phys.project_used];
        for (special, dnode) in Special::ALL.into_iter().zip(specials) {
            if let Some(dnode) = dnode {
                let object = Object::from_disk(special.id(), shared.clone(), dnode.clone());
                objects.insert(special.id(), Arc::new(object));
            }
        }
        shared.bound.set_account_blocks(account_blocks(&root.phys));
        Objset {
            shared,
            meta,
            inner: Mutex::new(Inner { objects, numbers, syncs: 0, crowded: IDLE_OBJECTS_MAX }),
            root: Mutex::new(root),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while holding the object table")
    }

    /// The storage that the objset lives on.
    #[must_use]
    pub fn storage(&self) -> &Arc<Storage> {
        &self.shared.storage
    }

    /// What the objset is for.
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

    pub(crate) fn root(&self) -> MutexGuard<'_, Root> {
        self.root.lock().expect("no code panics while holding the objset root")
    }

    /// Data blocks are written in so many copies from now on.
    pub fn set_copies(&self, copies: u8) {
        self.shared.bound.set_copies(copies);
    }

    /// Takes the intent log out of the root, to be written with the next sync.
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

    fn read_dnode(&self, id: ObjectId) -> Result<Option<Dnode>> {
        if id.0 == 0 || id.0 >= NUMBERS_MAX {
            return Ok(None);
        }
        let wanted = (id.0 % SLOTS_PER_BLOCK as u64) as usize;
        let block = self.meta.block(id.0 / SLOTS_PER_BLOCK as u64)?;
        let mut slot = 0;
        // Slots inside a larger dnode hold its pointers and bonus and must not be taken for dnodes.
        while slot < wanted {
            slot += slots_at(&block, slot);
        }
        if slot != wanted {
            return Ok(None);
        }
        Dnode::decode(&block[slot * SLOT..], ByteOrder::Little).map_err(Error::corrupt(id))
    }

    /// All objects on disk, in order; objects created since the last sync are not among them.
    ///
    /// # Errors
    /// The iterator yields an error for a dnode block that cannot be read, and goes on.
    pub fn synced_objects(&self) -> impl Iterator<Item = Result<(ObjectId, Dnode)>> + '_ {
        self.synced_objects_from(ObjectId(0))
    }

    /// As [`Objset::synced_objects`], those from number `first` on.
    ///
    /// # Errors
    /// The iterator yields an error for a dnode block that cannot be read, and goes on.
    pub fn synced_objects_from(
        &self,
        first: ObjectId,
    ) -> impl Iterator<Item = Result<(ObjectId, Dnode)>> + '_ {
        let mut next = Some(first.0 / SLOTS_PER_BLOCK as u64);
        let meta = self.meta.synced();
        let mut trail = Trail::default();
        let mut pending: std::collections::VecDeque<Result<(ObjectId, Dnode)>> = Default::default();
        std::iter::from_fn(move || {
            loop {
                if let Some(item) = pending.pop_front() {
                    if item.as_ref().is_ok_and(|(id, _)| *id < first) {
                        continue;
                    }
                    return Some(item);
                }
                let dnode = meta.as_ref()?;
                let blkid = match self.meta.next_in(dnode, next?, &mut trail) {
                    Ok(found) => found?,
                    Err(error) => {
                        next = None;
                        return Some(Err(error));
                    }
                };
                next = Some(blkid + 1);
                match self.meta.block(blkid) {
                    Ok(block) => pending.extend(dnodes_in(blkid, &block)),
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }

    /// Creates an object under a number of its own choosing.
    ///
    /// # Errors
    /// If a dnode block must be searched and cannot be read, or no number is left.
    pub fn create_object(&self, tx: &Tx, new: NewObject) -> Result<Arc<Object>> {
        let slots = u64::from(new.slots);
        let found = if slots == 1 { self.reusable()? } else { None };
        let mut inner = self.lock();
        let id = match found {
            Some(id) => id,
            None => {
                let mut at = inner.numbers.cursor;
                let used = at % SLOTS_PER_BLOCK as u64;
                if used + slots > SLOTS_PER_BLOCK as u64 {
                    let skipped = SLOTS_PER_BLOCK as u64 - used;
                    inner.numbers.reusable.extend(at..at + skipped);
                    at += skipped;
                }
                if at + slots > NUMBERS_MAX {
                    return Err(Error::Full("object"));
                }
                inner.numbers.cursor = at + slots;
                at
            }
        };
        let object = Arc::new(Object::new(ObjectId(id), self.shared.clone(), new.head()));
        let before = inner.objects.insert(ObjectId(id), object.clone());
        assert!(before.is_none(), "a free number has no object");
        drop(inner);
        object.touch(tx);
        Ok(object)
    }

    /// Creates object `id`, for the few numbers that are fixed. Only in a new objset.
    ///
    /// # Panics
    /// If the number was given out before.
    pub fn create_object_at(&self, tx: &Tx, id: ObjectId, new: NewObject) -> Arc<Object> {
        let mut inner = self.lock();
        assert!(id.0 >= inner.numbers.cursor, "a fixed number is claimed before others are given out");
        let skipped = inner.numbers.cursor..id.0;
        inner.numbers.reusable.extend(skipped);
        inner.numbers.cursor = id.0 + u64::from(new.slots);
        let object = Arc::new(Object::new(id, self.shared.clone(), new.head()));
        inner.objects.insert(id, object.clone());
        drop(inner);
        object.touch(tx);
        object
    }

    /// Numbers of the objects in `first..end`, on disk or not yet.
    ///
    /// # Errors
    /// If a dnode block cannot be read.
    pub fn numbers_between(&self, first: u64, end: u64) -> Result<Vec<ObjectId>> {
        let wanted = |id: &ObjectId| (first..end).contains(&id.0);
        let mut found: BTreeSet<ObjectId> = self.lock().objects.keys().copied().filter(wanted).collect();
        let Some(dnode) = self.meta.synced() else { return Ok(found.into_iter().collect()) };
        let (mut next, mut trail) = (first / SLOTS_PER_BLOCK as u64, Trail::default());
        while let Some(blkid) = self.meta.next_in(&dnode, next, &mut trail)? {
            if blkid * SLOTS_PER_BLOCK as u64 >= end {
                break;
            }
            for entry in dnodes_in(blkid, &self.meta.block(blkid)?) {
                found.extend(Some(entry?.0).filter(wanted));
            }
            next = blkid + 1;
        }
        Ok(found.into_iter().collect())
    }

    /// Creates object `id`, whose number another system chose (when a log is replayed or a stream received).
    ///
    /// # Errors
    /// [`Error::Exists`] when the number or a slot of it is taken, also by an object freed since the last sync; a
    /// dnode block that cannot be read.
    pub fn create_object_numbered(&self, tx: &Tx, id: ObjectId, new: NewObject) -> Result<Arc<Object>> {
        let slots = u64::from(new.slots);
        let within = id.0 % SLOTS_PER_BLOCK as u64;
        if id.0 == 0 || id.0 >= NUMBERS_MAX || within + slots > SLOTS_PER_BLOCK as u64 {
            return Err(Error::Exists);
        }
        let block = self.meta.block(id.0 / SLOTS_PER_BLOCK as u64)?;
        let mut slot = 0;
        while slot < SLOTS_PER_BLOCK {
            let len = slots_at(&block, slot);
            let taken = block.get(slot * SLOT).is_some_and(|&kind| kind != 0);
            let end = slot as u64 + len as u64;
            if taken && end > within && (slot as u64) < within + slots {
                return Err(Error::Exists);
            }
            slot += len;
        }
        let mut inner = self.lock();
        if (id.0..id.0 + slots).any(|slot| is_taken(&inner.objects, slot)) {
            return Err(Error::Exists);
        }
        inner.numbers.chosen = true;
        if id.0 >= inner.numbers.cursor {
            let skipped = inner.numbers.cursor..id.0;
            if skipped.end - skipped.start <= 1 << 16 {
                inner.numbers.reusable.extend(skipped);
            }
        }
        inner.numbers.cursor = inner.numbers.cursor.max(id.0 + slots);
        for number in id.0..id.0 + slots {
            inner.numbers.reusable.remove(&number);
        }
        let object = Arc::new(Object::new(id, self.shared.clone(), new.head()));
        inner.objects.insert(id, object.clone());
        drop(inner);
        object.touch(tx);
        Ok(object)
    }

    /// A number below the cursor whose slot is free on disk and in memory.
    fn reusable(&self) -> Result<Option<u64>> {
        let mut budget = SCAN_BLOCKS;
        loop {
            let blkid = {
                let mut inner = self.lock();
                while let Some(id) = inner.numbers.reusable.pop_first() {
                    // Below an object of several slots there is none in the table.
                    let taken = inner.objects.contains_key(&ObjectId(id))
                        || inner.numbers.chosen && is_taken(&inner.objects, id);
                    if !taken {
                        return Ok(Some(id));
                    }
                }
                if inner.numbers.scanned == inner.numbers.scan_end || budget == 0 {
                    return Ok(None);
                }
                budget -= 1;
                inner.numbers.scanned += 1;
                inner.numbers.scanned - 1
            };
            let ptr = self.meta.synced_ptr(blkid)?;
            // Fill counts dnodes; a full block of small ones needs no look.
            if ptr.fill() == SLOTS_PER_BLOCK as u64 {
                continue;
            }
            let block = self.meta.block(blkid)?;
            let base = blkid * SLOTS_PER_BLOCK as u64;
            let mut inner = self.lock();
            let mut slot = 0;
            while slot < SLOTS_PER_BLOCK {
                let id = base + slot as u64;
                if block.get(slot * SLOT) == Some(&0) && id != 0 && !inner.objects.contains_key(&ObjectId(id))
                {
                    inner.numbers.reusable.insert(id);
                }
                slot += slots_at(&block, slot);
            }
        }
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

    /// Forgets which objects are dirty: their changes will never be synced. Objects and that list hold one another,
    /// and with them the devices.
    pub fn give_up(&self) {
        let dirty = std::mem::take(&mut *self.shared.lock_dirty());
        drop(dirty);
    }

    /// How many changes were made since the objset was opened: tells whether a job that failed left any.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::Relaxed)
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

    /// Takes the accounting ZAPs off the dirty list and closes them: sync changes them after the rest.
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
            inner.numbers.reusable.extend(id.0..id.0 + u64::from(slots));
        }
    }

    /// Idle clean objects leave memory when there are many.
    pub(crate) fn thin_out(&self) {
        self.lock().thin_out();
    }

    /// Lets the workers encode up to `left` bytes of the open txg's records ahead of their sync: whole blocks behind
    /// which there are others, so that whoever writes has probably gone on. `policy`: see [`SyncCtx`](crate::SyncCtx).
    pub fn encode_ahead(&self, policy: &Policy, left: &mut u64) {
        let min_alloc = self.storage().vdevs().min_alloc();
        let dirty: Vec<_> =
            self.shared.lock_dirty().objects.values().take(AHEAD_OBJECTS_MAX).cloned().collect();
        let wanted = dirty.iter().flat_map(|object| {
            let head = object.head();
            let plan = policy.plan(head.object_type, head.compress, head.checksum, 0, min_alloc);
            let records = object.settled_records(left);
            records.into_iter().map(move |record| (record, plan.recipe))
        });
        self.storage().encode_ahead(wanted);
    }
}

/// Slots taken by whatever starts at `slot`; 1 for a free one.
pub(crate) fn slots_at(block: &[u8], slot: usize) -> usize {
    let at = slot * SLOT;
    match (block.get(at), block.get(at + 0x0c)) {
        (Some(&kind), Some(&extra)) if kind != 0 => usize::from(extra) + 1,
        _ => 1,
    }
}

fn dnodes_in(blkid: u64, block: &[u8]) -> Vec<Result<(ObjectId, Dnode)>> {
    let mut found = Vec::new();
    let mut slot = 0;
    while slot < SLOTS_PER_BLOCK && (slot + 1) * SLOT <= block.len() {
        let id = ObjectId(blkid * SLOTS_PER_BLOCK as u64 + slot as u64);
        match Dnode::decode(&block[slot * SLOT..], ByteOrder::Little) {
            Ok(Some(dnode)) => found.push(Ok((id, dnode))),
            Ok(None) => {}
            Err(source) => found.push(Err(Error::Corrupt { object: id, source })),
        }
        slot += slots_at(block, slot);
    }
    found
}

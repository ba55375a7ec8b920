//! An objset's dirty state → blocks → its new root pointer.
//!
//! Leaves of all objects are compressed and checksummed on the workers and come back in order; the calling
//! thread alone allocates and changes pointers, so the same state gives the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use codec::Salt;
use format::blkptr::{Block, BlockPtr, Dva, Embedded};
use format::compression::CompressionSetting;
use format::dnode::{self, Dnode, SLOT, SLOTS_PER_BLOCK};
use format::objset as phys;
use format::{ByteOrder, ChecksumKind, Compression, ObjectId, ObjectType, Txg};
use storage::write::Encoded;
use storage::{GzipEngine, Recipe, Record, Storage, WriteError, Writer};

use crate::object::{Closed, Object, Spill};
use crate::objset::{Frozen, NewObject, Objset, Special, slots_at};
use crate::tree::{TreeWriter, born_in};
use crate::{Error, Result, Tx, zap};

/// Leaves in the hands of the workers at once, per worker.
const WINDOW_PER_WORKER: usize = 8;

/// Who gives space and keeps the accounts: the pool, on behalf of one dataset or the MOS.
pub trait Space {
    /// Space for `psize` bytes in `copies` places.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`], or a space map could not be read.
    fn allocate(&mut self, psize: u64, copies: u8) -> Result<[Dva; 3], WriteError>;

    /// `ptr` (embedded or on disk) is referenced from now on.
    fn born(&mut self, ptr: &BlockPtr);

    /// `ptr` (embedded or on disk) is no longer referenced by this dataset.
    ///
    /// # Errors
    /// If where it must be recorded cannot be read.
    fn killed(&mut self, ptr: &BlockPtr) -> Result<()>;
}

/// How blocks of an objset are written.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Of data blocks; `On` is resolved.
    pub compression: CompressionSetting,
    /// Of metadata blocks.
    pub metadata_compression: CompressionSetting,
    /// Who makes gzip's bytes.
    pub gzip_engine: GzipEngine,
    /// Of data blocks; `On` is resolved.
    pub checksum: ChecksumKind,
    /// Copies of data blocks, 1 to 3.
    pub copies: u8,
    /// Which metadata has one copy more, up to 3.
    pub redundant: Redundant,
    /// Feature `embedded_data` is active.
    pub embed: bool,
    /// Feature `hole_birth` is active.
    pub hole_birth: bool,
}

/// Metadata that has one copy more than data: the property `redundant_metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundant {
    /// All of it.
    All,
    /// All but the indirect blocks right above data.
    Most,
    /// What a whole dataset would be lost without.
    Some,
    /// Nothing.
    None,
}

/// Lowest level of indirect blocks of data with one copy more under [`Redundant::Most`].
const MOST_LEVEL: u8 = 2;

impl Policy {
    /// Copies of a block of this kind.
    fn copies_of(&self, object_type: ObjectType, level: u8) -> u8 {
        let metadata = object_type.is_metadata();
        let of_one_file = [ObjectType::DNODE, ObjectType::DIRECTORY_CONTENTS, ObjectType::SA];
        let more = match self.redundant {
            Redundant::All => metadata || level > 0,
            Redundant::Most => metadata || level >= MOST_LEVEL,
            Redundant::Some => metadata && !of_one_file.contains(&object_type),
            Redundant::None => false,
        };
        (self.copies + u8::from(more)).min(3)
    }

    /// How a block at `level` of an object is written; `compress` and `checksum` are the object's own, by number.
    pub(crate) fn plan(
        &self,
        object_type: ObjectType,
        compress: u8,
        checksum: u8,
        level: u8,
        min_alloc: u64,
    ) -> Plan {
        let metadata = level > 0 || object_type.is_metadata();
        let own = Compression::from_disk(u64::from(compress & 0x7f)).unwrap_or(Compression::Inherit);
        let compression = match own {
            Compression::Off if level == 0 => CompressionSetting::OFF,
            _ if metadata => self.metadata_compression,
            Compression::Inherit | Compression::On | Compression::Empty => self.compression,
            own => CompressionSetting::plain(own),
        };
        let own_sum = ChecksumKind::from_disk(checksum.into()).unwrap_or(ChecksumKind::Inherit);
        let checksum = match own_sum {
            ChecksumKind::Inherit | ChecksumKind::On => self.checksum,
            own => own,
        };
        let embed =
            self.embed && level == 0 && !matches!(object_type, ObjectType::DNODE | ObjectType::OBJSET);
        let checksum = if metadata { checksum.for_metadata() } else { checksum };
        Plan {
            recipe: Recipe { compression, gzip_engine: self.gzip_engine, checksum, min_alloc, embed },
            copies: self.copies_of(object_type, level),
        }
    }
}

/// Everything the sync of one objset needs.
pub struct SyncCtx<'a, 'w> {
    /// Where blocks go.
    pub storage: &'a Storage,
    /// The syncing txg.
    pub txg: Txg,
    /// Allocation and accounts.
    pub space: &'a mut dyn Space,
    /// The txg's writes.
    pub writer: &'a mut Writer<'w>,
    /// How to write.
    pub policy: Policy,
    /// Sync pass of the MOS, from 1; 0 for datasets. Blocks of the MOS are held back until its last pass and
    /// rewritten in place where they fit.
    pub mos_pass: u32,
}

impl SyncCtx<'_, '_> {
    pub(crate) fn encoding(&self, owner: &Dnode, level: u8) -> Plan {
        let min_alloc = self.storage.vdevs().min_alloc();
        self.policy.plan(owner.object_type, owner.compress, owner.checksum, level, min_alloc)
    }

    /// Writes `record` as a block of `owner` in place of `old`.
    pub(crate) fn write(
        &mut self,
        record: &Record,
        plan: Plan,
        owner: &Dnode,
        level: u8,
        fill: u64,
        old: &BlockPtr,
    ) -> Result<BlockPtr> {
        let salt = self.storage.salt();
        let encoding = self.storage.encoding(plan.recipe, &salt);
        if self.mos_pass > 0
            && born_in(old, self.txg)
            && let Some(block) = old.block()
            && block.lsize == record.len() as u64
            && !block.is_gang()
            && let Some(encoded) = encoding.encode_into(record, block.psize)
        {
            return Ok(self.rewrite(*block, encoded, record, fill));
        }
        let mut encoded = encoding.encode(record);
        if self.mos_pass > 1
            && let Encoded::Stored { payload, .. } = &encoded
        {
            // A block first written in a late pass will grow a little in the next one: leave it room, so
            // that the passes come to rest.
            let roomy = payload.bytes().len() as u64 + 2 * plan.recipe.min_alloc;
            let roomy = if roomy * 8 > record.len() as u64 * 7 { record.len() as u64 } else { roomy };
            encoded = encoding.encode_into(record, roomy).unwrap_or(encoded);
        }
        if matches!(encoded, Encoded::Hole) {
            self.kill(old)?;
            return Ok(BlockPtr::HOLE);
        }
        let ptr = self.place_with(encoded, plan, owner, level, fill, old, record.len() as u64)?;
        if let Some(block) = ptr.block()
            && (level > 0 || owner.object_type.is_metadata())
        {
            self.storage.cache().insert(block, record.clone());
        }
        Ok(ptr)
    }

    /// Overwrites a block that this txg wrote and nothing durable points at.
    fn rewrite(&mut self, mut block: Block, encoded: Encoded, record: &Record, fill: u64) -> BlockPtr {
        let Encoded::Stored { payload, compression, checksum } = encoded else {
            unreachable!("encode_into stores");
        };
        assert_eq!(payload.bytes().len() as u64, block.psize, "a rewrite fills the space it has");
        block.compression = compression;
        block.checksum = checksum;
        block.fill = fill;
        for dva in block.copies() {
            self.storage.hold(dva, payload.clone());
        }
        self.storage.cache().insert(&block, record.clone());
        BlockPtr::Block(block)
    }

    /// Gives an encoded leaf a place.
    pub(crate) fn place(
        &mut self,
        encoded: Encoded,
        owner: &Dnode,
        level: u8,
        fill: u64,
        old: &BlockPtr,
    ) -> Result<BlockPtr> {
        let plan = self.encoding(owner, level);
        self.place_with(encoded, plan, owner, level, fill, old, owner.level_size(level))
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a block pointer, each from another source")]
    fn place_with(
        &mut self,
        encoded: Encoded,
        plan: Plan,
        owner: &Dnode,
        level: u8,
        fill: u64,
        old: &BlockPtr,
        lsize: u64,
    ) -> Result<BlockPtr> {
        let ptr = match encoded {
            Encoded::Hole => unreachable!("holes have no place"),
            Encoded::Embedded { payload, psize, compression } => BlockPtr::Embedded(Embedded {
                kind: 0,
                lsize,
                psize,
                compression,
                object_type: owner.object_type,
                level,
                order: ByteOrder::Little,
                birth: self.txg,
                payload,
            }),
            Encoded::Stored { payload, compression, checksum } => {
                let psize = payload.bytes().len() as u64;
                assert!(psize <= lsize, "compression may not grow a block");
                let whole = match self.space.allocate(psize, plan.copies) {
                    Err(WriteError::NoSpace) => None,
                    placed => Some(placed?),
                };
                let block = Block {
                    dvas: whole.unwrap_or_default(),
                    lsize,
                    psize,
                    compression,
                    checksum_kind: plan.recipe.checksum,
                    level,
                    fill,
                    checksum,
                    ..Block::plain(owner.object_type, self.txg)
                };
                if whole.is_none() {
                    return self.place_in_pieces(block, &payload, plan.copies, old);
                }
                for dva in block.copies() {
                    if self.mos_pass > 0 {
                        self.storage.hold(dva, payload.clone());
                    } else {
                        self.writer.put(dva, payload.clone())?;
                    }
                }
                BlockPtr::Block(block)
            }
        };
        self.kill(old)?;
        self.space.born(&ptr);
        Ok(ptr)
    }

    /// Takes a leaf as it was written early, in place of `old`.
    pub(crate) fn adopt(&mut self, block: Block, owner: &Dnode, old: &BlockPtr) -> Result<BlockPtr> {
        let expected = (owner.level_size(0), self.txg);
        assert_eq!((block.lsize, block.birth), expected, "an early block is this txg's own");
        let ptr = BlockPtr::Block(block);
        self.kill(old)?;
        self.space.born(&ptr);
        Ok(ptr)
    }

    /// `ptr` goes out of use.
    pub(crate) fn kill(&mut self, ptr: &BlockPtr) -> Result<()> {
        if let BlockPtr::Block(block) = ptr {
            self.storage.cache().remove(block);
            if self.mos_pass > 0 {
                for dva in block.copies() {
                    self.storage.release(dva);
                }
            }
        }
        if !ptr.is_hole() {
            self.space.killed(ptr)?;
        }
        Ok(())
    }
}

/// How one kind of block is written.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) recipe: Recipe,
    pub(crate) copies: u8,
}

/// One object on its way to disk.
struct Syncing {
    object: Arc<Object>,
    closed: Arc<Closed>,
    before: Option<Dnode>,
}

/// The new dnode of an object, or `None` when it is gone.
struct Done {
    syncing: Syncing,
    after: Option<Dnode>,
}

impl Done {
    /// Puts the dnode into its block of the meta-dnode, where the old one was.
    fn put_dnode(&self, block: &mut [u8]) {
        let slot = (self.syncing.object.id().0 % SLOTS_PER_BLOCK as u64) as usize * SLOT;
        let slots = |dnode: &Option<Dnode>| dnode.as_ref().map_or(0, |d| usize::from(d.slots) * SLOT);
        block[slot..slot + slots(&self.syncing.before)].fill(0);
        if let Some(dnode) = &self.after {
            dnode.encode(&mut block[slot..slot + slots(&self.after)]);
        }
    }
}

/// A leaf for the workers.
struct Leaf {
    owner: usize,
    blkid: u64,
    record: Record,
    plan: Plan,
}

/// What became of a leaf on the workers.
enum Ready {
    Encoded(Encoded),
    Written(Block),
}

impl Leaf {
    /// Where it was written early, else the record encoded.
    fn encode(&self, storage: &Storage, salt: &Salt, txg: Txg) -> Ready {
        let Plan { recipe, copies } = self.plan;
        let early = (copies == 1).then(|| storage.take_early(&self.record, recipe, txg)).flatten();
        early.map_or_else(|| Ready::Encoded(storage.encode(&self.record, recipe, salt)), Ready::Written)
    }
}

impl Objset {
    /// Writes the frozen changes and returns the new root pointer. Objects keep their syncing state until
    /// [`Synced::settle`]: their blocks may still be on their way to the disks.
    ///
    /// # Errors
    /// A block could not be read, placed or written: the txg must be abandoned.
    pub fn sync(&self, ctx: &mut SyncCtx<'_, '_>, frozen: Frozen) -> Result<Synced> {
        let mut done = sync_objects(ctx, frozen, self.counted())?;
        if self.is_accounted() {
            self.update_accounts(ctx.txg, &done)?;
            let specials = sync_objects(ctx, self.freeze_specials(), 0)?;
            let mut root = self.root();
            for special in &specials {
                let slot = match special.syncing.object.id() {
                    id if id == Special::User.id() => &mut root.phys.user_used,
                    id if id == Special::Group.id() => &mut root.phys.group_used,
                    _ => &mut root.phys.project_used,
                };
                slot.clone_from(&special.after);
            }
            drop(root);
            done.extend(specials);
        }
        let meta = self.sync_meta(ctx, &done)?;
        let ptr = self.write_root(ctx, meta.clone())?;
        Ok(Synced { done, meta, ptr })
    }

    fn is_accounted(&self) -> bool {
        self.counted() != 0
    }

    /// Flags of a dnode written from now on: what it is counted for. Where objects are not counted from the
    /// beginning, none is counted half-way either: OpenZFS then does all of them at once.
    fn counted(&self) -> u8 {
        match self.root().phys.flags {
            flags if flags & phys::FLAG_USER_ACCOUNTING == 0 => 0,
            flags if flags & phys::FLAG_USEROBJ_ACCOUNTING == 0 => dnode::FLAG_USERUSED_ACCOUNTED,
            _ => dnode::FLAG_USERUSED_ACCOUNTED | dnode::FLAG_USEROBJUSED_ACCOUNTED,
        }
    }

    /// Puts the changed dnodes into the blocks of the meta-dnode and writes those.
    fn sync_meta(&self, ctx: &mut SyncCtx<'_, '_>, done: &[Done]) -> Result<Dnode> {
        let blkid_of = |done: &&Done| done.syncing.object.id().0 / SLOTS_PER_BLOCK as u64;
        let mut changed: Vec<&Done> =
            done.iter().filter(|done| done.syncing.object.id().0 < 1 << 48).collect();
        changed.sort_by_key(|done| done.syncing.object.id());
        let before = self.meta.synced().expect("the meta-dnode always exists");
        let max_blkid = changed.last().map_or(0, blkid_of).max(before.max_blkid);
        let mut tree = TreeWriter::new(ObjectId(0), before, max_blkid);
        tree.dnode_mut().max_blkid = max_blkid;
        let plan = ctx.encoding(tree.dnode_mut(), 0);
        // One after another: all of them may be far more than the changes in them.
        let leaves = changed.chunk_by(|a, b| blkid_of(a) == blkid_of(b)).map(|group| -> Result<_> {
            let blkid = blkid_of(&group[0]);
            let mut block = self.meta.block(blkid)?.to_vec();
            group.iter().for_each(|done| done.put_dnode(&mut block));
            Ok((dnodes_in(&block), Leaf { owner: 0, blkid, record: Arc::new(block), plan }))
        });
        if ctx.mos_pass > 0 {
            for leaf in leaves {
                let (fill, leaf) = leaf?;
                tree.set_record(ctx, leaf.blkid, &leaf.record, fill)?;
            }
        } else {
            let (salt, storage) = (ctx.storage.salt(), ctx.storage);
            let workers = storage.workers();
            workers.map_ordered(
                storage::Caller::Waits,
                leaves,
                workers.count() * WINDOW_PER_WORKER,
                |leaf: Result<(u64, Leaf)>| {
                    let (fill, leaf) = leaf?;
                    let encoded = storage.encoding(leaf.plan.recipe, &salt).encode(&leaf.record);
                    Ok((leaf.blkid, fill, encoded, leaf.record))
                },
                |leaf: Result<_>| {
                    let (blkid, fill, encoded, record) = leaf?;
                    tree.set(ctx, blkid, encoded, fill)?;
                    if let Some(block) = tree.entry(ctx, 0, blkid)?.block() {
                        ctx.storage.cache().insert(block, record);
                    }
                    Ok::<(), Error>(())
                },
            )?;
        }
        tree.finish(ctx)
    }

    fn write_root(&self, ctx: &mut SyncCtx<'_, '_>, meta: Dnode) -> Result<BlockPtr> {
        let (mut phys, size, old) = {
            let root = self.root();
            (root.phys.clone(), root.size, root.ptr)
        };
        phys.meta_dnode = meta;
        write_objset_root(ctx, &phys, size, &old)
    }

    /// Adds what changed to the space accounting ZAPs (03 §7, 07 §8).
    fn update_accounts(&self, txg: Txg, done: &[Done]) -> Result<()> {
        let flags = self.root().phys.flags;
        let mut deltas: BTreeMap<(usize, String), i64> = BTreeMap::new();
        let mut add = |dnode: &Dnode, sign: i64| {
            let Some(owners) = owners(dnode) else { return };
            let bytes = 512 + dnode.used_bytes() as i64;
            for (i, id) in owners.into_iter().enumerate() {
                if i == 2 && flags & phys::FLAG_PROJECT_QUOTA == 0 {
                    continue;
                }
                if dnode.flags & dnode::FLAG_USERUSED_ACCOUNTED != 0 {
                    *deltas.entry((i, format!("{id:x}"))).or_default() += sign * bytes;
                }
                if dnode.flags & dnode::FLAG_USEROBJUSED_ACCOUNTED != 0 {
                    *deltas.entry((i, format!("obj-{id:x}"))).or_default() += sign;
                }
            }
        };
        for Done { syncing, after } in done {
            if let Some(before) = &syncing.before {
                add(before, -1);
            }
            if let Some(after) = after {
                add(after, 1);
            }
        }
        let tx = Tx::new(txg);
        for ((i, key), delta) in deltas {
            if delta != 0 {
                let new = NewObject::plain(ObjectType::USERGROUP_USED);
                let object = self.special_or_new(Special::ALL[i], new);
                zap::increment(&object, &tx, key.as_bytes(), delta)?;
            }
        }
        Ok(())
    }
}

/// Writes an objset's root block in place of `old`.
///
/// # Errors
/// If the block cannot be placed or written.
pub fn write_objset_root(
    ctx: &mut SyncCtx<'_, '_>,
    root: &phys::Objset,
    size: usize,
    old: &BlockPtr,
) -> Result<BlockPtr> {
    let mut owner = Dnode::meta(1);
    owner.object_type = ObjectType::OBJSET;
    owner.block_size = size as u32;
    let fill = root.meta_dnode.block_ptrs.iter().map(BlockPtr::fill).sum();
    let plan = ctx.encoding(&owner, 0);
    ctx.write(&Arc::new(root.encode(size)), plan, &owner, 0, fill, old)
}

/// uid, gid and project id of an object that has them. The offsets are fixed (07 §4).
fn owners(dnode: &Dnode) -> Option<[u64; 3]> {
    format::owner::owner_ids(dnode.bonus_type, &dnode.bonus)
}

fn dnodes_in(block: &[u8]) -> u64 {
    let mut count = 0;
    let mut slot = 0;
    while slot < SLOTS_PER_BLOCK {
        count += u64::from(block[slot * SLOT] != 0);
        slot += slots_at(block, slot);
    }
    count
}

/// Writes the leaves, trees and spill blocks of the frozen objects, in order; `counted`: see [`Objset::counted`].
fn sync_objects(ctx: &mut SyncCtx<'_, '_>, frozen: Frozen, counted: u8) -> Result<Vec<Done>> {
    let mut queue: VecDeque<(usize, Syncing)> = frozen
        .objects
        .into_iter()
        .map(|(object, closed)| {
            let before = object.synced();
            Syncing { object, closed, before }
        })
        .enumerate()
        .collect();
    let mut leaves = Vec::new();
    for (owner, syncing) in &queue {
        if !syncing.closed.gone {
            let plan = ctx.encoding(&tree_dnode(syncing), 0);
            leaves.push((*owner, syncing.closed.clone(), plan));
        }
    }
    let leaves = leaves.into_iter().flat_map(|(owner, closed, plan)| {
        let blocks: Vec<(u64, Record)> = closed.dirty.blocks.iter().map(|(&b, r)| (b, r.clone())).collect();
        blocks.into_iter().map(move |(blkid, record)| Leaf { owner, blkid, record, plan })
    });
    let mut done = Vec::with_capacity(queue.len());
    let mut current: Option<Current> = None;
    let mut advance =
        |ctx: &mut SyncCtx<'_, '_>, owner: usize, current: &mut Option<Current>| -> Result<()> {
            while current.as_ref().is_none_or(|c| c.owner != owner) {
                if let Some(finished) = current.take() {
                    done.push(finished.finish(ctx, counted)?);
                }
                match queue.pop_front() {
                    Some((owner, syncing)) => *current = Some(Current::start(owner, syncing)),
                    None => break,
                }
            }
            Ok(())
        };
    if ctx.mos_pass > 0 {
        for leaf in leaves {
            advance(ctx, leaf.owner, &mut current)?;
            let current = current.as_mut().expect("every leaf has an owner in the queue");
            current.free_before(ctx, leaf.blkid)?;
            current.tree.set_record(ctx, leaf.blkid, &leaf.record, 1)?;
        }
    } else {
        let storage = ctx.storage;
        let (salt, workers, txg) = (storage.salt(), storage.workers(), ctx.txg);
        workers.map_ordered(
            storage::Caller::Waits,
            leaves,
            workers.count() * WINDOW_PER_WORKER,
            |leaf| (leaf.owner, leaf.blkid, leaf.encode(storage, &salt, txg)),
            |(owner, blkid, ready)| {
                advance(ctx, owner, &mut current)?;
                let current = current.as_mut().expect("every leaf has an owner in the queue");
                current.free_before(ctx, blkid)?;
                match ready {
                    Ready::Encoded(encoded) => current.tree.set(ctx, blkid, encoded, 1),
                    Ready::Written(block) => current.tree.set_written(ctx, blkid, block),
                }
            },
        )?;
    }
    advance(ctx, usize::MAX, &mut current)?;
    Ok(done)
}

/// The dnode whose tree the txg's blocks go into: as on disk, with what the txg changed about it.
fn tree_dnode(syncing: &Syncing) -> Dnode {
    let head = &syncing.closed.head;
    let mut dnode = syncing.before.clone().unwrap_or_else(|| head.to_dnode());
    dnode.object_type = head.object_type;
    dnode.block_size = head.block_size;
    dnode.checksum = head.checksum;
    dnode.compress = head.compress;
    dnode
}

/// The object whose leaves are arriving.
struct Current {
    owner: usize,
    syncing: Syncing,
    tree: TreeWriter,
    /// Freed ranges not yet applied, ascending.
    frees: VecDeque<(u64, u64)>,
}

impl Current {
    fn start(owner: usize, syncing: Syncing) -> Current {
        let dnode = tree_dnode(&syncing);
        let closed = &syncing.closed;
        let reach = if closed.gone { 0 } else { closed.head.max_blkid };
        let tree = TreeWriter::new(syncing.object.id(), dnode, reach);
        let frees = closed.dirty.freed.iter().collect();
        Current { owner, syncing, tree, frees }
    }

    /// Frees what the txg freed below `blkid`; `blkid` itself is about to be replaced.
    fn free_before(&mut self, ctx: &mut SyncCtx<'_, '_>, blkid: u64) -> Result<()> {
        while let Some((start, end)) = self.frees.pop_front() {
            if start >= blkid {
                let rest = if start == blkid { blkid + 1 } else { start };
                if rest < end {
                    self.frees.push_front((rest, end));
                }
                break;
            }
            self.tree.free(ctx, start, end.min(blkid))?;
            if end > blkid + 1 {
                self.frees.push_front((blkid + 1, end));
                break;
            }
        }
        Ok(())
    }

    fn finish(mut self, ctx: &mut SyncCtx<'_, '_>, counted: u8) -> Result<Done> {
        let closed = self.syncing.closed.clone();
        if closed.gone {
            if self.syncing.before.is_some() {
                self.tree.free_all(ctx)?;
            }
            return Ok(Done { syncing: self.syncing, after: None });
        }
        for (start, end) in std::mem::take(&mut self.frees) {
            self.tree.free(ctx, start, end)?;
        }
        let dnode = self.tree.dnode_mut();
        dnode.bonus.clone_from(&closed.head.bonus);
        dnode.bonus_type = closed.head.bonus_type;
        dnode.max_blkid = closed.head.max_blkid;
        dnode.flags |= counted;
        match &closed.dirty.spill {
            Spill::Kept => {}
            Spill::Gone => self.tree.set_spill(ctx, None)?,
            Spill::Set(record) => self.tree.set_spill(ctx, Some(record))?,
        }
        let dnode = self.tree.finish(ctx)?;
        Ok(Done { syncing: self.syncing, after: Some(dnode) })
    }
}

/// An objset written but not yet settled.
pub struct Synced {
    done: Vec<Done>,
    meta: Dnode,
    /// The new root pointer.
    pub ptr: BlockPtr,
}

impl Synced {
    /// The blocks can be read from now on: objects forget their syncing records.
    pub fn settle(self, objset: &Objset) {
        let mut gone = Vec::new();
        // Held until the table knows of the sync: an object that left it before could come back as it was.
        let mut held = Vec::new();
        for Done { syncing, after } in self.done {
            if after.is_none() {
                gone.push((syncing.object.id(), syncing.closed.head.slots));
            }
            syncing.object.synced_as(after);
            held.push(syncing.object);
            // Readers may still hold the records, or all of them.
            if let Some(closed) = Arc::into_inner(syncing.closed) {
                let buffers = objset.storage().buffers();
                closed.dirty.blocks.into_values().for_each(|record| buffers.give(record));
            }
        }
        objset.meta.replace_disk(self.meta.clone());
        let mut root = objset.root();
        root.ptr = self.ptr;
        root.phys.meta_dnode = self.meta;
        drop(root);
        objset.settle(&gone);
        drop(held);
        objset.thin_out();
    }
}

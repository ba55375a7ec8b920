//! An objset's dirty state → blocks → its new root pointer.
//!
//! Leaves of all objects are compressed and checksummed on the workers and come back in order; the calling
//! thread alone allocates and changes pointers, so the same state gives the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use codec::Salt;
use format::blkptr::{Block, BlockPtr};
use format::dnode::{self, Dnode, SLOT, SLOTS_PER_BLOCK};
use format::objset as phys;
use format::{Compression, ObjectId, ObjectType, Txg};
use storage::write::{Encoded, Encoding};
use storage::{AsStored, Draft, Guard, Storage};

use crate::context::{LookAhead, SyncCtx};
use crate::object::{Closed, Object, Spill};
use crate::objset::{Frozen, Objset, Special, slots_at};
use crate::place::write_objset_root;
use crate::policy::Plan;
use crate::tree::TreeWriter;
use crate::{Error, NewObject, Result, Tx, zap};

/// Leaves that are encoded at once, per worker.
const WINDOW_PER_WORKER: usize = 8;

/// One object during a sync.
struct Syncing {
    object: Arc<Object>,
    closed: Arc<Closed>,
    before: Option<Arc<Dnode>>,
}

/// The new dnode of an object; `None` if it was freed.
struct Done {
    syncing: Syncing,
    after: Option<Dnode>,
}

/// The dnodes in blocks of the meta-dnode, in the order of their numbers.
fn in_blocks(done: &[Done]) -> Vec<&Done> {
    let mut changed: Vec<&Done> = done.iter().filter(|done| done.syncing.object.id().0 < 1 << 48).collect();
    changed.sort_by_key(|done| done.syncing.object.id());
    changed
}

impl Done {
    /// Number of its block of the meta-dnode.
    fn blkid(&self) -> u64 {
        self.syncing.object.id().0 / SLOTS_PER_BLOCK as u64
    }

    /// As [`Done::put_dnode`], with the received bytes after the pointers.
    fn put_sealed_dnode(&self, block: &mut [u8]) {
        let before = block.to_vec();
        self.put_dnode(block);
        let Some(dnode) = &self.after else { return };
        let slot = (self.syncing.object.id().0 % SLOTS_PER_BLOCK as u64) as usize * SLOT;
        let at = slot + dnode::HEADER + dnode.block_ptrs.len() * format::blkptr::SIZE;
        let room = at..at + dnode.bonus_capacity();
        let area = match &self.syncing.closed.dirty.area {
            Some(area) => &area[..area.len().min(room.len())],
            None => &before[room.clone()],
        };
        block[room.start..room.start + area.len()].copy_from_slice(area);
    }

    /// Puts the dnode into its block of the meta-dnode, where the old one was.
    fn put_dnode(&self, block: &mut [u8]) {
        let slot = (self.syncing.object.id().0 % SLOTS_PER_BLOCK as u64) as usize * SLOT;
        let len = |dnode: &Dnode| usize::from(dnode.slots) * SLOT;
        block[slot..slot + self.syncing.before.as_deref().map_or(0, len)].fill(0);
        if let Some(dnode) = &self.after {
            dnode.encode(&mut block[slot..slot + len(dnode)]);
        }
    }
}

/// A leaf for the workers.
struct Leaf {
    owner: usize,
    blkid: u64,
    draft: Draft,
    plan: Plan,
}

/// The new content of a block.
enum Content {
    Draft(Draft),
    /// A block that is on disk.
    Cloned(BlockPtr),
}

/// A block in its turn.
enum Turn<'a> {
    Leaf(Guarded<'a>),
    Cloned { owner: usize, blkid: u64, ptr: BlockPtr },
}

/// The next leaf with its encryption parameters.
struct Guarded<'a> {
    leaf: Leaf,
    guard: Guard<'a>,
}

/// Result of a leaf from the workers.
enum Ready {
    Encoded(Encoded),
    Written(Block),
    Cloned(BlockPtr),
}

impl Turn<'_> {
    /// The object and the number of the block, and its new content.
    fn ready(
        &self,
        storage: &Storage,
        salt: &Arc<Salt>,
        txg: Txg,
        look: Option<&LookAhead>,
    ) -> (usize, u64, Ready) {
        match self {
            Turn::Leaf(guarded) => {
                let ready = guarded.encode(storage, salt, txg);
                if let Some(look) = look.filter(|_| guarded.leaf.plan.dedup.is_some()) {
                    guarded.look_ahead(&ready, look);
                }
                (guarded.leaf.owner, guarded.leaf.blkid, ready)
            }
            Turn::Cloned { owner, blkid, ptr } => (*owner, *blkid, Ready::Cloned(*ptr)),
        }
    }
}

impl Guarded<'_> {
    /// The place where it was written early, or the encoded record.
    fn encode(&self, storage: &Storage, salt: &Arc<Salt>, txg: Txg) -> Ready {
        let Leaf { draft, plan: Plan { recipe, copies, .. }, .. } = &self.leaf;
        let early = (*copies == 1).then(|| storage.take_early(draft, *recipe, txg)).flatten();
        let encode = || Ready::Encoded(storage.encode(draft, *recipe, salt, self.guard));
        early.map_or_else(encode, Ready::Written)
    }

    /// Lets workers read the blocks that the look-up in the dedup table needs.
    fn look_ahead(&self, ready: &Ready, look: &LookAhead) {
        match ready {
            Ready::Encoded(Encoded::Stored { payload, compression, checksum, .. }) => look(&Block {
                lsize: self.leaf.draft.record().len() as u64,
                psize: payload.bytes().len() as u64,
                compression: *compression,
                checksum_kind: self.leaf.plan.recipe.checksum,
                checksum: *checksum,
                ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(0))
            }),
            Ready::Written(block) => look(block),
            Ready::Encoded(_) | Ready::Cloned(_) => {}
        }
    }
}

impl Objset {
    /// Writes the frozen changes and returns the new root pointer. Objects keep their syncing state until
    /// [`Synced::settle`]: their blocks may still be on their way to the disks.
    ///
    /// # Errors
    /// A block could not be read, placed or written: the txg must be abandoned.
    ///
    /// # Panics
    /// If an encrypted objset without loaded keys was changed.
    pub fn sync(&self, ctx: &mut SyncCtx<'_, '_>, frozen: Frozen) -> Result<Synced> {
        let is_locked = ctx.policy.encrypted && ctx.io.keys().is_none();
        let is_arriving = self.is_arriving();
        assert!(
            !is_locked || is_arriving || frozen.is_empty(),
            "nothing in an encrypted dataset is changed without its keys"
        );
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
            self.shared.bound.set_account_blocks(root.account_blocks());
            drop(root);
            done.extend(specials);
        }
        let meta = match is_arriving {
            true => self.sync_sealed_meta(ctx, &done)?,
            false => self.sync_meta(ctx, &done)?,
        };
        let ptr = self.write_root(ctx, meta.clone())?;
        Ok(Synced { done, meta, ptr })
    }

    fn is_accounted(&self) -> bool {
        self.counted() != 0
    }

    /// Accounting flags of a newly written dnode. If the objset has no complete accounting, no object gets the flags;
    /// OpenZFS then counts all of them at once.
    fn counted(&self) -> u8 {
        match self.root().phys.flags {
            flags if flags & phys::FLAG_USER_ACCOUNTING == 0 => 0,
            flags if flags & phys::FLAG_USEROBJ_ACCOUNTING == 0 => dnode::FLAG_USERUSED_ACCOUNTED,
            _ => dnode::FLAG_USERUSED_ACCOUNTED | dnode::FLAG_USEROBJUSED_ACCOUNTED,
        }
    }

    /// Puts the changed dnodes into the blocks of the meta-dnode and writes those.
    fn sync_meta(&self, ctx: &mut SyncCtx<'_, '_>, done: &[Done]) -> Result<Dnode> {
        let changed = in_blocks(done);
        let before = self.meta.synced().expect("the meta-dnode always exists");
        let max_blkid = changed.last().map_or(0, |done| done.blkid()).max(before.max_blkid);
        let mut tree = TreeWriter::new(ObjectId(0), Dnode::clone(&before), max_blkid);
        tree.dnode_mut().max_blkid = max_blkid;
        let plan = ctx.encoding(tree.dnode_mut(), 0);
        // One block after another, because all of them together may be much larger than the changes.
        let leaves = changed.chunk_by(|a, b| a.blkid() == b.blkid()).map(|group| -> Result<_> {
            let blkid = group[0].blkid();
            let mut block = self.meta.block(blkid)?.to_vec();
            group.iter().for_each(|done| done.put_dnode(&mut block));
            Ok((dnodes_in(&block), Leaf { owner: 0, blkid, draft: Arc::new(block).into(), plan }))
        });
        if ctx.mos_pass > 0 {
            for leaf in leaves {
                let (fill, leaf) = leaf?;
                tree.set_record(ctx, leaf.blkid, leaf.draft.record(), fill)?;
            }
        } else {
            let (salt, storage) = (ctx.storage().salt(), ctx.storage());
            let (io, entropy) = (ctx.io, ctx.entropy);
            let workers = storage.workers();
            workers.map_ordered(
                storage::Caller::Waits,
                leaves.map(|leaf| Ok((leaf?, io.guard(&plan.recipe, entropy)))),
                workers.count() * WINDOW_PER_WORKER,
                |leaf: Result<((u64, Leaf), Guard<'_>)>| {
                    let ((fill, leaf), guard) = leaf?;
                    let encoding = Encoding { guard, ..storage.encoding(leaf.plan.recipe, &salt) };
                    let encoded = encoding.encode(leaf.draft.record());
                    Ok((leaf.blkid, fill, encoded, leaf.draft.into_record()))
                },
                |leaf: Result<_>| {
                    let (blkid, fill, encoded, record) = leaf?;
                    tree.set(ctx, blkid, encoded, fill)?;
                    if let Some(block) = tree.entry(ctx, 0, blkid)?.block() {
                        ctx.storage().cache().insert(block, record);
                    }
                    Ok::<(), Error>(())
                },
            )?;
        }
        tree.finish(ctx)
    }

    /// As [`Objset::sync_meta`], for a raw receive: each block is encrypted already, with the last parameters of the stream.
    fn sync_sealed_meta(&self, ctx: &mut SyncCtx<'_, '_>, done: &[Done]) -> Result<Dnode> {
        let before = self.meta.synced().expect("the meta-dnode always exists");
        let max_blkid = self.arriving_max_blkid().max(before.max_blkid);
        let mut tree = TreeWriter::new(ObjectId(0), Dnode::clone(&before), max_blkid);
        tree.dnode_mut().max_blkid = max_blkid;
        let plan = ctx.encoding(tree.dnode_mut(), 0);
        let salt = ctx.storage().salt();
        for group in in_blocks(done).chunk_by(|a, b| a.blkid() == b.blkid()) {
            let blkid = group[0].blkid();
            let mut block = self.meta.block(blkid)?.to_vec();
            group.iter().for_each(|done| done.put_sealed_dnode(&mut block));
            let old = tree.entry(ctx, 0, blkid)?;
            let fill = dnodes_in(&block);
            let encoded = match codec::is_zero(&block) {
                true => Encoded::Hole,
                false => {
                    let (sealing, mac) = self.take_seal(blkid, &old);
                    let lsize = block.len() as u64;
                    let moved =
                        AsStored { lsize, compression: Compression::Off, sealing: Some(sealing), mac };
                    let draft = Draft::moved(Arc::new(block), moved);
                    ctx.storage().encode(&draft, plan.recipe, &salt, Guard::default())
                }
            };
            tree.set(ctx, blkid, encoded, fill)?;
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

    /// Adds the changes to the space accounting ZAPs (03 §7, 07 §8).
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
    let mut queue = numbered(frozen);
    let mut leaves = Vec::new();
    for (owner, syncing) in &queue {
        if !syncing.closed.gone {
            let plan = ctx.encoding(&tree_dnode(syncing), 0);
            leaves.push((*owner, syncing.closed.clone(), plan));
        }
    }
    let leaves = leaves.into_iter().flat_map(|(owner, closed, plan)| {
        contents(&closed).into_iter().map(move |(blkid, content)| (owner, blkid, content, plan))
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
        for (owner, blkid, content, _) in leaves {
            advance(ctx, owner, &mut current)?;
            let current = current.as_mut().expect("every leaf has an owner in the queue");
            current.free_before(ctx, blkid)?;
            let Content::Draft(draft) = content else { unreachable!("blocks of the MOS have one pointer") };
            current.tree.set_record(ctx, blkid, draft.record(), 1)?;
        }
    } else {
        let (storage, io, entropy) = (ctx.storage(), ctx.io, ctx.entropy);
        let (salt, workers, txg) = (storage.salt(), storage.workers(), ctx.txg);
        let look = ctx.policy.dedup.and_then(|_| ctx.space.look_ahead());
        workers.map_ordered(
            storage::Caller::Waits,
            leaves.map(|(owner, blkid, content, plan)| match content {
                Content::Cloned(ptr) => Turn::Cloned { owner, blkid, ptr },
                Content::Draft(draft) => {
                    let guard = io.guard(&plan.recipe, entropy);
                    Turn::Leaf(Guarded { guard, leaf: Leaf { owner, blkid, draft, plan } })
                }
            }),
            workers.count() * WINDOW_PER_WORKER,
            |turn| turn.ready(storage, &salt, txg, look.as_ref()),
            |(owner, blkid, ready)| {
                advance(ctx, owner, &mut current)?;
                let current = current.as_mut().expect("every leaf has an owner in the queue");
                let was_freed = current.free_before(ctx, blkid)?;
                match ready {
                    // A program may truncate and rewrite a file to replace a damaged block.
                    Ready::Encoded(encoded) if was_freed => current.tree.set(ctx, blkid, encoded, 1),
                    Ready::Encoded(encoded) => current.tree.set_if_new(ctx, blkid, encoded),
                    Ready::Written(block) => current.tree.set_written(ctx, blkid, block),
                    Ready::Cloned(ptr) => current.tree.set_cloned(ctx, blkid, &ptr),
                }
            },
        )?;
    }
    advance(ctx, usize::MAX, &mut current)?;
    Ok(done)
}

/// The objects that changed, each with its number.
fn numbered(frozen: Frozen) -> VecDeque<(usize, Syncing)> {
    let with_before = |(object, closed): (Arc<Object>, _)| {
        let before = object.synced();
        Syncing { object, closed, before }
    };
    frozen.objects.into_iter().map(with_before).enumerate().collect()
}

/// The new blocks of an object, in order.
fn contents(closed: &Closed) -> Vec<(u64, Content)> {
    let drafts = closed.dirty.blocks.iter().map(|(&blkid, draft)| (blkid, Content::Draft(draft.clone())));
    let mut all: Vec<_> = drafts.collect();
    if !closed.dirty.cloned.is_empty() {
        all.extend(closed.dirty.cloned.iter().map(|(&blkid, ptr)| (blkid, Content::Cloned(*ptr))));
        all.sort_by_key(|(blkid, _)| *blkid);
    }
    all
}

/// The dnode for the txg's blocks: as on disk, with the changed attributes of the txg.
fn tree_dnode(syncing: &Syncing) -> Dnode {
    let head = &syncing.closed.head;
    let mut dnode = syncing.before.as_deref().cloned().unwrap_or_else(|| head.to_dnode());
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
        let levels = if closed.gone { 1 } else { closed.head.levels };
        let tree = TreeWriter::with_levels(syncing.object.id(), dnode, reach, levels);
        let frees = closed.dirty.freed.iter().collect();
        Current { owner, syncing, tree, frees }
    }

    /// Frees the blocks that the txg freed below `blkid`. `blkid` itself is written next. Returns whether the txg also freed
    /// it.
    fn free_before(&mut self, ctx: &mut SyncCtx<'_, '_>, blkid: u64) -> Result<bool> {
        let mut was_freed = false;
        while let Some((start, end)) = self.frees.pop_front() {
            was_freed |= (start..end).contains(&blkid);
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
        Ok(was_freed)
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
        if ctx.policy.counts_sectors && dnode.used == 0 {
            dnode.flags &= !dnode::FLAG_USED_BYTES;
        }
        match &closed.dirty.spill {
            Spill::Kept => {}
            Spill::Gone => self.tree.set_spill(ctx, None)?,
            Spill::Set(draft) => self.tree.set_spill(ctx, Some(draft))?,
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
        // Held until the table is updated. Otherwise an evicted object could be loaded again in its old state.
        let mut held = Vec::new();
        for Done { syncing, after } in self.done {
            if after.is_none() {
                gone.push((syncing.object.id(), syncing.closed.head.slots));
            }
            syncing.object.synced_as(after);
            held.push(syncing.object);
            // Readers may still hold the records, or all of them.
            if let Some(closed) = Arc::into_inner(syncing.closed) {
                let buffers = objset.buffers();
                closed.dirty.blocks.into_values().for_each(|draft| buffers.give(draft.into_record()));
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

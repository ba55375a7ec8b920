//! Taking, renaming, holding and destroying snapshots.
//!
//! Source: docs/format/06-mos-dsl.md §7.3, §9.2, §9.3, §10.2.

use std::collections::BTreeSet;

use dmu::zap;
use format::dsl_dataset::{self, DslDataset};
use format::features;
use format::zap::{Value, int_key};
use format::{ObjectId, ObjectType, Txg};

use crate::change::{Change, Effect};
use crate::create::new_guids;
use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::space::{Category, add_space};
use crate::view::View;
use crate::{
    Error, Result, available, bookmark, bpobj, deadlist, frees, holds, info, promises, props, tree, values,
    version,
};

/// When the snapshots of a directory's head last changed: seconds since 1970, nanoseconds.
const CHANGED: &[u8] = b"com.ixsystems:snapshots_changed";

/// When the snapshots of a directory's head last changed, in seconds since 1970 and nanoseconds, where that is known.
pub fn last_changed(mos: &Mos, dir: ObjectId) -> Result<Option<[u64; 2]>> {
    let object = mos.object(dir)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let time = zap::lookup(&object, CHANGED)?.map(|value| value.to_u64s());
    Ok(time.and_then(|words| <[u64; 2]>::try_from(words).ok()))
}

/// Estimated number of DSL objects that a snapshot changes.
pub const SNAPSHOT_OBJECTS: u64 = 3;

/// Whether the snapshot `name` can be taken in `txg`.
pub fn may_snapshot(view: &View<'_>, name: &str, txg: Txg) -> Result<()> {
    let (fs, leaf) = name.split_once('@').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
    let info = info::info(view, fs)?;
    let head = &info.phys;
    if zap::lookup(&*view.mos.object(head.snapnames_zap)?, leaf.as_bytes())?.is_some() {
        return Err(Error::Exists(name.to_owned()));
    }
    if head.flags & dsl_dataset::INCONSISTENT != 0 {
        return Err(Error::DatasetBusy(fs.to_owned()));
    }
    available::check_room(view, SNAPSHOT_OBJECTS)?;
    // To keep a reservation, the head's unique bytes will be needed twice.
    let own = promises::own(view.mos, info.dir_id, info.id)?;
    if own.unique.min(own.refreservation) > available::dir_available(view, info.dir_id)? {
        return Err(Error::NoSpace);
    }
    // Blocks are assigned to snapshots by their birth txg, so a head can have only one snapshot per txg.
    if head.prev_snap_txg == txg { Err(Error::SameTxg) } else { Ok(()) }
}

/// Whether a received head can get the snapshot `name`, whose leaf must be free.
pub(crate) fn may_snapshot_received(mos: &Mos, head: ObjectId, name: &str) -> Result<()> {
    let (_, leaf) = name.split_once('@').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
    match zap::lookup(&*mos.object(mos.dataset(head)?.snapnames_zap)?, leaf.as_bytes())? {
        Some(_) => Err(Error::Exists(name.to_owned())),
        None => Ok(()),
    }
}

/// Whether the snapshot `name` can be destroyed.
pub fn may_destroy(view: &View<'_>, name: &str, is_used: &dyn Fn(ObjectId) -> bool) -> Result<()> {
    let info = info::info(view, name)?;
    if !info.is_snapshot() {
        return Err(Error::NoDataset(name.to_owned()));
    }
    if holds::hold_count(view.mos, &info.phys)? > 0 {
        return Err(Error::Held(name.to_owned()));
    }
    if info.phys.num_children > 1 {
        return Err(Error::HasClones(name.to_owned()));
    }
    if is_used(info.id) {
        return Err(Error::DatasetBusy(name.to_owned()));
    }
    Ok(())
}

impl Change<'_> {
    /// Takes the snapshot `name` (`pool/fs@snap`) of a head as it is written in this txg.
    pub fn snapshot(&mut self, name: &str, local: &[(String, props::Value)]) -> Result<()> {
        may_snapshot(&self.view, name, self.txg())?;
        self.take_snapshot(name, local)
    }

    /// As [`Change::snapshot`], after the checks.
    pub(crate) fn take_snapshot(&mut self, name: &str, local: &[(String, props::Value)]) -> Result<()> {
        let mos = self.mos();
        let (fs, leaf) = name.split_once('@').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
        let dir_id = tree::dir_of(mos, &self.view.pool, fs)?;
        let dir = mos.dir(dir_id)?;
        let head_id = dir.head_dataset;
        let mut head = mos.dataset(head_id)?;
        let names = mos.object(head.snapnames_zap)?;
        let (fsid_guid, guid) = new_guids(mos);
        let snap = DslDataset {
            next_snap: head_id,
            num_children: 1,
            creation_time: mos.now(),
            creation_txg: self.txg(),
            unique_bytes: 0,
            fsid_guid,
            guid,
            snapnames_zap: ObjectId(0),
            props: ObjectId(0),
            userrefs: ObjectId(0),
            next_clones: ObjectId(0),
            pad: [0; 5],
            ..head
        };
        let id = self.create_dataset_object(&snap)?;
        self.effects.push(Effect::Snapshotted { head: head_id, snapshot: id });
        self.copy_marks(head_id, id)?;
        self.number_iv_set(dir_id, id)?;
        self.replace_next(head.prev_snap, head_id, id)?;
        let mut keys = deadlist::keys(mos, &head)?;
        keys.push(head.prev_snap_txg);
        keys.extend(bookmark::keys(mos, head_id, head.prev_snap_txg)?);
        keys.sort_unstable();
        keys.dedup();
        let fresh = deadlist::create(mos, &mut *self.features, self.tx, &keys)?;
        // To keep a reservation, the head's unique bytes are now needed twice.
        self.keep_promise(dir_id, head.unique_bytes, 0)?;
        head.deadlist = fresh;
        (head.prev_snap, head.prev_snap_txg) = (id, self.txg());
        head.unique_bytes = 0;
        if mos.version() >= version::UNIQUE {
            head.flags |= dsl_dataset::UNIQUE_ACCURATE;
        }
        mos.put_dataset(self.tx, head_id, &head)?;
        zap::insert(&names, self.tx, leaf.as_bytes(), &Value::from_u64(id.0))?;
        for (name, value) in local {
            self.set_snapshot_property(id, name, Some(value))?;
        }
        self.snapshots_changed(dir_id)?;
        self.count_snapshot(dir_id, leaf, 1)
    }

    /// Stores the time of the last change of a directory's snapshots, if the pool supports it.
    pub fn snapshots_changed(&mut self, dir: ObjectId) -> Result<()> {
        if !self.enables(&features::EXTENSIBLE_DATASET) {
            return Ok(());
        }
        let mos = self.mos();
        self.zapify(dir)?;
        let (seconds, nanoseconds) = mos.host.clock.now();
        let time = Value::from_u64s(&[seconds, nanoseconds.into()]);
        zap::update(&mos.object(dir)?, self.tx, CHANGED, &time)?;
        Ok(())
    }

    /// Charges a directory with what the `refreservation` of its head keeps free for it, when the bytes that only
    /// the head refers to change.
    pub(crate) fn keep_promise(
        &mut self,
        dir: ObjectId,
        unique_before: u64,
        unique_after: u64,
    ) -> Result<()> {
        let mos = self.mos();
        let promised = values::number_here(mos, mos.dir(dir)?.props_zap, "refreservation")?.unwrap_or(0);
        let unused = |unique: u64| promised.saturating_sub(unique) as i64;
        let used = unused(unique_after) - unused(unique_before);
        add_space(mos, self.tx, dir, Category::Reserved, Sizes { used, ..Sizes::default() })
    }

    /// Replaces the successor `old` of the snapshot `prev` by `new`.
    fn replace_next(&mut self, prev: ObjectId, old: ObjectId, new: ObjectId) -> Result<()> {
        let mos = self.mos();
        if prev.0 == 0 {
            return Ok(());
        }
        let mut before = mos.dataset(prev)?;
        if before.next_snap == old {
            before.next_snap = new;
            return mos.put_dataset(self.tx, prev, &before);
        }
        if before.next_clones.0 == 0 {
            // Snapshots know their clones from pool version 11 on.
            return Ok(());
        }
        let clones = mos.object(before.next_clones)?;
        zap::remove(&clones, self.tx, int_key(old.0).as_bytes())?;
        Ok(zap::insert(&clones, self.tx, int_key(new.0).as_bytes(), &Value::from_u64(new.0))?)
    }

    /// Destroys a snapshot that has neither clones nor holds. With `defer`, a snapshot that has some is destroyed with the
    /// last of them.
    pub fn destroy_snapshot(&mut self, name: &str, defer: bool) -> Result<()> {
        let mos = self.mos();
        let id = tree::snapshot(mos, &self.view.pool, name)?;
        let mut snap = mos.dataset(id)?;
        let held = holds::hold_count(mos, &snap)? > 0;
        if defer && (held || snap.num_children > 1) {
            snap.flags |= dsl_dataset::DEFER_DESTROY;
            return mos.put_dataset(self.tx, id, &snap);
        }
        if held {
            return Err(Error::Held(name.to_owned()));
        }
        if snap.num_children > 1 {
            return Err(Error::HasClones(name.to_owned()));
        }
        self.destroy_snapshot_object(id, &snap, name)
    }

    /// Destroys a snapshot whose deferred destruction is due. Returns whether it was.
    pub(crate) fn destroy_if_deferred(&mut self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let snap = mos.dataset(id)?;
        let held = holds::hold_count(mos, &snap)? > 0;
        if snap.flags & dsl_dataset::DEFER_DESTROY == 0 || held || snap.num_children > 1 {
            return Ok(());
        }
        let name = self.snapshot_name(&snap, id)?;
        self.destroy_snapshot_object(id, &snap, &name)
    }

    /// The name of a snapshot within its file system.
    pub(super) fn snapshot_leaf(&self, snap: &DslDataset, id: ObjectId) -> Result<String> {
        let mos = self.mos();
        let names = mos.dataset(mos.dir(snap.dir)?.head_dataset)?.snapnames_zap;
        for entry in zap::entries(&*mos.object(names)?) {
            let entry = entry?;
            if entry.number() == Some(id.0) {
                return Ok(String::from_utf8_lossy(&entry.name).into_owned());
            }
        }
        Err(Error::corrupt(names)(format::Corrupt::new("snapshot without a name", id.0)))
    }

    fn destroy_snapshot_object(&mut self, id: ObjectId, snap: &DslDataset, name: &str) -> Result<()> {
        let mos = self.mos();
        self.let_go_of(id, name)?;
        let dir_id = snap.dir;
        let head_id = mos.dir(dir_id)?.head_dataset;
        let next_id = snap.next_snap;
        self.effects.push(Effect::Destroyed { id, next: Some(next_id) });
        let mut next = mos.dataset(next_id)?;
        self.unmark_dataset(id)?;
        let keep_key = self.bookmarks_outlive(head_id, snap, &next)?;
        self.replace_next(snap.prev_snap, id, next_id)?;
        (next.prev_snap, next.prev_snap_txg) = (snap.prev_snap, snap.prev_snap_txg);
        if snap.prev_snap.0 != 0 {
            let mut prev = mos.dataset(snap.prev_snap)?;
            if prev.next_snap == next_id {
                let gained =
                    deadlist::space_between(mos, next.deadlist, prev.prev_snap_txg, snap.prev_snap_txg)?;
                prev.unique_bytes = prev.unique_bytes.wrapping_add_signed(gained.used);
                mos.put_dataset(self.tx, snap.prev_snap, &prev)?;
            }
        }
        self.settle_deadlists(dir_id, snap, &mut next)?;
        let features = &mut *self.features;
        if next.is_snapshot() {
            // The blocks are counted while the head's deadlist still distinguishes them.
            let after = mos.dataset(next.next_snap)?;
            let gained = deadlist::space_between(mos, after.deadlist, snap.prev_snap_txg, snap.creation_txg)?;
            next.unique_bytes = next.unique_bytes.wrapping_add_signed(gained.used);
            if !keep_key {
                let head = mos.dataset(head_id)?;
                deadlist::remove_key(mos, features, self.tx, head.deadlist, snap.creation_txg)?;
            }
        }
        mos.put_dataset(self.tx, next_id, &next)?;
        if !keep_key {
            self.remove_key_in_clones(dir_id, snap.creation_txg)?;
        }
        if !next.is_snapshot() {
            self.recount_unique(dir_id, next_id)?;
        }
        let leaf = name.split_once('@').map_or(name, |(_, leaf)| leaf);
        zap::remove(&mos.object(mos.dataset(head_id)?.snapnames_zap)?, self.tx, leaf.as_bytes())?;
        for object in [snap.next_clones, snap.props, snap.userrefs, id] {
            if object.0 != 0 {
                mos.free(self.tx, object)?;
            }
        }
        self.snapshots_changed(dir_id)?;
        self.count_snapshot(dir_id, leaf, -1)
    }

    /// Frees the blocks that only the snapshot `snap` uses, and moves the rest of its deadlist to `next`.
    fn settle_deadlists(&mut self, dir: ObjectId, snap: &DslDataset, next: &mut DslDataset) -> Result<()> {
        let mos = self.mos();
        if !deadlist::is_plain(mos, next.deadlist)? {
            self.free_own_blocks(dir, next, snap.prev_snap_txg)?;
            let features = &mut *self.features;
            return deadlist::merge(mos, features, self.tx, next.deadlist, snap.deadlist);
        }
        let (mut kept, mut freed) = (Vec::new(), Vec::new());
        bpobj::for_each(mos, next.deadlist, &mut |ptr| {
            let sizes = Sizes::of(self.view.storage.vdevs(), ptr);
            let is_shared = ptr.accounting_birth() <= snap.prev_snap_txg;
            (if is_shared { &mut kept } else { &mut freed }).push((*ptr, sizes));
            Ok(())
        })?;
        let sum = freed.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        deadlist::insert(mos, &mut *self.features, self.tx, snap.deadlist, &kept)?;
        bpobj::free(mos, self.tx, next.deadlist)?;
        next.deadlist = snap.deadlist;
        self.effects.push(Effect::Freed(freed.into_iter().map(|(ptr, _)| ptr).collect()));
        add_space(self.mos(), self.tx, dir, Category::Snap, -sum)
    }

    /// Refuses to remove the last of `left` holds and clones of a deferred snapshot that is in use.
    pub(super) fn check_deferred(&self, id: ObjectId, left: u64) -> Result<()> {
        let mos = self.mos();
        let snap = mos.dataset(id)?;
        // One child is the next snapshot, or the head.
        let all = holds::hold_count(mos, &snap)? + snap.num_children.saturating_sub(1);
        if snap.flags & dsl_dataset::DEFER_DESTROY != 0 && all <= left {
            self.check_unused(id, &self.snapshot_name(&snap, id)?)?;
        }
        Ok(())
    }

    fn snapshot_name(&self, snap: &DslDataset, id: ObjectId) -> Result<String> {
        Ok(format!("{}@{}", tree::name_of(&self.view, snap.dir)?, self.snapshot_leaf(snap, id)?))
    }

    /// Moves the blocks that only the snapshot before `next` uses to the list of blocks to free.
    fn free_own_blocks(&mut self, dir: ObjectId, next: &DslDataset, since: Txg) -> Result<()> {
        let mos = self.mos();
        let list = mos.need("free_bpobj")?;
        let features = &mut *self.features;
        let (dead, freed) = deadlist::take_from(mos, features, self.tx, next.deadlist, since)?;
        dead.into_iter().try_for_each(|dead| bpobj::attach(mos, self.tx, list, dead))?;
        add_space(mos, self.tx, dir, Category::Snap, -freed)?;
        let waiting = frees::dir(mos)?;
        add_space(mos, self.tx, waiting, Category::Head, freed)?;
        self.effects.push(Effect::Waiting);
        Ok(())
    }

    /// Removes `key` from the deadlists of all clones that descend from `dir`.
    pub(super) fn remove_key_in_clones(&mut self, dir: ObjectId, key: Txg) -> Result<()> {
        let mos = self.mos();
        let (mut dirs, mut met) = (vec![dir], BTreeSet::new());
        while let Some(dir) = dirs.pop() {
            if !met.insert(dir) {
                return Err(Error::corrupt(dir)(format::Corrupt::new("clone of itself", dir.0)));
            }
            let clones = mos.dir(dir)?.clones;
            if clones.0 == 0 {
                continue;
            }
            for entry in zap::entries(&*mos.object(clones)?).collect::<Vec<_>>() {
                let Some(head) = entry?.number() else { continue };
                let head = mos.dataset(ObjectId(head))?;
                let features = &mut *self.features;
                deadlist::remove_key(mos, features, self.tx, head.deadlist, key)?;
                dirs.push(head.dir);
            }
        }
        Ok(())
    }

    /// Unique bytes of the head, from the sums of the snapshot before it (§8.2).
    pub(crate) fn recount_unique(&mut self, dir_id: ObjectId, head_id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let mut head = mos.dataset(head_id)?;
        let before = if head.prev_snap.0 == 0 { 0 } else { mos.dataset(head.prev_snap)?.referenced_bytes };
        let shared = before.wrapping_add_signed(-deadlist::header(mos, head.deadlist)?.used);
        let unique = head.referenced_bytes.wrapping_sub(shared);
        let unique_before = std::mem::replace(&mut head.unique_bytes, unique);
        mos.put_dataset(self.tx, head_id, &head)?;
        self.keep_promise(dir_id, unique_before, unique)
    }

    /// Renames the snapshot `from` (`pool/fs@a`) to `leaf`.
    pub fn rename_snapshot(&mut self, from: &str, leaf: &str) -> Result<()> {
        let mos = self.mos();
        let pool = &self.view.pool;
        let id = tree::snapshot(mos, pool, from)?;
        let (fs, old) = from.split_once('@').expect("a snapshot's name has an @");
        let dir = tree::dir_of(mos, pool, fs)?;
        let head = mos.dir(dir)?.head_dataset;
        let names = mos.object(mos.dataset(head)?.snapnames_zap)?;
        if zap::lookup(&names, leaf.as_bytes())?.is_some() {
            return Err(Error::Exists(format!("{fs}@{leaf}")));
        }
        zap::remove(&names, self.tx, old.as_bytes())?;
        zap::insert(&names, self.tx, leaf.as_bytes(), &Value::from_u64(id.0))?;
        self.snapshots_changed(dir)?;
        self.effects.push(Effect::Renamed { id, name: format!("{fs}@{leaf}") });
        Ok(())
    }

    /// Stores a property of a snapshot, or removes it.
    pub fn set_snapshot_property(
        &mut self,
        id: ObjectId,
        name: &str,
        value: Option<&props::Value>,
    ) -> Result<()> {
        let mos = self.mos();
        if mos.version() < version::SNAPSHOT_PROPERTIES && value.is_some() {
            return Err(Error::Property(props::PropertyError::NeedsFeature));
        }
        let mut snap = mos.dataset(id)?;
        match value {
            Some(value) => {
                if snap.props.0 == 0 {
                    snap.props = mos.create_zap(self.tx, ObjectType::DSL_PROPS, 0)?.id();
                    mos.put_dataset(self.tx, id, &snap)?;
                }
                let object = mos.object(snap.props)?;
                Ok(zap::update(&object, self.tx, name.as_bytes(), &values::stored(value))?)
            }
            None if snap.props.0 == 0 => Ok(()),
            None => match zap::remove(&mos.object(snap.props)?, self.tx, name.as_bytes()) {
                Ok(()) | Err(dmu::Error::NoEntry) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }
}

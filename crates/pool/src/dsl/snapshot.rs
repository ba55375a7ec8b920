//! Taking, renaming, holding and destroying snapshots.
//!
//! Source: docs/format/06-mos-dsl.md §7.3, §9.2, §9.3, §10.2.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use dmu::zap;
use format::dsl_dataset::{self, DslDataset};
use format::features;
use format::zap::{Value, int_key};
use format::{ObjectId, ObjectType, Txg};

use super::create::{new_guids, now};
use super::{Category, add_space, bookmark, deadlist, lookup, properties};
use crate::dataset::Dataset;
use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::sync::Syncing;
use crate::{Error, Result, bpobj, props, version};

/// When the snapshots of a directory's head last changed: seconds since 1970, nanoseconds.
const CHANGED: &[u8] = b"com.ixsystems:snapshots_changed";

/// When the snapshots of a directory's head last changed, in seconds since 1970 and nanoseconds, where that is known.
pub(crate) fn last_changed(mos: &Mos, dir: ObjectId) -> Result<Option<[u64; 2]>> {
    let object = mos.object(dir)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let time = zap::lookup(&object, CHANGED)?.map(|value| value.to_u64s());
    Ok(time.and_then(|words| <[u64; 2]>::try_from(words).ok()))
}

impl Syncing<'_> {
    /// Takes the snapshot `name` (`pool/fs@snap`) of a head as it is written in this txg.
    pub(crate) fn snapshot(&mut self, name: &str, local: &[(String, props::Value)]) -> Result<()> {
        lookup::may_snapshot(self.inner, name, self.txg)?;
        self.take_snapshot(name, local)
    }

    /// As [`Syncing::snapshot`], of a head that was found to allow it.
    pub(crate) fn take_snapshot(&mut self, name: &str, local: &[(String, props::Value)]) -> Result<()> {
        let mos = self.mos();
        let (fs, leaf) = name.split_once('@').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
        let dir_id = lookup::dir_of(mos, &self.state.config.name, fs)?;
        let dir = mos.dir(dir_id)?;
        let head_id = dir.head_dataset;
        let mut head = mos.dataset(head_id)?;
        let names = mos.object(head.snapnames_zap)?;
        let (fsid_guid, guid) = new_guids(mos);
        let snap = DslDataset {
            next_snap: head_id,
            num_children: 1,
            creation_time: now(mos),
            creation_txg: self.txg,
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
        self.copy_marks(head_id, id)?;
        self.replace_next(head.prev_snap, head_id, id)?;
        let mut keys = deadlist::keys(mos, &head)?;
        keys.push(head.prev_snap_txg);
        keys.extend(bookmark::keys(mos, head_id, head.prev_snap_txg)?);
        keys.sort_unstable();
        keys.dedup();
        let fresh = deadlist::create(mos, &mut self.state.features, &self.tx, &keys)?;
        // What was the head's alone is now needed twice if a reservation is to keep its promise.
        self.keep_promise(dir_id, head.unique_bytes, 0)?;
        head.deadlist = fresh;
        (head.prev_snap, head.prev_snap_txg) = (id, self.txg);
        head.unique_bytes = 0;
        if mos.version() >= version::UNIQUE {
            head.flags |= dsl_dataset::UNIQUE_ACCURATE;
        }
        mos.put_dataset(&self.tx, head_id, &head)?;
        zap::insert(&names, &self.tx, leaf.as_bytes(), &Value::from_u64(id.0))?;
        for (name, value) in local {
            self.set_snapshot_property(id, name, Some(value))?;
        }
        self.snapshots_changed(dir_id)?;
        self.count_snapshot(dir_id, leaf, 1)
    }

    /// Notes when the snapshots of a directory's head last changed, where a pool has room for that.
    pub(crate) fn snapshots_changed(&mut self, dir: ObjectId) -> Result<()> {
        if !self.state.features.as_ref().is_some_and(|f| f.is_enabled(&features::EXTENSIBLE_DATASET)) {
            return Ok(());
        }
        self.zapify(dir)?;
        let (seconds, nanoseconds) = self.inner.host.clock.now();
        let time = Value::from_u64s(&[seconds, nanoseconds.into()]);
        zap::update(&self.mos().object(dir)?, &self.tx, CHANGED, &time)?;
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
        let promised = properties::number_here(mos, mos.dir(dir)?.props_zap, "refreservation")?.unwrap_or(0);
        let unused = |unique: u64| promised.saturating_sub(unique) as i64;
        let used = unused(unique_after) - unused(unique_before);
        add_space(mos, &self.tx, dir, Category::Reserved, Sizes { used, ..Sizes::default() })
    }

    /// Marks `to` with the per-dataset features that `from` is marked with.
    pub(crate) fn copy_marks(&mut self, from: ObjectId, to: ObjectId) -> Result<()> {
        let object = self.mos().object(from)?;
        if object.object_type() != ObjectType::ZAP_METADATA {
            return Ok(());
        }
        for entry in zap::entries(&object).collect::<Vec<_>>() {
            let name = String::from_utf8_lossy(&entry?.name).into_owned();
            if let Some(feature) = features::by_guid(&name).filter(|f| f.per_dataset) {
                self.mark_dataset(to, feature)?;
            }
        }
        Ok(())
    }

    /// In the books of the snapshot `prev`: what came after it as `old` is now `new`.
    fn replace_next(&mut self, prev: ObjectId, old: ObjectId, new: ObjectId) -> Result<()> {
        let mos = self.mos();
        if prev.0 == 0 {
            return Ok(());
        }
        let mut before = mos.dataset(prev)?;
        if before.next_snap == old {
            before.next_snap = new;
            return mos.put_dataset(&self.tx, prev, &before);
        }
        if before.next_clones.0 == 0 {
            // Snapshots know their clones from pool version 11 on.
            return Ok(());
        }
        let clones = mos.object(before.next_clones)?;
        zap::remove(&clones, &self.tx, int_key(old.0).as_bytes())?;
        Ok(zap::insert(&clones, &self.tx, int_key(new.0).as_bytes(), &Value::from_u64(new.0))?)
    }

    /// Destroys a snapshot that has neither clones nor holds. With `defer`, one that has any goes with the last.
    pub(crate) fn destroy_snapshot(&mut self, name: &str, defer: bool) -> Result<()> {
        let mos = self.mos();
        let id = lookup::snapshot(mos, &self.state.config.name, name)?;
        let mut snap = mos.dataset(id)?;
        let held = lookup::hold_count(mos, &snap)? > 0;
        if defer && (held || snap.num_children > 1) {
            snap.flags |= dsl_dataset::DEFER_DESTROY;
            return mos.put_dataset(&self.tx, id, &snap);
        }
        if held {
            return Err(Error::Held(name.to_owned()));
        }
        if snap.num_children > 1 {
            return Err(Error::HasClones(name.to_owned()));
        }
        self.destroy_snapshot_object(id, &snap, name)
    }

    /// Whether a deferred destruction of the snapshot is due; then it is carried out.
    pub(crate) fn destroy_if_deferred(&mut self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let snap = mos.dataset(id)?;
        let held = lookup::hold_count(mos, &snap)? > 0;
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
                mos.put_dataset(&self.tx, snap.prev_snap, &prev)?;
            }
        }
        self.settle_deadlists(dir_id, snap, &mut next)?;
        let features = &mut self.state.features;
        if next.is_snapshot() {
            // Counted while the head's deadlist still tells these blocks apart.
            let after = mos.dataset(next.next_snap)?;
            let gained = deadlist::space_between(mos, after.deadlist, snap.prev_snap_txg, snap.creation_txg)?;
            next.unique_bytes = next.unique_bytes.wrapping_add_signed(gained.used);
            if !keep_key {
                let head = mos.dataset(head_id)?;
                deadlist::remove_key(mos, features, &self.tx, head.deadlist, snap.creation_txg)?;
            }
        }
        mos.put_dataset(&self.tx, next_id, &next)?;
        if !keep_key {
            self.remove_key_in_clones(dir_id, snap.creation_txg)?;
        }
        if !next.is_snapshot() {
            self.recount_unique(dir_id, next_id)?;
        }
        let leaf = name.split_once('@').map_or(name, |(_, leaf)| leaf);
        zap::remove(&mos.object(mos.dataset(head_id)?.snapnames_zap)?, &self.tx, leaf.as_bytes())?;
        for object in [snap.next_clones, snap.props, snap.userrefs, id] {
            if object.0 != 0 {
                mos.free(&self.tx, object)?;
            }
        }
        self.snapshots_changed(dir_id)?;
        self.count_snapshot(dir_id, leaf, -1)
    }

    /// Frees what only the snapshot `snap` had, and gives what it shares with those before it to `next`.
    fn settle_deadlists(&mut self, dir: ObjectId, snap: &DslDataset, next: &mut DslDataset) -> Result<()> {
        let mos = self.mos();
        if !deadlist::is_plain(mos, next.deadlist)? {
            self.free_own_blocks(dir, next, snap.prev_snap_txg)?;
            let features = &mut self.state.features;
            return deadlist::merge(mos, features, &self.tx, next.deadlist, snap.deadlist);
        }
        let (mut kept, mut freed) = (Vec::new(), Vec::new());
        bpobj::for_each(mos, next.deadlist, &mut |ptr| {
            let sizes = Sizes::of(self.inner.storage.vdevs(), ptr);
            let is_shared = ptr.accounting_birth() <= snap.prev_snap_txg;
            (if is_shared { &mut kept } else { &mut freed }).push((*ptr, sizes));
            Ok(())
        })?;
        let sum = freed.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        deadlist::insert(mos, &mut self.state.features, &self.tx, snap.deadlist, &kept)?;
        bpobj::free(mos, &self.tx, next.deadlist)?;
        next.deadlist = snap.deadlist;
        for (ptr, _) in &freed {
            self.free_block(ptr)?;
        }
        add_space(self.mos(), &self.tx, dir, Category::Snap, -sum)
    }

    /// Takes an open dataset out of the table, unless somebody uses it.
    pub(crate) fn let_go_of(&mut self, id: ObjectId, name: &str) -> Result<()> {
        if let Some(dataset) = self.unused(id, name)? {
            dataset.destroyed.store(true, std::sync::atomic::Ordering::Release);
            self.inner.datasets().remove(&id);
        }
        Ok(())
    }

    /// The dataset if it is open, but nobody uses it.
    fn unused(&self, id: ObjectId, name: &str) -> Result<Option<Arc<Dataset>>> {
        let open = self.inner.datasets().get(&id).and_then(Weak::upgrade);
        // One handle is the one just made, one may be that of its log; any other is a user.
        let own = 1 + usize::from(self.inner.logged().contains_key(&id));
        match open {
            Some(dataset) if Arc::strong_count(&dataset) > own => Err(Error::DatasetBusy(name.to_owned())),
            open => Ok(open),
        }
    }

    /// Refuses what would be the end of a deferred snapshot that somebody uses: the last of `left` holds and clones goes.
    pub(super) fn check_deferred(&self, id: ObjectId, left: u64) -> Result<()> {
        let mos = self.mos();
        let snap = mos.dataset(id)?;
        // One child is the next snapshot, or the head.
        let all = lookup::hold_count(mos, &snap)? + snap.num_children.saturating_sub(1);
        if snap.flags & dsl_dataset::DEFER_DESTROY != 0 && all <= left {
            self.unused(id, &self.snapshot_name(&snap, id)?)?;
        }
        Ok(())
    }

    fn snapshot_name(&self, snap: &DslDataset, id: ObjectId) -> Result<String> {
        Ok(format!("{}@{}", lookup::name_of(self.inner, snap.dir)?, self.snapshot_leaf(snap, id)?))
    }

    /// Hands the blocks that only the snapshot before `next` had to the list of those to be freed.
    fn free_own_blocks(&mut self, dir: ObjectId, next: &DslDataset, since: Txg) -> Result<()> {
        let mos = self.mos();
        let list = mos.need("free_bpobj")?;
        let features = &mut self.state.features;
        let freed = deadlist::move_from(mos, features, &self.tx, next.deadlist, since, list)?;
        add_space(mos, &self.tx, dir, Category::Snap, -freed)?;
        let waiting = self.free_dir()?;
        add_space(mos, &self.tx, waiting, Category::Head, freed)?;
        self.state.freeing = true;
        Ok(())
    }

    /// No deadlist of a clone's head that descends from `dir` need tell blocks apart by `key` any more.
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
                let features = &mut self.state.features;
                deadlist::remove_key(mos, features, &self.tx, head.deadlist, key)?;
                dirs.push(head.dir);
            }
        }
        Ok(())
    }

    /// What only the head refers to, from the sums of the snapshot before it (§8.2).
    pub(crate) fn recount_unique(&mut self, dir_id: ObjectId, head_id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let mut head = mos.dataset(head_id)?;
        let before = if head.prev_snap.0 == 0 { 0 } else { mos.dataset(head.prev_snap)?.referenced_bytes };
        let shared = before.wrapping_add_signed(-deadlist::header(mos, head.deadlist)?.used);
        let unique = head.referenced_bytes.wrapping_sub(shared);
        let unique_before = std::mem::replace(&mut head.unique_bytes, unique);
        mos.put_dataset(&self.tx, head_id, &head)?;
        self.keep_promise(dir_id, unique_before, unique)
    }

    /// Renames the snapshot `from` (`pool/fs@a`) to `leaf`.
    pub(crate) fn rename_snapshot(&mut self, from: &str, leaf: &str) -> Result<()> {
        let mos = self.mos();
        let pool = &self.state.config.name;
        let id = lookup::snapshot(mos, pool, from)?;
        let (fs, old) = from.split_once('@').expect("a snapshot's name has an @");
        let dir = lookup::dir_of(mos, pool, fs)?;
        let head = mos.dir(dir)?.head_dataset;
        let names = mos.object(mos.dataset(head)?.snapnames_zap)?;
        if zap::lookup(&names, leaf.as_bytes())?.is_some() {
            return Err(Error::Exists(format!("{fs}@{leaf}")));
        }
        zap::remove(&names, &self.tx, old.as_bytes())?;
        zap::insert(&names, &self.tx, leaf.as_bytes(), &Value::from_u64(id.0))?;
        self.snapshots_changed(dir)?;
        let open = self.inner.datasets().get(&id).and_then(std::sync::Weak::upgrade);
        if let Some(dataset) = open {
            dataset.rename(format!("{fs}@{leaf}"));
        }
        Ok(())
    }

    /// Stores a property of a snapshot, or removes it.
    pub(crate) fn set_snapshot_property(
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
                    snap.props = mos.create_zap(&self.tx, ObjectType::DSL_PROPS, 0)?.id();
                    mos.put_dataset(&self.tx, id, &snap)?;
                }
                let object = mos.object(snap.props)?;
                Ok(zap::update(&object, &self.tx, name.as_bytes(), &properties::stored(value))?)
            }
            None if snap.props.0 == 0 => Ok(()),
            None => match zap::remove(&mos.object(snap.props)?, &self.tx, name.as_bytes()) {
                Ok(()) | Err(dmu::Error::NoEntry) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Holds a snapshot under `tag`.
    pub(crate) fn hold(&mut self, name: &str, tag: &str) -> Result<()> {
        let mos = self.mos();
        version::check(mos.version(), version::HOLDS)?;
        let id = lookup::snapshot(mos, &self.state.config.name, name)?;
        let mut snap = mos.dataset(id)?;
        if snap.userrefs.0 == 0 {
            snap.userrefs = mos.create_zap(&self.tx, ObjectType::USERREFS, 0)?.id();
            mos.put_dataset(&self.tx, id, &snap)?;
        }
        let refs = mos.object(snap.userrefs)?;
        if zap::lookup(&refs, tag.as_bytes())?.is_some() {
            return Err(Error::Exists(tag.to_owned()));
        }
        Ok(zap::insert(&refs, &self.tx, tag.as_bytes(), &Value::from_u64(now(mos)))?)
    }

    /// Lets a snapshot go that was held under `tag`.
    pub(crate) fn release(&mut self, name: &str, tag: &str) -> Result<()> {
        let mos = self.mos();
        let id = lookup::snapshot(mos, &self.state.config.name, name)?;
        let snap = mos.dataset(id)?;
        let missing = || Error::NoHold(tag.to_owned());
        if snap.userrefs.0 == 0 {
            return Err(missing());
        }
        let refs = mos.object(snap.userrefs)?;
        if zap::lookup(&refs, tag.as_bytes())?.is_none() {
            return Err(missing());
        }
        self.check_deferred(id, 1)?;
        zap::remove(&refs, &self.tx, tag.as_bytes())?;
        self.destroy_if_deferred(id)
    }
}

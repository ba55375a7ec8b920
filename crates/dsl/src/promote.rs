//! Promoting a clone: it takes over the snapshots that it shares with its origin's dataset.
//!
//! Source: docs/format/06-mos-dsl.md §9.6.

use std::collections::BTreeMap;

use dmu::zap;
use format::dsl_dataset::{DslDataset, NO_PROMOTE};
use format::zap::{Value, int_key};
use format::{ObjectId, ObjectType, Txg};

use crate::change::{Change, Effect};
use crate::room::Reserve;
use crate::sizes::Sizes;
use crate::space::{Category, add_space};
use crate::{Error, Result, available, deadlist, tree, version};

/// Estimated number of DSL objects that a promotion changes, besides one per snapshot.
const OBJECTS: u64 = 4;

/// A clone and the dataset from which it was cloned.
struct Lines {
    /// The clone's directory and head.
    clone: (ObjectId, ObjectId),
    /// The directory of the dataset from which it was cloned.
    parent: (ObjectId, ObjectId),
    /// The snapshot that it was cloned from.
    origin: ObjectId,
    /// The origin of that dataset; 0 in old pools.
    root: ObjectId,
    /// Snapshots that move, newest (the origin) first: object and leaf.
    moving: Vec<(ObjectId, String)>,
}

impl Change<'_> {
    /// Exchanges the roles of the clone `name` and its origin's dataset.
    pub fn promote(&mut self, name: &str) -> Result<()> {
        let lines = self.lines_of(name)?;
        self.check_promote(name, &lines)?;
        self.promote_keys(lines.clone.0, lines.parent.0)?;
        // Neither livelist has the blocks that were written since its new origin.
        self.drop_livelist(lines.clone.0)?;
        self.drop_livelist(lines.parent.0)?;
        self.move_charges(&lines)?;
        let follower = self.swap_branches(&lines)?;
        self.move_snapshots(&lines, follower)?;
        self.promote_bookmarks(lines.parent.1, lines.clone.1, lines.origin)?;
        let renamed = lines.moving.into_iter();
        self.effects.extend(renamed.map(|(id, leaf)| Effect::Renamed { id, name: format!("{name}@{leaf}") }));
        Ok(())
    }

    fn lines_of(&self, name: &str) -> Result<Lines> {
        let mos = self.mos();
        let dir_id = tree::dir_of(mos, &self.view.pool, name)?;
        let dir = mos.dir(dir_id)?;
        let not_a_clone = || Error::NotAClone(name.to_owned());
        if dir.origin.0 == 0 {
            return Err(not_a_clone());
        }
        let parent_id = mos.dataset(dir.origin)?.dir;
        if tree::child(mos, tree::root_dir(mos)?, "$ORIGIN")? == Some(parent_id) {
            return Err(not_a_clone());
        }
        let parent = mos.dir(parent_id)?;
        let mut names = BTreeMap::new();
        for entry in zap::entries(&*mos.object(mos.dataset(parent.head_dataset)?.snapnames_zap)?) {
            let entry = entry?;
            if let Some(id) = entry.number() {
                names.insert(ObjectId(id), String::from_utf8_lossy(&entry.name).into_owned());
            }
        }
        let mut moving = Vec::new();
        let mut id = dir.origin;
        while id.0 != 0 {
            let snap = mos.dataset(id)?;
            if snap.dir != parent_id {
                break;
            }
            let nameless = || Error::corrupt(id)(format::Corrupt::new("snapshot without a name", id.0));
            moving.push((id, names.remove(&id).ok_or_else(nameless)?));
            id = self.before(&snap)?;
        }
        Ok(Lines {
            clone: (dir_id, dir.head_dataset),
            parent: (parent_id, parent.head_dataset),
            origin: dir.origin,
            root: parent.origin,
            moving,
        })
    }

    /// The number of the snapshot before a dataset, 0 for none.
    fn before(&self, phys: &DslDataset) -> Result<ObjectId> {
        if phys.prev_snap.0 != 0 {
            self.mos().earlier(phys)?;
        }
        Ok(phys.prev_snap)
    }

    fn check_promote(&self, name: &str, lines: &Lines) -> Result<()> {
        let mos = self.mos();
        let head = mos.dataset(lines.clone.1)?;
        if head.flags & NO_PROMOTE != 0 {
            return Err(Error::Unsupported(format!("promoting '{name}', which is marked as not promotable")));
        }
        let names = mos.object(head.snapnames_zap)?;
        for (_, leaf) in &lines.moving {
            if zap::lookup(&names, leaf.as_bytes())?.is_some() {
                return Err(Error::SnapshotConflict {
                    leaf: leaf.clone(),
                    parent: tree::name_of(&self.view, lines.parent.0)?,
                });
            }
        }
        self.check_bookmarks_move(lines.parent.1, lines.clone.1, lines.origin)?;
        self.check_key_promotes(lines.clone.0, lines.parent.0)?;
        available::check_reserve(&self.view, OBJECTS + lines.moving.len() as u64, Reserve::Half)?;
        let used = self.shared_by(lines)?.used.max(0) as u64;
        self.check_move(lines.parent.0, lines.clone.0, used)
    }

    /// Sizes of all blocks of the moving snapshots, without those of the dataset's own origin.
    fn shared_by(&self, lines: &Lines) -> Result<Sizes> {
        let mos = self.mos();
        let mut sum = referenced(&mos.dataset(lines.origin)?);
        if lines.root.0 != 0 {
            sum += -referenced(&mos.dataset(lines.root)?);
        }
        for (id, _) in &lines.moving {
            let snap = mos.dataset(*id)?;
            if snap.prev_snap.0 == 0 {
                continue;
            }
            let dead = deadlist::header(mos, snap.deadlist)?;
            sum += Sizes { used: dead.used, comp: dead.compressed, uncomp: dead.uncompressed };
        }
        Ok(sum)
    }

    /// Sums over the deadlists from `first` back to the oldest snapshot of its directory: blocks born after `since`.
    fn kept_by(&self, first: ObjectId, dir: ObjectId, since: Txg) -> Result<i64> {
        let mos = self.mos();
        let (mut id, mut sum) = (first, 0);
        while id.0 != 0 {
            let phys = mos.dataset(id)?;
            if phys.dir != dir {
                break;
            }
            sum += deadlist::space_between(mos, phys.deadlist, since, Txg(u64::MAX))?.used;
            id = self.before(&phys)?;
        }
        Ok(sum)
    }

    /// Moves the charges for the moving snapshots from the parent to the clone.
    fn move_charges(&mut self, lines: &Lines) -> Result<()> {
        let mos = self.mos();
        let ((clone, clone_head), (parent, parent_head)) = (lines.clone, lines.parent);
        let shared = self.shared_by(lines)?;
        let since = match lines.root {
            ObjectId(0) => Txg(0),
            root => mos.dataset(root)?.creation_txg,
        };
        let by_clone = self.kept_by(clone_head, clone, since)? + self.kept_by(lines.origin, parent, since)?;
        let origin = mos.dataset(lines.origin)?;
        let mut by_parent = 0;
        let mut id = parent_head;
        while id != lines.origin && id.0 != 0 {
            let phys = mos.dataset(id)?;
            by_parent +=
                deadlist::space_between(mos, phys.deadlist, origin.creation_txg, Txg(u64::MAX))?.used;
            id = self.before(&phys)?;
        }
        let more = by_clone - mos.dir(clone)?.used_breakdown.snap as i64;
        let less = by_parent - mos.dir(parent)?.used_breakdown.snap as i64;
        let used = |used| Sizes { used, ..Sizes::default() };
        for (dir, snap, all) in [(clone, more, shared), (parent, less, -shared)] {
            add_space(mos, self.tx, dir, Category::Snap, used(snap))?;
            add_space(mos, self.tx, dir, Category::Head, all - used(snap))?;
        }
        Ok(())
    }

    /// Makes the clone the successor of the origin, and the parent a clone of it. Returns the old successor.
    fn swap_branches(&mut self, lines: &Lines) -> Result<ObjectId> {
        let mos = self.mos();
        let ((clone, clone_head), (parent, parent_head)) = (lines.clone, lines.parent);
        let mut next = clone_head;
        loop {
            let prev = self.before(&mos.dataset(next)?)?;
            if prev == lines.origin {
                break;
            }
            if prev.0 == 0 {
                return Err(Error::corrupt(clone_head)(format::Corrupt::new("clone without its origin", 0)));
            }
            next = prev;
        }
        let mut origin = mos.dataset(lines.origin)?;
        let follower = std::mem::replace(&mut origin.next_snap, next);
        let alone =
            deadlist::space_between(mos, mos.dataset(next)?.deadlist, origin.prev_snap_txg, Txg(u64::MAX))?;
        origin.unique_bytes = alone.used as u64;
        mos.put_dataset(self.tx, lines.origin, &origin)?;
        if origin.next_clones.0 != 0 {
            let branches = mos.object(origin.next_clones)?;
            zap::remove(&branches, self.tx, int_key(next.0).as_bytes())?;
            zap::insert(&branches, self.tx, int_key(follower.0).as_bytes(), &Value::from_u64(follower.0))?;
        }

        let (mut up, mut down) = (mos.dir(clone)?, mos.dir(parent)?);
        up.origin = down.origin;
        mos.put_dir(self.tx, clone, &up)?;
        down.origin = lines.origin;
        mos.put_dir(self.tx, parent, &down)?;
        self.move_clone(clone_head, Some(parent), None)?;
        if lines.root.0 != 0 {
            let top = mos.dataset(lines.root)?.dir;
            self.move_clone(clone_head, None, Some(top))?;
            self.move_clone(parent_head, Some(top), None)?;
        }
        self.move_clone(parent_head, None, Some(clone))?;
        Ok(follower)
    }

    /// Moves a head from the list of clones of one directory to that of another.
    fn move_clone(&mut self, head: ObjectId, from: Option<ObjectId>, to: Option<ObjectId>) -> Result<()> {
        let mos = self.mos();
        if let Some(from) = from {
            let clones = mos.dir(from)?.clones;
            if clones.0 != 0 {
                zap::remove(&mos.object(clones)?, self.tx, int_key(head.0).as_bytes())?;
            }
        }
        let Some(to) = to.filter(|_| mos.version() >= version::DEADLISTS) else { return Ok(()) };
        let mut dir = mos.dir(to)?;
        if dir.clones.0 == 0 {
            dir.clones = mos.create_zap(self.tx, ObjectType::DSL_CLONES, 0)?.id();
            mos.put_dir(self.tx, to, &dir)?;
        }
        mos.add_int(self.tx, dir.clones, head.0)
    }

    /// Moves names, directories and other clones of the moving snapshots. `follower` is the old successor of the origin,
    /// whose head was moved before.
    fn move_snapshots(&mut self, lines: &Lines, follower: ObjectId) -> Result<()> {
        let mos = self.mos();
        let ((clone, clone_head), (parent, parent_head)) = (lines.clone, lines.parent);
        let old_names = mos.object(mos.dataset(parent_head)?.snapnames_zap)?;
        let new_names = mos.object(mos.dataset(clone_head)?.snapnames_zap)?;
        let mut counted = 0;
        for (id, leaf) in &lines.moving {
            zap::remove(&old_names, self.tx, leaf.as_bytes())?;
            zap::insert(&new_names, self.tx, leaf.as_bytes(), &Value::from_u64(id.0))?;
            let mut snap = mos.dataset(*id)?;
            snap.dir = clone;
            mos.put_dataset(self.tx, *id, &snap)?;
            counted += i64::from(!leaf.starts_with('%'));
            if snap.next_clones.0 == 0 {
                continue;
            }
            for entry in zap::entries(&*mos.object(snap.next_clones)?).collect::<Vec<_>>() {
                let Some(first) = entry?.number().map(ObjectId).filter(|first| *first != follower) else {
                    continue;
                };
                let head = mos.dir(mos.dataset(first)?.dir)?.head_dataset;
                self.move_clone(head, Some(parent), Some(clone))?;
            }
        }
        self.snapshots_changed(parent)?;
        self.adjust_counts(parent, [0, -counted])?;
        self.adjust_counts(clone, [0, counted])
    }
}

fn referenced(phys: &DslDataset) -> Sizes {
    Sizes {
        used: phys.referenced_bytes as i64,
        comp: phys.compressed_bytes as i64,
        uncomp: phys.uncompressed_bytes as i64,
    }
}

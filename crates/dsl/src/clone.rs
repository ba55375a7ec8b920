//! Clones and rollbacks.
//!
//! Source: docs/format/06-mos-dsl.md §9.5, §9.7.

use format::{ObjectId, ObjectType, Txg};

use crate::change::{Change, Effect};
use crate::create::{NEW_OBJECTS, new_guids};
use crate::mos::FOLD_CASE;
use crate::sizes::Sizes;
use crate::space::{Category, Shift, add_space, move_space};
use crate::{Error, Result, available, bookmark, deadlist, props, redaction, tree};

impl Change<'_> {
    /// Creates the file system or volume `name` as a clone of the snapshot `origin`. Returns its directory and its dataset
    /// object.
    pub fn clone_snapshot(
        &mut self,
        origin: &str,
        name: &str,
        local: &[(String, props::Value)],
    ) -> Result<(ObjectId, ObjectId)> {
        let mos = self.mos();
        let pool = self.view.pool.clone();
        let origin_id = tree::snapshot(mos, &pool, origin)?;
        let (parent, leaf) = name.rsplit_once('/').ok_or_else(|| Error::Exists(name.to_owned()))?;
        let parent = tree::dir_of(mos, &pool, parent)?;
        if tree::child(mos, parent, leaf)?.is_some() {
            return Err(Error::Exists(name.to_owned()));
        }
        available::check_room(&self.view, NEW_OBJECTS)?;
        let dir_id = self.create_dir(parent, leaf)?;
        for (name, value) in local {
            self.set_property(dir_id, name, Some(value))?;
        }
        let snap = mos.dataset(origin_id)?;
        let origin_dir = mos.dir(snap.dir)?;
        let (fsid_guid, guid) = new_guids(mos);
        let mut phys = format::dsl_dataset::DslDataset {
            dir: dir_id,
            prev_snap: origin_id,
            prev_snap_txg: snap.creation_txg,
            next_snap: ObjectId(0),
            num_children: 0,
            creation_time: mos.now(),
            creation_txg: self.txg(),
            unique_bytes: 0,
            fsid_guid,
            guid,
            next_clones: ObjectId(0),
            props: ObjectId(0),
            userrefs: ObjectId(0),
            ..snap
        };
        phys.flags &= !format::dsl_dataset::DEFER_DESTROY;
        phys.snapnames_zap = mos.create_zap(self.tx, ObjectType::DSL_DS_SNAP_MAP, FOLD_CASE)?.id();
        let mut keys = deadlist::keys(mos, &mos.dataset(origin_dir.head_dataset)?)?;
        keys.retain(|key| *key < snap.creation_txg);
        phys.deadlist = deadlist::create(mos, &mut *self.features, self.tx, &keys)?;
        let id = self.create_dataset_object(&phys)?;
        self.share_key_object(snap.dir, dir_id)?;
        self.copy_marks(origin_id, id)?;
        self.branch_off(origin_id, dir_id, id)?;
        self.begin_livelist(dir_id)?;
        self.count_new_dir(dir_id, parent)?;
        self.forget_log(id, dir_id, name);
        Ok((dir_id, id))
    }

    /// A head that starts from a snapshot's root must not keep the intent log header of that root.
    fn forget_log(&mut self, head: ObjectId, dir: ObjectId, name: &str) {
        self.effects.push(Effect::LogOfSnapshot { head, dir, name: name.to_owned() });
    }

    /// Rolls `fs` back to its newest snapshot `leaf` and frees all later blocks.
    pub fn rollback(&mut self, fs: &str, leaf: &str) -> Result<()> {
        let mos = self.mos();
        let full = format!("{fs}@{leaf}");
        let snap_id = tree::snapshot(mos, &self.view.pool, &full)?;
        let dir_id = tree::dir_of(mos, &self.view.pool, fs)?;
        let dir = mos.dir(dir_id)?;
        let id = dir.head_dataset;
        let mut head = mos.dataset(id)?;
        let marks = bookmark::all(mos, id)?;
        let newer = marks.last().is_some_and(|(_, mark)| mark.creation_txg > head.prev_snap_txg);
        if head.prev_snap != snap_id || newer {
            return Err(Error::NotNewest(full));
        }
        self.check_freeable(&head.bp, head.prev_snap_txg)?;
        self.let_go_of(id, fs)?;
        self.effects.push(Effect::LogEnded { head: id, root: head.bp });
        // It lists the blocks that the rollback undoes.
        self.drop_livelist(dir_id)?;
        if head.prev_snap_txg == self.txg() {
            // The snapshot was taken in this txg, so nothing changed since.
            self.forget_log(id, dir_id, fs);
            return Ok(());
        }
        let mut snap = mos.dataset(snap_id)?;
        let dead = deadlist::header(mos, head.deadlist)?;
        let lost = |head: u64, snap: u64, dead: i64| (head as i64) - (snap as i64 - dead);
        let freed = Sizes {
            used: lost(head.referenced_bytes, snap.referenced_bytes, dead.used),
            comp: lost(head.compressed_bytes, snap.compressed_bytes, dead.compressed),
            uncomp: lost(head.uncompressed_bytes, snap.uncompressed_bytes, dead.uncompressed),
        };
        let origin_txg = mos.origin_txg(dir.origin)?;
        let back = deadlist::space_between(mos, head.deadlist, origin_txg, Txg(u64::MAX))?;
        move_space(
            mos,
            self.tx,
            dir_id,
            Shift { from: Category::Snap, to: Category::Head, used: back.used },
        )?;
        add_space(mos, self.tx, dir_id, Category::Head, -freed)?;
        self.free_tree(&head.bp, head.prev_snap_txg, freed)?;
        self.keep_promise(dir_id, head.unique_bytes, 0)?;
        let keys = deadlist::keys(mos, &head)?;
        let features = &mut *self.features;
        deadlist::free(mos, features, self.tx, head.deadlist)?;
        head.deadlist = deadlist::create(mos, features, self.tx, &keys)?;
        head.bp = snap.bp;
        head.referenced_bytes = snap.referenced_bytes;
        head.compressed_bytes = snap.compressed_bytes;
        head.uncompressed_bytes = snap.uncompressed_bytes;
        head.unique_bytes = 0;
        mos.put_dataset(self.tx, id, &head)?;
        if snap.next_snap == id {
            snap.unique_bytes = 0;
            mos.put_dataset(self.tx, snap_id, &snap)?;
        }
        self.set_redaction(id, redaction::of(mos, snap_id)?.as_deref())?;
        self.bookmarks_follow(id, snap_id)?;
        self.forget_log(id, dir_id, fs);
        Ok(())
    }
}

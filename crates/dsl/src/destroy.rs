//! Destroying file systems and volumes.
//!
//! Source: docs/format/06-mos-dsl.md §9.4.

use dmu::zap;
use format::ObjectId;
use format::dsl_dataset::DslDataset;
use format::dsl_dir::DslDir;
use format::zap::int_key;

use crate::change::{Change, Effect};
use crate::partial::WORKING;
use crate::sizes::Sizes;
use crate::space::{Category, add_space};
use crate::{Error, Result, deadlist, tree};

impl Change<'_> {
    /// Destroys the file system or volume `name`, which must have neither children nor snapshots.
    pub fn destroy_head(&mut self, name: &str) -> Result<()> {
        let dir_id = tree::dir_of(self.mos(), &self.view.pool, name)?;
        self.destroy_head_in(dir_id)
    }

    /// As [`Change::destroy_head`], for the directory with this object number: its name may have changed meanwhile.
    pub fn destroy_head_in(&mut self, dir_id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let name = tree::name_of(&self.view, dir_id)?;
        let name = name.as_str();
        let dir = mos.dir(dir_id)?;
        let id = dir.head_dataset;
        let phys = mos.dataset(id)?;
        self.check_destroy(name, (dir_id, &dir), &phys)?;
        // It belongs to an interrupted receive into this dataset.
        let working = tree::child(mos, dir_id, WORKING)?;
        if let Some(working) = working {
            self.let_go_of(mos.dir(working)?.head_dataset, name)?;
        }
        self.let_go_of(id, name)?;
        if let Some(working) = working {
            self.destroy_head_in(working)?;
        }
        if dir.reserved > 0 {
            self.set_property(dir_id, "reservation", None)?;
        }
        if dir.used_breakdown.refrsrv > 0 {
            self.set_property(dir_id, "refreservation", None)?;
        }
        self.effects.push(Effect::LogEnded { head: id, root: phys.bp });
        self.effects.push(Effect::Destroyed { id, next: None });
        self.forget_clone(&dir, id, phys.prev_snap)?;
        self.destroy_bookmarks_of(id)?;
        self.unmark_dataset(id)?;
        let mos = self.mos();
        deadlist::free(self.view.mos, &mut *self.features, self.tx, phys.deadlist)?;
        for object in [phys.snapnames_zap, phys.props, phys.userrefs, id] {
            if object.0 != 0 {
                mos.free(self.tx, object)?;
            }
        }
        // Subtracts the head's charges from all directories above.
        let dir = mos.dir(dir_id)?;
        let charged = Sizes {
            used: dir.used_bytes as i64,
            comp: dir.compressed_bytes as i64,
            uncomp: dir.uncompressed_bytes as i64,
        };
        add_space(mos, self.tx, dir_id, Category::Head, -charged)?;
        if !self.free_listed(dir_id, charged)? {
            self.free_tree(&phys.bp, phys.prev_snap_txg, charged)?;
        }
        self.adjust_counts(dir.parent, [-1, 0])?;
        let children = mos.object(mos.dir(dir.parent)?.child_dir_zap)?;
        let leaf = name.rsplit_once('/').map_or(name, |(_, leaf)| leaf);
        zap::remove(&children, self.tx, leaf.as_bytes())?;
        self.release_key_object(dir_id)?;
        self.unzapified(dir_id)?;
        self.free_grants(dir.deleg_zap)?;
        let mos = self.mos();
        for object in [dir.child_dir_zap, dir.props_zap, dir.clones, dir_id] {
            if object.0 != 0 {
                mos.free(self.tx, object)?;
            }
        }
        if phys.prev_snap.0 != 0 {
            self.destroy_if_deferred(phys.prev_snap)?;
        }
        Ok(())
    }

    /// Refuses to destroy datasets that others depend on, and special ones.
    fn check_destroy(&self, name: &str, (dir_id, dir): (ObjectId, &DslDir), phys: &DslDataset) -> Result<()> {
        let mos = self.mos();
        if dir.parent.0 == 0 {
            return Err(Error::IsPool);
        }
        if !tree::children(mos, dir_id)?.is_empty() {
            return Err(Error::HasChildren(name.to_owned()));
        }
        if zap::count(&*mos.object(phys.snapnames_zap)?)? > 0 {
            return Err(Error::HasChildren(name.to_owned()));
        }
        self.check_plain(dir.head_dataset)?;
        self.check_freeable(&phys.bp, phys.prev_snap_txg)?;
        if dir.origin.0 != 0 { self.check_deferred(dir.origin, 1) } else { Ok(()) }
    }

    /// Refuses datasets that this build cannot destroy completely.
    fn check_plain(&self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let (key, object) = ("com.delphix:remap_deadlist", mos.object(id)?);
        let is_zap = object.object_type() == format::ObjectType::ZAP_METADATA;
        match is_zap && zap::lookup(&object, key.as_bytes())?.is_some() {
            true => Err(Error::Unsupported(format!("destroying {key}"))),
            false => Ok(()),
        }
    }

    /// Removes the dataset from its origin's clones.
    fn forget_clone(&mut self, dir: &DslDir, id: ObjectId, prev: ObjectId) -> Result<()> {
        let mos = self.mos();
        if prev.0 == 0 {
            return Ok(());
        }
        let mut origin = mos.dataset(prev)?;
        origin.num_children = origin.num_children.saturating_sub(1);
        mos.put_dataset(self.tx, prev, &origin)?;
        if origin.next_clones.0 != 0 {
            zap::remove(&mos.object(origin.next_clones)?, self.tx, int_key(id.0).as_bytes())?;
        }
        if dir.origin.0 != 0 {
            let clones = mos.dir(origin.dir)?.clones;
            if clones.0 != 0 {
                zap::remove(&mos.object(clones)?, self.tx, int_key(id.0).as_bytes())?;
            }
        }
        Ok(())
    }
}

//! Destroying and renaming file systems.
//!
//! Source: docs/format/06-mos-dsl.md §9.4.

use dmu::zap;
use format::zap::int_key;
use format::{ObjectId, features};

use super::receive::WORKING;
use super::{Category, add_space, deadlist, lookup};
use crate::sizes::Sizes;
use crate::sync::Syncing;
use crate::{Error, Result};

impl Syncing<'_> {
    /// Destroys the file system or volume `name`, which must have neither children nor snapshots.
    pub(crate) fn destroy_head(&mut self, name: &str) -> Result<()> {
        let dir_id = lookup::dir_of(self.mos(), &self.state.config.name, name)?;
        self.destroy_head_in(dir_id)
    }

    /// As [`Syncing::destroy_head`], of a directory known by its number: its name may have changed meanwhile.
    pub(crate) fn destroy_head_in(&mut self, dir_id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let name = lookup::name_of(self.inner, dir_id)?;
        let name = name.as_str();
        let dir = mos.dir(dir_id)?;
        if dir.parent.0 == 0 {
            return Err(Error::Unsupported("destroying the root of a pool".into()));
        }
        if !lookup::children(mos, dir_id)?.is_empty() {
            return Err(Error::HasChildren(name.to_owned()));
        }
        let id = dir.head_dataset;
        let phys = mos.dataset(id)?;
        if zap::count(&*mos.object(phys.snapnames_zap)?)? > 0 {
            return Err(Error::HasChildren(name.to_owned()));
        }
        self.check_plain(dir_id, id)?;
        self.check_freeable(&phys.bp, phys.prev_snap_txg)?;
        if dir.origin.0 != 0 {
            self.check_deferred(dir.origin, 1)?;
        }
        // Of a receive into it that was cut off.
        let working = lookup::child(mos, dir_id, WORKING)?;
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
        self.free_log_of(id, &phys.bp)?;
        self.forget_clone(&dir, id, phys.prev_snap)?;
        self.destroy_bookmarks_of(id)?;
        self.unmark_dataset(id)?;
        let mos = self.mos();
        deadlist::free(&self.inner.mos, &mut self.state.features, &self.tx, phys.deadlist)?;
        for object in [phys.snapnames_zap, phys.props, phys.userrefs, id] {
            if object.0 != 0 {
                mos.free(&self.tx, object)?;
            }
        }
        // What the head was charged goes away everywhere above.
        let dir = mos.dir(dir_id)?;
        let charged = Sizes {
            used: dir.used_bytes as i64,
            comp: dir.compressed_bytes as i64,
            uncomp: dir.uncompressed_bytes as i64,
        };
        add_space(mos, &self.tx, dir_id, Category::Head, -charged)?;
        self.free_tree(&phys.bp, phys.prev_snap_txg, charged)?;
        self.adjust_counts(dir.parent, [-1, 0])?;
        let children = mos.object(mos.dir(dir.parent)?.child_dir_zap)?;
        let leaf = name.rsplit_once('/').map_or(name, |(_, leaf)| leaf);
        zap::remove(&children, &self.tx, leaf.as_bytes())?;
        self.unzapified(dir_id)?;
        self.free_grants(dir.deleg_zap)?;
        let mos = self.mos();
        for object in [dir.child_dir_zap, dir.props_zap, dir.clones, dir_id] {
            if object.0 != 0 {
                mos.free(&self.tx, object)?;
            }
        }
        if phys.prev_snap.0 != 0 {
            self.destroy_if_deferred(phys.prev_snap)?;
        }
        Ok(())
    }

    /// Refuses what this build cannot take apart without leaving something behind.
    fn check_plain(&self, dir_id: ObjectId, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let refuse = |what: &str| Err(Error::Unsupported(format!("destroying {what}")));
        for (object, keys) in [
            (dir_id, &[format::crypt::KEY_OBJECT, "com.delphix:livelist"][..]),
            (id, &["com.delphix:remap_deadlist"][..]),
        ] {
            let object = mos.object(object)?;
            if object.object_type() != format::ObjectType::ZAP_METADATA {
                continue;
            }
            for key in keys {
                if zap::lookup(&object, key.as_bytes())?.is_some() {
                    return refuse(key);
                }
            }
        }
        Ok(())
    }

    /// Takes the dataset out of its origin's books.
    fn forget_clone(&mut self, dir: &format::dsl_dir::DslDir, id: ObjectId, prev: ObjectId) -> Result<()> {
        let mos = self.mos();
        if prev.0 == 0 {
            return Ok(());
        }
        let mut origin = mos.dataset(prev)?;
        origin.num_children = origin.num_children.saturating_sub(1);
        mos.put_dataset(&self.tx, prev, &origin)?;
        if origin.next_clones.0 != 0 {
            zap::remove(&mos.object(origin.next_clones)?, &self.tx, int_key(id.0).as_bytes())?;
        }
        if dir.origin.0 != 0 {
            let clones = mos.dir(origin.dir)?.clones;
            if clones.0 != 0 {
                zap::remove(&mos.object(clones)?, &self.tx, int_key(id.0).as_bytes())?;
            }
        }
        Ok(())
    }

    /// Gives up the dataset's feature marks.
    pub(crate) fn unmark_dataset(&mut self, id: ObjectId) -> Result<()> {
        let object = self.mos().object(id)?;
        if object.object_type() == format::ObjectType::ZAP_METADATA {
            for entry in zap::entries(&object).collect::<Vec<_>>() {
                let name = entry?.name;
                let guid = String::from_utf8_lossy(&name).into_owned();
                if let Some(feature) = features::by_guid(&guid).filter(|f| f.per_dataset)
                    && let Some(features) = self.state.features.as_mut()
                {
                    features.adjust(&self.tx, feature, -1)?;
                }
            }
        }
        self.unzapified(id)
    }

    /// One zapified object less, if it is one.
    fn unzapified(&mut self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let zapified = mos.object(id)?.object_type() == format::ObjectType::ZAP_METADATA;
        if zapified && let Some(features) = self.state.features.as_mut() {
            features.adjust(&self.tx, &features::EXTENSIBLE_DATASET, -1)?;
        }
        Ok(())
    }

    /// Moves the directory `from` to `to`, within the pool.
    pub(crate) fn rename_dir(&mut self, from: &str, to: &str) -> Result<()> {
        let mos = self.mos();
        let pool = self.state.config.name.clone();
        let dir_id = lookup::dir_of(mos, &pool, from)?;
        let (new_parent, leaf) =
            to.rsplit_once('/').ok_or_else(|| Error::Unsupported("renaming to the root of a pool".into()))?;
        let new_parent = lookup::dir_of(mos, &pool, new_parent)?;
        if lookup::child(mos, new_parent, leaf)?.is_some() {
            return Err(Error::Exists(to.to_owned()));
        }
        let mut dir = mos.dir(dir_id)?;
        let old_parent = dir.parent;
        let old_leaf = from.rsplit_once('/').map_or(from, |(_, leaf)| leaf);
        if new_parent != old_parent {
            if lookup::chain(mos, new_parent)?.contains(&dir_id) {
                return Err(Error::Unsupported("moving a dataset below itself".into()));
            }
            self.check_move(old_parent, new_parent, dir.used_bytes.max(dir.reserved))?;
            let counted = self.counts_to_move(dir_id, new_parent)?;
            self.adjust_counts(old_parent, counted.map(|count| -count))?;
            self.adjust_counts(new_parent, counted)?;
            let charged = dir.used_bytes.max(dir.reserved);
            let hidden = (charged - dir.used_bytes) as i64;
            let sizes = Sizes {
                used: dir.used_bytes as i64,
                comp: dir.compressed_bytes as i64,
                uncomp: dir.uncompressed_bytes as i64,
            };
            let reserved = Sizes { used: hidden, ..Sizes::default() };
            add_space(mos, &self.tx, old_parent, Category::Child, -sizes)?;
            add_space(mos, &self.tx, old_parent, Category::ChildReserved, -reserved)?;
            add_space(mos, &self.tx, new_parent, Category::Child, sizes)?;
            add_space(mos, &self.tx, new_parent, Category::ChildReserved, reserved)?;
        }
        zap::remove(&mos.object(mos.dir(old_parent)?.child_dir_zap)?, &self.tx, old_leaf.as_bytes())?;
        let children = mos.object(mos.dir(new_parent)?.child_dir_zap)?;
        zap::insert(&children, &self.tx, leaf.as_bytes(), &format::zap::Value::from_u64(dir_id.0))?;
        dir = mos.dir(dir_id)?;
        dir.parent = new_parent;
        mos.put_dir(&self.tx, dir_id, &dir)?;
        for dataset in self.inner.open_datasets() {
            let name = dataset.name();
            if let Some(rest) = name.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with(['/', '@']))
            {
                dataset.rename(format!("{to}{rest}"));
            }
        }
        Ok(())
    }
}

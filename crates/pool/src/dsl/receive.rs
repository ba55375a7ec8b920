//! The dataset that a stream is received into: made, put in place, taken away.
//!
//! Source: docs/format/09-send-stream.md §8, 06-mos-dsl.md §9.7.

use std::sync::Arc;

use dmu::zap;
use format::dsl_dataset::{CASE_INSENSITIVE, INCONSISTENT};
use format::objset::ObjsetType;
use format::stream::{Begin, feature, flag};
use format::zap::Value as Stored;
use format::{ObjectId, Txg, features};

use super::create::{Initialise, NewFilesystem};
use super::space::move_space;
use super::{Category, Sizes, add_space, deadlist, lookup, properties};
use crate::sync::Syncing;
use crate::{Error, ReceiveOptions, Result};

/// The dataset below one that exists, while that is received into.
const WORKING: &str = "%recv";

/// Where a stream goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A new dataset.
    New,
    /// A new clone of this snapshot.
    Clone(String),
    /// In the place of a dataset without snapshots.
    Replace,
    /// Onto the newest snapshot of a dataset.
    Onto(String),
}

impl Place {
    /// Name of the dataset that is written.
    pub(crate) fn working_name(&self, fs: &str) -> String {
        match self {
            Place::New | Place::Clone(_) => fs.to_owned(),
            Place::Replace | Place::Onto(_) => format!("{fs}/{WORKING}"),
        }
    }
}

impl Syncing<'_> {
    /// Makes the dataset that is to be written; returns its directory and itself.
    pub(crate) fn begin_receive(
        &mut self,
        place: &Place,
        fs: &str,
        begin: &Begin,
        options: &ReceiveOptions,
    ) -> Result<(ObjectId, ObjectId)> {
        let mos = self.mos();
        let pool = self.state.config.name.clone();
        let name = place.working_name(fs);
        let (parent, leaf) = name.rsplit_once('/').ok_or_else(|| Error::Exists(name.clone()))?;
        let parent = lookup::dir_of(mos, &pool, parent)?;
        if let Some(left) = lookup::child(mos, parent, leaf)? {
            if leaf != WORKING {
                return Err(Error::Exists(name));
            }
            // Of a receive that was cut off.
            self.destroy_head_in(&name, left)?;
        }
        let (dir_id, id) = match place {
            Place::Clone(origin) | Place::Onto(origin) => {
                self.clone_snapshot(origin, &name, &[])?;
                let dir_id =
                    lookup::child(mos, parent, leaf)?.ok_or_else(|| Error::NoDataset(name.clone()))?;
                (dir_id, mos.dir(dir_id)?.head_dataset)
            }
            Place::New | Place::Replace => {
                self.create_received(parent, leaf, &name, begin, place, options)?
            }
        };
        let mut phys = mos.dataset(id)?;
        phys.flags |= INCONSISTENT;
        mos.put_dataset(&self.tx, id, &phys)?;
        if begin.features & feature::LARGE_DNODE != 0
            && !self.inner.dataset_marks(id)?.contains(features::LARGE_DNODE.guid)
        {
            self.mark_dataset(id, &features::LARGE_DNODE)?;
        }
        Ok((dir_id, id))
    }

    fn create_received(
        &mut self,
        parent: ObjectId,
        leaf: &str,
        name: &str,
        begin: &Begin,
        place: &Place,
        options: &ReceiveOptions,
    ) -> Result<(ObjectId, ObjectId)> {
        let dir_id = self.create_dir(parent, leaf)?;
        if *place == Place::New {
            self.set_received(dir_id, options)?;
        }
        let mut new = NewFilesystem::plain(&self.inner.host);
        new.casesensitivity = u64::from(begin.flags & flag::CASE_INSENSITIVE != 0);
        // The stream brings all objects.
        let init: Initialise = Arc::new(|_, _, _| Ok(()));
        let os_type = if begin.objset_type == 3 { ObjsetType::Zvol } else { ObjsetType::Zfs };
        let id = self.create_head(dir_id, name, &new, &init, os_type, false)?;
        self.count_new_dir(dir_id, parent)?;
        Ok((dir_id, id))
    }

    /// Local and received properties.
    fn set_received(&mut self, dir_id: ObjectId, options: &ReceiveOptions) -> Result<()> {
        for (name, value) in &options.local {
            self.set_property(dir_id, name, Some(value))?;
        }
        if options.received.is_empty() {
            return Ok(());
        }
        let object = self.mos().object(self.mos().dir(dir_id)?.props_zap)?;
        zap::update(&object, &self.tx, b"$hasrecvd", &Stored::from_u64(0))?;
        for (name, value) in &options.received {
            let key = format!("{name}$recvd");
            zap::update(&object, &self.tx, key.as_bytes(), &properties::stored(value))?;
            if zap::lookup(&object, name.as_bytes())?.is_none() {
                self.heed_property(dir_id, name, Some(value))?;
            }
        }
        Ok(())
    }

    /// The stream is complete: puts what was written in place and takes the snapshot `into`.
    pub(crate) fn end_receive(
        &mut self,
        place: &Place,
        into: &str,
        (dir_id, id): (ObjectId, ObjectId),
        begin: &Begin,
        options: &ReceiveOptions,
    ) -> Result<()> {
        let mos = self.mos();
        let (fs, _) = into.split_once('@').ok_or_else(|| Error::NoDataset(into.to_owned()))?;
        let fs_dir = lookup::dir_of(mos, &self.state.config.name, fs)?;
        let head_id = mos.dir(fs_dir)?.head_dataset;
        // First all that can refuse.
        lookup::may_snapshot_received(mos, head_id, into)?;
        let working = place.working_name(fs);
        self.let_go_of(id, &working)?;
        if head_id != id {
            self.let_go_of(head_id, fs)?;
        }
        let mut phys = mos.dataset(id)?;
        phys.flags &= !INCONSISTENT;
        mos.put_dataset(&self.tx, id, &phys)?;
        if matches!(place, Place::Replace | Place::Onto(_)) {
            self.swap_heads((fs_dir, head_id), (dir_id, id))?;
        }
        if *place != Place::New {
            self.set_received(fs_dir, options)?;
        }
        self.snapshot(into, &[])?;
        let snap_id = mos.dataset(head_id)?.prev_snap;
        let mut snap = mos.dataset(snap_id)?;
        (snap.guid, snap.creation_time) = (begin.toguid, begin.creation_time);
        mos.put_dataset(&self.tx, snap_id, &snap)?;
        if head_id != id { self.destroy_head_in(&working, dir_id) } else { Ok(()) }
    }

    /// Exchanges what two heads of the same snapshot hold.
    fn swap_heads(
        &mut self,
        (head_dir, head_id): (ObjectId, ObjectId),
        (other_dir, other_id): (ObjectId, ObjectId),
    ) -> Result<()> {
        let mos = self.mos();
        let (mut head, mut other) = (mos.dataset(head_id)?, mos.dataset(other_id)?);
        if head.prev_snap != other.prev_snap {
            return Err(Error::DatasetBusy(lookup::name_of(self.inner, head_dir)?));
        }
        let mut prev = mos.dataset(head.prev_snap)?;
        if prev.next_snap == head_id {
            let alone = deadlist::space_between(mos, other.deadlist, prev.prev_snap_txg, Txg(u64::MAX))?;
            prev.unique_bytes = alone.used as u64;
            mos.put_dataset(&self.tx, head.prev_snap, &prev)?;
        }
        let held = |phys: &format::dsl_dataset::DslDataset| -> Result<Sizes> {
            let dead = deadlist::header(mos, phys.deadlist)?;
            Ok(Sizes {
                used: phys.referenced_bytes as i64 + dead.used,
                comp: phys.compressed_bytes as i64 + dead.compressed,
                uncomp: phys.uncompressed_bytes as i64 + dead.uncompressed,
            })
        };
        let more = held(&other)? - held(&head)?;
        add_space(mos, &self.tx, head_dir, Category::Head, more)?;
        add_space(mos, &self.tx, other_dir, Category::Head, -more)?;
        let origin = mos.dir(head_dir)?.origin;
        let origin_txg = if origin.0 == 0 { Txg(0) } else { mos.dataset(origin)?.creation_txg };
        let kept = |list| deadlist::space_between(mos, list, origin_txg, Txg(u64::MAX));
        let by_snapshots = kept(other.deadlist)?.used - kept(head.deadlist)?.used;
        move_space(mos, &self.tx, head_dir, Category::Head, Category::Snap, by_snapshots)?;
        let reservation = self.refreservation(head_dir)?;
        let unused = |unique: u64| reservation.saturating_sub(unique) as i64;
        let reserved =
            Sizes { used: unused(other.unique_bytes) - unused(head.unique_bytes), ..Sizes::default() };
        add_space(mos, &self.tx, head_dir, Category::Reserved, reserved)?;
        std::mem::swap(&mut head.bp, &mut other.bp);
        std::mem::swap(&mut head.referenced_bytes, &mut other.referenced_bytes);
        std::mem::swap(&mut head.compressed_bytes, &mut other.compressed_bytes);
        std::mem::swap(&mut head.uncompressed_bytes, &mut other.uncompressed_bytes);
        std::mem::swap(&mut head.unique_bytes, &mut other.unique_bytes);
        std::mem::swap(&mut head.deadlist, &mut other.deadlist);
        head.flags = head.flags & !CASE_INSENSITIVE | other.flags & CASE_INSENSITIVE;
        mos.put_dataset(&self.tx, head_id, &head)?;
        mos.put_dataset(&self.tx, other_id, &other)?;
        let known = self.inner.dataset_marks(head_id)?;
        for mark in self.inner.dataset_marks(other_id)?.difference(&known) {
            if let Some(feature) = features::by_guid(mark).filter(|feature| feature.per_dataset) {
                self.mark_dataset(head_id, feature)?;
            }
        }
        Ok(())
    }
}

//! Devices that leave a pool: `zpool remove` of caches, spares, log devices and vdevs that hold data.
//!
//! From:   the administrator, by way of the command line.
//! To:     the lists of caches and spares; the configuration, in which a hole is left in the place of a log device; the allocator; the
//!         sync, which copies what lies on a vdev that holds data (`sync/evacuate.rs`).
//! Source: docs/format/12-auxiliary-vdevs.md §1.4, §2.9, §4; 01-labels-uberblock.md §5.1.
//!
//! A log device is emptied first: no new blocks are placed on it, and syncs end all logs after making their changes durable.

use dmu::Objset;
use dsl::promises::Own;
use dsl::{available, tree};
use format::config::{TopConfig, VdevConfig, VdevKind};
use format::{Guid, VdevId, features};
use storage::allocator::Class;
use storage::{Leaf, Shape, TopVdev, Vdevs};

use crate::accounts::dspace_of;
use crate::aux_vdevs::{self, AuxKind, AuxVdev};
use crate::checkpoint::Checkpoint;
use crate::pool::Pool;
use crate::state::Syncing;
use crate::{Error, Result, evacuation, labels, version};

/// A log ends with its second sync. Further rounds are needed if a log restarts meanwhile.
const ROUNDS_MAX: usize = 16;

impl Pool {
    /// Takes the cache, spare or top-level log vdev with this guid out of the pool.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::SpareInUse`]; [`Error::LogInUse`]; [`Error::NotRemovable`] for a part of a
    /// vdev, or a pool without the feature; [`Error::OldPool`]. Of vdevs that hold data: [`Error::NoSpace`], [`Error::NotAlike`],
    /// [`Error::SpareInUse`] while a vdev is being removed or lacks something.
    pub fn remove(&self, guid: Guid) -> Result<()> {
        self.check_not_kept()?;
        if let Some(aux) = self.aux_vdevs()?.into_iter().find(|aux| aux.config.guid == guid) {
            return self.remove_aux(aux);
        }
        let config = self.info().config;
        let vdev = config.tree.find(guid).ok_or(Error::NoSuchDevice)?;
        match &vdev.top {
            Some(top) if top.is_log => version::check(config.version, version::HOLES)?,
            Some(_) => return self.remove_data(vdev.id as u32),
            None => return Err(Error::NotRemovable),
        }
        self.remove_log(vdev.id as u32)
    }

    /// Refuses a change that a return to the checkpoint could not undo.
    fn check_not_kept(&self) -> Result<()> {
        match self.checkpointed() {
            None => Ok(()),
            Some(Checkpoint { created: Some(_), .. }) => Err(Error::CheckpointExists),
            Some(_) => Err(Error::DiscardingCheckpoint),
        }
    }

    fn remove_aux(&self, aux: AuxVdev) -> Result<()> {
        if aux.is_distributed {
            return Err(Error::DistributedSpareStays);
        }
        if aux.in_use && aux.kind == AuxKind::Spare {
            return Err(Error::SpareInUse);
        }
        let (kind, guid) = (aux.kind, aux.config.guid);
        self.run(move |syncing| aux_vdevs::take_off(syncing.mos(), &syncing.tx, kind, guid))?;
        self.inner.storage.second().remove(guid);
        // Its labels stay: nothing leads to it any more.
        drop(aux.device.as_deref().and_then(|path| self.inner.aux_disks.take(path)));
        Ok(())
    }

    fn remove_log(&self, id: u32) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            match self.run(move |syncing| syncing.make_hole(id)) {
                Ok(left) => {
                    // This must come last: until the txg is on disk, the devices are part of the pool.
                    left.iter().for_each(labels::let_go);
                    return Ok(());
                }
                Err(Error::LogInUse) => self.end_logs()?,
                Err(error) => return Err(error),
            }
        }
        self.run(move |syncing| {
            syncing.state.allocator.set_allocating(VdevId(id), true);
            Err(Error::LogInUse)
        })
    }

    /// Makes the sync begin to copy the data of a vdev to the others. The vdev leaves when that is done.
    fn remove_data(&self, id: u32) -> Result<()> {
        self.run(move |syncing| {
            syncing.check_removable(id)?;
            syncing.state.allocator.set_allocating(VdevId(id), false);
            Ok(())
        })?;
        // Until two more txgs are on disk, intent logs may be given space that was set aside before.
        let begun = self.end_logs().and_then(|()| {
            if self.inner.open.logged().values().any(|dataset| dataset.has_log_to_replay()) {
                return Err(Error::LogInUse);
            }
            self.run(move |syncing| {
                syncing.check_removable(id)?;
                syncing.begin_evacuation(id)
            })
        });
        if begun.is_err() {
            self.run(move |syncing| {
                let stays = !evacuation::non_allocating(&syncing.state.config).contains(&id);
                syncing.state.allocator.set_allocating(VdevId(id), stays);
                Ok(())
            })?;
        }
        begun
    }

    /// Cancels the removal of a vdev, and frees the copies.
    ///
    /// # Errors
    /// [`Error::NotRemoving`]; [`Error::ReadOnly`].
    pub fn cancel_removal(&self) -> Result<()> {
        self.run(|syncing| syncing.cancel_evacuation())
    }

    /// Waits until no vdev is being removed.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Stopped`].
    pub fn wait_removed(&self) -> Result<()> {
        while self.unmoved()? > 0 {
            self.sync()?;
        }
        Ok(())
    }

    /// Ends all intent logs. A later commit starts a new one.
    pub(crate) fn end_logs(&self) -> Result<()> {
        self.discard_leftovers()?;
        self.inner.open.logged().values().for_each(|dataset| dataset.log.close());
        self.sync()
    }

    /// OpenZFS leaves an empty block behind where it ends a log.
    fn discard_leftovers(&self) -> Result<()> {
        let inner = &self.inner;
        for info in dsl::list::list(&inner.view(), &inner.name(), None, false)? {
            if info.phys.bp.is_hole() {
                continue;
            }
            let objset = Objset::open(inner.storage.clone(), inner.budget.clone(), info.phys.bp)?;
            if objset.zil_header().log.block().is_some() {
                let shared = self.shared();
                let dataset = inner.open_sealed(&info)?;
                drop(shared);
                dataset.discard_leftover()?;
            }
        }
        Ok(())
    }
}

/// The configuration entry in the place of a removed top-level vdev.
pub(crate) fn hole(id: u64) -> VdevConfig {
    let mut hole = VdevConfig::new(VdevKind::Hole, id, Guid(0));
    (hole.top, hole.whole_disk) = (Some(TopConfig::default()), Some(false));
    hole.extra.insert("is_hole", 1u64);
    hole
}

impl Syncing<'_> {
    /// Refuses a vdev that cannot be removed by copying its data, with the checks in the order of OpenZFS.
    fn check_removable(&self, id: u32) -> Result<()> {
        let state = &self.state;
        state.keeping.check_none()?;
        let vdev = state.config.tree.children.get(id as usize).ok_or(Error::NoSuchDevice)?;
        let top = &self.inner.storage.vdevs().tops()[id as usize];
        if vdev.kind == VdevKind::Indirect || vdev.kind.is_absent() {
            return Err(Error::NoSuchDevice);
        }
        let enabled = state.features.as_ref().is_some_and(|all| all.is_enabled(&features::DEVICE_REMOVAL));
        if !enabled || vdev.zap_top.is_none_or(|own| own.0 == 0) {
            return Err(Error::NotRemovable);
        }
        if state.evacuating.as_ref().is_some_and(|it| it.vdev() == VdevId(id)) {
            return Err(Error::RemovingThis);
        }
        self.check_room_without(top)?;
        let is_whole = |leaf: &Leaf| leaf.health.missing().is_empty() && !leaf.health.has_failed();
        if state.evacuating.is_some()
            || top.leaves().count() != vdev.leaves().count()
            || !top.leaves().all(is_whole)
        {
            return Err(Error::SpareInUse);
        }
        let of_data = |vdev: &&VdevConfig| {
            let is_there = vdev.kind != VdevKind::Indirect && !vdev.kind.is_absent();
            is_there && vdev.top.as_ref().is_some_and(|top| !top.is_log)
        };
        let is_alike = |other: &VdevConfig| {
            let is_mirror =
                other.kind == VdevKind::Mirror && other.children.iter().all(|it| it.kind.is_leaf());
            (is_mirror || other.kind.is_leaf())
                && other.top.as_ref().is_some_and(|it| it.ashift == top.ashift)
        };
        match state.config.tree.children.iter().filter(of_data).all(is_alike) {
            true => Ok(()),
            false => Err(Error::NotAlike),
        }
    }

    /// Without the vdev there must be room for everything and the reserve.
    fn check_room_without(&self, top: &TopVdev) -> Result<()> {
        let view = self.inner.view();
        let mut room = available::available(&view, tree::root_dir(self.mos())?, &Own::default())?;
        let allocator = &self.state.allocator;
        if top.class != Class::Normal {
            let of_class = allocator.vdevs().filter(|vdev| vdev.class == top.class);
            let free = of_class.filter_map(|vdev| Some(allocator.vdev_space(vdev.id)?.free()));
            room = room.saturating_add(free.sum());
        }
        let closed = evacuation::non_allocating(&self.state.config);
        let mut others = allocator.vdevs().filter(|vdev| vdev.class == Class::Normal && vdev.id.0 != top.id);
        let has_other = others.any(|vdev| !closed.contains(&vdev.id.0));
        if !has_other || room < dspace_of(top) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Replaces the log vdev `id` by a hole and returns its devices. If blocks are still allocated on it, it is only closed
    /// for new blocks.
    fn make_hole(&mut self, id: u32) -> Result<Vec<Leaf>> {
        self.state.keeping.check_none()?;
        let index = id as usize;
        let is_log = |vdev: &VdevConfig| vdev.top.as_ref().is_some_and(|top| top.is_log);
        if !self.state.config.tree.children.get(index).is_some_and(is_log) {
            return Err(Error::NoSuchDevice);
        }
        self.state.allocator.set_allocating(VdevId(id), false);
        if !self.state.allocator.remove_vdev(VdevId(id)) {
            return Err(Error::LogInUse);
        }
        let mut tops = self.inner.storage.vdevs().tops().to_vec();
        let left = tops[index].leaves().cloned().collect();
        tops[index] = TopVdev {
            id,
            guid: 0,
            ashift: TopConfig::default().ashift,
            asize: 0,
            metaslab_shift: 0,
            class: Class::Normal,
            shape: Shape::Hole,
        };
        self.inner.storage.set_vdevs(Vdevs::new(tops));
        let config = &mut self.state.config;
        let gone = std::mem::replace(&mut config.tree.children[index], hole(u64::from(id)));
        config.hole_array.push(u64::from(id));
        config.hole_array.sort_unstable();
        self.state.config_dirty = true;
        self.free_objects_of(id, &gone)?;
        self.inner.happened("vdev_remove_dev", &[]);
        Ok(left)
    }

    /// Frees the MOS objects of a removed top-level vdev.
    pub(crate) fn free_objects_of(&mut self, id: u32, gone: &VdevConfig) -> Result<()> {
        if let Some((array, maps)) = self.state.table.vdevs.remove(&id) {
            for map in maps.into_iter().filter(|map| map.0 != 0) {
                self.free_list(map)?;
            }
            self.mos().free(&self.tx, array)?;
        }
        self.free_objects_of_leaves(gone)
    }

    /// Frees the MOS objects that belong to a removed vdev and the leaves below it.
    pub(crate) fn free_objects_of_leaves(&mut self, gone: &VdevConfig) -> Result<()> {
        for leaf in gone.leaves() {
            self.state.listed.remove(&leaf.guid.0);
            self.inner.members.remove(leaf.guid.0);
            if let Some(list) = leaf.dtl.filter(|list| list.0 != 0) {
                self.free_list(list)?;
            }
        }
        let zaps = gone.walk().flat_map(|vdev| [vdev.zap_leaf, vdev.zap_top]).flatten();
        for own in zaps.filter(|own| own.0 != 0) {
            self.free_vdev_zap(own)?;
        }
        Ok(())
    }
}

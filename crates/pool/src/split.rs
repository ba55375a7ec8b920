//! `zpool split`: one side of each mirror leaves, and becomes a pool of its own.
//!
//! From:   the administrator, by way of the command line.
//! To:     the configurations of both pools; an import of the new pool, which begins with the state that its devices hold.
//! Source: docs/format/12-auxiliary-vdevs.md §9.
//!
//! The devices are taken offline in a txg of the old pool. They hold the state of the txg before it. The new pool begins with this
//! state: its first txg writes its configuration, and its labels become those of the new pool with the uberblock of that txg. Only
//! then do the devices leave the configuration of the old pool. After a power cut in between, each device belongs to the pool that
//! its labels name; the old pool misses it until `zpool detach`, or resilvers it.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::config::{VdevConfig, VdevKind};
use format::{Guid, VdevId};
use storage::Leaf;
use storage::host::Disk;

use crate::apart::Apart;
use crate::aux_vdevs;
use crate::devices::AWAY;
use crate::options::Options;
use crate::pool::Pool;
use crate::remove::hole;
use crate::space_maps::MapTable;
use crate::state::Syncing;
use crate::tree_change::pull_up;
use crate::{Error, Result};

/// Maximal number of rounds for emptying the log devices.
const ROUNDS_MAX: usize = 16;
/// A block of an intent log that is being written when a device is taken offline belongs to one of so many txgs.
const TXGS_BEGUN: usize = 3;

/// The new pool and its devices.
pub struct SplitOff {
    pool: Pool,
    leaves: Vec<Leaf>,
}

impl SplitOff {
    /// The new pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Leaves the new pool exported.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the new pool could not write.
    pub fn export(self) -> Result<()> {
        let done = self.pool.export();
        self.leaves.iter().for_each(Leaf::close);
        done
    }
}

impl Pool {
    /// The leaves that a split takes: one of each mirror, one of `wanted` where it names one, else the last.
    ///
    /// # Errors
    /// [`Error::OnlyMirrors`]; [`Error::OneOfEach`] where `wanted` names something else than one side of a mirror each.
    pub fn sides(&self, wanted: &[Guid]) -> Result<Vec<Guid>> {
        let mut sides = Vec::new();
        let mut found = 0;
        for vdev in &self.info().config.tree.children {
            if is_left_out(vdev) || vdev.kind == VdevKind::Indirect {
                continue;
            }
            let (VdevKind::Mirror, Some(last)) = (&vdev.kind, vdev.children.last()) else {
                return Err(Error::OnlyMirrors);
            };
            let named = vdev.children.iter().find(|side| wanted.contains(&side.guid));
            found += usize::from(named.is_some());
            sides.push(named.unwrap_or(last).guid);
        }
        if sides.is_empty() {
            return Err(Error::OnlyMirrors);
        }
        if found == wanted.len() { Ok(sides) } else { Err(Error::OneOfEach) }
    }

    /// Makes a pool called `name` of the leaves `sides` ([`Pool::sides`]). `options` are those of the new pool, which is open.
    ///
    /// # Errors
    /// As [`Pool::sides`]; [`Error::NotWhole`] where a leaf or what stays does not have everything; [`Error::CheckpointExists`].
    /// If the new pool cannot be written, its devices are offline in this pool.
    pub fn split(&self, sides: &[Guid], name: &str, options: Options) -> Result<SplitOff> {
        crate::props::names::check_pool(name, true)
            .map_err(|why| Error::BadPoolName { name: name.to_owned(), why })?;
        let (apart, leaves) = self.take_apart(sides, name)?;
        for _ in 0..TXGS_BEGUN {
            self.sync()?;
        }
        let disks: Vec<Arc<dyn Disk>> = leaves.iter().map(|leaf| leaf.disk.clone()).collect();
        let options = Options { split: Some(Arc::new(apart)), ..options };
        let pool = Pool::import_disks(disks, options)?;
        for side in sides {
            self.detach(*side)?;
        }
        Ok(SplitOff { pool, leaves })
    }

    /// Takes the sides offline. If the pool has log devices, they must be empty, because the new pool does not get them.
    fn take_apart(&self, sides: &[Guid], name: &str) -> Result<(Apart, Vec<Leaf>)> {
        for _ in 0..ROUNDS_MAX {
            self.end_logs()?;
            let (sides, name) = (sides.to_vec(), name.to_owned());
            let done = self.run(move |syncing| syncing.take_apart(&sides, name));
            if !matches!(done, Err(Error::LogInUse)) {
                return done;
            }
        }
        self.run(|syncing| {
            syncing.allow_logs(true);
            Err(Error::LogInUse)
        })
    }

    /// Cleans up the MOS of a split-off pool: frees the objects of vdevs that it does not have.
    pub(crate) fn settle_split(&self, apart: &Arc<Apart>) -> Result<()> {
        let apart = apart.clone();
        self.run(move |syncing| syncing.settle_split(&apart))
    }
}

/// Whether the new pool has a hole in the place of a vdev.
fn is_left_out(vdev: &VdevConfig) -> bool {
    vdev.kind == VdevKind::Hole || vdev.top.as_ref().is_some_and(|top| top.is_log)
}

/// The top-level vdev of the new pool in the place of `vdev`.
fn part_of(vdev: &VdevConfig, sides: &[Guid]) -> Result<VdevConfig> {
    if is_left_out(vdev) {
        return Ok(hole(vdev.id));
    }
    if vdev.kind == VdevKind::Indirect {
        return Ok(vdev.clone());
    }
    let mut own = vdev.children.iter().filter(|side| sides.contains(&side.guid));
    let (VdevKind::Mirror, Some(side), None) = (&vdev.kind, own.next(), own.next()) else {
        return Err(Error::OnlyMirrors);
    };
    if !side.kind.is_leaf() {
        return Err(Error::NotWhole);
    }
    let mut part = vdev.clone();
    part.children.retain(|child| child.guid == side.guid);
    pull_up(&mut part);
    part.guid = side.guid;
    for key in AWAY.iter().chain(&["resilver_txg"]) {
        part.extra.remove(key);
    }
    Ok(part)
}

impl Syncing<'_> {
    fn take_apart(&mut self, sides: &[Guid], name: String) -> Result<(Apart, Vec<Leaf>)> {
        self.state.keeping.check_none()?;
        self.check_not_removing()?;
        let old = self.state.config.tree.clone();
        let mut config = self.state.config.clone();
        let parts: Result<Vec<_>> = old.children.iter().map(|vdev| part_of(vdev, sides)).collect();
        config.tree.children = parts?;
        let holes = config.tree.children.iter().filter(|vdev| vdev.kind == VdevKind::Hole);
        config.hole_array = holes.map(|vdev| vdev.id).collect();
        let guid = Guid(self.inner.new_guid());
        (config.name, config.pool_guid, config.tree.guid) = (name, guid, guid);
        let mut leaves = Vec::new();
        for side in sides {
            let slot = self.slot(*side)?;
            let top = self.top_of(slot);
            let leaf = top.leaves().find(|leaf| leaf.guid == side.0).ok_or(Error::NotWhole)?;
            let is_whole = leaf.health.missing().is_empty() && !leaf.health.has_failed();
            if !is_whole || !top.can_lose(side.0) {
                return Err(Error::NotWhole);
            }
            leaves.push((slot, leaf.clone()));
        }
        self.allow_logs(false);
        if self.uses_logs() {
            return Err(Error::LogInUse);
        }
        self.allow_logs(true);
        self.log_command()?;
        for (slot, leaf) in &leaves {
            self.inner.members.of(leaf.guid).miss_since(self.txg);
            self.inner.members.set_offline(leaf.guid, true);
            self.put_leaf(*slot, None)?;
        }
        let uberblock = self.state.uberblock.clone();
        Ok((Apart { uberblock, config, old }, leaves.into_iter().map(|(_, leaf)| leaf).collect()))
    }

    fn log_devices(&self) -> Vec<VdevId> {
        let logs = self.state.config.tree.children.iter();
        let logs = logs.filter(|vdev| vdev.top.as_ref().is_some_and(|top| top.is_log));
        logs.map(|vdev| VdevId(vdev.id as u32)).collect()
    }

    /// Whether blocks are allocated on a log device.
    fn uses_logs(&self) -> bool {
        self.log_devices().into_iter().any(|id| !self.state.allocator.is_empty(id))
    }

    /// Sets whether logs are placed on log devices.
    fn allow_logs(&mut self, allow: bool) {
        for id in self.log_devices() {
            self.state.allocator.set_allocating(id, allow);
        }
    }

    fn settle_split(&mut self, apart: &Apart) -> Result<()> {
        let kept: BTreeSet<u64> = apart.config.tree.leaves().map(|leaf| leaf.guid.0).collect();
        for vdev in &apart.old.children {
            match &vdev.top {
                Some(top) if top.is_log => {
                    let array = (vdev.id as u32, top.metaslab_array, top.asize >> top.metaslab_shift);
                    let table = MapTable::load(&self.mos().objset, &[array])?;
                    self.state.table.vdevs.extend(table.vdevs);
                    self.free_objects_of(vdev.id as u32, vdev)?;
                }
                _ => {
                    for side in vdev.children.iter().filter(|side| !kept.contains(&side.guid.0)) {
                        self.free_objects_of_leaves(side)?;
                    }
                }
            }
        }
        for aux in self.inner.aux_vdevs()? {
            aux_vdevs::take_off(self.mos(), &self.tx, aux.kind, aux.config.guid)?;
        }
        Ok(())
    }
}

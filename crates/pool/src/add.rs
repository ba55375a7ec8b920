//! Adding devices to an existing pool: `zpool add`.
//!
//! From:   the administrator, by way of the command line.
//! To:     the configuration in MOS and labels, the vdevs in `storage`, the space in the allocator; the lists of caches and spares.
//! Source: docs/format/01-labels-uberblock.md §5, §8; 05-space-maps.md §1; 11-redundancy.md §8.1; 12-auxiliary-vdevs.md §2.9, §4.
//!
//! Blocks of the txg that adds a vdev may lie on it already: its labels are on the disks before the uberblock that leads to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::config::{VdevConfig, VdevKind};
use format::{Guid, ObjectId, features};
use storage::allocator::Class;
use storage::host::Disk;
use storage::layout::Spread;
use storage::{TopVdev, Vdevs};

use crate::aux_vdevs::{self, AuxKind, NewAux};
use crate::create::vdev_spec;
use crate::features::FeatureState;
use crate::new_vdevs::{self, Layout, NewTop, new_device};
use crate::pool::Pool;
use crate::state::{Inner, Syncing};
use crate::tree_change::ZAPS;
use crate::{Error, Result, labels, version};

/// Devices to be added to a pool.
#[derive(Clone, Debug, Default)]
pub struct NewDevices {
    /// Top-level vdevs.
    pub tops: Vec<NewTop>,
    /// Caches.
    pub caches: Vec<Arc<dyn Disk>>,
    /// Hot spares.
    pub spares: Vec<Arc<dyn Disk>>,
    /// log2 of their sector size in bytes. Without it, each device's own sector size is used.
    pub ashift: Option<u32>,
    /// Accepts devices whose sector size differs from that of the pool's data vdevs.
    pub any_ashift: bool,
}

impl NewDevices {
    fn aux(&self) -> impl Iterator<Item = (AuxKind, &Arc<dyn Disk>)> {
        let caches = self.caches.iter().map(|disk| (AuxKind::Cache, disk));
        caches.chain(self.spares.iter().map(|disk| (AuxKind::Spare, disk)))
    }

    fn disks(&self) -> impl Iterator<Item = &Arc<dyn Disk>> {
        self.tops.iter().flat_map(|top| &top.disks).chain(self.aux().map(|(_, disk)| disk))
    }

    /// Refuses vdevs that pools of `version` cannot have.
    fn check_version(&self, pool: u64) -> Result<()> {
        let needed_by = |top: &NewTop| match top.layout {
            Layout::Raidz(3) => version::RAIDZ3,
            Layout::Raidz(_) => version::DEFLATED,
            _ if top.class == Class::Log => version::LOGS,
            _ => *version::LEGACY.start(),
        };
        let aux = |kind| if kind == AuxKind::Cache { version::CACHES } else { version::SPARES };
        let of_aux = self.aux().map(|(kind, _)| aux(kind));
        let needed = self.tops.iter().map(needed_by).chain(of_aux).max();
        version::check(pool, needed.unwrap_or_default())
    }
}

/// Vdevs that passed all checks and are not part of the pool yet.
struct Built {
    tops: Vec<(VdevConfig, TopVdev)>,
    aux: Vec<NewAux>,
}

impl Pool {
    /// Adds devices. Everything that they held before is lost.
    ///
    /// # Errors
    /// [`Error::BadDevice`], [`Error::AshiftMismatch`], [`Error::OldPool`], [`Error::Busy`]: then nothing was changed;
    /// [`Error::ReadOnly`]; a device that refuses.
    pub fn add(&self, new: NewDevices) -> Result<()> {
        let config = self.info().config;
        new.check_version(config.version)?;
        // Where sums of space count parity, raidz has no exact figures.
        let adds_raidz = new.tops.iter().any(|top| matches!(top.layout, Layout::Raidz(_)));
        if adds_raidz && self.inner.mos.directory("deflate")?.is_none() {
            return Err(Error::OldPool);
        }
        let adds_draid = new.tops.iter().any(|top| matches!(top.layout, Layout::Draid(_)));
        if adds_draid && self.info().feature(&features::DRAID) == FeatureState::Disabled {
            return Err(Error::NoDraid);
        }
        let special = new.tops.iter().any(|top| new_vdevs::is_counted(top.class));
        if special && !self.inner.takes_classes() {
            return Err(Error::NoClasses);
        }
        let known: BTreeSet<_> =
            self.inner.storage.vdevs().leaves().map(|leaf| leaf.disk.path().to_path_buf()).collect();
        if let Some(disk) = new.disks().find(|disk| known.contains(disk.path())) {
            return Err(Error::Busy { path: disk.path().to_path_buf(), holder: Some("this pool".into()) });
        }
        self.run(move |syncing| syncing.add(&new))
    }
}

impl Inner {
    /// Whether the pool may have special and dedup vdevs.
    fn takes_classes(&self) -> bool {
        self.info().feature(&features::ALLOCATION_CLASSES) != FeatureState::Disabled
    }
}

impl Syncing<'_> {
    fn add(&mut self, new: &NewDevices) -> Result<()> {
        let built = self.build_added(new)?;
        if let Err(error) = self.prepare(new, &built) {
            // No part of the pool yet.
            new.disks().for_each(|disk| drop(labels::clear(disk)));
            return Err(error);
        }
        let mos = self.mos();
        let zaps = mos.directory_object(ZAPS)?;
        self.count_classes(built.tops.iter().map(|(_, top)| top))?;
        for (config, top) in built.tops {
            self.take_in(config, top, zaps)?;
        }
        aux_vdevs::append(mos, &self.tx, &built.aux)?;
        self.inner.use_caches(built.aux.iter().zip(new.aux().map(|(_, disk)| disk)));
        self.inner.aux_disks.hold(new.aux().map(|(_, disk)| disk.clone()));
        self.state.config.vdev_children = self.state.config.tree.children.len() as u64;
        self.state.config_dirty = true;
        self.inner.happened("vdev_add", &[]);
        Ok(())
    }

    /// Plans the new vdevs. Writes nothing.
    fn build_added(&self, new: &NewDevices) -> Result<Built> {
        let root = &self.state.config.tree;
        let guid = || Guid(self.inner.new_guid());
        let of_data = |vdev: &&VdevConfig| {
            !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect)
                && vdev.top.as_ref().is_some_and(|top| !top.is_log)
        };
        let shifts: BTreeSet<u32> =
            root.children.iter().filter(of_data).filter_map(|vdev| Some(vdev.top.as_ref()?.ashift)).collect();
        let (mut tops, mut distributed) = (Vec::new(), Vec::new());
        for (id, new_top) in (root.children.len() as u64..).zip(&new.tops) {
            let (mut config, top) = new_top.build(id, &guid, new.ashift)?;
            self.check_beside_removed(new_top.layout, top.ashift)?;
            let fits = new_vdevs::is_counted(top.class) || shifts.len() != 1 || shifts.contains(&top.ashift);
            if !fits && !new.any_ashift {
                return Err(Error::AshiftMismatch);
            }
            config.create_txg = Some(self.txg);
            config.children.iter_mut().for_each(|child| child.create_txg = Some(self.txg));
            distributed.extend(aux_vdevs::distributed_spares(&config, &guid));
            tops.push((config, top));
        }
        let mut aux = Vec::new();
        for (kind, disk) in new.aux() {
            let (config, top) = new_device(0, guid(), disk, new.ashift)?;
            let config = VdevConfig { top: None, create_txg: None, ..config };
            aux.push(NewAux { kind, config, ashift: top.ashift });
        }
        aux.extend(distributed);
        Ok(Built { tops, aux })
    }

    /// Refuses a vdev to which blocks of a removed vdev, or of one that is being removed, cannot be copied.
    fn check_beside_removed(&self, layout: Layout, ashift: u32) -> Result<()> {
        let tree = &self.state.config.tree;
        let removing = self.state.evacuating.as_ref().map(|it| it.vdev().0 as usize);
        let has_removed = tree.children.iter().any(|vdev| vdev.kind == VdevKind::Indirect);
        let has_parity = !matches!(layout, Layout::Single | Layout::Mirror);
        let own = removing.and_then(|index| tree.children[index].top.as_ref());
        if (has_removed || removing.is_some()) && has_parity || own.is_some_and(|own| own.ashift != ashift) {
            return Err(Error::HasRemoved);
        }
        Ok(())
    }

    /// Counts new special, dedup and draid vdevs, where the pool has features.
    pub(crate) fn count_classes<'a>(&mut self, tops: impl IntoIterator<Item = &'a TopVdev>) -> Result<()> {
        let Some(features) = self.state.features.as_mut() else { return Ok(()) };
        for top in tops {
            let counted = [
                (new_vdevs::is_counted(top.class), &features::ALLOCATION_CLASSES),
                (matches!(top.spread(), Some(Spread::Draid(_))), &features::DRAID),
            ];
            for (_, feature) in counted.into_iter().filter(|(is_counted, _)| *is_counted) {
                features.adjust(&self.tx, feature, 1)?;
            }
        }
        Ok(())
    }

    /// Wipes old labels, and writes the labels of caches and spares, because a list that names them must find them.
    fn prepare(&self, new: &NewDevices, built: &Built) -> Result<()> {
        for disk in new.tops.iter().flat_map(|top| &top.disks) {
            labels::initialise(disk)?;
        }
        for ((_, disk), aux) in new.aux().zip(&built.aux) {
            aux.label(disk, self.state.config.version)?;
        }
        Ok(())
    }

    /// Makes a top-level vdev part of the pool. Its id follows the highest one.
    fn take_in(&mut self, mut config: VdevConfig, top: TopVdev, zaps: Option<ObjectId>) -> Result<()> {
        let maps = new_vdevs::create_objects(self.mos(), &self.tx, zaps, &mut config, &top)?;
        self.state.table.vdevs.insert(top.id, maps);
        let added = self.state.allocator.add_vdev(vdev_spec(&top), std::iter::empty());
        added.map_err(Error::corrupt(ObjectId(0)))?;
        top.leaves().for_each(|leaf| self.inner.members.join(leaf));
        let mut tops = self.inner.storage.vdevs().tops().to_vec();
        tops.push(top);
        let vdevs = Vdevs::new(tops);
        vdevs.set_slow_limit(self.inner.groups.limits.slow_io());
        self.inner.storage.set_vdevs(vdevs);
        self.state.config.tree.children.push(config);
        Ok(())
    }
}

//! Closing devices and opening them again: `zpool offline`, `online` and `clear`.
//!
//! From:   the administrator, by way of the command line.
//! To:     the vdevs in `storage`, the configuration, and what the leaf misses from then on.
//! Source: docs/format/11-redundancy.md §1.1, §8.5.

use std::path::Path;
use std::sync::Arc;

use format::config::{VdevConfig, VdevKind};
use format::{Guid, Txg, label};
use storage::host::{Access, Disk};
use storage::{Leaf, TopVdev, Vdevs};

use crate::labels;
use crate::marks::RESILVERED;
use crate::members::{Member, is_called_faulty};
use crate::opened::open_disk;
use crate::pool::{Inner, Pool};
use crate::redundancy::Newest;
use crate::replacement;
use crate::shape::distributed_spare;
use crate::state::Syncing;
use crate::sync::missing::leaf_mut;
use crate::tree_change::Joined;
use crate::{Error, Result};

/// When a device comes back, blocks of this many txgs may be written already: of the syncing, the quiescing and the open
/// one, for which the intent log writes.
const TXGS_BEGUN: u64 = 3;

/// Keys of a leaf's configuration that mark it as not in use.
pub(crate) const AWAY: [&str; 6] = ["offline", "faulted", "degraded", "removed", "not_present", "aux_state"];

/// Where a leaf is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Index of the top-level vdev.
    pub(crate) top: usize,
    /// Number among the leaves of the top-level vdev.
    pub(crate) child: usize,
}

/// Position of the leaf with this guid in the tree, if it has one.
pub(crate) fn slot_of(root: &VdevConfig, guid: Guid) -> Option<Slot> {
    root.children.iter().enumerate().find_map(|(top, vdev)| {
        let child = vdev.leaves().position(|leaf| leaf.guid == guid)?;
        Some(Slot { top, child })
    })
}

impl Syncing<'_> {
    /// Puts `leaf` into this position, or empties it.
    pub(crate) fn put_leaf(&mut self, slot: Slot, leaf: Option<Leaf>) -> Result<()> {
        let mut tops: Vec<TopVdev> = self.inner.storage.vdevs().tops().to_vec();
        if !tops[slot.top].put(slot.child, leaf) {
            return Err(Error::NoReplicas);
        }
        self.inner.storage.set_vdevs(Vdevs::new(tops));
        Ok(())
    }

    pub(crate) fn slot(&self, guid: Guid) -> Result<Slot> {
        slot_of(&self.state.config.tree, guid).ok_or(Error::NoSuchDevice)
    }

    pub(crate) fn top_of(&self, slot: Slot) -> &TopVdev {
        &self.inner.storage.vdevs().tops()[slot.top]
    }

    /// Closes the device of a leaf. The other leaves of its top-level vdev must hold all of its data.
    pub(crate) fn take_away(&mut self, guid: Guid) -> Result<()> {
        let slot = self.slot(guid)?;
        let top = self.top_of(slot);
        let Some(leaf) = top.leaves().find(|leaf| leaf.guid == guid.0).cloned() else { return Ok(()) };
        if !top.can_lose(guid.0) {
            return Err(Error::NoReplicas);
        }
        // A failed leaf misses all txgs since it failed.
        self.inner.members.of(guid.0).miss_since(self.txg);
        top.device_goes();
        self.put_leaf(slot, None)?;
        leaf.close();
        Ok(())
    }

    fn bring_back(&mut self, guid: Guid, disk: Arc<dyn Disk>, newest: Txg) -> Result<()> {
        let slot = self.slot(guid)?;
        let top = self.top_of(slot);
        let bad = |why: &str| Error::BadDevice { path: disk.path().to_path_buf(), why: why.to_owned() };
        if top.leaves().any(|leaf| leaf.guid == guid.0) {
            return Ok(());
        }
        if label::asize_of(disk.size()) < top.asize_of_leaf() {
            return Err(bad("it is shorter than it was"));
        }
        if newest > self.state.uberblock.txg {
            return Err(bad(
                "it holds a later state of the pool, which was written without the other devices",
            ));
        }
        let health = self.inner.members.of(guid.0);
        let next = Txg(self.txg.0 + TXGS_BEGUN);
        health.add_missing(newest.next(), next);
        health.come_back(next);
        self.inner.members.set_offline(guid.0, false);
        self.inner.members.set_faulted(guid.0, false);
        let path = std::path::absolute(disk.path()).unwrap_or_else(|_| disk.path().to_path_buf());
        let leaf = Leaf::with_health(guid.0, disk, health);
        self.put_leaf(slot, Some(leaf))?;
        let config = leaf_mut(&mut self.state.config.tree, guid.0).ok_or(Error::NoSuchDevice)?;
        AWAY.iter().for_each(|key| drop(config.extra.remove(key)));
        config.path = Some(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec());
        config.extra.insert("expansion_time", self.inner.host.clock.now().0);
        replacement::note_return(&mut self.state.config.tree, guid);
        self.state.config_dirty = true;
        Ok(())
    }

    fn bring_back_distributed(&mut self, guid: Guid) -> Result<()> {
        let slot = self.slot(guid)?;
        let top = self.top_of(slot).clone();
        if top.leaves().any(|leaf| leaf.guid == guid.0) {
            return Ok(());
        }
        let smallest = top.leaves().map(|leaf| leaf.disk.size()).min().ok_or(Error::NoSuchDevice)?;
        let txg = self.txg;
        let health = self.inner.members.of(guid.0);
        let config = leaf_mut(&mut self.state.config.tree, guid.0).ok_or(Error::NoSuchDevice)?;
        let leaf = distributed_spare(config, smallest, health.clone()).ok_or(Error::NoSuchDevice)?;
        self.relay(slot.top, top, &[leaf]);
        if !self.inner.is_open(guid.0) {
            return Err(Error::NoSuchDevice);
        }
        health.come_back(Txg(txg.0 + TXGS_BEGUN));
        self.inner.members.set_offline(guid.0, false);
        self.inner.members.set_faulted(guid.0, false);
        let config = leaf_mut(&mut self.state.config.tree, guid.0).ok_or(Error::NoSuchDevice)?;
        AWAY.iter().for_each(|key| drop(config.extra.remove(key)));
        if !health.missing().is_empty() {
            // This shows an import that the list has more than the txgs that devices miss.
            config.extra.insert(RESILVERED, txg.0);
        }
        replacement::note_return(&mut self.state.config.tree, guid);
        self.state.config_dirty = true;
        Ok(())
    }
}

impl Pool {
    /// Takes a device offline. With `temporary`, the next import opens it again.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::NoReplicas`] if the other leaves do not hold all of its data.
    pub fn offline(&self, guid: Guid, temporary: bool) -> Result<()> {
        self.run(move |syncing| {
            syncing.take_away(guid)?;
            syncing.inner.members.set_offline(guid.0, true);
            if !temporary {
                let leaf = leaf_mut(&mut syncing.state.config.tree, guid.0).ok_or(Error::NoSuchDevice)?;
                leaf.extra.insert("offline", 1u64);
                syncing.state.config_dirty = true;
            }
            syncing.inner.state_changed(guid, "OFFLINE");
            Ok(())
        })
    }

    /// Takes a device offline and marks it faulted. With `temporary`, the next import opens it again.
    ///
    /// # Errors
    /// As [`Pool::offline`].
    pub fn fault(&self, guid: Guid, temporary: bool) -> Result<()> {
        self.run(move |syncing| {
            syncing.take_away(guid)?;
            syncing.inner.members.set_faulted(guid.0, true);
            if !temporary {
                let leaf = leaf_mut(&mut syncing.state.config.tree, guid.0).ok_or(Error::NoSuchDevice)?;
                leaf.extra.insert("faulted", 1u64);
                leaf.extra.insert("aux_state", "external");
                syncing.state.config_dirty = true;
            }
            syncing.inner.state_changed(guid, "FAULTED");
            Ok(())
        })
    }

    /// Opens the device at `path` again. A resilver (crate `scan`) writes to it what it missed.
    ///
    /// # Errors
    /// [`Error::BadDevice`]: it is not the device that it was; as [`Pool::offline`].
    pub fn online(&self, guid: Guid, path: &Path) -> Result<Joined> {
        self.let_go_of_failed(guid)?;
        if self.inner.is_open(guid.0) {
            return Ok(Joined(()));
        }
        let config = self.info().config;
        if config.tree.find(guid).is_some_and(|leaf| leaf.kind == VdevKind::DistributedSpare) {
            return self.online_distributed(guid);
        }
        let disk = open_disk(path, Access::ReadWrite { exclusive: true })?;
        self.online_disk(guid, Arc::new(disk))
    }

    /// As [`Pool::online`], with the device itself.
    ///
    /// # Errors
    /// As [`Pool::online`].
    pub fn online_disk(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<Joined> {
        self.let_go_of_failed(guid)?;
        let found = labels::read(&*disk);
        let pool_guid = self.guid();
        let is_own = found.pool_configs().any(|config| {
            config.pool_guid == pool_guid && config.label.is_some_and(|label| label.guid == guid)
        });
        let newest = Newest::of(found.uberblocks.iter().map(|uberblock| uberblock.txg));
        let (true, Some(newest)) = (is_own, newest) else {
            let why = "its labels are not those of the device that the pool had there".to_owned();
            return Err(Error::BadDevice { path: disk.path().to_path_buf(), why });
        };
        self.run(move |syncing| {
            syncing.bring_back(guid, disk, newest.last())?;
            syncing.inner.state_changed(guid, "ONLINE");
            Ok(Joined(()))
        })
    }

    /// Brings a distributed spare back online.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`].
    fn online_distributed(&self, guid: Guid) -> Result<Joined> {
        self.run(move |syncing| {
            syncing.bring_back_distributed(guid)?;
            syncing.inner.state_changed(guid, "ONLINE");
            Ok(Joined(()))
        })
    }

    /// Closes a failed leaf, so that its device can be opened again.
    fn let_go_of_failed(&self, guid: Guid) -> Result<()> {
        if !self.inner.members.of(guid.0).has_failed() {
            return Ok(());
        }
        self.run(move |syncing| syncing.take_away(guid))
    }

    /// Opens failed and missing devices again, all or only `only`. Devices that an administrator took offline stay offline.
    /// Returns the devices that could not be opened.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::ReadOnly`].
    pub fn reopen(&self, only: Option<Guid>) -> Result<(Vec<Guid>, Joined)> {
        let config = self.info().config;
        let mut away = Vec::new();
        for leaf in config.tree.leaves().filter(|leaf| only.is_none_or(|guid| guid == leaf.guid)) {
            let health = self.inner.members.of(leaf.guid.0);
            let is_well = self.inner.is_open(leaf.guid.0) && !health.has_failed();
            if is_well || self.inner.is_offline(leaf) {
                continue;
            }
            let path = leaf.path.as_deref().map(String::from_utf8_lossy);
            let back = path.is_some_and(|path| match self.online(leaf.guid, Path::new(&*path)) {
                Ok(Joined(())) => true,
                Err(error) => {
                    tracing::warn!(%error, "a device is not back");
                    false
                }
            });
            if !back {
                away.push(leaf.guid);
            }
        }
        Ok((away, Joined(())))
    }
}

impl Inner {
    /// Whether an administrator took the leaf offline.
    pub(crate) fn is_offline(&self, leaf: &VdevConfig) -> bool {
        leaf.extra.get_u64("offline") == Some(1) || self.members.is_offline(leaf.guid.0)
    }

    /// Whether the device of the leaf is open.
    pub(crate) fn is_open(&self, guid: u64) -> bool {
        self.storage.vdevs().leaves().any(|leaf| leaf.guid == guid)
    }
}

impl Pool {
    /// State of each leaf, in the order of the configuration.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let config = self.info().config;
        let member = |leaf: &VdevConfig| {
            let health = self.inner.members.of(leaf.guid.0);
            Member {
                guid: leaf.guid,
                is_open: self.inner.is_open(leaf.guid.0),
                is_offline: self.inner.is_offline(leaf),
                is_faulted: is_called_faulty(leaf) || self.inner.members.is_faulted(leaf.guid.0),
                failed: health.why(),
                is_behind: !health.missing().is_empty(),
            }
        };
        config.tree.leaves().map(member).collect()
    }
}

//! Using devices that became larger or were replaced by larger ones: `zpool online -e` and the pool property `autoexpand`.
//!
//! From:   the administrator; devices that left mirrors; imports.
//! To:     the configuration, the vdevs in `storage`, the space in the allocator.
//! Source: docs/format/01-labels-uberblock.md §8; 05-space-maps.md §1; 11-redundancy.md §8.7.
//!
//! The size of a metaslab does not change; the vdev gets more metaslabs. The place of the last two labels follows from the
//! size that the device had when it was opened.

use format::config::{VdevConfig, VdevKind};
use format::{Guid, VdevId, label};
use storage::allocator::Class;
use storage::host::{Access, Disk};
use storage::{TopVdev, Vdevs};

use crate::opened::open_disk;
use crate::pool::{Inner, Pool};
use crate::state::Syncing;
use crate::tree_change::Joined;
use crate::{Error, Result};

/// The pool property under which vdevs grow without a command.
const AUTOEXPAND: &str = "autoexpand";

impl Pool {
    /// Expands the top-level vdev of a leaf to the size of its devices. Returns whether it grew.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::GrownMeanwhile`]; it cannot be written.
    pub fn expand(&self, guid: Guid) -> Result<(bool, Joined)> {
        let joined = self.reopen_grown(guid)?;
        let grew = self.run(move |syncing| {
            let slot = syncing.slot(guid)?;
            syncing.expand(slot.top)
        })?;
        Ok((grew, joined))
    }

    /// Opens the device of a leaf again if it has become larger since it was opened.
    ///
    /// # Errors
    /// [`Error::GrownMeanwhile`] if the pool needs it during that moment.
    fn reopen_grown(&self, guid: Guid) -> Result<Joined> {
        let vdevs = self.inner.storage.vdevs();
        let is_meant = |leaf: &&storage::Leaf| leaf.guid == guid.0 && leaf.distributed().is_none();
        let Some(leaf) = vdevs.leaves().find(is_meant) else {
            return Ok(Joined(()));
        };
        let path = leaf.disk.path();
        let is_larger = open_disk(path, Access::Peek).is_ok_and(|disk| disk.size() > leaf.disk.size());
        if !is_larger {
            return Ok(Joined(()));
        }
        self.run(move |syncing| syncing.take_away(guid)).map_err(|error| match error {
            Error::NoReplicas => Error::GrownMeanwhile,
            other => other,
        })?;
        self.online(guid, path)
    }
}

impl Inner {
    /// Expands all vdevs if the property `autoexpand` is on.
    pub(crate) fn autoexpand(&self) -> Result<()> {
        let Some(id) = self.mos.directory_object("pool_props")? else { return Ok(()) };
        let wanted = dmu::zap::lookup_u64(&*self.mos.object(id)?, AUTOEXPAND.as_bytes())?;
        let tops = self.info().config.tree.children.len();
        let could = |index: &usize| {
            let config = &self.info().config.tree.children[*index];
            grown(config, &self.storage.vdevs().tops()[*index]).is_some()
        };
        if wanted != Some(1) || !(0..tops).any(|index| could(&index)) {
            return Ok(());
        }
        self.run(move |syncing| (0..tops).try_for_each(|index| syncing.expand(index).map(drop)))
    }
}

/// The size that a top-level vdev could have on its devices, if that gives it more metaslabs. All its devices must be
/// present.
fn grown(config: &VdevConfig, top: &TopVdev) -> Option<u64> {
    let own = config.top.as_ref()?;
    let smallest = top.leaves().map(|leaf| label::asize_of(leaf.disk.size())).min()?;
    let asize = match config.kind {
        _ if top.leaves().count() != config.leaves().count() => return None,
        VdevKind::Raidz { .. } => smallest.checked_mul(config.children.len() as u64)?,
        VdevKind::Disk | VdevKind::File | VdevKind::Mirror => smallest,
        _ => return None,
    };
    let grows = own.metaslab_shift > 0 && asize >> own.metaslab_shift > own.asize >> own.metaslab_shift;
    grows.then_some(asize)
}

impl Syncing<'_> {
    pub(crate) fn expand(&mut self, index: usize) -> Result<bool> {
        let config = &mut self.state.config.tree.children[index];
        let mut tops = self.inner.storage.vdevs().tops().to_vec();
        let Some(asize) = grown(config, &tops[index]) else { return Ok(false) };
        let id = tops[index].id;
        let Some((array, maps)) = self.state.table.vdevs.get_mut(&id) else { return Ok(false) };
        let own = config.top.as_mut().ok_or(Error::NoSuchDevice)?;
        let count = asize >> own.metaslab_shift;
        let more = (count - (own.asize >> own.metaslab_shift)) << own.metaslab_shift;
        self.state.allocator.grow_vdev(VdevId(id), asize).map_err(Error::corrupt(*array))?;
        maps.resize(count as usize, format::ObjectId(0));
        own.asize = asize;
        tops[index].asize = asize;
        self.inner.mos.object(*array)?.write(&self.tx, (count - 1) * 8, &[0; 8])?;
        let room = |top: &TopVdev| top.metaslab_count() << top.metaslab_shift;
        let size: u64 = tops.iter().filter(|top| top.class == Class::Normal).map(room).sum();
        self.inner.storage.set_vdevs(Vdevs::new(tops));
        self.state.config_dirty = true;
        let name = self.inner.name();
        self.log_internal("vdev online", &format!("pool '{name}' size: {size}(+{more})"))?;
        self.inner.happened("vdev_autoexpand", &[]);
        Ok(true)
    }
}

//! The txgs that the devices of an imported pool missed, and whether the pool can be written in this state.
//!
//! From:   the configuration in the MOS of a pool that is being imported, the lists of missed txgs, the newest states of the devices.
//! To:     the health of each leaf; a reason to open the pool for reading only.
//! Source: docs/format/11-redundancy.md §1.1, §3.4.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use format::Txg;
use format::config::{PoolConfig, VdevConfig, VdevKind};
use storage::host::Disk;
use storage::{Shape, Storage, TopVdev, TxgRuns};

use crate::distributed;
use crate::members::{self, Members};
use crate::mos::Mos;
use crate::named_places::is_same;
use crate::pool::Inner;
use crate::{NotWritten, Result};

/// Finds the txgs that each leaf missed, from the lists on disk and the states of the devices. Returns a reason if OpenZFS
/// must repair the pool before it can be written here. `newest` has the newest states of each device by its guid.
///
/// # Errors
/// A list cannot be read.
pub(crate) fn judge(
    mos: &Mos,
    storage: &Storage,
    config: &PoolConfig,
    newest: &HashMap<u64, Newest>,
    members: &Members,
) -> Result<Option<NotWritten>> {
    let synced = newest.values().map(|newest| newest.last).max().unwrap_or_default();
    storage.set_unsynced(synced.next());
    for (vdev, top) in config.tree.children.iter().zip(storage.vdevs().tops()) {
        let latest = vdev.leaves().filter_map(|leaf| newest.get(&leaf.guid.0)).max();
        for leaf in vdev.leaves() {
            let health = members.of(leaf.guid.0);
            health.set_missing(members::read_list(mos, leaf.dtl)?);
            let is_open = top.leaves().any(|open| open.guid == leaf.guid.0);
            let own = newest.get(&leaf.guid.0).filter(|_| is_open);
            match (own, latest) {
                // It has no labels.
                (None, _) if leaf.kind == VdevKind::DistributedSpare && is_open => {}
                // A vdev with one device is not written while the device is missing.
                (None, _) if vdev.kind.is_leaf() => {}
                (None, _) => health.miss_since(synced.next()),
                // The device is an old copy.
                (Some(own), Some(latest)) if own.is_behind(latest) => {
                    health.add_missing(own.last.next(), synced.next());
                }
                _ => {}
            }
        }
        distributed::lists_from_disk(vdev, members);
        if let Some(why) = unwritable(top) {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Finds the devices that are old copies, from their labels, before anything else is read from the pool. Blocks of later
/// txgs that such a device lacks do not count as device errors.
pub(crate) fn note_old_copies<'a>(
    tops: impl Iterator<Item = &'a VdevConfig>,
    newest: &HashMap<u64, Newest>,
    members: &Members,
) {
    for top in tops {
        let Some(latest) = top.leaves().filter_map(|leaf| newest.get(&leaf.guid.0)).max() else { continue };
        for leaf in top.leaves() {
            if let Some(own) = newest.get(&leaf.guid.0).filter(|own| own.is_behind(latest)) {
                members.of(leaf.guid.0).miss_since(own.last.next());
            }
        }
    }
}

/// Why this top-level vdev is not written, although its layout is supported.
fn unwritable(top: &TopVdev) -> Option<NotWritten> {
    // Guid 0 is that of no leaf.
    if matches!(top.shape, Shape::Mirror(_) | Shape::Parity { .. }) && !top.can_lose(0) {
        return Some(NotWritten::DevicesMissing);
    }
    None
}

/// Why the pool cannot return to an earlier state: a leaf that is not open may hold later states.
pub(crate) fn may_return(config: &PoolConfig, storage: &Storage, returns: bool) -> Option<NotWritten> {
    let is_open = |leaf: &VdevConfig| storage.vdevs().leaves().any(|open| open.guid == leaf.guid.0);
    let lacks_any = returns && config.tree.leaves().any(|leaf| !is_open(leaf));
    lacks_any.then_some(NotWritten::LaterStates)
}

/// The lists on disk, by the guid of the leaf. The configuration notes which leaves were found.
///
/// # Errors
/// One cannot be read.
pub(crate) fn listed(
    inner: &Inner,
    config: &mut PoolConfig,
    disks: &HashMap<u64, Arc<dyn Disk>>,
) -> Result<BTreeMap<u64, TxgRuns>> {
    mark(config, &inner.storage, disks);
    let leaves = config.tree.leaves().filter(|leaf| leaf.dtl.is_some());
    leaves.map(|leaf| Ok((leaf.guid.0, members::read_list(&inner.mos, leaf.dtl)?))).collect()
}

/// In the txgs after `synced` up to `newest`, only log blocks were born. A leaf that missed txgs before may have missed
/// these, too.
pub(crate) fn miss_gap(inner: &Inner, synced: Txg, newest: Txg) {
    for leaf in inner.storage.vdevs().leaves().filter(|leaf| !leaf.health.missing().is_empty()) {
        leaf.health.add_missing(synced.next(), newest.next());
    }
}

/// Records in the configuration which leaves this import did not find, and the new paths of those that it found. The first sync
/// of an import that writes puts them into the labels.
fn mark(config: &mut PoolConfig, storage: &Storage, disks: &HashMap<u64, Arc<dyn Disk>>) {
    let open: Vec<u64> = storage.vdevs().leaves().map(|leaf| leaf.guid).collect();
    mark_below(&mut config.tree, &open, disks);
}

fn mark_below(vdev: &mut VdevConfig, open: &[u64], disks: &HashMap<u64, Arc<dyn Disk>>) {
    if vdev.kind.is_leaf() {
        if open.contains(&vdev.guid.0) {
            for key in ["not_present", "removed", "faulted"] {
                vdev.extra.remove(key);
            }
        } else if !members::is_closed(vdev) {
            vdev.extra.insert("not_present", 1u64);
        }
        if let Some(disk) = disks.get(&vdev.guid.0) {
            note_place(vdev, disk.path());
        }
    }
    vdev.children.iter_mut().for_each(|child| mark_below(child, open, disks));
}

/// Keys of a leaf's configuration that describe the disk at its path.
pub(crate) const OF_PLACE: [&str; 3] = ["devid", "phys_path", "vdev_enc_sysfs_path"];

/// Records that the device of `vdev` is at `path`, if the path that the pool knows does not lead to it any more. Returns whether
/// the configuration changed.
pub(crate) fn note_place(vdev: &mut VdevConfig, path: &Path) -> bool {
    let known = vdev.path.as_deref().map(|raw| Path::new(OsStr::from_bytes(raw)));
    // Files that another process holds open are found below /proc, until that process ends.
    if path.starts_with("/proc") || known.is_some_and(|known| known == path || is_same(known, path)) {
        return false;
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    vdev.path = Some(path.into_os_string().into_vec());
    for key in OF_PLACE {
        vdev.extra.remove(key);
    }
    true
}

/// The txgs of the newest two uberblocks of a device. The txgs between them may never have existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Newest {
    last: Txg,
    before: Txg,
}

impl Newest {
    /// The newest two of the states of a device; `None` if there are none.
    pub(crate) fn of(states: impl Iterator<Item = Txg> + Clone) -> Option<Newest> {
        let last = states.clone().max()?;
        let before = states.filter(|txg| *txg < last).max().unwrap_or(last);
        Some(Newest { last, before })
    }

    /// The newest state.
    pub(crate) const fn last(self) -> Txg {
        self.last
    }

    /// Whether a device misses more than the newest state of `latest`. It may miss that one, because the power may have
    /// failed while it was written.
    fn is_behind(self, latest: &Newest) -> bool {
        self.last < latest.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_lacks_two_states_is_left_behind() {
        let behind = |states: [&[u64]; 2]| {
            let newest = |txgs: &[u64]| Newest::of(txgs.iter().copied().map(Txg));
            let all: Vec<_> = [2, 3]
                .into_iter()
                .zip(states)
                .filter_map(|(guid, txgs)| Some((guid, newest(txgs)?)))
                .collect();
            let latest = all.iter().map(|(_, newest)| *newest).max()?;
            all.iter().find(|(_, own)| own.is_behind(&latest)).map(|(guid, _)| *guid)
        };
        assert_eq!(behind([&[4, 5, 6], &[6, 5, 4]]), None);
        // The power failed during a txg whose number does not follow the previous one.
        assert_eq!(behind([&[4, 5, 90], &[4, 5]]), None);
        assert_eq!(behind([&[4, 5], &[4, 5, 90]]), None);
        assert_eq!(behind([&[4, 5, 6], &[4]]), Some(3));
        assert_eq!(behind([&[4], &[4, 5, 6]]), Some(2));
        // All states of a new pool fit into one uberblock.
        assert_eq!(behind([&[4], &[4]]), None);
        assert_eq!(behind([&[4], &[]]), None);
    }
}

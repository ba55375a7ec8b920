//! Finding pools on devices, by their labels.
//!
//! From:   folders, files and devices that the user names.
//! To:     `Pool::import`, and lists of what could be imported.
//! Source: docs/format/01-labels-uberblock.md §4.3.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::uberblock::{Mmp, Uberblock};
use format::{Guid, Txg, label};
use storage::host::{Access, Disk, FileDisk, backing_file, partition_of, read_table};

use crate::labels::{self, Labels};
use crate::named_places::is_same;

/// Smaller files and partitions are ignored. In bytes.
const SIZE_MIN: u64 = label::MIN_DEVICE / 2;

/// A pool seen on devices, not opened.
#[derive(Clone, Debug)]
pub struct Found {
    /// The newest configuration in any label (of one top-level vdev).
    pub config: PoolConfig,
    /// Devices by leaf guid.
    pub devices: BTreeMap<u64, PathBuf>,
    /// Top-level vdevs that were seen, by id, as their labels describe them.
    pub tops: BTreeMap<u64, VdevConfig>,
    /// txg of the newest uberblock.
    pub txg: Txg,
    /// The machine that wrote it sends heartbeats.
    pub has_heartbeats: bool,
    /// Copies of its devices in other files that were found, too.
    pub copies: Vec<DeviceCopy>,
}

/// Two copies of one device of a pool: one of them is used, and the other one is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCopy {
    /// The newer one; if both are of the same txg, the one that is where the labels say that the device was last.
    pub used: PathBuf,
    /// The other one.
    pub left_out: PathBuf,
    /// The two copies are files of the same txg, and neither is where the device was last, so it is not known which one
    /// is meant.
    pub is_doubtful: bool,
}

impl Found {
    /// Whether all top-level vdevs have enough devices to be read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // Labels do not list removed vdevs.
        let unknown = self.config.has_removed();
        self.wanted().all(|top| top.map_or(unknown, |top| self.has_enough(top)))
    }

    /// Whether a device that the labels name is missing.
    #[must_use]
    pub fn lacks_any(&self) -> bool {
        self.wanted().any(|top| top.is_none_or(|top| self.lacks_in(top)))
    }

    /// Where the labels say that the missing devices were last.
    #[must_use]
    pub fn missing_paths(&self) -> Vec<PathBuf> {
        let leaves = self.tops.values().flat_map(VdevConfig::leaves);
        let missing = leaves.filter(|leaf| !self.devices.contains_key(&leaf.guid.0));
        let path = |raw: &Vec<u8>| PathBuf::from(OsString::from_vec(raw.clone()));
        missing.filter_map(|leaf| leaf.path.as_ref().map(path)).filter(|path| path.is_absolute()).collect()
    }

    /// The missing devices of all top-level vdevs that cannot be read without them: the last known path of each, or its
    /// guid.
    #[must_use]
    pub fn needed(&self) -> Vec<String> {
        let is_here = |guid| self.devices.contains_key(&guid);
        // The count in a label is not trusted: a damaged label may state any number.
        let short = self.tops.values().filter(|top| !self.has_enough(top));
        short.flat_map(|top| absent_below(top, &is_here)).collect()
    }

    /// The top-level vdevs that the pool has; `None` for those that no label here describes.
    fn wanted(&self) -> impl Iterator<Item = Option<&VdevConfig>> {
        let ids = (0..self.config.vdev_children).filter(|id| !self.config.hole_array.contains(id));
        ids.map(|id| self.tops.get(&id))
    }

    fn lacks_in(&self, vdev: &VdevConfig) -> bool {
        let is_leaf = matches!(vdev.kind, VdevKind::Disk | VdevKind::File);
        is_leaf && !self.devices.contains_key(&vdev.guid.0)
            || vdev.children.iter().any(|child| self.lacks_in(child))
    }

    /// Whether enough children of `vdev` are here to read it.
    #[must_use]
    pub fn has_enough(&self, vdev: &VdevConfig) -> bool {
        let here = vdev.children.iter().filter(|child| self.has_enough(child)).count();
        match &vdev.kind {
            VdevKind::Disk | VdevKind::File => self.devices.contains_key(&vdev.guid.0),
            VdevKind::Raidz { nparity } | VdevKind::Draid { nparity, .. } => {
                here + *nparity as usize >= vdev.children.len()
            }
            // A distributed spare is available if the devices on which it lies are.
            VdevKind::Hole | VdevKind::Indirect | VdevKind::DistributedSpare => true,
            _ => here > 0,
        }
    }
}

/// The missing devices below `vdev`: the last known path of each, or its guid.
pub(crate) fn absent_below(vdev: &VdevConfig, is_here: &dyn Fn(u64) -> bool) -> Vec<String> {
    let own = || match &vdev.path {
        Some(path) => format!("'{}'", String::from_utf8_lossy(path).escape_debug()),
        None => vdev.guid.0.to_string(),
    };
    let lost = matches!(vdev.kind, VdevKind::Disk | VdevKind::File) && !is_here(vdev.guid.0);
    let below = vdev.children.iter().flat_map(|child| absent_below(child, is_here));
    lost.then(own).into_iter().chain(below).collect()
}

/// The guid as users type it.
#[must_use]
pub fn parse_guid(text: &str) -> Option<Guid> {
    text.parse().ok().filter(|&n: &u64| n != 0).map(Guid)
}

/// Looks for pools in the given folders, files and devices, and in the partitions of files. Skips files that are no vdev.
#[must_use]
pub fn discover(places: &[PathBuf]) -> Vec<Found> {
    let mut paths = Vec::new();
    for place in places {
        match std::fs::read_dir(place) {
            Ok(entries) => {
                let mut inside: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
                inside.sort();
                paths.extend(inside);
            }
            Err(_) => paths.push(place.clone()),
        }
    }
    let mut pools: BTreeMap<u64, Found> = BTreeMap::new();
    let mut seen = Vec::new();
    for path in paths {
        if !is_candidate(&path) {
            continue;
        }
        let Ok(disk) = FileDisk::open(&path, Access::Peek) else { continue };
        for disk in partitions_of(&path, &disk).into_iter().chain([disk]) {
            let labels = labels::read(&disk);
            if current(&labels).is_some() {
                seen.push((disk.path().to_path_buf(), labels));
            }
        }
    }
    // If two copies of one device are found, the newer one is used.
    seen.sort_by_key(|(path, labels)| worth(path, labels));
    for (path, labels) in &seen {
        if let Some(config) = current(labels) {
            enter(&mut pools, config, labels, path);
        }
    }
    reunite(&mut pools, &seen);
    note_copies(&mut pools, &seen);
    pools.into_values().collect()
}

/// The order of two copies of one device: the newer one is used, or else the one at the recorded path.
fn worth(path: &Path, labels: &Labels) -> impl Ord + use<> {
    let rank = labels.best.as_ref().map(Uberblock::rank);
    (rank, current(labels).is_some_and(|config| is_in_place(config, path)))
}

/// Whether the device at `path` is where its label says that it was last.
fn is_in_place(config: &PoolConfig, path: &Path) -> bool {
    let own = |leaf: &&VdevConfig| config.label.as_ref().is_some_and(|guids| guids.guid == leaf.guid);
    let last = config.tree.leaves().find(own).and_then(|leaf| leaf.path.as_ref());
    last.is_some_and(|last| is_same(Path::new(OsStr::from_bytes(last)), path))
}

/// Notes which devices were found twice, in different files. A disk may well have several names, or be seen through its last
/// partition.
fn note_copies(pools: &mut BTreeMap<u64, Found>, seen: &[(PathBuf, Labels)]) {
    for (path, labels) in seen {
        let Some(config) = current(labels) else { continue };
        let (Some(guids), Some(found)) = (&config.label, pools.get_mut(&config.pool_guid.0)) else {
            continue;
        };
        let Some(used) = found.devices.get(&guids.guid.0).filter(|used| !is_same(used, path)) else {
            continue;
        };
        if !backing_file(path).is_file() || !backing_file(used).is_file() {
            continue;
        }
        let is_doubtful =
            seen.iter().any(|(other, theirs)| other == used && worth(other, theirs) == worth(path, labels));
        found.copies.push(DeviceCopy { used: used.clone(), left_out: path.clone(), is_doubtful });
    }
}

fn is_candidate(path: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(backing_file(path)) else { return false };
    let kind = metadata.file_type();
    kind.is_block_device() || kind.is_file() && metadata.len() >= SIZE_MIN
}

/// The partitions of the file at `path` that may be devices of pools. Partitions of a block device have device files of
/// their own and are not listed here.
#[must_use]
pub fn partitions_of(path: &Path, disk: &FileDisk) -> Vec<FileDisk> {
    if disk.is_block_device() || partition_of(path).is_some() {
        return Vec::new();
    }
    let Ok(Some(table)) = read_table(disk) else { return Vec::new() };
    let large = table.partitions.iter().filter(|partition| partition.len >= SIZE_MIN);
    large.filter_map(|partition| disk.peek_at(partition).ok()).collect()
}

/// The configuration in a device's labels that belongs to its newest uberblock. After a power cut, a label may hold a newer
/// configuration whose txg never became durable.
fn current(labels: &Labels) -> Option<&PoolConfig> {
    let written = |config: &&PoolConfig| config.txg != Txg(0) && config.label.is_some();
    let best = labels.best.as_ref().map(|uberblock| uberblock.txg);
    let fitting =
        labels.pool_configs().filter(written).filter(|config| best.is_none_or(|txg| config.txg <= txg));
    fitting
        .max_by_key(|config| config.txg)
        .or_else(|| labels.pool_configs().filter(written).min_by_key(|config| config.txg))
}

fn enter(pools: &mut BTreeMap<u64, Found>, config: &PoolConfig, labels: &Labels, path: &Path) {
    let Some(guids) = &config.label else { return };
    let txg = labels.best.as_ref().map_or(config.txg, |ub| ub.txg);
    let found = pools.entry(config.pool_guid.0).or_insert_with(|| Found {
        config: config.clone(),
        devices: BTreeMap::new(),
        tops: BTreeMap::new(),
        txg,
        has_heartbeats: false,
        copies: Vec::new(),
    });
    found.devices.insert(guids.guid.0, path.to_path_buf());
    if config.txg >= found.config.txg {
        found.config = config.clone();
        found.tops.insert(config.tree.id, config.tree.clone());
    } else {
        found.tops.entry(config.tree.id).or_insert_with(|| config.tree.clone());
    }
    if txg >= found.txg {
        let newest = labels.best.as_ref();
        found.has_heartbeats = newest.and_then(|newest| newest.mmp).is_some_and(Mmp::is_on);
    }
    found.txg = found.txg.max(txg);
}

/// Joins the devices of a pool with two guids. A power cut during `zpool reguid` leaves some devices with the new guid.
/// These devices still store the old guid, by which the pool is found then.
fn reunite(pools: &mut BTreeMap<u64, Found>, seen: &[(PathBuf, Labels)]) {
    for (path, labels) in seen {
        let Some(own) = current(labels).map(|config| config.pool_guid.0) else { continue };
        if !pools.get(&own).is_some_and(Found::lacks_any) {
            continue;
        }
        let older = labels.pool_configs().find(|config| {
            config.pool_guid.0 != own
                && config.txg != Txg(0)
                && pools.get(&config.pool_guid.0).is_some_and(Found::lacks_any)
        });
        if let Some(older) = older {
            enter(pools, older, labels, path);
            let split = pools.get_mut(&own).expect("it was just looked at");
            split.devices.retain(|_, device| device != path);
        }
    }
    pools.retain(|_, found| !found.devices.is_empty());
}

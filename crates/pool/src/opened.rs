//! The devices of a pool that is being imported, with the state that their labels agree on.
//!
//! From:   devices and their labels.
//! To:     the storage that the import reads the pool with.
//! Source: docs/format/01-labels-uberblock.md §4.3, §5.1.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::label;
use format::uberblock::Uberblock;
use storage::allocator::Class;
use storage::host::{Access, Disk, FileDisk, OpenError};
use storage::{Leaf, Shape, Storage, TopVdev, Vdevs};

use crate::discover::absent_below;
use crate::labels;
use crate::members::{self, Members};
use crate::options::{MissingLogs, Options};
use crate::redundancy::{self, Newest};
use crate::reflow;
use crate::shape::{self, Progress, shape_of};
use crate::{Error, NotWritten, Result};

/// The open devices of a pool with the state that was chosen.
pub(crate) struct Opened {
    pub(crate) disks: HashMap<u64, Arc<dyn Disk>>,
    pub(crate) uberblock: Uberblock,
    pub(crate) config: PoolConfig,
    pub(crate) tops: BTreeMap<u64, VdevConfig>,
    /// The txgs of the newest two states of each device, by its guid.
    pub(crate) newest: HashMap<u64, Newest>,
    pub(crate) members: Members,
}

/// Opens a device. If it is in use, the error names the user.
///
/// # Errors
/// [`Error::Busy`], [`Error::BadDevice`], [`Error::Io`].
pub fn open_disk(path: &Path, access: Access) -> Result<FileDisk> {
    FileDisk::open(path, access).map_err(|error| match error {
        OpenError::InUse { path, holder } => Error::Busy { path, holder: holder.map(|h| h.to_string()) },
        OpenError::HeldByKernel { path } => Error::Busy { path, holder: Some("the system".into()) },
        OpenError::NotADisk { path } => {
            Error::BadDevice { path, why: "it is neither a file nor a block device".into() }
        }
        OpenError::NoPartition { path, why } => Error::BadDevice { path, why },
        OpenError::Io { path, source } => Error::Io { path, source },
    })
}

/// Reads all labels and takes the best uberblock of all devices, with each device's configuration for that txg.
///
/// All devices are judged by the state of the pool. After a power cut, the newest uberblock may be on one device only.
/// Another device may then have a label of that txg, but neither that uberblock nor a label as old as its own newest
/// uberblock.
pub(crate) fn choose_state(disks: Vec<Arc<dyn Disk>>, given: Option<Uberblock>) -> Result<Opened> {
    let nothing = |path| Error::NotAPool { path, why: "no label with a valid state of a pool" };
    let first_path = disks.first().map(|disk| disk.path().to_path_buf()).unwrap_or_default();
    let read = |disk: Arc<dyn Disk>| (labels::read(&*disk), disk);
    let mut devices: Vec<_> = disks.into_iter().map(read).collect();
    let best = devices.iter().filter_map(|(labels, _)| labels.best.clone()).max_by_key(Uberblock::rank);
    // If the state is given, only the configuration that names its devices is read here.
    let uberblock = given.or(best).ok_or_else(|| nothing(first_path.clone()))?;
    // Devices with the chosen uberblock come first: their labels give the name of the pool and the number of devices.
    devices.sort_by_key(|(labels, _)| !labels.uberblocks.contains(&uberblock));
    let mut opened: Option<Opened> = None;
    for (labels, disk) in devices {
        let Some(config) = labels.config_for(uberblock.txg) else { continue };
        let opened = opened.get_or_insert_with(|| Opened {
            disks: HashMap::new(),
            uberblock: uberblock.clone(),
            config: config.clone(),
            tops: BTreeMap::new(),
            newest: HashMap::new(),
            members: Members::default(),
        });
        if let Some(guids) = &config.label {
            let states = labels.uberblocks.iter().map(|uberblock| uberblock.txg);
            opened.newest.extend(Newest::of(states).map(|newest| (guids.guid.0, newest)));
            opened.disks.insert(guids.guid.0, disk);
        }
        opened.tops.entry(config.tree.id).or_insert_with(|| config.tree.clone());
    }
    let opened = opened.ok_or_else(|| nothing(first_path))?;
    redundancy::note_old_copies(opened.tops.values(), &opened.newest, &opened.members);
    Ok(opened)
}

/// Storage on the opened devices, laid out as the labels say, or as `trusted` says.
pub(crate) fn storage_of(
    opened: &Opened,
    trusted: Option<&PoolConfig>,
    options: &Options,
) -> Result<Arc<Storage>> {
    let count = opened.config.vdev_children.min(1 << 16);
    let mut tops = Vec::new();
    match trusted {
        Some(config) => {
            for vdev in &config.tree.children {
                tops.push(top_vdev(vdev, opened));
            }
        }
        None => {
            for id in 0..count {
                // A device that left the pool may still have labels.
                let is_hole = opened.config.hole_array.contains(&id);
                tops.push(match opened.tops.get(&id).filter(|_| !is_hole) {
                    Some(vdev) => top_vdev(vdev, opened),
                    None => TopVdev {
                        id: id as u32,
                        guid: 0,
                        ashift: 9,
                        asize: 0,
                        metaslab_shift: 0,
                        class: Class::Normal,
                        shape: if is_hole { Shape::Hole } else { Shape::Missing },
                    },
                });
            }
        }
    }
    // Labels do not list removed vdevs. The configuration in the MOS shows later whether a vdev is missing.
    let may_be_moved = trusted.is_none() && opened.config.has_removed();
    // The same holds for missing log devices: the configuration shows which vdevs they are.
    let may_lack = |top: &TopVdev| match trusted {
        None => may_be_moved || options.split.is_some() || options.missing_logs != MissingLogs::Refused,
        Some(config) => may_lack_log(config, top, options.missing_logs),
    };
    let is_missing = |top: &&TopVdev| matches!(top.shape, Shape::Missing) && !may_lack(top);
    let missing: Vec<u32> = tops.iter().filter(is_missing).map(|top| top.id).collect();
    if !missing.is_empty() {
        let devices = missing.iter().flat_map(|id| absent(opened, trusted, *id)).collect();
        return Err(Error::MissingDevices { pool: opened.config.name.clone(), devices });
    }
    for (id, top) in tops.iter().enumerate() {
        if top.id as usize != id {
            let why = format!("vdev {id} calls itself {}", top.id);
            return Err(Error::Damaged { pool: opened.config.name.clone(), why });
        }
    }
    Ok(Arc::new(Storage::new(
        Vdevs::new(tops),
        options.storage(if options.read_only { 0 } else { options.io_threads }),
    )))
}

/// Whether the pool is opened without this vdev, because it holds intent logs only.
fn may_lack_log(config: &PoolConfig, top: &TopVdev, missing_logs: MissingLogs) -> bool {
    let was_absent = |leaf: &VdevConfig| leaf.extra.get_u64("not_present") == Some(1);
    let vdev = config.tree.children.get(top.id as usize);
    let is_known = || vdev.is_some_and(|vdev| vdev.leaves().all(was_absent));
    match missing_logs {
        MissingLogs::Refused => false,
        MissingLogs::KnownAbsent => top.is_log() && is_known(),
        MissingLogs::GivenUp => top.is_log(),
    }
}

/// The top-level vdevs for intent logs that are not there.
pub(crate) fn lacking_logs(storage: &Storage) -> Vec<u32> {
    let vdevs = storage.vdevs();
    let lacking = vdevs.tops().iter().filter(|top| top.is_log() && matches!(top.shape, Shape::Missing));
    lacking.map(|top| top.id).collect()
}

/// The devices of top-level vdev `id` that are not there.
fn absent(opened: &Opened, trusted: Option<&PoolConfig>, id: u32) -> Vec<String> {
    let known = match trusted {
        Some(config) => config.tree.children.get(id as usize),
        None => opened.tops.get(&u64::from(id)),
    };
    let is_here = |guid| opened.disks.contains_key(&guid);
    let devices = known.map(|vdev| absent_below(vdev, &is_here)).unwrap_or_default();
    if devices.is_empty() { vec![format!("vdev {id}")] } else { devices }
}

/// An open leaf of `top` that takes part.
fn leaf(vdev: &VdevConfig, top: &VdevConfig, opened: &Opened) -> Option<Leaf> {
    if vdev.kind == VdevKind::DistributedSpare {
        let devices = top.leaves().filter_map(|leaf| opened.disks.get(&leaf.guid.0));
        let smallest = devices.map(|disk| disk.size()).min().filter(|_| !members::is_closed(vdev))?;
        return shape::distributed_spare(vdev, smallest, opened.members.of(vdev.guid.0));
    }
    let disk = opened.disks.get(&vdev.guid.0).filter(|_| !members::is_closed(vdev))?.clone();
    Some(Leaf::with_health(vdev.guid.0, disk, opened.members.of(vdev.guid.0)))
}

fn top_vdev(vdev: &VdevConfig, opened: &Opened) -> TopVdev {
    let motion = reflow::Word::decode(opened.uberblock.raidz_reflow).motion();
    let progress = Progress { motion, next: opened.uberblock.txg.next() };
    let shape = shape_of(vdev, &progress, &|below| leaf(below, vdev, opened));
    let (top, is_moved) = (vdev.top.as_ref(), matches!(shape, Shape::Moved(_)));
    TopVdev {
        id: vdev.id as u32,
        guid: vdev.guid.0,
        ashift: top.map_or(9, |t| t.ashift),
        asize: top.map_or(0, |t| t.asize),
        metaslab_shift: top.filter(|_| !is_moved).map_or(0, |t| t.metaslab_shift),
        // Which vdevs are for special blocks is in the MOS.
        class: if top.is_some_and(|top| top.is_log) { Class::Log } else { Class::Normal },
        shape,
    }
}

/// Why the pool is not written with these devices.
pub(crate) fn unwritable_devices(storage: &Storage) -> Option<NotWritten> {
    let vdevs = storage.vdevs();
    let tops = vdevs.tops();
    // Without its log devices a pool places intent logs elsewhere.
    let is_needed = |top: &&TopVdev| !top.is_log() || !matches!(top.shape, Shape::Missing);
    let unwritable = tops.iter().filter(is_needed).find_map(|top| top.writable().err());
    unwritable.map(NotWritten::Vdev).or_else(|| cut_short(tops))
}

/// A device that may be shorter than its data.
fn cut_short(tops: &[TopVdev]) -> Option<NotWritten> {
    let (top, leaf) = tops.iter().find_map(|top| Some((top, top.cut_short().next()?)))?;
    let needed = top.asize_of_leaf().saturating_add(label::DATA_START + label::DATA_END);
    Some(NotWritten::CutShort { device: leaf.disk.path().to_path_buf(), has: leaf.disk.size(), needed })
}

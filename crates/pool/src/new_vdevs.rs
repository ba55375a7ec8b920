//! The top-level vdevs of a new pool: what each device becomes, and how much all of them hold together.
//!
//! From:   open devices in the layout that the user chose.
//! To:     `create`, which writes their labels and configuration.
//! Source: docs/format/01-labels-uberblock.md §5, §8; 11-redundancy.md §1.1, §2.1.

use std::sync::Arc;

use dmu::{NewObject, Tx};
use format::config::{TopConfig, VdevConfig, VdevKind};
use format::zap::Value;
use format::{Guid, ObjectId, ObjectType, Txg, label};
use storage::allocator::Class;
use storage::host::Disk;
use storage::layout::{Draid, DraidSpec, Raidz, Spread};
use storage::{Leaf, Shape, Side, Storage, TopVdev, Vdevs};

use crate::mos::Mos;
use crate::{Error, Result};

/// Sector sizes that a vdev may have, as powers of two.
const ASHIFTS: std::ops::RangeInclusive<u32> = 9..=16;
const ALLOCATION_BIAS: &[u8] = b"org.zfsonlinux:allocation_bias";
/// Devices that a mirror has at least.
const SIDES_MIN: usize = 2;

/// How the devices of a new top-level vdev share its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One device has them all.
    Single,
    /// Every device has them all.
    Mirror,
    /// Raidz with this many parity columns, 1 to 3.
    Raidz(u8),
    /// Groups of columns over changing devices, with spare space on each.
    Draid(DraidLayout),
}

/// The numbers of a draid vdev that its owner chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraidLayout {
    /// Parity columns of a group, 1 to 3.
    pub parity: u8,
    /// Data columns of a group.
    pub data: u64,
    /// Devices' worth of spare space.
    pub spares: u64,
}

impl DraidLayout {
    /// The vdev on so many devices with sectors of 2^`ashift` bytes; `None` if there is no such vdev.
    fn on(self, ashift: u32, devices: usize) -> Option<Draid> {
        let numbers = [self.parity.into(), self.data, self.spares];
        Draid::new(DraidSpec::fewest_groups(ashift, devices as u64, numbers)?)
    }
}

/// A top-level vdev of a new pool.
#[derive(Clone, Debug)]
pub struct NewTop {
    /// How its devices share its blocks.
    pub layout: Layout,
    /// The class of the vdev.
    pub class: Class,
    /// Its open devices, in order.
    pub disks: Vec<Arc<dyn Disk>>,
}

impl NewTop {
    /// Data on `disks`, laid out like this.
    #[must_use]
    pub fn new(layout: Layout, disks: Vec<Arc<dyn Disk>>) -> NewTop {
        NewTop { layout, class: Class::Normal, disks }
    }

    /// Checks the number of devices.
    fn check(&self) -> Result<()> {
        let count = self.disks.len();
        let not_yet = |what: &str| Err(Error::Unsupported(what.to_owned()));
        let refused = |what: String| Err(Error::BadLayout(what));
        match self.layout {
            Layout::Single if count == 1 => Ok(()),
            Layout::Single => refused(format!("one device made of {count}")),
            Layout::Mirror if count >= SIDES_MIN => Ok(()),
            Layout::Mirror => refused(format!("a mirror of {count} devices")),
            Layout::Raidz(_) if self.class != Class::Normal => not_yet("raidz but for data"),
            Layout::Draid(_) if self.class != Class::Normal => not_yet("draid but for data"),
            Layout::Draid(draid) => match draid.on(*ASHIFTS.start(), count) {
                Some(_) => Ok(()),
                None => refused(format!("{draid:?} of {count} devices")),
            },
            Layout::Raidz(parity) => match Raidz::new(*ASHIFTS.start(), count, parity.into()) {
                Some(_) => Ok(()),
                None => refused(format!("raidz{parity} of {count} devices")),
            },
        }
    }

    /// The configuration of the vdev with index `id`, and the vdev itself.
    ///
    /// # Errors
    /// [`Error::BadLayout`] for a number of devices that its layout cannot have; [`Error::BadDevice`].
    pub(crate) fn build(
        &self,
        id: u64,
        guid: &dyn Fn() -> Guid,
        ashift: Option<u32>,
    ) -> Result<(VdevConfig, TopVdev)> {
        self.check()?;
        if self.layout == Layout::Single {
            let (mut config, mut top) = new_device(id, guid(), &self.disks[0], ashift)?;
            config.top = config.top.map(|top| TopConfig { is_log: self.class == Class::Log, ..top });
            top.class = self.class;
            return Ok((config, top));
        }
        // The size of a vdev with parity is set when its sectors are known.
        let mut config = VdevConfig::new(VdevKind::Mirror, id, guid());
        config.create_txg = Some(Txg::INITIAL);
        // Each device is used up to the size of the smallest one. The vdev has the largest sector size of its devices.
        let (mut leaves, mut shift, mut smallest) = (Vec::new(), 0, u64::MAX);
        for (child, disk) in self.disks.iter().enumerate() {
            let (device, top) = new_device(child as u64, guid(), disk, ashift)?;
            (shift, smallest) = (top.ashift.max(shift), top.asize.min(smallest));
            leaves.push(Some(Leaf::new(device.guid.0, disk.clone())));
            config.children.push(VdevConfig { top: None, ..device });
        }
        let Some((kind, asize, layout)) = self.spread(shift, smallest) else {
            let size = Size { ashift: shift, asize: smallest };
            return Ok(finished(config, size, self.class, Shape::Mirror(leaves)));
        };
        if asize == 0 {
            let why = "the smallest device has no room for a group".to_owned();
            return Err(Error::BadDevice { path: self.disks[0].path().to_path_buf(), why });
        }
        config.kind = kind;
        let sides: Vec<Side> = leaves.into_iter().map(Side::from).collect();
        let shape = Shape::Parity { layout, sides };
        Ok(finished(config, Size { ashift: shift, asize }, self.class, shape))
    }

    /// How its blocks are spread, and how many bytes of them there are, if it has parity. The number of devices was checked.
    fn spread(&self, ashift: u32, smallest: u64) -> Option<(VdevKind, u64, Spread)> {
        let count = self.disks.len();
        match self.layout {
            Layout::Raidz(parity) => {
                let layout = Raidz::new(ashift, count, parity.into())?;
                let asize = smallest.saturating_mul(count as u64);
                Some((VdevKind::Raidz { nparity: parity }, asize, Spread::Raidz(layout)))
            }
            Layout::Draid(draid) => {
                let layout = draid.on(ashift, count)?;
                let (ndata, nspares, ngroups) = (draid.data, draid.spares, layout.spec().groups);
                let kind = VdevKind::Draid { nparity: draid.parity, ndata, nspares, ngroups };
                Some((kind, layout.asize(smallest), Spread::Draid(layout)))
            }
            Layout::Single | Layout::Mirror => None,
        }
    }
}

/// Size and sector size of a vdev.
struct Size {
    ashift: u32,
    asize: u64,
}

/// A top-level vdev with its size, in its configuration and as it is used.
fn finished(mut config: VdevConfig, size: Size, class: Class, shape: Shape) -> (VdevConfig, TopVdev) {
    let Size { ashift, asize } = size;
    let metaslab_shift = label::metaslab_shift(asize);
    let is_log = class == Class::Log;
    config.top = Some(TopConfig { metaslab_array: ObjectId(0), metaslab_shift, ashift, asize, is_log });
    let (id, guid) = (config.id as u32, config.guid.0);
    let top = TopVdev { id, guid, ashift, asize, metaslab_shift, class, shape };
    (config, top)
}

/// One device as a top-level vdev.
///
/// # Errors
/// [`Error::BadDevice`]: too small, or its sectors are too large.
pub(crate) fn new_device(
    id: u64,
    guid: Guid,
    disk: &Arc<dyn Disk>,
    ashift: Option<u32>,
) -> Result<(VdevConfig, TopVdev)> {
    let bad = |why: String| Err(Error::BadDevice { path: disk.path().to_path_buf(), why });
    if disk.size() < label::MIN_DEVICE {
        return bad(format!("it has {} bytes, a vdev needs 64 MiB", disk.size()));
    }
    let native = disk.physical_sector_size().max(512).ilog2().clamp(9, 14);
    let ashift = ashift.unwrap_or(native);
    if !ASHIFTS.contains(&ashift) {
        return bad(format!("ashift {ashift} is not between 9 and 16"));
    }
    if disk.sector_size() > 1 << ashift {
        return bad(format!("its sectors have {} bytes, more than ashift {ashift}", disk.sector_size()));
    }
    let kind = if disk.is_block_device() { VdevKind::Disk } else { VdevKind::File };
    let mut config = VdevConfig::new(kind, id, guid);
    let absolute = std::path::absolute(disk.path()).unwrap_or_else(|_| disk.path().to_path_buf());
    config.path = Some(std::os::unix::ffi::OsStrExt::as_bytes(absolute.as_os_str()).to_vec());
    config.whole_disk = disk.is_block_device().then_some(false);
    config.create_txg = Some(Txg::INITIAL);
    let size = Size { ashift, asize: label::asize_of(disk.size()) };
    Ok(finished(config, size, Class::Normal, Shape::Disk(Leaf::new(guid.0, disk.clone()))))
}

/// Whether a vdev of this class is counted by the feature `allocation_classes`.
pub(crate) const fn is_counted(class: Class) -> bool {
    matches!(class, Class::Special | Class::Dedup)
}

/// Reads the allocation classes of top-level vdevs from the MOS. The ZAPs that hold them may lie on a removed vdev, so the
/// mappings of removed vdevs come first.
///
/// # Errors
/// The ZAP of a vdev cannot be read.
pub(crate) fn load_classes(mos: &Mos, storage: &Storage, tree: &VdevConfig) -> Result<()> {
    let mut tops = storage.vdevs().tops().to_vec();
    let mut is_changed = false;
    for (vdev, top) in tree.children.iter().zip(&mut tops) {
        let Some(id) = vdev.zap_top.filter(|id| id.0 != 0 && !top.is_log()) else { continue };
        let bias = dmu::zap::lookup(&*mos.object(id)?, ALLOCATION_BIAS)?;
        if let Some(bytes) = bias.as_ref().and_then(Value::as_bytes) {
            top.class = Class::of_bias(bytes);
            is_changed = true;
        }
    }
    if is_changed {
        storage.set_vdevs(Vdevs::new(tops));
    }
    Ok(())
}

/// Makes the objects that a top-level vdev has in the MOS: its metaslab array, and the ZAPs of it and its leaves, which the list
/// `zaps` names, if the pool has them. Returns the array and its entries.
pub(crate) fn create_objects(
    mos: &Mos,
    tx: &Tx,
    zaps: Option<ObjectId>,
    config: &mut VdevConfig,
    top: &TopVdev,
) -> Result<(ObjectId, Vec<ObjectId>)> {
    if let Some(zaps) = zaps {
        let of_leaves = match config.children.as_mut_slice() {
            [] => vec![&mut config.zap_leaf],
            sides => sides.iter_mut().map(|side| &mut side.zap_leaf).collect(),
        };
        for slot in of_leaves.into_iter().chain([&mut config.zap_top]) {
            let id = mos.create_zap(tx, ObjectType::ZAP_METADATA, 0)?.id();
            mos.add_int(tx, zaps, id.0)?;
            *slot = Some(id);
        }
    }
    if let Some(bias) = top.class.bias()
        && let Some(id) = config.zap_top
    {
        dmu::zap::update(&mos.object(id)?, tx, ALLOCATION_BIAS, &Value::from_bytes(bias))?;
    }
    let count = top.metaslab_count();
    let array = mos.create(tx, NewObject::plain(ObjectType::OBJECT_ARRAY))?;
    // Its blocks must reach to the last metaslab, or an importer reads past the end.
    array.write(tx, (count.max(1) - 1) * 8, &[0; 8])?;
    config.top.as_mut().expect("made with it").metaslab_array = array.id();
    Ok((array.id(), vec![ObjectId(0); count as usize]))
}

/// Replaces the paths of the devices of `vdev` by neutral ones, numbered from `first` on. An import stores the real paths.
pub(crate) fn make_anonymous(vdev: &mut VdevConfig, pool: &str, first: u64) {
    let devices = if vdev.kind.is_leaf() { std::slice::from_mut(vdev) } else { vdev.children.as_mut_slice() };
    for (number, device) in (first..).zip(devices) {
        device.path = Some(format!("/{pool}.{number}.img").into_bytes());
    }
}

//! Top-level vdevs: mapping DVAs to ranges of disks.
//!
//! Source: docs/format/01-labels-uberblock.md §1, §8; 02-blocks-checksums-compression.md §6, §7.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use format::blkptr::{Block, BlockPtr, Dva};
use format::{Txg, label};

use crate::allocator::Class;
use crate::distributed::Ways;
use crate::error::{Layout, NotYet, ReadError, Unwritable, WriteError};
use crate::fence::Fence;
use crate::host::Disk;
use crate::layout::{self, GANG_HEADER, Motion, Spread};
use crate::leaf::Leaf;
use crate::meter::Purpose;
use crate::moved::Moves;
use crate::raidz::Outcome;
use crate::side::Side;

/// How a top-level vdev spreads its blocks.
#[derive(Clone, Debug)]
pub enum Shape {
    /// One disk or file.
    Disk(Leaf),
    /// Identical children; absent ones are `None`.
    Mirror(Vec<Option<Leaf>>),
    /// Columns of data and parity: raidz and draid.
    Parity {
        /// How blocks are spread over the sides.
        layout: Spread,
        /// Children in order.
        sides: Vec<Side>,
    },
    /// The slot of a removed log device.
    Hole,
    /// Its blocks were moved to other vdevs.
    Moved(Arc<Moves>),
    /// Too few of its devices are there.
    Missing,
    /// A layout that this build does not read.
    Unsupported(Layout),
}

/// log2 of the bytes of a mirror that one of its idle devices reads before it is another one's turn.
const NEIGHBOURS_SHIFT: u32 = 21;

/// One top-level vdev.
#[derive(Clone, Debug)]
pub struct TopVdev {
    /// Index among the root's children, as DVAs name it.
    pub id: u32,
    /// Guid of the top-level vdev.
    pub guid: u64,
    /// log2 of the sector size.
    pub ashift: u32,
    /// Allocatable bytes.
    pub asize: u64,
    /// log2 of the metaslab size.
    pub metaslab_shift: u32,
    /// The class of the vdev.
    pub class: Class,
    /// Where the bytes go.
    pub shape: Shape,
}

/// How a copy is read: [`TopVdev::read`] or [`TopVdev::verify`].
pub(crate) type Way =
    fn(&TopVdev, Source, u64, &mut [u8], &mut dyn FnMut(&[u8]) -> bool) -> Result<Outcome, ReadError>;

/// From where a block is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Which of the children that hold the same bytes.
    pub(crate) replica: usize,
    /// When the block was written.
    pub(crate) birth: Txg,
    /// The purpose of the read.
    pub(crate) purpose: Purpose,
}

/// All top-level vdevs of a pool, by id.
#[derive(Clone, Debug)]
pub struct Vdevs {
    tops: Vec<TopVdev>,
}

impl TopVdev {
    /// Bytes that a block of `psize` bytes occupies here.
    #[must_use]
    pub fn asize_of(&self, psize: u64) -> u64 {
        match &self.shape {
            Shape::Parity { layout, .. } => layout.sizes().asize(psize),
            _ => psize.next_multiple_of(1 << self.ashift),
        }
    }

    /// Bytes of data that the smallest block has room for.
    pub(crate) fn least_data(&self) -> u64 {
        match &self.shape {
            Shape::Parity { layout: Spread::Draid(layout), .. } => layout.spec().data << self.ashift,
            _ => 1 << self.ashift,
        }
    }

    /// How blocks are spread, where parity goes with them.
    #[must_use]
    pub fn spread(&self) -> Option<&Spread> {
        match &self.shape {
            Shape::Parity { layout, .. } => Some(layout),
            _ => None,
        }
    }

    /// How far its sectors have moved, while it gets one child more.
    #[must_use]
    pub fn motion(&self) -> Option<&Arc<Motion>> {
        self.spread().and_then(Spread::motion)
    }

    /// Blocks lie at multiples of so many bytes.
    #[must_use]
    pub fn unit(&self) -> u64 {
        self.spread().map_or(1 << self.ashift, |layout| layout.sizes().unit())
    }

    /// The bytes of a metaslab.
    #[must_use]
    pub fn metaslab(&self, index: u64) -> Range<u64> {
        layout::metaslab(index, self.metaslab_shift, self.unit())
    }

    /// Bytes of all metaslabs.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        layout::capacity(self.metaslab_count(), self.metaslab_shift, self.unit())
    }

    /// Accounted bytes per 512 allocated: 512, or less for raidz, whose parity is not charged. It stays when raidz gets more children.
    #[must_use]
    pub fn deflate_ratio(&self) -> u64 {
        let asize = self
            .spread()
            .map_or_else(|| self.asize_of(1 << 17), |layout| layout.original_sizes().asize(1 << 17));
        (1 << 17) / (asize >> 9)
    }

    /// Whether it holds intent logs only.
    #[must_use]
    pub fn is_log(&self) -> bool {
        self.class == Class::Log
    }

    /// Number of metaslabs.
    #[must_use]
    pub fn metaslab_count(&self) -> u64 {
        if self.metaslab_shift == 0 { 0 } else { self.asize >> self.metaslab_shift }
    }

    /// Whether new blocks of data and metadata may go here.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.class.takes_blocks()
            && !matches!(self.shape, Shape::Hole | Shape::Moved(_) | Shape::Missing | Shape::Unsupported(_))
    }

    /// Whether blocks of a vdev in this state can be written, or need not be.
    ///
    /// # Errors
    /// Why not.
    pub fn writable(&self) -> Result<(), Unwritable> {
        match self.shape {
            Shape::Disk(_) | Shape::Hole | Shape::Moved(_) => Ok(()),
            Shape::Mirror(_) | Shape::Parity { .. } => Ok(()),
            Shape::Missing => Err(Unwritable::Missing),
            Shape::Unsupported(layout) => Err(Unwritable::Layout(layout)),
        }
    }

    /// The disks that are present.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.places().flatten()
    }

    /// The places of all leaves, in the order of the tree; the places of absent leaves are empty. A leaf has the number
    /// of its place.
    pub(crate) fn places(&self) -> impl Iterator<Item = Option<&Leaf>> {
        let (one, many, sides): (Option<&Leaf>, &[Option<Leaf>], &[Side]) = match &self.shape {
            Shape::Disk(leaf) => (Some(leaf), &[], &[]),
            Shape::Mirror(children) => (None, children, &[]),
            Shape::Parity { sides, .. } => (None, &[], sides),
            Shape::Hole | Shape::Moved(_) | Shape::Missing | Shape::Unsupported(_) => (None, &[], &[]),
        };
        let of_sides = sides.iter().flat_map(Side::places);
        one.map(Some).into_iter().chain(many.iter().chain(of_sides).map(Option::as_ref))
    }

    /// The devices that hold the data of each leaf.
    pub(crate) fn ways(&self) -> Ways<'_> {
        match &self.shape {
            Shape::Parity { layout, sides } => Ways::new(layout, sides),
            _ => Ways::without_spares(),
        }
    }

    /// Puts a leaf, or none, in the place with this number. `false` if there is no such place, or it cannot be empty.
    #[must_use]
    pub fn put(&mut self, number: usize, leaf: Option<Leaf>) -> bool {
        let place = match (&mut self.shape, leaf.is_some()) {
            (Shape::Disk(own), true) if number == 0 => {
                leaf.into_iter().for_each(|leaf| *own = leaf);
                return true;
            }
            (Shape::Mirror(children), _) => children.get_mut(number),
            (Shape::Parity { sides, .. }, _) => sides.iter_mut().flat_map(Side::places_mut).nth(number),
            _ => None,
        };
        let found = place.is_some();
        place.into_iter().for_each(|place| place.clone_from(&leaf));
        found
    }

    /// The numbers of the leaves of side `side`, where several share blocks.
    pub(crate) fn numbers_of_side(&self, side: usize) -> Range<usize> {
        let Shape::Parity { sides, .. } = &self.shape else { return side..side + 1 };
        let start = sides[..side].iter().map(|side| side.places().len()).sum();
        start..start + sides[side].places().len()
    }

    /// How many ways there are to read the same bytes.
    #[must_use]
    pub fn replicas(&self) -> usize {
        match &self.shape {
            Shape::Mirror(children) => children.len(),
            _ => 1,
        }
    }

    /// Bytes of each device that the data may reach to, without its labels: the whole metaslabs; of raidz, all whole rows of them.
    #[must_use]
    pub fn asize_of_leaf(&self) -> u64 {
        match &self.shape {
            Shape::Parity { layout: Spread::Draid(layout), .. } => {
                layout.asize_of_child(self.metaslab_count() << self.metaslab_shift)
            }
            Shape::Parity { sides, layout } => {
                let used = self.metaslab_count() << self.metaslab_shift;
                // While sectors move to the newest child, they reach as far on the others as before.
                let width = sides.len() - usize::from(layout.motion().is_some());
                used.div_ceil(width as u64).next_multiple_of(1 << self.ashift)
            }
            _ => self.metaslab_count() << self.metaslab_shift,
        }
    }

    /// The devices that end before the data may: their last labels would be written over data.
    pub fn cut_short(&self) -> impl Iterator<Item = &Leaf> {
        let needed = self.asize_of_leaf();
        self.leaves().filter(move |leaf| label::asize_of(leaf.disk.size()) < needed)
    }

    /// The children that are not there.
    #[must_use]
    pub fn absent(&self) -> Vec<usize> {
        self.places().enumerate().filter(|(_, leaf)| leaf.is_none()).map(|(number, _)| number).collect()
    }

    /// The replicas whose devices are there. Those of leaves that may miss a block born in `birth` come last.
    pub(crate) fn replicas_of(&self, birth: Txg) -> Vec<usize> {
        let Shape::Mirror(children) = &self.shape else { return vec![0] };
        let there = |child: &usize| children[*child].is_some();
        let mut replicas: Vec<usize> = (0..children.len()).filter(there).collect();
        replicas.sort_by_key(|replica| self.is_stale(*replica, birth));
        replicas
    }

    /// Puts the replicas of a mirror in the order in which a block at `offset` is to be read: the device that works on the fewest
    /// requests first. Of equal ones the offset decides, so that neighbours are read from one device. Devices that failed, and those
    /// that may lack a block born in `birth`, stay last.
    pub(crate) fn order_by_load(&self, replicas: &mut [usize], birth: Txg, offset: u64) {
        let (Shape::Mirror(_), count @ 2..) = (&self.shape, replicas.len()) else { return };
        replicas.rotate_left((offset >> NEIGHBOURS_SHIFT) as usize % count);
        // The sort is stable: equal devices keep their turn.
        replicas.sort_by_cached_key(|replica| {
            self.child(*replica)
                .map(|leaf| (leaf.health.misses(birth), leaf.health.has_failed(), leaf.meter.load()))
        });
    }

    /// Whether the leaf of this replica may lack a block that was born in `birth`.
    pub(crate) fn is_stale(&self, replica: usize, birth: Txg) -> bool {
        self.child(replica).is_some_and(|leaf| leaf.health.misses(birth))
    }

    /// The leaves that take writes, with their numbers.
    fn written_children(&self) -> impl Iterator<Item = (usize, &Leaf)> {
        let written = |(number, leaf): (usize, Option<&'_ Leaf>)| {
            leaf.is_some_and(|leaf| !leaf.health.has_failed()).then_some(number)
        };
        self.places().enumerate().filter_map(written).filter_map(|number| Some((number, self.child(number)?)))
    }

    /// The leaves that take writes.
    pub fn written(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves().filter(|leaf| !leaf.health.has_failed())
    }

    /// Fills `buf` from `offset` of the allocatable area, from replica `replica`. Where devices share the block, `is_good` says whether
    /// bytes are those that were written: what it refuses is computed anew from parity.
    ///
    /// # Errors
    /// [`ReadError::Device`], or [`ReadError::Missing`] where too little is there.
    pub(crate) fn read(
        &self,
        source: Source,
        offset: u64,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        let replica = source.replica;
        let leaf = match &self.shape {
            Shape::Parity { .. } => return self.read_shared(source, offset, buf, is_good),
            Shape::Disk(leaf) => Some(leaf),
            Shape::Mirror(children) => children.get(replica).and_then(Option::as_ref),
            Shape::Hole | Shape::Moved(_) => return Err(ReadError::Removed { vdev: self.id }),
            Shape::Missing => return Err(ReadError::Missing { vdev: self.id }),
            Shape::Unsupported(layout) => return Err(ReadError::Unsupported(NotYet::Layout(*layout))),
        };
        leaf.ok_or(ReadError::Missing { vdev: self.id })?.read(source.purpose, offset, buf)?;
        let good = is_good(buf);
        Ok(Outcome { good, damaged: if good { Vec::new() } else { vec![replica] } })
    }

    /// As [`TopVdev::read`]. If several devices share the block, the data of each is compared with the right data.
    ///
    /// # Errors
    /// As [`TopVdev::read`].
    pub(crate) fn verify(
        &self,
        source: Source,
        offset: u64,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        match &self.shape {
            Shape::Parity { .. } => self.verify_shared(source, offset, buf, is_good),
            _ => self.read(source, offset, buf, is_good),
        }
    }

    /// The leaf with this number, if its device is there; that of a single disk is number 0.
    pub(crate) fn child(&self, child: usize) -> Option<&Leaf> {
        self.places().nth(child)?
    }

    fn unwritable(&self, why: Unwritable) -> WriteError {
        WriteError::Unwritable { vdev: self.id, why }
    }

    /// The leaves that writes to this vdev go to: of a mirror all get the same bytes, of raidz each its columns.
    ///
    /// # Errors
    /// [`WriteError::Unwritable`] for layouts that are not written.
    pub(crate) fn written_leaves(&self) -> Result<impl Iterator<Item = (usize, &Leaf)>, WriteError> {
        self.writable().map_err(|why| self.unwritable(why))?;
        match &self.shape {
            Shape::Hole | Shape::Moved(_) => Err(self.unwritable(Unwritable::Removed)),
            _ => Ok(self.written_children()),
        }
    }

    /// The leaf that holds the copy `replica` of data on this vdev.
    ///
    /// # Errors
    /// As [`TopVdev::written_leaves`].
    pub(crate) fn written_leaf(&self, replica: usize) -> Result<&Leaf, WriteError> {
        self.writable().map_err(|why| self.unwritable(why))?;
        let leaf = self.child(replica).filter(|leaf| !leaf.health.has_failed());
        leaf.ok_or_else(|| self.unwritable(Unwritable::Missing))
    }
}

impl Vdevs {
    /// `tops[i]` must have id `i`.
    #[must_use]
    pub fn new(tops: Vec<TopVdev>) -> Vdevs {
        for (i, top) in tops.iter().enumerate() {
            assert_eq!(top.id as usize, i, "top-level vdevs are indexed by id");
        }
        Vdevs { tops }
    }

    /// All top-level vdevs, by id.
    #[must_use]
    pub fn tops(&self) -> &[TopVdev] {
        &self.tops
    }

    /// The vdev of `dva`, if the whole range lies on it.
    ///
    /// # Errors
    /// [`ReadError::OutOfRange`].
    pub fn top_of(&self, dva: &Dva) -> Result<&TopVdev, ReadError> {
        let top = self.tops.get(dva.vdev.0 as usize).ok_or(ReadError::OutOfRange { dva: *dva })?;
        // The size of a gang is that of header and members together; only the header lies here.
        let len = if dva.gang { top.asize_of(GANG_HEADER as u64) } else { dva.asize };
        match dva.offset.checked_add(len) {
            Some(end) if end <= top.asize => Ok(top),
            _ => Err(ReadError::OutOfRange { dva: *dva }),
        }
    }

    /// Bytes accounted to the owner of `block` (02 §8.1 of chapter 06: "dsize"): parity is not charged.
    #[must_use]
    pub fn dsize(&self, block: &Block) -> u64 {
        let one = |dva: &Dva| {
            let ratio = self.tops.get(dva.vdev.0 as usize).map_or(512, TopVdev::deflate_ratio);
            (dva.asize >> 9) * ratio
        };
        block.dvas.iter().filter(|dva| !dva.is_empty()).map(one).sum()
    }

    /// Accounted bytes of any pointer; 0 for holes and embedded data.
    #[must_use]
    pub fn dsize_of(&self, ptr: &BlockPtr) -> u64 {
        ptr.block().map_or(0, |block| self.dsize(block))
    }

    /// Smallest sector (bytes) among the vdevs that hold data: the unit to which compressed sizes round.
    #[must_use]
    pub fn min_alloc(&self) -> u64 {
        let shift = self.tops.iter().filter(|top| top.is_normal()).map(|top| top.ashift).min();
        1 << shift.unwrap_or(9)
    }

    /// Largest sector (bytes) among the vdevs that hold data: smaller pieces may take as much.
    #[must_use]
    pub fn max_alloc(&self) -> u64 {
        let shift = self.tops.iter().filter(|top| top.is_normal()).map(|top| top.ashift).max();
        1 << shift.unwrap_or(9)
    }

    /// Bytes that a block of `psize` bytes takes at most, whichever vdev it is written to.
    #[must_use]
    pub fn largest_asize_of(&self, psize: u64) -> u64 {
        let normal = self.tops.iter().filter(|top| top.is_normal());
        normal.map(|top| top.asize_of(psize)).max().unwrap_or(psize)
    }

    /// Bytes accounted to the owner of a block of `psize` bytes at most, whichever vdev it is written to.
    #[must_use]
    pub fn largest_dsize_of(&self, psize: u64) -> u64 {
        let normal = self.tops.iter().filter(|top| top.is_normal());
        normal.map(|top| (top.asize_of(psize) >> 9) * top.deflate_ratio()).max().unwrap_or(psize)
    }

    /// The leaves that are present.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.tops.iter().flat_map(TopVdev::leaves)
    }

    /// From now on a request to any of the disks counts as slow that takes `limit` or longer.
    pub fn set_slow_limit(&self, limit: Duration) {
        self.leaves().for_each(|leaf| leaf.meter.set_slow_limit(limit));
    }

    /// The limit in time for changes of the disks.
    pub(crate) fn set_fence(&self, fence: &Arc<Fence>) {
        self.leaves().for_each(|leaf| leaf.meter.set_fence(fence));
    }

    /// Every present disk.
    pub fn disks(&self) -> impl Iterator<Item = &Arc<dyn Disk>> {
        self.tops.iter().flat_map(TopVdev::leaves).map(|leaf| &leaf.disk)
    }

    /// Makes everything written so far durable on every disk.
    ///
    /// # Errors
    /// The first device that refused, with its path. Use [`crate::Storage::flush`] where the pool may go on without a device.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.tops.iter().flat_map(TopVdev::written).try_for_each(Leaf::flush_or_say)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Fault, ScriptedDisk};
    use crate::layout::Raidz;

    #[test]
    fn a_mirror_reads_from_the_device_with_the_least_to_do() {
        let disks: Vec<ScriptedDisk> = (0..3).map(|_| ScriptedDisk::new(8 << 20)).collect();
        let leaf = |(n, disk): (usize, &ScriptedDisk)| Leaf::new(n as u64, Arc::new(disk.clone()));
        let leaves: Vec<Leaf> = disks.iter().enumerate().map(leaf).collect();
        let shape = Shape::Mirror(leaves.iter().cloned().map(Some).collect());
        let (id, guid, ashift) = (0, 1, 9);
        let top =
            TopVdev { id, guid, ashift, asize: 1 << 30, metaslab_shift: 24, class: Class::Normal, shape };
        let order = |offset| {
            let mut replicas = top.replicas_of(Txg(7));
            top.order_by_load(&mut replicas, Txg(7), offset);
            replicas
        };
        // Idle devices take turns; neighbours go to the same one.
        assert_eq!(order(0), [0, 1, 2]);
        assert_eq!(order((2 << 20) - 512), [0, 1, 2]);
        assert_eq!(order(2 << 20), [1, 2, 0]);
        assert_eq!(order(4 << 20), [2, 0, 1]);
        // A busy device is read after idle ones.
        disks[0].inject(Fault::Hang { from_op: 0 });
        std::thread::scope(|scope| {
            scope.spawn(|| leaves[0].read(Purpose::SyncRead, 0, &mut [0; 512]));
            while leaves[0].meter.load() == 0 {
                std::thread::yield_now();
            }
            assert_eq!(order(0), [1, 2, 0]);
            assert_eq!(order(4 << 20), [2, 1, 0]);
            // Even so, it is read before a leaf that misses the block or failed.
            leaves[2].health.add_missing(Txg(7), Txg(8));
            assert_eq!(order(4 << 20), [1, 0, 2]);
            leaves[1].health.fail("it refused a write".into(), Txg(9));
            assert_eq!(order(4 << 20), [0, 1, 2]);
            disks[0].heal();
        });
        assert_eq!(leaves[0].meter.load(), 0);
    }

    #[test]
    fn sizes_and_ratios_of_raidz_are_those_of_openzfs() {
        for (ashift, parity, width, ratio) in [(12, 3, 6, 240), (9, 3, 6, 254), (12, 1, 5, 409)] {
            let layout = Spread::Raidz(Raidz::new(ashift, width, parity).unwrap());
            let layout_sizes = layout.sizes();
            let shape = Shape::Parity { layout, sides: vec![Side::from(None); width] };
            let top = TopVdev {
                id: 0,
                guid: 1,
                ashift,
                asize: 1 << 30,
                metaslab_shift: 24,
                class: Class::Normal,
                shape,
            };
            assert_eq!(top.asize_of(128 << 10), layout_sizes.asize(128 << 10));
            assert_eq!(top.deflate_ratio(), ratio);
        }
    }
}

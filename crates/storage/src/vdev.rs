//! Top-level vdevs: where a DVA's bytes lie on which disks.
//!
//! Source: docs/format/01-labels-uberblock.md §1, §8; 02-blocks-checksums-compression.md §6, §7.

use std::sync::Arc;
use std::time::Duration;

use format::blkptr::{Block, BlockPtr, Dva};
use format::{Txg, label};

use crate::error::{Layout, NotYet, ReadError, Unwritable, WriteError};
use crate::host::Disk;
use crate::layout::{GANG_HEADER, Raidz};
use crate::leaf::Leaf;
use crate::meter::Purpose;
use crate::raidz::{self, Columns, Outcome};
use crate::txg_runs::TxgRuns;

/// How a top-level vdev spreads its blocks.
#[derive(Clone, Debug)]
pub enum Shape {
    /// One disk or file.
    Disk(Leaf),
    /// Identical children; absent ones are `None`.
    Mirror(Vec<Option<Leaf>>),
    /// Rows of data and parity columns; absent children are `None`.
    Raidz {
        /// How blocks are spread over the children.
        layout: Raidz,
        /// Children in order.
        children: Vec<Option<Leaf>>,
    },
    /// The slot of a removed log device.
    Hole,
    /// Too few of its devices are there.
    Missing,
    /// A layout that this build does not read.
    Unsupported(Layout),
}

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
    /// Holds intent logs only.
    pub is_log: bool,
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
    /// What it is read for.
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
            Shape::Raidz { layout, .. } => layout.asize(psize),
            _ => psize.next_multiple_of(1 << self.ashift),
        }
    }

    /// How blocks are spread, where parity goes with them.
    #[must_use]
    pub fn raidz(&self) -> Option<Raidz> {
        match self.shape {
            Shape::Raidz { layout, .. } => Some(layout),
            _ => None,
        }
    }

    /// Accounted bytes per 512 allocated: 512 but for raidz, whose parity is not charged.
    #[must_use]
    pub fn deflate_ratio(&self) -> u64 {
        (1 << 17) / (self.asize_of(1 << 17) >> 9)
    }

    /// Number of metaslabs.
    #[must_use]
    pub fn metaslab_count(&self) -> u64 {
        if self.metaslab_shift == 0 { 0 } else { self.asize >> self.metaslab_shift }
    }

    /// Whether new blocks of data and metadata may go here.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        !self.is_log && !matches!(self.shape, Shape::Hole | Shape::Missing | Shape::Unsupported(_))
    }

    /// Whether blocks of a vdev in this state can be written, or need not be.
    ///
    /// # Errors
    /// Why not.
    pub fn writable(&self) -> Result<(), Unwritable> {
        match self.shape {
            Shape::Disk(_) | Shape::Hole => Ok(()),
            Shape::Mirror(_) | Shape::Raidz { .. } => Ok(()),
            Shape::Missing => Err(Unwritable::Missing),
            Shape::Unsupported(layout) => Err(Unwritable::Layout(layout)),
        }
    }

    /// The disks that are present.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        let (one, many): (Option<&Leaf>, &[Option<Leaf>]) = match &self.shape {
            Shape::Disk(leaf) => (Some(leaf), &[]),
            Shape::Mirror(children) | Shape::Raidz { children, .. } => (None, children),
            Shape::Hole | Shape::Missing | Shape::Unsupported(_) => (None, &[]),
        };
        one.into_iter().chain(many.iter().flatten())
    }

    /// How many ways there are to read the same bytes.
    #[must_use]
    pub fn replicas(&self) -> usize {
        match &self.shape {
            Shape::Mirror(children) => children.len(),
            _ => 1,
        }
    }

    /// Bytes of each device that the data may reach to, without its labels: of raidz, all whole rows of the metaslabs.
    #[must_use]
    pub fn asize_of_leaf(&self) -> u64 {
        match &self.shape {
            Shape::Raidz { children, .. } => {
                let used = self.metaslab_count() << self.metaslab_shift;
                used.div_ceil(children.len() as u64).next_multiple_of(1 << self.ashift)
            }
            _ => self.asize,
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
        match &self.shape {
            Shape::Mirror(children) | Shape::Raidz { children, .. } => {
                (0..children.len()).filter(|child| children[*child].is_none()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The replicas whose devices are there. Those of leaves that may lack a block born in `birth` come last.
    pub(crate) fn replicas_of(&self, birth: Txg) -> Vec<usize> {
        let Shape::Mirror(children) = &self.shape else { return vec![0] };
        let there = |child: &usize| children[*child].is_some();
        let mut replicas: Vec<usize> = (0..children.len()).filter(there).collect();
        replicas.sort_by_key(|replica| self.is_stale(*replica, birth));
        replicas
    }

    /// Whether the leaf of this replica may lack a block that was born in `birth`.
    pub(crate) fn is_stale(&self, replica: usize, birth: Txg) -> bool {
        self.child(replica).is_some_and(|leaf| leaf.health.misses(birth))
    }

    /// The children without those that may lack a block born in `birth`; `None` if there are none of these.
    fn believed(&self, children: &[Option<Leaf>], birth: Txg) -> Option<Vec<Option<Leaf>>> {
        let is_stale = |leaf: &Leaf| leaf.health.misses(birth);
        if !children.iter().flatten().any(is_stale) {
            return None;
        }
        Some(children.iter().map(|child| child.clone().filter(|leaf| !is_stale(leaf))).collect())
    }

    /// Devices that are known to miss the block are not damaged.
    fn without_stale(&self, mut outcome: Outcome, birth: Txg) -> Outcome {
        outcome.damaged.retain(|child| !self.is_stale(*child, birth));
        outcome
    }

    /// Whether everything is still on leaves that take part when the one with this guid takes no part any more.
    #[must_use]
    pub fn can_lose(&self, guid: u64) -> bool {
        let (children, spare) = match &self.shape {
            Shape::Mirror(children) => (children, children.len().saturating_sub(1)),
            Shape::Raidz { layout, children } => (children, layout.parity()),
            Shape::Disk(_) | Shape::Hole | Shape::Missing | Shape::Unsupported(_) => return false,
        };
        let lacks = |child: &Option<Leaf>| match child {
            Some(leaf) if leaf.guid != guid && !leaf.health.has_failed() => leaf.health.missing(),
            _ => Arc::new(TxgRuns::since(Txg(0))),
        };
        let lacking: Vec<Arc<TxgRuns>> = children.iter().map(lacks).collect();
        TxgRuns::most_at_once(&lacking) <= spare
    }

    fn written_children(&self) -> impl Iterator<Item = (usize, &Leaf)> {
        let count = match &self.shape {
            Shape::Mirror(children) | Shape::Raidz { children, .. } => children.len(),
            _ => 1,
        };
        let written = |child| Some((child, self.child(child)?)).filter(|(_, leaf)| !leaf.health.has_failed());
        (0..count).filter_map(written)
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
            Shape::Raidz { layout, children } => {
                let purpose = source.purpose;
                let believed = self.believed(children, source.birth);
                let first =
                    Columns { children: believed.as_deref().unwrap_or(children), purpose, vdev: self.id };
                let read = raidz::read(*layout, first, offset, buf, is_good);
                return match read {
                    Ok(Outcome { good: false, .. }) | Err(_) if believed.is_some() => {
                        let all = Columns { children, purpose, vdev: self.id };
                        let outcome = raidz::read(*layout, all, offset, buf, is_good)?;
                        Ok(self.without_stale(outcome, source.birth))
                    }
                    read => read,
                };
            }
            Shape::Disk(leaf) => Some(leaf),
            Shape::Mirror(children) => children.get(replica).and_then(Option::as_ref),
            Shape::Hole => return Err(ReadError::Removed { vdev: self.id }),
            Shape::Missing => return Err(ReadError::Missing { vdev: self.id }),
            Shape::Unsupported(layout) => return Err(ReadError::Unsupported(NotYet::Layout(*layout))),
        };
        leaf.ok_or(ReadError::Missing { vdev: self.id })?.read(source.purpose, offset, buf)?;
        let good = is_good(buf);
        Ok(Outcome { good, damaged: if good { Vec::new() } else { vec![replica] } })
    }

    /// As [`TopVdev::read`]; where several devices share the block, what each of them holds is compared with what it should hold.
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
            Shape::Raidz { layout, children } => {
                let all = Columns { children, purpose: source.purpose, vdev: self.id };
                let outcome = raidz::verify(*layout, all, offset, buf, is_good)?;
                Ok(self.without_stale(outcome, source.birth))
            }
            _ => self.read(source, offset, buf, is_good),
        }
    }

    /// The device of a child, if it is there; that of a single disk is child 0.
    pub(crate) fn child(&self, child: usize) -> Option<&Leaf> {
        match &self.shape {
            Shape::Disk(leaf) => Some(leaf).filter(|_| child == 0),
            Shape::Mirror(children) | Shape::Raidz { children, .. } => children.get(child)?.as_ref(),
            Shape::Hole | Shape::Missing | Shape::Unsupported(_) => None,
        }
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
            Shape::Hole => Err(self.unwritable(Unwritable::Removed)),
            _ => Ok(self.written_children()),
        }
    }

    /// The leaf that holds the copy `replica` of what is on this vdev.
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

    /// Bytes accounted to whoever owns `block` (02 §8.1 of chapter 06: "dsize"): parity is not charged.
    #[must_use]
    pub fn dsize(&self, block: &Block) -> u64 {
        let copies = if block.encrypted && block.object_type.is_encrypted() { 2 } else { 3 };
        let one = |dva: &Dva| {
            let ratio = self.tops.get(dva.vdev.0 as usize).map_or(512, TopVdev::deflate_ratio);
            (dva.asize >> 9) * ratio
        };
        block.dvas.iter().take(copies).filter(|dva| !dva.is_empty()).map(one).sum()
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

    #[test]
    fn sizes_and_ratios_of_raidz_are_those_of_openzfs() {
        for (ashift, parity, width, ratio) in [(12, 3, 6, 240), (9, 3, 6, 254), (12, 1, 5, 409)] {
            let layout = Raidz::new(ashift, width, parity).unwrap();
            let shape = Shape::Raidz { layout, children: vec![None; width] };
            let top =
                TopVdev { id: 0, guid: 1, ashift, asize: 1 << 30, metaslab_shift: 24, is_log: false, shape };
            assert_eq!(top.asize_of(128 << 10), layout.asize(128 << 10));
            assert_eq!(top.deflate_ratio(), ratio);
        }
    }
}

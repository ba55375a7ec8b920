//! Top-level vdevs: where a DVA's bytes lie on which disks.
//!
//! Source: docs/format/01-labels-uberblock.md §1, §8; 02-blocks-checksums-compression.md §6, §7.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, Dva};
use format::label::{self, DATA_START};

use crate::error::{ReadError, WriteError};
use crate::gang;
use crate::host::Disk;
use crate::meter::{Meter, Metered};
use crate::unflushed::Unflushed;

/// A disk or file at the bottom of the tree.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Guid from its label.
    pub guid: u64,
    /// The open device; counts into `meter`.
    pub disk: Arc<dyn Disk>,
    /// What the device was asked for.
    pub meter: Arc<Meter>,
    pub(crate) unflushed: Arc<Unflushed>,
}

impl Leaf {
    /// A leaf on an open device.
    #[must_use]
    pub fn new(guid: u64, disk: Arc<dyn Disk>) -> Leaf {
        let meter = Arc::new(Meter::default());
        let unflushed = Arc::default();
        Leaf { guid, disk: Arc::new(Metered { disk, meter: meter.clone() }), meter, unflushed }
    }
}

impl Leaf {
    /// As [`Leaf::flush`], with the device in the error.
    pub(crate) fn flush_or_say(&self) -> Result<(), WriteError> {
        self.flush().map_err(|source| device_error(self.disk.path().to_path_buf(), 0, source))
    }
}

/// How a top-level vdev spreads its blocks.
#[derive(Clone, Debug)]
pub enum Shape {
    /// One disk or file.
    Disk(Leaf),
    /// Identical children; absent ones are `None`.
    Mirror(Vec<Option<Leaf>>),
    /// Rows with `parity` parity columns; absent children are `None`.
    Raidz {
        /// Parity columns, 1 to 3.
        parity: u64,
        /// Children in order.
        children: Vec<Option<Leaf>>,
    },
    /// The slot of a removed log device.
    Hole,
    /// None of its devices was found, or a layout this build does not read.
    Missing(&'static str),
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

/// All top-level vdevs of a pool, by id.
#[derive(Clone, Debug)]
pub struct Vdevs {
    tops: Vec<TopVdev>,
}

/// Part of a block on one child of a raidz vdev.
struct Column {
    child: usize,
    offset: u64,
    len: u64,
}

impl TopVdev {
    /// Bytes that a block of `psize` bytes occupies here.
    #[must_use]
    pub fn asize_of(&self, psize: u64) -> u64 {
        let sector = 1u64 << self.ashift;
        match &self.shape {
            Shape::Raidz { parity, children } => {
                let data = children.len() as u64 - parity;
                let sectors = psize.div_ceil(sector);
                let total = sectors + parity * sectors.div_ceil(data);
                total.next_multiple_of(parity + 1) * sector
            }
            _ => psize.next_multiple_of(sector),
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
        !self.is_log && !matches!(self.shape, Shape::Hole | Shape::Missing(_))
    }

    /// Whether this build writes to this layout; else its name.
    ///
    /// # Errors
    /// The layout's name.
    pub fn writable(&self) -> Result<(), &'static str> {
        match self.shape {
            Shape::Disk(_) | Shape::Hole => Ok(()),
            Shape::Mirror(_) => Err("mirror"),
            Shape::Raidz { .. } => Err("raidz"),
            Shape::Missing(what) => Err(what),
        }
    }

    /// The disks that are present.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        let (one, many): (Option<&Leaf>, &[Option<Leaf>]) = match &self.shape {
            Shape::Disk(leaf) => (Some(leaf), &[]),
            Shape::Mirror(children) | Shape::Raidz { children, .. } => (None, children),
            Shape::Hole | Shape::Missing(_) => (None, &[]),
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

    /// The devices of a stripe or mirror that end before the data may: their last labels would be written over data.
    pub fn cut_short(&self) -> impl Iterator<Item = &Leaf> {
        let in_rows = matches!(self.shape, Shape::Raidz { .. });
        self.leaves().filter(move |leaf| !in_rows && label::asize_of(leaf.disk.size()) < self.asize)
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

    /// Whether the device of this replica is there.
    pub(crate) fn has_replica(&self, replica: usize) -> bool {
        match &self.shape {
            Shape::Mirror(children) => children.get(replica).is_some_and(Option::is_some),
            _ => true,
        }
    }

    /// The one leaf whose bytes `replica` is; `None` where several share them.
    pub(crate) fn leaf_of(&self, replica: usize) -> Option<&Leaf> {
        match &self.shape {
            Shape::Disk(leaf) => Some(leaf),
            Shape::Mirror(children) => children.get(replica)?.as_ref(),
            _ => None,
        }
    }

    /// Reads `buf.len()` bytes at `offset` of the allocatable area from replica `replica`.
    ///
    /// # Errors
    /// [`ReadError::Device`], or [`ReadError::Unsupported`] where a column is missing.
    pub fn read(&self, replica: usize, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        match &self.shape {
            Shape::Disk(leaf) => read_leaf(leaf, offset, buf),
            Shape::Mirror(children) => match &children[replica] {
                Some(leaf) => read_leaf(leaf, offset, buf),
                None => Err(ReadError::Unsupported("reading from a missing device of a mirror")),
            },
            Shape::Raidz { parity, children } => {
                let mut rest = buf;
                for column in raidz_data_columns(self.ashift, *parity, children.len(), offset, rest.len()) {
                    let take = rest.len().min(column.len as usize);
                    let (part, tail) = rest.split_at_mut(take);
                    rest = tail;
                    match &children[column.child] {
                        Some(leaf) => read_leaf(leaf, column.offset, part)?,
                        None => {
                            return Err(ReadError::Unsupported("reconstruction of a missing raidz column"));
                        }
                    }
                }
                Ok(())
            }
            Shape::Hole => Err(ReadError::Unsupported("a block on a removed vdev")),
            Shape::Missing(what) => Err(ReadError::Unsupported(what)),
        }
    }

    /// The leaf that all bytes of this vdev go to.
    ///
    /// # Errors
    /// [`WriteError::Unsupported`] for layouts of more than one disk.
    pub(crate) fn only_leaf(&self) -> Result<&Leaf, WriteError> {
        match &self.shape {
            Shape::Disk(leaf) => Ok(leaf),
            _ => Err(WriteError::Unsupported(self.writable().err().unwrap_or("removed"))),
        }
    }
}

fn read_leaf(leaf: &Leaf, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
    let at = offset + DATA_START;
    leaf.disk.read_at(buf, at).map_err(|source| ReadError::Device {
        path: leaf.disk.path().to_path_buf(),
        offset: at,
        source,
    })
}

/// The data columns of a block, in the order in which they hold its bytes (02 §7.2).
fn raidz_data_columns(ashift: u32, parity: u64, width: usize, offset: u64, len: usize) -> Vec<Column> {
    let width = width as u64;
    let sector = offset >> ashift;
    let sectors = (len as u64).div_ceil(1 << ashift);
    let (first, base) = (sector % width, (sector / width) << ashift);
    let rows = sectors / (width - parity);
    let rest = sectors % (width - parity);
    let big = if rest == 0 { 0 } else { rest + parity };
    let used = if rows == 0 { big } else { width };
    let column = |c: u64| Column {
        child: ((first + c) % width) as usize,
        offset: base + if first + c >= width { 1 << ashift } else { 0 },
        len: (rows + u64::from(c < big)) << ashift,
    };
    let mut columns: Vec<Column> = (0..used).map(column).collect();
    // Single parity alternates sides by megabyte so that no disk holds only parity.
    if parity == 1 && offset & (1 << 20) != 0 && columns.len() > 1 {
        let (head, tail) = columns.split_at_mut(1);
        std::mem::swap(&mut head[0].child, &mut tail[0].child);
        std::mem::swap(&mut head[0].offset, &mut tail[0].offset);
    }
    columns.split_off(parity as usize)
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
        let len = if dva.gang { top.asize_of(gang::HEADER as u64) } else { dva.asize };
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

    /// Every present disk.
    pub fn disks(&self) -> impl Iterator<Item = &Arc<dyn Disk>> {
        self.tops.iter().flat_map(TopVdev::leaves).map(|leaf| &leaf.disk)
    }

    /// Makes everything written so far durable on every disk.
    ///
    /// # Errors
    /// The first device that refused, with its path.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.tops.iter().flat_map(TopVdev::leaves).try_for_each(Leaf::flush_or_say)
    }
}

pub(crate) fn device_error(path: PathBuf, offset: u64, source: io::Error) -> WriteError {
    WriteError::Device { path, offset, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raidz(ashift: u32, parity: u64, width: usize) -> TopVdev {
        let shape = Shape::Raidz { parity, children: vec![None; width] };
        TopVdev { id: 0, guid: 1, ashift, asize: 1 << 30, metaslab_shift: 24, is_log: false, shape }
    }

    #[test]
    fn raidz_sizes_are_those_of_openzfs() {
        let top = raidz(12, 3, 6);
        assert_eq!(top.asize_of(128 << 10), 68 << 12);
        assert_eq!(top.deflate_ratio(), 240);
    }

    #[test]
    fn data_columns_cover_the_block_once() {
        for len in [4096usize, 8192, 131072, 20480] {
            let columns = raidz_data_columns(12, 1, 3, 12288, len);
            assert_eq!(columns.iter().map(|c| c.len).sum::<u64>(), len as u64);
        }
    }
}

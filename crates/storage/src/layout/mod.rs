//! Where the bytes of a block lie on the children of a top-level vdev: arithmetic without disks.
//!
//! From:   the offset of a block in the allocatable area, and its size.
//! To:     columns: byte ranges of children, relative to the start of the child's own allocatable area.
//! Source: docs/format/02-blocks-checksums-compression.md §7.1, §7.2; 11-redundancy.md §2.2, §3.

mod draid;
mod grown;
mod motion;
mod route;
mod seeds;

use std::ops::Range;
use std::sync::Arc;

use format::Txg;

pub use draid::{Draid, DraidSpec};
pub use grown::Grown;
pub use motion::Motion;

/// Bytes of a classic gang header.
pub const GANG_HEADER: usize = 512;

/// Bytes on one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Index of the child.
    pub child: usize,
    /// Byte offset on it.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes of these that the block fills; zeros follow.
    pub filled: u64,
    /// The byte of the block with which a data column begins; 0 for parity.
    pub start: u64,
}

impl Column {
    /// Which bytes of a block of `psize` bytes are in this data column.
    #[must_use]
    pub fn range(&self, psize: usize) -> Range<usize> {
        let start = psize.min(self.start as usize);
        start..psize.min(start + self.filled as usize)
    }

    const fn exchange_places(&mut self, other: &mut Column) {
        std::mem::swap(&mut self.child, &mut other.child);
        std::mem::swap(&mut self.offset, &mut other.offset);
    }
}

/// How a raidz vdev spreads blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raidz {
    ashift: u32,
    width: u64,
    parity: u64,
}

/// The columns of one block on a vdev with parity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Of each group first the parity columns, then the data columns. A column of length 0 counts as zeros when parity is made.
    pub columns: Vec<Column>,
    /// The columns of each group: parity is made of those of the group.
    pub groups: Vec<Range<usize>>,
    /// How many columns of a group are parity.
    pub parity: usize,
    /// Sectors behind the block that are allocated with it and hold nothing.
    pub skipped: Vec<Column>,
    /// Columns that lay on one device before the vdev was expanded.
    pub lay_together: Vec<Vec<usize>>,
    /// Columns, by index, that are written to a second place as well: their row is read where it was before the vdev is expanded, and
    /// they themselves were moved already.
    pub copies: Vec<(usize, Column)>,
}

impl Raidz {
    /// Children that a raidz vdev has at most.
    const WIDTH_MAX: u64 = 255;

    /// A vdev of `width` children with `parity` parity columns and sectors of 2^`ashift` bytes; `None` if there is no such vdev.
    #[must_use]
    pub fn new(ashift: u32, width: usize, parity: u64) -> Option<Raidz> {
        let width = width as u64;
        let possible =
            (1..=3).contains(&parity) && width > parity && width <= Raidz::WIDTH_MAX && ashift < 32;
        possible.then_some(Raidz { ashift, width, parity })
    }

    /// Parity columns of a block.
    #[must_use]
    pub fn parity(&self) -> usize {
        self.parity as usize
    }

    const fn sectors(&self, psize: u64) -> u64 {
        psize.div_ceil(1 << self.ashift)
    }

    /// Sectors of data and parity.
    const fn total(&self, sectors: u64) -> u64 {
        sectors + self.parity * sectors.div_ceil(self.width - self.parity)
    }

    /// Bytes that a block of `psize` bytes occupies, parity and skipped sectors included.
    #[must_use]
    pub const fn asize(&self, psize: u64) -> u64 {
        self.total(self.sectors(psize)).next_multiple_of(self.parity + 1) << self.ashift
    }

    /// Where sector `number` of the vdev lies, counted across the children.
    const fn sector(&self, number: u64) -> Column {
        let child = (number % self.width) as usize;
        let len = 1 << self.ashift;
        Column { child, offset: (number / self.width) << self.ashift, len, filled: len, start: 0 }
    }

    /// Single parity changes sides with each megabyte, so that no disk holds only parity.
    const fn alternates(&self, offset: u64) -> bool {
        self.parity == 1 && offset & (1 << 20) != 0
    }

    /// The columns of the block of `psize` bytes at `offset`.
    #[must_use]
    pub fn map(&self, offset: u64, psize: u64) -> Map {
        let (first, sectors) = (offset >> self.ashift, self.sectors(psize));
        let rows = sectors / (self.width - self.parity);
        let rest = sectors % (self.width - self.parity);
        // So many columns have a sector more than the others.
        let big = if rest == 0 { 0 } else { rest + self.parity };
        let used = if rows == 0 { big } else { self.width };
        let column = |number: u64| {
            let len = (rows + u64::from(number < big)) << self.ashift;
            Column { len, filled: len, ..self.sector(first + number) }
        };
        let mut columns: Vec<Column> = (0..used).map(column).collect();
        let mut start = 0;
        for data in columns.iter_mut().skip(self.parity()) {
            data.start = start;
            start += data.len;
        }
        if self.alternates(offset)
            && let [parity, data, ..] = &mut columns[..]
        {
            parity.exchange_places(data);
        }
        let total = self.total(sectors);
        let skipped =
            (total..total.next_multiple_of(self.parity + 1)).map(|n| self.sector(first + n)).collect();
        let parity = self.parity().min(columns.len());
        let groups = std::iter::once(0..columns.len()).collect();
        Map { columns, groups, parity, skipped, ..Map::default() }
    }
}

impl Map {
    /// The indices of the data columns.
    pub fn data(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups.iter().flat_map(|group| self.data_of(group))
    }

    /// Whether the vdev was expanded after the block was written: its columns are single sectors, many of which follow each other on a child.
    #[must_use]
    pub fn is_woven(&self) -> bool {
        !self.lay_together.is_empty()
    }

    /// Whether the column with this index holds data.
    #[must_use]
    pub fn is_data(&self, column: usize) -> bool {
        self.groups.iter().any(|group| self.data_of(group).contains(&column))
    }

    /// The indices of the data columns of a group.
    #[must_use]
    pub fn data_of(&self, group: &Range<usize>) -> Range<usize> {
        group.start + self.parity..group.end
    }

    /// The indices of the parity columns of a group.
    #[must_use]
    pub fn parity_of(&self, group: &Range<usize>) -> Range<usize> {
        group.start..group.start + self.parity
    }
}

/// How a vdev with parity spreads blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Rows over all devices.
    Raidz(Raidz),
    /// The same, and devices were added.
    Grown(Grown),
    /// Groups over changing devices.
    Draid(Draid),
}

impl Spread {
    /// Parity columns of a block.
    #[must_use]
    pub fn parity(&self) -> usize {
        match self {
            Spread::Raidz(layout) => layout.parity(),
            Spread::Grown(layout) => layout.now.parity(),
            Spread::Draid(layout) => layout.spec.parity as usize,
        }
    }

    /// The space that new blocks occupy. Older ones of a vdev that was expanded may occupy more.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        match self {
            Spread::Raidz(layout) => Sizes::Raidz(*layout),
            Spread::Grown(layout) => Sizes::Raidz(layout.roomiest()),
            Spread::Draid(layout) => Sizes::Draid(layout.spec),
        }
    }

    /// The space that a block occupied when the vdev was made. All accounting of space uses it, also after children
    /// were added.
    #[must_use]
    pub fn original_sizes(&self) -> Sizes {
        match self {
            Spread::Grown(layout) => Sizes::Raidz(layout.original()),
            Spread::Raidz(_) | Spread::Draid(_) => self.sizes(),
        }
    }

    /// The first txg whose blocks are spread over all devices, if some came later than the first blocks.
    #[must_use]
    pub fn complete_since(&self) -> Option<Txg> {
        match self {
            Spread::Grown(layout) => layout.complete_since(),
            Spread::Raidz(_) | Spread::Draid(_) => None,
        }
    }

    /// Progress of a raidz expansion; `None` if there is none.
    #[must_use]
    pub fn motion(&self) -> Option<&Arc<Motion>> {
        match self {
            Spread::Grown(layout) => layout.motion(),
            Spread::Raidz(_) | Spread::Draid(_) => None,
        }
    }

    /// The columns of the block of `psize` bytes at `offset` that was born in txg `born`.
    #[must_use]
    pub fn map(&self, offset: u64, psize: u64, born: Txg) -> Map {
        match self {
            Spread::Raidz(layout) => layout.map(offset, psize),
            Spread::Grown(layout) => layout.map(offset, psize, born),
            Spread::Draid(layout) => layout.map(offset, psize),
        }
    }
}

/// The space that blocks occupy on a vdev with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Parity for each row, and padding that makes the size a multiple.
    Raidz(Raidz),
    /// Whole stripes of groups.
    Draid(DraidSpec),
}

impl Sizes {
    /// Bytes that a block of `psize` bytes occupies, parity and all.
    #[must_use]
    pub const fn asize(&self, psize: u64) -> u64 {
        match self {
            Sizes::Raidz(layout) => layout.asize(psize),
            Sizes::Draid(spec) => psize.div_ceil(spec.data << spec.ashift) * (spec.width() << spec.ashift),
        }
    }

    /// Blocks lie at multiples of so many bytes.
    #[must_use]
    pub const fn unit(&self) -> u64 {
        match self {
            Sizes::Raidz(layout) => 1 << layout.ashift,
            Sizes::Draid(spec) => spec.width() << spec.ashift,
        }
    }
}

/// The bytes of metaslab `index` of a vdev whose blocks lie at multiples of `unit`; metaslabs have 2^`shift` bytes where that fits.
#[must_use]
pub const fn metaslab(index: u64, shift: u32, unit: u64) -> Range<u64> {
    let start = (index << shift).next_multiple_of(unit);
    let end = (index + 1) << shift;
    let size = if start < end { (end - start) / unit * unit } else { 0 };
    start..start + size
}

/// The bytes of `count` metaslabs together, as [`metaslab`] has them. Every transaction asks for it, so it does not go through them.
#[must_use]
pub const fn capacity(count: u64, shift: u32, unit: u64) -> u64 {
    if count == 0 || unit > 1 << shift {
        return 0;
    }
    // A unit that a border between two metaslabs cuts is in neither. Of so many borders one lies between two units.
    let unit_shift = unit.trailing_zeros();
    let period = unit >> if unit_shift < shift { unit_shift } else { shift };
    let borders = count - 1;
    ((count << shift) / unit - (borders - borders / period)) * unit
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn raidz(ashift: u32, width: usize, parity: u64) -> Raidz {
        Raidz::new(ashift, width, parity).unwrap()
    }

    #[test]
    fn sizes_are_those_of_openzfs() {
        assert_eq!(raidz(12, 6, 3).asize(128 << 10), 68 << 12);
        assert_eq!(raidz(12, 5, 1).asize(4096), 2 << 12);
        assert_eq!(raidz(12, 5, 1).asize(3 * 4096), 4 << 12);
        assert_eq!(raidz(9, 3, 1).asize(512), 1024);
        assert_eq!(raidz(9, 3, 1).asize(1), 1024);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        for (ashift, width, parity) in
            [(12, 1, 1), (12, 3, 3), (12, 5, 0), (12, 5, 4), (12, 256, 1), (64, 3, 1)]
        {
            assert_eq!(Raidz::new(ashift, width, parity), None, "{ashift} {width} {parity}");
        }
    }

    #[test]
    fn a_block_of_one_sector_takes_a_sector_of_each_parity_and_one_of_data() {
        let map = raidz(9, 5, 2).map(7 * 512, 512);
        let place = |child, row: u64| Column { child, offset: row * 512, len: 512, filled: 512, start: 0 };
        assert_eq!(map.columns, [place(2, 1), place(3, 1), place(4, 1)]);
        assert_eq!((map.data().collect::<Vec<_>>(), map.skipped), (vec![2], vec![]));
    }

    #[test]
    fn single_parity_changes_sides_with_every_megabyte() {
        let layout = raidz(9, 3, 1);
        let odd = layout.map(1 << 20, 1024).columns;
        // 2048 sectors are 682 rows and 2 sectors.
        assert_eq!(
            odd.iter().map(|c| (c.child, c.offset)).collect::<Vec<_>>(),
            [(0, 683 * 512), (2, 682 * 512), (1, 683 * 512)]
        );
        // 4096 sectors are 1365 rows and 1 sector.
        assert_eq!(layout.map(2 << 20, 1024).columns[0].child, 1);
        // Two parities stay where they are.
        assert_eq!(raidz(9, 4, 2).map(1 << 20, 1024).columns[0].child, 0);
    }

    /// Every sector of the allocated area belongs to one column or is skipped: nothing overlaps and nothing is left.
    #[test]
    fn columns_and_skipped_sectors_fill_what_is_allocated_once() {
        for ashift in [9, 12] {
            for width in 2..=9 {
                for parity in 1..=3.min(width as u64 - 1) {
                    let layout = raidz(ashift, width, parity);
                    for sectors in 0..=40u64 {
                        for first in [0, 1, 5, (1 << 20 >> ashift) + 2] {
                            let psize = sectors << ashift;
                            let map = layout.map(first << ashift, psize);
                            let data: u64 = map.data().map(|column| map.columns[column].len).sum();
                            assert_eq!(data, psize);
                            let rows = |c: Column| {
                                (0..c.len >> ashift).map(move |row| (c.child, (c.offset >> ashift) + row))
                            };
                            let all: Vec<_> =
                                map.columns.iter().chain(&map.skipped).copied().flat_map(rows).collect();
                            let once: BTreeSet<_> = all.iter().copied().collect();
                            assert_eq!(once.len(), all.len(), "no sector twice");
                            let end = first + (layout.asize(psize) >> ashift);
                            let wanted: BTreeSet<_> = (first..end)
                                .map(|n| ((n % width as u64) as usize, n / width as u64))
                                .collect();
                            assert_eq!(once, wanted, "{width} {parity} {sectors} {first}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn columns_of_data_are_never_longer_than_parity() {
        let map = raidz(12, 6, 3).map(123 << 12, 11 << 12);
        assert!(map.columns.windows(2).all(|two| two[0].len >= two[1].len));
        assert_eq!(map.columns[0].len, 4 << 12);
    }

    #[test]
    fn the_capacity_is_that_of_all_metaslabs() {
        for unit in [512, 4096, 3 << 9, 3 << 12, 5 << 12, 7 << 12, 12 << 12, 11 << 13, 3 << 24, 1 << 25] {
            for shift in [20, 24, 29] {
                for count in [0, 1, 2, 3, 5, 12, 15, 64, 199] {
                    let each = (0..count).map(|index| metaslab(index, shift, unit));
                    let sum: u64 = each.map(|bytes| bytes.end - bytes.start).sum();
                    assert_eq!(capacity(count, shift, unit), sum, "{count} of 2^{shift} bytes, unit {unit}");
                }
            }
        }
    }
}

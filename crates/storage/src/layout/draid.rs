//! Where the bytes of a block lie on the children of a draid vdev.
//!
//! From:   the offset of a block in the allocatable area, and its size.
//! To:     columns: the groups of data and parity on which it lies, one or two.
//! Source: docs/format/11-redundancy.md §2.2, §10.1 to §10.3.
//!
//! Groups of columns follow each other over all devices but the spare ones. Which device stands at a position changes with every slice:
//! so each device has its share of all groups, and of the spare space.

use std::sync::Arc;

use super::seeds::SEEDS;
use super::{Column, Map};

/// log2 bytes of a row of a group on one device.
const ROW_SHIFT: u32 = 24;
/// Bytes of each device that are kept free.
const KEPT: u64 = 32 << 20;
/// Devices that a draid vdev has at most.
const CHILDREN_MAX: u64 = 255;
/// Up to so many devices a table has the smaller number of permutations.
const FEW_CHILDREN: usize = 31;
/// Permutations of a table.
const PERMUTATIONS: [usize; 2] = [256, 512];
/// The generator begins with this and the seed.
const START: u64 = 0x000d_7a1d_5eed;
/// Most spares and groups.
const SPARES_MAX: u64 = 100;
const GROUPS_MAX: u64 = 255;

/// The numbers that describe a draid vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraidSpec {
    /// log2 of the sector size.
    pub ashift: u32,
    /// Devices.
    pub children: u64,
    /// Parity columns of a group.
    pub parity: u64,
    /// Data columns of a group.
    pub data: u64,
    /// Devices' worth of spare space.
    pub spares: u64,
    /// Groups of a slice.
    pub groups: u64,
}

impl DraidSpec {
    /// A new vdev, with the fewest groups that fill whole rows; `None` if there is no such vdev.
    #[must_use]
    pub fn fewest_groups(ashift: u32, children: u64, [parity, data, spares]: [u64; 3]) -> Option<DraidSpec> {
        let candidates =
            (1..=GROUPS_MAX).map(|groups| DraidSpec { ashift, children, parity, data, spares, groups });
        candidates.into_iter().find(DraidSpec::is_possible)
    }

    /// Columns of a group.
    pub(crate) const fn width(&self) -> u64 {
        self.data + self.parity
    }

    /// Devices without the spare ones.
    const fn disks(&self) -> u64 {
        self.children - self.spares
    }

    /// Whether there is such a vdev.
    fn is_possible(&self) -> bool {
        let numbers = [self.parity, self.data, self.spares];
        let fits = numbers.iter().all(|number| *number <= CHILDREN_MAX)
            && (1..=3).contains(&self.parity)
            && self.data >= 1
            && self.spares <= SPARES_MAX
            && self.children <= CHILDREN_MAX
            && (1..=GROUPS_MAX).contains(&self.groups)
            && (9..=16).contains(&self.ashift)
            && self.data <= CHILDREN_MAX
            && self.width() + self.spares <= self.children;
        // All groups of a slice together fill whole rows.
        fits && (self.width() * self.groups).is_multiple_of(self.disks())
    }
}

/// How a draid vdev spreads blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draid {
    pub(super) spec: DraidSpec,
    /// Permutations of the devices, one after another.
    table: Arc<Vec<u8>>,
}

/// The permutations of so many devices; `None` if their checksum is wrong.
fn table(children: usize) -> Option<Vec<u8>> {
    let (seed, checksum) = *SEEDS.get(children.checked_sub(2)?)?;
    let (mut s0, mut s1) = (START, seed);
    let mut random = || {
        let next = s0.wrapping_add(s1).rotate_left(17).wrapping_add(s0);
        let mixed = s1 ^ s0;
        s0 = s0.rotate_left(49) ^ mixed ^ (mixed << 21);
        s1 = mixed.rotate_left(28);
        next
    };
    let mut row: Vec<u8> = (0..=u8::MAX).take(children).collect();
    let mut table = Vec::new();
    for _ in 0..PERMUTATIONS[usize::from(children > FEW_CHILDREN)] {
        for at in (1..children).rev() {
            row.swap(at, (random() % (at as u64 + 1)) as usize);
        }
        table.extend_from_slice(&row);
    }
    let words =
        table.chunks(4).map(|word| word.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte)));
    (words.sum::<u64>() == checksum).then_some(table)
}

impl Draid {
    /// A vdev that these numbers describe; `None` if there is no such vdev.
    #[must_use]
    pub fn new(spec: DraidSpec) -> Option<Draid> {
        let table = Arc::new(spec.is_possible().then(|| table(spec.children as usize)).flatten()?);
        Some(Draid { spec, table })
    }

    /// The numbers that describe it.
    #[must_use]
    pub const fn spec(&self) -> &DraidSpec {
        &self.spec
    }

    /// Allocatable bytes of a vdev whose smallest device has so many: whole groups in whole rows, without what OpenZFS keeps free.
    #[must_use]
    pub fn asize(&self, of_child: u64) -> u64 {
        let rows = of_child.saturating_sub(KEPT) >> ROW_SHIFT << ROW_SHIFT;
        let group = self.spec.width() << ROW_SHIFT;
        rows * self.spec.disks() / group * group
    }

    /// The device at a position of a slice.
    fn device(&self, slice: u64, position: u64) -> u64 {
        let children = self.spec.children;
        // Each permutation is used as often as there are devices, each time rotated by one more.
        let number = slice % self.table.len() as u64;
        let (base, shift) = (number / children, number % children);
        (u64::from(self.table[(base * children + position) as usize]) + shift) % children
    }

    /// Bytes of a slice on each device.
    const fn slice_bytes(&self) -> u64 {
        (self.spec.width() * self.spec.groups / self.spec.disks()) << ROW_SHIFT
    }

    /// The device that holds the data of distributed spare `number` at `offset` of each device; `None` if there is no
    /// such spare.
    pub(crate) fn spare_at(&self, number: u64, offset: u64) -> Option<usize> {
        let position = (self.spec.children - 1).checked_sub(number).filter(|_| number < self.spec.spares)?;
        Some(self.device(offset / self.slice_bytes(), position) as usize)
    }

    /// The devices on which the slice at `offset` of each device has spare space only.
    pub(crate) fn spares_at(&self, offset: u64) -> Vec<usize> {
        (0..self.spec.spares).filter_map(|number| self.spare_at(number, offset)).collect()
    }

    /// Where the slice at `offset` of each device ends.
    pub(crate) fn end_of_slice(&self, offset: u64) -> u64 {
        (offset / self.slice_bytes() + 1).saturating_mul(self.slice_bytes())
    }

    /// The offsets at which slices begin that differ in their devices, up to `end` of each device.
    pub(crate) fn slices(&self, end: u64) -> impl Iterator<Item = u64> {
        let (bytes, different) = (self.slice_bytes(), self.table.len() as u64);
        (0..end.div_ceil(bytes).clamp(1, different)).map(move |slice| slice * bytes)
    }

    /// Bytes of each device that a vdev with so many allocatable bytes needs: whole rows, and what OpenZFS keeps free.
    #[must_use]
    pub(crate) fn asize_of_child(&self, asize: u64) -> u64 {
        KEPT + asize.div_ceil(self.spec.disks()).next_multiple_of(1 << ROW_SHIFT)
    }

    /// Bytes from `offset` on that are whole stripes of one group, with `of_column` bytes of each column at most.
    pub(crate) fn rest_of_group(&self, offset: u64, of_column: u64) -> u64 {
        let group = self.spec.width() << ROW_SHIFT;
        (group - offset % group).min(self.spec.width() * of_column)
    }

    /// The columns of the block of `psize` bytes at `offset`.
    pub(crate) fn map(&self, offset: u64, psize: u64) -> Map {
        let spec = &self.spec;
        let parity = spec.parity as usize;
        let mut map = Map { parity, ..Map::default() };
        let group_bytes = spec.width() << ROW_SHIFT;
        let (mut at, mut left) = (offset, psize);
        while left > 0 {
            // The rest of the group, in whole stripes.
            let rest = group_bytes - at % group_bytes;
            let taken = left.min(rest / spec.width() * spec.data);
            if taken == 0 {
                // No block of the pool lies so.
                break;
            }
            let first = map.columns.len();
            self.add_group(at, (psize - left, taken), &mut map.columns);
            map.groups.push(first..map.columns.len());
            (at, left) = (at + rest, left - taken);
        }
        map
    }

    /// Adds the columns of the `psize` bytes at `offset`, which lie in one group; they are those of the block from byte `start`.
    fn add_group(&self, offset: u64, (start, psize): (u64, u64), columns: &mut Vec<Column>) {
        let spec = &self.spec;
        let (width, disks) = (spec.width(), spec.disks());
        let group = offset / (width << ROW_SHIFT);
        let (slice, in_slice) = (group / spec.groups, group % spec.groups);
        let position = in_slice * width % disks;
        let row = slice * (width * spec.groups / disks) + in_slice * width / disks;
        let stripe = ((offset % (width << ROW_SHIFT)) >> spec.ashift) / width;
        let sectors = psize.div_ceil(1 << spec.ashift);
        let (full, rest) = (sectors / spec.data, sectors % spec.data);
        let len = (full + u64::from(rest > 0)) << spec.ashift;
        let mut start = start;
        for column in 0..width {
            let place = position + column;
            // A group that does not fit continues in the next row.
            let row = row + u64::from(place >= disks);
            let filled = match column.checked_sub(spec.parity) {
                None => len,
                Some(data) => (full + u64::from(data < rest)) << spec.ashift,
            };
            let is_data = column >= spec.parity;
            columns.push(Column {
                child: self.device(slice, place % disks) as usize,
                offset: (row << ROW_SHIFT) + (stripe << spec.ashift),
                len,
                filled,
                start: if is_data { start } else { 0 },
            });
            start += if is_data { filled } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn draid(children: u64, parity: u64, data: u64, spares: u64, groups: u64) -> Draid {
        Draid::new(DraidSpec { ashift: 12, children, parity, data, spares, groups }).expect("there is one")
    }

    #[test]
    fn all_draid_tables_have_the_checksums_of_openzfs() {
        for children in 2..=255 {
            assert!(table(children).is_some(), "{children}");
        }
        assert_eq!(table(8).expect("a table")[..16], [5, 6, 1, 0, 2, 4, 3, 7, 7, 4, 0, 5, 1, 6, 2, 3]);
        assert_eq!((table(1), table(256)), (None, None));
    }

    #[test]
    fn a_new_vdev_has_the_groups_and_the_room_that_openzfs_gives_it() {
        let spec = DraidSpec::fewest_groups(12, 9, [1, 3, 2]).expect("there is one");
        assert_eq!(spec.groups, 7);
        let layout = Draid::new(spec).expect("there is one");
        // Devices of 256 MiB without labels: 13 rows of 7 disks, in groups of 4.
        assert_eq!(layout.asize((256 << 20) - (9 << 19)), (13 * 7 / 4 * 4) << ROW_SHIFT);
        assert_eq!(layout.asize(40 << 20), 0);
        assert!(layout.asize_of_child(layout.asize(1 << 30)) <= 1 << 30);
        assert_eq!(DraidSpec::fewest_groups(12, 5, [1, 4, 1]), None);
        assert_eq!(DraidSpec::fewest_groups(12, 5, [1, u64::MAX, 1]), None);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        for (children, parity, data, spares, groups) in [
            (1, 1, 1, 0, 1),
            (5, 0, 3, 1, 4),
            (5, 4, 1, 0, 1),
            (5, 1, 4, 1, 4),
            (5, 1, 2, 1, 1),
            (300, 1, 2, 0, 1),
        ] {
            let spec = DraidSpec { ashift: 12, children, parity, data, spares, groups };
            assert_eq!(Draid::new(spec), None, "{spec:?}");
        }
    }

    /// The columns of blocks side by side lie on different devices each, and no two blocks share a sector.
    #[test]
    fn blocks_side_by_side_share_no_sector() {
        for layout in [draid(9, 1, 3, 2, 7), draid(8, 2, 3, 1, 7), draid(5, 1, 2, 1, 4)] {
            let spec = layout.spec;
            let mut taken = BTreeSet::new();
            let group = spec.width() << ROW_SHIFT;
            let mut at = group - 40 * (spec.width() << 12);
            for sectors in [1, 7, 31, 2, 200, 3, 64] {
                let map = layout.map(at, (sectors << 12) - 100);
                for columns in &map.groups {
                    let children: BTreeSet<_> =
                        map.columns[columns.clone()].iter().map(|c| c.child).collect();
                    assert_eq!(children.len() as u64, spec.width());
                }
                let data: u64 = map.data().map(|column| map.columns[column].filled).sum();
                assert_eq!(data, sectors << 12);
                for column in &map.columns {
                    for row in 0..column.len >> 12 {
                        assert!(
                            taken.insert((column.child, (column.offset >> 12) + row)),
                            "{spec:?} {sectors}"
                        );
                    }
                }
                at += sectors.div_ceil(spec.data) * (spec.width() << 12);
            }
        }
    }
}

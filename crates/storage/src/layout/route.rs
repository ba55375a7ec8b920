//! How the sectors of a raidz vdev move that gets one child more: how far at a time, and which of them lie together.
//!
//! From:   the layout of the vdev.
//! To:     `reflow`, which copies them.
//! Source: docs/format/11-redundancy.md §11.

use std::ops::Range;

use format::label::BOOT_SIZE;

use super::{Column, Grown};

impl Grown {
    /// Bytes of each child that pass through its boot area when the first sectors move.
    fn scratch_of_child(&self) -> u64 {
        BOOT_SIZE >> self.now.ashift << self.now.ashift
    }

    /// Bytes of the vdev that pass through the boot areas; `None` if these are too small for one row to be clear of itself.
    #[must_use]
    pub fn scratch(&self) -> Option<u64> {
        let (own, width) = (self.scratch_of_child(), self.now.width);
        (own >= width << self.now.ashift).then_some(own * width)
    }

    /// Bytes of each child but the newest that hold what passes through the boot areas.
    pub(crate) fn before_scratch(&self) -> u64 {
        let sectors = (self.scratch_of_child() * self.now.width) >> self.now.ashift;
        sectors.div_ceil(self.now.width - 1) << self.now.ashift
    }

    /// Where the border may be next if it is at byte `moved` on the disks: sectors beyond would be copied over sectors that are still read
    /// from their old places. A row that the border cuts is read from its old place, too.
    #[must_use]
    pub fn limit(&self, moved: u64) -> u64 {
        let (sectors, old) = (moved >> self.now.ashift, self.now.width - 1);
        ((sectors + sectors / old).saturating_sub(old).max(sectors)) << self.now.ashift
    }

    /// The sectors that a range of bytes has on each child, as they lie together there: of the narrower vdev, or with the newest child.
    pub(crate) fn shares(&self, bytes: &Range<u64>, is_new: bool) -> Vec<Share> {
        let layout = if is_new { self.now } else { self.newest() };
        let (first, end) = (bytes.start >> layout.ashift, bytes.end >> layout.ashift);
        let share = |number: u64| {
            let count = (end - number).div_ceil(layout.width);
            let place = layout.sector(number);
            Share {
                place: Column { len: count << layout.ashift, ..place },
                first: number - first,
                step: layout.width,
            }
        };
        (first..end.min(first + layout.width)).map(share).collect()
    }
}

/// The sectors of a range that lie side by side on one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// All of them.
    pub(crate) place: Column,
    /// The number of the first one in the range.
    pub(crate) first: u64,
    /// From the number of one to that of the next.
    pub(crate) step: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use format::Txg;

    use super::super::{Motion, Raidz};
    use super::*;

    fn in_motion(ashift: u32, width: usize, parity: u64, moved: u64) -> Grown {
        let now = Raidz::new(ashift, width, parity).unwrap();
        Grown::in_motion(now, &[], Motion::new(moved << ashift, false)).unwrap()
    }

    /// Sectors written up to the limit overlap no row that is read from its old place, and the border comes forward.
    #[test]
    fn nothing_is_copied_over_a_sector_that_is_read_from_its_old_place() {
        for (width, parity) in [(3, 1), (4, 1), (5, 2), (9, 3)] {
            let old = width as u64 - 1;
            for moved in [width as u64 * 40, width as u64 * 40 + 1, 777, 5000] {
                let layout = in_motion(9, width, parity, moved);
                let limit = layout.limit(moved << 9) >> 9;
                assert!(limit > moved, "{width} {moved}");
                let written: BTreeSet<(u64, u64)> =
                    (moved..limit).map(|n| (n % width as u64, n / width as u64)).collect();
                // A row that ends behind the border begins so far before it at most.
                let read = (moved + 1 - old..moved + 4 * limit).map(|n| (n % old, n / old));
                assert!(read.into_iter().all(|place| !written.contains(&place)), "{width} {moved}");
            }
        }
    }

    #[test]
    fn the_part_that_moves_through_the_boot_areas_fits_and_does_not_overlap_its_target() {
        for (ashift, width, parity) in [(9, 3, 1), (12, 4, 1), (12, 12, 3), (13, 255, 2), (14, 20, 2)] {
            let layout = in_motion(ashift, width, parity, 0);
            let scratch = layout.scratch().unwrap();
            assert!(scratch.is_multiple_of(width as u64) && scratch / width as u64 <= BOOT_SIZE);
            assert!(layout.limit(scratch) > scratch, "{ashift} {width}");
            assert!(layout.before_scratch() * (width as u64 - 1) >= scratch);
        }
        assert_eq!(in_motion(16, 60, 1, 0).scratch(), None);
    }

    #[test]
    fn the_shares_of_a_range_are_its_sectors_once() {
        let layout = in_motion(9, 4, 1, 0);
        for bytes in [0..512, 512..5120, 7 << 9..41 << 9] {
            for is_new in [false, true] {
                let width = if is_new { 4 } else { 3 };
                let mut found = BTreeSet::new();
                for share in layout.shares(&bytes, is_new) {
                    for (at, row) in (0..share.place.len >> 9).enumerate() {
                        let number = (bytes.start >> 9) + share.first + at as u64 * share.step;
                        assert_eq!(number % width, share.place.child as u64);
                        assert_eq!(number / width, (share.place.offset >> 9) + row);
                        assert!(found.insert(number));
                    }
                }
                assert_eq!(found, (bytes.start >> 9..bytes.end >> 9).collect());
            }
        }
    }

    /// A row that the border cuts is read from its old place. Those of its sectors that were moved before are written to both.
    #[test]
    fn a_row_that_the_border_cuts_is_written_twice_where_it_was_moved() {
        let (wide, old) = (Raidz::new(9, 4, 1).unwrap(), Raidz::new(9, 3, 1).unwrap());
        for first in 290..310 {
            for sectors in 1..40u64 {
                let layout = in_motion(9, 4, 1, 300);
                let map = layout.map(first << 9, sectors << 9, Txg(5));
                let simple = old.map(first << 9, sectors << 9);
                let of = |layout: Raidz, n: u64| (layout.sector(n).child, layout.sector(n).offset);
                let total = old.asize(sectors << 9) >> 9;
                let (mut places, mut both) = (BTreeSet::new(), BTreeSet::new());
                map.columns.iter().filter(|c| c.len > 0).for_each(|c| {
                    (0..c.len >> 9).for_each(|row| assert!(places.insert((c.child, c.offset + (row << 9)))));
                });
                map.copies.iter().for_each(|(_, c)| assert!(both.insert((c.child, c.offset))));
                for n in first..first + total - map.skipped.len() as u64 {
                    let is_cut = {
                        let row = first + (n - first) / 3 * 3;
                        row < 300 && row + old.total(sectors).min(3) > 300
                    };
                    let is_filler = !places.contains(&of(old, n)) && !places.contains(&of(wide, n));
                    if is_filler {
                        continue;
                    }
                    assert_eq!(both.contains(&of(wide, n)), is_cut && n < 300, "{first} {sectors} {n}");
                }
                if first >= 300 {
                    assert_eq!(map, simple);
                }
            }
        }
    }
}

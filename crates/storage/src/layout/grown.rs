//! A raidz vdev that got more children after blocks were written to it (feature `raidz_expansion`).
//!
//! From:   the children that it has now, the txgs since which new blocks are spread over one child more, and how far sectors have been moved
//!         to the newest child.
//! To:     the columns of blocks of any age.
//! Source: docs/format/02-blocks-checksums-compression.md §7.5; 11-redundancy.md §4.2, §11.

use std::sync::Arc;

use format::Txg;
use format::label::BOOT_SIZE;

use super::{Column, Map, Motion, Raidz};

/// How an expanded raidz vdev spreads blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// How new blocks are spread.
    pub(super) now: Raidz,
    /// For each child that was added: blocks born in this txg or later count with it.
    since: Arc<[Txg]>,
    /// While sectors move to one child more: how far they have. No block counts with that child yet.
    motion: Option<Arc<Motion>>,
    /// Blocks may still be born that do not count with the last child: what is placed now gets as much room as these need.
    is_settling: bool,
}

/// How far sectors have moved, at one moment.
#[derive(Clone, Copy)]
struct Border {
    /// Sectors before this one have their new place.
    sector: u64,
    /// They are read from the boot areas.
    is_in_scratch: bool,
}

impl Grown {
    /// A vdev that is spread as `now` since the last of these txgs; `None` if there is no such vdev.
    #[must_use]
    pub fn new(now: Raidz, since: &[Txg]) -> Option<Grown> {
        let original = now.width.checked_sub(since.len() as u64)?;
        let is_possible = original > now.parity && since.is_sorted() && !since.is_empty();
        is_possible.then(|| Grown { now, since: since.into(), motion: None, is_settling: false })
    }

    /// A vdev that has been spread as `now` without its last child, since the last of these txgs. `motion` says how far its sectors have
    /// been moved to where they lie with that child. `None` if there is no such vdev.
    #[must_use]
    pub fn in_motion(now: Raidz, since: &[Txg], motion: Arc<Motion>) -> Option<Grown> {
        let original = now.width.checked_sub(since.len() as u64 + 1)?;
        let is_possible = original > now.parity && since.is_sorted();
        is_possible.then(|| Grown { now, since: since.into(), motion: Some(motion), is_settling: false })
    }

    /// The same, while blocks are written that are born before `next`, or only those born then and later.
    #[must_use]
    pub fn from(self, next: Txg) -> Grown {
        let is_settling = self.complete_since().is_some_and(|since| since > next);
        Grown { is_settling, ..self }
    }

    /// How far its sectors have moved, while they move.
    #[must_use]
    pub fn motion(&self) -> Option<&Arc<Motion>> {
        self.motion.as_ref()
    }

    /// The first txg whose blocks need no more room than new blocks; `None` where that is so already.
    #[must_use]
    pub fn settles(&self) -> Option<Txg> {
        self.complete_since().filter(|_| self.is_settling)
    }

    /// The layout of the newest blocks, before any sector moves.
    pub(super) fn newest(&self) -> Raidz {
        Raidz { width: self.now.width - u64::from(self.motion.is_some()), ..self.now }
    }

    /// A spread that leaves enough room for all new blocks.
    pub(super) fn roomiest(&self) -> Raidz {
        let newest = self.newest();
        Raidz { width: newest.width - u64::from(self.is_settling), ..newest }
    }

    /// The layout of the vdev when it was created.
    #[must_use]
    pub fn original(&self) -> Raidz {
        Raidz { width: self.newest().width - self.since.len() as u64, ..self.now }
    }

    /// The first txg whose blocks are spread over all children; `None` while sectors move to one child more.
    #[must_use]
    pub fn complete_since(&self) -> Option<Txg> {
        self.since.last().copied().filter(|_| self.motion.is_none())
    }

    /// The layout of the rows of a block with this physical birth. They may lie on more children than a row has
    /// columns.
    fn rows_of(&self, born: Txg) -> Raidz {
        let before = self.since.iter().filter(|since| **since > born).count() as u64;
        Raidz { width: self.newest().width - before, ..self.now }
    }

    fn border(&self) -> Option<Border> {
        self.motion.as_ref().map(|motion| Border {
            sector: motion.moved() >> self.now.ashift,
            is_in_scratch: motion.is_in_scratch(),
        })
    }

    /// The place of sector `number`, which belongs to a row that ends before sector `end`.
    fn place(&self, number: u64, end: u64, border: Option<Border>) -> Column {
        match border {
            Some(border) if end > border.sector => self.newest().sector(number),
            Some(Border { is_in_scratch: true, .. }) => {
                let place = self.now.sector(number);
                // The boot area ends where the allocatable area begins.
                Column { offset: place.offset.wrapping_sub(BOOT_SIZE), ..place }
            }
            _ => self.now.sector(number),
        }
    }

    /// The columns of the block of `psize` bytes at `offset` that was born in txg `born`.
    #[must_use]
    pub(super) fn map(&self, offset: u64, psize: u64, born: Txg) -> Map {
        let (old, border) = (self.rows_of(born), self.border());
        let (first, sectors) = (offset >> old.ashift, old.sectors(psize));
        let is_simple = old == self.newest() && border.is_none_or(|border| first >= border.sector);
        if is_simple {
            return old.map(offset, psize);
        }
        let total = old.total(sectors);
        let mut map = Map { parity: old.parity(), ..Map::default() };
        let (mut columns, mut numbers) = (Vec::new(), Vec::new());
        for row in 0..total.div_ceil(old.width) {
            let start = columns.len();
            let in_row = old.width.min(total);
            let (begin, end) = (first + row * old.width, first + row * old.width + in_row);
            for column in 0..in_row {
                let place = self.place(begin + column, end, border);
                numbers.push(begin + column);
                columns.push(match old.holds(sectors, row, column) {
                    Holds::Nothing => Column { len: 0, filled: 0, ..place },
                    Holds::Parity => place,
                    Holds::Data(sector) => Column { start: sector << old.ashift, ..place },
                });
            }
            if old.alternates(offset)
                && let [parity, data, ..] = &mut columns[start..]
            {
                parity.exchange_places(data);
                numbers.swap(start, start + 1);
            }
            let border = border.filter(|border| end > border.sector);
            let has_copy =
                |at: &usize| columns[*at].len > 0 && border.is_some_and(|it| numbers[*at] < it.sector);
            map.copies
                .extend((start..columns.len()).filter(has_copy).map(|at| (at, self.now.sector(numbers[at]))));
            map.groups.push(start..columns.len());
        }
        if border.is_none() {
            map.skipped =
                (total..old.asize(psize) >> old.ashift).map(|n| self.now.sector(first + n)).collect();
        }
        map.lay_together = self.lay_together(old.width, &columns, &numbers);
        map.columns = columns;
        map
    }

    /// The columns that lay on one device while the vdev had fewer children. A device that was damaged then has left its damage in them.
    fn lay_together(&self, narrowest: u64, columns: &[Column], numbers: &[u64]) -> Vec<Vec<usize>> {
        let sets = (narrowest..self.now.width).flat_map(|width| (0..width).map(move |child| (width, child)));
        let of = |(width, child): (u64, u64)| -> Vec<usize> {
            let there = |at: &usize| columns[*at].len > 0 && numbers[*at] % width == child;
            (0..columns.len()).filter(there).collect()
        };
        sets.map(of).filter(|set| !set.is_empty()).collect()
    }
}

/// The content of a sector of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Parity,
    /// So many sectors of the block come before it.
    Data(u64),
    /// Nothing: the last row is shorter than the others. The missing part counts as zeros.
    Nothing,
}

impl Raidz {
    /// The content of column `column` of row `row`, for a block of so many sectors: its data goes down the first
    /// column, then down the next.
    const fn holds(&self, sectors: u64, row: u64, column: u64) -> Holds {
        let data_columns = self.width - self.parity;
        let rows = sectors.div_ceil(data_columns);
        // So many data columns reach down to the last row.
        let rest = sectors % data_columns;
        let long = if rest == 0 { data_columns } else { rest };
        match column.checked_sub(self.parity) {
            None => Holds::Parity,
            Some(column) if column < long => Holds::Data(column * rows + row),
            Some(_) if row + 1 == rows => Holds::Nothing,
            Some(column) => Holds::Data(long * rows + (column - long) * (rows - 1) + row),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn grown(ashift: u32, width: usize, parity: u64, since: &[u64]) -> Grown {
        let since: Vec<Txg> = since.iter().copied().map(Txg).collect();
        Grown::new(Raidz::new(ashift, width, parity).unwrap(), &since).unwrap()
    }

    #[test]
    fn impossible_growth_is_refused() {
        let now = Raidz::new(9, 4, 2).unwrap();
        for since in [&[][..], &[5, 4], &[1, 2], &[1, 2, 3, 4, 5]] {
            let since: Vec<Txg> = since.iter().copied().map(Txg).collect();
            assert_eq!(Grown::new(now, &since), None, "{since:?}");
        }
    }

    #[test]
    fn the_width_is_that_of_the_birth() {
        let layout = grown(12, 5, 1, &[48, 100]);
        for (born, width) in [(0, 3), (47, 3), (48, 4), (99, 4), (100, 5), (u64::MAX, 5)] {
            assert_eq!(layout.rows_of(Txg(born)).width, width, "{born}");
        }
        assert_eq!((layout.original().width, layout.complete_since()), (3, Some(Txg(100))));
    }

    #[test]
    fn while_sectors_move_rows_before_the_border_have_their_new_place() {
        let (wide, old) = (Raidz::new(9, 4, 1).unwrap(), Raidz::new(9, 3, 1).unwrap());
        let sectors = |map: &Map| -> BTreeSet<(usize, u64)> {
            let of =
                |c: &Column| (0..c.len >> 9).map(|row| (c.child, (c.offset >> 9) + row)).collect::<Vec<_>>();
            map.columns.iter().flat_map(of).collect()
        };
        // Four sectors of data in two rows of three, from sector 6 on.
        let of = |moved: u64| {
            let layout = Grown::in_motion(wide, &[], Motion::new(moved << 9, false)).unwrap();
            assert_eq!((layout.original(), layout.complete_since()), (old, None));
            sectors(&layout.map(6 << 9, 4 << 9, Txg(5)))
        };
        let numbered = |layout: Raidz, numbers: std::ops::Range<u64>| -> BTreeSet<(usize, u64)> {
            numbers.map(|n| layout.sector(n)).map(|c| (c.child, c.offset >> 9)).collect()
        };
        assert_eq!(of(0), numbered(old, 6..12));
        assert_eq!(of(8), numbered(old, 6..12));
        assert_eq!(of(9), &numbered(wide, 6..9) | &numbered(old, 9..12));
        assert_eq!(of(12), numbered(wide, 6..12));
    }

    /// Each allocated sector lies once on the present children, and each byte of the block is in one data column. Each row
    /// has the columns that it had on the narrower vdev.
    #[test]
    fn old_blocks_fill_what_was_allocated_once() {
        for (width, parity, more) in [(2, 1, 1), (3, 1, 2), (4, 2, 1), (5, 3, 3), (6, 1, 1)] {
            let since: Vec<u64> = (0..more).map(|at| 10 + at).collect();
            let layout = grown(9, width + since.len(), parity, &since);
            let (old, now) = (Raidz::new(9, width, parity).unwrap(), layout.now.width);
            for sectors in 0..=30u64 {
                for first in [0, 3, 7, (1 << 20 >> 9) + 2] {
                    let map = layout.map(first << 9, (sectors << 9).saturating_sub(5), Txg(9));
                    let context = format!("{width} {parity} {more} {sectors} {first}");
                    let all: Vec<_> = map.columns.iter().filter(|c| c.len > 0).chain(&map.skipped).collect();
                    let once: BTreeSet<_> = all.iter().map(|c| (c.child as u64, c.offset >> 9)).collect();
                    assert_eq!(once.len(), all.len(), "{context}");
                    let end = first + (old.asize(sectors << 9) >> 9);
                    assert_eq!(once, (first..end).map(|n| (n % now, n / now)).collect(), "{context}");
                    let mut starts: Vec<u64> = map
                        .data()
                        .filter(|c| map.columns[*c].len > 0)
                        .map(|c| map.columns[c].start >> 9)
                        .collect();
                    starts.sort_unstable();
                    assert_eq!(starts, (0..sectors).collect::<Vec<_>>(), "{context}");
                    let in_rows = map.groups.iter().all(|row| {
                        let there = map.columns[row.clone()].iter().filter(|c| c.len > 0);
                        let children: BTreeSet<_> = there.clone().map(|c| c.child).collect();
                        row.len() <= width && children.len() == there.count()
                    });
                    assert!(in_rows, "a child has one sector of a row: {context}");
                }
            }
        }
    }

    #[test]
    fn new_blocks_are_spread_as_if_the_vdev_had_always_been_so_wide() {
        let layout = grown(9, 5, 1, &[10, 20]);
        assert_eq!(layout.map(77 << 9, 9000, Txg(20)), Raidz::new(9, 5, 1).unwrap().map(77 << 9, 9000));
        assert_ne!(layout.map(77 << 9, 9000, Txg(19)), Raidz::new(9, 5, 1).unwrap().map(77 << 9, 9000));
    }
}

//! Mappings of removed vdevs: the new places of their data.
//!
//! From:   `pool`, which reads the mapping, and the allocator, which adds to it while a vdev is being removed.
//! To:     `places`.
//! Source: docs/format/05-space-maps.md §9; 12-auxiliary-vdevs.md §5.4, §5.7.

use format::Corrupt;
use format::blkptr::Dva;

/// A range of a removed vdev, and where it was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte on the removed vdev.
    pub from: u64,
    /// The place: `asize` bytes of `vdev` at `offset`.
    pub to: Dva,
}

impl Move {
    /// The byte behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.from + self.to.asize
    }
}

/// All that was copied from a removed vdev.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<Move>);

impl Moves {
    /// `moves` in ascending order.
    ///
    /// # Errors
    /// [`Corrupt`] where one overlaps the one before, is empty or has no end.
    pub fn new(moves: Vec<Move>) -> Result<Moves, Corrupt> {
        let mut end = 0;
        for each in &moves {
            let ends = each.from.checked_add(each.to.asize).filter(|_| each.to.asize > 0 && each.from >= end);
            end = ends.ok_or(Corrupt::new("mapping of a removed vdev at", each.from))?;
        }
        Ok(Moves(moves))
    }

    /// How many ranges there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// One more range, behind all others.
    ///
    /// # Panics
    /// If it is not behind them.
    pub fn push(&mut self, next: Move) {
        assert!(next.from >= self.end() && next.to.asize > 0, "ranges are copied in ascending order, once");
        self.0.push(next);
    }

    /// The byte behind the last range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.end())
    }

    /// The parts of a range that were copied, in ascending order.
    pub fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = Move> + '_ {
        self.numbered_parts(offset, len).map(|(_, part)| part)
    }

    /// As [`Moves::parts`], each with the number of the range that it is a part of.
    pub fn numbered_parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (usize, Move)> + '_ {
        let end = offset.saturating_add(len);
        let first = self.0.partition_point(|each| each.end() <= offset);
        let those = self.0.iter().enumerate().skip(first);
        those.take_while(move |(_, each)| each.from < end).map(move |(number, each)| {
            let (from, stop) = (each.from.max(offset), each.end().min(end));
            let to = Dva { offset: each.to.offset + (from - each.from), asize: stop - from, ..each.to };
            (number, Move { from, to })
        })
    }

    /// All of them, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Move> + '_ {
        self.0.iter()
    }

    /// Where the range was copied, piece by piece; `None` where a part of it was not.
    pub(crate) fn places(&self, offset: u64, len: u64) -> Option<Vec<Dva>> {
        let (mut at, end) = (offset, offset.checked_add(len)?);
        let mut places = Vec::new();
        for part in self.parts(offset, len) {
            if part.from != at {
                return None;
            }
            at = part.end();
            places.push(part.to);
        }
        (at == end).then_some(places)
    }
}

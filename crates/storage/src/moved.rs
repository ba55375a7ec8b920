//! Mappings of removed vdevs: the new places of their data.
//!
//! From:   `pool`, which reads the mapping that OpenZFS left of it.
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
    const fn end(&self) -> u64 {
        self.from + self.to.asize
    }
}

/// All that was copied from a removed vdev.
#[derive(Debug, Default)]
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

    /// Where the range was copied, piece by piece; `None` where a part of it was not.
    pub(crate) fn places(&self, offset: u64, len: u64) -> Option<Vec<Dva>> {
        let (mut at, end) = (offset, offset.checked_add(len)?);
        let mut places = Vec::new();
        let mut index = self.0.partition_point(|each| each.end() <= at);
        while at < end {
            let found = self.0.get(index).filter(|each| each.from <= at)?;
            let stop = found.end().min(end);
            places.push(Dva { offset: found.to.offset + (at - found.from), asize: stop - at, ..found.to });
            (at, index) = (stop, index + 1);
        }
        Some(places)
    }
}

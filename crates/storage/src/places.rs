//! Present places of blocks of removed vdevs, with reads and repairs there.
//!
//! From:   pointers, which say where a block was written.
//! To:     readers, scrubs and those who free blocks: places on the vdevs that are there.
//! Source: docs/format/05-space-maps.md §9; 12-auxiliary-vdevs.md §5.7.

use format::Corrupt;
use format::blkptr::Dva;

use crate::raidz::Outcome;
use crate::vdev::{Shape, Source, Vdevs, Way};
use crate::{Leaf, ReadError, Storage, WriteError};

/// Choices of sides that are tried for a block whose pieces lie in several places.
const ATTEMPTS_MAX: usize = 4096;
/// Pieces that a block may lie in: one for each of its sectors.
const PIECES_MAX: usize = (format::MAX_BLOCK >> 9) as usize;

/// The place of a block, and how its pointer leads there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// Places on removed vdevs that lead on. A vdev may have been removed after others had moved to it.
    pub passed: Vec<Dva>,
    /// Places on vdevs that are there.
    pub places: Vec<Dva>,
}

impl Vdevs {
    /// The places of the data at `dva`: the same place, except for data on removed vdevs.
    ///
    /// # Errors
    /// [`ReadError`] where it lies nowhere.
    pub fn places(&self, dva: &Dva) -> Result<Vec<Dva>, ReadError> {
        self.trail(dva).map(|trail| trail.places)
    }

    /// As [`Vdevs::places`], with the places on removed vdevs in between.
    ///
    /// # Errors
    /// [`ReadError`] where it lies nowhere.
    pub fn trail(&self, dva: &Dva) -> Result<Trail, ReadError> {
        let (mut passed, mut places) = (Vec::new(), vec![*dva]);
        // A vdev moves to those that are there when it is removed, so each step leads to one removed later.
        for _ in 0..=self.tops().len() {
            let is_moved = |place: &Dva| {
                let top = self.tops().get(place.vdev.0 as usize);
                top.is_some_and(|top| matches!(top.shape, Shape::Moved(_)))
            };
            if !places.iter().any(is_moved) {
                return Ok(Trail { passed, places });
            }
            let mut next = Vec::new();
            for place in places {
                match self.tops().get(place.vdev.0 as usize).map(|top| &top.shape) {
                    Some(Shape::Moved(moves)) => {
                        let found = moves.places(place.offset, place.asize);
                        passed.push(place);
                        next.extend(found.ok_or(ReadError::OutOfRange { dva: *dva })?);
                    }
                    _ => next.push(place),
                }
                if next.len() > PIECES_MAX {
                    return Err(ReadError::OutOfRange { dva: *dva });
                }
            }
            places = next;
        }
        Err(Corrupt::new("removed vdevs that lead to each other", dva.vdev.0.into()).into())
    }
}

impl Storage {
    /// Where the bytes of `dva` lie, if they were moved: `len` of them.
    pub(crate) fn moved(&self, dva: &Dva, len: u64) -> Result<Option<Vec<Dva>>, ReadError> {
        let top = self.vdevs().top_of(dva)?;
        if !matches!(top.shape, Shape::Moved(_)) {
            return Ok(None);
        }
        self.vdevs().places(&Dva { asize: len, gang: false, ..*dva }).map(Some)
    }

    /// Fills `buf` with what lies in `places`, one after the other, so that `is_good` says yes. Of a block in one place the side
    /// that `source` names is read; of one in several, any.
    pub(crate) fn read_moved(
        &self,
        places: &[Dva],
        source: Source,
        way: Way,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        if let [place] = places {
            let top = self.vdevs().top_of(place)?;
            let outcome = way(top, source, place.offset, buf, is_good)?;
            self.note_bad_checksums(top, &outcome.damaged);
            return Ok(Outcome { good: outcome.good, damaged: Vec::new() });
        }
        let sides = places.iter().map(|place| Ok(self.vdevs().top_of(place)?.replicas()));
        let sides = sides.collect::<Result<Vec<_>, ReadError>>()?;
        let mut chosen = vec![0; places.len()];
        let mut failed = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.read_pieces(places, &chosen, source, buf) {
                Ok(()) if is_good(buf) => return Ok(Outcome { good: true, damaged: Vec::new() }),
                Ok(()) => {}
                Err(error) => failed = Some(error),
            }
            // The next choice of sides.
            let Some(turn) = (0..chosen.len()).find(|piece| chosen[*piece] + 1 < sides[*piece]) else {
                break;
            };
            chosen[..turn].fill(0);
            chosen[turn] += 1;
        }
        failed.map_or(Ok(Outcome { good: false, damaged: Vec::new() }), Err)
    }

    fn read_pieces(
        &self,
        places: &[Dva],
        chosen: &[usize],
        source: Source,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        let mut rest = buf;
        for (place, replica) in places.iter().zip(chosen) {
            let (piece, behind) = rest.split_at_mut(place.asize as usize);
            let top = self.vdevs().top_of(place)?;
            top.read(Source { replica: *replica, ..source }, place.offset, piece, &mut |_| true)?;
            rest = behind;
        }
        Ok(())
    }

    /// The sides of which the bytes in `places` can be read. Those that lack anything come last: it is not known when it was copied.
    pub(crate) fn sides_of(&self, places: &[Dva]) -> Vec<usize> {
        let [place] = places else { return vec![0] };
        let Ok(top) = self.vdevs().top_of(place) else { return vec![0] };
        let mut sides: Vec<usize> = (0..top.replicas()).collect();
        sides.sort_by_key(|side| top.child(*side).is_none_or(|leaf| !leaf.health.missing().is_empty()));
        sides
    }

    /// Writes the right data of `places` over data on any side that differs. Returns the bytes written.
    pub(crate) fn write_over_moved(&self, places: &[Dva], raw: &[u8]) -> Result<u64, WriteError> {
        let (mut written, mut rest) = (0, raw);
        for place in places {
            let (piece, behind) = rest.split_at(place.asize as usize);
            let top = self.vdevs().top_of(place)?;
            let leaves: Vec<&Leaf> = top.written_leaves()?.map(|(_, leaf)| leaf).collect();
            let mut found = vec![0; piece.len()];
            for leaf in leaves {
                let same = leaf.read(crate::Purpose::SyncRead, place.offset, &mut found).is_ok();
                if !same || found != piece {
                    written += self.write_part(top, leaf, place.offset, piece)?;
                }
            }
            rest = behind;
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use format::VdevId;

    use super::*;
    use crate::moved::{Move, Moves};
    use crate::vdev::TopVdev;

    fn place(vdev: u32, offset: u64, asize: u64) -> Dva {
        Dva { vdev: VdevId(vdev), offset, asize, gang: false }
    }

    fn top(id: u32, shape: Shape) -> TopVdev {
        TopVdev {
            id,
            guid: 1,
            ashift: 9,
            asize: 1 << 20,
            metaslab_shift: 0,
            class: crate::allocator::Class::Normal,
            shape,
        }
    }

    fn moves(all: &[(u64, Dva)]) -> Shape {
        let all = all.iter().map(|(from, to)| Move { from: *from, to: *to });
        Shape::Moved(std::sync::Arc::new(Moves::new(all.collect()).unwrap()))
    }

    #[test]
    fn a_block_is_found_in_pieces_through_vdevs_removed_one_after_the_other() {
        let first = moves(&[(0, place(1, 0x4000, 0x1000)), (0x1000, place(2, 0x8000, 0x1000))]);
        let second = moves(&[(0x4000, place(2, 0x200, 0x800)), (0x4800, place(2, 0x2000, 0x800))]);
        let vdevs = Vdevs::new(vec![top(0, first), top(1, second), top(2, Shape::Missing)]);
        let found = vdevs.places(&place(0, 0x600, 0x1000)).unwrap();
        assert_eq!(found, [place(2, 0x800, 0x200), place(2, 0x2000, 0x800), place(2, 0x8000, 0x600)]);
        let passed = vdevs.trail(&place(0, 0x600, 0x1000)).unwrap().passed;
        assert_eq!(passed, [place(0, 0x600, 0x1000), place(1, 0x4600, 0xa00)]);
        assert_eq!(
            vdevs.trail(&place(2, 7, 9)).unwrap(),
            Trail { passed: vec![], places: vec![place(2, 7, 9)] }
        );
        assert!(vdevs.places(&place(0, 0x1f00, 0x200)).is_err(), "a part of it was never copied");
    }

    #[test]
    fn a_block_that_was_moved_to_a_mirror_is_read_from_each_of_its_sides() {
        let disk = |guid| Some(Leaf::new(guid, std::sync::Arc::new(crate::host::ScriptedDisk::new(8 << 20))));
        let moved = moves(&[(0, place(1, 0x4000, 0x1000))]);
        let vdevs = Vdevs::new(vec![top(0, moved), top(1, Shape::Mirror(vec![disk(7), disk(8)]))]);
        let storage = Storage::new(vdevs, crate::Options::of_tests());
        assert_eq!(storage.replicas_by_load(&place(0, 0x200, 0x200), format::Txg(7)), [0, 1]);
    }

    #[test]
    fn mappings_that_cannot_be_are_refused() {
        let to = place(0, 0, 0x1000);
        let again = moves(&[(0, place(0, 0, 0x1000))]);
        assert!(Vdevs::new(vec![top(0, again)]).places(&to).is_err());
        for (first, second) in
            [((0, 0x1000), (0x800, 0x1000)), ((0, 0), (0, 1)), ((u64::MAX, 0x1000), (0, 1))]
        {
            let all = [first, second].map(|(from, asize)| Move { from, to: Dva { asize, ..to } });
            assert!(Moves::new(all.to_vec()).is_err(), "{first:?} {second:?}");
        }
    }
}

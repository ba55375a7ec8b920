//! A block of a raidz vdev: read from its data columns, or from what is left of it; and what its children are to hold of it.
//!
//! From:   the children that are there, and a test that says whether bytes are those that were written.
//! To:     the bytes of the block, and the children whose columns are not what they should be; the bytes of each column.
//! Source: docs/format/02-blocks-checksums-compression.md §7; 11-redundancy.md §3.2, §4.1, §4.2.

use codec::parity::{generate, reconstruct};

use crate::error::ReadError;
use crate::layout::{Column, Map, Raidz};
use crate::meter::Purpose;
use crate::payload::Payload;
use crate::side::Side;

/// Guesses of which columns are damaged that are tried for one block. All guesses are tried for vdevs of up to 73 children.
const GUESSES_MAX: usize = 1 << 16;

/// The children of a raidz vdev that are read, and what for.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    /// By number.
    pub(crate) sides: &'a [Side],
    pub(crate) purpose: Purpose,
    /// Id of the vdev.
    pub(crate) vdev: u32,
}

impl<'a> Columns<'a> {
    /// Fills `buf` with a column. Gives the number, among the leaves of its side, of the one that gave it.
    fn read(&self, column: &Column, buf: &mut [u8]) -> Result<usize, ReadError> {
        let read = self.sides[column.child].read(self.purpose, column.offset, buf);
        read.unwrap_or(Err(ReadError::Missing { vdev: self.vdev }))
    }

    /// The number of the first leaf of a side among all leaves.
    fn number_of(&self, side: usize) -> usize {
        self.sides[..side].iter().map(|side| side.places().len()).sum()
    }
}

/// What came of reading.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The buffer holds the bytes that were written.
    pub(crate) good: bool,
    /// The leaves that gave other bytes than were written, by number, as far as that is known.
    pub(crate) damaged: Vec<usize>,
}

impl Outcome {
    /// All is as it should be.
    pub(crate) const GOOD: Outcome = Outcome { good: true, damaged: Vec::new() };
}

/// Fills `buf` with the block at `offset`. If what its data columns hold does not pass `is_good`, the block is computed from parity, first
/// without the columns that cannot be read, then without every combination of columns that parity allows to be damaged as well.
///
/// # Errors
/// More columns cannot be read than parity allows.
pub(crate) fn read(
    layout: Raidz,
    from: Columns<'_>,
    offset: u64,
    buf: &mut [u8],
    is_good: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Outcome, ReadError> {
    let map = layout.map(offset, buf.len() as u64);
    let all_there = map.columns[map.data()].iter().all(|column| from.sides[column.child].is_there());
    if all_there && read_data(&map, from, buf).is_ok() && is_good(buf) {
        return Ok(Outcome::GOOD);
    }
    let mut stripe = Stripe::new(map, from);
    stripe.load_data();
    let outcome = stripe.solve(buf, is_good)?;
    Ok(Outcome { damaged: stripe.leaves_of(&outcome.damaged), ..outcome })
}

/// As [`read`], but all columns are read, also those of parity, and compared with what they should be.
///
/// # Errors
/// As [`read`].
pub(crate) fn verify(
    layout: Raidz,
    from: Columns<'_>,
    offset: u64,
    buf: &mut [u8],
    is_good: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Outcome, ReadError> {
    let mut stripe = Stripe::new(layout.map(offset, buf.len() as u64), from);
    stripe.load_data();
    stripe.load_parity(stripe.map.parity);
    let mut outcome = stripe.solve(buf, is_good)?;
    if outcome.good && outcome.damaged.is_empty() {
        outcome.damaged = stripe.wrong_parity(buf);
    }
    if outcome.good {
        // A device that is there should give its columns.
        let refused = stripe.unreadable().into_iter().filter(|column| stripe.has_device(*column));
        outcome.damaged.extend(refused);
    }
    Ok(Outcome { damaged: stripe.leaves_of(&outcome.damaged), ..outcome })
}

/// Adds the leaves that hold something else than they should of the block in `buf`, of sides that have several.
pub(crate) fn compare_several(
    layout: Raidz,
    from: Columns<'_>,
    offset: u64,
    buf: &[u8],
    outcome: &mut Outcome,
) {
    if !from.sides.iter().any(Side::has_several) {
        return;
    }
    let map = layout.map(offset, buf.len() as u64);
    for (column, wanted) in map.columns.iter().zip(spread(&map, &buf.to_vec().into())) {
        let side = &from.sides[column.child];
        if !side.has_several() {
            continue;
        }
        let first = from.number_of(column.child);
        outcome.damaged.retain(|number| !(first..first + side.places().len()).contains(number));
        let mut found = vec![0; column.len as usize];
        for (place, leaf) in side.places().iter().enumerate() {
            let Some(leaf) = leaf else { continue };
            let is_right = leaf.read(from.purpose, column.offset, &mut found).is_ok();
            if !is_right || found != wanted.bytes() {
                outcome.damaged.push(first + place);
            }
        }
    }
}

/// Reads the data columns straight into `buf`, whose end may lie within the last sector.
fn read_data(map: &Map, from: Columns<'_>, buf: &mut [u8]) -> Result<(), ReadError> {
    let mut rest = buf;
    for column in &map.columns[map.data()] {
        let (part, tail) = rest.split_at_mut(rest.len().min(column.len as usize));
        rest = tail;
        from.read(column, part)?;
    }
    Ok(())
}

/// The bytes of each of the columns of `map`, parity first. Zeros follow the block in its last sector.
pub(crate) fn spread(map: &Map, block: &Payload) -> Vec<Payload> {
    let mut start = 0;
    let data: Vec<Payload> = map.columns[map.data()]
        .iter()
        .map(|column| {
            let range = start..start + column.len as usize;
            start = range.end;
            block.part(range)
        })
        .collect();
    let mut parity: Vec<Vec<u8>> =
        map.columns[..map.parity].iter().map(|column| vec![0; column.len as usize]).collect();
    let inputs: Vec<&[u8]> = data.iter().map(Payload::bytes).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    generate(&inputs, &mut outputs);
    parity.into_iter().map(Payload::from).chain(data).collect()
}

/// The columns of one block, as far as they were read.
struct Stripe<'a> {
    map: Map,
    from: Columns<'a>,
    /// By column: its bytes, if they could be read.
    bytes: Vec<Option<Vec<u8>>>,
    /// By column: reading was tried.
    tried: Vec<bool>,
    /// By column: which leaf of its side gave it.
    given_by: Vec<usize>,
    /// Why a column could not be read.
    failure: Option<ReadError>,
}

impl<'a> Stripe<'a> {
    fn new(map: Map, from: Columns<'a>) -> Stripe<'a> {
        let count = map.columns.len();
        let (bytes, tried, given_by) = (vec![None; count], vec![false; count], vec![0; count]);
        Stripe { map, from, bytes, tried, given_by, failure: None }
    }

    fn load(&mut self, column: usize) {
        if std::mem::replace(&mut self.tried[column], true) {
            return;
        }
        let place = self.map.columns[column];
        let mut bytes = vec![0; place.len as usize];
        match self.from.read(&place, &mut bytes) {
            Ok(leaf) => (self.bytes[column], self.given_by[column]) = (Some(bytes), leaf),
            Err(error @ ReadError::Device { .. }) => self.failure = Some(error),
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }

    fn load_data(&mut self) {
        self.map.data().for_each(|column| self.load(column));
    }

    /// Reads parity columns until `wanted` of them are there.
    fn load_parity(&mut self, wanted: usize) {
        for column in 0..self.map.parity {
            if self.bytes[..self.map.parity].iter().flatten().count() < wanted {
                self.load(column);
            }
        }
    }

    /// The columns that were to be read and could not be.
    fn unreadable(&self) -> Vec<usize> {
        (0..self.bytes.len()).filter(|column| self.tried[*column] && self.bytes[*column].is_none()).collect()
    }

    fn has_device(&self, column: usize) -> bool {
        self.from.sides[self.map.columns[column].child].is_there()
    }

    /// Fills `buf` with the block. Gives the columns that are damaged by their index.
    fn solve(
        &mut self,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        let lost = self.unreadable().into_iter().filter(|column| self.map.data().contains(column)).count();
        self.load_parity(lost);
        if !self.assemble(&[], buf) {
            return Err(self.failure.take().unwrap_or(ReadError::Missing { vdev: self.from.vdev }));
        }
        if is_good(buf) {
            return Ok(Outcome::GOOD);
        }
        self.load_parity(self.map.parity);
        let readable: Vec<usize> =
            (0..self.bytes.len()).filter(|column| self.bytes[*column].is_some()).collect();
        let spare = self.map.parity.saturating_sub(self.unreadable().len());
        let mut guesses = Guesses::new(readable.len(), spare);
        while let Some(guess) = guesses.next() {
            let guess: Vec<usize> = guess.iter().map(|position| readable[*position]).collect();
            // Without a lost data column nothing would be computed anew.
            let changes_data = lost > 0 || guess.iter().any(|column| self.map.data().contains(column));
            if changes_data && self.assemble(&guess, buf) && is_good(buf) {
                let mut damaged: Vec<usize> =
                    guess.into_iter().filter(|column| self.map.data().contains(column)).collect();
                damaged.extend(self.wrong_parity(buf));
                return Ok(Outcome { good: true, damaged });
            }
        }
        // One of them is to blame, and it cannot be told which.
        Ok(Outcome { good: false, damaged: readable })
    }

    /// Fills `buf` with the block as it follows from the columns that could be read, without those of `guess`. `false` if nothing follows.
    fn assemble(&self, guess: &[usize], buf: &mut [u8]) -> bool {
        let used = |column: usize| self.bytes[column].as_deref().filter(|_| !guess.contains(&column));
        let first = self.map.data().start;
        let lost: Vec<usize> =
            self.map.data().filter(|column| used(*column).is_none()).map(|column| column - first).collect();
        let columns = &self.map.columns[self.map.data()];
        let mut data: Vec<Vec<u8>> = Vec::new();
        for (column, place) in self.map.data().zip(columns) {
            data.push(used(column).map_or_else(|| vec![0; place.len as usize], <[u8]>::to_vec));
        }
        if !lost.is_empty() {
            let parity: Vec<Option<&[u8]>> = (0..first).map(used).collect();
            let mut views: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
            if reconstruct(&mut views, &parity, &lost).is_err() {
                return false;
            }
        }
        let mut rest = buf;
        for column in &data {
            let (part, tail) = rest.split_at_mut(rest.len().min(column.len()));
            part.copy_from_slice(&column[..part.len()]);
            rest = tail;
        }
        true
    }

    /// The parity columns that were read and do not go with the block in `buf`.
    fn wrong_parity(&self, buf: &[u8]) -> Vec<usize> {
        let mut data: Vec<Vec<u8>> = Vec::new();
        let mut rest = buf;
        for column in self.map.data() {
            let place = self.map.columns[column];
            let (part, tail) = rest.split_at(rest.len().min(place.len as usize));
            rest = tail;
            let mut bytes = part.to_vec();
            // What fills the last sector was read with it, if the column is not the one that is damaged.
            let filled = self.bytes[column].as_deref().filter(|read| read.starts_with(part));
            bytes.extend_from_slice(filled.map_or(&[], |read| &read[part.len()..]));
            bytes.resize(place.len as usize, 0);
            data.push(bytes);
        }
        let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let longest = views.iter().map(|column| column.len()).max().unwrap_or(0);
        let mut parity = vec![vec![0; longest]; self.map.parity];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        generate(&views, &mut outputs);
        let differs =
            |column: &usize| self.bytes[*column].as_ref().is_some_and(|read| *read != parity[*column]);
        (0..parity.len()).filter(differs).collect()
    }

    /// The leaves that gave these columns.
    fn leaves_of(&self, columns: &[usize]) -> Vec<usize> {
        let leaf =
            |column: &usize| self.from.number_of(self.map.columns[*column].child) + self.given_by[*column];
        columns.iter().map(leaf).collect()
    }
}

/// Every set of one, two, … up to `size_max` of `count` positions, smaller sets first, [`GUESSES_MAX`] of them at most.
struct Guesses {
    count: usize,
    size_max: usize,
    next: Vec<usize>,
    made: usize,
}

impl Guesses {
    fn new(count: usize, size_max: usize) -> Guesses {
        Guesses { count, size_max: size_max.min(count), next: Vec::new(), made: 0 }
    }

    fn next(&mut self) -> Option<&[usize]> {
        self.made += 1;
        if self.made > GUESSES_MAX {
            return None;
        }
        // The highest positions move slowest: the first one that can move does, and those before it start anew.
        let size = self.next.len();
        let bound = |i: usize, next: &[usize]| next.get(i + 1).copied().unwrap_or(self.count);
        match (0..size).find(|i| self.next[*i] + 1 < bound(*i, &self.next)) {
            Some(moved) => {
                self.next[moved] += 1;
                (0..moved).for_each(|i| self.next[i] = i);
            }
            None if size < self.size_max => self.next = (0..=size).collect(),
            None => return None,
        }
        Some(&self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_are_all_sets_in_the_order_of_openzfs() {
        let mut guesses = Guesses::new(4, 2);
        let mut all = Vec::new();
        while let Some(guess) = guesses.next() {
            all.push(guess.to_vec());
        }
        let wanted: [&[usize]; 10] =
            [&[0], &[1], &[2], &[3], &[0, 1], &[0, 2], &[1, 2], &[0, 3], &[1, 3], &[2, 3]];
        assert_eq!(all, wanted);
    }

    #[test]
    fn each_column_of_a_block_gets_its_bytes_and_the_last_sector_is_filled_with_zeros() {
        let layout = Raidz::new(9, 4, 1).unwrap();
        // Four sectors of data in three columns; the last one holds 100 bytes of the block.
        let block = Payload::from((0..3 * 512 + 100).map(|at| (at / 7) as u8 | 1).collect::<Vec<u8>>());
        let map = layout.map(0, 3 * 512 + 100);
        let columns = spread(&map, &block);
        let lens: Vec<usize> = columns.iter().map(|column| column.bytes().len()).collect();
        assert_eq!(lens, [1024, 1024, 512, 512]);
        assert_eq!(columns[1].bytes(), &block.bytes()[..1024]);
        assert_eq!(columns[2].bytes(), &block.bytes()[1024..1536]);
        assert_eq!(columns[3].bytes()[..100], block.bytes()[1536..]);
        assert!(columns[3].bytes()[100..].iter().all(|byte| *byte == 0));
        for at in 0..1024 {
            let byte = |column: usize| columns[column].bytes().get(at).copied().unwrap_or(0);
            assert_eq!(byte(0), byte(1) ^ byte(2) ^ byte(3), "at {at}");
        }
    }

    #[test]
    fn guesses_end_and_are_bounded() {
        for (count, size, wanted) in
            [(0, 3, 0), (3, 0, 0), (2, 5, 3), (9, 3, 9 + 36 + 84), (255, 3, GUESSES_MAX)]
        {
            let mut guesses = Guesses::new(count, size);
            let made = std::iter::from_fn(|| guesses.next().map(<[usize]>::len)).count();
            assert_eq!(made, wanted, "{count} {size}");
        }
    }
}

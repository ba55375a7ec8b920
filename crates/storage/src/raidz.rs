//! Blocks of raidz vdevs: reading from the data columns, reconstruction, and the columns to write.
//!
//! From:   the children that are there, and a test that says whether bytes are those that were written.
//! To:     the bytes of the block, and the children whose columns are not what they should be; the bytes of each column.
//! Source: docs/format/02-blocks-checksums-compression.md §7; 11-redundancy.md §3.2, §4.1, §4.2.

use std::ops::Range;

use codec::parity::{generate, reconstruct};

use crate::columns::Columns;
use crate::error::ReadError;
use crate::layout::{Column, Map, Spread};
use crate::payload::Payload;

/// Guesses of which columns are damaged that are tried for one block. All guesses are tried for vdevs of up to 73 children.
const GUESSES_MAX: usize = 1 << 16;

/// The result of reading.
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

/// Fills `buf` with the block at `offset`. If the contents of its data columns do not pass `is_good`, the block is computed
/// from parity. The first try leaves out the columns that cannot be read; the others also leave out every combination of
/// columns that parity allows to be damaged as well.
///
/// # Errors
/// More columns cannot be read than parity allows.
pub(crate) fn read(
    layout: &Spread,
    from: Columns<'_>,
    offset: u64,
    buf: &mut [u8],
    is_good: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Outcome, ReadError> {
    let map = layout.map(offset, buf.len() as u64, from.born);
    let has_device = |column: &Column| column.len == 0 || from.sides[column.child].is_there();
    let all_there = map.data().all(|column| has_device(&map.columns[column]));
    if all_there && read_data(&map, from, buf).is_ok() && is_good(buf) {
        return Ok(Outcome::GOOD);
    }
    let mut stripe = Stripe::new(map, from);
    stripe.load_data();
    let outcome = stripe.solve(buf, is_good)?;
    Ok(Outcome { damaged: stripe.leaves_of(&outcome.damaged), ..outcome })
}

/// As [`read`], but all columns are read, also those of parity, and compared with the right data.
///
/// # Errors
/// As [`read`].
pub(crate) fn verify(
    layout: &Spread,
    from: Columns<'_>,
    offset: u64,
    buf: &mut [u8],
    is_good: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Outcome, ReadError> {
    let mut stripe = Stripe::new(layout.map(offset, buf.len() as u64, from.born), from);
    stripe.load_all();
    let mut outcome = stripe.solve(buf, is_good)?;
    if outcome.good && outcome.damaged.is_empty() {
        outcome.damaged = stripe.wrong_parity(buf);
    }
    if outcome.good {
        // A device that is there should give its columns.
        let refused = stripe.unreadable().into_iter().filter(|column| stripe.has_device(*column));
        outcome.damaged.extend(refused);
        outcome.damaged.extend(&stripe.dirty);
    }
    Ok(Outcome { damaged: stripe.leaves_of(&outcome.damaged), ..outcome })
}

/// Reads the data columns into `buf`, whose end may lie within the last sector: directly, or, for a woven block, with
/// the bytes between them.
fn read_data(map: &Map, from: Columns<'_>, buf: &mut [u8]) -> Result<(), ReadError> {
    let psize = buf.len();
    if !map.is_woven() {
        let columns: Vec<Column> = map.data().map(|column| map.columns[column]).collect();
        let parts = parts_of(buf, &columns);
        return from.read_all(parts).into_iter().try_for_each(|read| read.map(drop));
    }
    for run in runs(map) {
        let mut data = run.columns.iter().filter(|column| map.is_data(**column)).peekable();
        if data.peek().is_none() {
            continue;
        }
        let mut bytes = vec![0; run.place.len as usize];
        from.read(&run.place, &mut bytes)?;
        for column in data.map(|column| &map.columns[*column]) {
            let range = column.range(psize);
            let at = (column.offset - run.place.offset) as usize;
            buf[range.clone()].copy_from_slice(&bytes[at..at + range.len()]);
        }
    }
    Ok(())
}

/// The parts of a block that lie in these data columns, each with its column. The columns follow one another in the block.
fn parts_of<'b>(mut rest: &'b mut [u8], columns: &[Column]) -> Vec<(Column, &'b mut [u8])> {
    let psize = rest.len();
    let mut parts = Vec::with_capacity(columns.len());
    for column in columns {
        let part;
        (part, rest) = rest.split_at_mut(column.range(psize).len());
        if !part.is_empty() {
            parts.push((*column, part));
        }
    }
    parts
}

/// Columns that lie side by side on one child.
struct Run {
    /// All of them together.
    place: Column,
    /// By number, in the order in which they lie there.
    columns: Vec<usize>,
}

/// The columns of a woven block, in groups that can be read at once.
fn runs(map: &Map) -> Vec<Run> {
    let mut order: Vec<usize> =
        (0..map.columns.len()).filter(|column| map.columns[*column].len > 0).collect();
    order.sort_unstable_by_key(|column| (map.columns[*column].child, map.columns[*column].offset));
    let mut runs: Vec<Run> = Vec::with_capacity(order.len());
    for number in order {
        let column = map.columns[number];
        match runs.last_mut() {
            Some(Run { place, columns })
                if place.child == column.child && place.offset.wrapping_add(place.len) == column.offset =>
            {
                place.len += column.len;
                columns.push(number);
            }
            _ => runs.push(Run { place: column, columns: vec![number] }),
        }
    }
    runs
}

/// The bytes of each of the columns of `map`. Zeros follow the block in its last sector, and where a column is not filled.
pub(crate) fn spread(map: &Map, block: &Payload) -> Vec<Payload> {
    let mut columns = Vec::with_capacity(map.columns.len());
    for group in &map.groups {
        let data: Vec<Payload> = map.columns[map.data_of(group)]
            .iter()
            .map(|column| block.part(column.range(usize::MAX)).padded(column.len as usize))
            .collect();
        let of_parity = &map.columns[map.parity_of(group)];
        let mut parity: Vec<Vec<u8>> = of_parity.iter().map(|column| vec![0; column.len as usize]).collect();
        let inputs: Vec<&[u8]> = data.iter().map(Payload::bytes).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        generate(&inputs, &mut outputs);
        columns.extend(parity.into_iter().map(Payload::from).chain(data));
    }
    columns
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
    /// Columns that had bytes other than zero behind the data of the block.
    dirty: Vec<usize>,
    /// Why a column could not be read.
    failure: Option<ReadError>,
}

impl<'a> Stripe<'a> {
    fn new(map: Map, from: Columns<'a>) -> Stripe<'a> {
        let count = map.columns.len();
        let (bytes, tried, given_by) = (vec![None; count], vec![false; count], vec![0; count]);
        Stripe { map, from, bytes, tried, given_by, dirty: Vec::new(), failure: None }
    }

    /// Reads those of these columns that were not tried yet.
    fn load(&mut self, columns: impl IntoIterator<Item = usize>) {
        let mut new: Vec<(usize, Vec<u8>)> = Vec::new();
        for column in columns {
            if std::mem::replace(&mut self.tried[column], true) {
                continue;
            }
            match self.map.columns[column].len {
                0 => self.bytes[column] = Some(Vec::new()),
                len => new.push((column, vec![0; len as usize])),
            }
        }
        let wanted =
            new.iter_mut().map(|(column, bytes)| (self.map.columns[*column], &mut bytes[..])).collect();
        let read = self.from.read_all(wanted);
        for ((column, bytes), read) in new.into_iter().zip(read) {
            match read {
                Ok(leaf) => self.keep(column, bytes, leaf),
                Err(error @ ReadError::Device { .. }) => self.failure = Some(error),
                Err(error) => {
                    self.failure.get_or_insert(error);
                }
            }
        }
    }

    /// Takes the data of a column that leaf `leaf` of its side returned.
    fn keep(&mut self, column: usize, mut bytes: Vec<u8>, leaf: usize) {
        // Only zeros belong behind the data of the block.
        let behind = &mut bytes[self.map.columns[column].filled as usize..];
        if behind.iter().any(|byte| *byte != 0) {
            behind.fill(0);
            self.dirty.push(column);
        }
        (self.bytes[column], self.given_by[column]) = (Some(bytes), leaf);
    }

    /// Reads the data columns, and the bytes between them on a child.
    fn load_data(&mut self) {
        let runs = if self.map.is_woven() { runs(&self.map) } else { Vec::new() };
        for run in runs {
            let mut all = vec![0; run.place.len as usize];
            // If this fails, each column is read by itself.
            let Ok(leaf) = self.from.read(&run.place, &mut all) else { continue };
            for column in run.columns {
                let place = self.map.columns[column];
                let at = (place.offset - run.place.offset) as usize;
                self.tried[column] = true;
                self.keep(column, all[at..at + place.len as usize].to_vec(), leaf);
            }
        }
        let data: Vec<usize> = self.map.data().collect();
        self.load(data);
    }

    fn load_all(&mut self) {
        if self.map.is_woven() {
            self.load_data();
        }
        self.load(0..self.bytes.len());
    }

    /// Reads parity columns of a group until `wanted` of them are there.
    fn load_parity(&mut self, group: &Range<usize>, wanted: usize) {
        loop {
            let parity = self.map.parity_of(group);
            let lacking = wanted.saturating_sub(self.bytes[parity.clone()].iter().flatten().count());
            let next: Vec<usize> = parity.filter(|column| !self.tried[*column]).take(lacking).collect();
            if next.is_empty() {
                return;
            }
            self.load(next);
        }
    }

    fn load_all_parity(&mut self) {
        let all: Vec<usize> = self.map.groups.iter().flat_map(|group| self.map.parity_of(group)).collect();
        self.load(all);
    }

    /// The data columns of a group that could not be read.
    fn lost_of(&self, group: &Range<usize>) -> usize {
        self.map.data_of(group).filter(|column| self.tried[*column] && self.bytes[*column].is_none()).count()
    }

    /// The number of columns in each group that may be damaged, besides those that could not be read.
    fn spare(&self) -> usize {
        let unreadable = self.unreadable();
        let of = |group: &Range<usize>| unreadable.iter().filter(|column| group.contains(column)).count();
        let most = self.map.groups.iter().map(of).max().unwrap_or(0);
        self.map.parity.saturating_sub(most)
    }

    /// The columns that were to be read and could not be.
    fn unreadable(&self) -> Vec<usize> {
        (0..self.bytes.len()).filter(|column| self.tried[*column] && self.bytes[*column].is_none()).collect()
    }

    fn has_device(&self, column: usize) -> bool {
        self.from.sides[self.map.columns[column].child].is_there()
    }

    /// Fills `buf` with the block. Returns the columns that are damaged by their index.
    fn solve(
        &mut self,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        for group in self.map.groups.clone() {
            self.load_parity(&group, self.lost_of(&group));
        }
        if !self.assemble(&[], buf) {
            return Err(self.failure.take().unwrap_or(ReadError::Missing { vdev: self.from.vdev }));
        }
        if is_good(buf) {
            return Ok(Outcome::GOOD);
        }
        self.load_all_parity();
        let is_readable =
            |column: &usize| self.bytes[*column].as_ref().is_some_and(|bytes| !bytes.is_empty());
        let readable: Vec<usize> = (0..self.bytes.len()).filter(is_readable).collect();
        let suspects = self.suspects(&readable);
        let is_lost = self.map.groups.iter().any(|group| self.lost_of(group) > 0);
        let mut guesses = Guesses::new(suspects.len(), self.spare());
        while let Some(guess) = guesses.next() {
            let is_guessed = |column: &&usize| guess.iter().any(|at| suspects[*at].contains(column));
            let guess: Vec<usize> = readable.iter().filter(is_guessed).copied().collect();
            // Without a lost data column no data would be computed.
            let changes_data = is_lost || guess.iter().any(|column| self.map.is_data(*column));
            if changes_data && self.assemble(&guess, buf) && is_good(buf) {
                let mut damaged = guess;
                damaged.retain(|column| self.map.is_data(*column) && self.differs(*column, buf));
                damaged.extend(self.wrong_parity(buf));
                return Ok(Outcome { good: true, damaged });
            }
        }
        // One of them is wrong, and it is unknown which.
        Ok(Outcome { good: false, damaged: readable })
    }

    /// The columns of each device: it is damaged in all of them, or in none.
    fn suspects(&self, readable: &[usize]) -> Vec<Vec<usize>> {
        let child = |column: &usize| self.map.columns[*column].child;
        let mut children: Vec<usize> = Vec::new();
        for child in readable.iter().map(child) {
            if !children.contains(&child) {
                children.push(child);
            }
        }
        let of = |of: usize| readable.iter().filter(|column| child(column) == of).copied().collect();
        children.into_iter().map(of).chain(self.map.lay_together.iter().cloned()).collect()
    }

    /// Fills `buf` with the block, computed from the columns that could be read, without those of `guess`. `false` if
    /// there are too few.
    fn assemble(&self, guess: &[usize], buf: &mut [u8]) -> bool {
        let used = |column: usize| self.bytes[column].as_deref().filter(|_| !guess.contains(&column));
        let psize = buf.len();
        for group in &self.map.groups {
            let columns = self.map.data_of(group);
            let first = columns.start;
            let lost: Vec<usize> = columns
                .clone()
                .filter(|column| used(*column).is_none())
                .map(|column| column - first)
                .collect();
            let mut data: Vec<Vec<u8>> = Vec::new();
            for column in columns.clone() {
                let len = self.map.columns[column].len as usize;
                data.push(used(column).map_or_else(|| vec![0; len], <[u8]>::to_vec));
            }
            if !lost.is_empty() {
                let parity: Vec<Option<&[u8]>> = self.map.parity_of(group).map(used).collect();
                let mut views: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
                if reconstruct(&mut views, &parity, &lost).is_err() {
                    return false;
                }
            }
            for (column, bytes) in columns.zip(&data) {
                let part = &mut buf[self.map.columns[column].range(psize)];
                part.copy_from_slice(&bytes[..part.len()]);
            }
        }
        true
    }

    /// Whether this data column was read as something else than the block in `buf`.
    fn differs(&self, column: usize, buf: &[u8]) -> bool {
        let part = &buf[self.map.columns[column].range(buf.len())];
        self.bytes[column].as_deref().is_some_and(|read| !read.starts_with(part))
    }

    /// The parity columns that were read and do not go with the block in `buf`.
    fn wrong_parity(&self, buf: &[u8]) -> Vec<usize> {
        let mut wrong = Vec::new();
        for group in &self.map.groups {
            let mut data: Vec<Vec<u8>> = Vec::new();
            for column in self.map.data_of(group) {
                let place = self.map.columns[column];
                let part = &buf[place.range(buf.len())];
                let mut bytes = part.to_vec();
                // The filling of the last sector was read with it, if the column is not the one that is damaged.
                let filled = self.bytes[column].as_deref().filter(|read| read.starts_with(part));
                let filled = filled.map_or(&[][..], |read| &read[part.len()..place.filled as usize]);
                bytes.extend_from_slice(filled);
                bytes.resize(place.len as usize, 0);
                data.push(bytes);
            }
            let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let longest = views.iter().map(|column| column.len()).max().unwrap_or(0);
            let mut parity = vec![vec![0; longest]; self.map.parity];
            let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            generate(&views, &mut outputs);
            for (column, right) in self.map.parity_of(group).zip(&parity) {
                if self.bytes[column].as_ref().is_some_and(|read| read != right) {
                    wrong.push(column);
                }
            }
        }
        wrong
    }

    /// The leaves that gave these columns.
    fn leaves_of(&self, columns: &[usize]) -> Vec<usize> {
        let leaf =
            |column: &usize| self.from.number_of(self.map.columns[*column].child) + self.given_by[*column];
        let mut leaves: Vec<usize> = columns.iter().map(leaf).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
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
    use std::collections::BTreeSet;
    use std::io::IoSlice;
    use std::sync::Arc;

    use format::Txg;

    use super::*;
    use crate::Purpose;
    use crate::distributed::Ways;
    use crate::host::{Disk, ScriptedDisk};
    use crate::layout::{Draid, DraidSpec};
    use crate::leaf::Leaf;
    use crate::side::Side;

    #[test]
    fn guesses_are_all_sets_of_columns_in_the_order_of_openzfs() {
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
        let layout = crate::layout::Raidz::new(9, 4, 1).unwrap();
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

    /// A block of draid on disks, and what is read of it with the given children away and damaged.
    fn read_draid(offset: u64, len: usize, away: &[usize], damaged: &[usize]) -> Option<Outcome> {
        let spec = DraidSpec { ashift: 12, children: 8, parity: 2, data: 3, spares: 1, groups: 7 };
        let layout = Spread::Draid(Draid::new(spec).unwrap());
        let block: Vec<u8> = (0..len).map(|at| (at * 7 + at / 4096) as u8).collect();
        let disks: Vec<ScriptedDisk> = (0..8).map(|_| ScriptedDisk::new(128 << 20)).collect();
        let map = layout.map(offset, len as u64, Txg(0));
        for (column, bytes) in map.columns.iter().zip(spread(&map, &block.clone().into())) {
            let at = column.offset + format::label::DATA_START;
            disks[column.child].write_at(&[IoSlice::new(bytes.bytes())], at).unwrap();
            if damaged.contains(&column.child) {
                disks[column.child].rot(at + 5, 1);
            }
        }
        let leaf = |child: usize| Leaf::new(child as u64, Arc::new(disks[child].clone()));
        let sides: Vec<Side> =
            (0..8).map(|child| Side::from((!away.contains(&child)).then(|| leaf(child)))).collect();
        let (purpose, ways) = (Purpose::SyncRead, Ways::without_spares());
        let from = Columns { sides: &sides, ways, purpose, vdev: 0, born: Txg(0) };
        let mut buf = vec![0; len];
        let outcome = read(&layout, from, offset, &mut buf, &mut |bytes| bytes == block).ok()?;
        if outcome.good && away.is_empty() {
            let all = verify(&layout, from, offset, &mut buf, &mut |bytes| bytes == block).unwrap();
            let of_block: BTreeSet<usize> = map.columns.iter().map(|column| column.child).collect();
            let wanted: Vec<usize> =
                damaged.iter().copied().filter(|child| of_block.contains(child)).collect();
            assert_eq!(all.damaged, wanted, "{offset} {len}");
        }
        Some(outcome)
    }

    #[test]
    fn blocks_of_draid_are_read_without_as_many_devices_as_parity_allows() {
        let group = 5 << 24;
        // Within a group, and across the border of two.
        for (offset, len) in [(0, 100), ((40 * 5) << 12, 131_072), (group - ((2 * 5) << 12), 70_000)] {
            assert!(read_draid(offset, len, &[], &[]).unwrap().good);
            for first in 0..8 {
                for second in 0..first {
                    for (away, damaged) in [
                        (vec![first, second], vec![]),
                        (vec![first], vec![second]),
                        (vec![], vec![second, first]),
                    ] {
                        let outcome = read_draid(offset, len, &away, &damaged);
                        assert!(outcome.is_some_and(|outcome| outcome.good), "{offset} {away:?} {damaged:?}");
                    }
                }
            }
        }
        let map = Spread::Draid(
            Draid::new(DraidSpec { ashift: 12, children: 8, parity: 2, data: 3, spares: 1, groups: 7 })
                .unwrap(),
        )
        .map(0, 131_072, Txg(0));
        let three: Vec<usize> = map.columns.iter().take(3).map(|column| column.child).collect();
        assert!(read_draid(0, 131_072, &three, &[]).is_none_or(|outcome| !outcome.good));
    }

    #[test]
    fn the_number_of_guesses_is_bounded() {
        for (count, size, wanted) in
            [(0, 3, 0), (3, 0, 0), (2, 5, 3), (9, 3, 9 + 36 + 84), (255, 3, GUESSES_MAX)]
        {
            let mut guesses = Guesses::new(count, size);
            let made = std::iter::from_fn(|| guesses.next().map(<[usize]>::len)).count();
            assert_eq!(made, wanted, "{count} {size}");
        }
    }
}

//! Sets of sectors in little memory.
//!
//! From:   `space`, which marks what is allocated and what is in use.
//! To:     the same; ranges come out in order, as long as they can be.
//!
//! A vdev is cut into chunks of 65,536 sectors. A chunk is a list of runs as long as the list is shorter than a bitmap.
//! So a pool whose blocks lie side by side takes hardly any memory, and no pool takes more than one bit per sector.

use std::collections::BTreeMap;
use std::ops::Range;

/// log2 of the sectors of a chunk.
const CHUNK_SHIFT: u32 = 16;
const CHUNK: u64 = 1 << CHUNK_SHIFT;
const WORDS: usize = CHUNK as usize / 64;
/// More runs than this take more memory than the bitmap.
const RUNS_MAX: usize = WORDS * 8 / size_of::<Run>();

/// Sectors of a chunk side by side, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u16,
    last: u16,
}

#[derive(Debug)]
enum Chunk {
    /// Ascending, with gaps between.
    Runs(Vec<Run>),
    Bits(Box<[u64; WORDS]>),
}

/// A set of sectors of one vdev, addressed in bytes.
#[derive(Debug)]
pub(super) struct Sectors {
    shift: u32,
    chunks: BTreeMap<u64, Chunk>,
}

impl Sectors {
    /// An empty set of sectors of `1 << shift` bytes.
    pub(super) fn new(shift: u32) -> Sectors {
        Sectors { shift, chunks: BTreeMap::new() }
    }

    /// Adds the sectors that hold `bytes`; `false` when one of them was there.
    pub(super) fn add(&mut self, bytes: Range<u64>) -> bool {
        let mut fresh = true;
        for (number, run) in self.parts(bytes) {
            fresh &= self.chunks.entry(number).or_insert(Chunk::Runs(Vec::new())).add(run);
        }
        fresh
    }

    /// Takes the sectors that hold `bytes` out; `false` when one of them was missing.
    pub(super) fn remove(&mut self, bytes: Range<u64>) -> bool {
        let mut there = true;
        for (number, run) in self.parts(bytes) {
            there &= self.chunks.get_mut(&number).is_some_and(|chunk| chunk.remove(run));
        }
        there
    }

    /// `bytes`, chunk by chunk.
    fn parts(&self, bytes: Range<u64>) -> impl Iterator<Item = (u64, Run)> + use<> {
        let end = bytes.end.div_ceil(1 << self.shift);
        let mut at = bytes.start >> self.shift;
        std::iter::from_fn(move || {
            let number = at >> CHUNK_SHIFT;
            let stop = end.min((number + 1) << CHUNK_SHIFT);
            let (first, last) = (at % CHUNK, stop.checked_sub(1)? % CHUNK);
            let more = at < stop;
            at = stop;
            more.then_some((number, Run { first: first as u16, last: last as u16 }))
        })
    }

    /// The set within `bytes` as byte ranges, ascending, none touching the next.
    pub(super) fn ranges(&self, bytes: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (from, to) = (bytes.start >> self.shift, bytes.end.div_ceil(1 << self.shift));
        let chunks = self.chunks.range(from >> CHUNK_SHIFT..to.div_ceil(CHUNK));
        let mut runs = chunks
            .flat_map(|(number, chunk)| {
                let base = number << CHUNK_SHIFT;
                chunk.runs().map(move |run| (base + u64::from(run.first), base + u64::from(run.last) + 1))
            })
            .filter_map(move |(first, end)| {
                let (first, end) = (first.max(from), end.min(to));
                (first < end).then_some((first, end))
            })
            .peekable();
        let shift = self.shift;
        std::iter::from_fn(move || {
            let (first, mut end) = runs.next()?;
            while let Some((_, further)) = runs.next_if(|next| next.0 == end) {
                end = further;
            }
            Some((first << shift, end << shift))
        })
    }
}

impl Chunk {
    fn add(&mut self, run: Run) -> bool {
        let fresh = match self {
            Chunk::Runs(runs) => add_run(runs, run),
            Chunk::Bits(bits) => masks(run).fold(true, |fresh, (word, mask)| {
                let free = bits[word] & mask == 0;
                bits[word] |= mask;
                fresh && free
            }),
        };
        self.shrink();
        fresh
    }

    fn remove(&mut self, run: Run) -> bool {
        let there = match self {
            Chunk::Runs(runs) => remove_run(runs, run),
            Chunk::Bits(bits) => masks(run).fold(true, |there, (word, mask)| {
                let all = bits[word] & mask == mask;
                bits[word] &= !mask;
                there && all
            }),
        };
        self.shrink();
        there
    }

    /// Becomes a bitmap when that is smaller.
    fn shrink(&mut self) {
        if let Chunk::Runs(runs) = self
            && runs.len() > RUNS_MAX
        {
            let mut bits = Box::new([0; WORDS]);
            runs.iter().flat_map(|run| masks(*run)).for_each(|(word, mask)| bits[word] |= mask);
            *self = Chunk::Bits(bits);
        }
    }

    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || match self {
            Chunk::Runs(runs) => {
                at += 1;
                runs.get(at - 1).copied()
            }
            Chunk::Bits(bits) => {
                let first = next_bit(bits, at, true)?;
                let end = next_bit(bits, first, false).unwrap_or(CHUNK as usize);
                at = end;
                Some(Run { first: first as u16, last: (end - 1) as u16 })
            }
        })
    }
}

/// The words of a bitmap that a run touches, and its bits in them.
fn masks(run: Run) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (usize::from(run.first), usize::from(run.last));
    (first / 64..=last / 64).map(move |word| {
        let low = if word == first / 64 { first % 64 } else { 0 };
        let high = if word == last / 64 { last % 64 } else { 63 };
        (word, (u64::MAX >> (63 - high)) & (u64::MAX << low))
    })
}

/// The first bit from `at` on that is `set` or not.
fn next_bit(bits: &[u64; WORDS], at: usize, set: bool) -> Option<usize> {
    let wanted = |word: usize| if set { bits[word] } else { !bits[word] };
    let mut word = at / 64;
    let mut rest = wanted(word.min(WORDS - 1)) & (u64::MAX << (at % 64));
    while word < WORDS {
        if rest != 0 {
            return Some(word * 64 + rest.trailing_zeros() as usize);
        }
        word += 1;
        rest = wanted(word.min(WORDS - 1));
    }
    None
}

fn add_run(runs: &mut Vec<Run>, new: Run) -> bool {
    // Those that overlap the new one or touch it become one with it.
    let from = runs.partition_point(|run| u32::from(run.last) + 1 < u32::from(new.first));
    let to = runs.partition_point(|run| u32::from(run.first) <= u32::from(new.last) + 1);
    let met = &runs[from..to];
    let fresh = met.iter().all(|run| run.last < new.first || run.first > new.last);
    let joined = Run {
        first: met.first().map_or(new.first, |run| run.first.min(new.first)),
        last: met.last().map_or(new.last, |run| run.last.max(new.last)),
    };
    runs.splice(from..to, [joined]);
    fresh
}

fn remove_run(runs: &mut Vec<Run>, gone: Run) -> bool {
    let from = runs.partition_point(|run| run.last < gone.first);
    let to = runs.partition_point(|run| run.first <= gone.last);
    let met = &runs[from..to];
    let there = met.len() == 1 && met[0].first <= gone.first && met[0].last >= gone.last;
    let before = met.first().filter(|run| run.first < gone.first);
    let before = before.map(|run| Run { last: gone.first - 1, ..*run });
    let after = met.last().filter(|run| run.last > gone.last);
    let after = after.map(|run| Run { first: gone.last + 1, ..*run });
    runs.splice(from..to, before.into_iter().chain(after));
    there
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two chunks and a bit.
    const SPACE: u64 = 2 * CHUNK + 1000;

    fn expected(bits: &[bool], window: Range<u64>) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut at = window.start;
        while at < window.end {
            let same = |i: &u64| bits[*i as usize] == bits[at as usize];
            let end = (at..window.end).take_while(same).last().map_or(at, |i| i + 1);
            if bits[at as usize] {
                found.push((at << 9, end << 9));
            }
            at = end;
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn sectors_behave_like_a_bitmap(
            ops in prop::collection::vec((0..4u8, 0..SPACE, 1u64..5000), 1..60),
            dotted in 0..SPACE,
            window in (0..SPACE, 0..SPACE),
        ) {
            let mut set = Sectors::new(9);
            let mut bits = vec![false; SPACE as usize];
            // Enough single sectors to turn a chunk into a bitmap, before some of the ops.
            let dots = (dotted..SPACE).step_by(3).take(3 * RUNS_MAX / 2).map(|at| (3, at, 1));
            for (op, start, len) in ops.iter().copied().take(10).chain(dots).chain(ops.iter().copied()) {
                let end = (start + len).min(SPACE);
                let range = &mut bits[start as usize..end as usize];
                // Any byte of a sector can represent it.
                let bytes = (start << 9) + 511 * u64::from(op == 2)..(end << 9) - 511 * u64::from(op == 2);
                if bytes.is_empty() {
                    continue;
                }
                if op == 0 {
                    prop_assert_eq!(set.remove(bytes), range.iter().all(|bit| *bit));
                } else {
                    prop_assert_eq!(set.add(bytes), range.iter().all(|bit| !*bit));
                }
                range.fill(op != 0);
            }
            let all = 0..SPACE;
            let clipped = window.0.min(window.1)..window.0.max(window.1);
            for window in [all, clipped] {
                let found: Vec<_> = set.ranges(window.start << 9..window.end << 9).collect();
                prop_assert_eq!(found, expected(&bits, window));
            }
        }
    }

    #[test]
    fn a_chunk_takes_no_more_than_its_bitmap() {
        let mut set = Sectors::new(12);
        for at in (0..CHUNK).step_by(2) {
            assert!(set.add(at << 12..(at + 1) << 12));
        }
        assert!(matches!(set.chunks[&0], Chunk::Bits(_)));
        assert_eq!(set.ranges(0..CHUNK << 12).count() as u64, CHUNK / 2);
        assert!(!set.add(0..CHUNK << 12) && set.remove(0..CHUNK << 12));
        assert_eq!(set.ranges(0..CHUNK << 12).count(), 0);
    }
}

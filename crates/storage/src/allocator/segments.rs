//! Sets of disjoint byte ranges.
//!
//! From:   `metaslab`, which keeps free space and a txg's changes in them.
//! To:     the same; ranges come out ordered and coalesced.

use std::collections::{BTreeMap, BTreeSet};

/// Number of size buckets: one per power of two.
const BUCKETS: usize = 64;

/// Disjoint, coalesced, non-empty ranges `[start, end)`. Every operation is O(log n).
#[derive(Clone, Debug)]
pub struct Segments {
    /// End by start.
    ends: BTreeMap<u64, u64>,
    /// (length, start) of every segment, for sets that answer questions about size.
    by_size: Option<BTreeSet<(u64, u64)>>,
    /// Segments by log2 of their length.
    buckets: [u32; BUCKETS],
    total: u64,
}

/// The range cannot be added (part of it is there) or removed (part of it is missing).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("segment [{start:#x}, {end:#x}) overlaps or is missing")]
pub struct Conflict {
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
}

impl Default for Segments {
    fn default() -> Self {
        Segments::new()
    }
}

impl Segments {
    /// An empty set.
    #[must_use]
    pub const fn new() -> Segments {
        Segments { ends: BTreeMap::new(), by_size: None, buckets: [0; BUCKETS], total: 0 }
    }

    /// An empty set that also answers [`Segments::largest`] and [`Segments::best_fit`].
    #[must_use]
    pub fn indexed() -> Segments {
        Segments { by_size: Some(BTreeSet::new()), ..Segments::new() }
    }

    /// Adds `[start, end)`, joining it with its neighbours.
    ///
    /// # Errors
    /// [`Conflict`] when part of it is already there; nothing changes then.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn add(&mut self, start: u64, end: u64) -> Result<(), Conflict> {
        assert!(start < end, "a segment is not empty");
        let before = self.ends.range(..=start).next_back().map(|(s, e)| (*s, *e));
        let after = self.ends.range(start..).next().map(|(s, e)| (*s, *e));
        if before.is_some_and(|(_, before_end)| before_end > start)
            || after.is_some_and(|(after_start, _)| after_start < end)
        {
            return Err(Conflict { start, end });
        }
        let mut joined = (start, end);
        if let Some((after_start, after_end)) = after.filter(|(after_start, _)| *after_start == end) {
            self.ends.remove(&after_start);
            self.forget(after_start, after_end);
            joined.1 = after_end;
        }
        if let Some((before_start, before_end)) = before.filter(|(_, before_end)| *before_end == start) {
            self.forget(before_start, before_end);
            joined.0 = before_start;
        }
        self.ends.insert(joined.0, joined.1);
        self.note(joined.0, joined.1);
        Ok(())
    }

    /// Removes `[start, end)`, which lies within one segment.
    ///
    /// # Errors
    /// [`Conflict`] when part of it is missing; nothing changes then.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn remove(&mut self, start: u64, end: u64) -> Result<(), Conflict> {
        assert!(start < end, "a segment is not empty");
        let Some((found_start, found_end)) =
            self.containing(start).filter(|(_, found_end)| *found_end >= end)
        else {
            return Err(Conflict { start, end });
        };
        self.forget(found_start, found_end);
        if found_start < start {
            self.ends.insert(found_start, start);
            self.note(found_start, start);
        } else {
            self.ends.remove(&found_start);
        }
        if end < found_end {
            self.ends.insert(end, found_end);
            self.note(end, found_end);
        }
        Ok(())
    }

    fn note(&mut self, start: u64, end: u64) {
        let len = end - start;
        self.total += len;
        self.buckets[len.ilog2() as usize] += 1;
        if let Some(by_size) = &mut self.by_size {
            by_size.insert((len, start));
        }
    }

    fn forget(&mut self, start: u64, end: u64) {
        let len = end - start;
        self.total -= len;
        self.buckets[len.ilog2() as usize] -= 1;
        if let Some(by_size) = &mut self.by_size {
            by_size.remove(&(len, start));
        }
    }

    /// The segment that holds byte `at`.
    #[must_use]
    pub fn containing(&self, at: u64) -> Option<(u64, u64)> {
        let (start, end) = self.ends.range(..=at).next_back()?;
        (at < *end).then_some((*start, *end))
    }

    /// Whether all of `[start, end)` is in the set.
    #[must_use]
    pub fn contains(&self, start: u64, end: u64) -> bool {
        self.containing(start).is_some_and(|(_, found_end)| end <= found_end)
    }

    /// Whether any byte of `[start, end)` is in the set.
    #[must_use]
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.ends.range(..end).next_back().is_some_and(|(_, found_end)| *found_end > start)
    }

    /// (start, end) in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(start, end)| (*start, *end))
    }

    /// The part of the set from `at` on, in ascending order; the first may be the rest of a segment.
    pub fn iter_from(&self, at: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let rest = self.containing(at).filter(|(start, _)| *start < at).map(|(_, end)| (at, end));
        rest.into_iter().chain(self.ends.range(at..).map(|(start, end)| (*start, *end)))
    }

    /// Bytes in the set.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Number of segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No segments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of the longest segment; 0 for an empty set.
    ///
    /// # Panics
    /// If the set is not [`Segments::indexed`].
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.index().last().map_or(0, |(len, _)| *len)
    }

    /// Start of the shortest segment of at least `len` bytes, the lowest of equals.
    ///
    /// # Panics
    /// If the set is not [`Segments::indexed`].
    #[must_use]
    pub fn best_fit(&self, len: u64) -> Option<u64> {
        self.index().range((len, 0)..).next().map(|(_, start)| *start)
    }

    fn index(&self) -> &BTreeSet<(u64, u64)> {
        self.by_size.as_ref().expect("questions about size are asked of indexed sets")
    }

    /// Adds to `histogram` the number of segments per power of two: bucket i counts those of
    /// 2^(i+shift) bytes up to twice that; the last bucket takes all longer ones.
    pub fn add_to_histogram(&self, shift: u32, histogram: &mut [u64; 32]) {
        for (log2, count) in self.buckets.iter().enumerate() {
            let bucket = log2.saturating_sub(shift as usize).min(histogram.len() - 1);
            histogram[bucket] += u64::from(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: u64 = 96;

    fn check_against(set: &Segments, bits: &[bool]) {
        let mut expected = Vec::new();
        let mut at = 0;
        while at < bits.len() {
            let run = bits[at..].iter().take_while(|bit| **bit == bits[at]).count();
            if bits[at] {
                expected.push((at as u64, (at + run) as u64));
            }
            at += run;
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), expected);
        assert_eq!((set.len(), set.is_empty()), (expected.len(), expected.is_empty()));
        assert_eq!(set.total(), bits.iter().filter(|bit| **bit).count() as u64);
        assert_eq!(set.largest(), expected.iter().map(|(s, e)| e - s).max().unwrap_or(0));
        for len in 1..20 {
            let fitting = expected.iter().filter(|(s, e)| e - s >= len).min_by_key(|(s, e)| (e - s, *s));
            assert_eq!(set.best_fit(len), fitting.map(|(s, _)| *s));
        }
        for at in 0..SPACE {
            let rest = expected.iter().filter(|(_, e)| *e > at).map(|(s, e)| (at.max(*s), *e));
            assert!(set.iter_from(at).eq(rest), "from {at}");
        }
        let mut histogram = [0; 32];
        set.add_to_histogram(1, &mut histogram);
        for (i, count) in histogram.iter().enumerate() {
            let low = if i == 0 { 1 } else { 2 << i };
            let in_bucket = expected.iter().filter(|(s, e)| (low..4 << i).contains(&(e - s)));
            assert_eq!(in_bucket.count() as u64, *count);
        }
    }

    proptest! {
        #[test]
        fn segments_behave_like_a_bitmap(ops in prop::collection::vec((any::<bool>(), 0..SPACE, 1u64..24), 1..120)) {
            let mut set = Segments::indexed();
            let mut bits = vec![false; SPACE as usize];
            for (adds, start, len) in ops {
                let end = (start + len).min(SPACE);
                let range = &mut bits[start as usize..end as usize];
                prop_assert_eq!(set.contains(start, end), range.iter().all(|bit| *bit));
                prop_assert_eq!(set.overlaps(start, end), range.iter().any(|bit| *bit));
                let (fits, result) = if adds {
                    (range.iter().all(|bit| !*bit), set.add(start, end))
                } else {
                    (range.iter().all(|bit| *bit), set.remove(start, end))
                };
                prop_assert_eq!(result, if fits { Ok(()) } else { Err(Conflict { start, end }) });
                if fits {
                    range.fill(adds);
                }
                check_against(&set, &bits);
            }
        }
    }

    #[test]
    fn the_ends_of_the_number_line_can_be_used() {
        let mut set = Segments::indexed();
        set.add(0, u64::MAX).unwrap();
        set.remove(1, u64::MAX - 1).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 1), (u64::MAX - 1, u64::MAX)]);
        set.add(1, u64::MAX - 1).unwrap();
        assert_eq!((set.len(), set.largest()), (1, u64::MAX));
    }
}

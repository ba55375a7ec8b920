//! Sets of block ids as ranges.

use std::collections::BTreeMap;

/// A set of `u64` kept as disjoint half-open ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// start → end, neither touching nor overlapping.
    map: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds `start..end`.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.map.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.map.range(start..=end).next() {
            end = end.max(next_end);
            self.map.remove(&next);
        }
        self.map.insert(start, end);
    }

    /// Whether `value` is in the set.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.map.range(..=value).next_back().is_some_and(|(_, &end)| value < end)
    }

    /// First value ≥ `from` that is not in the set.
    #[must_use]
    pub fn first_outside(&self, from: u64) -> u64 {
        match self.map.range(..=from).next_back() {
            Some((_, &end)) if from < end => end,
            _ => from,
        }
    }

    /// The ranges in order, as (start, end).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.map.iter().map(|(&start, &end)| (start, end))
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_and_overlapping_ranges_become_one() {
        let mut set = Ranges::default();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (5, 6), (24, 31), (7, 7)] {
            set.insert(start, end);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [(5, 6), (10, 40)]);
        assert!(set.contains(39) && !set.contains(40) && !set.contains(6));
        assert_eq!((set.first_outside(12), set.first_outside(6)), (40, 6));
    }

    #[test]
    fn a_range_to_the_end_swallows_all_later_ones() {
        let mut set = Ranges::default();
        set.insert(100, 200);
        set.insert(50, u64::MAX);
        set.insert(300, 400);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(50, u64::MAX)]);
    }
}

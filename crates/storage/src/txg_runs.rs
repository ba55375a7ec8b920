//! Sets of txgs, as runs of neighbours.
//!
//! From:   the list of txgs that a leaf missed (a DTL), or the moment since which it takes no writes.
//! To:     readers, which do not believe the leaf for blocks of these txgs; resilvers, which write those blocks to it.
//! Source: docs/format/11-redundancy.md §3.4, §5; 05-space-maps.md §6.

use std::sync::Arc;

use format::Txg;

/// A set of txgs: disjoint half-open runs, ascending, with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxgRuns(Vec<(u64, u64)>);

impl TxgRuns {
    /// All txgs from `from` on.
    #[must_use]
    pub fn since(from: Txg) -> TxgRuns {
        TxgRuns(vec![(from.0, u64::MAX)])
    }

    /// Adds the txgs from `from` up to, without, `to`.
    pub fn insert(&mut self, from: Txg, to: Txg) {
        let (mut from, mut to) = (from.0, to.0);
        if from >= to {
            return;
        }
        self.0.retain(|&(start, end)| {
            let apart = end < from || to < start;
            if !apart {
                (from, to) = (from.min(start), to.max(end));
            }
            apart
        });
        let at = self.0.partition_point(|&(start, _)| start < from);
        self.0.insert(at, (from, to));
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &TxgRuns) {
        other.0.iter().for_each(|&(from, to)| self.insert(Txg(from), Txg(to)));
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `txg` is in it.
    #[must_use]
    pub fn contains(&self, txg: Txg) -> bool {
        let at = self.0.partition_point(|&(start, _)| start <= txg.0);
        at > 0 && txg.0 < self.0[at - 1].1
    }

    /// The part of it below `end`.
    #[must_use]
    pub fn below(&self, end: Txg) -> TxgRuns {
        let clipped = self.0.iter().map(|&(from, to)| (from, to.min(end.0)));
        TxgRuns(clipped.filter(|(from, to)| from < to).collect())
    }

    /// The part of it from `start` on.
    #[must_use]
    pub fn not_below(&self, start: Txg) -> TxgRuns {
        let clipped = self.0.iter().map(|&(from, to)| (from.max(start.0), to));
        TxgRuns(clipped.filter(|(from, to)| from < to).collect())
    }

    /// The txgs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &TxgRuns) -> TxgRuns {
        let mut left = self.clone();
        for (from, to) in &other.0 {
            let behind = left.not_below(Txg(*to));
            left = left.below(Txg(*from));
            left.extend(&behind);
        }
        left
    }

    /// The txgs that are in both.
    #[must_use]
    pub fn common(&self, other: &TxgRuns) -> TxgRuns {
        let mut common = TxgRuns::default();
        for &(from, to) in &self.0 {
            let shared = other.below(Txg(to)).not_below(Txg(from));
            common.extend(&shared);
        }
        common
    }

    /// In how many of `sets` the txg is that is in the most of them.
    #[must_use]
    pub fn most_at_once(sets: &[Arc<TxgRuns>]) -> usize {
        // At the same txg, the end of a run comes before the beginning of another.
        let edges = sets.iter().flat_map(|set| &set.0).flat_map(|&(from, to)| [(from, 1), (to, -1)]);
        let mut edges: Vec<(u64, isize)> = edges.collect();
        edges.sort_unstable();
        let (mut now, mut most) = (0isize, 0);
        for (_, step) in edges {
            now += step;
            most = most.max(now);
        }
        most.unsigned_abs()
    }

    /// The first txg, and the one after the last.
    #[must_use]
    pub fn bounds(&self) -> Option<(Txg, Txg)> {
        Some((Txg(self.0.first()?.0), Txg(self.0.last()?.1)))
    }

    /// The runs: first txg, and how many.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|&(from, to)| (from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(pairs: &[(u64, u64)]) -> TxgRuns {
        let mut runs = TxgRuns::default();
        pairs.iter().for_each(|&(from, to)| runs.insert(Txg(from), Txg(to)));
        runs
    }

    #[test]
    fn runs_that_touch_become_one() {
        assert_eq!(runs(&[(5, 7), (1, 3), (3, 5)]).0, [(1, 7)]);
        assert_eq!(runs(&[(8, 9), (1, 3), (5, 6)]).0, [(1, 3), (5, 6), (8, 9)]);
        assert_eq!(runs(&[(1, 3), (5, 6), (8, 9), (2, 8)]).0, [(1, 9)]);
        assert_eq!(runs(&[(4, 4)]).0, []);
    }

    #[test]
    fn a_run_holds_its_first_txg_and_not_the_one_after_its_last() {
        let all = runs(&[(3, 5), (8, 9)]);
        let held: Vec<u64> = (0..12).filter(|txg| all.contains(Txg(*txg))).collect();
        assert_eq!(held, [3, 4, 8]);
        assert_eq!(all.bounds(), Some((Txg(3), Txg(9))));
        assert_eq!(all.below(Txg(4)), runs(&[(3, 4)]));
        assert_eq!(all.not_below(Txg(4)), runs(&[(4, 5), (8, 9)]));
    }

    #[test]
    fn the_intersection_of_two_sets_is_in_both() {
        let common = runs(&[(1, 4), (6, 9)]).common(&runs(&[(3, 7), (8, 20)]));
        assert_eq!(common, runs(&[(3, 4), (6, 7), (8, 9)]));
        assert!(runs(&[(1, 2)]).common(&runs(&[(2, 3)])).is_empty());
    }

    #[test]
    fn a_txg_that_several_sets_share_is_counted_for_each() {
        let sets = |sets: &[&[(u64, u64)]]| {
            let sets: Vec<_> = sets.iter().map(|pairs| Arc::new(runs(pairs))).collect();
            TxgRuns::most_at_once(&sets)
        };
        let runs = |runs: &[(u64, u64)]| TxgRuns(runs.to_vec());
        assert_eq!(runs(&[(1, 9)]).without(&runs(&[(0, 2), (4, 5), (8, 12)])), runs(&[(2, 4), (5, 8)]));
        assert_eq!(runs(&[(1, 3)]).without(&runs(&[])), runs(&[(1, 3)]));
        assert_eq!(sets(&[]), 0);
        assert_eq!(sets(&[&[], &[(3, 4)]]), 1);
        assert_eq!(sets(&[&[(1, 3), (7, 9)], &[(3, 7)]]), 1);
        assert_eq!(sets(&[&[(1, 3), (7, 9)], &[(3, 8)], &[(7, 8)]]), 3);
    }
}

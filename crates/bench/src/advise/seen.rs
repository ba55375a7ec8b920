//! Pieces that were looked at.
//!
//! From:   [`super::look`].
//! To:     [`super::estimate`] and [`super::interval`].

use super::encode::Outcome;
use super::strata::Strata;

/// One piece: its stratum, its outcome in each configuration.
pub(crate) struct Seen {
    pub(crate) stratum: usize,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Of the pieces of each stratum in one configuration, added up.
pub(crate) fn sums(strata: &Strata, seen: &[Seen], index: usize) -> Vec<Outcome> {
    let mut sums = vec![Outcome::default(); strata.all.len()];
    seen.iter().for_each(|piece| sums[piece.stratum].add(&piece.outcomes[index]));
    sums
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.padded += other.padded;
        self.lsize += other.lsize;
        self.psize += other.psize;
        self.used += other.used;
        self.raw += other.raw;
        self.records += other.records;
        self.bare += other.bare;
        self.tight += other.tight;
        self.compress += other.compress;
        self.decompress += other.decompress;
    }
}

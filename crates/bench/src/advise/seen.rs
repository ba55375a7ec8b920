//! Pieces that were looked at.
//!
//! From:   [`super::look`].
//! To:     [`super::estimate`] and [`super::interval`].

use super::encode::{Outcome, Setting};
use super::strata::{Strata, Stratum};

/// One piece: its stratum, its outcome in each configuration.
pub(crate) struct Seen {
    pub(crate) stratum: usize,
    pub(crate) outcomes: Vec<Outcome>,
}

/// The pieces' results for one setting, over some of the strata.
#[derive(Clone, Copy)]
pub(crate) struct Sampled<'a> {
    pub(crate) strata: &'a Strata,
    pub(crate) seen: &'a [Seen],
    /// Which of each piece's outcomes is the one of the setting.
    pub(crate) index: usize,
    pub(crate) setting: &'a Setting,
    /// Whether a stratum is one of those that are asked about.
    pub(crate) counts: &'a dyn Fn(&Stratum) -> bool,
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

//! The sides of a vdev with parity: each is one device, or several that hold the same.
//!
//! From:   the vdev tree: a child that is being replaced, or whose spare is in use, has several devices.
//! To:     `raidz`, which reads one column from each side; the write pipeline, which writes each column to all devices of its side.
//! Source: docs/format/11-redundancy.md §1.1, §3.1, §4.1.

use std::sync::Arc;

use format::Txg;

use crate::error::ReadError;
use crate::leaf::Leaf;
use crate::meter::Purpose;
use crate::txg_runs::TxgRuns;

/// The leaves that hold the same columns, in the order of the tree; absent ones are `None`.
#[derive(Clone, Debug)]
pub struct Side(Vec<Option<Leaf>>);

impl From<Option<Leaf>> for Side {
    /// A side of one device.
    fn from(leaf: Option<Leaf>) -> Side {
        Side(vec![leaf])
    }
}

impl Side {
    /// A side of these devices.
    #[must_use]
    pub fn new(leaves: Vec<Option<Leaf>>) -> Side {
        Side(leaves)
    }

    /// All places, also those of absent leaves.
    #[must_use]
    pub fn places(&self) -> &[Option<Leaf>] {
        &self.0
    }

    /// As [`Side::places`], to be changed.
    pub(crate) fn places_mut(&mut self) -> &mut [Option<Leaf>] {
        &mut self.0
    }

    /// The leaves whose devices are there.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.0.iter().flatten()
    }

    /// Whether any of its devices is there.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.leaves().next().is_some()
    }

    /// Whether more than one of its devices is there.
    pub(crate) fn has_several(&self) -> bool {
        self.leaves().nth(1).is_some()
    }

    /// Fills `buf` from the first leaf that can be read. Gives the place of that leaf.
    pub(crate) fn read(
        &self,
        purpose: Purpose,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<Result<usize, ReadError>> {
        let mut failure = None;
        for (place, leaf) in self.0.iter().enumerate() {
            let Some(leaf) = leaf else { continue };
            match leaf.read(purpose, offset, buf) {
                Ok(()) => return Some(Ok(place)),
                Err(error) => failure = Some(Err(error)),
            }
        }
        failure
    }

    /// The side without leaves that may lack a block born in `birth`.
    pub(crate) fn believed(&self, birth: Txg) -> Side {
        let knows = |leaf: &Leaf| !leaf.health.misses(birth);
        Side(self.0.iter().map(|leaf| leaf.clone().filter(knows)).collect())
    }

    /// The side with its newest leaf only.
    pub(crate) fn newest_only(&self) -> Side {
        let mut places: Vec<Option<Leaf>> = vec![None; self.0.len()];
        if let Some(last) = self.0.iter().rposition(Option::is_some) {
            places[last].clone_from(&self.0[last]);
        }
        Side(places)
    }

    /// The txgs of which no leaf has everything that takes part, without the leaf `but`.
    pub(crate) fn lacking(&self, but: u64) -> TxgRuns {
        let takes_part = |leaf: &&Leaf| leaf.guid != but && !leaf.health.has_failed();
        let lists: Vec<Arc<TxgRuns>> =
            self.leaves().filter(takes_part).map(|leaf| leaf.health.missing()).collect();
        match lists.split_first() {
            None => TxgRuns::since(Txg(0)),
            Some((first, others)) => others.iter().fold(TxgRuns::clone(first), |all, own| all.common(own)),
        }
    }
}

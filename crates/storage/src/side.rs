//! The sides of a vdev with parity: each is one device, or several that hold the same.
//!
//! From:   the vdev tree: a child that is being replaced, or whose spare is in use, has several devices.
//! To:     `raidz`, which reads one column from each side; the write pipeline, which writes each column to all devices of its side.
//! Source: docs/format/11-redundancy.md §1.1, §3.1, §4.1.

use crate::leaf::Leaf;

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

    /// Whether more than one of its devices is there, or may be: a distributed spare may lie on several.
    pub(crate) fn has_several(&self) -> bool {
        self.leaves().nth(1).is_some() || self.leaves().any(|leaf| leaf.distributed().is_some())
    }

    /// The side without the leaves at these places.
    pub(crate) fn without(&self, is_left_out: impl Fn(usize) -> bool) -> Side {
        let leaf = |(place, leaf): (usize, &Option<Leaf>)| leaf.clone().filter(|_| !is_left_out(place));
        Side(self.0.iter().enumerate().map(leaf).collect())
    }

    /// The first leaf whose device is there, and its place.
    pub(crate) fn first(&self) -> Option<(usize, &Leaf)> {
        self.0.iter().enumerate().find_map(|(place, leaf)| Some((place, leaf.as_ref()?)))
    }

    /// The side with its newest leaf only.
    pub(crate) fn newest_only(&self) -> Side {
        let mut places: Vec<Option<Leaf>> = vec![None; self.0.len()];
        if let Some(last) = self.0.iter().rposition(Option::is_some) {
            places[last].clone_from(&self.0[last]);
        }
        Side(places)
    }
}

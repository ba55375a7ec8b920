//! Reading blocks that several devices share, and devices that a vdev does not need.
//!
//! From:   the sides of a vdev with parity; what each leaf is known to lack.
//! To:     `vdev`, which reads and verifies blocks; everybody who closes a device.
//! Source: docs/format/11-redundancy.md §4.1, §5, §10.5.

use std::sync::Arc;

use format::Txg;

use crate::TopVdev;
use crate::columns::Columns;
use crate::distributed::Holder;
use crate::error::ReadError;
use crate::layout::Spread;
use crate::leaf::Leaf;
use crate::raidz::{self, Outcome, spread};
use crate::side::Side;
use crate::vdev::{Shape, Source};

impl TopVdev {
    /// As [`TopVdev::read`], of a vdev with parity.
    pub(crate) fn read_shared(
        &self,
        source: Source,
        offset: u64,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        let Shape::Parity { layout, sides } = &self.shape else {
            return Err(ReadError::Missing { vdev: self.id });
        };
        let (vdev, purpose, born) = (self.id, source.purpose, source.birth);
        let stale = self.stale(born, offset, buf.len() as u64);
        let mut read_from = |sides: &[Side]| {
            raidz::read(
                layout,
                Columns { sides, ways: self.ways(), purpose, vdev, born },
                offset,
                buf,
                is_good,
            )
        };
        let first = (!stale.is_empty()).then(|| without(sides, &stale));
        let mut read = read_from(first.as_deref().unwrap_or(sides));
        for next in later_attempts(sides, !stale.is_empty()) {
            if matches!(read, Ok(Outcome { good: true, .. })) {
                break;
            }
            let again = read_from(&next);
            // The damage that an attempt found is not replaced by an error of a later attempt.
            if again.is_ok() || read.is_err() {
                read = again;
            }
        }
        Ok(without_stale(read?, &stale))
    }

    /// As [`TopVdev::verify`], of a vdev with parity.
    pub(crate) fn verify_shared(
        &self,
        source: Source,
        offset: u64,
        buf: &mut [u8],
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Outcome, ReadError> {
        let Shape::Parity { layout, sides } = &self.shape else {
            return Err(ReadError::Missing { vdev: self.id });
        };
        let (purpose, born) = (source.purpose, source.birth);
        let from = Columns { sides, ways: self.ways(), purpose, vdev: self.id, born };
        let mut outcome = raidz::verify(layout, from, offset, buf, is_good)?;
        if !outcome.good && sides.iter().any(Side::has_several) {
            // On a side with several devices, another one may have the right data.
            outcome = self.read_shared(source, offset, buf, is_good)?;
        }
        if outcome.good {
            compare_several(layout, from, offset, buf, &mut outcome);
        }
        Ok(without_stale(outcome, &self.stale(born, offset, buf.len() as u64)))
    }

    /// The numbers of the leaves that may lack the block of `len` bytes at `offset` that was born in `birth`.
    fn stale(&self, birth: Txg, offset: u64, len: u64) -> Vec<usize> {
        let Shape::Parity { layout, sides } = &self.shape else { return Vec::new() };
        let is_distributed = |leaf: &Leaf| leaf.distributed().is_some();
        let needs_map = sides.iter().flat_map(Side::leaves).any(is_distributed);
        // The place of a block decides which devices hold the data of a distributed spare.
        let map = needs_map.then(|| layout.map(offset, len, birth));
        let columns = map.map(|map| map.columns).unwrap_or_default();
        let mut stale = Vec::new();
        let mut number = 0;
        for (side, child) in sides.iter().zip(0..) {
            for leaf in side.places() {
                let lacks = |leaf: &Leaf| {
                    let mut own = columns.iter().filter(|column| column.child == child);
                    leaf.health.misses(birth)
                        || is_distributed(leaf)
                            && own.any(|column| self.ways().misses(leaf, birth, column.offset))
                };
                if leaf.as_ref().is_some_and(lacks) {
                    stale.push(number);
                }
                number += 1;
            }
        }
        stale
    }

    /// A device of the vdev no longer takes writes. Data that a resilver wrote to distributed spares may have gone to
    /// this device, and may not be durable there: so the spares keep the list of the txgs that they miss now.
    pub fn device_goes(&self) {
        let spares = self.leaves().filter(|leaf| leaf.distributed().is_some());
        spares.for_each(|spare| spare.health.keep_all_missing());
    }

    /// Whether the other leaves hold all data without the leaf with this guid.
    #[must_use]
    pub fn can_lose(&self, guid: u64) -> bool {
        match &self.shape {
            Shape::Mirror(children) => {
                let takes_part = |leaf: &&Leaf| leaf.guid != guid && !leaf.health.has_failed();
                let lists = children.iter().flatten().filter(takes_part).map(|leaf| leaf.health.missing());
                let common = lists.reduce(|all, own| Arc::new(all.common(&own)));
                common.is_some_and(|lacking| lacking.is_empty())
            }
            Shape::Parity { layout, .. } => {
                let end = match layout {
                    Spread::Draid(_) => self.asize_of_leaf(),
                    Spread::Raidz(_) | Spread::Grown(_) => 0,
                };
                self.ways().most_lacking(guid, end) <= layout.parity()
            }
            Shape::Disk(_) | Shape::Hole | Shape::Moved(_) | Shape::Missing | Shape::Unsupported(_) => false,
        }
    }
}

/// Adds the leaves that hold something else than they should of the block in `buf`, of sides that have several.
fn compare_several(layout: &Spread, from: Columns<'_>, offset: u64, buf: &[u8], outcome: &mut Outcome) {
    if !from.sides.iter().any(Side::has_several) {
        return;
    }
    let map = layout.map(offset, buf.len() as u64, from.born);
    for (column, wanted) in map.columns.iter().zip(spread(&map, &buf.to_vec().into())) {
        let side = &from.sides[column.child];
        if column.len == 0 || !side.has_several() {
            continue;
        }
        let first = from.number_of(column.child);
        outcome.damaged.retain(|number| !(first..first + side.places().len()).contains(number));
        let mut found = vec![0; column.len as usize];
        for (place, leaf) in side.places().iter().enumerate() {
            let Some(leaf) = leaf else { continue };
            let is_spare = leaf.distributed().is_some();
            let is_wrong = |holder: &Holder<'_>| {
                // Devices of a spare that are known to miss the block are left out.
                let is_compared = !is_spare || !holder.misses(from.born);
                let read = is_compared.then(|| holder.device.read(from.purpose, column.offset, &mut found));
                read.is_some_and(|read| read.is_err() || found != wanted.bytes())
            };
            let holders = from.ways.holders(leaf, column.offset);
            if holders.iter().any(is_wrong) {
                outcome.damaged.push(first + place);
            }
        }
    }
}

/// The sides without the leaves with these numbers.
fn without(sides: &[Side], stale: &[usize]) -> Vec<Side> {
    let mut first = 0;
    let rest = |side: &Side| {
        let left = side.without(|place| stale.contains(&(first + place)));
        first += side.places().len();
        left
    };
    sides.iter().map(rest).collect()
}

/// Devices that are known to miss the block are not damaged.
fn without_stale(mut outcome: Outcome, stale: &[usize]) -> Outcome {
    outcome.damaged.retain(|number| !stale.contains(number));
    outcome
}

/// The leaves from which a block is read after the first attempt: all of them, if that left some out, and the newest one of each side.
fn later_attempts(sides: &[Side], left_out: bool) -> impl Iterator<Item = Vec<Side>> {
    let newest = sides.iter().any(Side::has_several);
    let all = left_out.then(|| sides.to_vec());
    all.into_iter().chain(newest.then(|| sides.iter().map(Side::newest_only).collect()))
}

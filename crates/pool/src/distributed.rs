//! Distributed spares in use, and their records on disk.
//!
//! From:   the configuration, which has them as leaves of `spare` vdevs; the lists of missed txgs of all leaves of their vdev.
//! To:     the health of these leaves; the lists on disk.
//! Source: docs/format/11-redundancy.md §3.4, §9, §10.5.
//!
//! A part of a spare lies on each device of the vdev. When a device misses a txg, the spare misses its part on this
//! device. In memory, the spare's own list has only the txgs that the spare misses as a whole: `storage` looks at the
//! list of the device as well. On disk, the spare's list has the txgs of the devices, too, because OpenZFS resilvers to
//! a spare only the txgs of the spare's own list.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::config::{VdevConfig, VdevKind};
use storage::TxgRuns;

use crate::marks::{REBUILT, RESILVERED};
use crate::members::{Members, is_closed};

/// The distributed spares in use below a top-level vdev, each with the child in whose place it stands.
fn spares_in_use(top: &VdevConfig) -> impl Iterator<Item = (&VdevConfig, &VdevConfig)> {
    let of = |child| VdevConfig::leaves(child).map(move |leaf| (child, leaf));
    top.children.iter().flat_map(of).filter(|(_, leaf)| leaf.kind == VdevKind::DistributedSpare)
}

/// The txgs that the devices beside the child `own` of a top-level vdev miss.
fn missed_beside(top: &VdevConfig, own: &VdevConfig, lists: &BTreeMap<u64, Arc<TxgRuns>>) -> TxgRuns {
    let mut missed = TxgRuns::default();
    let others = top.children.iter().filter(|child| child.guid != own.guid).flat_map(VdevConfig::leaves);
    for leaf in others.filter(|leaf| leaf.kind != VdevKind::DistributedSpare) {
        lists.get(&leaf.guid.0).into_iter().for_each(|list| missed.extend(list));
    }
    missed
}

/// The txgs that the lists on disk must have of each distributed spare in use, by its guid, beyond the spare's own
/// list.
pub(crate) fn missed_by_devices(tree: &VdevConfig, members: &Members) -> BTreeMap<u64, TxgRuns> {
    let in_use: Vec<_> = tree
        .children
        .iter()
        .flat_map(|top| spares_in_use(top).map(move |(child, spare)| (top, child, spare.guid.0)))
        .collect();
    if in_use.is_empty() {
        return BTreeMap::new();
    }
    let lists = members.missing();
    in_use.into_iter().map(|(top, child, guid)| (guid, missed_beside(top, child, &lists))).collect()
}

/// The health of the distributed spares of a vdev, from the lists on disk, which the health of all leaves has so far.
///
/// The list of a spare that had everything when a device began to miss something leaves out the ranges that this device
/// misses.
pub(crate) fn lists_from_disk(top: &VdevConfig, members: &Members) {
    let lists = members.missing();
    for (child, spare) in spares_in_use(top) {
        let beside = missed_beside(top, child, &lists);
        let health = members.of(spare.guid.0);
        let is_marked = [REBUILT, RESILVERED].iter().any(|mark| spare.extra.contains(mark));
        let had_everything = !is_marked && !is_closed(spare);
        if had_everything {
            health.set_missing(health.missing().without(&beside));
        }
        if !beside.is_empty() {
            // A resilver under way may have written to the device before it went.
            health.keep_all_missing();
        }
    }
}

/// Number of distributed spares of the draid vdevs that are not in use.
pub(crate) fn idle(tree: &VdevConfig) -> usize {
    let of_top = |top: &VdevConfig| match top.kind {
        VdevKind::Draid { nspares, .. } => {
            usize::try_from(nspares).unwrap_or(0).saturating_sub(spares_in_use(top).count())
        }
        _ => 0,
    };
    tree.children.iter().map(of_top).sum()
}

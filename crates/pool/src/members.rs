//! The leaves of a pool: which of them are present, and the txgs that each of them missed.
//!
//! From:   the lists of missed txgs on disk (DTLs), the devices that were found, and their newest states.
//! To:     `storage`, by the [`Health`] that each leaf shares with it; the sync, which writes the lists; `zpool status`.
//! Source: docs/format/11-redundancy.md §1.1, §3.4, §5; 05-space-maps.md §6.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use format::config::VdevConfig;
use format::space_map::{Kind, Layout};
use format::{Guid, ObjectId, Txg};
use storage::rank::{MutexHeld, Rank, RankedMutex};
use storage::{Health, Leaf, TxgRuns, Vdevs};

use crate::mos::Mos;
use crate::{Result, space_maps};

/// How the entries of a list of txgs are stored.
pub(crate) const LAYOUT: Layout = Layout { start: 0, shift: 0 };

/// The health of each leaf of the configuration, present or absent, by its guid.
#[derive(Debug)]
pub(crate) struct Members(RankedMutex<State>);

impl Default for Members {
    fn default() -> Members {
        Members(RankedMutex::new(Rank::Members, State::default()))
    }
}

#[derive(Debug, Default)]
struct State {
    leaves: BTreeMap<u64, Arc<Health>>,
    /// Leaves that an administrator took offline since the import.
    offline: BTreeSet<u64>,
    /// Leaves that an administrator called faulty since the import.
    faulted: BTreeSet<u64>,
}

/// How a leaf takes part, for `zpool status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Guid of the leaf.
    pub guid: Guid,
    /// Its device is open.
    pub is_open: bool,
    /// An administrator took it offline.
    pub is_offline: bool,
    /// An administrator called it faulty.
    pub is_faulted: bool,
    /// The error of its device, because of which it is not written any more.
    pub failed: Option<String>,
    /// It misses some txgs.
    pub is_behind: bool,
}

impl Members {
    /// The leaves of a new pool.
    pub(crate) fn new(vdevs: &Vdevs) -> Members {
        let leaves = vdevs.leaves().map(|leaf| (leaf.guid, leaf.health.clone())).collect();
        Members(RankedMutex::new(Rank::Members, State { leaves, ..State::default() }))
    }

    fn lock(&self) -> MutexHeld<'_, State> {
        self.0.lock()
    }

    /// The health of this leaf; a leaf that was not known begins with nothing missed.
    pub(crate) fn of(&self, guid: u64) -> Arc<Health> {
        self.lock().leaves.entry(guid).or_default().clone()
    }

    /// A new leaf, with the health that it has.
    pub(crate) fn join(&self, leaf: &Leaf) {
        self.lock().leaves.insert(leaf.guid, leaf.health.clone());
    }

    /// Forgets a leaf that is part of the pool no more.
    pub(crate) fn remove(&self, guid: u64) {
        self.lock().leaves.remove(&guid);
    }

    /// Changes the guid of a leaf.
    pub(crate) fn rename(&self, before: u64, now: u64) {
        let mut state = self.lock();
        if let Some(health) = state.leaves.remove(&before) {
            state.leaves.insert(now, health);
        }
        if state.offline.remove(&before) {
            state.offline.insert(now);
        }
    }

    /// Notes whether an administrator took the leaf offline.
    pub(crate) fn set_offline(&self, guid: u64, offline: bool) {
        let mut state = self.lock();
        match offline {
            true => state.offline.insert(guid),
            false => state.offline.remove(&guid),
        };
    }

    /// Notes whether an administrator called the leaf faulty.
    pub(crate) fn set_faulted(&self, guid: u64, faulted: bool) {
        let mut state = self.lock();
        match faulted {
            true => state.faulted.insert(guid),
            false => state.faulted.remove(&guid),
        };
    }

    pub(crate) fn is_faulted(&self, guid: u64) -> bool {
        self.lock().faulted.contains(&guid)
    }

    pub(crate) fn is_offline(&self, guid: u64) -> bool {
        self.lock().offline.contains(&guid)
    }

    /// The leaves that failed.
    pub(crate) fn failed(&self) -> BTreeSet<u64> {
        self.lock().leaves.iter().filter(|(_, health)| health.has_failed()).map(|(guid, _)| *guid).collect()
    }

    /// The txgs that each leaf missed, if any, by its guid.
    pub(crate) fn missing(&self) -> BTreeMap<u64, Arc<TxgRuns>> {
        self.lock().leaves.iter().map(|(guid, health)| (*guid, health.missing())).collect()
    }
}

/// Whether the leaf is not to be opened (`zpool offline`), for whatever reason.
pub(crate) fn is_closed(vdev: &VdevConfig) -> bool {
    vdev.extra.get_u64("offline") == Some(1) || is_called_faulty(vdev)
}

/// Whether an administrator marked the leaf as faulted beyond the next import.
pub(crate) fn is_called_faulty(vdev: &VdevConfig) -> bool {
    vdev.extra.get_str("aux_state") == Some("external")
}

/// The txgs in the list of a leaf.
pub(crate) fn read_list(mos: &Mos, list: Option<ObjectId>) -> Result<TxgRuns> {
    let mut missing = TxgRuns::default();
    let Some(list) = list.filter(|list| list.0 != 0) else { return Ok(missing) };
    space_maps::for_each_entry(&mos.objset, list, LAYOUT, &mut |entry| {
        let end = Txg(entry.offset.saturating_add(entry.run));
        match entry.kind {
            Kind::Alloc => missing.insert(Txg(entry.offset), end),
            Kind::Free => {
                let mut left = missing.below(Txg(entry.offset));
                left.extend(&missing.not_below(end));
                missing = left;
            }
        }
        Ok(())
    })?;
    Ok(missing)
}

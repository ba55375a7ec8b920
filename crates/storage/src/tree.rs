//! The vdevs of a pool while they change: leaves fail, come back, are attached and detached.
//!
//! From:   `pool`, which changes the tree in its sync thread; writes that devices refuse.
//! To:     everybody who reads or writes. A reader that began with the tree before keeps it: trees are kept as long as the pool
//!         is open. There are as many as commands that changed devices.
//! Source: docs/format/11-redundancy.md §3.4, §5.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use format::Txg;

use crate::rank::{Rank, RankedMutex};
use crate::suspend::MaybeRefused;
use crate::{Leaf, Vdevs, WriteError};

/// One state of the tree, and the one that replaced it.
#[derive(Debug)]
struct Generation {
    vdevs: Vdevs,
    next: OnceLock<Box<Generation>>,
}

/// All states of the tree since the pool was opened.
#[derive(Debug)]
pub(crate) struct Tree {
    first: Generation,
    /// Held during the decision whether the pool can work without a leaf.
    verdict: RankedMutex<()>,
    /// The first txg that is not on the disks.
    unsynced: AtomicU64,
}

impl Tree {
    pub(crate) fn new(vdevs: Vdevs) -> Tree {
        let first = Generation { vdevs, next: OnceLock::new() };
        Tree { first, verdict: RankedMutex::new(Rank::Verdict, ()), unsynced: AtomicU64::new(0) }
    }

    fn last(&self) -> &Generation {
        let mut last = &self.first;
        while let Some(next) = last.next.get() {
            last = next;
        }
        last
    }

    /// The vdevs as they are now.
    pub(crate) fn vdevs(&self) -> &Vdevs {
        &self.last().vdevs
    }

    /// Replaces the vdevs. Only one thread may do so.
    pub(crate) fn replace(&self, vdevs: Vdevs) {
        let next = Box::new(Generation { vdevs, next: OnceLock::new() });
        assert!(self.last().next.set(next).is_ok(), "one thread replaces the vdevs");
    }

    pub(crate) fn set_unsynced(&self, txg: Txg) {
        self.unsynced.store(txg.0, Ordering::Release);
    }

    /// Runs `operation` on a leaf in use. If its device refuses, and the other leaves of the top-level vdev hold all of its
    /// data, the leaf counts as failed from now on. The operation then counts as done.
    pub(crate) fn write(
        &self,
        vdev: u32,
        leaf: &Leaf,
        operation: impl FnOnce() -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if leaf.health.has_failed() {
            return Ok(());
        }
        match operation() {
            Err(error) if self.can_do_without(vdev, leaf, &error) => Ok(()),
            done => done,
        }
    }

    fn can_do_without(&self, vdev: u32, leaf: &Leaf, error: &WriteError) -> bool {
        let Some((_, why)) = error.refusal() else { return false };
        let _one_at_a_time = self.verdict.lock();
        if leaf.health.has_failed() {
            return true;
        }
        let top = &self.vdevs().tops()[vdev as usize];
        if !top.leaves().any(|known| known.guid == leaf.guid) {
            // It was closed meanwhile.
            return true;
        }
        let can = top.can_lose(leaf.guid);
        if can {
            leaf.health.fail(why, Txg(self.unsynced.load(Ordering::Acquire)));
            top.device_goes();
        }
        can
    }
}

//! The states of the pool on the disks that other processes read.
//!
//! From:   [`crate::Lease`]s, given away and ended; the sync thread, which makes new states.
//! To:     the sync thread: nothing that the oldest of these states reaches is handed out again.

use std::collections::BTreeMap;
use std::sync::Condvar;

use format::Txg;
use format::uberblock::Uberblock;
use storage::rank::{MutexHeld, Rank, RankedMutex};

/// The last uberblock on disk, and those that are still being read.
pub(crate) struct Leases {
    state: RankedMutex<State>,
    /// Leases are given away again.
    resumed: Condvar,
}

struct State {
    synced: Uberblock,
    /// How many leases there are, by the txg of their uberblock.
    held: BTreeMap<Txg, usize>,
    /// None is given away for a moment.
    is_paused: bool,
}

impl Leases {
    pub(crate) fn new(synced: Uberblock) -> Leases {
        let state = State { synced, held: BTreeMap::new(), is_paused: false };
        Leases { state: RankedMutex::new(Rank::Leases, state), resumed: Condvar::new() }
    }

    fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// The txg of the last uberblock on disk.
    pub(crate) fn synced_txg(&self) -> Txg {
        self.lock().synced.txg
    }

    /// The oldest txg that is being read.
    pub(crate) fn oldest(&self) -> Option<Txg> {
        self.lock().held.keys().next().copied()
    }

    /// For the sync thread: `uberblock` is on disk. Returns the oldest txg that is being read: leases given away from
    /// now on are of the new one.
    pub(crate) fn synced(&self, uberblock: &Uberblock) -> Option<Txg> {
        let mut state = self.lock();
        state.synced = uberblock.clone();
        state.held.keys().next().copied()
    }

    /// Counts one more reader of the last uberblock on disk.
    pub(crate) fn take(&self) -> Uberblock {
        let mut state = self.lock().wait(|state| {
            let waited = self.resumed.wait_while(state, |state| state.is_paused);
            waited.expect("no code panics while holding the leases")
        });
        let uberblock = state.synced.clone();
        *state.held.entry(uberblock.txg).or_default() += 1;
        uberblock
    }

    /// For the sync thread: if there is no reader, no new one can begin until [`Leases::resume`]. Returns whether that
    /// is so.
    pub(crate) fn pause(&self) -> bool {
        let mut state = self.lock();
        state.is_paused = state.held.is_empty();
        state.is_paused
    }

    /// Readers that waited meanwhile get their leases.
    pub(crate) fn resume(&self) {
        self.lock().is_paused = false;
        self.resumed.notify_all();
    }

    /// Counts one reader less of the uberblock of `txg`.
    pub(crate) fn end(&self, txg: Txg) {
        let mut state = self.lock();
        let count = state.held.get_mut(&txg).expect("a lease is counted until it is dropped");
        *count -= 1;
        if *count == 0 {
            state.held.remove(&txg);
        }
    }
}

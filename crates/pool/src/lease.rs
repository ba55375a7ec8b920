//! Reading a pool that another process keeps changing.
//!
//! From:   the process that holds the pool gives a [`Lease`] away and keeps it while somebody reads.
//! To:     a reader elsewhere opens the devices without a lock at the lease's uberblock
//!         ([`crate::Options::leased`]). Nothing that this uberblock reaches is overwritten while the lease lives:
//!         what is freed later is not handed out again. Should the holder die, checksums tell the reader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use format::Txg;
use format::uberblock::Uberblock;

use crate::pool::{Inner, Pool};
use crate::{Error, Result};

/// The last uberblock on disk, and those that are still being read.
pub(crate) struct Leases(Mutex<State>);

struct State {
    synced: Uberblock,
    /// How many leases there are, by the txg of their uberblock.
    held: BTreeMap<Txg, usize>,
}

impl Leases {
    pub(crate) fn new(synced: Uberblock) -> Leases {
        Leases(Mutex::new(State { synced, held: BTreeMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while holding the leases")
    }

    /// The txg of the last uberblock on disk.
    pub(crate) fn synced_txg(&self) -> Txg {
        self.lock().synced.txg
    }

    /// The oldest txg that is being read.
    pub(crate) fn oldest(&self) -> Option<Txg> {
        self.lock().held.keys().next().copied()
    }

    /// For the sync thread: `uberblock` is on disk. Gives the oldest txg that is being read: leases given away from
    /// now on are of the new one.
    pub(crate) fn synced(&self, uberblock: &Uberblock) -> Option<Txg> {
        let mut state = self.lock();
        state.synced = uberblock.clone();
        state.held.keys().next().copied()
    }
}

/// The promise to leave a state of the pool on the disks as it is. Ends when it is dropped.
pub struct Lease {
    pool: Arc<Inner>,
    uberblock: Uberblock,
}

impl Lease {
    /// Where the reader begins.
    #[must_use]
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.pool.leases.lock();
        let txg = self.uberblock.txg;
        let count = state.held.get_mut(&txg).expect("a lease is counted until it is dropped");
        *count -= 1;
        if *count == 0 {
            state.held.remove(&txg);
        }
    }
}

impl Pool {
    /// Syncs, and promises to leave that state on the disks for another process to read.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`] when the pool could not write.
    pub fn lease(&self) -> Result<Lease> {
        self.sync()?;
        Ok(self.lease_synced())
    }

    /// As [`Pool::lease`], for who only looks: syncs for as long as `patience` at most, then promises the state that
    /// was synced last. What commands change of datasets and properties is in it: it is on disk before they return.
    ///
    /// # Errors
    /// None for a pool that could not write: what it wrote before is as good as it was.
    pub fn lease_within(&self, patience: Duration) -> Result<Lease> {
        match self.sync_within(patience) {
            // What was synced last is whole: nothing is written any more.
            Ok(_) | Err(Error::Stopped(_)) => Ok(self.lease_synced()),
            Err(error) => Err(error),
        }
    }

    /// At any time: what a txg in the making frees is not handed out before that txg is on disk, and its end looks at
    /// the leases first.
    fn lease_synced(&self) -> Lease {
        let mut state = self.inner.leases.lock();
        let uberblock = state.synced.clone();
        *state.held.entry(uberblock.txg).or_default() += 1;
        drop(state);
        Lease { pool: self.inner.clone(), uberblock }
    }
}

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

use crate::Result;
use crate::pool::{Inner, Pool};

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

/// A lease that somebody waits for. Unlike the [`Pool`] it is of, it keeps nobody from exporting that.
pub struct AwaitedLease {
    pool: Arc<Inner>,
    /// What is to be on disk; `None` for a pool that writes nothing.
    target: Option<Txg>,
}

impl AwaitedLease {
    /// Waits for as long as `patience` at most until what was done before this lease was asked for is on disk; gives
    /// whether it is.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`] when the pool could not write.
    pub fn wait(&self, patience: Duration) -> Result<bool> {
        self.target.map_or(Ok(true), |target| self.pool.groups.sync_within(target, patience))
    }

    /// The lease, at any time, of the state that was synced last. What commands change of datasets and properties is in
    /// it: it is on disk before they return.
    #[must_use]
    pub fn take(self) -> Lease {
        // What a txg in the making frees is not handed out before that txg is on disk, and its end looks at the leases
        // first.
        let mut state = self.pool.leases.lock();
        let uberblock = state.synced.clone();
        *state.held.entry(uberblock.txg).or_default() += 1;
        drop(state);
        Lease { pool: self.pool, uberblock }
    }
}

impl Pool {
    /// Syncs, and promises to leave that state on the disks for another process to read.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`] when the pool could not write.
    pub fn lease(&self) -> Result<Lease> {
        self.sync()?;
        Ok(self.await_lease().take())
    }

    /// As [`Pool::lease`], for who does not wait for it here.
    #[must_use]
    pub fn await_lease(&self) -> AwaitedLease {
        AwaitedLease {
            pool: self.inner.clone(),
            target: self.is_syncing().then(|| self.inner.groups.lock().open),
        }
    }
}

//! Reading a pool that another process keeps changing.
//!
//! From:   the process that holds the pool gives a [`Lease`] away and keeps it while somebody reads.
//! To:     a reader elsewhere opens the devices without a lock at the lease's uberblock
//!         ([`crate::Options::leased`]). Nothing that this uberblock reaches is overwritten while the lease lives:
//!         what is freed later is not handed out again. Should the holder die, checksums tell the reader.

use std::sync::Arc;
use std::time::Duration;

use format::Txg;
use format::uberblock::Uberblock;

use crate::Result;
use crate::pool::{Inner, Pool};

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
        self.pool.leases.end(self.uberblock.txg);
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
        let uberblock = self.pool.leases.take();
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

//! Reading a pool while another process changes it.
//!
//! From:   the process that holds the pool makes a [`Lease`] and keeps it while a reader uses it.
//! To:     a reader elsewhere opens the devices without a lock at the lease's uberblock
//!         ([`crate::Options::leased`]). Nothing that this uberblock reaches is overwritten while the lease lives:
//!         what is freed later is not handed out again. Should the holder die, checksums tell the reader.

use std::sync::Arc;
use std::time::Duration;

use format::Txg;
use format::uberblock::Uberblock;

use crate::Result;
use crate::pool::{Inner, Pool};

/// The promise not to overwrite a state of the pool on the disks. Dropping the lease ends the promise.
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

/// A lease that is not granted yet. Unlike a [`Pool`], it does not prevent an export.
pub struct AwaitedLease {
    pool: Arc<Inner>,
    /// The txg that must be on disk first; `None` for a read-only pool.
    target: Option<Txg>,
}

impl AwaitedLease {
    /// Waits up to `patience` until all changes made before the request are on disk. Returns whether they are.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`] when the pool could not write.
    pub fn wait(&self, patience: Duration) -> Result<bool> {
        self.target.map_or(Ok(true), |target| self.pool.groups.sync_within(target, patience))
    }

    /// Grants the lease for the last synced state. That state contains the changes of all commands that have returned,
    /// because such changes are synced before a command returns.
    #[must_use]
    pub fn take(self) -> Lease {
        // Blocks freed in a txg are not reused before that txg is on disk, and the end of a txg checks the leases first.
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

    /// As [`Pool::lease`], without waiting.
    #[must_use]
    pub fn await_lease(&self) -> AwaitedLease {
        AwaitedLease {
            pool: self.inner.clone(),
            target: self.is_syncing().then(|| self.inner.groups.lock().open),
        }
    }
}

//! An open file system, volume or snapshot.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use dmu::{Objset, Policy};
use format::{ObjectId, Txg};
use storage::host::Host;

use crate::dsl::lookup;
use crate::pool::Inner;
use crate::tx::{Hold, Tx};
use crate::{Error, Result};

/// Property values that reading and writing go by; refreshed when a property changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest block of a new file, in bytes.
    pub record_size: u64,
    /// Access times are kept.
    pub atime: bool,
    /// ... but only when older than the modification, or a day.
    pub relatime: bool,
    /// Extended attributes go into the file's own attributes where they fit.
    pub xattr_in_sa: bool,
    /// Extended attributes may be used at all.
    pub xattr: bool,
    /// POSIX ACLs may be used.
    pub posix_acl: bool,
    /// 512-byte slots of a new dnode.
    pub dnode_slots: u8,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Bytes that the dataset itself may refer to; 0: no limit.
    pub refquota: u64,
    /// Bytes kept free for the dataset itself; 0: none.
    pub refreservation: u64,
    /// Data read is kept in the cache.
    pub cache_data: bool,
}

/// Bytes promised to transactions in flight, so that a quota holds before the sync counts.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) open: u64,
    pub(crate) syncing: u64,
}

/// An open dataset. Cloned freely within an `Arc`; the pool keeps it as long as anybody does.
pub struct Dataset {
    pub(crate) pool: Arc<Inner>,
    /// The DSL dataset object in the MOS.
    pub(crate) id: ObjectId,
    /// The DSL directory object in the MOS.
    pub(crate) dir: ObjectId,
    name: RwLock<String>,
    objset: Arc<Objset>,
    is_snapshot: bool,
    settings: RwLock<Arc<Settings>>,
    policy: RwLock<Policy>,
    /// Bytes still available to this dataset within its quotas, as of the last sync.
    pub(crate) available: AtomicU64,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) destroyed: AtomicBool,
    /// The pool keeps it alive until the open txg is synced.
    pub(crate) listed: AtomicBool,
    /// guids of the per-dataset features that the dataset is marked with.
    pub(crate) active_features: Mutex<BTreeSet<String>>,
}

impl Dataset {
    #[allow(clippy::too_many_arguments, reason = "each is a field; one caller")]
    pub(crate) fn new(
        pool: Arc<Inner>,
        id: ObjectId,
        dir: ObjectId,
        name: String,
        objset: Arc<Objset>,
        is_snapshot: bool,
        settings: Settings,
        policy: Policy,
        available: u64,
        active_features: BTreeSet<String>,
    ) -> Dataset {
        Dataset {
            pool,
            id,
            dir,
            name: RwLock::new(name),
            objset,
            is_snapshot,
            settings: RwLock::new(Arc::new(settings)),
            policy: RwLock::new(policy),
            available: AtomicU64::new(available),
            pending: Mutex::default(),
            destroyed: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            active_features: Mutex::new(active_features),
        }
    }

    /// Full name, `pool/a/b` or `pool/a/b@snap`.
    ///
    /// # Panics
    /// If another thread panicked while renaming.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.read().expect("the name lock guards a plain store").clone()
    }

    pub(crate) fn rename(&self, name: String) {
        *self.name.write().expect("the name lock guards a plain store") = name;
    }

    /// Its objects.
    #[must_use]
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// Whether it is a snapshot: nothing in it ever changes.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    /// Whether changes are possible at all.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] with the reason.
    pub fn check_writable(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::ReadOnly { pool: self.pool.name(), reason });
        if let Some(reason) = self.pool.read_only_reason() {
            return refuse(reason);
        }
        if self.is_snapshot {
            return refuse(format!("'{}' is a snapshot", self.name()));
        }
        if self.settings().read_only {
            return refuse(format!("'{}' has readonly=on", self.name()));
        }
        Ok(())
    }

    /// Time and randomness of the machine.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.pool.host
    }

    /// Property values that reading and writing go by.
    ///
    /// # Panics
    /// If another thread panicked while storing them.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().expect("the settings lock guards a plain store").clone()
    }

    pub(crate) fn set_settings(&self, settings: Settings, policy: Policy) {
        *self.settings.write().expect("the settings lock guards a plain store") = Arc::new(settings);
        *self.policy.write().expect("the policy lock guards a plain store") = policy;
    }

    pub(crate) fn policy(&self) -> Policy {
        *self.policy.read().expect("the policy lock guards a plain store")
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("no code panics while holding the pending bytes")
    }

    /// Begins a transaction on this dataset. Waits while the txg closes or too much is dirty.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Quota`] before anything is changed; [`Error::ReadOnly`];
    /// [`Error::Stopped`] when the pool could not write.
    pub fn begin(&self, hold: Hold) -> Result<Tx> {
        self.check_writable()?;
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Error::NoDataset(self.name()));
        }
        let bytes = hold.bytes * u64::from(self.policy().copies);
        if !hold.frees && !self.reserve(bytes) {
            // Compression may have used less than was promised: look again after a sync.
            self.pool.groups.sync()?;
            if !self.reserve(bytes) {
                let quota = self.settings().refquota > 0 || lookup::has_quota(&self.pool, self.dir)?;
                return Err(if quota { Error::Quota } else { Error::NoSpace });
            }
        }
        let tx = self.pool.begin(bytes, hold.frees)?;
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.pool.list_dirty(self.id);
        }
        Ok(tx)
    }

    /// Promises `bytes` within the quotas.
    fn reserve(&self, bytes: u64) -> bool {
        let mut pending = self.pending();
        let promised = pending.open + pending.syncing + bytes;
        let fits = promised <= self.available.load(Ordering::Acquire);
        if fits {
            pending.open += bytes;
        }
        fits
    }

    /// Bytes that the dataset refers to, and that it may still write within its quotas and the pool; both as of
    /// the last sync, what is promised to transactions taken off.
    ///
    /// # Errors
    /// If its object in the MOS cannot be read.
    pub fn space(&self) -> Result<(u64, u64)> {
        let referenced = self.pool.mos.dataset(self.id)?.referenced_bytes;
        let promised = {
            let pending = self.pending();
            pending.open + pending.syncing
        };
        Ok((referenced, self.available.load(Ordering::Acquire).saturating_sub(promised)))
    }

    /// The txg in which new objects would be born now, for generation numbers.
    #[must_use]
    pub fn open_txg(&self) -> Txg {
        self.pool.groups.lock().open
    }

    /// Waits until everything done so far is on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn sync(&self) -> Result<()> {
        if self.pool.read_only.is_some() {
            return Ok(());
        }
        self.pool.groups.sync()
    }
}

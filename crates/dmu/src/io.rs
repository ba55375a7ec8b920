//! What an objset reads and writes blocks with.
//!
//! From:   whoever opens the objset, and who knows its properties.
//! To:     reads of its objects, and the sync of its changes. A block pointer of an objset is exchanged for bytes here only,
//!         so what belongs to a dataset and not to the pool (its keys, how it is written) has one place.

use std::sync::{Arc, RwLock};

use codec::crypt::DatasetKeys;
use storage::{Purpose, Reader, Storage, Workers};

use crate::policy::Policy;

/// How a block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Somebody waits; the block stays in the cache.
    Kept,
    /// Somebody waits and passes through the object once.
    Once,
    /// Ahead of a reader who passes through once.
    Ahead,
}

/// What an objset reads and writes blocks with.
pub struct BlockIo {
    storage: Arc<Storage>,
    /// Of an encrypted dataset, where they are loaded.
    keys: Option<Arc<DatasetKeys>>,
    /// `None` as long as nobody said how blocks are written.
    policy: RwLock<Option<Policy>>,
}

impl From<Arc<Storage>> for BlockIo {
    fn from(storage: Arc<Storage>) -> BlockIo {
        BlockIo::with_keys(storage, None)
    }
}

impl BlockIo {
    /// For a dataset with these keys.
    #[must_use]
    pub fn with_keys(storage: Arc<Storage>, keys: Option<Arc<DatasetKeys>>) -> BlockIo {
        BlockIo { storage, keys, policy: RwLock::new(None) }
    }

    /// The keys of an encrypted dataset, where they are loaded.
    #[must_use]
    pub fn keys(&self) -> Option<&DatasetKeys> {
        self.keys.as_deref()
    }

    /// The pool's devices.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// A reader for this kind of reading.
    pub(crate) fn reader(&self, reading: Reading) -> Reader<'_> {
        let mut reader = self.storage.reader().with_keys(self.keys.as_deref());
        if self.storage.second().is_used() {
            reader = reader.feeding(self.policy().map_or_else(Default::default, |policy| policy.secondary));
        }
        match reading {
            Reading::Kept => reader,
            Reading::Once => reader.once(),
            Reading::Ahead => reader.once().for_purpose(Purpose::AsyncRead),
        }
    }

    /// A reader for who walks through all blocks of the objset, as its objects are read.
    #[must_use]
    pub fn walker(&self) -> Reader<'_> {
        self.reader(Reading::Kept)
    }

    /// How blocks are written from now on; `None` where nobody said so yet.
    pub(crate) fn policy(&self) -> Option<Policy> {
        *self.policy.read().expect("the policy lock guards a plain store")
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        *self.policy.write().expect("the policy lock guards a plain store") = Some(policy);
    }

    pub(crate) fn workers(&self) -> &Workers {
        self.storage.workers()
    }
}

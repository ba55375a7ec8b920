//! The parts with which an objset reads and writes blocks.
//!
//! From:   `pool`, which opens the objset and knows its properties.
//! To:     reads of its objects, and the sync of its changes. All blocks of an objset are read and written here, so
//!         properties of the dataset (its keys and write policy) have one place.

use std::sync::{Arc, OnceLock};

use codec::crypt::DatasetKeys;
use format::BlockPtr;
use storage::host::Entropy;
use storage::rank::RankedRwLock;
use storage::{Guard, Purpose, ReadError, Reader, Recipe, Record, Storage, Workers};

use crate::policy::Policy;

/// How a block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A caller waits; the block stays in the cache.
    Kept,
    /// A caller waits and reads the object once, sequentially.
    Once,
    /// Read-ahead for a sequential reader.
    Ahead,
    /// Read-ahead into the cache.
    Soon,
}

/// The parts with which an objset reads and writes blocks.
pub struct BlockIo {
    storage: Arc<Storage>,
    /// The keys of an encrypted dataset, once they are loaded.
    keys: OnceLock<Arc<DatasetKeys>>,
    /// The write policy; `None` before it is set.
    policy: RankedRwLock<Option<Policy>>,
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
        let keys = keys.map_or_else(OnceLock::new, OnceLock::from);
        BlockIo { storage, keys, policy: RankedRwLock::leaf(None) }
    }

    /// Sets the dataset's keys, if its root at `ptr` is authentic. The keys of a dataset never change.
    ///
    /// # Errors
    /// The root cannot be read, or its authentication code does not match the keys.
    pub fn unlock(&self, keys: Arc<DatasetKeys>, ptr: &BlockPtr) -> Result<(), ReadError> {
        if let BlockPtr::Block(block) = ptr {
            self.storage.reader().with_keys(Some(&keys)).read_uncached(block)?;
        }
        // A faster thread has set the same keys.
        let _ = self.keys.set(keys);
        Ok(())
    }

    /// The keys of an encrypted dataset, where they are loaded.
    #[must_use]
    pub fn keys(&self) -> Option<&DatasetKeys> {
        self.keys.get().map(|keys| &**keys)
    }

    /// The pool's devices.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// A reader for this kind of reading.
    pub(crate) fn reader(&self, reading: Reading) -> Reader<'_> {
        let mut reader = self.storage.reader().with_keys(self.keys());
        // Data of an encrypted dataset is cached in memory only.
        if self.storage.second().is_used() && self.keys().is_none() {
            reader = reader.feeding(self.policy().map_or_else(Default::default, |policy| policy.secondary));
        }
        match reading {
            Reading::Kept => reader,
            Reading::Once => reader.once(),
            Reading::Ahead => reader.once().for_purpose(Purpose::AsyncRead),
            Reading::Soon => reader.for_purpose(Purpose::AsyncRead),
        }
    }

    /// A reader for a walk through all blocks of the objset.
    #[must_use]
    pub fn walker(&self) -> Reader<'_> {
        self.reader(Reading::Kept)
    }

    /// Encryption parameters of the next block that is encoded by `recipe`. Each call is for one block. The sync calls it in
    /// the order of the blocks, so the same state gives the same bytes.
    #[must_use]
    pub fn guard(&self, recipe: &Recipe, entropy: &dyn Entropy) -> Guard<'_> {
        let is_sealed = recipe.protection.is_some_and(|protection| protection.is_sealed());
        let (keys, mut random) = (self.keys(), |bytes: &mut [u8]| entropy.fill(bytes));
        Guard { keys, sealing: keys.filter(|_| is_sealed).map(|keys| keys.next_sealing(&mut random)) }
    }

    /// Reads a block for a sequential pass.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_once(&self, ptr: &BlockPtr) -> Result<Record, ReadError> {
        self.reader(Reading::Once).read(ptr)
    }

    /// Sets the write policy.
    pub(crate) fn policy(&self) -> Option<Policy> {
        *self.policy.read()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        *self.policy.write() = Some(policy);
    }

    pub(crate) fn readers(&self) -> &Workers {
        self.storage.readers()
    }
}

//! Readers: the purpose of reads, and whether their blocks stay in the cache.

use codec::crypt::DatasetKeys;

use crate::{Purpose, Secondary, Storage};

/// The way to read blocks of a pool. Cheap to copy; the requests to the disks that it makes are counted as its purpose.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) purpose: Purpose,
    /// Data blocks that were not in the cache stay in it.
    pub(crate) keeps_data: bool,
    /// Which blocks that were read from the pool's disks are put on cache devices.
    pub(crate) secondary: Secondary,
    /// Open what is sealed with them.
    pub(crate) keys: Option<&'a DatasetKeys>,
}

impl Storage {
    /// Reads with a waiting caller; the blocks stay in the cache.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader {
            storage: self,
            purpose: Purpose::SyncRead,
            keeps_data: true,
            secondary: Secondary::None,
            keys: None,
        }
    }
}

impl<'a> Reader<'a> {
    /// A sequential pass: uses cached blocks, but new data blocks do not evict others from the cache.
    #[must_use]
    pub fn once(self) -> Self {
        Reader { keeps_data: false, ..self }
    }

    /// Puts such blocks on cache devices, unless they were read from one.
    #[must_use]
    pub fn feeding(self, secondary: Secondary) -> Self {
        Reader { secondary, ..self }
    }

    /// Reads blocks of a dataset with these keys.
    #[must_use]
    pub fn with_keys(self, keys: Option<&'a DatasetKeys>) -> Self {
        Reader { keys, ..self }
    }

    /// Reads for `purpose`.
    #[must_use]
    pub fn for_purpose(self, purpose: Purpose) -> Self {
        Reader { purpose, ..self }
    }
}

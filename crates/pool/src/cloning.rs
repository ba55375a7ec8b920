//! Which datasets may share blocks by cloning.
//!
//! Source: docs/format/14-dedup-and-cloning.md §13.

use std::sync::Arc;

use format::features;

use crate::state::Dataset;

impl Dataset {
    /// Whether its pool lets files share blocks.
    #[must_use]
    pub fn is_cloning(&self) -> bool {
        self.pool_enables(&features::BLOCK_CLONING)
    }

    /// Whether files of this dataset may share the blocks of files in `source`. Both must be in one pool, have the same keys
    /// or none, and have properties that write the blocks the same way.
    #[must_use]
    pub fn may_share(&self, source: &Dataset) -> bool {
        if !Arc::ptr_eq(&self.pool, &source.pool) {
            return false;
        }
        if self.id == source.id {
            return true;
        }
        let (own, other) = (self.policy(), source.policy());
        let guid = |dataset: &Dataset| dataset.objset().io().keys().map(|keys| keys.guid());
        let is_open = |encrypted: bool, dataset: &Dataset| !encrypted || guid(dataset).is_some();
        let has_keys = is_open(own.encrypted, self) && is_open(other.encrypted, source);
        // The properties under which a snapshot was written are not known.
        let is_alike = source.is_snapshot
            || (own.checksum, own.compression, own.copies, own.dedup)
                == (other.checksum, other.compression, other.copies, other.dedup);
        own.encrypted == other.encrypted && has_keys && guid(self) == guid(source) && is_alike
    }

    /// The lock order for files of two datasets: whether files of this dataset are locked first.
    #[must_use]
    pub fn precedes(&self, other: &Dataset) -> bool {
        self.id < other.id
    }
}

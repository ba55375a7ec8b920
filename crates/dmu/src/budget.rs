//! Bytes of dirty state in memory, over all objsets of a pool.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a dirty object costs besides its records: dnode, bonus, bookkeeping.
pub(crate) const OBJECT_COST: u64 = 1536;
/// What a dirty record costs besides its bytes.
pub(crate) const RECORD_COST: u64 = 128;

/// Counts dirty bytes; `pool` throttles writers by it.
#[derive(Debug, Default)]
pub struct DirtyBudget {
    bytes: AtomicU64,
}

impl DirtyBudget {
    /// Bytes dirty now, in the open and the syncing txg together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "dirty bytes are returned once");
    }
}

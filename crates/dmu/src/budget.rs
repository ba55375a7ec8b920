//! Bytes of dirty state in memory, over all objsets of a pool.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a dirty object costs besides its records: dnode, bonus, bookkeeping.
pub(crate) const OBJECT_COST: u64 = 1536;
/// What a dirty record costs besides its bytes.
pub(crate) const RECORD_COST: u64 = 128;

/// Counts dirty bytes, by which `pool` throttles writers, and the space that the sync of the open txg may take.
#[derive(Debug, Default)]
pub struct DirtyBudget {
    bytes: AtomicU64,
    space: AtomicU64,
}

impl DirtyBudget {
    /// Bytes dirty now, in the open and the syncing txg together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of space that the changes of the open txg take at most.
    #[must_use]
    pub fn space(&self) -> u64 {
        self.space.load(Ordering::Relaxed)
    }

    /// The same, for the thread that closes the txg: the count begins again at 0 for the next one. No change may be in
    /// flight.
    #[must_use]
    pub fn take_space(&self) -> u64 {
        self.space.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn add_space(&self, bytes: u64) {
        self.space.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes off what a change of the open txg no longer needs. The bound of a change may have grown since it was added,
    /// when the property `copies` changed meanwhile.
    pub(crate) fn sub_space(&self, bytes: u64) {
        let less = |space: u64| Some(space.saturating_sub(bytes));
        let _ = self.space.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "dirty bytes are returned once");
    }
}

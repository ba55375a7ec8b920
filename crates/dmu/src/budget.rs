//! Bytes of dirty state in memory, over all objsets of a pool.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of a dirty object besides its records, in bytes: dnode, bonus, bookkeeping.
pub(crate) const OBJECT_COST: u64 = 1536;
/// Memory of a dirty record besides its data, in bytes.
pub(crate) const RECORD_COST: u64 = 128;

/// Memory of a cloned block, in bytes: the pointer here and in an intent log, and its table entry.
pub(crate) const CLONE_COST: u64 = 512;

/// Counts dirty bytes, by which `pool` throttles writers, and the space that the sync of the open txg may take.
#[derive(Debug, Default)]
pub struct DirtyBudget {
    bytes: AtomicU64,
    space: AtomicU64,
    /// Entries of tables of shared blocks that the open txg changes, at most.
    entries: AtomicU64,
    /// Bytes of those tables on the disks.
    table: AtomicU64,
    /// Bytes that a changed block of such a table takes.
    table_block: AtomicU64,
}

/// Entries that a block of a table of shared blocks holds at least.
const ENTRIES_MIN: u64 = 8;

impl DirtyBudget {
    /// Bytes dirty now, in the open and the syncing txg together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of space that the changes of the open txg take at most.
    #[must_use]
    pub fn space(&self) -> u64 {
        let entries = self.entries.load(Ordering::Relaxed);
        self.space.load(Ordering::Relaxed).saturating_add(self.cost_of_entries(entries))
    }

    /// Takes this sum for the thread that closes the txg, and restarts the count at 0. No change may be in flight.
    #[must_use]
    pub fn take_space(&self) -> u64 {
        let entries = self.entries.swap(0, Ordering::Relaxed);
        self.space.swap(0, Ordering::Relaxed).saturating_add(self.cost_of_entries(entries))
    }

    /// Bytes that so many changed entries of tables of shared blocks take at most: each changes a block of its own, but no
    /// block is written twice. New entries make new blocks.
    #[must_use]
    pub fn cost_of_entries(&self, entries: u64) -> u64 {
        let block = self.table_block.load(Ordering::Relaxed);
        let all =
            self.table.load(Ordering::Relaxed).saturating_add(entries.saturating_mul(block / ENTRIES_MIN));
        entries.saturating_mul(block).min(all)
    }

    /// Sets the size of the dedup and clone tables, and the bytes of a changed block of them.
    pub fn set_table(&self, bytes: u64, block: u64) {
        self.table.store(bytes, Ordering::Relaxed);
        self.table_block.store(block, Ordering::Relaxed);
    }

    /// Whether some blocks of the pool are in a table of shared blocks.
    #[must_use]
    pub fn has_table(&self) -> bool {
        self.table.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn add_entries(&self, entries: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
    }

    pub(crate) fn add_space(&self, bytes: u64) {
        self.space.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts the bound of a change of the open txg that is no longer needed. It may be larger than the added one if the
    /// property `copies` changed meanwhile.
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

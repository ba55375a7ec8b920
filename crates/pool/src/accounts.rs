//! The space of the pool, as its users see it: total, reserved and promised.
//!
//! From:   the vdevs, the checkpoint, and transactions that ask for space.
//! To:     quotas, reservations and the reserve of the pool, which judge each transaction before it changes anything.
//! Invariant: a promise belongs to the txg that was open when it was made, and ends when that txg is synced.

use std::sync::atomic::{AtomicU64, Ordering};

use dmu::DirtyBudget;
use dsl::promises::Promises;
use dsl::room::Room;
use storage::allocator::Class;
use storage::rank::{MutexHeld, RankedMutex};
use storage::{TopVdev, Vdevs};

use crate::tx::{Hold, Need};

/// Blocks of metadata that one transaction may change besides its data, and the bytes of each block: dnodes, the directory
/// and its attributes.
const TX_BLOCKS: u64 = 8;
const TX_BLOCK: u64 = 16 << 10;
/// Indirect blocks that it may change, and the bytes of each.
const TX_INDIRECT_BLOCKS: u64 = 2;
const TX_INDIRECT_BLOCK: u64 = 128 << 10;
/// Vdevs with this many metaslabs lend one to the intent log in OpenZFS; it is not counted as usable.
const EMBEDDED_LOG_METASLABS: u64 = 64;

/// The space of the pool, besides the figures of its vdevs.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// Bytes that transactions in flight may add below each directory.
    pub(crate) promises: Promises,
    /// Bytes that only the checkpoint keeps.
    kept: AtomicU64,
    /// Top-level vdevs that take no new blocks.
    closed: RankedMutex<Vec<u32>>,
}

impl Accounts {
    /// `closed`: top-level vdevs that take no new blocks.
    pub(crate) fn new(closed: Vec<u32>) -> Accounts {
        Accounts { promises: Promises::default(), kept: AtomicU64::new(0), closed: RankedMutex::leaf(closed) }
    }

    fn closed(&self) -> MutexHeld<'_, Vec<u32>> {
        self.closed.lock()
    }

    /// Sets the top-level vdevs that take no new blocks.
    pub(crate) fn close_vdevs(&self, closed: Vec<u32>) {
        *self.closed() = closed;
    }

    /// Sets the number of bytes that only the checkpoint keeps.
    pub(crate) fn keep(&self, bytes: u64) {
        self.kept.store(bytes, Ordering::Release);
    }

    /// Usable bytes of the normal class: without parity, without the metaslabs that OpenZFS reserves for intent logs, and
    /// only of vdevs that take new blocks. Special and dedup vdevs do not count, as in OpenZFS 2.1 and 2.3.
    pub(crate) fn dspace(&self, vdevs: &Vdevs) -> u64 {
        let closed = self.closed().clone();
        let is_counted =
            |top: &&TopVdev| top.class == Class::Normal && top.is_normal() && !closed.contains(&top.id);
        vdevs.tops().iter().filter(is_counted).map(dspace_of).sum()
    }

    /// The space as datasets see it; `shared` bytes are saved by blocks that several pointers refer to.
    pub(crate) fn room(&self, vdevs: &Vdevs, shared: u64) -> Room {
        Room { dspace: self.dspace(vdevs), shared, kept: self.kept.load(Ordering::Acquire) }
    }
}

/// Usable bytes of a vdev: without parity, and without the metaslab that OpenZFS reserves for intent logs.
pub(crate) fn dspace_of(top: &TopVdev) -> u64 {
    let lent = u64::from(top.metaslab_count() >= EMBEDDED_LOG_METASLABS);
    ((top.capacity() - (lent << top.metaslab_shift)) >> 9) * top.deflate_ratio()
}

/// Estimated space for one transaction with `hold`, with its data in `copies` copies. Changes that it has made are
/// counted exactly ([`DirtyBudget::space`]).
pub(crate) fn need_of(vdevs: &Vdevs, budget: &DirtyBudget, room: &Room, hold: &Hold, copies: u8) -> Need {
    let data = match (hold.bytes, hold.blocks) {
        (0, _) => 0,
        (bytes, 0) => vdevs.largest_asize_of(bytes),
        (_, blocks) => blocks.saturating_mul(vdevs.largest_asize_of(hold.block_size)),
    };
    let blocks = TX_BLOCKS * vdevs.largest_asize_of(TX_BLOCK);
    let indirect = TX_INDIRECT_BLOCKS * vdevs.largest_asize_of(TX_INDIRECT_BLOCK);
    let freed = hold.freed.saturating_mul(dmu::KILLED);
    let entries = hold.freed.saturating_add(hold.blocks.max(1).saturating_mul(2));
    let freed = freed.saturating_add(cost_of_entries(budget, entries));
    Need {
        data: data.saturating_mul(copies.into()),
        metadata: ((blocks + indirect) * (u64::from(copies) + 1).min(3)).saturating_add(freed),
        reserve: room.reserve(hold.reach),
    }
}

/// Bytes that so many changed entries of dedup tables take; none in a pool without them.
fn cost_of_entries(budget: &DirtyBudget, entries: u64) -> u64 {
    if budget.has_table() { budget.cost_of_entries(entries) } else { 0 }
}

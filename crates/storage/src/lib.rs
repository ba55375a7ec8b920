//! Pointer ⇄ bytes: disks, vdevs, the allocator in memory, the read and write pipelines, the cache.
//!
//! From:   `dmu` hands in records to write and block pointers to read.
//! To:     disks behind [`host::Disk`].
//! This crate knows no object or dataset, and of a txg only its number.
#![deny(unsafe_code)]

mod ahead;
pub mod allocator;
mod as_stored;
mod buffers;
mod cache;
mod columns;
mod copy;
mod deflate;
mod distributed;
mod draft;
mod early;
mod error;
mod fence;
mod flush;
pub mod gang;
mod gate;
mod heal;
mod health;
mod held;
pub mod host;
pub mod interrupt;
mod io_queue;
pub mod layout;
mod leaf;
mod log;
mod meter;
mod moved;
mod payload;
mod places;
mod raidz;
pub mod rank;
mod read;
mod reader;
mod rebuild;
mod reflow;
mod resilver;
mod seal;
mod second;
mod shared;
mod side;
pub mod suspend;
mod together;
mod tree;
mod txg_runs;
mod unflushed;
mod unseal;
mod unused;
pub mod vdev;
mod verify;
pub mod workers;
pub mod write;

use std::sync::Arc;
use std::time::Duration;

use codec::Salt;
use format::blkptr::Dva;

use crate::held::HeldBlocks;
use crate::rank::{Rank, RankedRwLock};

pub use as_stored::AsStored;
pub use buffers::Buffers;
pub use cache::{CacheStats, Lookups, RecordCache};
pub use deflate::{Deflate, GzipEngine};
pub use distributed::spare_disk;
pub use draft::Draft;
pub use error::{Layout, NotYet, ReadError, Unwritable, WriteError};
pub use fence::Fence;
pub use gate::{Alone, Gate, WithoutWriters};
pub use health::Health;
pub use leaf::Leaf;
pub use meter::{
    Deed, IoStats, IoTimes, Meter, PURPOSES, Purpose, Request, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times,
};
pub use moved::{Move, Moves};
pub use payload::Payload;
pub use places::Trail;
pub use reader::Reader;
pub use rebuild::Rebuilt;
pub use reflow::{Obstacle, Scratch};
pub use resilver::Missed;
pub use seal::{Guard, Protection};
pub use second::{SecondCache, SecondDevice, SecondLimits, SecondStats, Secondary};
pub use side::Side;
pub use suspend::{FailMode, Refused, Suspension};
pub use txg_runs::TxgRuns;
pub use vdev::{Shape, TopVdev, Vdevs};
pub use verify::{BadCopy, Verified};
pub use workers::{Caller, Workers};
pub use write::{Encoded, Encoding, Recipe, Writer};

/// The uncompressed bytes of a block, shared between cache, readers and dirty state.
pub type Record = Arc<Vec<u8>>;

/// Memory and threads for this crate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of records kept in memory.
    pub cache_bytes: u64,
    /// Bytes of free record buffers kept for reuse.
    pub free_bytes: u64,
    /// Threads that write to disks, at least; with more leaves than that there are more. 0 writes on the caller's thread, in order.
    pub io_threads: usize,
    /// Threads that compress, checksum and decompress, and threads that read; 0 means one for each core, and more that read
    /// where there are several leaves.
    pub workers: usize,
    /// The gzip engine of this run; it overrides that of datasets.
    pub gzip_engine: Option<GzipEngine>,
    /// A request to a disk counts as slow if it takes this long or longer.
    pub slow_io: Duration,
    /// Of the cache devices.
    pub second: SecondLimits,
}

#[cfg(test)]
impl Options {
    /// No caches, and requests on the caller's thread.
    pub(crate) fn of_tests() -> Options {
        Options {
            cache_bytes: 0,
            free_bytes: 0,
            io_threads: 0,
            workers: 1,
            gzip_engine: None,
            slow_io: Duration::MAX,
            second: SecondLimits::default(),
        }
    }
}

/// Threads that read, for each leaf beyond the first: so many requests wait at a device while others are answered.
const READERS_PER_LEAF: usize = 3;
/// Threads that read, at most.
const READERS_MAX: usize = 32;

/// The number of reading threads; `workers` is the number in [`Options`].
fn reading_threads(workers: usize, vdevs: &Vdevs) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let more = vdevs.leaves().count().saturating_sub(1) * READERS_PER_LEAF;
    if workers > 0 { workers } else { (cores + more).min(READERS_MAX.max(cores)) }
}

/// The open devices of one pool with everything that turns pointers into bytes and back.
pub struct Storage {
    tree: Arc<tree::Tree>,
    salt: RankedRwLock<Arc<Salt>>,
    cache: RecordCache,
    second: SecondCache,
    buffers: Buffers,
    workers: Workers,
    readers: Workers,
    deflate: Arc<Deflate>,
    io: io_queue::IoQueue,
    suspension: Arc<Suspension>,
    fence: Arc<Fence>,
    /// Blocks that may still be rewritten within the syncing txg (those of the MOS), by vdev and offset. They
    /// reach the disks once, when the txg's writes are finished; until then they are read from here.
    held: HeldBlocks,
    /// Blocks of txgs not synced yet that are written already.
    early: early::Early,
    /// The users of vdevs with parity.
    gate: Gate,
    /// Held for reading by threads that write beside the sync thread, and for writing by the sync thread while it rebuilds
    /// ranges.
    beside: RankedRwLock<()>,
}

impl Storage {
    /// Takes possession of open devices.
    #[must_use]
    pub fn new(vdevs: Vdevs, options: Options) -> Storage {
        let deflate = Arc::new(Deflate::new(options.gzip_engine));
        let suspension = Arc::<Suspension>::default();
        let fence = Arc::<Fence>::default();
        vdevs.set_slow_limit(options.slow_io);
        vdevs.set_fence(&fence);
        let readers = reading_threads(options.workers, &vdevs);
        let tree = Arc::new(tree::Tree::new(vdevs));
        Storage {
            tree: tree.clone(),
            salt: RankedRwLock::leaf(Arc::new(Salt::none())),
            cache: RecordCache::new(options.cache_bytes),
            second: SecondCache::new(options.cache_bytes, options.second),
            buffers: Buffers::new(options.free_bytes),
            workers: Workers::new("worker", options.workers),
            readers: Workers::new("reader", readers),
            io: io_queue::IoQueue::new(options.io_threads, deflate.clone(), suspension.clone(), tree),
            suspension,
            fence,
            deflate,
            held: HeldBlocks::default(),
            early: early::Early::default(),
            gate: Gate::default(),
            beside: RankedRwLock::new(Rank::NoRebuild, ()),
        }
    }

    /// The devices as they are now. A caller that keeps the reference continues to see the old devices.
    #[must_use]
    pub fn vdevs(&self) -> &Vdevs {
        self.tree.vdevs()
    }

    /// Replaces the devices. For the sync thread alone, while none of its writes is under way.
    pub fn set_vdevs(&self, vdevs: Vdevs) {
        vdevs.set_fence(&self.fence);
        self.tree.replace(vdevs);
    }

    /// From now on, a leaf whose device refuses a request misses the blocks born in `txg` and later: everything before
    /// is durable on it.
    pub fn set_unsynced(&self, txg: format::Txg) {
        self.tree.set_unsynced(txg);
    }

    /// Does `operation` on each leaf with a device that takes writes. A device that refuses is left out from then on, where others have all
    /// that it has; else this waits until a retry succeeds.
    ///
    /// # Errors
    /// A device that the pool needs refused the operation, and refused operations do not wait. The first such error is
    /// returned.
    pub fn on_written_leaves(
        &self,
        mut operation: impl FnMut(&TopVdev, &Leaf) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        for top in self.vdevs().tops() {
            for leaf in top.written().filter(|leaf| leaf.distributed().is_none()) {
                self.suspension.attempt(|| self.tree.write(top.id, leaf, || operation(top, leaf)))?;
            }
        }
        Ok(())
    }

    /// The users of vdevs with parity.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The threads shared by everything that computes.
    #[must_use]
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The threads shared by everything that reads blocks. They wait for devices, so there may be more of them than cores.
    #[must_use]
    pub fn readers(&self) -> &Workers {
        &self.readers
    }

    /// The gzip engine.
    #[must_use]
    pub fn deflate(&self) -> &Deflate {
        &self.deflate
    }

    /// The record cache.
    #[must_use]
    pub fn cache(&self) -> &RecordCache {
        &self.cache
    }

    /// The cache devices.
    #[must_use]
    pub fn second(&self) -> &SecondCache {
        &self.second
    }

    /// Keeps at most `limit` bytes of records in memory from now on.
    pub fn set_cache_limit(&self, limit: u64) {
        self.cache.set_limit(limit);
        self.second.set_memory(limit);
    }

    /// Removes `block` from the caches, because it is overwritten in its place or its space is free.
    pub fn forget(&self, block: &format::blkptr::Block) {
        self.cache.remove(block);
        self.second.forget(block);
    }

    /// Buffers for records.
    #[must_use]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The pool's checksum salt as loaded, or none.
    ///
    /// # Panics
    /// If another thread panicked while setting it.
    #[must_use]
    pub fn salt(&self) -> Arc<Salt> {
        self.salt.read().clone()
    }

    /// Sets the salt found in (or given to) the MOS; needed before any salted checksum is computed.
    ///
    /// # Panics
    /// If another thread panicked while setting it.
    pub fn set_salt(&self, bytes: [u8; 32]) {
        *self.salt.write() = Arc::new(Salt::new(bytes));
    }

    /// Holds `payload` for `dva` back until [`Writer::finish`]; a later `hold` of the same place replaces it. The replaced
    /// payload can be read as well, with the checksum that it had: readers have that pointer until the pass of the sync
    /// ends.
    pub fn hold(&self, dva: Dva, payload: Payload) {
        self.held.hold(dva, payload);
    }

    /// Does not write what was held for `dva`: the block was freed in the txg that wrote it. It can still be read, as in [`Storage::hold`].
    pub fn release(&self, dva: Dva) {
        self.held.release(dva);
    }

    pub(crate) fn held(&self) -> &HeldBlocks {
        &self.held
    }

    /// Operations that a device refused and that wait to be tried again.
    #[must_use]
    pub fn suspension(&self) -> &Arc<Suspension> {
        &self.suspension
    }

    /// Until when the devices may be written.
    #[must_use]
    pub fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    pub(crate) fn io(&self) -> &io_queue::IoQueue {
        &self.io
    }
}

//! The second level of the cache (L2ARC): blocks that were read are kept on cache devices, as the pool stores them.
//!
//! From:   [`crate::Reader`], which offers each block that it read from the pool's disks.
//! To:     readers that come back for such a block when it is no longer in memory.
//! Source: docs/format/12-auxiliary-vdevs.md §2.
//!
//! Nothing here is trusted: a block from a cache device is compared with the checksum in its pointer, and read from the pool
//! if it differs. So a cache device can be lost, replaced or overwritten at any time. One thread (`feed.rs`) writes the devices.
//! Readers and that thread share the index of what is where.

mod device;
mod feed;
mod index;
mod rebuild;
mod ring;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;

use format::blkptr::Block;
use format::l2arc::Entry;
use format::{ChecksumKind, Guid};

use crate::host::Disk;
use crate::meter::{IoStats, IoTimes, Purpose};
use crate::rank::{MutexHeld, RankedMutex, RankedRwLock};
use device::Device;
use index::{Index, Key};

/// Bytes of memory that an entry of the index takes, with its place in the order of eviction.
const ENTRY_MEMORY: u64 = 160;
/// Share of the memory for the cache that the index may take, in percent.
const INDEX_PERCENT: u64 = 33;

/// Which blocks of a dataset are put on cache devices: the properties `secondarycache` and `primarycache` together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Secondary {
    /// None.
    None,
    /// Metadata.
    #[default]
    Metadata,
    /// Data and metadata.
    All,
}

/// Limits that can change while a pool is open.
#[derive(Clone, Copy, Debug)]
pub struct SecondLimits {
    /// Most bytes that are written to a cache device at a time. It also limits the memory of blocks that wait to be written.
    pub write_max: u64,
    /// Whether the contents of a cache device are looked for when it is added.
    pub rebuild: bool,
    /// Devices that end before this have no log blocks, so their contents are lost with the import.
    pub log_min: u64,
}

impl Default for SecondLimits {
    fn default() -> SecondLimits {
        SecondLimits { write_max: 64 << 20, rebuild: true, log_min: 1 << 30 }
    }
}

/// The contents and figures of a cache device since it was added.
#[derive(Clone, Debug)]
pub struct SecondDevice {
    /// The device.
    pub guid: Guid,
    /// Bytes for contents.
    pub size: u64,
    /// Bytes of contents that can be found.
    pub used: u64,
    /// Its error, if it refused a write and is not used any more.
    pub failed: Option<String>,
    /// The requests to the device.
    pub io: IoStats,
    /// How long that took.
    pub times: IoTimes,
}

/// How useful cache devices were since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondStats {
    /// Blocks that were read from a cache device.
    pub hits: u64,
    /// Blocks that were looked for and were on no cache device.
    pub misses: u64,
    /// Blocks on cache devices whose checksum was wrong.
    pub bad: u64,
    /// Reads that a cache device refused.
    pub errors: u64,
    /// Times that blocks were written.
    pub feeds: u64,
    /// Blocks that were written.
    pub written: u64,
    /// Blocks that had to make room for newer ones.
    pub evicted: u64,
    /// Blocks that were found on devices when these were added.
    pub restored: u64,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    bad: AtomicU64,
    errors: AtomicU64,
    feeds: AtomicU64,
    written: AtomicU64,
    evicted: AtomicU64,
    restored: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A block that waits to be written to a cache device.
struct Offer {
    key: Key,
    /// Its log entry; the place is not known yet.
    entry: Entry,
    /// The bytes that the pool stores.
    raw: Vec<u8>,
}

/// The orders for the writing thread.
#[derive(Default)]
struct Orders {
    offers: Vec<Offer>,
    /// Bytes of `offers`.
    bytes: u64,
    /// Devices that are to be used from now on.
    added: Vec<Arc<Device>>,
    /// Devices that are no longer to be used.
    removed: Vec<Guid>,
    /// A caller waits until the offered blocks are written.
    hurry: bool,
    /// The thread is carrying out orders that it took.
    busy: bool,
    leaving: bool,
}

impl Orders {
    /// There is work that does not wait for the next feed.
    fn is_urgent(&self) -> bool {
        self.hurry || !self.added.is_empty() || !self.removed.is_empty()
    }
}

struct Shared {
    /// Some device can be used. Readers ask nothing else as long as there is none.
    used: AtomicBool,
    devices: RankedRwLock<Vec<Arc<Device>>>,
    index: RankedMutex<Index>,
    orders: RankedMutex<Orders>,
    changed: Condvar,
    limits: RankedMutex<SecondLimits>,
    /// Entries that the index may have.
    index_max: AtomicU64,
    counters: Counters,
}

impl Shared {
    fn index(&self) -> MutexHeld<'_, Index> {
        self.index.lock()
    }

    fn orders(&self) -> MutexHeld<'_, Orders> {
        self.orders.lock()
    }

    fn wait_for_change<'a>(&self, orders: MutexHeld<'a, Orders>) -> MutexHeld<'a, Orders> {
        orders.wait(|orders| self.changed.wait(orders).expect("no code panics while holding the orders"))
    }

    fn limits(&self) -> SecondLimits {
        *self.limits.lock()
    }

    fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.read().clone()
    }
}

/// The cache devices of a pool.
pub struct SecondCache {
    shared: Arc<Shared>,
    thread: RankedMutex<Option<JoinHandle<()>>>,
}

impl SecondCache {
    /// No device yet. `memory` is that of the first level of the cache, in bytes.
    #[must_use]
    pub(crate) fn new(memory: u64, limits: SecondLimits) -> SecondCache {
        let shared = Shared {
            used: AtomicBool::new(false),
            devices: RankedRwLock::default(),
            index: RankedMutex::default(),
            orders: RankedMutex::default(),
            changed: Condvar::new(),
            limits: RankedMutex::leaf(limits),
            index_max: AtomicU64::new(0),
            counters: Counters::default(),
        };
        let cache = SecondCache { shared: Arc::new(shared), thread: RankedMutex::default() };
        cache.set_memory(memory);
        cache
    }

    /// The first level of the cache has so much memory now, in bytes.
    pub fn set_memory(&self, memory: u64) {
        let entries = memory / 100 * INDEX_PERCENT / ENTRY_MEMORY;
        self.shared.index_max.store(entries, Ordering::Relaxed);
    }

    /// The limits now.
    #[must_use]
    pub fn limits(&self) -> SecondLimits {
        self.shared.limits()
    }

    /// Changes limits. Those about what is on a device count for devices that are added later.
    ///
    /// # Panics
    /// If another thread panicked while doing this.
    pub fn set_limits(&self, change: impl FnOnce(&mut SecondLimits)) {
        change(&mut self.shared.limits.lock());
    }

    /// Uses a cache device of the pool `pool`, whose labels and identity the caller has verified. Its present contents are
    /// found in the background.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub fn add(&self, pool: Guid, guid: Guid, disk: Arc<dyn Disk>, ashift: u32) {
        let Some(device) = Device::new(pool, guid, disk, ashift, &self.shared.limits()) else { return };
        let mut orders = self.shared.orders();
        orders.removed.retain(|other| *other != guid);
        orders.added.push(Arc::new(device));
        self.shared.changed.notify_all();
        drop(orders);
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            let work = move || feed::run(&shared);
            let named = std::thread::Builder::new().name("l2arc-feed".into());
            *thread = Some(named.spawn(work).expect("the system gives a thread"));
        }
    }

    /// Stops using a cache device. When this returns, nothing reads or writes it.
    pub fn remove(&self, guid: Guid) {
        let mut orders = self.shared.orders();
        orders.added.retain(|device| device.guid != guid);
        orders.removed.push(guid);
        self.shared.changed.notify_all();
        drop(orders);
        self.settle();
    }

    /// Writes what was offered now rather than after the pause between two feeds.
    pub fn write_now(&self) {
        self.shared.orders().hurry = true;
        self.shared.changed.notify_all();
        self.settle();
    }

    /// Returns when the thread has carried out every order that was given before.
    fn settle(&self) {
        if self.thread.lock().is_none() {
            return;
        }
        let mut orders = self.shared.orders();
        while !orders.leaving && (orders.busy || orders.is_urgent()) {
            orders = self.shared.wait_for_change(orders);
        }
    }

    /// Ends the thread that writes. Blocks not written yet are dropped.
    pub fn leave(&self) {
        self.shared.orders().leaving = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // After a panic of that thread there is nothing to save: the devices hold copies only.
            let _ = thread.join();
        }
        self.shared.used.store(false, Ordering::Relaxed);
        self.shared.devices.write().clear();
    }

    /// Whether any cache device is used.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Fills `raw` with the stored bytes of `block`, if they are on a cache device. `is_good` compares them with the checksum
    /// of the block.
    pub(crate) fn read(
        &self,
        block: &Block,
        purpose: Purpose,
        raw: &mut Vec<u8>,
        is_good: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let shared = &self.shared;
        let key = Key::of(block);
        let Some(place) = shared.index().get(&key).filter(|place| place.psize == block.psize) else {
            count(&shared.counters.misses, 1);
            return false;
        };
        let device = shared.devices().into_iter().find(|device| device.guid == place.device);
        let Some(device) = device else { return false };
        raw.resize(block.psize as usize, 0);
        let fault = match device.read(purpose, place.at, raw) {
            Ok(()) if is_good(raw) => {
                shared.index().used(&key);
                count(&shared.counters.hits, 1);
                return true;
            }
            Ok(()) => {
                device.leaf.meter.bad_checksum();
                &shared.counters.bad
            }
            // The meter of the device has counted it.
            Err(_) => &shared.counters.errors,
        };
        // The block may have been overwritten by newer ones while it was read; then the index says so already.
        count(fault, 1);
        shared.index().remove_at(&key, place);
        false
    }

    /// Takes the stored bytes of a block that was read from the pool, if there is room for them.
    pub(crate) fn offer(&self, block: &Block, which: Secondary, raw: &[u8]) {
        let is_metadata = block.level > 0 || block.object_type.is_metadata();
        let wanted = match which {
            Secondary::None => false,
            Secondary::Metadata => is_metadata,
            Secondary::All => true,
        };
        // Without a checksum, bytes from the device could not be verified.
        if !wanted || block.checksum_kind == ChecksumKind::Off || raw.len() as u64 != block.psize {
            return;
        }
        let shared = &self.shared;
        let key = Key::of(block);
        {
            let mut index = shared.index();
            if index.len() >= shared.index_max.load(Ordering::Relaxed) || !index.expect(key) {
                return;
            }
        }
        let entry = Entry {
            dva: block.dvas[0],
            birth: block.physical_birth(),
            lsize: block.lsize,
            psize: block.psize,
            compression: block.compression,
            is_metadata,
            protected: block.encrypted,
            frequent: false,
            at: 0,
            level: 0,
        };
        let limit = shared.limits().write_max;
        let mut orders = shared.orders();
        if orders.bytes + block.psize > limit || orders.leaving {
            drop(orders);
            shared.index().give_up(&key);
            return;
        }
        orders.bytes += block.psize;
        orders.offers.push(Offer { key, entry, raw: raw.to_vec() });
        shared.changed.notify_all();
    }

    /// Forgets `block`: its space is free.
    pub(crate) fn forget(&self, block: &Block) {
        if self.is_used() {
            self.shared.index().remove(&Key::of(block));
        }
    }

    /// The devices that are used.
    #[must_use]
    pub fn devices(&self) -> Vec<SecondDevice> {
        let devices = self.shared.devices();
        devices.iter().map(|device| device.figures()).collect()
    }

    /// Counters since the pool was opened.
    #[must_use]
    pub fn stats(&self) -> SecondStats {
        let counters = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SecondStats {
            hits: get(&counters.hits),
            misses: get(&counters.misses),
            bad: get(&counters.bad),
            errors: get(&counters.errors),
            feeds: get(&counters.feeds),
            written: get(&counters.written),
            evicted: get(&counters.evicted),
            restored: get(&counters.restored),
        }
    }
}

impl Drop for SecondCache {
    fn drop(&mut self) {
        self.leave();
    }
}

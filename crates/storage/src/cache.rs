//! The record cache: uncompressed blocks by the place and birth of their first copy.
//!
//! A block is never changed in place while its birth stays the same, so an entry can't go stale.

use std::sync::atomic::{AtomicU64, Ordering};

use format::blkptr::Block;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::Record;

/// Where and when a block was written: no two blocks share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    vdev: u32,
    offset: u64,
    birth: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Record> for ByBytes {
    fn weight(&self, _: &Key, record: &Record) -> u64 {
        record.len() as u64 + 128
    }
}

/// How often the cache answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered from memory.
    pub hits: u64,
    /// Lookups that went to a disk.
    pub misses: u64,
    /// Bytes held now.
    pub bytes: u64,
}

/// Records within a byte limit.
pub struct RecordCache {
    map: Cache<Key, Record, ByBytes>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl RecordCache {
    /// Keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> RecordCache {
        let items = (limit >> 14).clamp(64, 1 << 20) as usize;
        RecordCache {
            map: Cache::with_weighter(items, limit.max(1 << 20), ByBytes),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Bytes held at most.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.map.capacity()
    }

    /// Keeps at most `limit` bytes from now on.
    pub fn set_limit(&self, limit: u64) {
        self.map.set_capacity(limit.max(1 << 20));
    }

    fn key(block: &Block) -> Key {
        let dva = block.dvas[0];
        Key { vdev: dva.vdev.0, offset: dva.offset, birth: block.physical_birth().0 }
    }

    /// The record of `block`, if held.
    #[must_use]
    pub fn get(&self, block: &Block) -> Option<Record> {
        let found = self.map.get(&Self::key(block));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Keeps `record` as the content of `block`.
    pub fn insert(&self, block: &Block, record: Record) {
        self.map.insert(Self::key(block), record);
    }

    /// Forgets `block`: its content is rewritten within its birth txg, or its space is free.
    pub fn remove(&self, block: &Block) {
        self.map.remove(&Self::key(block));
    }

    /// Forgets everything: reads that follow go to the disks.
    pub fn clear(&self) {
        self.map.clear();
    }

    /// Counters since the pool was opened.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: self.map.weight(),
        }
    }
}

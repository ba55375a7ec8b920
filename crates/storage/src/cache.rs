//! The record cache: uncompressed blocks by the place and birth of their first copy.
//!
//! The block of a key never changes, so an entry can't go stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::blkptr::Block;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use crate::Record;

/// Where and when a block was written, and what: the passes of one sync write blocks of the MOS anew in their places.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    vdev: u32,
    offset: u64,
    birth: u64,
    /// A part of its checksum.
    sum: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Record> for ByBytes {
    fn weight(&self, _: &Key, record: &Record) -> u64 {
        record.len() as u64 + 128
    }
}

/// Counts the records that are dropped to make room.
#[derive(Clone, Default)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<Key, Record> for Evictions {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Key, _: Record) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How often the cache answered for one kind of block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Answered from memory.
    pub hits: u64,
    /// Went to a disk.
    pub misses: u64,
}

/// How useful the cache was since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Contents of files and volumes.
    pub data: Lookups,
    /// Indirect blocks, dnodes, directories, and the pool's own objects.
    pub metadata: Lookups,
    /// Records thrown out to make room.
    pub evictions: u64,
    /// Records held now.
    pub records: u64,
    /// Bytes held now.
    pub bytes: u64,
    /// Bytes held at most.
    pub limit: u64,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Counters {
    fn lookups(&self) -> Lookups {
        Lookups { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

/// Records within a byte limit.
pub struct RecordCache {
    map: Cache<Key, Record, ByBytes, DefaultHashBuilder, Evictions>,
    evictions: Evictions,
    data: Counters,
    metadata: Counters,
}

impl RecordCache {
    /// Keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> RecordCache {
        let items = (limit >> 14).clamp(64, 1 << 20) as usize;
        let evictions = Evictions::default();
        let hasher = DefaultHashBuilder::default();
        RecordCache {
            map: Cache::with(items, limit.max(1 << 20), ByBytes, hasher, evictions.clone()),
            evictions,
            data: Counters::default(),
            metadata: Counters::default(),
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
        Key {
            vdev: dva.vdev.0,
            offset: dva.offset,
            birth: block.physical_birth().0,
            sum: block.checksum.0[0],
        }
    }

    fn counters(&self, block: &Block) -> &Counters {
        let is_data = block.level == 0 && !block.object_type.is_metadata();
        if is_data { &self.data } else { &self.metadata }
    }

    /// The record of `block`, if held.
    #[must_use]
    pub fn get(&self, block: &Block) -> Option<Record> {
        let found = self.get_at_hand(block);
        if found.is_none() {
            self.counters(block).misses.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// As [`RecordCache::get`] for a caller that asks again, with the same block, if this gives nothing.
    #[must_use]
    pub fn get_at_hand(&self, block: &Block) -> Option<Record> {
        let found = self.map.get(&Self::key(block));
        if found.is_some() {
            self.counters(block).hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Keeps `record` as the content of `block`.
    pub fn insert(&self, block: &Block, record: Record) {
        self.map.insert(Self::key(block), record);
    }

    /// Removes `block` from the cache, because it is overwritten in its place or its space is free.
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
            data: self.data.lookups(),
            metadata: self.metadata.lookups(),
            evictions: self.evictions.0.load(Ordering::Relaxed),
            records: self.map.len() as u64,
            bytes: self.map.weight(),
            limit: self.map.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::blkptr::Dva;
    use format::{ChecksumKind, ObjectType, Txg, VdevId};

    fn block(offset: u64) -> Block {
        let dva = Dva { vdev: VdevId(0), asize: 512, offset, gang: false };
        Block {
            dvas: [dva, Dva { asize: 0, ..dva }, Dva { asize: 0, ..dva }],
            lsize: 64 << 10,
            psize: 64 << 10,
            checksum_kind: ChecksumKind::Fletcher4,
            ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(5))
        }
    }

    #[test]
    fn evictions_are_counted() {
        let cache = RecordCache::new(1 << 20);
        for n in 0..64 {
            cache.insert(&block(n << 20), Arc::new(vec![0; 64 << 10]));
        }
        let stats = cache.stats();
        assert!(stats.bytes <= 1 << 20 && stats.records < 16, "{stats:?}");
        assert_eq!(stats.evictions + stats.records, 64);
        cache.set_limit(8 << 20);
        for n in 64..96 {
            cache.insert(&block(n << 20), Arc::new(vec![0; 64 << 10]));
        }
        assert!(cache.stats().bytes > 1 << 20 && cache.limit() == cache.stats().limit);
        assert!(cache.get(&block(95 << 20)).is_some() && cache.get(&block(1)).is_none());
        let stats = cache.stats();
        assert_eq!(stats.data, Lookups { hits: 1, misses: 1 });
        let pointers = Block { level: 1, ..block(1) };
        assert!(cache.get(&pointers).is_none());
        assert_eq!(cache.stats().metadata, Lookups { hits: 0, misses: 1 });
    }
}

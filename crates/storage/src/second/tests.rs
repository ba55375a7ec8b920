use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use format::blkptr::{Block, Dva};
use format::l2arc::HEADER_AT;
use format::{ChecksumKind, Compression, Guid, ObjectType, Txg, VdevId};
use proptest::prelude::*;

use super::{SecondCache, SecondLimits, Secondary};
use crate::Purpose;
use crate::host::{Disk, Fault, Script, ScriptedDisk};

const POOL: Guid = Guid(11);
const DEVICE: Guid = Guid(12);
/// Large enough for log blocks of two entries.
const SIZE: u64 = 48 << 20;

fn cache(limits: SecondLimits) -> SecondCache {
    SecondCache::new(1 << 30, limits)
}

fn new_disk() -> Arc<ScriptedDisk> {
    Arc::new(Script::new().disk("cache", SIZE))
}

/// Log blocks on devices of any size.
fn logged() -> SecondLimits {
    SecondLimits { log_min: 0, ..SecondLimits::default() }
}

fn block(n: u64, psize: u64) -> Block {
    let dva = Dva { vdev: VdevId(0), asize: psize, offset: n << 20, gang: false };
    Block {
        dvas: [dva, Dva::default(), Dva::default()],
        lsize: 128 << 10,
        psize,
        compression: Compression::Lz4,
        checksum_kind: ChecksumKind::Fletcher4,
        ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(5))
    }
}

/// The content of block `n`: no two blocks are the same.
fn contents(n: u64, psize: u64) -> Vec<u8> {
    (0..psize)
        .map(|at| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (at % 8 * 8)) as u8 ^ (at >> 9) as u8)
        .collect()
}

fn offer(cache: &SecondCache, n: u64, psize: u64) {
    cache.offer(&block(n, psize), Secondary::All, &contents(n, psize));
}

/// Whether block `n` is there. Panics if the device returns other bytes.
fn has(cache: &SecondCache, n: u64, psize: u64) -> bool {
    let mut raw = Vec::new();
    let expected = contents(n, psize);
    cache.read(&block(n, psize), Purpose::SyncRead, &mut raw, |raw| {
        assert_eq!(raw, expected, "block {n}");
        true
    })
}

#[test]
fn blocks_read_from_the_pool_are_then_read_from_the_cache_device() {
    let disk = new_disk();
    let cache = cache(SecondLimits::default());
    cache.add(POOL, DEVICE, disk.clone(), 12);
    offer(&cache, 1, 0x3600);
    offer(&cache, 2, 0x20000);
    cache.write_now();
    assert!(has(&cache, 1, 0x3600) && has(&cache, 2, 0x20000) && !has(&cache, 3, 512));
    assert_eq!((cache.stats().hits, cache.stats().misses, cache.stats().written), (2, 1, 2));
    assert_eq!(cache.devices()[0].used, 0x4000 + 0x20000, "whole sectors");
    cache.forget(&block(2, 0x20000));
    assert!(!has(&cache, 2, 0x20000));
    cache.remove(DEVICE);
    assert!(!has(&cache, 1, 0x3600) && !cache.is_used() && cache.devices().is_empty());
}

#[test]
fn properties_say_what_is_put_on_a_device() {
    let cache = cache(SecondLimits::default());
    cache.add(POOL, DEVICE, new_disk(), 9);
    let metadata = Block { level: 1, ..block(2, 512) };
    let unproven = Block { checksum_kind: ChecksumKind::Off, ..block(3, 512) };
    for which in [Secondary::None, Secondary::Metadata] {
        cache.offer(&block(1, 512), which, &contents(1, 512));
    }
    cache.offer(&metadata, Secondary::Metadata, &contents(2, 512));
    cache.offer(&unproven, Secondary::All, &contents(3, 512));
    cache.write_now();
    assert_eq!(cache.stats().written, 1);
    assert!(has(&cache, 2, 512) && !has(&cache, 1, 512) && !has(&cache, 3, 512));
}

#[test]
fn bytes_with_a_wrong_checksum_are_not_used_again() {
    let disk = new_disk();
    let cache = cache(SecondLimits::default());
    cache.add(POOL, DEVICE, disk.clone(), 9);
    offer(&cache, 1, 0x2000);
    cache.write_now();
    let mut raw = Vec::new();
    assert!(!cache.read(&block(1, 0x2000), Purpose::SyncRead, &mut raw, |_| false));
    assert!(!has(&cache, 1, 0x2000), "it is forgotten");
    assert_eq!(cache.stats().bad, 1);
    assert_eq!(cache.devices()[0].io.checksum_errors, 1);
}

#[test]
fn a_device_that_refuses_a_write_is_used_no_more() {
    let script = Script::new();
    let disk = script.disk("cache", SIZE);
    let cache = cache(SecondLimits::default());
    cache.add(POOL, DEVICE, Arc::new(disk.clone()), 9);
    offer(&cache, 1, 0x2000);
    cache.write_now();
    disk.inject(Fault::WriteError { from_op: script.op_count() });
    offer(&cache, 2, 0x2000);
    cache.write_now();
    assert!(!has(&cache, 1, 0x2000) && !has(&cache, 2, 0x2000));
    assert!(cache.devices()[0].failed.is_some());
    offer(&cache, 3, 0x2000);
    cache.write_now();
    assert_eq!(cache.stats().written, 1);
}

/// Offers `count` blocks of changing sizes, some at a time. Returns their sizes.
fn fill(cache: &SecondCache, count: u64, at_a_time: u64, seed: u64) -> BTreeMap<u64, u64> {
    let size = |n: u64| 512 * (1 + (n.wrapping_add(seed)).wrapping_mul(0x5851_f42d_4c95_7f2d) % 256);
    for n in 0..count {
        offer(cache, n, size(n));
        if n % at_a_time == 0 {
            cache.write_now();
        }
    }
    cache.write_now();
    (0..count).map(|n| (n, size(n))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// However often the device was filled, the blocks of the index are there, and so are those that the next import
    /// finds.
    #[test]
    fn newer_blocks_take_the_place_of_the_oldest(
        count in 1u64..1_200, at_a_time in 1u64..60, seed: u64, ashift in 9u32..14,
    ) {
        let disk = new_disk();
        let first = cache(logged());
        first.add(POOL, DEVICE, disk.clone(), ashift);
        let sizes = fill(&first, count, at_a_time, seed);
        let there = sizes.iter().filter(|(n, size)| has(&first, **n, **size)).count() as u64;
        let stats = first.stats();
        prop_assert_eq!(stats.written, count);
        prop_assert_eq!(there + stats.evicted, count);
        let device = &first.devices()[0];
        prop_assert!(device.used <= device.size);
        first.leave();

        let second = cache(logged());
        second.add(POOL, DEVICE, disk, ashift);
        second.write_now();
        let found = sizes.iter().filter(|(n, size)| has(&second, **n, **size)).count() as u64;
        prop_assert_eq!(found, second.stats().restored);
        // Blocks that no log block lists are lost. So are blocks whose log block was overwritten.
        prop_assert!(found <= there && found + 8 >= there, "{} of {}", found, there);
    }

    /// Whatever a device holds, it is looked through without harm.
    #[test]
    fn a_damaged_device_gives_fewer_blocks(places in proptest::collection::vec((0..SIZE - 8, any::<u64>()), 1..400)) {
        let disk = new_disk();
        let first = cache(logged());
        first.add(POOL, DEVICE, disk.clone(), 9);
        let sizes = fill(&first, 900, 50, 3);
        first.leave();
        for (place, word) in places {
            disk.write_at(&[IoSlice::new(&word.to_le_bytes())], place).expect("inside the disk");
        }
        let second = cache(logged());
        second.add(POOL, DEVICE, disk, 9);
        second.write_now();
        for (n, size) in sizes {
            let expected = contents(n, size);
            second.read(&block(n, size), Purpose::SyncRead, &mut Vec::new(), |raw| raw == expected);
        }
    }

    /// A header with a right checksum may still say anything.
    #[test]
    fn a_hostile_header_is_harmless(words in proptest::collection::vec((5usize..29, any::<u64>()), 1..6), near: bool) {
        let disk = new_disk();
        let first = cache(logged());
        first.add(POOL, DEVICE, disk.clone(), 9);
        fill(&first, 900, 50, 3);
        first.leave();
        let mut raw = vec![0; 512];
        disk.read_at(&mut raw, HEADER_AT).expect("readable");
        for (index, word) in words {
            let word = if near { word % SIZE } else { word };
            raw[8 * index..][..8].copy_from_slice(&word.to_le_bytes());
        }
        codec::embedded::seal(&mut raw, [HEADER_AT, 0, 0, 0]);
        disk.write_at(&[IoSlice::new(&raw)], HEADER_AT).expect("inside the disk");
        let second = cache(logged());
        second.add(POOL, DEVICE, disk, 9);
        second.write_now();
        fill(&second, 300, 50, 4);
    }
}

#[test]
fn a_cache_device_of_another_pool_starts_empty() {
    let disk = new_disk();
    let first = cache(logged());
    first.add(POOL, DEVICE, disk.clone(), 9);
    fill(&first, 50, 10, 0);
    first.leave();
    let second = cache(logged());
    second.add(Guid(99), DEVICE, disk, 9);
    second.write_now();
    assert_eq!(second.stats().restored, 0);
}

//! Cache devices: blocks that were read from the pool are then read from them, also after the next import. OpenZFS's
//! zdb judges their contents.

mod support;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use format::ObjectId;
use pool::NewDevices;
use support::{Bed, disk};
use zpl::{FileKind, NewNode};

const RECORD: u64 = 128 << 10;
/// More than two log blocks list on a device of [`SIZE`].
const RECORDS: u64 = 300;
/// From 1 GiB on contents are kept across imports. The file has holes.
const SIZE: u64 = 2 << 30;

/// Half noise, half zeros.
fn record(number: u64) -> Vec<u8> {
    let mut x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; RECORD as usize];
    for word in bytes[..RECORD as usize / 2].chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
    bytes
}

/// A pool with a file, and the path of its cache.
fn with_file(properties: &[(&str, u64)]) -> (Bed, PathBuf, ObjectId) {
    let lz4 = ("compression", format::compression::CompressionSetting::LZ4.to_property());
    let bed = Bed::new(7, &[&[lz4], properties].concat(), 0, 0);
    let path = bed.path().with_file_name("cache");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    bed.pool().add(NewDevices { caches: vec![disk(&path, true)], ..NewDevices::default() }).unwrap();
    let id = bed.fs().create(bed.fs().root(), b"file", &NewNode::new(FileKind::Regular, 0o644)).unwrap();
    for number in 0..RECORDS {
        bed.fs().write_record(id, number * RECORD, record(number)).unwrap();
    }
    bed.pool().sync().unwrap();
    (bed, path, id)
}

/// Reads all records past the memory. Returns how many blocks came from the pool's own disk.
fn read_all(bed: &Bed, id: ObjectId) -> u64 {
    let storage = bed.pool().storage();
    storage.cache().clear();
    let reads = || storage.vdevs().leaves().map(|leaf| leaf.meter.stats().reads).sum::<u64>();
    let before = reads();
    let mut found = vec![0; RECORD as usize];
    for number in 0..RECORDS {
        assert_eq!(bed.fs().read(id, number * RECORD, &mut found).unwrap(), RECORD as usize);
        assert!(found == record(number), "record {number}");
    }
    storage.second().write_now();
    reads() - before
}

/// The output of `zdb -l` for a cache device; `None` where there is no zdb.
fn zdb(path: &Path) -> Option<String> {
    let path_of_zdb = "/usr/sbin:/sbin:/usr/bin:/bin";
    let out = Command::new("zdb").env("PATH", path_of_zdb).arg("-lll").arg(path).output().ok()?;
    Some(String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
}

#[test]
fn a_file_is_read_from_the_cache_device_also_after_an_import() {
    let (mut bed, cache, id) = with_file(&[]);
    assert!(read_all(&bed, id) >= RECORDS, "nothing was on the cache");
    assert_eq!(read_all(&bed, id), 0, "all was on the cache: {:?}", bed.pool().storage().second().stats());
    bed.close();
    if let Some(said) = zdb(&cache) {
        assert!(
            said.contains("log_blk_ent: 127\n")
                && said.contains("log_blk_count:\t 2 with valid cksum\n\t\t 0 with"),
            "{said}"
        );
    }
    bed.reopen();
    // The caches are looked through in the background.
    bed.pool().storage().second().write_now();
    let stats = bed.pool().storage().second().stats();
    assert!(stats.restored >= 254, "two log blocks list 254 buffers: {stats:?}");
    let from_pool = read_all(&bed, id);
    assert!(from_pool < RECORDS / 2, "{from_pool} reads");
    assert_eq!(bed.pool().storage().second().stats().bad, 0);
    // New contents in old places are not mistaken for the old ones.
    for number in 0..RECORDS {
        bed.fs().write_record(id, number * RECORD, record(number + 1)).unwrap();
    }
    for _ in 0..4 {
        bed.pool().sync().unwrap();
    }
    bed.pool().storage().cache().clear();
    let mut found = vec![0; RECORD as usize];
    bed.fs().read(id, 5 * RECORD, &mut found).unwrap();
    assert!(found == record(6));
    bed.close();
    bed.expect_clean_as_left();
    bed.ask_zdb(&[cache.to_str().unwrap()]);
}

#[test]
fn a_cache_device_that_is_lost_or_changed_harms_nothing() {
    let (mut bed, cache, id) = with_file(&[]);
    read_all(&bed, id);
    bed.close();
    // Every second sector behind the header is overwritten.
    let file = std::fs::OpenOptions::new().write(true).open(&cache).unwrap();
    for place in (5 << 20..32 << 20).step_by(1024) {
        file.write_all_at(&[0xee; 512], place).unwrap();
    }
    bed.reopen();
    bed.pool().storage().second().write_now();
    read_all(&bed, id);
    bed.close();
    std::fs::remove_file(&cache).unwrap();
    bed.reopen();
    read_all(&bed, id);
    assert!(bed.pool().storage().second().devices().is_empty());
    bed.close();
    bed.expect_clean_as_left();
}

#[test]
fn secondarycache_is_heeded() {
    // 1: metadata.
    let (bed, _, id) = with_file(&[("secondarycache", 1)]);
    read_all(&bed, id);
    let written = bed.pool().storage().second().stats().written;
    assert!(written > 0 && written < 40, "{written} blocks of metadata");
    bed.set("tank/fs", "secondarycache", 0).unwrap();
    bed.pool().storage().cache().clear();
    assert!(read_all(&bed, id) >= RECORDS);
    assert!(bed.pool().storage().second().stats().written < 60, "only blocks of the pool itself");
    bed.set("tank/fs", "secondarycache", 2).unwrap();
    bed.set("tank/fs", "primarycache", 0).unwrap();
    read_all(&bed, id);
    assert!(
        bed.pool().storage().second().stats().written < 80,
        "what does not enter the memory does not leave it"
    );
}

//! Send streams against those of OpenZFS.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use codec::RunningFletcher4;
use format::stream::{self, Record};
use pool::{Options, Pool, SendFlags};
use storage::host::{Access, Disk};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");

fn unpack(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new(format!("{GOLDEN}/unpack")).arg(name).arg(dir.path()).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    dir
}

fn import(dir: &Path, name: &str) -> Pool {
    let image: PathBuf = dir.join(format!("{name}.0.img"));
    let disk: Arc<dyn Disk> =
        Arc::new(pool::open_disk(&image, Access::ReadWrite { exclusive: true }).unwrap());
    Pool::import_disks(vec![disk], Options { read_only: true, ..Options::default() }).unwrap()
}

/// Records of a stream with what follows them; panics on a wrong checksum.
fn records(bytes: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    let order = stream::order_of(rest[..stream::RECORD].try_into().unwrap()).unwrap();
    let mut sum = RunningFletcher4::new(order);
    while !rest.is_empty() {
        let raw: &[u8; stream::RECORD] = rest[..stream::RECORD].try_into().unwrap();
        let record = Record::decode(raw, order).unwrap();
        let len = record.payload_len() as usize;
        let payload = &rest[stream::RECORD..stream::RECORD + len];
        if matches!(record, Record::Begin(_)) {
            sum = RunningFletcher4::new(order);
        }
        let before = sum.sum();
        sum.add(&raw[..stream::CHECKSUM_AT]);
        let stored = stream::checksum(raw, order);
        if !matches!(record, Record::Begin(_)) && stored != format::Checksum::default() {
            assert_eq!(stored, sum.sum(), "record {}: {record:?}", found.len());
        }
        if let Record::End(end) = &record
            && end.checksum != format::Checksum::default()
        {
            assert_eq!(end.checksum, before, "the sum of all before the end");
        }
        sum.add(&raw[stream::CHECKSUM_AT..]);
        sum.add(payload);
        found.push((record, payload.to_vec()));
        rest = &rest[stream::RECORD + len..];
    }
    assert!(matches!(found.last(), Some((Record::End(_), _))), "a stream ends");
    found
}

fn streams(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "zstream"))
        .collect();
    found.sort();
    found
}

#[test]
fn every_stream_of_openzfs_decodes_to_its_end_with_right_checksums() {
    let mut count = 0;
    for pool in ["gsend", "gresume"] {
        let dir = unpack(pool);
        for path in streams(dir.path()) {
            for (record, payload) in records(&std::fs::read(&path).unwrap()) {
                if let (Record::Begin(begin), false) = (&record, payload.is_empty()) {
                    let list = format::NvList::decode(&payload).unwrap();
                    assert!(!list.is_empty(), "{begin:?}");
                }
                if !matches!(record, Record::End(_)) {
                    let again = Record::decode(&record.encode(), format::ByteOrder::Little);
                    assert_eq!(again.as_ref(), Ok(&record));
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, 21);
}

fn send(pool: &Pool, snapshot: &str, from: Option<&str>, flags: SendFlags) -> Vec<u8> {
    let mut out = Vec::new();
    let from = from.map(|from| pool.send_source(from).unwrap());
    let bytes = pool.send(snapshot, from.as_ref(), flags, &mut out, &mut |_| {}).unwrap();
    assert_eq!(bytes, out.len() as u64);
    out
}

fn expect_same(name: &str, ours: &[u8], dir: &Path) {
    let theirs = std::fs::read(dir.join(format!("gsend.{name}.zstream"))).unwrap();
    if ours == theirs {
        return;
    }
    let (ours, theirs) = (records(ours), records(&theirs));
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert!(a.0 == b.0, "{name}: record {i}: ours {:?}, theirs {:?}", a.0, b.0);
        assert!(a.1 == b.1, "{name}: payload of record {i}: {:?}\n{:?}\n{:?}", a.0, a.1, b.1);
    }
    panic!("{name}: {} records, not {}", ours.len(), theirs.len());
}

#[test]
fn streams_are_those_of_openzfs_byte_for_byte() {
    let dir = unpack("gsend");
    let pool = import(dir.path(), "gsend");
    let plain = SendFlags::default();
    let compressed = SendFlags { compressed: true, ..plain };
    let large = SendFlags { large_blocks: true, ..plain };
    let all = SendFlags { large_blocks: true, embedded: true, compressed: true };
    let both = SendFlags { embedded: false, ..all };
    for (name, snapshot, from, flags) in [
        ("full", "gsend/fs@a", None, plain),
        ("incr", "gsend/fs@b", Some("gsend/fs@a"), plain),
        ("from-bookmark", "gsend/fs@c", Some("gsend/fs#a"), plain),
        ("compressed", "gsend/fs@b", None, compressed),
        ("large", "gsend/large@s", None, large),
        ("large-compressed", "gsend/large@s", None, both),
        ("nolarge", "gsend/large@s", None, plain),
        ("embedded", "gsend/fs@a", None, SendFlags { embedded: true, ..plain }),
        ("all-flags", "gsend/fs@b", None, all),
        ("raw-plain", "gsend/fs@a", None, all),
        ("volume", "gsend/vol@v", None, plain),
        ("clone", "gsend/tree/clone@r2", Some("gsend/tree/child@r1"), plain),
    ] {
        expect_same(name, &send(&pool, snapshot, from, flags), dir.path());
    }
    let mut package = Vec::new();
    let from = pool.send_source("gsend/fs@a").unwrap();
    pool.send_between("gsend/fs@c", &from, plain, &mut package, &mut |_| {}).unwrap();
    expect_same("incr-all", &package, dir.path());
}

#[test]
fn only_what_came_before_is_a_source() {
    let dir = unpack("gsend");
    let pool = import(dir.path(), "gsend");
    for (to, from) in [("fs@a", "fs@b"), ("fs@a", "fs@a"), ("fs@b", "large@s"), ("tree/clone@r2", "tree@r1")]
    {
        let from = pool.send_source(&format!("gsend/{from}")).unwrap();
        let error = pool
            .send(&format!("gsend/{to}"), Some(&from), SendFlags::default(), &mut Vec::new(), &mut |_| {})
            .unwrap_err();
        assert!(matches!(error, pool::Error::NotEarlier(_)), "{to}: {error}");
    }
    assert!(matches!(pool.send_source("gsend/fs#none"), Err(pool::Error::NoDataset(_))));
}

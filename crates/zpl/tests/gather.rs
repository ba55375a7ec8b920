//! Writes all over a file reach the disk side by side: a transaction group gathers them, and they are placed in order.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::props::Value;
use pool::{CreateSpec, Options, Pool};
use storage::host::scripted::Op;
use storage::host::{Host, ScriptedDisk};
use support::new_filesystem;
use zpl::{FileKind, Filesystem, NewNode};

const RECORD: u64 = 8 << 10;
const RECORDS: u64 = 2048;
const OFF: u64 = 2;

fn made(disk: &ScriptedDisk) -> Pool {
    let options = Options { host: Host::seeded(1, 1_700_000_000), stepwise: true, ..Options::default() };
    let filesystem = new_filesystem(&options.host, 0, 0);
    let spec = CreateSpec {
        ashift: Some(12),
        ..CreateSpec::new("tank", vec![Arc::new(disk.clone())], filesystem.clone(), zpl::initialiser())
    };
    let pool = Pool::create(spec, options).unwrap();
    let local = [("recordsize", RECORD), ("compression", OFF)];
    let local = local.map(|(name, value)| (name.to_owned(), Value::Number(value))).to_vec();
    pool.create_filesystem("tank/fs", local, filesystem, zpl::initialiser()).unwrap();
    pool
}

/// Bytes that say which record they are of, and which version.
fn record(number: u64, version: u8) -> Vec<u8> {
    let words =
        (0..RECORD / 8).flat_map(|word| (number << 32 | word << 8 | u64::from(version)).to_le_bytes());
    words.collect()
}

/// A program writes pieces of a record anywhere, and the device sees writes ten times as long and more.
#[test]
fn writes_anywhere_reach_the_disk_in_long_runs() {
    let disk = ScriptedDisk::new(256 << 20);
    let pool = made(&disk);
    let fs = Filesystem::open(pool.open("tank/fs").unwrap()).unwrap();
    let id = fs.create(fs.root(), b"database", &NewNode::new(FileKind::Regular, 0o644)).unwrap();
    for version in 0..2 {
        disk.script().forget();
        // Every record once, each far from the one before.
        for n in 0..RECORDS {
            let number = n * 1237 % RECORDS;
            fs.write(id, number * RECORD, &record(number, version)).unwrap();
        }
        pool.sync().unwrap();
        let ops = disk.script().ops();
        // Without labels and uberblocks, and without metadata, which is smaller.
        let long = |op: &Op| match op {
            Op::Write { bytes, .. } if bytes.len() as u64 >= RECORD => Some(bytes.len() as u64),
            _ => None,
        };
        let writes: Vec<u64> = ops.iter().filter_map(long).collect();
        let bytes: u64 = writes.iter().sum();
        let mean = bytes / writes.len() as u64;
        let mut sizes: BTreeMap<u64, u32> = BTreeMap::new();
        writes.iter().for_each(|len| *sizes.entry(*len).or_default() += 1);
        assert!(bytes >= RECORDS * RECORD, "{sizes:?}");
        assert!(mean >= 10 * RECORD, "version {version}: writes of {mean} bytes on average: {sizes:?}");
    }
    for number in 0..RECORDS {
        let mut bytes = vec![0; RECORD as usize];
        fs.read(id, number * RECORD, &mut bytes).unwrap();
        assert_eq!(bytes, record(number, 1), "record {number}");
    }
    let mut findings = Vec::new();
    scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
}

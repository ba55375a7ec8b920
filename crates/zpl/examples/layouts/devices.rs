//! Rates with slow devices: of a scrub of a fragmented pool, and of reads from a cache device, each as a share of the
//! device's rate for sequential reads.
//!
//! The scrubbed pool is fragmented: records are written anew in random order over many txgs, and every second file is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::ObjectId;
use pool::props::Value;
use pool::{CreateSpec, Layout, NewDevices, NewFilesystem, NewTop, Options, Pool};
use scan::Scans;
use storage::host::{Access, Disk};
use zpl::{FileKind, Filesystem, NewNode};

use crate::measure::{self, Clock, Limits, Took};

/// Rounds in which a quarter of all records is written anew.
const ROUNDS: usize = 6;
/// Syncs in a round.
const TXGS: usize = 8;
const FILES: usize = 32;

/// Bytes that the pool holds.
const BYTES: u64 = 512 << 20;
const RECORD: u64 = 16 << 10;
/// Times that all is read from a pool with a cache device, at most.
const PASSES_MAX: usize = 12;

/// Numbers that look random, the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        for word in buffer.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

fn device(path: &Path, limits: Option<Limits>) -> Arc<dyn Disk> {
    measure::open(path, Access::ReadWrite { exclusive: true }, limits)
}

fn image(dir: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("the image is created");
    path
}

fn create(path: &Path) -> Pool {
    let options = Options::default();
    let plain = NewFilesystem::plain(&options.host);
    let spec = CreateSpec {
        ashift: Some(12),
        tops: vec![NewTop::new(Layout::Single, vec![device(path, None)])],
        root_properties: vec![
            ("compression".into(), Value::Number(format::compression::CompressionSetting::OFF.to_property())),
            ("recordsize".into(), Value::Number(RECORD)),
        ],
        ..CreateSpec::new("engine", Vec::new(), plain, zpl::initialiser())
    };
    Pool::create(spec, options).expect("the pool is created")
}

fn open(pool: &Pool) -> Filesystem {
    Filesystem::open(pool.open("engine").expect("the root exists")).expect("it is a file system")
}

/// Fills the pool; returns the files that stay.
fn fill(pool: &Pool, fragments: bool) -> Vec<ObjectId> {
    let fs = open(pool);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let records = BYTES / RECORD / FILES as u64;
    let new = NewNode::new(FileKind::Regular, 0o644);
    let name = |n: usize| format!("file{n}");
    let write = |id: ObjectId, number: u64, noise: &mut Noise| {
        let mut buffer = fs.record_buffer(RECORD as usize);
        noise.fill(&mut buffer);
        fs.write_record(id, number * RECORD, buffer).expect("written");
    };
    // Half of the files are removed again.
    let files: Vec<ObjectId> = (0..FILES * if fragments { 2 } else { 1 })
        .map(|n| {
            let id = fs.create(fs.root(), name(n).as_bytes(), &new).expect("created");
            for number in 0..records {
                write(id, number, &mut noise);
            }
            id
        })
        .collect();
    pool.sync().expect("durable");
    if !fragments {
        return files;
    }
    for round in 0..ROUNDS {
        for _ in 0..TXGS {
            for _ in 0..records * FILES as u64 / 4 / TXGS as u64 {
                let file = files[noise.next() as usize % FILES * 2];
                write(file, noise.next() % records, &mut noise);
            }
            pool.sync().expect("durable");
        }
        // The removed files leave room between the others.
        for n in (0..FILES * 2).filter(|n| n % 2 == 1 && n / 2 % ROUNDS == round) {
            fs.unlink(fs.root(), name(n).as_bytes()).expect("removed");
        }
    }
    pool.sync().expect("durable");
    files.into_iter().step_by(2).collect()
}

fn import(paths: &[&Path], limits: Option<Limits>, options: Options) -> Pool {
    let disks = paths.iter().map(|path| {
        let disk = device(path, limits);
        disk.flush().expect("flushed");
        disk.drop_cache();
        disk
    });
    Pool::import_disks(disks.collect(), options).expect("imports")
}

fn row(name: &str, bytes: u64, took: Took, limits: Limits) {
    let rate = bytes as f64 / 1e6 / took.seconds;
    println!(
        "{name:<28} {:>7.0} MB {:>7.1} MB/s {:>6.2} of the device {:>4.0}% others",
        bytes as f64 / 1e6,
        rate,
        rate / f64::from(limits.rate),
        100.0 * took.others
    );
}

fn scrub(dir: &Path, limits: Limits) {
    let path = image(dir, "scrubbed", BYTES * 4);
    let pool = create(&path);
    fill(&pool, true);
    pool.export().expect("exported");
    let pool = import(&[&path], Some(limits), Options::default());
    let clock = Clock::start();
    pool.scrub().expect("it begins");
    pool.wait_scrub().expect("it ends");
    let took = clock.took();
    let done = pool.scan().expect("readable").expect("there was one").scan;
    assert_eq!(done.errors, 0, "every block is good");
    row("scrub, fragmented", done.examined, took, limits);
    pool.export().expect("exported");
    std::fs::remove_file(&path).expect("removed");
}

/// Reads a set that is larger than the memory and smaller than the cache device.
fn second(dir: &Path, limits: Limits) {
    let (path, cache) = (image(dir, "pool", BYTES * 2), image(dir, "cache", BYTES * 2));
    let pool = create(&path);
    let files = fill(&pool, false);
    pool.export().expect("exported");
    let options = Options { cache_bytes: BYTES / 8, ..Options::default() };
    let pool = import(&[&path], None, options);
    let caches = vec![device(&cache, Some(limits))];
    pool.add(NewDevices { caches, ..NewDevices::default() }).expect("added");
    let from_pool = || {
        let leaves = pool.storage().vdevs().leaves().map(|leaf| leaf.meter.stats().read_bytes);
        leaves.sum::<u64>()
    };
    // Blocks for which the device has no time during one pass are fed to it during the next.
    for _ in 0..PASSES_MAX {
        let before = from_pool();
        let took = measure::read(&pool, &files, measure::cores());
        pool.storage().second().write_now();
        let read = from_pool() - before;
        row("reads, cache device", BYTES, took, limits);
        println!("{:<28} {} MB of them from the pool's own device", "", read / 1_000_000);
        if read < BYTES / 50 {
            break;
        }
    }
    drop(pool);
    for path in [path, cache] {
        std::fs::remove_file(path).expect("removed");
    }
}

/// Measures what is asked for.
pub fn measure(dir: &Path, limits: Limits, asks_for: &dyn Fn(&str) -> bool) {
    if asks_for("scrub") {
        scrub(dir, limits);
    }
    if asks_for("cache") {
        second(dir, limits);
    }
}

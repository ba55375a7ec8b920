//! The cost of redundancy and deduplication, in one run: each layout beside a stripe, and each checksum of `dedup`
//! beside none.
//!
//! `cargo run --release -p cenote-zpl --example layouts -- [--copies N] [--runs N] [--compression off|lz4|zstd-3] [--only NAME,…]
//! [--device-rate MB [--seek MS]] [--entries N] FILE…`
//! Files are read into memory first, and no two records are equal: each record of a copy is marked with its number. Columns are
//! MB/s of logical data; in brackets, the share of the row that the table names as the peer. "cold read" follows an import with cold caches;
//! "degraded" is the same with the first device of each vdev missing. The fastest of the runs counts; "others" is the share
//! of the cores that other processes took while it wrote. With `--device-rate` each device
//! reads and writes no more than that many MB/s; with `--seek`, going to another place takes so many milliseconds. A scrub of a fragmented pool (`scrub`) and reads from a cache device (`cache`) are measured on such devices only. With `--entries` the dedup tables have so many entries of other blocks before anything is
//! written. Images are in `TMPDIR`:
//! on a file system in memory the processor is measured, on a disk also the disk.

mod devices;
#[path = "../measure/mod.rs"]
mod measure;

use std::path::{Path, PathBuf};

use format::blkptr::{Block, Dva};
use format::compression::{CompressionSetting, ZstdLevel};
use format::{Checksum, ChecksumKind, ObjectType, Txg, VdevId};
use measure::{Limits, Took};
use pool::props::Value;
use pool::{CreateSpec, Layout, NewFilesystem, NewTop, Options, Pool};
use storage::host::Access;

/// As in the program itself: records of one size come and go on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of space for an entry of a dedup table.
const ENTRY_ROOM: u64 = 700;
/// Entries that are made with each txg.
const ENTRIES_AT_ONCE: usize = 200_000;

/// Txgs after which hardly anything waits in the logs of dedup tables.
const SETTLED_TXGS: usize = 64;

/// A kind of pool, and the kind that it is compared with.
struct Case {
    name: &'static str,
    /// Top-level vdevs: how many, of which layout, of how many devices.
    tops: usize,
    layout: Layout,
    width: usize,
    /// The value of the property `dedup`.
    dedup: Option<&'static str>,
    /// Its tables have logs.
    has_logs: bool,
    peer: &'static str,
}

impl Case {
    const fn of(name: &'static str, tops: usize, layout: Layout, width: usize, peer: &'static str) -> Case {
        Case { name, tops, layout, width, dedup: None, has_logs: false, peer }
    }

    const fn deduplicated(name: &'static str, checksum: &'static str) -> Case {
        Case { dedup: Some(checksum), ..Case::of(name, 1, Layout::Single, 1, "one") }
    }

    /// The same with logs.
    const fn logged(name: &'static str, checksum: &'static str) -> Case {
        Case { has_logs: true, ..Case::deduplicated(name, checksum) }
    }

    /// With one device of each vdev missing, the pool is still whole.
    fn is_redundant(&self) -> bool {
        self.layout != Layout::Single
    }
}

const CASES: [Case; 13] = [
    Case::of("one", 1, Layout::Single, 1, "one"),
    Case::of("stripe4", 4, Layout::Single, 1, "one"),
    Case::of("stripe9", 9, Layout::Single, 1, "one"),
    Case::of("mirror2", 1, Layout::Mirror, 2, "one"),
    Case::of("raidz1-5", 1, Layout::Raidz(1), 5, "stripe4"),
    Case::of("raidz2-6", 1, Layout::Raidz(2), 6, "stripe4"),
    Case::of("raidz3-7", 1, Layout::Raidz(3), 7, "stripe4"),
    Case::deduplicated("sha256", "on"),
    Case::logged("sha256-log", "on"),
    Case::deduplicated("sha256,verify", "sha256,verify"),
    Case::deduplicated("sha512", "sha512"),
    Case::deduplicated("skein", "skein"),
    Case::deduplicated("blake3", "blake3"),
];

/// The figures of a case.
struct Row {
    name: &'static str,
    wrote: Took,
    read: Took,
    degraded: Option<Took>,
}

fn create(case: &Case, images: &[PathBuf], bytes: u64, given: &Given) -> Pool {
    // Room for the data and three quarters more on each vdev, whatever its layout, and for entries of dedup tables.
    let bytes = bytes + given.entries.map_or(0, |entries| entries * ENTRY_ROOM);
    let size = (bytes * 7 / 4 / case.tops as u64 * 2 / case.width.div_ceil(2) as u64).max(128 << 20);
    for image in images {
        std::fs::File::create(image).and_then(|file| file.set_len(size)).expect("the image is created");
    }
    let options = Options::default();
    let plain = NewFilesystem::plain(&options.host);
    let open = |path: &PathBuf| measure::open(path, Access::ReadWrite { exclusive: true }, given.limits);
    let tops = images.chunks(case.width);
    let tops = tops.map(|of| NewTop::new(case.layout, of.iter().map(open).collect()));
    let mut root = vec![("compression".into(), Value::Number(given.compression.to_property()))];
    if let Some(word) = case.dedup {
        let value = pool::props::dataset::parse("dedup").and_then(|property| property.parse_value(word).ok());
        root.push(("dedup".into(), value.expect("a value of dedup")));
    }
    let mut plain = CreateSpec::new("engine", Vec::new(), plain, zpl::initialiser());
    if case.has_logs {
        plain.features.push(&format::features::FAST_DEDUP);
    }
    let spec = CreateSpec { ashift: Some(12), tops: tops.collect(), root_properties: root, ..plain };
    Pool::create(spec, options).expect("the pool is created")
}

/// Bytes of memory that this process holds.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells");
    let pages: Option<u64> = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.expect("a number of pages") * rustix::param::page_size() as u64
}

/// Fills the dedup table of SHA-256 with so many entries of blocks that are not there, in the order of their keys, and prints what they
/// take. Then reads them all, so that the cache holds as much of the table as it can.
fn fill(pool: &Pool, entries: u64) {
    let before = resident_bytes();
    let started = std::time::Instant::now();
    let step = u64::MAX / entries;
    for first in (0..entries).step_by(ENTRIES_AT_ONCE) {
        let last = (first + ENTRIES_AT_ONCE as u64).min(entries);
        let blocks = (first..last).map(move |number| {
            let dva = Dva { vdev: VdevId(0), asize: 128 << 10, offset: number << 17, gang: false };
            let noise = |seed: u64| (number + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            Block {
                dvas: [dva, Dva::default(), Dva::default()],
                lsize: 128 << 10,
                psize: 128 << 10,
                checksum_kind: ChecksumKind::Sha256,
                checksum: Checksum([number * step + noise(0) % step, noise(1), noise(2), noise(3)]),
                dedup: true,
                ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(4))
            }
        });
        pool.run(move |syncing| syncing.enter_shared(blocks)).expect("entered");
    }
    // In these txgs the entries of the logs are moved into the tables.
    for _ in 0..SETTLED_TXGS {
        pool.sync().expect("durable");
    }
    pool.prefetch_dedup().expect("read");
    let figures = pool.dedup().expect("counted").figures;
    let each = |bytes: u64| bytes / entries;
    println!(
        "{} entries in {:.0} s: {} bytes each on disk, {} in core, {} more of memory",
        figures.entries,
        started.elapsed().as_secs_f64(),
        each(figures.on_disk),
        each(figures.in_core),
        each(resident_bytes().saturating_sub(before))
    );
}

fn measured(case: &Case, dir: &Path, files: &[Vec<u8>], given: &Given) -> Row {
    let images: Vec<PathBuf> = (0..case.tops * case.width).map(|n| dir.join(format!("image{n}"))).collect();
    let bytes = files.iter().map(|file| file.len() as u64).sum();
    let mut row = Row { name: case.name, wrote: Took::FOREVER, read: Took::FOREVER, degraded: None };
    for _ in 0..given.runs {
        let pool = create(case, &images, bytes, given);
        if let Some(entries) = given.entries.filter(|_| case.dedup.is_some()) {
            fill(&pool, entries);
        }
        let (took, ids) = measure::write(&pool, files);
        row.wrote = row.wrote.best(took);
        pool.export().expect("exported");
        let cold = |images: &[PathBuf]| {
            measure::read(&measure::import(images, given.limits, Options::default()), &ids, measure::cores())
        };
        row.read = row.read.best(cold(&images));
        if case.is_redundant() {
            let left: Vec<PathBuf> = images
                .iter()
                .enumerate()
                .filter(|(n, _)| n % case.width != 0)
                .map(|(_, path)| path.clone())
                .collect();
            row.degraded = Some(row.degraded.unwrap_or(Took::FOREVER).best(cold(&left)));
        }
    }
    for image in images {
        std::fs::remove_file(image).expect("removed");
    }
    row
}

/// The settings of the command line.
struct Given {
    copies: usize,
    runs: usize,
    compression: CompressionSetting,
    only: Option<String>,
    /// The limits of each device.
    limits: Option<Limits>,
    /// Entries of the dedup tables before anything is written.
    entries: Option<u64>,
    files: Vec<PathBuf>,
}

impl Given {
    /// Whether the case of this name is to be measured.
    fn asks_for(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|asked| asked == name))
    }
}

fn given() -> Given {
    let mut given = Given {
        copies: 1,
        runs: 2,
        compression: CompressionSetting::OFF,
        only: None,
        limits: None,
        entries: None,
        files: Vec::new(),
    };
    let (mut rate, mut seek) = (None, 0.0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--copies" => given.copies = number(),
            "--runs" => given.runs = number(),
            "--entries" => given.entries = Some(number() as u64),
            "--device-rate" => rate = Some(number() as u32),
            "--seek" => seek = number() as f64,
            "--only" => given.only = args.next(),
            "--compression" => {
                given.compression = match args.next().as_deref() {
                    Some("off") => CompressionSetting::OFF,
                    Some("lz4") => CompressionSetting::LZ4,
                    Some("zstd-3") => CompressionSetting::zstd(ZstdLevel::Level(3)),
                    _ => panic!("--compression off, lz4 or zstd-3"),
                }
            }
            path => given.files.push(path.into()),
        }
    }
    given.limits = rate.map(|rate| Limits { rate, seek });
    given
}

/// The files, as often as asked, with a number in the middle of each record, so that no two records are equal.
fn unique(given: &Given) -> Vec<Vec<u8>> {
    let read = |_| given.files.iter().map(|path| std::fs::read(path).expect("the file is read"));
    let mut files: Vec<Vec<u8>> = (0..given.copies).flat_map(read).collect();
    for (n, record) in files.iter_mut().flat_map(|file| file.chunks_mut(measure::RECORD)).enumerate() {
        let middle = record.len() / 2;
        let number = (n as u64).to_le_bytes();
        if let Some(place) = record.get_mut(middle..middle + number.len()) {
            place.copy_from_slice(&number);
        }
    }
    files
}

fn main() {
    let given = given();
    let files = unique(&given);
    let bytes: usize = files.iter().map(Vec::len).sum();
    let dir = tempfile::tempdir().expect("a temporary folder");
    println!(
        "{} MB, compression {:?}; MB/s and share of the peer",
        bytes / 1_000_000,
        given.compression.algorithm
    );
    println!(
        "{:<14} {:<8} {:>14} {:>14} {:>20} {:>7}",
        "", "peer", "write", "cold read", "degraded, of whole", "others"
    );
    let mut rows: Vec<Row> = Vec::new();
    for case in &CASES {
        if !given.asks_for(case.name) {
            continue;
        }
        rows.push(measured(case, dir.path(), &files, &given));
        let row = rows.last().expect("one was measured");
        let peer = rows.iter().find(|other| other.name == case.peer).unwrap_or(row);
        let rate = |took: Took, peer: Took| {
            format!("{:>6.0} ({:>4.2})", bytes as f64 / 1e6 / took.seconds, peer.seconds / took.seconds)
        };
        let degraded = row.degraded.map_or(String::new(), |took| rate(took, row.read));
        println!(
            "{:<14} {:<8} {:>14} {:>14} {:>20} {:>6.0}%",
            row.name,
            peer.name,
            rate(row.wrote, peer.wrote),
            rate(row.read, peer.read),
            degraded,
            100.0 * row.wrote.others
        );
    }
    if let Some(limits) = given.limits {
        devices::measure(dir.path(), limits, &|name| given.asks_for(name));
    }
}

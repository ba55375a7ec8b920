//! What redundancy and deduplication cost, in one run: each layout beside a stripe, and each checksum of `dedup` beside none.
//!
//! `cargo run --release -p cenote-zpl --example layouts -- [--copies N] [--runs N] [--compression off|lz4|zstd-3] [--only NAME,…]
//! [--device-rate MB] FILE…`
//! Files are read into memory first, and no two records are equal: each record of a copy is marked with its number. Columns are
//! MB/s of logical data; in brackets, the share of the row that the table names as the peer. "cold read" follows an import with cold caches;
//! "degraded" is the same with the first device of each vdev missing. The fastest of the runs counts; "others" is the share
//! of the cores that other processes took while it wrote. With `--device-rate` each device
//! reads and writes no more than that many MB/s. Images are in `TMPDIR`:
//! on a file system in memory the processor is measured, on a disk also the disk.

mod measure;

use std::path::{Path, PathBuf};

use format::compression::{CompressionSetting, ZstdLevel};
use measure::Took;
use pool::props::Value;
use pool::{CreateSpec, Layout, NewFilesystem, NewTop, Options, Pool};
use storage::host::Access;

/// As in the program itself: records of one size come and go on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A kind of pool, and the kind that it is compared with.
struct Case {
    name: &'static str,
    /// Top-level vdevs: how many, of which layout, of how many devices.
    tops: usize,
    layout: Layout,
    width: usize,
    /// What `dedup` is set to.
    dedup: Option<&'static str>,
    peer: &'static str,
}

impl Case {
    const fn of(name: &'static str, tops: usize, layout: Layout, width: usize, peer: &'static str) -> Case {
        Case { name, tops, layout, width, dedup: None, peer }
    }

    const fn deduplicated(name: &'static str, checksum: &'static str) -> Case {
        Case { dedup: Some(checksum), ..Case::of(name, 1, Layout::Single, 1, "one") }
    }

    /// With one device of each vdev missing, the pool is still whole.
    fn is_redundant(&self) -> bool {
        self.layout != Layout::Single
    }
}

const CASES: [Case; 12] = [
    Case::of("one", 1, Layout::Single, 1, "one"),
    Case::of("stripe4", 4, Layout::Single, 1, "one"),
    Case::of("stripe9", 9, Layout::Single, 1, "one"),
    Case::of("mirror2", 1, Layout::Mirror, 2, "one"),
    Case::of("raidz1-5", 1, Layout::Raidz(1), 5, "stripe4"),
    Case::of("raidz2-6", 1, Layout::Raidz(2), 6, "stripe4"),
    Case::of("raidz3-7", 1, Layout::Raidz(3), 7, "stripe4"),
    Case::deduplicated("sha256", "on"),
    Case::deduplicated("sha256,verify", "sha256,verify"),
    Case::deduplicated("sha512", "sha512"),
    Case::deduplicated("skein", "skein"),
    Case::deduplicated("blake3", "blake3"),
];

/// What a case took.
struct Row {
    name: &'static str,
    wrote: Took,
    read: Took,
    degraded: Option<Took>,
}

fn create(case: &Case, images: &[PathBuf], bytes: u64, given: &Given) -> Pool {
    // Room for the data and three quarters more on each vdev, whatever its layout.
    let size = (bytes * 7 / 4 / case.tops as u64 * 2 / case.width.div_ceil(2) as u64).max(128 << 20);
    for image in images {
        std::fs::File::create(image).and_then(|file| file.set_len(size)).expect("the image is created");
    }
    let options = Options::default();
    let plain = NewFilesystem::plain(&options.host);
    let open = |path: &PathBuf| measure::open(path, Access::ReadWrite { exclusive: true }, given.rate);
    let tops = images.chunks(case.width);
    let tops = tops.map(|of| NewTop::new(case.layout, of.iter().map(open).collect()));
    let mut root = vec![("compression".into(), Value::Number(given.compression.to_property()))];
    if let Some(word) = case.dedup {
        let value = pool::props::dataset::parse("dedup").and_then(|property| property.parse_value(word).ok());
        root.push(("dedup".into(), value.expect("a value of dedup")));
    }
    let spec = CreateSpec {
        ashift: Some(12),
        tops: tops.collect(),
        root_properties: root,
        ..CreateSpec::new("engine", Vec::new(), plain, zpl::initialiser())
    };
    Pool::create(spec, options).expect("the pool is created")
}

fn measured(case: &Case, dir: &Path, files: &[Vec<u8>], given: &Given) -> Row {
    let images: Vec<PathBuf> = (0..case.tops * case.width).map(|n| dir.join(format!("image{n}"))).collect();
    let bytes = files.iter().map(|file| file.len() as u64).sum();
    let mut row = Row { name: case.name, wrote: Took::FOREVER, read: Took::FOREVER, degraded: None };
    for _ in 0..given.runs {
        let pool = create(case, &images, bytes, given);
        let (took, ids) = measure::write(&pool, files);
        row.wrote = row.wrote.best(took);
        pool.export().expect("exported");
        let cold = |images: &[PathBuf]| {
            measure::read(&measure::import(images, given.rate, Options::default()), &ids, measure::cores())
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

/// What the command line asks for.
struct Given {
    copies: usize,
    runs: usize,
    compression: CompressionSetting,
    only: Option<String>,
    /// MB/s of each device.
    rate: Option<u32>,
    files: Vec<PathBuf>,
}

fn given() -> Given {
    let mut given = Given {
        copies: 1,
        runs: 2,
        compression: CompressionSetting::OFF,
        only: None,
        rate: None,
        files: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number follows");
        match arg.as_str() {
            "--copies" => given.copies = number(),
            "--runs" => given.runs = number(),
            "--device-rate" => given.rate = Some(number() as u32),
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
        if given.only.as_ref().is_some_and(|only| !only.split(',').any(|name| name == case.name)) {
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
}

//! The engine against the raw codec, in one run: how much of `codec rate × cores` a whole write (records →
//! compressed, checksummed, allocated, written, durable) and a cold read (read, verified, decompressed) reach.
//!
//! `cargo run --release -p cenote-zpl --example engine -- [--copies N] [--only NAME,…] [--reads N] [--readers N]
//! [--dirty-max MIB] [--runs N]
//! [--engine auto|libdeflate|isal] FILE…`
//! `--runs`: times that codec and engine are measured, `--reads`: cold reads in each; the fastest counts.
//! `--readers`: threads that read different files; `--engine`: who makes gzip's bytes, also in "codec" (which knows no
//! load: `auto` is libdeflate there). Records by engine are counted over all runs.
//! Files are read into memory first. Columns are MB/s of logical data and, in brackets, the share of the raw
//! rate; `off`, `zle` and `lz4` compare with `cp` and `sync` of the same bytes on the same file system.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use format::compression::{CompressionSetting, ZstdLevel};
use format::{Compression, ObjectId, features};
use pool::props::Value;
use pool::{CreateSpec, NewFilesystem, Options, Pool};
use storage::GzipEngine;
use storage::host::{Access, Disk, FileDisk};
use zpl::{FileKind, Filesystem, NewNode};

/// As in the program itself: records of one size come and go on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RECORD: usize = 128 << 10;

fn settings() -> Vec<(&'static str, CompressionSetting)> {
    let plain = CompressionSetting::plain;
    vec![
        ("off", CompressionSetting::OFF),
        ("zle", plain(Compression::Zle)),
        ("lz4", CompressionSetting::LZ4),
        ("lzjb", plain(Compression::Lzjb)),
        ("zstd-fast-1", CompressionSetting::zstd(ZstdLevel::Fast(1))),
        ("zstd-1", CompressionSetting::zstd(ZstdLevel::Level(1))),
        ("zstd-3", CompressionSetting::zstd(ZstdLevel::Level(3))),
        ("zstd-9", CompressionSetting::zstd(ZstdLevel::Level(9))),
        ("gzip-1", plain(Compression::Gzip(1))),
        ("gzip-6", plain(Compression::Gzip(6))),
        ("gzip-9", plain(Compression::Gzip(9))),
    ]
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, Access::ReadWrite { exclusive: true }).expect("the image opens"))
}

fn create(path: &Path, bytes: u64, compression: CompressionSetting, options: Options) -> Pool {
    let file = std::fs::File::create(path).expect("the image is created");
    file.set_len((bytes * 2).max(1 << 30)).expect("the image is sized");
    let spec = CreateSpec {
        name: "engine".into(),
        disks: vec![disk(path)],
        ashift: Some(12),
        version: 5000,
        features: features::set("openzfs-2.1-linux").expect("a known set").features().collect(),
        properties: Vec::new(),
        root_properties: vec![("compression".into(), Value::Number(compression.to_property()))],
        comment: None,
        compatibility: None,
        filesystem: NewFilesystem::plain(&options.host),
        initialise: zpl::initialiser(),
        command: None,
    };
    Pool::create(spec, options).expect("the pool is created")
}

/// Seconds for all records through the codec alone, on all cores; compress and decompress.
fn raw(files: &[Vec<u8>], setting: CompressionSetting, wanted: Option<GzipEngine>) -> (f64, f64) {
    let engine = storage::Deflate::default().choose(wanted.unwrap_or(GzipEngine::DEFAULT));
    let records: Vec<&[u8]> = files.iter().flat_map(|f| f.chunks(RECORD)).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let limit = RECORD - RECORD / 8;
    let started = Instant::now();
    let packed: Vec<Vec<Option<Vec<u8>>>> = std::thread::scope(|scope| {
        let work = |core: usize| {
            let records = &records;
            scope.spawn(move || {
                let mut out = vec![0; limit];
                let mine = records.iter().skip(core).step_by(cores);
                mine.map(|r| {
                    let limit = r.len() - r.len() / 8;
                    codec::compress_by(engine, setting, r, &mut out[..limit]).map(|n| out[..n].to_vec())
                })
                .collect::<Vec<_>>()
            })
        };
        let handles: Vec<_> = (0..cores).map(work).collect();
        handles.into_iter().map(|h| h.join().expect("no panic")).collect()
    });
    let compress = started.elapsed().as_secs_f64();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (core, packed) in packed.iter().enumerate() {
            let records = &records;
            scope.spawn(move || {
                let mut out = vec![0; RECORD];
                for (packed, record) in packed.iter().zip(records.iter().skip(core).step_by(cores)) {
                    match packed {
                        Some(bytes) => {
                            codec::decompress(setting.algorithm, bytes, &mut out[..record.len()])
                                .expect("own output");
                        }
                        None => out[..record.len()].copy_from_slice(record),
                    }
                }
            });
        }
    });
    (compress, started.elapsed().as_secs_f64())
}

fn write(pool: &Pool, files: &[Vec<u8>]) -> (f64, Vec<ObjectId>) {
    let fs = Filesystem::open(pool.open("engine").expect("the root exists")).expect("it is a file system");
    let started = Instant::now();
    let mut ids = Vec::new();
    for (i, data) in files.iter().enumerate() {
        let new = NewNode::new(FileKind::Regular, 0o644);
        let id = fs.create(fs.root(), format!("file{i}").as_bytes(), &new).expect("created");
        for (n, record) in data.chunks(RECORD).enumerate() {
            let mut buffer = fs.record_buffer(record.len());
            buffer.copy_from_slice(record);
            fs.write_record(id, (n * RECORD) as u64, buffer).expect("written");
        }
        ids.push(id);
    }
    pool.sync().expect("durable");
    (started.elapsed().as_secs_f64(), ids)
}

/// Seconds to read everything with `readers` threads after an import with cold caches.
fn read(path: &Path, ids: &[ObjectId], readers: usize) -> f64 {
    let probe = disk(path);
    probe.flush().expect("flushed");
    probe.drop_cache();
    drop(probe);
    let options = Options { read_only: true, ..Options::default() };
    let reader: Arc<dyn Disk> = Arc::new(FileDisk::open(path, Access::ReadOnly).expect("opens"));
    let pool = Pool::import_disks(vec![reader], options).expect("imports");
    let fs = Filesystem::open(pool.open("engine").expect("the root exists")).expect("a file system");
    let started = Instant::now();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while let Some(id) = ids.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let mut bytes = 0;
                    for piece in fs.read_records(*id).expect("opens") {
                        bytes += piece.expect("reads").data().map_or(0, <[u8]>::len);
                    }
                    assert!(bytes > 0, "every file has contents");
                }
            });
        }
    });
    started.elapsed().as_secs_f64()
}

/// Seconds to `cp` and `sync` the same bytes, and to read them back cold; the best of three.
fn copy(dir: &Path, files: &[Vec<u8>]) -> (f64, f64) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    let mut file = std::fs::File::create(&from).expect("created");
    files.iter().for_each(|data| file.write_all(data).expect("written"));
    file.sync_all().expect("durable");
    let (mut write, mut read) = (f64::MAX, f64::MAX);
    let run = |program: &str, args: &[&Path]| {
        let status = std::process::Command::new(program).args(args).status().expect("the program is there");
        assert!(status.success(), "{program} works");
    };
    for _ in 0..3 {
        let started = Instant::now();
        run("cp", &[&from, &to]);
        run("sync", &[&to]);
        write = write.min(started.elapsed().as_secs_f64());
        FileDisk::open(&to, Access::ReadOnly).expect("opens").drop_cache();
        let started = Instant::now();
        let mut buf = vec![0; RECORD];
        let mut file = std::fs::File::open(&to).expect("opens");
        while std::io::Read::read(&mut file, &mut buf).expect("reads") > 0 {}
        read = read.min(started.elapsed().as_secs_f64());
        std::fs::remove_file(&to).expect("removed");
    }
    std::fs::remove_file(&from).expect("removed");
    (write, read)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (mut copies, mut reads, mut readers) = (1usize, 1usize, 1usize);
    let (mut runs, mut options) = (1usize, Options::default());
    let (mut only, mut paths) = (None, Vec::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--copies" => copies = args.next().and_then(|n| n.parse().ok()).expect("--copies N"),
            "--reads" => reads = args.next().and_then(|n| n.parse().ok()).expect("--reads N"),
            "--readers" => readers = args.next().and_then(|n| n.parse().ok()).expect("--readers N"),
            "--runs" => runs = args.next().and_then(|n| n.parse().ok()).expect("--runs N"),
            "--dirty-max" => {
                let mib: u64 = args.next().and_then(|n| n.parse().ok()).expect("--dirty-max MIB");
                options.dirty_max = mib << 20;
            }
            "--engine" => {
                let word = args.next().expect("--engine NAME");
                options.gzip_engine = Some(GzipEngine::named(&word).expect("auto, libdeflate or isal"));
            }
            "--only" => only = args.next(),
            path => paths.push(PathBuf::from(path)),
        }
    }
    let mut files: Vec<Vec<u8>> = Vec::new();
    for _ in 0..copies {
        files.extend(paths.iter().map(|path| std::fs::read(path).expect("the file is read")));
    }
    let bytes: u64 = files.iter().map(|f| f.len() as u64).sum();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mb = |seconds: f64| bytes as f64 / 1e6 / seconds;
    let (plain_write, plain_read) = copy(dir.path(), &files);
    println!(
        "{} MB; cp and sync {:.0} MB/s, cold read of the copy {:.0} MB/s",
        bytes / 1_000_000,
        mb(plain_write),
        mb(plain_read)
    );
    println!("{:<12} {:>9} {:>16} {:>9} {:>16}", "", "codec", "write", "codec", "cold read");
    for (name, setting) in settings() {
        if only.as_ref().is_some_and(|only: &String| !only.split(',').any(|n| n == name)) {
            continue;
        }
        let fast = matches!(setting.algorithm, Compression::Off | Compression::Zle | Compression::Lz4);
        let (mut compress, mut decompress) = (f64::MAX, f64::MAX);
        let image = dir.path().join("image");
        let (mut wrote, mut got) = (f64::MAX, f64::MAX);
        let mut made = [0; codec::Engine::ALL.len()];
        let mut ratio = 1.0;
        for _ in 0..runs {
            if setting.algorithm != Compression::Off {
                let (packed, unpacked) = raw(&files, setting, options.gzip_engine);
                (compress, decompress) = (compress.min(packed), decompress.min(unpacked));
            }
            let pool = create(&image, bytes, setting, options.clone());
            let (seconds, ids) = write(&pool, &files);
            wrote = wrote.min(seconds);
            for (engine, records) in pool.storage().deflate().records() {
                made[engine.index()] += records;
            }
            let info = pool.dataset("engine").expect("the root exists");
            ratio = info.phys.uncompressed_bytes as f64 / info.phys.compressed_bytes as f64;
            pool.export().expect("exported");
            got = (0..reads).map(|_| read(&image, &ids, readers)).fold(got, f64::min);
        }
        let base = |raw: f64, plain: f64| if fast { plain } else { raw };
        println!(
            "{name:<12} {:>9.0} {:>8.0} ({:>4.0}%) {:>9.0} {:>8.0} ({:>4.0}%)",
            mb(compress),
            mb(wrote),
            100.0 * base(compress, plain_write) / wrote,
            mb(decompress),
            mb(got),
            100.0 * base(decompress, plain_read) / got,
        );
        if matches!(setting.algorithm, Compression::Gzip(_)) {
            let made: Vec<String> = codec::Engine::ALL
                .iter()
                .map(|engine| format!("{engine} {}", made[engine.index()]))
                .collect();
            println!("{:<12} compressratio {ratio:.3}; records: {}", "", made.join(", "));
        }
        std::fs::remove_file(&image).expect("removed");
    }
}

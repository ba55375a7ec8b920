//! The engine against the raw codec, in one run: how much of `codec rate × cores` a whole write (records →
//! compressed, checksummed, allocated, written, durable) and a cold read (read, verified, decompressed) reach.
//!
//! `cargo run --release -p cenote-zpl --example engine -- [--copies N] [--only NAME,…] [--reads N] [--readers N]
//! [--dirty-max MIB] [--runs N]
//! [--engine auto|libdeflate|isal] [--encryption SUITE] FILE…`
//! `--runs`: times that codec and engine are measured, `--reads`: cold reads in each; the fastest counts.
//! `--readers`: threads that read different files; `--engine`: who makes gzip's bytes, also in "codec" (which knows no
//! load: `auto` is libdeflate there). Records by engine are counted over all runs.
//! `--encryption`: the file system is encrypted, with `aes-256-gcm` or another suite.
//! Files are read into memory first. Columns are MB/s of logical data and, in brackets, the share of the raw
//! rate; `off`, `zle` and `lz4` compare with `cp` and `sync` of the same bytes on the same file system.
//! "work" is the codec's processor time as a share of the engine's: what the rate could be if no core ever
//! waited, whatever else the machine does. "others" is the share of the cores that other processes took.

mod measure;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use format::compression::{CompressionSetting, ZstdLevel};
use format::crypt::{KeyFormat, Suite};
use format::{Compression, ObjectId};
use measure::{Clock, RECORD, Took, cores, write};
use pool::props::Value;
use pool::{CreateSpec, NewEncryption, NewFilesystem, Options, OwnKey, Pool, UserKey, Wanted, WrappingKey};
use storage::GzipEngine;
use storage::host::{Access, Disk as _, FileDisk};

/// As in the program itself: records of one size come and go on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

/// The form of the user's key for an encrypted file system: 32 bytes.
const USER_KEY: UserKey = UserKey { format: KeyFormat::Raw, salt: 0, iterations: 0 };

fn user_key() -> WrappingKey {
    USER_KEY.wrapping(&[7; 32]).expect("a key of 32 bytes")
}

fn suite_named(name: &str) -> Suite {
    Suite::ALL.into_iter().find(|suite| suite.name() == name).expect("a suite")
}

fn encryption(suite: Option<Suite>) -> NewEncryption {
    let Some(suite) = suite else { return NewEncryption::default() };
    let own = OwnKey { user_key: USER_KEY, key: user_key() };
    NewEncryption { wanted: Wanted::On(suite), own: Some(Arc::new(own)) }
}

/// The settings that a pool is made with.
#[derive(Clone)]
struct Made {
    options: Options,
    suite: Option<Suite>,
}

fn create(path: &Path, bytes: u64, compression: CompressionSetting, made: Made) -> Pool {
    let Made { options, suite } = made;
    let file = std::fs::File::create(path).expect("the image is created");
    file.set_len((bytes * 2).max(1 << 30)).expect("the image is sized");
    let plain = NewFilesystem::plain(&options.host);
    let filesystem = NewFilesystem { encryption: encryption(suite), ..plain };
    let spec = CreateSpec {
        ashift: Some(12),
        root_properties: vec![("compression".into(), Value::Number(compression.to_property()))],
        ..CreateSpec::new(
            "engine",
            vec![measure::open(path, Access::ReadWrite { exclusive: true }, None)],
            filesystem,
            zpl::initialiser(),
        )
    };
    Pool::create(spec, options).expect("the pool is created")
}

/// All records through the codec alone, on all cores; compress and decompress.
fn raw(files: &[Vec<u8>], setting: CompressionSetting, wanted: Option<GzipEngine>) -> (Took, Took) {
    let engine = storage::Deflate::default().choose(wanted.unwrap_or(GzipEngine::DEFAULT));
    let records: Vec<&[u8]> = files.iter().flat_map(|f| f.chunks(RECORD)).collect();
    let cores = cores();
    let limit = RECORD - RECORD / 8;
    let clock = Clock::start();
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
    let compress = clock.took();
    let clock = Clock::start();
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
    (compress, clock.took())
}

/// Reads everything with `readers` threads after an import with cold caches.
fn read(path: &Path, ids: &[ObjectId], readers: usize) -> Took {
    let pool = measure::import(&[path.to_path_buf()], None, Options::default());
    let info = pool.dataset("engine").expect("the root exists");
    if pool.is_encrypted(&info).expect("it is read") {
        pool.load_key(&info, user_key(), false).expect("the key fits");
    }
    measure::read(&pool, ids, readers)
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

/// The command line.
#[derive(Default)]
struct Asked {
    copies: usize,
    reads: usize,
    readers: usize,
    runs: usize,
    options: Options,
    only: Option<String>,
    suite: Option<Suite>,
    paths: Vec<PathBuf>,
}

impl Asked {
    fn read(mut args: impl Iterator<Item = String>) -> Asked {
        let mut asked = Asked { copies: 1, reads: 1, readers: 1, runs: 1, ..Asked::default() };
        while let Some(arg) = args.next() {
            let mut number = || args.next().and_then(|n| n.parse().ok()).expect("a number");
            match arg.as_str() {
                "--copies" => asked.copies = number(),
                "--reads" => asked.reads = number(),
                "--readers" => asked.readers = number(),
                "--runs" => asked.runs = number(),
                "--dirty-max" => asked.options.dirty_max = (number() as u64) << 20,
                "--engine" => {
                    let word = args.next().expect("--engine NAME");
                    asked.options.gzip_engine =
                        Some(GzipEngine::named(&word).expect("auto, libdeflate or isal"));
                }
                "--encryption" => asked.suite = Some(suite_named(&args.next().expect("--encryption SUITE"))),
                "--only" => asked.only = args.next(),
                path => asked.paths.push(PathBuf::from(path)),
            }
        }
        asked
    }
}

fn main() {
    let Asked { copies, reads, readers, runs, options, only, suite, paths } =
        Asked::read(std::env::args().skip(1));
    let read_all = |_| paths.iter().map(|path| std::fs::read(path).expect("the file is read"));
    let files: Vec<Vec<u8>> = (0..copies).flat_map(read_all).collect();
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
    let half = |name: &str| format!("{:>7} {name:>13} {:>6} {:>6}", "codec", "work", "others");
    println!("{:<12}{} {}", "", half("write"), half("cold read"));
    for (name, setting) in settings() {
        if only.as_ref().is_some_and(|only| !only.split(',').any(|n| n == name)) {
            continue;
        }
        let fast = matches!(setting.algorithm, Compression::Off | Compression::Zle | Compression::Lz4);
        let (mut compress, mut decompress) = (Took::FOREVER, Took::FOREVER);
        let image = dir.path().join("image");
        let (mut wrote, mut got) = (Took::FOREVER, Took::FOREVER);
        let mut made = [0; codec::Engine::ALL.len()];
        let mut ratio = 1.0;
        for _ in 0..runs {
            if setting.algorithm != Compression::Off {
                let (packed, unpacked) = raw(&files, setting, options.gzip_engine);
                (compress, decompress) = (compress.best(packed), decompress.best(unpacked));
            }
            let pool = create(&image, bytes, setting, Made { options: options.clone(), suite });
            let (took, ids) = write(&pool, &files);
            wrote = wrote.best(took);
            for (engine, records) in pool.storage().deflate().records() {
                made[engine.index()] += records;
            }
            let info = pool.dataset("engine").expect("the root exists");
            ratio = info.phys.uncompressed_bytes as f64 / info.phys.compressed_bytes as f64;
            pool.export().expect("exported");
            got = (0..reads).map(|_| read(&image, &ids, readers)).fold(got, Took::best);
        }
        let half = |codec: Took, plain: f64, engine: Took| {
            let base = if fast { plain } else { codec.seconds };
            format!(
                "{:>7.0} {:>6.0} ({:>3.0}%) {:>5.0}% {:>5.0}%",
                mb(codec.seconds),
                mb(engine.seconds),
                100.0 * base / engine.seconds,
                100.0 * (codec.cpu_seconds / engine.cpu_seconds).min(9.99),
                100.0 * engine.others,
            )
        };
        println!("{name:<12}{} {}", half(compress, plain_write, wrote), half(decompress, plain_read, got));
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

//! Ratios and rates of every codec and checksum on one core, beside the libraries called directly.
//!
//! ```text
//! cargo run --release -p cenote-codec --example rates -- FOLDER-OR-FILE [NAME-PART …]
//! ```
//!
//! The files are cut into 128 KiB records, in memory; at most 48 MiB of them, an even part of each file, so
//! that a run takes a minute. Every codec compresses and decompresses all records, and each record counts with
//! the best of five passes, ours and the library's in turn; a filter like `gzip` or `zstd-3` runs only those rows. "to" is the rate relative
//! to the library called directly with the same limit: zlib for gzip, LZ4 and zstd for themselves. gzip has a row for
//! each engine; `gzip-6-isal` is igzip.
//!
//! The rows `parity-p`, `parity-pq`, `parity-pqr` and `rebuild-2` count the data of records in eight columns, whose parity is made, or two
//! of which are computed again from P and Q.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use codec::{Engine, Salt};
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use format::compression::{CompressionSetting, ZstdLevel};
use format::{ChecksumKind, Compression};

const RECORD: usize = 128 << 10;
const SAMPLE_MAX: usize = 48 << 20;
const PASSES: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [place, filters @ ..] = args.as_slice() else {
        return Err("usage: rates FOLDER-OR-FILE [NAME-PART …]".into());
    };
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str()));
    let records = sample(Path::new(place))?;
    println!("{} MiB in {} records of 128 KiB, MB/s", (records.len() * RECORD) >> 20, records.len());
    println!(
        "{:14} {:>7} {:>9} {:>6} {:>9} {:>6}  library's ratio",
        "", "ratio", "compress", "to", "decompr.", "to"
    );
    for (name, setting, engine) in rows() {
        if wanted(&name) {
            codec_row(&name, setting, engine, &records);
        }
    }
    let in_cache = RECORD.min(records.len() * RECORD);
    println!("\n{:14} {:>12} {:>12}", "GB/s", "in cache", "from memory");
    for kind in [
        ChecksumKind::Fletcher2,
        ChecksumKind::Fletcher4,
        ChecksumKind::Sha256,
        ChecksumKind::Sha512,
        ChecksumKind::Skein,
        ChecksumKind::Edonr,
        ChecksumKind::Blake3,
    ] {
        let name = format!("{kind:?}").to_lowercase();
        if wanted(&name) {
            let salt = Salt::new([7; 32]);
            checksum_row(&name, in_cache, |data| {
                black_box(codec::checksum(kind, data, &salt));
            });
        }
    }
    if wanted("is_zero") {
        checksum_row("is_zero", in_cache, |data| {
            black_box(codec::is_zero(data));
        });
    }
    for (count, name) in [(1, "parity-p"), (2, "parity-pq"), (3, "parity-pqr")] {
        if wanted(name) {
            parity_row(name, count, false);
        }
    }
    if wanted("rebuild-2") {
        parity_row("rebuild-2", 2, true);
    }
    Ok(())
}

fn rows() -> Vec<(String, CompressionSetting, Engine)> {
    let plain =
        |name: &str, algorithm| (name.to_owned(), CompressionSetting::plain(algorithm), Engine::Libdeflate);
    let mut rows = vec![
        plain("lzjb", Compression::Lzjb),
        plain("zle", Compression::Zle),
        plain("lz4", Compression::Lz4),
    ];
    rows.extend((1..=9).map(|level| plain(&format!("gzip-{level}"), Compression::Gzip(level))));
    if Engine::Isal.is_here() {
        // Its other levels give the same results as these.
        rows.extend([1, 6, 9].map(|level| {
            let setting = CompressionSetting::plain(Compression::Gzip(level));
            (format!("gzip-{level}-isal"), setting, Engine::Isal)
        }));
    }
    let zstd = |name: String, level| (name, CompressionSetting::zstd(level), Engine::Libdeflate);
    rows.extend([1, 10, 100].map(|n| zstd(format!("zstd-fast-{n}"), ZstdLevel::Fast(n))));
    rows.extend([1, 3, 6, 9].map(|n| zstd(format!("zstd-{n}"), ZstdLevel::Level(n))));
    rows
}

/// The records of a file, or of all files of a folder, thinned evenly to [`SAMPLE_MAX`] bytes.
fn sample(place: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut files: Vec<PathBuf> = match place.is_dir() {
        true => fs::read_dir(place)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?,
        false => vec![place.to_owned()],
    };
    files.sort();
    let mut records = Vec::new();
    for file in files {
        records.extend(fs::read(file)?.chunks_exact(RECORD).map(<[u8]>::to_vec));
    }
    if records.is_empty() {
        return Err("no file has 128 KiB".into());
    }
    let step = (records.len() * RECORD).div_ceil(SAMPLE_MAX);
    Ok(records.into_iter().step_by(step).collect())
}

/// Packs a record into a buffer; the bytes used, if it fits.
type Packer = Box<dyn FnMut(&[u8], &mut [u8]) -> Option<usize>>;
/// The compressed form of each record (`None`: stored raw).
type Packed = Vec<Option<Vec<u8>>>;

/// Compresses the records with each of `packers`, and returns results and seconds. The packers take turns on each
/// record, so that other work of the machine slows all of them alike.
fn pack(records: &[Vec<u8>], packers: &mut [Packer]) -> Vec<(Packed, f64)> {
    let mut buffer = vec![0; RECORD - RECORD / 8];
    let mut results: Vec<(Packed, f64)> = packers.iter().map(|_| (Vec::new(), 0.0)).collect();
    for record in records {
        let mut best = vec![f64::MAX; packers.len()];
        for pass in 0..PASSES {
            for (i, pack_one) in packers.iter_mut().enumerate() {
                let start = Instant::now();
                let used = pack_one(record, &mut buffer);
                best[i] = best[i].min(start.elapsed().as_secs_f64());
                if pass == 0 {
                    results[i].0.push(used.map(|used| buffer[..used].to_vec()));
                }
            }
        }
        results.iter_mut().zip(best).for_each(|(result, best)| result.1 += best);
    }
    results
}

/// Seconds of unpacking every record that was packed; all must come back.
fn unpack(
    records: &[Vec<u8>],
    packed: &[Option<Vec<u8>>],
    mut unpack_one: impl FnMut(&[u8], &mut [u8]) -> bool,
) -> f64 {
    let mut back = vec![0; RECORD];
    let mut seconds = 0.0;
    for (record, packed) in records.iter().zip(packed) {
        let Some(packed) = packed else { continue };
        let mut done = false;
        seconds += best_of_passes(|| done = unpack_one(packed, &mut back));
        assert!(done && back == *record, "a fast wrong answer is not a result");
    }
    seconds
}

/// Seconds of `run` when nothing else was in its way.
fn best_of_passes(mut run: impl FnMut()) -> f64 {
    let seconds = (0..PASSES).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    seconds.fold(f64::MAX, f64::min)
}

fn codec_row(name: &str, setting: CompressionSetting, engine: Engine, records: &[Vec<u8>]) {
    let mut packers: Vec<Packer> =
        vec![Box::new(move |src, dst| codec::compress_by(engine, setting, src, dst))];
    packers.extend(library_packer(setting));
    let mut rows = pack(records, &mut packers).into_iter();
    let (ours, pack_seconds) = rows.next().expect("ours is a packer");
    let (library, library_pack) = rows.next().unwrap_or_default();
    let unpack_seconds =
        unpack(records, &ours, |src, dst| codec::decompress(setting.algorithm, src, dst).is_ok());
    let library_unpack = match setting.algorithm {
        Compression::Gzip(_) => zlib_unpack(records, &library),
        Compression::Lz4 => lz4_unpack(records, &library, &ours),
        Compression::Zstd => zstd_unpack(records, &library),
        _ => f64::NAN,
    };
    let total = (records.len() * RECORD) as f64;
    let unpacked = |results: &[Option<Vec<u8>>]| (results.iter().flatten().count() * RECORD) as f64;
    let ratio = |results: &[Option<Vec<u8>>]| {
        total / results.iter().map(|packed| packed.as_ref().map_or(RECORD, Vec::len)).sum::<usize>() as f64
    };
    print!("{name:14} {:7.3} {:9.0}", ratio(&ours), total / pack_seconds / 1e6);
    let decompress = unpacked(&ours) / unpack_seconds;
    if library.is_empty() {
        println!(" {:>6} {:9.0}", "", decompress / 1e6);
    } else {
        println!(
            " {:6.2} {:9.0} {:6.2}  {:.3}",
            library_pack / pack_seconds,
            decompress / 1e6,
            decompress / (unpacked(&library) / library_unpack),
            ratio(&library)
        );
    }
}

fn library_packer(setting: CompressionSetting) -> Option<Packer> {
    let size = |bytes: &[u8]| i32::try_from(bytes.len()).expect("records are small");
    match setting.algorithm {
        Compression::Gzip(level) => {
            let mut deflate = Compress::new(flate2::Compression::new(level.into()), true);
            Some(Box::new(move |src, dst| {
                deflate.reset();
                let status = deflate.compress(src, dst, FlushCompress::Finish);
                matches!(status, Ok(Status::StreamEnd)).then(|| deflate.total_out() as usize)
            }))
        }
        Compression::Lz4 => Some(Box::new(move |src, dst| {
            let (from, to) = (src.as_ptr().cast(), dst.as_mut_ptr().cast());
            // SAFETY: both pointers come with the length of their slice.
            let used = unsafe { lz4_sys::LZ4_compress_default(from, to, size(src), size(dst)) };
            usize::try_from(used).ok().filter(|&used| used != 0)
        })),
        Compression::Zstd => {
            let (mut encoder, level) = (zstd_safe::CCtx::create(), setting.zstd_level.native());
            Some(Box::new(move |src, dst| encoder.compress(dst, src, level).ok()))
        }
        _ => None,
    }
}

fn zlib_unpack(records: &[Vec<u8>], packed: &Packed) -> f64 {
    let mut inflate = Decompress::new(true);
    unpack(records, packed, |src, dst| {
        inflate.reset(true);
        matches!(inflate.decompress(src, dst, FlushDecompress::Finish), Ok(Status::StreamEnd))
    })
}

/// Our encoder makes other blocks than the library (see `lz4_encoder`), so the library decodes ours, without their
/// header.
fn lz4_unpack(records: &[Vec<u8>], library: &Packed, ours: &Packed) -> f64 {
    let size = |bytes: &[u8]| i32::try_from(bytes.len()).expect("records are small");
    let seconds = unpack(records, ours, |src, dst| {
        let block = &src[4..];
        let (from, to) = (block.as_ptr().cast(), dst.as_mut_ptr().cast());
        // SAFETY: both pointers come with the length of their slice.
        let used = unsafe { lz4_sys::LZ4_decompress_safe(from, to, size(block), size(dst)) };
        used == size(dst)
    });
    let unpacked = |blocks: &Packed| blocks.iter().flatten().count() as f64;
    seconds * unpacked(library) / unpacked(ours)
}

fn zstd_unpack(records: &[Vec<u8>], packed: &Packed) -> f64 {
    let mut decoder = zstd_safe::DCtx::create();
    unpack(records, packed, |src, dst| decoder.decompress(dst, src).is_ok_and(|used| used == RECORD))
}

/// Bytes of one walk from memory: beyond what caches hold.
const LARGE: usize = 256 << 20;

fn checksum_row(name: &str, in_cache: usize, mut run: impl FnMut(&[u8])) {
    let mut rate = |data: &[u8], times: usize| {
        let seconds = best_of_passes(|| (0..times).for_each(|_| data.chunks(RECORD).for_each(&mut run)));
        (data.len() * times) as f64 / seconds / 1e9
    };
    // Zeros cost a checksum what anything costs, and let `is_zero` walk to the end.
    let data = vec![0; LARGE];
    let small = rate(&data[..in_cache], 400);
    // The first touch gives the pages their memory; one shared page of zeros would stay in the cache.
    let mut data = data;
    data.iter_mut().step_by(4096).for_each(|byte| *byte = black_box(0));
    println!("{name:14} {small:12.2} {:12.2}", rate(&data, 1));
}

/// Data columns of a record in the rows on parity.
const COLUMNS: usize = 8;

fn parity_row(name: &str, count: usize, rebuild: bool) {
    let rate = |len: usize, times: usize| {
        let mut data: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
        let mut parity = vec![vec![0; RECORD / COLUMNS]; count];
        let seconds = best_of_passes(|| {
            for _ in 0..times {
                for record in data.chunks_exact_mut(RECORD) {
                    one_parity(record, &mut parity, rebuild);
                }
            }
        });
        (len * times) as f64 / seconds / 1e9
    };
    let small = rate(RECORD, 400);
    println!("{name:14} {small:12.2} {:12.2}", rate(LARGE, 1));
}

fn one_parity(record: &mut [u8], parity: &mut [Vec<u8>], rebuild: bool) {
    if rebuild {
        let mut columns: Vec<&mut [u8]> = record.chunks_exact_mut(RECORD / COLUMNS).collect();
        let left: Vec<Option<&[u8]>> = parity.iter().map(|column| Some(column.as_slice())).collect();
        codec::parity::reconstruct(&mut columns, &left, &[2, 5]).expect("two parity columns are left");
    } else {
        let columns: Vec<&[u8]> = record.chunks_exact(RECORD / COLUMNS).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        codec::parity::generate(&columns, &mut outputs);
    }
    black_box((record, parity));
}

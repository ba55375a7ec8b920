//! Ratios and rates of every codec and checksum on one core, beside the libraries called directly.
//!
//! ```text
//! cargo run --release -p cenote-codec --example rates -- FOLDER-OR-FILE [NAME-PART …]
//! ```
//!
//! The files are cut into 128 KiB records, in memory; at most 48 MiB of them, an even part of each file, so
//! that a run takes a minute. Every codec compresses and decompresses all records, and each record counts with
//! the best of three passes; a filter like `gzip` or `zstd-3` runs only those rows. "to" is the rate relative
//! to the library called directly with the same limit: zlib for gzip, LZ4 and zstd for themselves.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

use codec::Salt;
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use format::compression::{CompressionSetting, ZstdLevel};
use format::{ChecksumKind, Compression};

const RECORD: usize = 128 << 10;
const SAMPLE_MAX: usize = 48 << 20;
const PASSES: usize = 3;

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
    for (name, setting) in rows() {
        if wanted(&name) {
            codec_row(&name, setting, &records);
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
    Ok(())
}

fn rows() -> Vec<(String, CompressionSetting)> {
    let plain = |name: &str, algorithm| (name.to_owned(), CompressionSetting::plain(algorithm));
    let mut rows = vec![
        plain("lzjb", Compression::Lzjb),
        plain("zle", Compression::Zle),
        plain("lz4", Compression::Lz4),
    ];
    rows.extend((1..=9).map(|level| plain(&format!("gzip-{level}"), Compression::Gzip(level))));
    for n in [1, 10, 100] {
        rows.push((format!("zstd-fast-{n}"), CompressionSetting::zstd(ZstdLevel::Fast(n))));
    }
    for n in [1, 3, 6, 9] {
        rows.push((format!("zstd-{n}"), CompressionSetting::zstd(ZstdLevel::Level(n))));
    }
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

/// For each record, what it packs to (`None`: stored raw); and the seconds of all.
fn pack(
    records: &[Vec<u8>],
    mut pack_one: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> (Vec<Option<Vec<u8>>>, f64) {
    let mut packed = vec![0; RECORD - RECORD / 8];
    let mut seconds = 0.0;
    let mut results = Vec::new();
    for record in records {
        let mut used = None;
        seconds += best_of_passes(|| used = pack_one(record, &mut packed));
        results.push(used.map(|used| packed[..used].to_vec()));
    }
    (results, seconds)
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

fn codec_row(name: &str, setting: CompressionSetting, records: &[Vec<u8>]) {
    let (ours, pack_seconds) = pack(records, |src, dst| codec::compress(setting, src, dst));
    let unpack_seconds =
        unpack(records, &ours, |src, dst| codec::decompress(setting.algorithm, src, dst).is_ok());
    let (library, library_pack, library_unpack) = match setting.algorithm {
        Compression::Gzip(level) => by_zlib(level, records),
        Compression::Lz4 => by_lz4(records, &ours),
        Compression::Zstd => by_zstd(setting.zstd_level.native(), records),
        _ => (Vec::new(), f64::NAN, f64::NAN),
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

type Row = (Vec<Option<Vec<u8>>>, f64, f64);

fn by_zlib(level: u8, records: &[Vec<u8>]) -> Row {
    let mut deflate = Compress::new(flate2::Compression::new(level.into()), true);
    let (packed, pack_seconds) = pack(records, |src, dst| {
        deflate.reset();
        let status = deflate.compress(src, dst, FlushCompress::Finish);
        matches!(status, Ok(Status::StreamEnd)).then(|| deflate.total_out() as usize)
    });
    let mut inflate = Decompress::new(true);
    let unpack_seconds = unpack(records, &packed, |src, dst| {
        inflate.reset(true);
        matches!(inflate.decompress(src, dst, FlushDecompress::Finish), Ok(Status::StreamEnd))
    });
    (packed, pack_seconds, unpack_seconds)
}

/// Ours are other blocks than the library's (see `lz4_encoder`), so it decodes ours, without their header.
fn by_lz4(records: &[Vec<u8>], ours: &[Option<Vec<u8>>]) -> Row {
    let size = |bytes: &[u8]| i32::try_from(bytes.len()).expect("records are small");
    let (packed, pack_seconds) = pack(records, |src, dst| {
        // SAFETY: both pointers come with the length of their slice.
        let used = unsafe {
            lz4_sys::LZ4_compress_default(src.as_ptr().cast(), dst.as_mut_ptr().cast(), size(src), size(dst))
        };
        usize::try_from(used).ok().filter(|&used| used != 0)
    });
    let unpack_seconds = unpack(records, ours, |src, dst| {
        let block = &src[4..];
        // SAFETY: both pointers come with the length of their slice.
        let used = unsafe {
            lz4_sys::LZ4_decompress_safe(
                block.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                size(block),
                size(dst),
            )
        };
        used == size(dst)
    });
    let unpacked = |blocks: &[Option<Vec<u8>>]| blocks.iter().flatten().count() as f64;
    let scale = unpacked(&packed) / unpacked(ours);
    (packed, pack_seconds, unpack_seconds * scale)
}

fn by_zstd(level: i32, records: &[Vec<u8>]) -> Row {
    let mut encoder = zstd_safe::CCtx::create();
    let (packed, pack_seconds) = pack(records, |src, dst| encoder.compress(dst, src, level).ok());
    let mut decoder = zstd_safe::DCtx::create();
    let unpack_seconds =
        unpack(records, &packed, |src, dst| decoder.decompress(dst, src).is_ok_and(|used| used == RECORD));
    (packed, pack_seconds, unpack_seconds)
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

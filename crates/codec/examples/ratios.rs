//! Compares our ratios with those that OpenZFS reports for the same files.
//!
//! ```text
//! cargo run --release -p cenote-codec --example ratios -- FOLDER RATIOS.json [FILE-PART | COMPRESSION …]
//! ```
//!
//! FOLDER holds the files (unpacked); RATIOS.json maps file → recordsize → compression → compressratio, each
//! measured with the file alone in a dataset at ashift 12. A file is cut into records and stored by the rules
//! of docs/format/02-blocks-checksums-compression.md §4.2. Printed per cell: theirs, ours with and without
//! an estimate of the dataset's metadata, and the difference in percent; then the worst cell per algorithm. The
//! exit code is 1 if a cell is more than 1 % below OpenZFS's.
//!
//! compressratio counts metadata with its physical size on both sides of the fraction. The estimate is 48 bytes per record
//! in whole sectors, and seven sectors for the objset, its dnodes, the root directory and the master node. The 48 bytes are
//! a block pointer of an indirect block after LZ4, most of it checksum and address.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use format::Compression;
use format::compression::{CompressionSetting, ZstdLevel};
use serde_json::Value;

const SECTOR: usize = 4096;
const EMBEDDED_MAX: usize = 112;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [folder, json, parts @ ..] = args.as_slice() else {
        return Err("usage: ratios FOLDER RATIOS.json [FILE-PART | COMPRESSION …]".into());
    };
    let expected: Value = serde_json::from_str(&fs::read_to_string(json)?)?;
    let mut worst: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    println!(
        "{:24} {:>8} {:12} {:>8} {:>8} {:>8} {:>7}",
        "file", "record", "", "OpenZFS", "ours", "data", "diff"
    );
    for (file, sizes) in expected.as_object().ok_or("not an object")? {
        let Some(sizes) = sizes.as_object() else { continue };
        let data = fs::read(Path::new(folder).join(file))?;
        for (recordsize, cells) in sizes {
            for (name, theirs) in cells.as_object().ok_or("not an object")? {
                let named = |part: &String| file.contains(part.as_str()) || name == part;
                if !parts.is_empty() && !parts.iter().any(named) {
                    continue;
                }
                let theirs = theirs.as_f64().ok_or("not a number")?;
                let (logical, stored) = store(&data, recordsize.parse()?, setting(name)?);
                let records = data.len().div_ceil(recordsize.parse()?);
                let metadata = (48 * records).next_multiple_of(SECTOR) + 7 * SECTOR;
                let ours = (logical + metadata) as f64 / (stored + metadata) as f64;
                let difference = 100.0 * (ours / theirs - 1.0);
                println!(
                    "{file:24} {recordsize:>8} {name:12} {theirs:8.3} {ours:8.3} {:8.3} {difference:+6.2}%",
                    logical as f64 / stored as f64
                );
                let range = worst.entry(name.clone()).or_insert((f64::MAX, f64::MIN));
                *range = (range.0.min(difference), range.1.max(difference));
            }
        }
    }
    println!();
    let is_below = worst.values().any(|&(low, _)| low < -1.0);
    for (name, (low, high)) in worst {
        println!("{name:12} {low:+6.2}% … {high:+6.2}%");
    }
    Ok(ExitCode::from(u8::from(is_below)))
}

/// Logical and stored bytes of `data` as the blocks of one file.
fn store(data: &[u8], recordsize: usize, setting: CompressionSetting) -> (usize, usize) {
    let lsize = if data.len() <= recordsize { data.len().next_multiple_of(512) } else { recordsize };
    let (mut logical, mut stored) = (0, 0);
    let mut record = vec![0; lsize];
    let mut packed = vec![0; lsize - lsize / 8];
    for chunk in data.chunks(lsize) {
        record[..chunk.len()].copy_from_slice(chunk);
        record[chunk.len()..].fill(0);
        let compresses = setting.algorithm != Compression::Off;
        if compresses && codec::is_zero(&record) {
            continue;
        }
        let rounded = match codec::compress(setting, &record, &mut packed) {
            Some(used) if used <= EMBEDDED_MAX => 0,
            Some(used) => used.next_multiple_of(SECTOR).min(lsize),
            None => lsize,
        };
        logical += lsize;
        stored += rounded;
    }
    (logical, stored)
}

/// The setting that OpenZFS calls `name`.
fn setting(name: &str) -> Result<CompressionSetting, Box<dyn Error>> {
    if let Some(level) = name.strip_prefix("zstd-fast-") {
        return Ok(CompressionSetting::zstd(ZstdLevel::Fast(level.parse()?)));
    }
    if let Some(level) = name.strip_prefix("zstd-") {
        return Ok(CompressionSetting::zstd(ZstdLevel::Level(level.parse()?)));
    }
    if let Some(level) = name.strip_prefix("gzip-") {
        return Ok(CompressionSetting::plain(Compression::Gzip(level.parse()?)));
    }
    Ok(CompressionSetting::plain(match name {
        "off" => Compression::Off,
        "lz4" => Compression::Lz4,
        "lzjb" => Compression::Lzjb,
        "zle" => Compression::Zle,
        _ => return Err(format!("no such compression: {name}").into()),
    }))
}

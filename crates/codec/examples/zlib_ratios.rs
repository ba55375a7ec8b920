//! Compares our gzip-1 to gzip-9 with zlib itself: the ratio may nowhere be more than 1 % below.
//!
//! ```text
//! cargo run --release -p cenote-codec --example zlib_ratios -- FOLDER [FILE-PART …]
//! ```
//!
//! Each file of FOLDER is cut into records of 16K, 128K and 1M, the last filled up with zeros; what does not
//! save an eighth counts as stored raw. Printed per level and record size: the worst cell, and the ratio of
//! all files together; the exit code is 1 if a cell is more than 1 % below.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use flate2::{Compress, FlushCompress, Status};
use format::Compression;
use format::compression::CompressionSetting;

const RECORD_SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];
const BELOW_MAX_PERCENT: f64 = 1.0;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [folder, parts @ ..] = args.as_slice() else {
        return Err("usage: zlib_ratios FOLDER [FILE-PART …]".into());
    };
    let files = files(Path::new(folder), parts)?;
    let mut cells_below = 0;
    println!("{:7} {:>8} {:>8} {:>8} {:>8}  worst file", "", "record", "ours", "zlib", "worst");
    for level in 1..=9 {
        for record in RECORD_SIZES {
            let (mut worst, mut worst_file) = (f64::MAX, "");
            let (mut logical, mut ours_all, mut theirs_all) = (0, 0, 0);
            for (name, data) in &files {
                let (ours, theirs) = sizes(level, record, data);
                let difference = 100.0 * (theirs as f64 / ours as f64 - 1.0);
                cells_below += usize::from(difference < -BELOW_MAX_PERCENT);
                if difference < worst {
                    (worst, worst_file) = (difference, name);
                }
                logical += data.len().next_multiple_of(record);
                ours_all += ours;
                theirs_all += theirs;
            }
            let ratio = |stored: usize| logical as f64 / stored as f64;
            println!(
                "gzip-{level:2} {record:8} {:8.3} {:8.3} {worst:+7.2}%  {worst_file}",
                ratio(ours_all),
                ratio(theirs_all)
            );
        }
    }
    println!("{cells_below} cells more than {BELOW_MAX_PERCENT} % below zlib");
    Ok(ExitCode::from(u8::from(cells_below != 0)))
}

/// A file's name and its bytes.
type File = (String, Vec<u8>);

fn files(folder: &Path, parts: &[String]) -> Result<Vec<File>, Box<dyn Error>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str())) {
            files.push((name, fs::read(path)?));
        }
    }
    if files.is_empty() { Err("no such file".into()) } else { Ok(files) }
}

/// Bytes that the records of `data` take, compressed by us and by zlib.
fn sizes(level: u8, record_len: usize, data: &[u8]) -> (usize, usize) {
    let setting = CompressionSetting::plain(Compression::Gzip(level));
    let mut deflate = Compress::new(flate2::Compression::new(level.into()), true);
    let mut packed = vec![0; record_len - record_len / 8];
    let mut record = vec![0; record_len];
    let (mut ours, mut theirs) = (0, 0);
    for chunk in data.chunks(record_len) {
        record[..chunk.len()].copy_from_slice(chunk);
        record[chunk.len()..].fill(0);
        ours += codec::compress(setting, &record, &mut packed).unwrap_or(record_len);
        deflate.reset();
        theirs += match deflate.compress(&record, &mut packed, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => deflate.total_out() as usize,
            _ => record_len,
        };
    }
    (ours, theirs)
}

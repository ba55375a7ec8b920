//! How fast the disks here are, and what the engine costs besides its codecs.
//!
//! A pool in a nameless temporary file takes some data and gives it back, timed exactly as `cenote bench` does:
//!
//! 1. some of the data as it is, uncompressed: as many bytes go to the disks as come in; first a little, so that a slow disk
//!    does not take long, then more where that was fast;
//! 2. lines that compress to next to nothing: what the engine does for each byte that never reaches a disk;
//! 3. many short files: what a file costs.
//!
//! Of the processor time of each the codec's is taken away, as the encoder here takes it. What the disks can do follows
//! from the first: it is the rate with which the model comes to the time that was measured.

use std::path::Path;

use format::Compression;
use format::compression::CompressionSetting;

use super::encode::{Encoder, Outcome, Piece, Setting};
use super::layout::Layout;
use super::model::{Engine, Target};
use crate::plan::cores;
use crate::source::Source;
use crate::{Event, Place, Plan, Result, Run, Watch};

/// Bytes of the first try, and of the second.
const LITTLE: usize = 16 << 20;
const MUCH: usize = 192 << 20;
/// Bytes of the lines.
const LINES: usize = 128 << 20;
/// The second try, and more, is for disks that take the first one in this time.
const FAST_SECONDS: f64 = 0.15;
const RECORD: usize = 128 << 10;
/// Bytes of a file that is written in many pieces.
const FILE: usize = 8 << 20;
/// Short files, and their bytes.
const SHORT_FILES: usize = 4000;
const SHORT: usize = 2048;
/// What the engine costs where nothing was measured: cenote on a core of today (docs/performance.md).
pub(crate) const ENGINE_WRITE: Engine = Engine { byte: 0.35e-9, stored: 0.25e-9, file: 25e-6 };
pub(crate) const ENGINE_READ: Engine = Engine { byte: 0.15e-9, stored: 0.15e-9, file: 8e-6 };

/// Files by their names.
type Files = Vec<(String, Vec<u8>)>;

/// Measures with `data`, repeated as often as needed, in `folder`; puts what it finds into `target`.
///
/// # Errors
/// There is no room or no permission; the caller stopped it.
pub(crate) fn measure(folder: &Path, data: &[Vec<u8>], target: &mut Target, watch: &dyn Watch) -> Result<()> {
    let quiet = Quiet(watch);
    let once = |compression: &str, files: Files| -> Result<Run> {
        let plan = Plan {
            compressions: vec![compression.to_owned()],
            recordsizes: vec![RECORD as u64],
            place: Place::Folder(folder.to_owned()),
            memory_bytes: Some(u64::MAX),
            ..Plan::usual()
        };
        let report = crate::run(&plan, &mut Source::of_memory(files), &quiet)?;
        Ok(report.runs.into_iter().next().expect("one configuration is measured"))
    };
    let mut plain = once("off", filled(data, LITTLE))?;
    let fast = plain.write_seconds + plain.read_seconds < FAST_SECONDS;
    if fast {
        plain = once("off", filled(data, MUCH))?;
    }
    let bytes = plain.logical_bytes as f64;
    // Checksums are part of the codec's time here.
    let sums = codec_seconds("off", &filled(data, FILE)[0].1);
    let write = at_least(plain.write_cpu_seconds / bytes - sums.compress, ENGINE_WRITE);
    let read = at_least(plain.read_cpu_seconds / bytes - sums.decompress, ENGINE_READ);
    target.engine_write = Engine { byte: 0.6 * write, stored: 0.4 * write, ..ENGINE_WRITE };
    target.engine_read = Engine { byte: 0.5 * read, stored: 0.5 * read, ..ENGINE_READ };
    if fast {
        let files = filled(&[lines()], LINES);
        let codec = codec_seconds("lz4", &files[0].1);
        let run = once("lz4", files)?;
        let bytes = run.logical_bytes as f64;
        target.engine_write = split(write, run.write_cpu_seconds / bytes - codec.compress);
        target.engine_read = split(read, run.read_cpu_seconds / bytes - codec.decompress);
        let short: Files = (0..SHORT_FILES)
            .map(|number| (number.to_string(), lines()[number..number + SHORT].to_vec()))
            .collect();
        let run = once("off", short)?;
        target.engine_write.file = (run.write_cpu_seconds / SHORT_FILES as f64).max(0.0);
        target.engine_read.file = (run.read_cpu_seconds / SHORT_FILES as f64).max(0.0);
    }
    let cores = f64::from(cores());
    let rate = |seconds: f64, cpu: f64| 1.0 / Target::device_seconds(seconds / bytes, cpu / bytes / cores);
    target.disk_write.get_or_insert(rate(plain.write_seconds, plain.write_cpu_seconds));
    target.disk_read.get_or_insert(rate(plain.read_seconds, plain.read_cpu_seconds));
    target.disk_measured = true;
    Ok(())
}

/// Seconds for a byte; a difference of two times that were measured on a busy machine may come out below zero, and no
/// engine is ten times as fast as `usual`.
fn at_least(seconds: f64, usual: Engine) -> f64 {
    seconds.max(0.1 * (usual.byte + usual.stored))
}

/// What goes with bytes of files is what lines cost, the rest of `both` goes with bytes on disks: some of it each.
fn split(both: f64, of_lines: f64) -> Engine {
    let byte = of_lines.clamp(0.05 * both, 0.95 * both);
    Engine { byte, stored: both - byte, file: 0.0 }
}

/// Processor seconds of the codec for a byte of `bytes`.
fn codec_seconds(compression: &str, bytes: &[u8]) -> Outcome {
    let compression = match compression {
        "lz4" => CompressionSetting::LZ4,
        _ => CompressionSetting::plain(Compression::Off),
    };
    let settings = vec![Setting { compression, recordsize: RECORD as u64 }];
    let encoder = Encoder::new(settings, 12, Layout::Stripe);
    let data = std::iter::once(0..bytes.len()).collect();
    let piece = Piece { file_size: bytes.len() as u64, bytes: bytes.to_vec(), data };
    // The first time, memory is fresh.
    encoder.encode(&piece);
    let outcome = encoder.encode(&piece)[0];
    let per_byte = |seconds: f64| seconds / bytes.len().max(1) as f64;
    Outcome { compress: per_byte(outcome.compress), decompress: per_byte(outcome.decompress), ..outcome }
}

/// Lines that differ a little.
fn lines() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD);
    let mut number = 0;
    while bytes.len() < RECORD {
        bytes.extend_from_slice(
            format!("line {} of a text that repeats itself again and again\n", number % 10).as_bytes(),
        );
        number += 1;
    }
    bytes
}

/// Files of together `bytes` bytes, made of `data` over and over.
fn filled(data: &[Vec<u8>], bytes: usize) -> Files {
    let mut files = Vec::new();
    let mut pieces = data.iter().filter(|piece| !piece.is_empty()).cycle();
    for number in 0..bytes.div_ceil(FILE) {
        let mut file = Vec::with_capacity(FILE);
        while file.len() < FILE {
            let Some(piece) = pieces.next() else { return files };
            file.extend_from_slice(&piece[..piece.len().min(FILE - file.len())]);
        }
        files.push((format!("{number}"), file));
    }
    files
}

/// Passes on the wish to stop, and nothing else.
struct Quiet<'a>(&'a dyn Watch);

impl Watch for Quiet<'_> {
    fn event(&self, _: Event<'_>) {}

    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Deaf;

    #[test]
    fn on_a_busy_machine_no_cost_is_below_zero() {
        // The codec alone seemed slower than all of the engine, and lines dearer than other data.
        let both = at_least(-3e-10, ENGINE_WRITE);
        for of_lines in [-1e-9, both, 1e-6] {
            let Engine { byte, stored, .. } = split(both, of_lines);
            assert!(byte > 0.0 && stored > 0.0 && (byte + stored - both).abs() < 1e-15, "{byte} {stored}");
        }
    }

    #[test]
    fn a_folder_has_a_rate_and_nothing_is_left_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut target = Target {
            cores: 2,
            busy_cores: 0.0,
            disk_write: None,
            disk_read: Some(5.0),
            disk_measured: false,
            network: None,
            dirty_max: None,
            engine_write: Engine::default(),
            engine_read: Engine::default(),
        };
        measure(dir.path(), &[vec![3; 100_000]], &mut target, &Deaf).unwrap();
        assert!(target.disk_write.unwrap() > 1e6 && target.disk_read == Some(5.0));
        assert!(target.engine_write.byte > 0.0 && target.engine_write.stored > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

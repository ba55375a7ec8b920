//! Measuring the disks here, and the cost of the engine besides its codecs.
//!
//! A pool in a nameless temporary file takes some data and gives it back from cold caches, timed as `cenote bench` does:
//!
//! 1. some of the data as it is, uncompressed: as many bytes go to the disks as come in; first a little, so that a slow disk
//!    does not take long; then four times as much as long as there is time. The largest amount has several passes, whose
//!    median counts;
//! 2. lines that compress to next to nothing: what the engine does for each byte that never reaches a disk;
//! 3. many short files: what a file costs.
//!
//! The second and third are left out when the time is over. Of the processor time of each the codec's is taken away, as the
//! encoder here takes it. The rate of the disks follows from the first: it is the rate with which the model comes to the
//! time that was measured.
//!
//! Memory is what the pool gathers ([`DIRTY_MAX`]) and buffers, and the source: it is small, and written over and over.

use std::path::Path;
use std::time::Instant;

use format::Compression;
use format::compression::CompressionSetting;

use super::encode::{Encoder, Outcome, Piece, Setting};
use super::layout::Layout;
use super::model::{Engine, Target};
use crate::configuration::cores;
use crate::source::Source;
use crate::stopwatch::{Elapsed, is_enough, middle};
use crate::target::Target as Room;
use crate::{Error, Event, Place, Plan, Result, Watch, in_pool, measure};

/// Bytes of the first pass, by how much each is more than the last one, and bytes of the longest.
const LITTLE: u64 = 4 << 20;
const MORE: u64 = 4;
const MUCH: u64 = 96 << 20;
/// Passes of which the median counts.
const PASSES_MAX: usize = 3;
/// Bytes of the data that are written over and over.
pub(crate) const SOURCE: u64 = 16 << 20;
/// Bytes of changes that the pool gathers.
const DIRTY_MAX: u64 = 64 << 20;
const RECORD: usize = 128 << 10;
/// Bytes of a file that is written in many pieces.
const FILE: u64 = 8 << 20;
/// Short files, and their bytes.
const SHORT_FILES: usize = 4000;
const SHORT: usize = 2048;
/// Seconds that a pass over these files takes besides the time for their bytes.
const SHORT_SECONDS: f64 = 0.5;
/// Default cost of the engine, if it was not measured: cenote on a core of today (docs/performance.md).
pub(crate) const ENGINE_WRITE: Engine = Engine { byte: 0.35e-9, stored: 0.25e-9, file: 25e-6 };
pub(crate) const ENGINE_READ: Engine = Engine { byte: 0.15e-9, stored: 0.15e-9, file: 8e-6 };

/// Where and how long is measured.
pub(crate) struct Probe<'a> {
    pub(crate) folder: &'a Path,
    /// No pass begins that would likely take longer, except the first.
    pub(crate) until: Instant,
    pub(crate) watch: &'a dyn Watch,
}

/// Times of passes: the medians.
struct Passes {
    bytes: f64,
    write: Elapsed,
    read: Elapsed,
}

impl Passes {
    /// Processor seconds of a byte.
    fn write_cpu(&self) -> f64 {
        self.write.cpu_seconds / self.bytes
    }

    fn read_cpu(&self) -> f64 {
        self.read.cpu_seconds / self.bytes
    }
}

impl Probe<'_> {
    /// Measures with `data`, repeated as often as needed; puts what it finds into `target`.
    ///
    /// # Errors
    /// There is no room or no permission; the caller stopped it.
    pub(crate) fn measure(&self, data: &[Vec<u8>], target: &mut Target) -> Result<()> {
        let files = filled(data, SOURCE);
        // Checksums are part of the codec's time here.
        let sums = codec_seconds("off", &files[0].1);
        let plain = self.passes("off", &Source::of_memory(files), MUCH)?;
        let write = at_least(plain.write_cpu() - sums.compress, ENGINE_WRITE);
        let read = at_least(plain.read_cpu() - sums.decompress, ENGINE_READ);
        target.engine_write = Engine { byte: 0.6 * write, stored: 0.4 * write, ..ENGINE_WRITE };
        target.engine_read = Engine { byte: 0.5 * read, stored: 0.5 * read, ..ENGINE_READ };
        let cores = f64::from(cores());
        let rate = |of: Elapsed| {
            let seconds = of.seconds / plain.bytes;
            1.0 / Target::device_seconds(seconds, of.cpu_seconds / plain.bytes / cores)
        };
        if target.disk_write.is_none() {
            (target.disk_write, target.disk_write_measured) = (Some(rate(plain.write)), true);
        }
        if target.disk_read.is_none() {
            (target.disk_read, target.disk_read_measured) = (Some(rate(plain.read)), true);
        }
        let per_byte = (plain.write.seconds + plain.read.seconds) / plain.bytes;
        if self.has_time_for(per_byte * MUCH as f64) {
            let lines = filled(&[lines()], FILE);
            let codec = codec_seconds("lz4", &lines[0].1);
            let lines = self.passes("lz4", &Source::of_memory(lines), MUCH)?;
            target.engine_write = split(write, lines.write_cpu() - codec.compress, ENGINE_WRITE);
            target.engine_read = split(read, lines.read_cpu() - codec.decompress, ENGINE_READ);
        }
        if self.has_time_for(per_byte * (SHORT_FILES * 2 * SHORT) as f64 + SHORT_SECONDS) {
            let text = lines();
            let short = |number: usize| (number.to_string(), text[number..number + SHORT].to_vec());
            let files = Source::of_memory((0..SHORT_FILES).map(short).collect());
            let (write, read) = self.pass("off", &files)?;
            target.engine_write.file = (write.cpu_seconds / SHORT_FILES as f64).max(0.0);
            target.engine_read.file = (read.cpu_seconds / SHORT_FILES as f64).max(0.0);
        }
        Ok(())
    }

    fn has_time_for(&self, seconds: f64) -> bool {
        seconds < self.until.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    /// Passes of ever more bytes made of `source`, up to `most`; several of the largest that there is time for.
    fn passes(&self, compression: &str, source: &Source, most: u64) -> Result<Passes> {
        let mut bytes = LITTLE;
        let started = Instant::now();
        let mut passes = vec![self.pass(compression, &source.sized(bytes)?)?];
        let mut last = started.elapsed();
        while bytes < most {
            let more = most.min(bytes * MORE);
            if !self.has_time_for(2.0 * last.as_secs_f64() * more as f64 / bytes as f64) {
                break;
            }
            let started = Instant::now();
            match self.pass(compression, &source.sized(more)?) {
                Ok(pass) => (bytes, passes) = (more, vec![pass]),
                Err(Error::NoRoom { .. }) => break,
                Err(error) => return Err(error),
            }
            last = started.elapsed();
        }
        while passes.len() < PASSES_MAX && self.has_time_for(2.0 * last.as_secs_f64()) {
            passes.push(self.pass(compression, &source.sized(bytes)?)?);
        }
        let (mut writes, mut reads): (Vec<Elapsed>, Vec<Elapsed>) = passes.into_iter().unzip();
        Ok(Passes { bytes: bytes as f64, write: middle(&mut writes), read: middle(&mut reads) })
    }

    /// One pass of all of `source`: writing and reading.
    fn pass(&self, compression: &str, source: &Source) -> Result<(Elapsed, Elapsed)> {
        let plan = Plan {
            compressions: vec![compression.to_owned()],
            recordsizes: vec![RECORD as u64],
            place: Place::Folder(self.folder.to_owned()),
            dirty_max: Some(DIRTY_MAX),
            ..Plan::usual()
        };
        let configurations = plan.configurations()?;
        plan.place.check_room(source, &configurations)?;
        let target = Room::new(&plan.place, source.footprint(RECORD as u64), &plan)?;
        let watch = &Quiet(self.watch);
        in_pool::within(
            &target,
            &in_pool::Job { plan: &plan, source, configuration: &configurations[0], watch },
            |work| measure::pass(work, is_enough, watch),
        )
    }
}

/// Seconds for a byte; a difference of two times that were measured on a busy machine may come out below zero, and no
/// engine is ten times as fast as `usual`.
fn at_least(seconds: f64, usual: Engine) -> f64 {
    seconds.max(0.1 * (usual.byte + usual.stored))
}

/// Splits the cost: the cost of lines goes with bytes of files, the rest of `both` goes with bytes on disks: some of it
/// each. A file costs what is usual.
fn split(both: f64, of_lines: f64, usual: Engine) -> Engine {
    let byte = of_lines.clamp(0.05 * both, 0.95 * both);
    Engine { byte, stored: both - byte, ..usual }
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
    let pieces = [piece];
    encoder.encode(&pieces);
    let outcome = encoder.encode(&pieces)[0][0];
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

/// Files by their names.
type Files = Vec<(String, Vec<u8>)>;

/// Files of together `bytes` bytes, made of `data` over and over.
fn filled(data: &[Vec<u8>], bytes: u64) -> Files {
    let mut files = Vec::new();
    let mut pieces = data.iter().filter(|piece| !piece.is_empty()).cycle();
    for number in 0..bytes.div_ceil(FILE) {
        let mut file = Vec::with_capacity(FILE as usize);
        while file.len() < FILE as usize {
            let Some(piece) = pieces.next() else { return files };
            file.extend_from_slice(&piece[..piece.len().min(FILE as usize - file.len())]);
        }
        files.push((format!("{number}"), file));
    }
    files
}

/// Forwards only stop requests.
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
    use std::time::Duration;

    #[test]
    fn on_a_busy_machine_no_cost_is_below_zero() {
        // The codec alone seemed slower than all of the engine, and lines dearer than other data.
        let both = at_least(-3e-10, ENGINE_WRITE);
        for of_lines in [-1e-9, both, 1e-6] {
            let Engine { byte, stored, file } = split(both, of_lines, ENGINE_WRITE);
            assert_eq!(file, ENGINE_WRITE.file, "that was not measured");
            assert!(byte > 0.0 && stored > 0.0 && (byte + stored - both).abs() < 1e-15, "{byte} {stored}");
        }
    }

    #[test]
    fn a_folder_has_a_rate_and_nothing_is_left_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut target = Target {
            cores: 2,
            disk_read: Some(5.0),
            engine_write: Engine::default(),
            engine_read: Engine::default(),
            ..crate::advise::Question::usual().target
        };
        let until = Instant::now();
        Probe { folder: dir.path(), until, watch: &Deaf }.measure(&[vec![3; 100_000]], &mut target).unwrap();
        assert!(target.disk_write.unwrap() > 1e6 && target.disk_read == Some(5.0));
        assert!(target.disk_write_measured && !target.disk_read_measured, "one was given");
        assert!(
            until.elapsed() < Duration::from_secs(600),
            "only the first pass is made when the time is over"
        );
        assert!(target.engine_write.byte > 0.0 && target.engine_write.stored > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

//! Advice in half a minute: what each configuration would make of any amount of data, and what to set.
//!
//! From:   data of any kind ([`Subject`]), a target, a purpose.
//! To:     an [`Advice`]. Nothing is printed here.
//!
//! 1. `material`: a survey of names and sizes, ended by its time.
//! 2. `strata`: pieces of files are drawn by kind and size of file, seeded.
//! 3. `encode`: each piece in every configuration by the write pipeline's own rules, timed.
//! 4. `estimate`: sums over everything with their intervals; `metadata` adds what holds the records.
//! 5. `probe`, `model`: what the disks and the engine do, and how fast all of it goes together.
//! 6. `choose`: the front, and one rule for each purpose; `published` feeds it with tables instead.
//!
//! Each module tells its formulas.

mod answer;
mod choose;
mod dedup;
mod encode;
mod estimate;
mod kind;
mod layout;
mod material;
mod metadata;
mod model;
mod probe;
mod published;
mod random;
mod strata;
mod tar;

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use format::ObjectId;
use format::compression::CompressionSetting;
use pool::props::number::{nice, nice_bytes};
use zpl::Filesystem;

pub use answer::{Advice, Kind, Pick, Row, SCHEMA, Sample, TableReport};
pub use choose::{Candidate, Choice, Goal, Workload, choose, front};
pub use dedup::Dedup;
pub use layout::Layout;
pub use model::{Bottleneck, Burst, Flow, Load, Target, cores_to_fill};
pub use published::{TABLE_CORES, TableAdvice, TablePick, TableRow, from_tables};

use crate::plan::{compression_value, cores};
use crate::{Configuration, Error, Event, Machine, Plan, Result, Watch};
use encode::{Encoder, Setting};
use estimate::{Estimate, Seen, estimate};
use material::{Material, Survey};
use metadata::Metadata;
use strata::Strata;

/// Of the time that is given: what the survey may take, and until when pieces are encoded.
const SURVEY_PART: f64 = 0.35;
const ENCODE_PART: f64 = 0.8;
/// A sample is large enough when every interval is this narrow, as a part of the ratio.
const PRECISION: f64 = 0.006;
/// Pieces that come before that is asked.
const PIECES_MIN: usize = 48;
/// Bytes that are read in any case; of more, this part.
const BYTES_MIN: u64 = 64 << 20;
const BYTES_PART: f64 = 0.009;
/// Bytes that are kept to measure the disks with.
const PROBE_BYTES: usize = 16 << 20;
/// Groups of files of one size that are looked at for copies, and files of each.
const TWIN_GROUPS: usize = 300;
const TWINS: usize = 8;
/// A kind of file is worth a remark from this part of all bytes on.
const KIND_PART: f64 = 0.01;
/// ... and a dataset of its own if it saves this part of them.
const KIND_SAVING: f64 = 0.03;

/// What is asked about.
pub enum Subject<'a> {
    /// The sample that comes with cenote.
    Sample,
    /// A file, a folder, a block device.
    Path(PathBuf),
    /// A stream.
    Stream(&'a mut dyn io::Read),
    /// What an object of a file system is or holds.
    Dataset {
        /// The file system, opened to be read.
        fs: Filesystem,
        /// The file or folder.
        id: ObjectId,
        /// As the user wrote it.
        name: String,
    },
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Values of the property `compression`.
    pub compressions: Vec<String>,
    /// Bytes of a record.
    pub recordsizes: Vec<u64>,
    /// Sectors of the pool are of 2^ashift bytes.
    pub ashift: u32,
    /// The shape of the pool.
    pub layout: Layout,
    /// What is to hold the data. Rates that are `None` are measured.
    pub target: Target,
    /// The purpose.
    pub goal: Goal,
    /// Seconds that it may take, but for [`Question::dedup`].
    pub seconds: f64,
    /// Which sample is drawn.
    pub seed: u64,
    /// Everything is read to tell what deduplication would do.
    pub dedup: bool,
    /// A tar stands for the files in it.
    pub unpack: bool,
    /// Where the disks are measured; without it, where the data lies.
    pub folder: Option<PathBuf>,
    /// The dataset in the commands.
    pub dataset: String,
    /// Bytes that are read at most; without it, what the time allows of [`BYTES_MIN`] or [`BYTES_PART`] of all.
    pub bytes_max: Option<u64>,
}

impl Question {
    /// The usual compressions with records of 128 KiB and 1 MiB, on this machine, within 20 s.
    #[must_use]
    pub fn usual() -> Question {
        Question {
            compressions: Plan::usual().compressions,
            recordsizes: vec![128 << 10, 1 << 20],
            ashift: 12,
            layout: Layout::Stripe,
            target: Target {
                cores: cores(),
                busy_cores: 0.0,
                disk_write: None,
                disk_read: None,
                disk_measured: false,
                network: None,
                dirty_max: None,
                engine_write: probe::ENGINE_WRITE,
                engine_read: probe::ENGINE_READ,
            },
            goal: Goal::Balanced,
            seconds: 20.0,
            seed: 1,
            dedup: false,
            unpack: false,
            folder: None,
            dataset: "POOL/DATASET".to_owned(),
            bytes_max: None,
        }
    }
}

/// Answers `question` about `subjects`.
///
/// # Errors
/// See [`Error`]. Nothing is left behind.
pub fn advise(question: &Question, subjects: Vec<Subject<'_>>, watch: &dyn Watch) -> Result<Advice> {
    let started = Instant::now();
    let after = |part: f64| started + Duration::from_secs_f64((question.seconds * part).clamp(0.0, 1e6));
    let plan = Plan {
        compressions: question.compressions.clone(),
        recordsizes: question.recordsizes.clone(),
        threads: vec![1],
        ..Plan::usual()
    };
    let configurations = plan.configurations()?;
    let mut settings = Vec::new();
    for configuration in &configurations {
        settings.push(setting(configuration)?);
    }
    let piece = settings.iter().map(|setting| setting.recordsize).max().unwrap_or(0).max(128 << 10);

    let survey = Survey { until: after(SURVEY_PART), seed: question.seed, unpack: question.unpack, watch };
    let mut material = Material::new();
    for subject in subjects {
        match subject {
            Subject::Sample => material.add_sample()?,
            Subject::Path(path) => material.add_path(&path, &survey)?,
            Subject::Stream(stream) => material.add_stream(stream, piece as usize, &survey)?,
            Subject::Dataset { fs, id, name } => material.add_dataset(&fs, id, &name, &survey)?,
        }
    }
    let subject = material.subject.clone();
    material.settle(&subject)?;

    let encoder = Encoder::new(settings, question.ashift, question.layout);
    let mut strata = Strata::new(&material, piece, question.seed);
    let bytes_max =
        question.bytes_max.unwrap_or(((material.bytes as f64 * BYTES_PART) as u64).max(BYTES_MIN));
    let limits = Limits {
        // What fits is drawn to its last piece.
        bytes: if material.bytes <= bytes_max { u64::MAX } else { bytes_max },
        until: after(ENCODE_PART),
    };
    let metadata = Metadata::new(&material, question);
    let looked = look(&material, &mut strata, &encoder, &metadata, &limits, watch)?;

    let mut notes = std::mem::take(&mut material.notes);
    notes.extend(looked.notes());
    let mut target = question.target.clone();
    if target.disk_write.is_none() || target.disk_read.is_none() {
        let folder = question.folder.clone().or(material.folder.clone());
        notes.extend(measure_disks(folder, &looked, &mut target, watch)?);
    }

    let whole = Whole {
        question,
        configurations: &configurations,
        strata: &strata,
        seen: &looked.seen,
        target: &target,
    };
    let bytes = material.bytes as f64;
    let (rows, candidates) = whole.rows(&metadata, bytes, &|_| true);
    let picks = whole.picks(&rows, &candidates);
    let kinds = whole.kinds(&metadata, bytes, &picks[0]);
    notes.extend(whole.remarks(&rows, &picks[0], bytes));
    let dedup = match question.dedup {
        true => exact_dedup(&material, picks[0].recordsize, watch)?,
        false => bounded_dedup(&material, &looked, &encoder, bytes, watch)?,
    };
    let machine = Machine::with(
        question
            .folder
            .as_ref()
            .or(material.folder.as_ref())
            .map_or_else(|| "none".to_owned(), |folder| crate::machine::file_system(folder)),
        material.file_count,
        material.bytes,
        material.is_in_memory(),
    );
    Ok(Advice {
        schema: SCHEMA,
        form: "advice".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        subject,
        sample: Sample {
            files: material.file_count,
            folders: material.folders,
            bytes: material.bytes,
            sampled_bytes: looked.bytes,
            pieces: looked.seen.len() as u64,
            complete: looked.complete && material.complete,
            seed: question.seed,
            seconds: (started.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        },
        target,
        layout: question.layout,
        ashift: question.ashift,
        rows,
        picks,
        kinds,
        dedup,
        notes,
    })
}

/// Measures the disks where the data is, or else where temporary files go. Gives what is to be said about it.
fn measure_disks(
    folder: Option<PathBuf>,
    looked: &Looked,
    target: &mut Target,
    watch: &dyn Watch,
) -> Result<Option<String>> {
    let elsewhere = std::env::temp_dir();
    let first = folder.unwrap_or_else(|| elsewhere.clone());
    let error = match probe::measure(&first, &looked.probe, target, watch) {
        Ok(()) => return Ok(None),
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => error,
    };
    match probe::measure(&elsewhere, &looked.probe, target, watch) {
        Ok(()) => Ok(Some(format!("the disks were measured in '{}' ({error})", elsewhere.display()))),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(_) => Ok(Some(format!(
            "the disks could not be measured ({error}): rates are without them; give --disk-write and --disk-read"
        ))),
    }
}

fn setting(configuration: &Configuration) -> Result<Setting> {
    let compression = match compression_value(&configuration.compression)? {
        // What `on` means in a pool of today.
        pool::props::Value::Number(number) => CompressionSetting::from_property(number).ok(),
        _ => None,
    };
    let compression = compression.expect("values of this property are settings");
    let compression = match compression.algorithm {
        format::Compression::On => CompressionSetting::LZ4,
        _ => compression,
    };
    Ok(Setting { compression, recordsize: configuration.recordsize })
}

/// When the looking ends.
struct Limits {
    bytes: u64,
    until: Instant,
}

/// What was looked at.
#[derive(Default)]
struct Looked {
    seen: Vec<Seen>,
    bytes: u64,
    /// Nothing is left to be drawn, and nothing failed.
    complete: bool,
    /// Pieces that could not be read, and the first reason.
    failed: u64,
    reason: Option<String>,
    /// Some of the data.
    probe: Vec<Vec<u8>>,
    /// Hashes of the records of the first record size, and their bytes.
    hashes: Vec<(u64, u32)>,
}

impl Looked {
    fn notes(&self) -> Option<String> {
        self.reason
            .as_ref()
            .map(|reason| format!("{} pieces could not be read and were left out: {reason}", self.failed))
    }
}

/// Draws and encodes pieces on all cores until it is enough.
fn look(
    material: &Material,
    strata: &mut Strata,
    encoder: &Encoder,
    metadata: &Metadata,
    limits: &Limits,
    watch: &dyn Watch,
) -> Result<Looked> {
    /// What the threads share.
    struct Shared<'a> {
        strata: &'a mut Strata,
        looked: Looked,
        over: bool,
        drawn_bytes: u64,
        /// How many pieces there are when it is next asked whether they are enough.
        next_question: usize,
    }
    let looked = Looked::default();
    let shared =
        Mutex::new(Shared { strata, looked, over: false, drawn_bytes: 0, next_question: PIECES_MIN });
    let total = limits.bytes.min(material.bytes);
    let lock = || shared.lock().expect("no code panics while holding the sample");
    let work = || {
        warm_up(encoder);
        loop {
            let draw = {
                let mut shared = lock();
                if shared.over || watch.stopped() {
                    return;
                }
                // A sample of two pieces at least, however short the time.
                let enough = shared.drawn_bytes >= limits.bytes || Instant::now() >= limits.until;
                if enough && shared.looked.seen.len() >= 2 {
                    shared.over = true;
                    return;
                }
                let Some(draw) = shared.strata.draw(material) else {
                    shared.over = true;
                    shared.looked.complete = true;
                    return;
                };
                shared.drawn_bytes += draw.len;
                draw
            };
            let entry = &material.files[draw.file as usize];
            let piece = match material.read(entry, draw.offset, draw.len as usize) {
                Ok(piece) => piece,
                Err(error) => {
                    let looked = &mut lock().looked;
                    looked.failed += 1;
                    looked.reason.get_or_insert_with(|| format!("'{}': {error}", material.called(entry)));
                    continue;
                }
            };
            let outcomes = encoder.encode(&piece);
            let hashes = encoder.hashes(&piece);
            let mut shared = lock();
            let looked = &mut shared.looked;
            looked.bytes += draw.len;
            looked.hashes.extend(hashes);
            looked.seen.push(Seen { stratum: draw.stratum, bytes: draw.len, outcomes });
            if looked.probe.iter().map(Vec::len).sum::<usize>() < PROBE_BYTES {
                looked.probe.push(piece.bytes);
            }
            watch.event(Event::Loading { bytes: looked.bytes, total });
            let count = shared.looked.seen.len();
            if count >= shared.next_question {
                shared.next_question = count + (count / 5).max(16);
                let all = 0..encoder.settings.len();
                let precise = all.map(|index| {
                    let of = (index, encoder.settings[index].recordsize);
                    estimate(shared.strata, &shared.looked.seen, of, metadata, &|_| true)
                });
                if precise.into_iter().all(|one| one.half_width <= PRECISION * one.ratio) {
                    shared.over = true;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (1..cores()).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    if watch.stopped() {
        return Err(Error::Interrupted);
    }
    let mut looked = shared.into_inner().expect("no code panics while holding the sample").looked;
    looked.complete &= looked.failed == 0;
    match (&looked.reason, looked.seen.is_empty()) {
        (Some(reason), true) => Err(Error::Unadvised(reason.clone())),
        (None, true) => Err(Error::NoData { path: material.subject.clone().into() }),
        _ => Ok(looked),
    }
}

/// The codecs' contexts come into being now, not in the first measurement.
fn warm_up(encoder: &Encoder) {
    let bytes: Vec<u8> = (0..16_384u32).map(|n| (n * n >> 7) as u8).collect();
    let data = std::iter::once(0..bytes.len()).collect();
    encoder.encode(&encode::Piece { file_size: bytes.len() as u64, bytes, data });
}

/// Everything that the answer follows from.
struct Whole<'a> {
    question: &'a Question,
    configurations: &'a [Configuration],
    strata: &'a Strata,
    seen: &'a [Seen],
    target: &'a Target,
}

impl Whole<'_> {
    /// The rows for `bytes` bytes of files in the strata that `counts` names.
    fn rows(
        &self,
        metadata: &Metadata,
        bytes: f64,
        counts: &dyn Fn(usize) -> bool,
    ) -> (Vec<Row>, Vec<Candidate>) {
        let configurations = self.configurations.iter().enumerate();
        let of = |(index, one): (usize, &Configuration)| {
            estimate(self.strata, self.seen, (index, one.recordsize), metadata, counts)
        };
        let estimates: Vec<Estimate> = configurations.map(of).collect();
        let per_byte = |value: f64| value / bytes.max(1.0);
        let mut rows: Vec<Row> = Vec::new();
        for (configuration, of) in self.configurations.iter().zip(&estimates) {
            let load = Load {
                raw: per_byte(of.raw),
                psize: per_byte(of.physical),
                compress: per_byte(of.compress),
                decompress: per_byte(of.decompress),
            };
            let off = self.configurations.iter().zip(&estimates);
            let off = off.filter(|(other, _)| {
                other.compression == "off" && other.recordsize == configuration.recordsize
            });
            let base = off.map(|(_, off)| off.used).next().unwrap_or(of.logical);
            let write = self.target.write(&load);
            rows.push(Row {
                compression: configuration.compression.clone(),
                recordsize: configuration.recordsize,
                compressratio: of.ratio,
                ratio_low: (of.ratio - of.half_width).max(1.0),
                ratio_high: of.ratio + of.half_width,
                logical_bytes: of.logical,
                used_bytes: of.used,
                raw_bytes: of.raw,
                saving: 1.0 - of.used / base.max(1.0),
                compress_rate: bytes / of.compress.max(1e-9),
                decompress_rate: bytes / of.decompress.max(1e-9),
                write,
                read: self.target.read(&load),
                burst: self.target.burst(bytes, write),
                cores_to_fill: self.target.cores_to_fill(&load),
                pareto: false,
            });
        }
        let cores = f64::from(self.target.cores.max(1));
        let candidates: Vec<Candidate> = rows
            .iter()
            .zip(&estimates)
            .map(|(row, of)| Candidate {
                compression: row.compression.clone(),
                recordsize: Some(row.recordsize),
                size: of.raw / bytes.max(1.0),
                workloads: vec![Workload {
                    seconds: bytes / row.write.bytes_per_second + bytes / row.read.bytes_per_second,
                    codec_seconds: (of.compress + of.decompress) / cores,
                }],
            })
            .collect();
        for (row, pareto) in rows.iter_mut().zip(front(&candidates, self.target.busy_part())) {
            row.pareto = pareto;
        }
        (rows, candidates)
    }

    /// A pick for each purpose, the one asked for first.
    fn picks(&self, rows: &[Row], candidates: &[Candidate]) -> Vec<Pick> {
        let goals = std::iter::once(self.question.goal);
        let goals = goals.chain(Goal::ALL.into_iter().filter(|goal| *goal != self.question.goal));
        let pick = |goal: Goal| {
            let choice = choose(candidates, goal, self.target.busy_part()).expect("there is a configuration");
            let (row, base) = (&rows[choice.index], &rows[choice.base]);
            let Row { compression, recordsize, .. } = row.clone();
            let mut why = format!(
                "{} instead of {} ({:.2}x, {:.0} % saved), writes {:.0} and reads {:.0} MB/s ({}, {})",
                nice_bytes(row.used_bytes as u64),
                nice_bytes(base.used_bytes as u64),
                row.compressratio,
                100.0 * (1.0 - row.used_bytes / base.used_bytes.max(1.0)),
                row.write.bytes_per_second / 1e6,
                row.read.bytes_per_second / 1e6,
                row.write.bottleneck.word(),
                row.read.bottleneck.word(),
            );
            if choice.index != choice.base {
                why += &format!(", {:.2} times the time of {}", choice.time, base.compression);
            }
            why = format!("{}; {why}", choice.why);
            let dataset = &self.question.dataset;
            let size = nice(recordsize);
            Pick {
                goal,
                create: format!("zfs create -o compression={compression} -o recordsize={size} {dataset}"),
                set: format!("zfs set compression={compression} recordsize={size} {dataset}"),
                compression,
                recordsize,
                why,
            }
        };
        goals.map(pick).collect()
    }

    /// What each kind of file would gain from a dataset of its own, next to `pick` for all.
    fn kinds(&self, metadata: &Metadata, bytes: f64, pick: &Pick) -> Vec<Kind> {
        let mut names: Vec<&str> = self.strata.all.iter().map(|stratum| stratum.kind.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let several = names.len() > 1;
        let mut kinds: Vec<Kind> = Vec::new();
        for name in names {
            let of_kind = |number: usize| self.strata.all[number].kind == name;
            if !self.seen.iter().any(|piece| of_kind(piece.stratum)) {
                continue;
            }
            let sum = |of: fn(&strata::Stratum) -> u64| {
                self.strata.all.iter().filter(|stratum| stratum.kind == name).map(of).sum::<u64>()
            };
            let (kind_files, kind_bytes) = (sum(|stratum| stratum.files), sum(|stratum| stratum.bytes));
            let of_its_own = metadata.part(kind_files as f64);
            let (rows, candidates) = self.rows(&of_its_own, kind_bytes as f64, &of_kind);
            let choice = choose(&candidates, self.question.goal, self.target.busy_part())
                .expect("there is a configuration");
            let common = rows
                .iter()
                .position(|row| row.compression == pick.compression && row.recordsize == pick.recordsize);
            let common = common.expect("the pick is one of them");
            let (own, with_all) = (&rows[choice.index], &rows[common]);
            let seconds = |row: &Row| kind_bytes as f64 / row.compress_rate;
            let saved_bytes = with_all.used_bytes - own.used_bytes;
            let saved_seconds = seconds(with_all) - seconds(own);
            let best = rows.iter().map(|row| row.compressratio).fold(1.0, f64::max);
            let share = kind_bytes as f64 / bytes.max(1.0);
            let what = format!("{name}: {} ({:.0} % of the data)", nice_bytes(kind_bytes), 100.0 * share);
            let remark = if share < KIND_PART {
                None
            } else if best < 1.03 {
                let advice = match several {
                    true => format!(
                        "a dataset of its own with compression={} spares {saved_seconds:.1} s of processor time",
                        own.compression
                    ),
                    false => format!("store it with compression={}", own.compression),
                };
                Some(format!(
                    "{what} is compressed already (at best {best:.2}x): {advice}; packing files by hand gains nothing on a compressing dataset"
                ))
            } else if several && choice.index != common && saved_bytes > KIND_SAVING * kind_bytes as f64 {
                Some(format!(
                    "{what} gains from a dataset of its own: compression={} recordsize={} takes {} less ({:.2}x instead of {:.2}x)",
                    own.compression,
                    nice(own.recordsize),
                    nice_bytes(saved_bytes as u64),
                    own.compressratio,
                    with_all.compressratio
                ))
            } else {
                None
            };
            kinds.push(Kind {
                kind: name.to_owned(),
                files: kind_files,
                bytes: kind_bytes,
                compressratio: with_all.compressratio,
                half_width: 0.5 * (with_all.ratio_high - with_all.ratio_low),
                compression: own.compression.clone(),
                recordsize: own.recordsize,
                saved_bytes,
                saved_seconds,
                remark,
            });
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
        kinds
    }

    /// What a reader should know about the rows.
    fn remarks(&self, rows: &[Row], pick: &Pick, bytes: f64) -> Vec<String> {
        let mut remarks = Vec::new();
        let best = rows.iter().map(|row| row.compressratio).fold(1.0, f64::max);
        let zle = rows
            .iter()
            .filter(|row| row.compression == "zle")
            .map(|row| row.compressratio)
            .fold(1.0, f64::max);
        if zle > 1.1 && zle > 0.95 * best {
            remarks.push(format!("runs of zeros are most of what compresses here: zle gets {zle:.2}x of {best:.2}x for next to no processor time"));
        }
        let picked =
            rows.iter().find(|row| row.compression == pick.compression && row.recordsize == pick.recordsize);
        if let Some(row) = picked.filter(|row| row.logical_bytes > 1.01 * bytes) {
            remarks.push(format!(
                "with records of {} the files count as {} instead of {}: the last record of each is filled up with zeros, which compress to nothing",
                nice(row.recordsize),
                nice_bytes(row.logical_bytes as u64),
                nice_bytes(bytes as u64)
            ));
        }
        if let Some(row) = picked.filter(|row| row.write.bottleneck == Bottleneck::Cpu)
            && let Some(needed) = row.cores_to_fill
        {
            remarks.push(format!(
                "{} needs {needed:.1} cores like these to keep the disks busy",
                row.compression
            ));
        }
        remarks
    }
}

impl Encoder {
    /// Hashes of the records of the first record size, zeros left out.
    fn hashes(&self, piece: &encode::Piece) -> Vec<(u64, u32)> {
        let recordsize = self.settings.first().map_or(128 << 10, |setting| setting.recordsize) as usize;
        let records = piece.bytes.chunks(recordsize).filter(|record| !codec::is_zero(record));
        records.map(|record| (dedup::hash(record), record.len() as u32)).collect()
    }
}

/// What deduplication would do, after reading everything.
fn exact_dedup(material: &Material, recordsize: u64, watch: &dyn Watch) -> Result<Dedup> {
    let mut counter = dedup::Counter::new();
    let mut done = 0;
    for entry in &material.files {
        let mut offset = 0;
        while offset < entry.size {
            if watch.stopped() {
                return Err(Error::Interrupted);
            }
            let len = recordsize.min(entry.size - offset);
            // What vanished meanwhile is no data.
            if let Ok(piece) = material.read(entry, offset, len as usize) {
                counter.add(&piece.bytes);
            }
            offset += len;
            done += len;
            watch.event(Event::Loading { bytes: done, total: material.bytes });
        }
    }
    Ok(counter.result(recordsize))
}

/// The same from what was looked at: exact if that is everything, else what can be said for sure.
fn bounded_dedup(
    material: &Material,
    looked: &Looked,
    encoder: &Encoder,
    bytes: f64,
    watch: &dyn Watch,
) -> Result<Dedup> {
    let recordsize = encoder.settings.first().map_or(128 << 10, |setting| setting.recordsize);
    let mut counter = dedup::Counter::new();
    looked.hashes.iter().for_each(|(hash, len)| counter.add_hash(*hash, *len));
    let sampled = counter.result(recordsize);
    if looked.complete && material.complete {
        return Ok(sampled);
    }
    let copies = likely_copies(material, watch)?.max(bytes * (1.0 - 1.0 / sampled.ratio));
    let records = looked.hashes.len() as f64 * bytes / looked.bytes.max(1) as f64;
    Ok(dedup::lower_bound(recordsize, bytes, copies, records))
}

/// Bytes of files that have the size, the beginning and the end of another one.
fn likely_copies(material: &Material, watch: &dyn Watch) -> Result<f64> {
    const END: u64 = 4096;
    let mut by_size: std::collections::BTreeMap<u64, Vec<usize>> = std::collections::BTreeMap::new();
    for (number, file) in material.files.iter().enumerate().filter(|(_, file)| file.size >= END) {
        by_size.entry(file.size).or_default().push(number);
    }
    let mut groups: Vec<(u64, Vec<usize>)> =
        by_size.into_iter().filter(|(_, group)| group.len() > 1).collect();
    groups.sort_by_key(|(size, group)| std::cmp::Reverse(size * group.len() as u64));
    let mut copies = 0.0;
    for (size, group) in groups.into_iter().take(TWIN_GROUPS) {
        if watch.stopped() {
            return Err(Error::Interrupted);
        }
        let mut different = std::collections::HashSet::new();
        let mut looked_at = 0.0;
        for number in group.iter().take(TWINS) {
            let entry = &material.files[*number];
            let ends = [0, size - END]
                .map(|at| material.read(entry, at, END as usize).map(|piece| dedup::hash(&piece.bytes)));
            if let [Ok(first), Ok(last)] = ends {
                looked_at += 1.0;
                different.insert((first, last));
            }
        }
        if looked_at > 0.0 {
            copies += size as f64 * (looked_at - different.len() as f64) * group.len() as f64 / looked_at;
        }
    }
    Ok(copies)
}

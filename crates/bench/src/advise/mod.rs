//! Advice in half a minute: predicts the result of each configuration for any amount of data, and recommends settings.
//!
//! From:   data of any kind ([`Subject`]), a target, a purpose.
//! To:     an [`Advice`]. Nothing is printed here.
//!
//! 1. `material`: a survey of names and sizes, ended by its time.
//! 2. `strata`: pieces of files are drawn by kind and size of file, seeded.
//!    `group` has one sample for each length of pieces, `look` draws and encodes it.
//! 3. `encode`: each piece in every configuration by the write pipeline's own rules, timed.
//! 4. `estimate`: sums over everything, `interval`: how far off they may be; `metadata` adds what holds the records.
//! 5. `probe`, `model`: what the disks and the engine do, and how fast all of it goes together.
//! 6. `choose`: the front, and one rule for each purpose; `published` feeds it with tables instead.
//!
//! Each module documents its formulas.

mod answer;
mod choose;
mod copies;
mod dedup;
mod encode;
mod estimate;
mod group;
mod interval;
mod kind;
mod layout;
mod look;
mod material;
mod metadata;
mod model;
mod page;
mod probe;
mod published;
mod rows;
mod seen;
mod stored;
mod strata;
mod survey;
mod table;
mod tar;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use format::ObjectId;
use format::compression::CompressionSetting;
use zpl::Filesystem;

pub use answer::{Advice, Kind, Pick, RATIO_MEANS, Row, SCHEMA, Sample, TableReport};
pub use choose::{Candidate, Choice, Goal, Reason, Workload, choose, front};
pub(crate) use choose::{FREE_TIME, LZ4_TOLERANCE, choose_among};
pub use dedup::Dedup;
pub use layout::Layout;
pub use model::{Burst, Engine, Flow, Load, Target, cores_to_fill};
pub use published::{TABLE_CORES, TableAdvice, TablePick, TableRow, from_tables};
pub use stored::{Now, Origin, Stored};

use crate::configuration::cores;
use crate::plan::compression_value;
use crate::trace::{Sampler, cpus, others_share};
use crate::uncertain::busy;
use crate::{Configuration, Error, Machine, Place, Plan, Result, Watch};
use copies::{bounded_dedup, exact_dedup};
use encode::Setting;
use group::{Group, Sampling, groups};
use material::Material;
use metadata::Metadata;
use probe::Probe;
use rows::Whole;
use strata::Stratum;
use survey::Survey;

/// Parts of the given time after which the survey ends, and after which encoding ends.
const SURVEY_PART: f64 = 0.35;
const ENCODE_PART: f64 = 0.8;
/// Until when the first piece of each large part of the data may be encoded.
const LAST_PART: f64 = 1.1;
/// Until when the disks are measured, but for so long in any case.
const PROBE_PART: f64 = 1.0;
const PROBE_MIN: f64 = 0.1;
/// Limits of the search for identical files: its share of the time, and its share of the bytes of much data.
const COPIES_TIME: f64 = 0.1;
const COPIES_PART: f64 = 0.0005;
/// As good as no limit.
const MOST_SECONDS: f64 = 1e6;
/// The size of a txg: so many seconds of the disk's rate, and of this rate if it is not known.
const TXG_SECONDS: f64 = 5.0;
const SOME_RATE: f64 = 1e8;
/// Up to so many bytes all may be read, as far as there is time; of more, this part, but so many in any case.
const WHOLE_MAX: u64 = 1 << 30;
const BYTES_PART: f64 = 0.009;
const BYTES_MIN: u64 = 40 << 20;

/// The data that are asked about.
pub enum Subject<'a> {
    /// The sample that comes with cenote.
    Sample,
    /// A file, a folder, a block device.
    Path(PathBuf),
    /// A stream. One that is silent should say [`io::ErrorKind::WouldBlock`] now and then: the time is looked at, and it is
    /// asked again.
    Stream(&'a mut dyn io::Read),
    /// An object of a file system, or everything in it.
    Dataset {
        /// The file system, opened to be read.
        fs: Filesystem,
        /// The file or folder.
        id: ObjectId,
        /// As the user wrote it.
        name: String,
    },
}

/// The question.
#[derive(Clone, Debug)]
pub struct Question {
    /// Values of the property `compression`.
    pub compressions: Vec<String>,
    /// Bytes of a record.
    pub recordsizes: Vec<u64>,
    /// Sectors of the pool are of 2^ashift bytes.
    pub ashift: u32,
    /// How that is known.
    pub ashift_from: Origin,
    /// The shape of the pool.
    pub layout: Layout,
    /// How that is known.
    pub layout_from: Origin,
    /// The target system. Rates that are `None` are measured.
    pub target: Target,
    /// The purpose.
    pub goal: Goal,
    /// Seconds that it may take, but for [`Question::dedup`].
    pub seconds: f64,
    /// Which sample is drawn.
    pub seed: u64,
    /// Whether everything is read to predict deduplication.
    pub dedup: bool,
    /// Whether the files in a tar are looked at, instead of the tar itself.
    pub unpack: bool,
    /// Where the disks are measured; without it, where the data lies.
    pub folder: Option<PathBuf>,
    /// The dataset that the data is in, and that the commands are about.
    pub dataset: Option<String>,
    /// How that dataset is stored now.
    pub stored: Option<Stored>,
    /// Bytes that are read at most; without it, what the time allows of all, of much data only a part.
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
            ashift_from: Origin::Assumed,
            layout: Layout::Stripe,
            layout_from: Origin::Assumed,
            target: Target {
                cores: cores(),
                busy_cores: 0.0,
                disk_write: None,
                disk_read: None,
                disk_write_measured: false,
                disk_read_measured: false,
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
            dataset: None,
            stored: None,
            bytes_max: None,
        }
    }
}

/// Answers `question` about `subjects`.
///
/// # Errors
/// See [`Error`]. Nothing is left behind.
pub fn advise(question: &Question, subjects: Vec<Subject<'_>>, watch: &dyn Watch) -> Result<Advice> {
    if let Some(folder) = &question.folder {
        Place::Folder(folder.clone()).check_writable()?;
    }
    let (started, sampler) = (Instant::now(), Sampler::start());
    let part = |part: f64| Duration::from_secs_f64((question.seconds * part).clamp(0.0, MOST_SECONDS));
    let asked = configurations(question)?;
    let configurations = with_off(&asked);
    let settings = configurations.iter().map(setting).collect::<Result<Vec<Setting>>>()?;
    let piece = group::piece_bytes(settings.iter().map(|setting| setting.recordsize).max().unwrap_or(0));

    let surveyed = started + part(SURVEY_PART);
    let mut material = gather(question, subjects, piece as usize, surveyed, watch)?;
    // A survey takes longer than its part only if all data is wanted.
    let late = started.elapsed().saturating_sub(part(SURVEY_PART));
    let after = |of: f64| started + part(of) + if question.dedup { late } else { Duration::ZERO };

    let metadata = Metadata::new(&material, question);
    let mut groups = groups(&Sampling {
        material: &material,
        settings: &settings,
        question,
        metadata: &metadata,
        until: after(ENCODE_PART),
        last: after(LAST_PART),
        watch,
    })?;
    let mut notes = std::mem::take(&mut material.notes);
    notes.extend(groups.iter().filter_map(|group| group.looked.notes()).take(1));
    let folder = question.folder.clone().or(material.folder.clone());
    let until = after(PROBE_PART).max(Instant::now() + part(PROBE_MIN));
    let data = std::mem::take(&mut groups[0].looked.probe);
    let mut target = question.target.clone();
    notes.extend(measure_disks(folder.clone(), &data, &mut target, until, watch)?);
    let others_cpu = others_share(&sampler.finish(), cpus());
    notes.extend(others_cpu.and_then(|share| busy(share, None)));

    let (bytes, configurations, asked) = (material.bytes as f64, &configurations[..], asked.len());
    let whole = Whole { question, configurations, asked, groups: &groups, target: &target };
    let outlook = whole.rows(&metadata, bytes, &|_: &Stratum| true);
    let picks = whole.picks(&outlook);
    let kinds = whole.kinds(&metadata, bytes, &picks[0]);
    notes.extend(whole.remarks(&outlook.rows, &picks[0], bytes));
    let doubt = rows::doubt(&outlook.rows, &picks[0], bytes);
    let recommended = rows::predicted(&outlook.rows, &picks[0]).filter(|_| doubt.is_none());
    let now = question.stored.clone().map(|stored| Now::beside(stored, recommended));
    let dedup = deduplication(&whole, &material, &settings, &picks[0], watch)?;
    Ok(Advice {
        schema: SCHEMA,
        form: "advice".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(folder.as_deref(), &material),
        subject: material.subject.clone(),
        dataset: question.dataset.clone(),
        sample: sample(&material, &groups, question.seed, started.elapsed()),
        target,
        layout: question.layout,
        layout_from: question.layout_from,
        ashift: question.ashift,
        ashift_from: question.ashift_from,
        now,
        others_cpu,
        rows: outlook.rows,
        picks,
        doubt,
        kinds,
        dedup,
        notes,
    })
}

/// The effect of deduplication on a dataset with the settings of `pick`.
fn deduplication(
    whole: &Whole<'_>,
    material: &Material,
    settings: &[Setting],
    pick: &Pick,
    watch: &dyn Watch,
) -> Result<Dedup> {
    let (question, group) = (whole.question, &whole.groups[0]);
    if !question.dedup {
        let seconds = (question.seconds * COPIES_TIME).clamp(0.0, MOST_SECONDS);
        return bounded_dedup(material, group, Instant::now() + Duration::from_secs_f64(seconds), watch);
    }
    let is_pick = |of: &Configuration| of.compression == pick.compression && of.recordsize == pick.recordsize;
    let at = whole.configurations.iter().position(is_pick).unwrap_or(0);
    let txg_bytes = TXG_SECONDS * question.target.disk_write.unwrap_or(SOME_RATE);
    exact_dedup(material, &group.encoder, settings[at], txg_bytes as u64, watch)
}

/// All that is asked for, each on one thread.
fn configurations(question: &Question) -> Result<Vec<Configuration>> {
    let plan = Plan {
        compressions: question.compressions.clone(),
        recordsizes: question.recordsizes.clone(),
        threads: vec![1],
        ..Plan::usual()
    };
    plan.configurations()
}

/// Surveys the subjects until `until`, or all of them where everything is to be read. Of a stream pieces of `piece` bytes are kept.
fn gather(
    question: &Question,
    subjects: Vec<Subject<'_>>,
    piece: usize,
    until: Instant,
    watch: &dyn Watch,
) -> Result<Material> {
    let timely = Survey { until, seed: question.seed, unpack: question.unpack, watch };
    // If everything is read, the survey has no time limit.
    let patient = Survey { until: until + Duration::from_secs_f64(MOST_SECONDS), ..timely };
    let survey = if question.dedup { &patient } else { &timely };
    let mut material = Material::new();
    for subject in subjects {
        match subject {
            Subject::Sample => material.add_sample()?,
            Subject::Path(path) => material.add_path(&path, survey)?,
            Subject::Stream(stream) => material.add_stream(stream, piece, &timely)?,
            Subject::Dataset { fs, id, name } => material.add_dataset(&fs, id, &name, survey)?,
        }
    }
    let subject = material.subject.clone();
    material.settle(&subject, survey)?;
    Ok(material)
}

/// The machine, with the file system of `folder`.
fn machine(folder: Option<&Path>, material: &Material) -> Machine {
    Machine::with(
        folder.map_or_else(|| "none".to_owned(), crate::machine::file_system),
        material.file_count,
        material.bytes,
        material.is_in_memory(),
    )
}

/// How much of the material was looked at.
fn sample(material: &Material, groups: &[Group], seed: u64, took: Duration) -> Sample {
    Sample {
        files: material.file_count,
        folders: material.folders,
        bytes: material.bytes,
        sampled_bytes: groups.iter().map(|group| group.looked.bytes).sum(),
        pieces: groups.iter().map(|group| group.looked.seen.len() as u64).sum(),
        complete: material.complete() && groups.iter().all(|group| group.looked.complete),
        seed,
        seconds: (took.as_secs_f64() * 1e3).round() / 1e3,
    }
}

/// Measures the disks whose rates are not given, at the place of the data, or else at the place of temporary files.
/// Returns notes for the user.
fn measure_disks(
    folder: Option<PathBuf>,
    data: &[Vec<u8>],
    target: &mut Target,
    until: Instant,
    watch: &dyn Watch,
) -> Result<Option<String>> {
    if !target.is_partly_unknown() {
        return Ok(None);
    }
    let mut measure = |folder: &Path| Probe { folder, until, watch }.measure(data, target);
    let elsewhere = std::env::temp_dir();
    let first = folder.unwrap_or_else(|| elsewhere.clone());
    let error = match measure(&first) {
        Ok(()) => return Ok(None),
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => error,
    };
    match measure(&elsewhere) {
        Ok(()) => Ok(Some(format!("the disks were measured in '{}' ({error})", elsewhere.display()))),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(_) => Ok(Some(format!(
            "the disks could not be measured ({error}), so speeds are those of the CPU alone: give --disk-write and --disk-read"
        ))),
    }
}

/// `asked`, and, if `off` was not asked for, `off` with each record size after them: savings are relative to `off`.
fn with_off(asked: &[Configuration]) -> Vec<Configuration> {
    let mut all = asked.to_vec();
    for one in asked {
        if !all.iter().any(|other| other.compression == "off" && other.recordsize == one.recordsize) {
            all.push(Configuration { compression: "off".to_owned(), ..one.clone() });
        }
    }
    all
}

fn setting(configuration: &Configuration) -> Result<Setting> {
    let compression = match compression_value(&configuration.compression)? {
        // The meaning of `on` in a pool of today.
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

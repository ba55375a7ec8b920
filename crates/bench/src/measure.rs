//! One measurement: write, settle, open again with cold caches, read, compare.
//!
//! What is timed:
//! - writing, from the first folder created until the pool is synced, everything durable. The source comes from
//!   memory where it fits.
//! - reading every byte once, from cold caches, by as many readers as there are threads, with read-ahead. Nothing
//!   is compared meanwhile, since comparing would take a good part of what a fast codec takes; a second pass,
//!   not timed, reads everything again and compares it with the source. What takes a moment only is read several
//!   times, each from cold caches, and the median counts.
//!
//! CPU time is that of the whole process. Sizes are read after frees have settled: otherwise they may tell of two
//! generations of blocks.

use std::sync::Mutex;

use format::ObjectId;
use pool::props::Value;
use pool::{Options, Pool};
use zpl::{FileKind, Filesystem, NewNode, Piece, SetAttr};

use crate::crew::share;
use crate::plan::property;
use crate::source::Contents;
use crate::stopwatch::{Elapsed, Stopwatch, is_enough, middle};
use crate::target::Target;
use crate::trace::{Sampler, Tick};
use crate::{Configuration, Error, Event, Phase, Plan, Result, Source, Watch};

/// Bytes of a large file that one thread writes at a time.
pub(crate) const WRITE_CHUNK: u64 = 4 << 20;
/// Bytes of records that a measured pool keeps: each is read once, so more would help nobody.
const CACHE_BYTES: u64 = 512 << 20;
/// Syncs after which frees that do not end are another matter.
const SETTLE_SYNCS: u32 = 100;

/// What one trial found.
pub(crate) struct Sample {
    pub(crate) allocated_bytes: u64,
    /// Hundredths.
    pub(crate) compressratio: u64,
    /// Until the last write was accepted.
    pub(crate) accepted_seconds: f64,
    pub(crate) write: Elapsed,
    /// The median of [`Sample::cold_reads`] from cold caches.
    pub(crate) read: Elapsed,
    pub(crate) cold_reads: u32,
    /// `None` where the cache is too small.
    pub(crate) warm_seconds: Option<f64>,
    pub(crate) verified: bool,
    pub(crate) steps: Vec<StepSample>,
    pub(crate) ticks: Vec<Tick>,
}

/// One step of an application.
pub(crate) struct StepSample {
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) pool_cpu_seconds: f64,
}

pub(crate) struct Trial<'a> {
    pub(crate) target: &'a Target<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a Source,
    pub(crate) configuration: &'a Configuration,
    pub(crate) watch: &'a dyn Watch,
}

impl Trial<'_> {
    pub(crate) fn measure(&self) -> Result<Sample> {
        let options = Options { workers: self.configuration.threads as usize, ..self.plan.options() };
        let cache_bytes = CACHE_BYTES.min(options.cache_bytes);
        let options = Options { cache_bytes, ..options };
        let sampler = Sampler::start();
        let begin = |phase: Phase| {
            sampler.phase(phase.name());
            self.watch.event(Event::Phase(phase));
        };
        let pool = self.target.create(self.configuration, options.clone())?;
        let (ids, sizes, accepted_seconds, write) = self.and_close(pool, |pool| {
            let fs = self.filesystem(pool)?;
            begin(Phase::Write);
            let stopwatch = Stopwatch::start();
            let ids = self.write(&fs)?;
            let accepted = stopwatch.elapsed().seconds;
            begin(Phase::Sync);
            pool.sync().map_err(|source| self.failed("write to", source))?;
            let write = stopwatch.elapsed();
            begin(Phase::Settle);
            self.settle(pool)?;
            Ok((ids, (self.number(pool, "used")?, self.number(pool, "compressratio")?), accepted, write))
        })?;
        let mut reads: Vec<Elapsed> = Vec::new();
        let (warm_seconds, verified) = loop {
            self.target.drop_caches();
            let pool = self.target.open(self.configuration, options.clone())?;
            let rest = self.and_close(pool, |pool| {
                let fs = self.filesystem(pool)?;
                begin(Phase::Read);
                let stopwatch = Stopwatch::start();
                self.read(&fs, &ids)?;
                reads.push(stopwatch.elapsed());
                if !is_enough(&reads) {
                    begin(Phase::Settle);
                    return Ok(None);
                }
                let mut warm_seconds = None;
                // What is read twice in turn from a cache that is too small is read from the device twice.
                if self.source.bytes() < cache_bytes / 10 * 9 {
                    begin(Phase::WarmRead);
                    let stopwatch = Stopwatch::start();
                    self.read(&fs, &ids)?;
                    warm_seconds = Some(stopwatch.elapsed().seconds);
                }
                begin(Phase::Verify);
                Ok(Some((warm_seconds, self.verify(&fs, &ids)?)))
            })?;
            if let Some(rest) = rest {
                break rest;
            }
        };
        let mut steps = Vec::new();
        if let Some(application) = &self.plan.application {
            self.target.drop_caches();
            let pool = self.target.open(self.configuration, options)?;
            steps = self.and_close(pool, |pool| {
                begin(Phase::Steps);
                application.run_mounted(self.filesystem(pool)?, self.configuration, self.watch)
            })?;
        }
        let (allocated_bytes, compressratio) = sizes;
        let ticks = sampler.finish();
        Ok(Sample {
            allocated_bytes,
            compressratio,
            accepted_seconds,
            write,
            read: middle(&mut reads),
            cold_reads: reads.len() as u32,
            warm_seconds,
            verified,
            steps,
            ticks,
        })
    }

    /// Does `work` with the pool and closes it in good order, also after an error, so that it can be opened again.
    fn and_close<T>(&self, pool: Pool, work: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
        let done = work(&pool);
        let closed = pool.export().map_err(|source| self.failed("close", source));
        let value = done?;
        closed.map(|()| value)
    }

    fn filesystem(&self, pool: &Pool) -> Result<Filesystem> {
        let dataset = pool.open(&self.target.dataset()).map_err(|source| self.failed("open", source))?;
        Filesystem::open(dataset).map_err(|source| self.at("open", "the dataset", source))
    }

    fn failed(&self, doing: &str, source: pool::Error) -> Error {
        self.target.failed(doing, self.configuration, source)
    }

    fn at(&self, doing: &str, what: &str, source: zpl::Error) -> Error {
        self.target.failed_at(format!("{doing} {what}"), self.configuration, source)
    }

    fn at_file(&self, doing: &str, contents: &Contents, source: zpl::Error) -> Error {
        self.at(doing, &format!("'{}'", contents.path().display()), source)
    }

    /// Writes all files; gives the object of each entry.
    fn write(&self, fs: &Filesystem) -> Result<Vec<ObjectId>> {
        let entries = self.source.entries();
        let mut ids: Vec<Mutex<Option<ObjectId>>> = Vec::with_capacity(entries.len());
        let mut jobs = Vec::new();
        let records_per_job = (WRITE_CHUNK / self.configuration.recordsize).max(1);
        for (index, entry) in entries.iter().enumerate() {
            let Some(contents) = &entry.contents else {
                let parent = parent_of(fs, &ids, entry.parent);
                let folder = fs.create(parent, &entry.name, &NewNode::new(FileKind::Directory, 0o755));
                let folder = folder.map_err(|source| self.at("create", "a folder", source))?;
                ids.push(Mutex::new(Some(folder)));
                continue;
            };
            ids.push(Mutex::new(None));
            let records = contents.size.div_ceil(self.configuration.recordsize);
            let mut first = 0;
            // An empty file is a job too.
            loop {
                let end = (first + records_per_job).min(records);
                jobs.push((index, first..end));
                first = end;
                if first >= records {
                    break;
                }
            }
        }
        share(self.configuration.threads, jobs.len(), self.watch, |job| {
            let (index, records) = &jobs[job];
            let entry = &entries[*index];
            let contents = entry.contents.as_ref().expect("only files are jobs");
            let failed = |source| self.at_file("write", contents, source);
            let id = {
                let mut id = ids[*index].lock().expect("no code panics while holding an object's number");
                match *id {
                    Some(id) => id,
                    None => {
                        let parent = parent_of(fs, &ids, entry.parent);
                        let new = NewNode::new(FileKind::Regular, 0o644);
                        *id.insert(fs.create(parent, &entry.name, &new).map_err(failed)?)
                    }
                }
            };
            self.write_records(fs, id, contents, records.clone())
        })?;
        let known =
            |id: Mutex<Option<ObjectId>>| id.into_inner().ok().flatten().expect("every file was a job");
        Ok(ids.into_iter().map(known).collect())
    }

    fn write_records(
        &self,
        fs: &Filesystem,
        id: ObjectId,
        contents: &Contents,
        records: std::ops::Range<u64>,
    ) -> Result<()> {
        let recordsize = self.configuration.recordsize;
        let failed = |source| self.at_file("write", contents, source);
        let reader = contents.reader()?;
        for record in records {
            if self.watch.stopped() {
                return Err(Error::Interrupted);
            }
            let offset = record * recordsize;
            let len = recordsize.min(contents.size - offset);
            match reader.record(offset, len as usize)? {
                Some(data) => {
                    fs.write_record(id, offset, data).map_err(failed)?;
                    self.watch.event(Event::Bytes(len));
                }
                None if offset + len == contents.size => {
                    let size = SetAttr { size: Some(contents.size), ..SetAttr::default() };
                    fs.setattr(id, &size).map_err(failed)?;
                }
                None => {}
            }
        }
        reader.finish()
    }

    /// Waits until what was freed is free, and the numbers are those of a synced txg.
    fn settle(&self, pool: &Pool) -> Result<()> {
        let failed = |source| self.failed("write to", source);
        for _ in 0..SETTLE_SYNCS {
            pool.sync().map_err(failed)?;
            if pool.freeing().map_err(failed)? == 0 {
                break;
            }
        }
        pool.sync().map_err(failed)
    }

    /// A numeric property of the dataset.
    fn number(&self, pool: &Pool, name: &str) -> Result<u64> {
        let failed = |source| self.failed("read the properties of", source);
        let info = pool.dataset(&self.target.dataset()).map_err(failed)?;
        match pool.property(&info, property(name)).map_err(failed)? {
            Some((Value::Number(number), _)) => Ok(number),
            _ => unreachable!("every file system has the number '{name}'"),
        }
    }

    /// Reads every byte of every file.
    fn read(&self, fs: &Filesystem, ids: &[ObjectId]) -> Result<()> {
        self.each_file(fs, ids, |_, _, pieces| {
            for piece in pieces {
                if let Some(data) = piece?.data() {
                    self.watch.event(Event::Bytes(data.len() as u64));
                }
            }
            Ok(())
        })
    }

    /// Whether every byte of every file is what its source has.
    fn verify(&self, fs: &Filesystem, ids: &[ObjectId]) -> Result<bool> {
        let all_same = std::sync::atomic::AtomicBool::new(true);
        self.each_file(fs, ids, |contents, size, pieces| {
            let reader = contents.reader()?;
            let mut same = size == contents.size;
            for piece in pieces {
                same &= match piece? {
                    Piece::Data { offset, record, len } => {
                        self.watch.event(Event::Bytes(len as u64));
                        reader.has(offset, &record[..len])?
                    }
                    Piece::Hole { offset, len } => reader.has_zeros(offset, len)?,
                };
            }
            reader.finish()?;
            if !same {
                all_same.store(false, std::sync::atomic::Ordering::Relaxed);
                let path = contents.path().display();
                self.watch.event(Event::Note(&format!(
                    "'{path}' was read back differently ({})",
                    self.configuration
                )));
            }
            Ok(())
        })?;
        Ok(all_same.into_inner())
    }

    /// Hands the pieces of each file to `sink`, which sees errors of reading as its own.
    fn each_file(
        &self,
        fs: &Filesystem,
        ids: &[ObjectId],
        sink: impl Fn(&Contents, u64, &mut dyn Iterator<Item = Result<Piece>>) -> Result<()> + Sync,
    ) -> Result<()> {
        let files: Vec<(&Contents, ObjectId)> = self
            .source
            .entries()
            .iter()
            .zip(ids)
            .filter_map(|(entry, id)| Some((entry.contents.as_ref()?, *id)))
            .collect();
        share(self.configuration.threads, files.len(), self.watch, |index| {
            let (contents, id) = files[index];
            let failed = |source| self.at_file("read back", contents, source);
            let records = fs.read_records(id).map_err(failed)?;
            let size = records.size();
            let mut pieces = records.map(|piece| match self.watch.stopped() {
                true => Err(Error::Interrupted),
                false => piece.map_err(failed),
            });
            sink(contents, size, &mut pieces)
        })
    }
}

/// The folder of an entry; folders stand before what is in them.
fn parent_of(fs: &Filesystem, ids: &[Mutex<Option<ObjectId>>], parent: Option<usize>) -> ObjectId {
    let Some(parent) = parent else { return fs.root() };
    let id = ids[parent].lock().expect("no code panics while holding an object's number");
    id.expect("folders are created before files")
}

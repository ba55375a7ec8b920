//! The work of a measurement in a pool: a dataset of its own.
//!
//! From:   a [`Target`], the source, and a configuration.
//! To:     [`measure`](crate::measure::measure).
//!
//! CPU time is that of the whole process. Sizes are read after frees have settled: otherwise they may tell of two
//! generations of blocks. For cold reads the pool was opened again, past the system's cache; for warm reads the data is in
//! the cache of records that a pool has, decompressed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use format::ObjectId;
use pool::props::Value;
use pool::{Options, Pool};
use zpl::rank::{Rank, RankedMutex};
use zpl::{FileKind, Filesystem, NewNode, SetAttr};

use crate::application::StepSample;
use crate::application::Turn;
use crate::crew::share;
use crate::measure::{Sizes, Work};
use crate::plan::property;
use crate::reading::Reading;
use crate::source::Contents;
use crate::stopwatch::{CpuClock, process_cpu_seconds};
use crate::target::Target;
use crate::{Application, Configuration, Error, Event, Plan, Result, Source, Watch};

/// Bytes of a large file that one thread writes at a time.
const CHUNK: u64 = 4 << 20;
/// Bytes of records that a measured pool keeps: each is read once, so more would not help.
const CACHE_BYTES: u64 = 512 << 20;
/// A cache keeps its limit in parts, which do not fill up alike.
const CACHE_FILLS: (u64, u64) = (8, 10);
/// Syncs after which frees that do not end are another matter.
const SETTLE_SYNCS: u32 = 100;

/// A dataset while it is measured.
struct InPool<'a> {
    target: &'a Target<'a>,
    source: &'a Source,
    configuration: &'a Configuration,
    watch: &'a dyn Watch,
    options: Options,
    open: Option<(Filesystem, Pool)>,
    /// The object of each entry of the source, once it is written.
    ids: Vec<ObjectId>,
    /// Reads of data that the cache had not answered when all was in it.
    misses: u64,
}

/// Writing the source into a pool and reading it back.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a Source,
    pub(crate) configuration: &'a Configuration,
    pub(crate) watch: &'a dyn Watch,
}

/// Does `work` in a dataset of its own in `target`, which is closed afterwards.
///
/// # Errors
/// As [`Target::create`]; those of the work.
pub(crate) fn within<T>(
    target: &Target<'_>,
    job: &Job<'_>,
    work: impl FnOnce(&mut dyn Work) -> Result<T>,
) -> Result<T> {
    let Job { plan, source, configuration, watch } = *job;
    let options = Options { workers: configuration.threads as usize, ..plan.options() };
    let options = Options { cache_bytes: CACHE_BYTES.min(options.cache_bytes), ..options };
    let pool = target.create(configuration, options.clone())?;
    let (open, ids) = (None, Vec::new());
    let mut place = InPool { target, source, configuration, watch, options, open, ids, misses: 0 };
    place.enter(pool)?;
    let done = work(&mut place);
    let closed = place.close();
    let value = done?;
    closed.map(|()| value)
}

impl InPool<'_> {
    /// Opens the dataset in `pool`, which is closed in good order if that fails.
    fn enter(&mut self, pool: Pool) -> Result<()> {
        match self.filesystem(&pool) {
            Ok(fs) => {
                self.open = Some((fs, pool));
                Ok(())
            }
            Err(error) => self.export(pool).and(Err(error)),
        }
    }

    /// Closes the pool in good order, if it is open, so that it can be opened again.
    ///
    /// # Errors
    /// It cannot be closed.
    fn close(&mut self) -> Result<()> {
        let Some((fs, pool)) = self.open.take() else { return Ok(()) };
        drop(fs);
        self.export(pool)
    }

    fn export(&self, pool: Pool) -> Result<()> {
        pool.export().map_err(|source| self.failed("close", source))
    }

    /// Opens the pool, does `work` with it, and closes it, also after an error.
    fn briefly<T>(&self, work: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
        let pool = self.target.open(self.configuration, self.options.clone())?;
        let done = work(&pool);
        let closed = self.export(pool);
        let value = done?;
        closed.map(|()| value)
    }

    fn fs(&self) -> &Filesystem {
        &self.open.as_ref().expect("a dataset is open from its creation on, but for its steps").0
    }

    fn pool(&self) -> &Pool {
        &self.open.as_ref().expect("a dataset is open from its creation on, but for its steps").1
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

    /// Records with data, some of one file together: the place of the file among the entries, and their bytes. A file
    /// without data has a part without bytes.
    fn jobs(&self) -> Vec<(usize, Range<u64>)> {
        let recordsize = self.configuration.recordsize;
        let at_once = recordsize.max(CHUNK);
        let files = self.source.entries().iter().enumerate();
        let files = files.filter_map(|(index, entry)| Some((index, entry.contents.as_ref()?)));
        files
            .flat_map(|(index, contents)| {
                let mut parts = contents.parts(recordsize, at_once);
                if parts.is_empty() {
                    parts.push(0..0);
                }
                parts.into_iter().map(move |part| (index, part))
            })
            .collect()
    }

    /// Where the records of a part of a file begin, and their lengths.
    fn records(&self, part: &Range<u64>) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (end, recordsize) = (part.end, self.configuration.recordsize);
        let starts = part.clone().step_by(recordsize as usize);
        starts.map(move |offset| (offset, recordsize.min(end - offset) as usize))
    }

    /// Makes all folders. Returns the object of each folder, and for each file the object of its folder.
    fn make_folders(&self) -> Result<Vec<ObjectId>> {
        let mut ids: Vec<ObjectId> = Vec::with_capacity(self.source.entries().len());
        for entry in self.source.entries() {
            let parent = entry.parent.map_or_else(|| self.fs().root(), |parent| ids[parent]);
            let folder = || self.fs().create(parent, &entry.name, &NewNode::new(FileKind::Directory, 0o755));
            let id = if entry.contents.is_some() { Ok(parent) } else { folder() };
            ids.push(id.map_err(|source| self.at("create", "a folder", source))?);
        }
        Ok(ids)
    }

    fn write_part(&self, id: ObjectId, contents: &Contents, part: &Range<u64>) -> Result<()> {
        let reader = contents.reader()?;
        for (offset, len) in self.records(part) {
            if self.watch.stopped() {
                return Err(Error::Interrupted);
            }
            if let Some(data) = reader.record(offset, len)? {
                let written = self.fs().write_record(id, offset, data);
                written.map_err(|source| self.at_file("write", contents, source))?;
                self.watch.event(Event::Bytes(len as u64));
            }
        }
        reader.finish()
    }

    /// Reads records so that they stay in the cache: passing through a file leaves nothing there.
    fn keep_part(&self, id: ObjectId, contents: &Contents, part: &Range<u64>) -> Result<()> {
        let mut buf = Vec::new();
        for (offset, len) in self.records(part) {
            if self.watch.stopped() {
                return Err(Error::Interrupted);
            }
            buf.resize(len, 0);
            let read = self.fs().read(id, offset, &mut buf);
            read.map_err(|source| self.at_file("read back", contents, source))?;
        }
        Ok(())
    }

    /// A numeric property of the dataset.
    fn number(&self, name: &str) -> Result<u64> {
        let failed = |source| self.failed("read the properties of", source);
        let info = self.pool().dataset(&self.target.dataset()).map_err(failed)?;
        match self.pool().property(&info, property(name)).map_err(failed)? {
            Some((Value::Number(number), _)) => Ok(number),
            _ => unreachable!("every file system has the number '{name}'"),
        }
    }

    /// Hands each file to `sink`, with how long the pool says it is.
    fn each_file(&self, sink: impl Fn(&Contents, u64, &mut Reading<'_>) -> Result<()> + Sync) -> Result<()> {
        let entries = self.source.entries().iter().zip(&self.ids);
        let files: Vec<(&Contents, ObjectId)> =
            entries.filter_map(|(entry, id)| Some((entry.contents.as_ref()?, *id))).collect();
        share(self.configuration.threads, files.len(), self.watch, |index| {
            let (contents, id) = files[index];
            let failed = |source| self.at_file("read back", contents, source);
            let records = self.fs().read_records(id).map_err(failed)?;
            let size = records.size();
            let mut pieces = records.map(|piece| match self.watch.stopped() {
                true => Err(Error::Interrupted),
                false => piece.map_err(failed),
            });
            sink(contents, size, &mut Reading::new(contents, &mut pieces))
        })
    }

    /// Runs a step on the dataset as the step found it the first time, from cold caches.
    fn step(&mut self, application: &Application, turn: &Turn<'_>) -> Result<StepSample> {
        self.close()?;
        if !turn.is_only() {
            self.briefly(|pool| {
                let done =
                    if turn.is_first() { self.target.remember(pool) } else { self.target.go_back(pool) };
                done.and_then(|()| if turn.is_last() { self.target.forget(pool) } else { Ok(()) })
                    .map_err(|source| self.failed("write to", source))
            })?;
        }
        self.target.drop_caches();
        self.briefly(|pool| {
            application.run_mounted(self.filesystem(pool)?, turn, self.configuration, self.watch)
        })
    }
}

impl Work for InPool<'_> {
    fn cpu_clock(&self) -> CpuClock {
        process_cpu_seconds
    }

    fn write(&mut self) -> Result<()> {
        let entries = self.source.entries();
        let parents = self.make_folders()?;
        let contents_of = |index: usize| entries[index].contents.as_ref().expect("only files are jobs");
        let created: Vec<RankedMutex<Option<ObjectId>>> =
            entries.iter().map(|_| RankedMutex::new(Rank::Making, None)).collect();
        let file = |index: usize| -> Result<ObjectId> {
            let mut id = created[index].lock();
            if let Some(id) = *id {
                return Ok(id);
            }
            let new = NewNode::new(FileKind::Regular, 0o644);
            let made = self.fs().create(parents[index], &entries[index].name, &new);
            Ok(*id.insert(made.map_err(|source| self.at_file("write", contents_of(index), source))?))
        };
        let jobs = self.jobs();
        share(self.configuration.threads, jobs.len(), self.watch, |job| {
            let (index, part) = &jobs[job];
            self.write_part(file(*index)?, contents_of(*index), part)
        })?;
        let mut ids = parents.clone();
        for (index, part) in &jobs {
            ids[*index] = file(*index)?;
            let contents = contents_of(*index);
            let is_last = part.end >= contents.data_end();
            // A hole at the end is only a size.
            if is_last && part.end < contents.size {
                let size = SetAttr { size: Some(contents.size), ..SetAttr::default() };
                let set = self.fs().setattr(ids[*index], &size);
                set.map_err(|source| self.at_file("write", contents, source))?;
            }
        }
        self.ids = ids;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.pool().sync().map_err(|source| self.failed("write to", source))
    }

    fn settle(&mut self) -> Result<Sizes> {
        for _ in 0..SETTLE_SYNCS {
            self.sync()?;
            if self.pool().freeing().map_err(|source| self.failed("write to", source))? == 0 {
                break;
            }
        }
        self.sync()?;
        Ok(Sizes { allocated_bytes: self.number("used")?, compressratio: self.number("compressratio")? })
    }

    fn cool(&mut self) -> Result<()> {
        self.close()?;
        self.target.drop_caches();
        let pool = self.target.open(self.configuration, self.options.clone())?;
        self.enter(pool)
    }

    fn read(&mut self) -> Result<()> {
        self.each_file(|_, _, reading| {
            while let Some((_, bytes)) = reading.next_part()? {
                self.watch.event(Event::Bytes(bytes.len() as u64));
            }
            Ok(())
        })
    }

    fn warm(&mut self) -> Result<bool> {
        let (part, whole) = CACHE_FILLS;
        if self.source.footprint(self.configuration.recordsize) > self.options.cache_bytes / whole * part {
            return Ok(false);
        }
        let jobs = self.jobs();
        share(self.configuration.threads, jobs.len(), self.watch, |job| {
            let (index, part) = &jobs[job];
            let contents = self.source.entries()[*index].contents.as_ref().expect("only files are jobs");
            self.keep_part(self.ids[*index], contents, part)
        })?;
        self.misses = self.pool().storage().cache().stats().data.misses;
        Ok(true)
    }

    fn stayed_warm(&self) -> bool {
        self.pool().storage().cache().stats().data.misses == self.misses
    }

    fn verify(&mut self) -> Result<bool> {
        let all_same = AtomicBool::new(true);
        self.each_file(|contents, size, reading| {
            let reader = contents.reader()?;
            let mut same = size == contents.size;
            while let Some((at, bytes)) = reading.next_part()? {
                self.watch.event(Event::Bytes(bytes.len() as u64));
                same &= reader.has(at, bytes)?;
            }
            reader.finish()?;
            if !same {
                all_same.store(false, Ordering::Relaxed);
                let path = contents.path().display();
                let note = format!("'{path}' was read back differently ({})", self.configuration);
                self.watch.event(Event::Note(&note));
            }
            Ok(())
        })?;
        Ok(all_same.into_inner())
    }

    fn steps(&mut self, application: &Application) -> Result<Vec<StepSample>> {
        application.each_turn(|turn| self.step(application, turn))
    }
}

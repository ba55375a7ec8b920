//! The same work on another file system, beside the pool.
//!
//! From:   a folder of it, and the source.
//! To:     a [`Sample`] measured as one in a pool is: written until durable, read from cold caches, compared.
//!
//! Everything goes into a temporary folder there, which is gone afterwards.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, fadvise, statvfs, syncfs};

use crate::crew::share;
use crate::error::system_reason;
use crate::guard::{Guard, Left};
use crate::measure::{Sample, WRITE_CHUNK};
use crate::source::Contents;
use crate::stopwatch::{Elapsed, Stopwatch, is_enough, middle};
use crate::trace::Sampler;
use crate::{Configuration, Error, Event, Phase, Plan, Result, Source, Watch, machine};

/// Bytes read at once.
const READ: usize = 1 << 20;
/// Sectors that a file's blocks are counted in.
const SECTOR: u64 = 512;

/// What a folder's file system is called in a report.
pub(crate) fn name(folder: &Path) -> String {
    machine::file_system(folder)
}

/// Whether files of together `needed` bytes can be made in `folder`.
///
/// # Errors
/// [`Error::Against`], [`Error::NoRoom`].
pub(crate) fn check(folder: &Path, needed: u64) -> Result<()> {
    let failed = |source| Error::Against { folder: folder.to_owned(), source: system_reason(source) };
    tempfile::Builder::new().prefix("cenote-bench-").tempdir_in(folder).map_err(failed)?;
    let stat = statvfs(folder).map_err(|errno| failed(errno.into()))?;
    match stat.f_bavail.saturating_mul(stat.f_frsize) {
        free if free < needed => Err(Error::NoRoom { place: folder.display().to_string(), needed, free }),
        _ => Ok(()),
    }
}

/// Measures once.
///
/// # Errors
/// [`Error::Against`], [`Error::Interrupted`], those of the source.
pub(crate) fn measure(
    folder: &Path,
    plan: &Plan,
    source: &Source,
    configuration: &Configuration,
    watch: &dyn Watch,
) -> Result<Sample> {
    let failed = |source| Error::Against { folder: folder.to_owned(), source: system_reason(source) };
    let dir = tempfile::Builder::new().prefix("cenote-bench-").tempdir_in(folder).map_err(failed)?;
    let mut guard = Guard::over(dir.path(), Left::Files).map_err(failed)?;
    let work = Work { folder, top: dir.path().to_owned(), source, threads: configuration.threads, watch };
    let done = work.measure(plan, configuration, &mut guard);
    match (done, dir.close()) {
        (Ok(_), Err(error)) => Err(failed(error)),
        (done, _) => done,
    }
}

struct Work<'a> {
    folder: &'a Path,
    top: PathBuf,
    source: &'a Source,
    threads: u32,
    watch: &'a dyn Watch,
}

impl Work<'_> {
    fn measure(&self, plan: &Plan, configuration: &Configuration, guard: &mut Guard) -> Result<Sample> {
        let sampler = Sampler::start();
        let begin = |phase: Phase| {
            sampler.phase(phase.name());
            self.watch.event(Event::Phase(phase));
        };
        let paths = self.paths();
        let used_before = self.used()?;
        begin(Phase::Write);
        let stopwatch = Stopwatch::start();
        self.write(&paths)?;
        let accepted_seconds = stopwatch.elapsed().seconds;
        begin(Phase::Sync);
        self.sync()?;
        let write = stopwatch.elapsed();
        begin(Phase::Settle);
        let gained = match (used_before, self.used()?) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before).max(SECTOR)),
            _ => None,
        };
        let mut reads: Vec<Elapsed> = Vec::new();
        let allocated_bytes = loop {
            let allocated_bytes = self.drop_caches(&paths)?;
            begin(Phase::Read);
            let stopwatch = Stopwatch::start();
            self.read(&paths)?;
            reads.push(stopwatch.elapsed());
            if is_enough(&reads) {
                break allocated_bytes;
            }
            begin(Phase::Settle);
        };
        begin(Phase::WarmRead);
        let stopwatch = Stopwatch::start();
        self.read(&paths)?;
        let warm_seconds = Some(stopwatch.elapsed().seconds);
        begin(Phase::Verify);
        let verified = self.verify(&paths)?;
        let mut steps = Vec::new();
        if let Some(application) = &plan.application {
            begin(Phase::Steps);
            steps = application.run_in(&self.top, guard, configuration, self.watch)?;
        }
        let allocated_bytes = gained.unwrap_or(allocated_bytes);
        let ratio = self.source.bytes() as f64 / allocated_bytes.max(1) as f64;
        Ok(Sample {
            allocated_bytes,
            compressratio: (ratio * 100.0) as u64,
            accepted_seconds,
            write,
            read: middle(&mut reads),
            cold_reads: reads.len() as u32,
            warm_seconds,
            verified,
            steps,
            ticks: sampler.finish(),
        })
    }

    fn failed(&self) -> impl Fn(io::Error) -> Error + use<> {
        let folder = self.folder.to_owned();
        move |source| Error::Against { folder: folder.clone(), source }
    }

    /// Bytes in use on the whole file system, where files do not tell what they take: btrfs counts their blocks before
    /// compression.
    fn used(&self) -> Result<Option<u64>> {
        if !name(self.folder).starts_with("btrfs") {
            return Ok(None);
        }
        self.sync()?;
        let stat = statvfs(self.folder).map_err(|errno| self.failed()(errno.into()))?;
        Ok(Some((stat.f_blocks - stat.f_bfree) * stat.f_frsize))
    }

    /// Where each entry goes.
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in self.source.entries() {
            let parent = entry.parent.map_or(&self.top, |parent| &paths[parent]);
            paths.push(parent.join(std::ffi::OsStr::from_bytes(&entry.name)));
        }
        paths
    }

    fn files<'a>(&'a self, paths: &'a [PathBuf]) -> Vec<(&'a Contents, &'a PathBuf)> {
        let entries = self.source.entries().iter().zip(paths);
        entries.filter_map(|(entry, path)| Some((entry.contents.as_ref()?, path))).collect()
    }

    fn write(&self, paths: &[PathBuf]) -> Result<()> {
        for (entry, path) in self.source.entries().iter().zip(paths) {
            if entry.contents.is_none() {
                std::fs::create_dir(path).map_err(self.failed())?;
            }
        }
        let files = self.files(paths);
        share(self.threads, files.len(), self.watch, |index| {
            let (contents, path) = files[index];
            let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(self.failed())?;
            file.set_len(contents.size).map_err(self.failed())?;
            let reader = contents.reader()?;
            let mut at = 0;
            while at < contents.size {
                if self.watch.stopped() {
                    return Err(Error::Interrupted);
                }
                let len = WRITE_CHUNK.min(contents.size - at);
                if let Some(data) = reader.record(at, len as usize)? {
                    file.write_all_at(&data, at).map_err(self.failed())?;
                    self.watch.event(Event::Bytes(len));
                }
                at += len;
            }
            reader.finish()
        })
    }

    fn sync(&self) -> Result<()> {
        let top = File::open(&self.top).map_err(self.failed())?;
        syncfs(&top).map_err(|errno| self.failed()(errno.into()))
    }

    /// What is clean leaves the cache: the next reading comes from the device. Gives the bytes that the files take there.
    fn drop_caches(&self, paths: &[PathBuf]) -> Result<u64> {
        let mut allocated_bytes = 0;
        for (_, path) in self.files(paths) {
            let file = File::open(path).map_err(self.failed())?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| self.failed()(errno.into()))?;
            allocated_bytes += file.metadata().map_err(self.failed())?.blocks() * SECTOR;
        }
        Ok(allocated_bytes)
    }

    fn read(&self, paths: &[PathBuf]) -> Result<()> {
        self.each(paths, |_, _, data| {
            self.watch.event(Event::Bytes(data.len() as u64));
            Ok(true)
        })
        .map(drop)
    }

    fn verify(&self, paths: &[PathBuf]) -> Result<bool> {
        self.each(paths, |contents, at, data| {
            self.watch.event(Event::Bytes(data.len() as u64));
            contents.reader()?.has(at, data)
        })
    }

    /// Hands all data to `sink`; whether it was content with all of it.
    fn each(
        &self,
        paths: &[PathBuf],
        sink: impl Fn(&Contents, u64, &[u8]) -> Result<bool> + Sync,
    ) -> Result<bool> {
        let files = self.files(paths);
        let content = AtomicBool::new(true);
        share(self.threads, files.len(), self.watch, |index| {
            let (contents, path) = files[index];
            let file = File::open(path).map_err(self.failed())?;
            let mut buf = vec![0; READ.min(contents.size as usize)];
            let mut at = 0;
            while at < contents.size {
                if self.watch.stopped() {
                    return Err(Error::Interrupted);
                }
                let part = &mut buf[..READ.min((contents.size - at) as usize)];
                file.read_exact_at(part, at).map_err(self.failed())?;
                if !sink(contents, at, part)? {
                    content.store(false, Ordering::Relaxed);
                }
                at += part.len() as u64;
            }
            Ok(())
        })?;
        Ok(content.into_inner())
    }
}

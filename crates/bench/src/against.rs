//! The same work on another file system, beside the pool.
//!
//! From:   a folder of it, and the source.
//! To:     [`measure`](crate::measure::measure), as for a pool: written until durable, read from cold caches, compared.
//!
//! Everything goes into a temporary folder there, which is removed at the end. A step that runs again finds a copy of what
//! it found the first time, which takes no space where the file system shares blocks between files. CPU time is that of the
//! whole machine: the kernel's file systems compress and write in threads that belong to no process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, fadvise, statvfs, syncfs};

use crate::application::StepSample;
use crate::application::{Guarded, run_in, run_program};
use crate::crew::share;
use crate::error::system_reason;
use crate::guard::{Guard, Left};
use crate::measure::{Sizes, Work};
use crate::reading::READ;
use crate::source::Contents;
use crate::stopwatch::{CpuClock, machine_cpu_seconds};
use crate::{Application, Configuration, Error, Event, Result, Source, Watch, machine};

/// Bytes written at once.
const WRITE: u64 = 4 << 20;
/// Blocks of usual file systems: holes are as fine as that.
const BLOCK: u64 = 4 << 10;
/// In the temporary folder: where the files are, and where they are kept for a step that runs again.
const FILES: &str = "files";
const KEPT: &str = "kept";
/// Sectors that a file's blocks are counted in.
const SECTOR: u64 = 512;

/// Name of a folder's file system in a report.
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

/// Runs `work` in a new folder in `folder`, which is removed at the end.
///
/// # Errors
/// [`Error::Against`], those of the work.
pub(crate) fn within<T>(
    folder: &Path,
    source: &Source,
    configuration: &Configuration,
    watch: &dyn Watch,
    work: impl FnOnce(&mut dyn Work) -> Result<T>,
) -> Result<T> {
    let failed = |source| Error::Against { folder: folder.to_owned(), source: system_reason(source) };
    let dir = tempfile::Builder::new().prefix("cenote-bench-").tempdir_in(folder).map_err(failed)?;
    let guard = Guard::over(dir.path(), Left::Files).map_err(failed)?;
    let top = dir.path().join(FILES);
    std::fs::create_dir(&top).map_err(failed)?;
    let mut place = InFolder {
        folder,
        paths: paths(&top, source),
        kept: dir.path().join(KEPT),
        top,
        used_before: None,
        guard,
        source,
        configuration,
        watch,
    };
    place.used_before = place.used()?;
    let done = work(&mut place);
    match (done, dir.close()) {
        (Ok(_), Err(error)) => Err(failed(error)),
        (done, _) => done,
    }
}

/// Where each entry goes.
fn paths(top: &Path, source: &Source) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in source.entries() {
        let parent = entry.parent.map_or(top, |parent| &paths[parent]);
        paths.push(parent.join(std::ffi::OsStr::from_bytes(&entry.name)));
    }
    paths
}

struct InFolder<'a> {
    folder: &'a Path,
    top: PathBuf,
    kept: PathBuf,
    paths: Vec<PathBuf>,
    /// Bytes in use on the file system before anything was written.
    used_before: Option<u64>,
    guard: Guard,
    source: &'a Source,
    configuration: &'a Configuration,
    watch: &'a dyn Watch,
}

impl InFolder<'_> {
    fn failed(&self) -> impl Fn(io::Error) -> Error + use<> {
        let folder = self.folder.to_owned();
        move |source| Error::Against { folder: folder.clone(), source }
    }

    /// Bytes in use on the whole file system, where files do not show their space: btrfs counts their blocks before
    /// compression.
    fn used(&self) -> Result<Option<u64>> {
        if !name(self.folder).starts_with("btrfs") {
            return Ok(None);
        }
        self.make_durable()?;
        let stat = statvfs(self.folder).map_err(|errno| self.failed()(errno.into()))?;
        Ok(Some((stat.f_blocks - stat.f_bfree) * stat.f_frsize))
    }

    fn make_durable(&self) -> Result<()> {
        let top = File::open(&self.top).map_err(self.failed())?;
        syncfs(&top).map_err(|errno| self.failed()(errno.into()))
    }

    fn files(&self) -> Vec<(&Contents, &PathBuf)> {
        let entries = self.source.entries().iter().zip(&self.paths);
        entries.filter_map(|(entry, path)| Some((entry.contents.as_ref()?, path))).collect()
    }

    /// Hands all data to `sink`; whether it was content with all of it. Holes are left out, as a pool leaves them out.
    fn each(&self, sink: impl Fn(&Contents, u64, &[u8]) -> Result<bool> + Sync) -> Result<bool> {
        let files = self.files();
        let content = AtomicBool::new(true);
        share(self.configuration.threads, files.len(), self.watch, |index| {
            let (contents, path) = files[index];
            let file = File::open(path).map_err(self.failed())?;
            if file.metadata().map_err(self.failed())?.len() != contents.size {
                content.store(false, Ordering::Relaxed);
                return Ok(());
            }
            let mut buf = vec![0; READ.min(contents.size) as usize];
            for part in contents.parts(BLOCK, READ) {
                if self.watch.stopped() {
                    return Err(Error::Interrupted);
                }
                let data = &mut buf[..(part.end - part.start) as usize];
                file.read_exact_at(data, part.start).map_err(self.failed())?;
                if !sink(contents, part.start, data)? {
                    content.store(false, Ordering::Relaxed);
                }
            }
            Ok(())
        })?;
        Ok(content.into_inner())
    }

    /// All files that lie in the folder now.
    fn inside(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut folders = vec![self.top.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).map_err(self.failed())? {
                let entry = entry.map_err(self.failed())?;
                let kind = entry.file_type().map_err(self.failed())?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    files.push(entry.path());
                }
            }
        }
        Ok(files)
    }

    /// Keeps a copy of everything in the folder.
    fn keep(&mut self) -> Result<()> {
        let mut command = Command::new("cp");
        command.arg("-a").args([&self.top, &self.kept]);
        let copied = run_program(&mut command, &mut self.guard, self.watch);
        copied.map_err(|error| if self.watch.stopped() { Error::Interrupted } else { self.failed()(error) })
    }

    /// Replaces everything in the folder by the kept copy.
    fn go_back(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.top)
            .and_then(|()| std::fs::rename(&self.kept, &self.top))
            .map_err(self.failed())
    }
}

impl Work for InFolder<'_> {
    fn cpu_clock(&self) -> CpuClock {
        machine_cpu_seconds
    }

    fn write(&mut self) -> Result<()> {
        for (entry, path) in self.source.entries().iter().zip(&self.paths) {
            if entry.contents.is_none() {
                std::fs::create_dir(path).map_err(self.failed())?;
            }
        }
        let files = self.files();
        share(self.configuration.threads, files.len(), self.watch, |index| {
            let (contents, path) = files[index];
            let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(self.failed())?;
            file.set_len(contents.size).map_err(self.failed())?;
            let reader = contents.reader()?;
            for part in contents.parts(BLOCK, WRITE) {
                if self.watch.stopped() {
                    return Err(Error::Interrupted);
                }
                let len = part.end - part.start;
                if let Some(data) = reader.record(part.start, len as usize)? {
                    file.write_all_at(&data, part.start).map_err(self.failed())?;
                    self.watch.event(Event::Bytes(len));
                }
            }
            reader.finish()
        })
    }

    fn sync(&mut self) -> Result<()> {
        self.make_durable()
    }

    fn settle(&mut self) -> Result<Sizes> {
        let gained = match (self.used_before, self.used()?) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before).max(SECTOR)),
            _ => None,
        };
        let mut allocated_bytes = 0;
        for (_, path) in self.files() {
            allocated_bytes += path.metadata().map_err(self.failed())?.blocks() * SECTOR;
        }
        let allocated_bytes = gained.unwrap_or(allocated_bytes);
        let ratio = self.source.bytes() as f64 / allocated_bytes.max(1) as f64;
        Ok(Sizes { allocated_bytes, compressratio: (ratio * 100.0) as u64 })
    }

    /// Clean pages leave the cache.
    fn cool(&mut self) -> Result<()> {
        for path in self.inside()? {
            let file = File::open(path).map_err(self.failed())?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|errno| self.failed()(errno.into()))?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        self.each(|_, _, data| {
            self.watch.event(Event::Bytes(data.len() as u64));
            Ok(true)
        })
        .map(drop)
    }

    /// The kernel's page cache has the data that was read.
    fn warm(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn stayed_warm(&self) -> bool {
        true
    }

    fn verify(&mut self) -> Result<bool> {
        self.each(|contents, at, data| {
            self.watch.event(Event::Bytes(data.len() as u64));
            contents.reader()?.has(at, data)
        })
    }

    fn steps(&mut self, application: &Application) -> Result<Vec<StepSample>> {
        application.each_turn(|turn| {
            if !turn.is_first() {
                self.go_back()?;
            }
            if !turn.is_last() {
                self.keep()?;
            }
            self.make_durable()?;
            self.cool()?;
            let clock = self.cpu_clock();
            let folder = Guarded { dir: &self.top, clock, guard: &mut self.guard };
            let sample = run_in(folder, turn, self.configuration, self.watch)?;
            // The machine's CPU time includes that of the programs.
            let pool_cpu_seconds = (sample.pool_cpu_seconds - sample.cpu_seconds).max(0.0);
            Ok(StepSample { pool_cpu_seconds, ..sample })
        })
    }
}

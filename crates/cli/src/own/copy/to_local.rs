//! Copies onto this machine's own file systems.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid};
use zpl::{FileKind, Time};

use super::content::Content;
use super::error::{CopyError, writing};
use super::sink::{Moved, Sink, Wanted};

/// Bytes in which files are handed over.
const RECORD: u64 = 1 << 20;

/// This machine.
#[derive(Debug, Default)]
pub struct ToLocal {
    temporary: AtomicU64,
    /// Extended attributes that a file system did not take.
    refused_xattrs: AtomicU64,
}

fn is(error: &io::Error, kind: io::ErrorKind) -> bool {
    error.kind() == kind
}

fn child(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(name))
}

fn stamp(time: Time) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: time.nanos.min(999_999_999) as _ }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

impl ToLocal {
    /// Calls `make` with the path, or, if something is there, with another one that then takes its place.
    fn placing(
        &self,
        dir: &Path,
        name: &[u8],
        mut make: impl FnMut(&Path) -> Result<(), CopyError>,
    ) -> Result<PathBuf, CopyError> {
        let path = child(dir, name);
        match std::fs::symlink_metadata(&path) {
            Err(error) if is(&error, io::ErrorKind::NotFound) => {
                make(&path)?;
                return Ok(path);
            }
            Err(error) => return Err(writing(error)),
            Ok(there) if there.is_dir() => return Err(CopyError::destination("a directory has that name")),
            Ok(_) => {}
        }
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        let other = dir.join(format!(".cenote-{}-{number}", std::process::id()));
        make(&other)?;
        match std::fs::rename(&other, &path) {
            Ok(()) => Ok(path),
            Err(error) => {
                // The copy is of no use under this name; what went wrong is said.
                let _ = std::fs::remove_file(&other);
                Err(writing(error))
            }
        }
    }

    /// Owner, mode, extended attributes and times, in the order in which they do not undo one another.
    fn dress(&self, path: &Path, wanted: &Wanted) -> Result<(), CopyError> {
        let link = wanted.kind == FileKind::Symlink;
        let mut mode = wanted.mode;
        if let Some((uid, gid)) = wanted.owner {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            match rustix::fs::chownat(CWD, path, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(()) => {}
                // Only root gives files away; rights that went with the owner do not go to somebody else.
                Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => mode &= 0o1777,
                Err(error) => return Err(writing(error)),
            }
        }
        if wanted.times.is_some() && !link {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(writing)?;
        }
        for (name, value) in &wanted.xattrs {
            match xattr::set(path, OsStr::from_bytes(name), value) {
                Ok(()) => {}
                Err(error)
                    if is(&error, io::ErrorKind::Unsupported)
                        || is(&error, io::ErrorKind::PermissionDenied)
                        || !name.starts_with(b"user.") =>
                {
                    self.refused_xattrs.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(writing(error)),
            }
        }
        if let Some((atime, mtime)) = wanted.times {
            let times = Timestamps { last_access: stamp(atime), last_modification: stamp(mtime) };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(writing)?;
        }
        Ok(())
    }

    fn fill(
        &self,
        file: &File,
        wanted: &Wanted,
        content: &mut Content,
        moved: Moved,
    ) -> Result<(), CopyError> {
        let mut end = 0;
        while let Some(chunk) = content.next(RECORD)? {
            moved(chunk.len() as u64)?;
            file.write_all_at(&chunk, chunk.offset).map_err(writing)?;
            end = chunk.offset + chunk.len() as u64;
        }
        if end < wanted.size {
            file.set_len(wanted.size).map_err(writing)?;
        }
        Ok(())
    }

    /// Takes a copy away again that could not be completed.
    fn clean_up(&self, path: &Path, done: Result<(), CopyError>) -> Result<(), CopyError> {
        done.inspect_err(|_| {
            // What made the copy fail is what its reader wants to know.
            let _ = std::fs::remove_file(path);
        })
    }
}

/// A device or fifo that is already there is written to, not replaced.
fn open_outlet(path: &Path) -> Option<io::Result<File>> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    (kind.is_char_device() || kind.is_fifo()).then(|| File::options().write(true).open(path))
}

impl Sink for ToLocal {
    type Dir = PathBuf;
    type Made = PathBuf;

    fn make_dir(&self, dir: &PathBuf, name: &[u8], wanted: &Wanted) -> Result<PathBuf, CopyError> {
        let path = child(dir, name);
        // Whoever fills it must be able to; the final mode comes at the end.
        let mode = Mode::from_raw_mode(wanted.mode & 0o777 | 0o700);
        match rustix::fs::mkdir(&path, mode) {
            Ok(()) => Ok(path),
            // Not by way of a link, which may be part of what is copied.
            Err(rustix::io::Errno::EXIST) if path.symlink_metadata().is_ok_and(|there| there.is_dir()) => {
                Ok(path)
            }
            Err(rustix::io::Errno::EXIST) => {
                Err(CopyError::destination("something that is no directory has that name"))
            }
            Err(error) => Err(writing(error)),
        }
    }

    fn finish_dir(&self, dir: &PathBuf, wanted: &Wanted) -> Result<(), CopyError> {
        if wanted.times.is_none() && wanted.mode & 0o700 == 0o700 {
            return Ok(());
        }
        if wanted.times.is_none() {
            return std::fs::set_permissions(dir, Permissions::from_mode(wanted.mode)).map_err(writing);
        }
        self.dress(dir, wanted)
    }

    fn make_file(
        &self,
        dir: &PathBuf,
        name: &[u8],
        wanted: &Wanted,
        content: &mut Content,
        moved: Moved,
    ) -> Result<PathBuf, CopyError> {
        if let Some(outlet) = open_outlet(&child(dir, name)) {
            use io::Write;
            let mut outlet = outlet.map_err(writing)?;
            let mut at = 0;
            while let Some(chunk) = content.next(RECORD)? {
                moved(chunk.len() as u64)?;
                io::copy(&mut io::Read::take(io::repeat(0), chunk.offset - at), &mut outlet)
                    .map_err(writing)?;
                outlet.write_all(&chunk).map_err(writing)?;
                at = chunk.offset + chunk.len() as u64;
            }
            return Ok(child(dir, name));
        }
        self.placing(dir, name, |path| {
            let mode = if wanted.times.is_some() { 0o600 } else { wanted.mode };
            let file = File::options().write(true).create_new(true).mode(mode).open(path).map_err(writing)?;
            let done = self.fill(&file, wanted, content, moved).and_then(|()| self.dress(path, wanted));
            self.clean_up(path, done)
        })
    }

    fn make_other(
        &self,
        dir: &PathBuf,
        name: &[u8],
        wanted: &Wanted,
        target: &[u8],
    ) -> Result<PathBuf, CopyError> {
        self.placing(dir, name, |path| {
            if wanted.kind == FileKind::Symlink {
                std::os::unix::fs::symlink(OsStr::from_bytes(target), path).map_err(writing)?;
            } else {
                let mode = Mode::from_raw_mode(wanted.mode & 0o777);
                rustix::fs::mknodat(CWD, path, file_type(wanted.kind), mode, wanted.rdev).map_err(writing)?;
            }
            self.clean_up(path, self.dress(path, wanted))
        })
    }

    fn link(&self, made: &PathBuf, dir: &PathBuf, name: &[u8]) -> Result<(), CopyError> {
        self.placing(dir, name, |path| std::fs::hard_link(made, path).map_err(writing)).map(drop)
    }

    fn record(&self) -> u64 {
        RECORD
    }

    fn remark(&self) -> Option<String> {
        match self.refused_xattrs.load(Ordering::Relaxed) {
            0 => None,
            n => Some(format!(
                "{n} extended attributes were left out: the file system here does not take them"
            )),
        }
    }
}

//! Copies onto this machine's own file systems.
//!
//! Everything is made, changed and given attributes by descriptors, never by paths: neither the names in a hostile pool nor
//! another user who changes the tree meanwhile can lead a copy outside the directory that the user named.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use xattr::FileExt as _;
use zpl::rank::RankedMutex;
use zpl::{FileKind, Time};

use super::content::Content;
use super::error::{CopyError, made_twice, writing};
use super::facts::Facts;
use super::folder::{self, FileId, Folder, proc_path};
use super::sink::{Moved, Sink, There, Wanted};

/// Bytes in which files are handed over.
const RECORD: u64 = 1 << 20;
/// The number of temporary names that are tried before the copy of a file fails.
const TEMPORARY_MAX: u32 = 1000;

/// This machine.
#[derive(Debug)]
pub struct ToLocal {
    temporary: AtomicU64,
    /// Extended attributes that a file system did not take.
    refused_xattrs: AtomicU64,
    /// Copies that do not belong to the owner of their original.
    other_owners: AtomicU64,
    /// Directories that this run fills. Where several sources are copied they keep the record of what was made in them.
    filled: RankedMutex<HashMap<FileId, Option<Arc<Folder>>>>,
    several_sources: bool,
}

/// A copy that may get more names.
#[derive(Clone, Debug)]
pub struct Made {
    folder: Arc<Folder>,
    name: Vec<u8>,
    id: FileId,
    kind: FileKind,
}

/// A node that is to be made.
struct New<'a> {
    dir: &'a Arc<Folder>,
    name: &'a [u8],
    kind: FileKind,
    /// It is complete in one step. A killed copy would leave half of anything else.
    at_once: bool,
}

/// A file whose attributes are to be set.
enum Dressed<'a> {
    /// Open for reading or writing.
    Open(&'a File),
    /// Opened as a place only (`O_PATH`): it is reached by this path below `/proc/self/fd`.
    Place(&'a OwnedFd, String),
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

fn type_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// The reason why `there` cannot be replaced by a non-directory of this `kind`; `None` if it can.
fn keeps_place(there: &Stat, kind: FileKind) -> Option<CopyError> {
    let what = match type_of(there) {
        FileType::Directory => return Some(CopyError::destination("a directory has that name")),
        // A regular file in the place of /dev/null would be a useless copy.
        _ if kind != FileKind::Regular => return None,
        FileType::Fifo => "a FIFO",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Socket => "a socket",
        _ => return None,
    };
    Some(CopyError::destination(format!("{what} has that name, which is neither written to nor replaced")))
}

impl Dressed<'_> {
    fn own(&self, uid: u32, gid: u32) -> Result<(), Errno> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Dressed::Open(file) => rustix::fs::fchown(file, uid, gid),
            Dressed::Place(place, _) => rustix::fs::chownat(place, "", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn permit(&self, bits: u32) -> Result<(), Errno> {
        match self {
            Dressed::Open(file) => rustix::fs::fchmod(file, mode(bits)),
            Dressed::Place(_, path) => rustix::fs::chmodat(CWD, path, mode(bits), AtFlags::empty()),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        match self {
            Dressed::Open(file) => file.set_xattr(OsStr::from_bytes(name), value),
            Dressed::Place(_, path) => xattr::set_deref(path, OsStr::from_bytes(name), value),
        }
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Dressed::Open(file) => rustix::fs::futimens(file, times),
            Dressed::Place(_, path) => rustix::fs::utimensat(CWD, path, times, AtFlags::empty()),
        }
    }
}

impl ToLocal {
    /// `several_sources`: directories of different sources that have the same name become one.
    pub fn new(several_sources: bool) -> ToLocal {
        ToLocal {
            temporary: AtomicU64::new(0),
            refused_xattrs: AtomicU64::new(0),
            other_owners: AtomicU64::new(0),
            filled: RankedMutex::default(),
            several_sources,
        }
    }

    /// Makes a file, link or device with `create`, calls `complete` for it, and gives it its name. `create` must fail
    /// if the name exists. A node that takes several steps, or replaces another one, has a temporary name until it is
    /// complete.
    fn place(
        &self,
        New { dir, name, kind, at_once }: New,
        create: impl Fn(&OwnedFd, &[u8]) -> Result<OwnedFd, Errno>,
        complete: impl FnOnce(OwnedFd) -> Result<(), CopyError>,
    ) -> Result<Made, CopyError> {
        if !zpl::is_one_name(name) {
            return Err(CopyError::destination("its name is no name of a file"));
        }
        let at = dir.descriptor().map_err(writing)?;
        let registered = if at_once { register(dir, &at, name, &create) } else { Err(Errno::EXIST) };
        let (new, id, temporary) = match registered {
            Ok((new, id)) => (new, id, None),
            Err(Errno::EXIST) => {
                replaceable(dir, &at, name, kind)?;
                let (other, new, id) = self.create_beside(dir, &at, &create)?;
                (new, id, Some(other))
            }
            Err(error) => return Err(writing(error)),
        };
        let done = complete(new).and_then(|()| match &temporary {
            Some(other) => publish(dir, &at, (other, name), kind),
            None => Ok(()),
        });
        if let Err(error) = done {
            withdraw(dir, &at, temporary.as_deref().unwrap_or(name), id);
            return Err(error);
        }
        Ok(Made { folder: dir.clone(), name: name.to_vec(), id, kind })
    }

    /// As [`register`], under a temporary name.
    fn create_beside(
        &self,
        dir: &Folder,
        at: &OwnedFd,
        create: &impl Fn(&OwnedFd, &[u8]) -> Result<OwnedFd, Errno>,
    ) -> Result<(Vec<u8>, OwnedFd, FileId), CopyError> {
        for _ in 0..TEMPORARY_MAX {
            let number = self.temporary.fetch_add(1, Ordering::Relaxed);
            let other = folder::temporary(number);
            match register(dir, at, &other, create) {
                Ok((new, id)) => return Ok((other, new, id)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(writing(error)),
            }
        }
        Err(CopyError::destination("all temporary names beside it are taken"))
    }

    /// Sets owner, mode, extended attributes and times, in an order in which none undoes an earlier one.
    fn dress(&self, file: &Dressed, wanted: &Wanted) -> Result<(), CopyError> {
        let mut mode = wanted.mode;
        if let Some((uid, gid)) = wanted.owner {
            match file.own(uid, gid) {
                Ok(()) => {}
                // Only root can give files to other owners. Set-id rights for the old owner must not go to another one.
                Err(Errno::PERM | Errno::INVAL) => {
                    mode &= 0o1777;
                    self.other_owners.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(writing(error)),
            }
        }
        if wanted.times.is_some() && wanted.kind != FileKind::Symlink {
            file.permit(mode).map_err(writing)?;
        }
        for (name, value) in &wanted.xattrs {
            match file.set_xattr(name, value) {
                Ok(()) => {}
                Err(error) if is_left_out(&error) || !name.starts_with(b"user.") => {
                    self.refused_xattrs.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(writing(error)),
            }
        }
        if let Some((atime, mtime)) = wanted.times {
            let times = Timestamps { last_access: stamp(atime), last_modification: stamp(mtime) };
            file.set_times(&times).map_err(writing)?;
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
}

/// The reason why the node with the name of a folder cannot be entered.
fn no_folder(error: Errno) -> CopyError {
    match error {
        // A link is not followed, because it may be part of the copied data.
        Errno::LOOP | Errno::NOTDIR => CopyError::destination("something that is no directory has that name"),
        error => writing(error),
    }
}

/// Makes something and notes it as made by this run, in one step for all threads.
fn register(
    dir: &Folder,
    at: &OwnedFd,
    name: &[u8],
    create: impl Fn(&OwnedFd, &[u8]) -> Result<OwnedFd, Errno>,
) -> Result<(OwnedFd, FileId), Errno> {
    let mut made = dir.made();
    let new = create(at, name)?;
    let id = FileId::from(&rustix::fs::fstat(&new)?);
    made.insert(id);
    Ok((new, id))
}

/// The reason why the existing `name` cannot be replaced.
fn replaceable(dir: &Folder, at: &OwnedFd, name: &[u8], kind: FileKind) -> Result<(), CopyError> {
    let made = dir.made();
    match folder::look(at, name) {
        Ok(there) if made.contains(&FileId::from(&there)) => Err(made_twice()),
        Ok(there) => keeps_place(&there, kind).map_or(Ok(()), Err),
        // It was removed meanwhile.
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(writing(error)),
    }
}

/// Gives a complete copy its name.
fn publish(
    dir: &Folder,
    at: &OwnedFd,
    (other, name): (&[u8], &[u8]),
    kind: FileKind,
) -> Result<(), CopyError> {
    let made = dir.made();
    match folder::look(at, name) {
        Ok(there) if made.contains(&FileId::from(&there)) => return Err(made_twice()),
        Ok(there) => {
            if let Some(error) = keeps_place(&there, kind) {
                return Err(error);
            }
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(writing(error)),
    }
    rustix::fs::renameat(at, OsStr::from_bytes(other), at, OsStr::from_bytes(name)).map_err(writing)
}

/// Removes a copy that could not be completed, unless another file has its name by now.
fn withdraw(dir: &Folder, at: &OwnedFd, name: &[u8], id: FileId) {
    let _names = dir.made();
    if folder::look(at, name).is_ok_and(|there| FileId::from(&there) == id) {
        // The first error is the useful one.
        let _ = rustix::fs::unlinkat(at, OsStr::from_bytes(name), AtFlags::empty());
    }
}

/// Says whether `place` is the file that was just made. Another user may have put a file of his own, or one more name of
/// somebody's file, in its place.
fn is_ours(place: &impl AsFd, wanted: &Wanted) -> Result<(), CopyError> {
    let stat = rustix::fs::fstat(place).map_err(writing)?;
    let same = type_of(&stat) == file_type(wanted.kind)
        && stat.st_nlink == 1
        && (!wanted.kind.is_device() || stat.st_rdev == wanted.rdev);
    if same { Ok(()) } else { Err(CopyError::destination("it was replaced while it was made")) }
}

impl Sink for ToLocal {
    type Dir = Arc<Folder>;
    type Made = Made;

    fn look(
        &self,
        dir: &Arc<Folder>,
        name: &[u8],
        wanted: &Wanted,
    ) -> Result<Option<There<Made>>, CopyError> {
        let at = dir.descriptor().map_err(writing)?;
        replaceable(dir, &at, name, wanted.kind)?;
        let stat = match folder::look(&at, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(writing(error)),
        };
        let Facts { kind, size, mtime, .. } = Facts::of_local(&stat)?;
        let made = Made { folder: dir.clone(), name: name.to_vec(), id: FileId::from(&stat), kind };
        Ok(Some(There { kind, size, mtime, made }))
    }

    fn enter(&self, dir: &Arc<Folder>, name: &[u8]) -> Result<Option<Arc<Folder>>, CopyError> {
        match dir.enter(name, false) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(no_folder(error)),
        }
    }

    fn clear(&self, dir: &Arc<Folder>) -> Result<u64, CopyError> {
        // In an existing folder that this user may not read, no leftover can be found.
        let Ok(file) = dir.open() else { return Ok(0) };
        let mut found = Vec::new();
        for entry in Dir::new(file).map_err(writing)? {
            let entry = entry.map_err(writing)?;
            let name = entry.file_name().to_bytes();
            let ended = |process: u32| !std::path::Path::new(&format!("/proc/{process}")).exists();
            if folder::writer_of(name).is_some_and(ended) {
                found.push(name.to_vec());
            }
        }
        let at = dir.descriptor().map_err(writing)?;
        let mut cleared = 0;
        for name in found {
            if folder::look(&at, &name).is_ok_and(|there| type_of(&there) == FileType::RegularFile) {
                rustix::fs::unlinkat(&*at, OsStr::from_bytes(&name), AtFlags::empty()).map_err(writing)?;
                cleared += 1;
            }
        }
        Ok(cleared)
    }

    fn make_dir(&self, dir: &Arc<Folder>, name: &[u8], wanted: &Wanted) -> Result<Arc<Folder>, CopyError> {
        if !zpl::is_one_name(name) {
            return Err(CopyError::destination("its name is no name of a folder"));
        }
        let at = dir.descriptor().map_err(writing)?;
        // The copying user needs write access; the final mode is set at the end. Until then other users need no access.
        let bits = if wanted.times.is_some() { 0o700 } else { wanted.mode & 0o777 | 0o700 };
        let is_new = match rustix::fs::mkdirat(&*at, OsStr::from_bytes(name), mode(bits)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(writing(error)),
        };
        let folder = dir.enter(name, is_new).map_err(no_folder)?;
        let mut filled = self.filled.lock();
        match filled.entry(folder.id()) {
            Entry::Occupied(first) => first.get().clone().ok_or_else(made_twice),
            Entry::Vacant(none) => {
                none.insert(self.several_sources.then(|| folder.clone()));
                Ok(folder)
            }
        }
    }

    fn finish_dir(&self, dir: &Arc<Folder>, wanted: &Wanted) -> Result<(), CopyError> {
        if wanted.times.is_none() {
            if !dir.is_new || wanted.mode & 0o700 == 0o700 {
                return Ok(());
            }
            return Dressed::Open(&dir.open().map_err(writing)?).permit(wanted.mode).map_err(writing);
        }
        match dir.open() {
            Ok(file) => self.dress(&Dressed::Open(&file), wanted),
            // It was there before and may be entered, but not be read.
            Err(Errno::ACCESS) => {
                let place = dir.descriptor().map_err(writing)?;
                self.dress(&Dressed::Place(&place, proc_path(&*place)), wanted)
            }
            Err(error) => Err(writing(error)),
        }
    }

    fn make_file(
        &self,
        dir: &Arc<Folder>,
        name: &[u8],
        wanted: &Wanted,
        content: &mut Content,
        moved: Moved,
    ) -> Result<Made, CopyError> {
        let bits = if wanted.times.is_some() { 0o600 } else { wanted.mode };
        let create = |at: &OwnedFd, name: &[u8]| {
            folder::open_at(at, name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode(bits))
        };
        self.place(New { dir, name, kind: FileKind::Regular, at_once: false }, create, |new| {
            let file = File::from(new);
            self.fill(&file, wanted, content, moved)?;
            self.dress(&Dressed::Open(&file), wanted)
        })
    }

    fn make_other(
        &self,
        dir: &Arc<Folder>,
        name: &[u8],
        wanted: &Wanted,
        target: &[u8],
    ) -> Result<Made, CopyError> {
        if wanted.kind.is_device() && wanted.times.is_none() {
            return Err(CopyError::destination("devices are copied with -p only"));
        }
        let create = |at: &OwnedFd, name: &[u8]| {
            let path = OsStr::from_bytes(name);
            if wanted.kind == FileKind::Symlink {
                rustix::fs::symlinkat(OsStr::from_bytes(target), at, path)?;
            } else {
                rustix::fs::mknodat(
                    at,
                    path,
                    file_type(wanted.kind),
                    mode(wanted.mode & 0o777),
                    wanted.rdev,
                )?;
            }
            folder::open_path(at, name)
        };
        self.place(New { dir, name, kind: wanted.kind, at_once: true }, create, |new| {
            is_ours(&new, wanted)?;
            self.dress(&Dressed::Place(&new, proc_path(&new)), wanted)
        })
    }

    fn link(&self, made: &Made, dir: &Arc<Folder>, name: &[u8]) -> Result<(), CopyError> {
        let from = made.folder.descriptor().map_err(writing)?;
        let at = dir.descriptor().map_err(writing)?;
        if folder::look(&at, name).is_ok_and(|there| FileId::from(&there) == made.id) {
            return match Arc::ptr_eq(&made.folder, dir) && made.name == name {
                true => Err(made_twice()),
                // An earlier copy gave it this name, too.
                false => Ok(()),
            };
        }
        let create = |at: &OwnedFd, name: &[u8]| {
            let (old, new) = (OsStr::from_bytes(&made.name), OsStr::from_bytes(name));
            rustix::fs::linkat(&*from, old, at, new, AtFlags::empty())?;
            folder::open_path(at, name)
        };
        let linked = self.place(New { dir, name, kind: made.kind, at_once: true }, create, |new| {
            let stat = rustix::fs::fstat(&new).map_err(writing)?;
            if FileId::from(&stat) == made.id {
                return Ok(());
            }
            Err(CopyError::destination("the copy was replaced before it got this name, too"))
        });
        linked.map(drop)
    }

    fn record(&self) -> u64 {
        RECORD
    }

    fn remark(&self) -> Option<String> {
        let attributes = match self.refused_xattrs.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("1 extended attribute was".to_owned()),
            n => Some(format!("{n} extended attributes were")),
        };
        let attributes =
            attributes.map(|which| format!("{which} left out: the file system here does not take them"));
        let owners = match self.other_owners.load(Ordering::Relaxed) {
            0 => None,
            n => Some(format!(
                "owners were not kept ({n} of the copies are yours): only root can give files away"
            )),
        };
        let lines: Vec<String> = attributes.into_iter().chain(owners).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

/// Whether a file system refused an extended attribute although it may take the file. ext4 says that the device is full
/// when a value is larger than its block for attributes. If the device really is full, the next file fails, too.
fn is_left_out(error: &io::Error) -> bool {
    use io::ErrorKind::{ArgumentListTooLong, PermissionDenied, StorageFull, Unsupported};
    matches!(error.kind(), Unsupported | PermissionDenied | StorageFull | ArgumentListTooLong)
}

//! Directories of this machine that a copy reads or fills.
//!
//! From:   a directory that the user named, and names of its children.
//! To:     descriptors. Each step down opens one name relative to the descriptor of its parent and follows no link. So no
//!         name and no change of the tree during the copy leads outside the directory that the user named.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use zpl::rank::{MutexHeld, Rank, RankedMutex};

/// Most directories below the named ones that are open at the same time: a process may have 1,024 descriptors by default.
const OPEN_MAX: usize = 256;
/// The beginning of temporary names; the number of a process and a number follow.
const TEMPORARY: &str = ".cenote-";
/// Most bytes of a path in a message.
pub const SHOWN_MAX: usize = 4096;

/// The identity of a file on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The file system.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
}

impl From<&Stat> for FileId {
    fn from(stat: &Stat) -> FileId {
        FileId { dev: stat.st_dev, ino: stat.st_ino }
    }
}

/// The directories below one that the user named which are open, oldest first.
#[derive(Debug, Default)]
struct Recent(RankedMutex<VecDeque<Weak<Folder>>>);

/// A directory. Its descriptor is opened once; when too many are open, the oldest is closed and opened again when needed.
#[derive(Debug)]
pub struct Folder {
    /// The parent; none for a directory that the user named, which stays open.
    above: Option<Arc<Folder>>,
    /// The name in the parent, or the path that the user named.
    name: Vec<u8>,
    id: FileId,
    descriptor: RankedMutex<Option<Arc<OwnedFd>>>,
    recent: Arc<Recent>,
    /// Everything that this run made in the directory.
    made: RankedMutex<HashSet<FileId>>,
    /// Whether this run made the directory.
    pub is_new: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // In a loop, since the default would recurse: a chain of parents can be longer than the stack allows.
        let mut above = self.above.take();
        while let Some(mut folder) = above.and_then(Arc::into_inner) {
            above = folder.above.take();
        }
    }
}

/// The process that was writing a file under a temporary name of copies; `None` for other names.
pub fn writer_of(name: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(name).ok()?;
    let (process, number) = name.strip_prefix(TEMPORARY)?.split_once('-')?;
    number.parse::<u64>().ok()?;
    process.parse().ok()
}

/// The temporary name number `number` of this process.
pub fn temporary(number: u64) -> Vec<u8> {
    format!("{TEMPORARY}{}-{number}", std::process::id()).into_bytes()
}

/// A name as the system takes it; an error for everything that is no single name.
fn checked(name: &[u8]) -> Result<&OsStr, Errno> {
    if zpl::is_one_name(name) { Ok(OsStr::from_bytes(name)) } else { Err(Errno::INVAL) }
}

/// A path by which the system reaches the file behind a descriptor that was opened with `O_PATH`, whatever has its name by now.
pub fn proc_path(descriptor: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// The attributes of the entry `name` of the directory; no link is followed.
pub fn look(at: &OwnedFd, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(at, checked(name)?, AtFlags::SYMLINK_NOFOLLOW)
}

/// Opens the entry `name` of the directory. A link is not followed, and a FIFO does not wait for its other end.
pub fn open_at(at: &OwnedFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(at, checked(name)?, flags, mode))
}

/// Opens the file itself that has the name `name`, without any right to its contents: nothing happens to a device or FIFO.
pub fn open_path(at: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(at, checked(name)?, flags, Mode::empty()))
}

fn open_folder(at: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(at, checked(name)?, flags, Mode::empty()))
}

impl Folder {
    /// The directory at a path that the user named; an empty path is the current directory. Links in the path are followed,
    /// since the user meant them. A link as the last name is followed with `follow`.
    ///
    /// # Errors
    /// It is no directory, or cannot be opened.
    pub fn named(path: &Path, follow: bool) -> io::Result<Arc<Folder>> {
        let last = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | last;
        let place = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let descriptor = rustix::io::retry_on_intr(|| rustix::fs::openat(CWD, place, flags, Mode::empty()))?;
        Ok(Arc::new(Folder {
            above: None,
            name: path.as_os_str().as_bytes().to_vec(),
            id: FileId::from(&rustix::fs::fstat(&descriptor)?),
            descriptor: RankedMutex::leaf(Some(Arc::new(descriptor))),
            recent: Arc::default(),
            made: RankedMutex::new(Rank::Making, HashSet::new()),
            is_new: false,
        }))
    }

    /// The directory `name` in this one. `is_new`: this run has just made it.
    ///
    /// # Errors
    /// It is no directory (`ENOTDIR`, `ELOOP`), or cannot be opened.
    pub fn enter(self: &Arc<Folder>, name: &[u8], is_new: bool) -> Result<Arc<Folder>, Errno> {
        let descriptor = open_folder(&*self.descriptor()?, name)?;
        let folder = Arc::new(Folder {
            above: Some(self.clone()),
            name: name.to_vec(),
            id: FileId::from(&rustix::fs::fstat(&descriptor)?),
            descriptor: RankedMutex::leaf(None),
            recent: self.recent.clone(),
            made: RankedMutex::new(Rank::Making, HashSet::new()),
            is_new,
        });
        folder.keep_open(Arc::new(descriptor));
        Ok(folder)
    }

    /// Which directory it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    fn held(&self) -> MutexHeld<'_, Option<Arc<OwnedFd>>> {
        self.descriptor.lock()
    }

    fn keep_open(self: &Arc<Folder>, descriptor: Arc<OwnedFd>) {
        *self.held() = Some(descriptor);
        let oldest = {
            let mut recent = self.recent.0.lock();
            recent.push_back(Arc::downgrade(self));
            if recent.len() > OPEN_MAX { recent.pop_front() } else { None }
        };
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.held().take();
        }
    }

    /// The descriptor, which serves as the place that names are relative to. It carries no right to read the directory.
    ///
    /// # Errors
    /// It was closed meanwhile and cannot be opened again; `ESTALE`: another directory has its name now.
    pub fn descriptor(self: &Arc<Folder>) -> Result<Arc<OwnedFd>, Errno> {
        let mut closed = Vec::new();
        let mut folder = self;
        let mut at = loop {
            if let Some(descriptor) = &*folder.held() {
                break descriptor.clone();
            }
            closed.push(folder);
            folder = folder.above.as_ref().expect("a directory that the user named stays open");
        };
        for folder in closed.into_iter().rev() {
            let descriptor = open_folder(&at, &folder.name)?;
            if FileId::from(&rustix::fs::fstat(&descriptor)?) != folder.id {
                return Err(Errno::STALE);
            }
            at = Arc::new(descriptor);
            folder.keep_open(at.clone());
        }
        Ok(at)
    }

    /// The directory opened for reading.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(self: &Arc<Folder>) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = self.descriptor()?;
        rustix::io::retry_on_intr(|| rustix::fs::openat(&*at, ".", flags, Mode::empty())).map(File::from)
    }

    /// The entries that this run made in the directory. A thread that makes, replaces or removes a name in it holds
    /// this lock.
    pub fn made(&self) -> MutexHeld<'_, HashSet<FileId>> {
        self.made.lock()
    }

    /// The path of `name` in it, for messages; an empty name is the directory itself.
    pub fn shown(&self, name: &[u8]) -> String {
        let above = std::iter::successors(Some(self), |folder| folder.above.as_deref());
        let names = above.map(|folder| &folder.name[..]);
        let path = path(std::iter::once(name).filter(|name| !name.is_empty()).chain(names));
        String::from_utf8_lossy(&path).into_owned()
    }
}

/// A path made of names, the last one first. A path that is too long for a message begins with `…`.
pub fn path<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut len = 0;
    for name in names {
        len += name.len() + 1;
        if len > SHOWN_MAX {
            parts.push("…".as_bytes());
            break;
        }
        parts.push(name);
    }
    let mut path = Vec::with_capacity(len);
    for part in parts.into_iter().rev() {
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_single_names_are_names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert!(!zpl::is_one_name(bad), "{bad:?}");
        }
        assert!(zpl::is_one_name(b"...") && zpl::is_one_name(b"a b\n\xff"));
    }

    #[test]
    fn temporary_names_tell_who_writes() {
        assert_eq!(writer_of(&temporary(7)), Some(std::process::id()));
        for other in [&b".cenote-1"[..], b".cenote-1-", b".cenote-1-2.txt", b"cenote-1-2", b".cenote-x-2"] {
            assert_eq!(writer_of(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_link_is_never_entered_and_a_swapped_directory_is_noticed() {
        let top = tempfile::tempdir().expect("a folder");
        for name in ["in", "in/a", "out"] {
            std::fs::create_dir(top.path().join(name)).expect("made");
        }
        let root = Folder::named(&top.path().join("in"), true).expect("open");
        let a = root.enter(b"a", false).expect("open");
        assert_eq!(root.enter(b"..", false).expect_err("no name"), Errno::INVAL);
        // The descriptor was closed, and something else has the name when it is opened again.
        a.held().take();
        std::fs::rename(top.path().join("in/a"), top.path().join("in/b")).expect("moved");
        symlink(top.path().join("out"), top.path().join("in/a")).expect("made");
        assert!(root.enter(b"a", false).is_err() && a.descriptor().is_err());
        std::fs::remove_file(top.path().join("in/a")).expect("removed");
        std::fs::create_dir(top.path().join("in/a")).expect("made");
        assert_eq!(a.descriptor().expect_err("another directory"), Errno::STALE);
    }

    #[test]
    fn a_chain_deeper_than_the_stack_and_than_the_open_descriptors_works() {
        let top = tempfile::tempdir().expect("a folder");
        let root = Folder::named(top.path(), true).expect("open");
        let mut folder = root.clone();
        for _ in 0..2 * OPEN_MAX {
            rustix::fs::mkdirat(&*folder.descriptor().expect("open"), "d", Mode::from_raw_mode(0o700))
                .expect("made");
            folder = folder.enter(b"d", true).expect("open");
        }
        assert!(root.enter(b"d", false).expect("open").descriptor().is_ok());
        let mut above = folder.above.clone();
        while let Some(one) = above {
            assert!(one.descriptor().is_ok());
            above = one.above.clone();
        }
        assert!(folder.shown(b"x").ends_with("/d/d/x") && folder.shown(b"").len() <= SHOWN_MAX + 8);
    }
}

//! Directories that are shown as symbolic links: each is the mount point of a file system that is mounted elsewhere.
//!
//! A user without root cannot mount inside a mount of their own. The server answers such a mount point with a link to
//! where the file system is. The link is stored nowhere: the dataset, its snapshots and its streams have the directory.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

use fuser::{Errno, FileAttr, FileType, Generation};
use zpl::{DirEntry, FileKind, ObjectId};

use crate::attributes::{LONG, SHORT, to_system};
use crate::errno::{self, Answer};
use crate::names::nothing;
use crate::replies::Entry;
use crate::shared::Shared;
use crate::snapdir::link_for;

/// The targets of the links, by directory.
#[derive(Default)]
pub(crate) struct Links {
    targets: RwLock<HashMap<ObjectId, Vec<u8>>>,
    /// How many there are: most mounts have none, and then no lock is taken.
    count: AtomicUsize,
}

impl Links {
    fn targets(&self) -> RwLockReadGuard<'_, HashMap<ObjectId, Vec<u8>>> {
        self.targets.read().expect("no code panics while holding the links")
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<ObjectId, Vec<u8>>)) {
        let mut targets = self.targets.write().expect("no code panics while holding the links");
        change(&mut targets);
        self.count.store(targets.len(), Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether a link is shown in place of `dir`.
    pub(crate) fn has(&self, dir: ObjectId) -> bool {
        !self.is_empty() && self.targets().contains_key(&dir)
    }

    /// The target of the link in place of `dir`.
    pub(crate) fn target(&self, dir: ObjectId) -> Option<Vec<u8>> {
        self.targets().get(&dir).cloned()
    }
}

/// A link that is shown in place of a directory.
#[derive(Debug)]
pub struct ShownLink {
    parent: ObjectId,
    name: Vec<u8>,
    dir: ObjectId,
}

fn to_io(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.code())
}

impl Shared {
    /// Shows a link to `target` in place of the directory at `path`, which is relative to the root of the mount.
    pub(crate) fn show_link(&self, path: &Path, target: &Path) -> io::Result<ShownLink> {
        let link = self.find_directory(path)?;
        // As long as it is known, its number is not given to another object.
        self.known.remember(&self.fs().map_err(to_io)?, link.dir).map_err(io::Error::other)?;
        self.links.change(|targets| {
            targets.insert(link.dir, target.as_os_str().as_bytes().to_vec());
        });
        self.forget_link(&link);
        Ok(link)
    }

    /// Shows the directory again.
    pub(crate) fn hide_link(&self, link: &ShownLink) {
        self.links.change(|targets| {
            targets.remove(&link.dir);
        });
        self.forget_node(link.dir, 1);
        self.forget_link(link);
    }

    /// The directories `gone` are no more, and no links in their place are shown.
    pub(crate) fn drop_links(&self, gone: &HashSet<ObjectId>) {
        if !self.links.is_empty() {
            self.links.change(|targets| targets.retain(|dir, _| !gone.contains(dir)));
        }
    }

    /// Whether the link is still shown.
    pub(crate) fn shows(&self, link: &ShownLink) -> bool {
        self.links.has(link.dir)
    }

    /// Makes the kernel ask again what the name of a link means, and where the link leads.
    fn forget_link(&self, link: &ShownLink) {
        self.tell(|kernel| kernel.inval_inode(link_for(link.dir), 0, 0));
        self.tell(|kernel| kernel.inval_entry(self.ino(link.parent), OsStr::from_bytes(&link.name)));
    }

    fn find_directory(&self, path: &Path) -> io::Result<ShownLink> {
        let fs = self.fs().map_err(to_io)?;
        let mut found: Option<ShownLink> = None;
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            let parent = found.map_or_else(|| self.root(), |above| above.dir);
            let name = name.as_bytes().to_vec();
            let entry = fs.lookup(parent, &name).map_err(io::Error::other)?;
            found = match entry {
                Some((dir, FileKind::Directory)) => Some(ShownLink { parent, name, dir }),
                Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            };
        }
        found.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// The link that is shown in place of `dir`.
    pub(crate) fn link_entry(&self, dir: ObjectId) -> Answer<Entry> {
        let attr = self.link_attr(dir)?;
        Ok(Entry { attr, generation: Generation(0), attr_ttl: SHORT, entry_ttl: LONG })
    }

    pub(crate) fn link_attr(&self, dir: ObjectId) -> Answer<FileAttr> {
        let target = self.links.target(dir).ok_or(Errno::ESTALE)?;
        let stat = self.fs()?.stat(dir).map_err(errno::from)?;
        let born = to_system(stat.crtime);
        Ok(FileAttr {
            ino: link_for(dir),
            size: target.len() as u64,
            atime: born,
            mtime: born,
            ctime: born,
            crtime: born,
            kind: FileType::Symlink,
            perm: 0o777,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            blksize: 512,
            ..nothing()
        })
    }

    /// # Errors
    /// `EBUSY`: `name` in `dir` is a mount point that is shown as a link, and stays what it is meanwhile.
    pub(crate) fn check_no_link(&self, dir: ObjectId, name: &OsStr) -> Answer<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        match self.fs()?.lookup(dir, name.as_bytes()).map_err(errno::from)? {
            Some((id, _)) if self.links.has(id) => Err(Errno::EBUSY),
            _ => Ok(()),
        }
    }

    /// Whether an entry of a directory is shown as a link.
    pub(crate) fn is_link(&self, entry: &DirEntry) -> bool {
        self.links.has(entry.id) && !matches!(entry.name.as_slice(), b"." | b"..")
    }
}

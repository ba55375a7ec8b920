//! Directories shown as symbolic links. Each is the mount point of a file system that is mounted elsewhere.
//!
//! A user who is not root cannot mount inside an own mount. So the server shows such a mount point as a link to the real
//! mount. The link is not stored: the dataset, its snapshots and its streams contain the directory.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard};

use super::{Name, Notice, Session};
use crate::{DirEntry, Error, FileKind, ObjectId, Result, Stat};

/// The targets of the links, by directory.
#[derive(Default)]
pub(super) struct Links {
    targets: RwLock<HashMap<ObjectId, Vec<u8>>>,
    /// Number of links. Most sessions have none and then take no lock.
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
    pub(super) fn has(&self, dir: ObjectId) -> bool {
        !self.is_empty() && self.targets().contains_key(&dir)
    }
}

/// A link that is shown in place of a directory.
#[derive(Debug)]
pub struct ShownLink {
    parent: ObjectId,
    name: Vec<u8>,
    dir: ObjectId,
}

impl Session {
    /// Shows a symbolic link to `target` in place of the directory at `path`, which is relative to the root. The link is
    /// stored nowhere; the directory can be neither removed nor renamed meanwhile.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotDir`]; [`Error::Invalid`] for a path that is the root or has more than names in it.
    pub fn show_link(&self, path: &Path, target: &Path) -> Result<ShownLink> {
        let fs = self.fs()?;
        let mut found: Option<ShownLink> = None;
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(Error::Invalid) };
            let name = name.as_bytes();
            let parent = found.map_or(self.root, |above| above.dir);
            found = match fs.lookup(parent, name)? {
                Some((dir, FileKind::Directory)) => Some(ShownLink { parent, name: name.to_vec(), dir }),
                Some(_) => return Err(Error::NotDir),
                None => return Err(Error::NotFound),
            };
        }
        let link = found.ok_or(Error::Invalid)?;
        // While it is held, its number is not reused.
        self.handles.hold(&fs, link.dir)?;
        self.links.change(|targets| {
            targets.insert(link.dir, target.as_os_str().as_bytes().to_vec());
        });
        self.forget_link(&link);
        Ok(link)
    }

    /// Shows the directory again.
    pub fn hide_link(&self, link: &ShownLink) {
        self.links.change(|targets| {
            targets.remove(&link.dir);
        });
        self.release(link.dir, 1);
        self.forget_link(link);
    }

    /// Drops the links of the removed directories `gone`.
    pub fn drop_links(&self, gone: &HashSet<ObjectId>) {
        if !self.links.is_empty() {
            self.links.change(|targets| targets.retain(|dir, _| !gone.contains(dir)));
        }
    }

    /// Whether the link is still shown. Its directory may have disappeared with a replaced file system.
    #[must_use]
    pub fn shows(&self, link: &ShownLink) -> bool {
        self.links.has(link.dir)
    }

    /// Target of the link shown in place of `dir`.
    #[must_use]
    pub fn link_target(&self, dir: ObjectId) -> Option<Vec<u8>> {
        self.links.targets().get(&dir).cloned()
    }

    /// Attributes of the link shown in place of `dir`.
    ///
    /// # Errors
    /// [`Error::Stale`] when none is shown; the directory cannot be read.
    pub fn link_stat(&self, dir: ObjectId) -> Result<Stat> {
        let target = self.link_target(dir).ok_or(Error::Stale)?;
        let born = self.fs()?.stat(dir)?.crtime;
        let size = target.len() as u64;
        let made_up = Stat::made_up(dir, FileKind::Symlink, [born, born]);
        Ok(Stat { size, nlink: 1, uid: self.owner.0, gid: self.owner.1, ..made_up })
    }

    /// Tells caches to look up the name of a link and its target again.
    fn forget_link(&self, link: &ShownLink) {
        self.changed(Notice::Link(link.dir));
        self.changed(Notice::Name(link.parent, &link.name));
    }

    /// # Errors
    /// [`Error::Busy`]: the name belongs to a mount point that is shown as a link and must not change.
    pub(super) fn check_no_link(&self, at: Name<'_>) -> Result<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        match self.fs()?.lookup(at.dir, at.name)? {
            Some((id, _)) if self.links.has(id) => Err(Error::Busy),
            _ => Ok(()),
        }
    }

    /// Whether an entry of a directory is shown as a link.
    #[must_use]
    pub fn is_link(&self, entry: &DirEntry) -> bool {
        self.links.has(entry.id) && !matches!(entry.name.as_slice(), b"." | b"..")
    }
}

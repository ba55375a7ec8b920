//! Directories in whose place something else is shown: each is the mount point of another file system.
//!
//! A user without root cannot mount inside a mount of their own. The front end answers such a mount point with the root of
//! the other file system, or with a symbolic link to its mount point. This answer is not stored: the dataset, its snapshots
//! and its streams contain the directory.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicUsize, Ordering};

use dmu::rank::{RankedRwLock, ReadHeld};

use super::{Name, Notice, Session, Target, link_for};
use crate::{DirEntry, Error, FileKind, ObjectId, Result, Stat};

/// The links and file systems that are shown in place of directories.
#[derive(Default)]
pub(super) struct Links {
    /// By directory; with each, the directory that it lies in.
    covers: RankedRwLock<HashMap<ObjectId, (ObjectId, Cover)>>,
    /// How many there are: most sessions have none, and then no lock is taken.
    count: AtomicUsize,
}

/// The link or file system that is shown in place of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cover {
    /// A symbolic link to this path.
    Link(Vec<u8>),
    /// The root of another file system. The front end knows which.
    Tree,
}

impl Links {
    fn covers(&self) -> ReadHeld<'_, HashMap<ObjectId, (ObjectId, Cover)>> {
        self.covers.read()
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<ObjectId, (ObjectId, Cover)>) -> T) -> T {
        let mut covers = self.covers.write();
        let done = change(&mut covers);
        self.count.store(covers.len(), Ordering::Release);
        done
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether a link or a file system is shown in place of `dir`.
    pub(super) fn has(&self, dir: ObjectId) -> bool {
        !self.is_empty() && self.covers().contains_key(&dir)
    }

    /// As [`Links::target`], for a name in `parent`. A hostile pool may have the name of a directory in several others:
    /// the directory is covered in one place only.
    pub(super) fn target_in(&self, parent: ObjectId, dir: ObjectId) -> Target {
        let is_elsewhere = || self.covers().get(&dir).is_some_and(|(covered, _)| *covered != parent);
        if !self.is_empty() && is_elsewhere() { Target::Object(dir) } else { self.target(dir) }
    }

    /// The target that is shown in place of `dir`, or `dir` itself.
    pub(super) fn target(&self, dir: ObjectId) -> Target {
        match self.is_empty() {
            true => Target::Object(dir),
            false => match self.covers().get(&dir) {
                None => Target::Object(dir),
                Some((_, Cover::Link(_))) => Target::Link(dir),
                Some((_, Cover::Tree)) => Target::Tree(dir),
            },
        }
    }
}

/// A directory in whose place something else is shown.
#[derive(Clone, Debug)]
pub struct Covered {
    parent: ObjectId,
    name: Vec<u8>,
    dir: ObjectId,
}

impl Covered {
    /// The directory.
    #[must_use]
    pub fn dir(&self) -> ObjectId {
        self.dir
    }

    /// The directory that it lies in.
    #[must_use]
    pub fn parent(&self) -> ObjectId {
        self.parent
    }
}

impl Session {
    /// Shows a link or another file system in place of the directory at `path`, which is relative to the root. The
    /// cover is stored nowhere; the directory can be neither removed nor renamed meanwhile.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotDir`]; [`Error::Busy`] when it is covered already; [`Error::Invalid`] for a path that
    /// is the root or has more than names in it.
    pub fn cover(&self, path: &Path, with: Cover) -> Result<Covered> {
        let fs = self.fs()?;
        let mut found: Option<Covered> = None;
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(Error::Invalid) };
            let name = name.as_bytes();
            let parent = found.map_or(self.root, |above| above.dir);
            found = match fs.lookup(parent, name)? {
                Some((dir, FileKind::Directory)) => Some(Covered { parent, name: name.to_vec(), dir }),
                Some(_) => return Err(Error::NotDir),
                None => return Err(Error::NotFound),
            };
        }
        let covered = found.ok_or(Error::Invalid)?;
        if link_for(covered.dir).is_none() {
            return Err(Error::Invalid);
        }
        // As long as it is held, its number is not given to another object.
        self.handles.hold(&fs, covered.dir)?;
        let is_free = self.links.change(|covers| match covers.entry(covered.dir) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert((covered.parent, with));
                true
            }
        });
        if !is_free {
            self.release(covered.dir, 1);
            return Err(Error::Busy);
        }
        self.forget_cover(&covered);
        Ok(covered)
    }

    /// Shows the directory again.
    pub fn uncover(&self, covered: &Covered) {
        let was_covered = self.links.change(|covers| covers.remove(&covered.dir).is_some());
        // A directory that an exchange of the file system removed is still held.
        self.release(covered.dir, 1);
        if was_covered {
            self.forget_cover(covered);
        }
    }

    /// The directories `gone` were removed by an exchange: nothing is shown in their place.
    pub fn drop_covers(&self, gone: &HashSet<ObjectId>) {
        if !self.links.is_empty() {
            self.links.change(|covers| covers.retain(|dir, _| !gone.contains(dir)));
        }
    }

    /// Whether the directory is still covered: it may be gone with an exchange of the file system.
    #[must_use]
    pub fn covers(&self, covered: &Covered) -> bool {
        self.links.has(covered.dir)
    }

    /// Target of the link shown in place of `dir`.
    #[must_use]
    pub fn link_target(&self, dir: ObjectId) -> Option<Vec<u8>> {
        match self.links.covers().get(&dir) {
            Some((_, Cover::Link(target))) => Some(target.clone()),
            _ => None,
        }
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

    /// Makes caches ask again what the name of a covered directory means, and where the link leads.
    pub fn forget_cover(&self, covered: &Covered) {
        self.changed(Notice::Link(covered.dir));
        self.changed(Notice::Name(covered.parent, &covered.name));
    }

    /// # Errors
    /// [`Error::Busy`]: the name is that of a mount point with something else in its place. It must not change until that is unmounted.
    pub(super) fn check_no_link(&self, at: Name<'_>) -> Result<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        match self.fs()?.lookup(at.dir, at.name)? {
            Some((id, _)) if self.links.has(id) => Err(Error::Busy),
            _ => Ok(()),
        }
    }

    /// The target that is shown for an entry of a directory.
    #[must_use]
    pub fn shown(&self, entry: &DirEntry) -> Target {
        match entry.name.as_slice() {
            b"." | b".." => Target::Object(entry.id),
            _ => self.links.target(entry.id),
        }
    }
}

//! The folder that a path means beneath another one, found component by component through descriptors.
//!
//! From:   an alternate root (or `/`), and a mountpoint from a pool, which may be hostile.
//! To:     a descriptor of a folder beneath that root. Missing folders on the way are made.
//!
//! Each step starts at the descriptor of the step before, so moving folders meanwhile cannot redirect the walk.

use std::collections::{HashSet, VecDeque};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use front::{MountPoint, apart};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, mkdirat, open, openat, readlinkat, statx, unlinkat,
};
use rustix::io::Errno;

use crate::mountinfo;

/// Maximal number of symbolic links in one path, as in the kernel.
const LINKS_MAX: usize = 40;
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// A folder that was found, or made.
#[derive(Debug)]
pub(crate) struct Found {
    pub at: MountPoint,
    /// It was not there before.
    pub made: bool,
    /// Targets of links that an earlier version of cenote had stored in the pool. They were removed.
    pub removed: Vec<String>,
}

/// Finds the folder `path` beneath `root`, and makes missing folders.
///
/// Symbolic links are followed as if `root` were the root of the file tree. Only links made by root or this user are
/// followed, because the maker of a pool may have put links into its file systems.
///
/// # Errors
/// `path` has `..` in it, leads through a link that is not followed, or cannot be made.
pub(crate) fn folder(root: &Path, path: &Path) -> io::Result<Found> {
    let (root, path) = (root.to_owned(), path.to_owned());
    let (at, (made, removed)) = apart::open(move || walk(&root, &path))?;
    Ok(Found { at: MountPoint::new(at)?, made, removed })
}

/// As [`folder`], in the thread that may ask about paths.
fn walk(root: &Path, path: &Path) -> io::Result<(OwnedFd, (bool, Vec<String>))> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(io::Error::other(format!("'{}' has '..' in it", shown(root, path))));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = match open(root, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            std::fs::create_dir_all(root)?;
            open(root, flags, Mode::empty())?
        }
        opened => opened?,
    };
    let mut walk = Walk {
        above: vec![top],
        todo: parts(path.as_os_str()).collect(),
        links: 0,
        made: false,
        removed: Vec::new(),
        pools: mountinfo::devices()?,
    };
    while let Some(name) = walk.todo.pop_front() {
        walk.step(&name).map_err(|error| match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::other(format!("'{}': {error}", shown(root, path))),
        })?;
    }
    let at = walk.above.pop().expect("the root is never left");
    Ok((at, (walk.made, walk.removed)))
}

fn shown(root: &Path, path: &Path) -> String {
    root.join(path.strip_prefix("/").unwrap_or(path)).display().to_string()
}

struct Walk {
    /// The folders from the root to the present position.
    above: Vec<OwnedFd>,
    /// The names of the path that are still to be followed.
    todo: VecDeque<OsString>,
    links: usize,
    /// Whether the last folder was made by this walk.
    made: bool,
    /// Targets of links that were removed.
    removed: Vec<String>,
    /// Devices of mounted file systems of pools.
    pools: HashSet<(u32, u32)>,
}

impl Walk {
    fn here(&self) -> &OwnedFd {
        self.above.last().expect("the root is never left")
    }

    fn step(&mut self, name: &OsStr) -> io::Result<()> {
        self.made = false;
        if name == ".." {
            // Only links have it. The folder above the root is the root.
            if self.above.len() > 1 {
                self.above.pop();
            }
            return Ok(());
        }
        let next = match openat(self.here(), name, STEP, Mode::empty()) {
            Err(Errno::NOENT) => {
                match mkdirat(self.here(), name, FOLDER_MODE) {
                    // Another process made it first.
                    Err(Errno::EXIST) => {}
                    made => {
                        made?;
                        self.made = true;
                    }
                }
                openat(self.here(), name, STEP, Mode::empty())?
            }
            opened => opened?,
        };
        let found = look(&next)?;
        match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::Directory => self.above.push(next),
            FileType::Symlink => self.follow(name, &next, &found)?,
            _ => return Err(Errno::NOTDIR.into()),
        }
        Ok(())
    }

    fn follow(&mut self, name: &OsStr, link: &OwnedFd, found: &Statx) -> io::Result<()> {
        let target = readlinkat(link, "", Vec::new())?;
        let shown = || String::from_utf8_lossy(target.as_bytes()).escape_debug().to_string();
        let in_pool = self.pools.contains(&device(found));
        if in_pool && is_left_behind(target.as_bytes()) && !zpl::session::is_shown_link(found.stx_ino) {
            unlinkat(self.here(), name, AtFlags::empty())?;
            self.removed.push(shown());
            self.todo.push_front(name.to_owned());
            return Ok(());
        }
        // Root does not trust file systems that another user's server shows.
        let is_own = zpl::session::is_shown_link(found.stx_ino) && !rustix::process::geteuid().is_root();
        if in_pool && !is_own {
            let why = format!("a symbolic link in a pool's file system leads to '{}'", shown());
            return Err(io::Error::other(why));
        }
        if found.stx_uid != 0 && found.stx_uid != rustix::process::geteuid().as_raw() {
            let why = format!("a symbolic link of user {} leads to '{}'", found.stx_uid, shown());
            return Err(io::Error::other(why));
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = CString::into_bytes(target);
        if target.starts_with(b"/") {
            self.above.truncate(1);
        }
        let target = OsString::from_vec(target);
        parts(&target).collect::<Vec<_>>().into_iter().rev().for_each(|part| self.todo.push_front(part));
        Ok(())
    }
}

/// Whether a link is one that earlier versions stored in a dataset in place of a mount point: it leads to
/// `…/within/POOL%DATASET`.
fn is_left_behind(target: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(target));
    let is_within = path.parent().and_then(Path::file_name).is_some_and(|name| name == "within");
    path.is_absolute() && is_within && path.file_name().is_some_and(|name| name.as_bytes().contains(&b'%'))
}

fn parts(path: &OsStr) -> impl Iterator<Item = OsString> + '_ {
    let parts = path.as_bytes().split(|byte| *byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".").map(|part| OsStr::from_bytes(part).to_owned())
}

fn look(fd: &OwnedFd) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    Ok(statx(fd, "", flags, StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::INO)?)
}

fn device(found: &Statx) -> (u32, u32) {
    (found.stx_dev_major, found.stx_dev_minor)
}

/// Path and identity of a folder that will be removed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: (u32, u32),
    inode: u64,
}

impl Identity {
    fn of(found: &Statx) -> Identity {
        Identity { device: device(found), inode: found.stx_ino }
    }

    /// Identity of the folder that is at `path` now.
    pub(crate) fn at(path: &Path) -> io::Result<Identity> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let path = path.to_owned();
        apart::ask(move || Ok(Identity::of(&statx(rustix::fs::CWD, path, flags, StatxFlags::INO)?)))
    }

    /// Removes the folder at `path` if it is this one and empty.
    pub(crate) fn remove(self, path: &Path) -> io::Result<()> {
        let path = path.to_owned();
        apart::ask(move || self.remove_there(&path))
    }

    fn remove_there(self, path: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(parent, flags, Mode::empty())?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        if Identity::of(&statx(&parent, name, flags, StatxFlags::INO)?) != self {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }
}

/// The alternate root of a pool, and the part of `path` beneath it.
pub(crate) fn split(altroot: Option<&str>, path: &Path) -> (PathBuf, PathBuf) {
    let root = Path::new(altroot.unwrap_or("/"));
    match path.strip_prefix(root) {
        Ok(below) => (root.to_owned(), below.to_owned()),
        Err(_) => (PathBuf::from("/"), path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn find(root: &Path, path: &str) -> Result<(PathBuf, bool), String> {
        let found = folder(root, Path::new(path)).map_err(|error| error.to_string())?;
        let at = found.at.path().strip_prefix(root.canonicalize().unwrap()).map(Path::to_owned);
        Ok((at.map_err(|_| format!("outside: {}", found.at.path().display()))?, found.made))
    }

    #[test]
    fn a_path_stays_beneath_its_root() {
        let bed = tempfile::tempdir().unwrap();
        let root = bed.path().join("root");
        assert_eq!(find(&root, "a/b"), Ok(("a/b".into(), true)));
        assert_eq!(find(&root, "/a//./b/"), Ok(("a/b".into(), false)));
        assert!(find(&root, "/../x").unwrap_err().contains("has '..' in it"));
        assert!(find(&root, "a/../../x").unwrap_err().contains("has '..' in it"));
        for (name, target) in [("up", "../../../.."), ("top", "/"), ("other", "/etc"), ("out", "../../far")] {
            symlink(target, root.join(name)).unwrap();
        }
        assert_eq!(find(&root, "up/b"), Ok(("b".into(), true)));
        assert_eq!(find(&root, "top/a/b"), Ok(("a/b".into(), false)));
        assert_eq!(find(&root, "other/x"), Ok(("etc/x".into(), true)));
        assert_eq!(find(&root, "out"), Ok(("far".into(), true)));
        assert!(!bed.path().join("far").exists());
        symlink("loop", root.join("loop")).unwrap();
        assert!(find(&root, "loop/x").is_err());
        fs::write(root.join("file"), "").unwrap();
        assert!(find(&root, "file/x").is_err());
    }

    #[test]
    fn links_that_an_earlier_version_stored_are_known_by_their_targets() {
        for target in ["/run/user/1000/cenote/within/tank%code", "/x/within/p%a%b"] {
            assert!(is_left_behind(target.as_bytes()), "{target}");
        }
        for target in ["within/tank%code", "/x/within/tank", "/x/inside/tank%code", "/within/tank%code/x", ""]
        {
            assert!(!is_left_behind(target.as_bytes()), "{target}");
        }
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make what belongs to another user");
            return;
        }
        let bed = tempfile::tempdir().unwrap();
        let link = bed.path().join("link");
        symlink("/etc", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(find(bed.path(), "link/x").unwrap_err().contains("a symbolic link of user 65534"));
    }

    #[test]
    fn only_the_folder_that_was_meant_is_removed() {
        let bed = tempfile::tempdir().unwrap();
        let (one, other) = (bed.path().join("one"), bed.path().join("other"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        let identity = Identity::at(&one).unwrap();
        assert!(identity.remove(&other).is_err() && other.exists());
        identity.remove(&one).unwrap();
        assert!(!one.exists());
    }
}

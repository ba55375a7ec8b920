//! A directory to mount on, by descriptor: a path is resolved once.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::apart;

/// How a folder is opened that is only a place.
pub const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory to mount on.
#[derive(Debug)]
pub struct MountPoint {
    folder: OwnedFd,
    path: PathBuf,
}

impl MountPoint {
    /// The directory at `path`; symbolic links are followed.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> io::Result<MountPoint> {
        MountPoint::new(apart::open_path(path, FOLDER)?)
    }

    /// The directory that `folder`, which may be an `O_PATH` descriptor, was opened on.
    ///
    /// # Errors
    /// `/proc` does not tell its path.
    pub fn new(folder: OwnedFd) -> io::Result<MountPoint> {
        let path = fs::read_link(link_to(folder.as_fd()))?;
        Ok(MountPoint { folder, path })
    }

    /// Its path, with no symbolic link in it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this directory, whatever is at [`MountPoint::path`] by now; for this process only.
    #[must_use]
    pub fn link(&self) -> PathBuf {
        link_to(self.folder.as_fd())
    }
}

impl AsFd for MountPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// A path that leads to what a descriptor was opened on; for this process only.
#[must_use]
pub fn link_to(fd: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

//! Why a file system could not be mounted, or a mount not changed.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A holder of a copy of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// A process in another mount namespace.
    Process {
        /// Process id.
        pid: u32,
        /// Its command name.
        command: String,
    },
    /// This mount namespace, at another place.
    Place(String),
}

impl fmt::Display for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keeper::Process { pid, command } => {
                write!(f, "it is in use in another mount namespace, by process {pid} ({command})")
            }
            Keeper::Place(point) => write!(f, "it is mounted on '{point}', too"),
        }
    }
}

/// Why a file system could not be mounted, or the mount not changed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// This program was built without the feature `mount`.
    #[error("this program was built without FUSE")]
    NotBuilt,
    /// Programs have files open or their working directory in it.
    #[error("'{0}' is busy")]
    Busy(PathBuf),
    /// Another file system is mounted over it, which this server does not unmount.
    #[error("something else is mounted over '{0}'")]
    Covered(PathBuf),
    /// It was unmounted here, but another mount namespace, or an open file after a forced unmount, keeps it.
    #[error("'{}' is gone from here, but in use in another mount namespace or by an open file", point.display())]
    Elsewhere {
        /// Where it was.
        point: PathBuf,
        /// The holder, if it is visible.
        keeper: Option<Keeper>,
    },
    /// It was unmounted, but the pool does not accept the data that was written before.
    #[error("'{0}' is taken down, but the pool takes nothing of what was written there before")]
    Stuck(PathBuf),
    /// The mount point is missing, or no directory.
    #[error("cannot mount on '{point}': {source}")]
    Point {
        /// Where.
        point: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel, or fusermount3, refused.
    #[error("cannot mount on '{point}': {source}")]
    Mount {
        /// Where.
        point: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// It could not be unmounted.
    #[error("cannot unmount '{point}': {reason}")]
    Unmount {
        /// Where.
        point: PathBuf,
        /// The message of the system.
        reason: String,
    },
    /// It is mounted, but not as asked for.
    #[error("cannot change the mount options of '{point}': {source}")]
    Remount {
        /// Where.
        point: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Objects that a crash left in the unlinked set could not be freed.
    #[error(transparent)]
    Filesystem(#[from] zpl::Error),
}

/// Why this user can mount nothing on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// This program was built without the feature `mount`.
    #[error("this program was built without FUSE")]
    NotBuilt,
    /// The device of FUSE cannot be opened.
    #[error("'/dev/fuse': {0}")]
    Device(io::Error),
    /// The program that mounts for users without root is not installed.
    #[error("fusermount3 is not installed")]
    Helper,
}

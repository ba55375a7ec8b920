//! Why a file system could not be mounted, or a mount not changed.

use std::io;
use std::path::PathBuf;

use crate::keeper::Keeper;

/// Why a file system could not be mounted, or the mount not changed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Programs have files open, or stand in a directory.
    #[error("'{0}' is busy")]
    Busy(PathBuf),
    /// Something else is mounted over it, which is not ours to take down.
    #[error("something else is mounted over '{0}'")]
    Covered(PathBuf),
    /// It was taken down here, but another mount namespace, or an open file after a forced unmount, keeps it.
    #[error("'{}' is gone from here, but in use in another mount namespace or by an open file", point.display())]
    Elsewhere {
        /// Where it was.
        point: PathBuf,
        /// Who keeps it, if that can be seen.
        keeper: Option<Keeper>,
    },
    /// It was taken down, but the pool does not take what was written there before.
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
        /// What it said.
        source: io::Error,
    },
    /// It could not be unmounted.
    #[error("cannot unmount '{point}': {reason}")]
    Unmount {
        /// Where.
        point: PathBuf,
        /// What the system said.
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
    /// What a crash left behind could not be freed.
    #[error(transparent)]
    Filesystem(#[from] zpl::Error),
}

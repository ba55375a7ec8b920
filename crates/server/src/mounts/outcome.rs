//! Results of mounting and unmounting: errors, and the report about several file systems.

use std::io;
use std::path::{Path, PathBuf};

use pool::Pool;

use crate::messages::Moved;

/// Why a file system is not mounted, in the words of OpenZFS where it has some.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It is already.
    #[error("filesystem already mounted")]
    Mounted,
    /// There is nothing to remount.
    #[error("not currently mounted")]
    NotMounted,
    /// It was unmounted while programs used it (`umount -l`).
    #[error(
        "it was unmounted while in use, and programs still have files of it open \
         ('zfs unmount -f' closes them)"
    )]
    StillUsed,
    /// `canmount=off`.
    #[error("'canmount' property is set to 'off'")]
    CanMountOff,
    /// `mountpoint=legacy`.
    #[error("legacy mountpoint")]
    Legacy,
    /// A snapshot cannot be remounted for writing.
    #[error("Read-only file system")]
    Snapshot,
    /// mount(8) was asked for a file system whose mountpoint is not `legacy`.
    #[error("not a legacy mountpoint")]
    NotLegacy,
    /// `mountpoint=none`.
    #[error("no mountpoint set")]
    NoMountpoint,
    /// `overlay=off`, and the folder is not empty.
    #[error("directory is not empty")]
    NotEmpty(PathBuf),
    /// The folder to mount on cannot be made.
    #[error("failed to create mountpoint: {0}")]
    Folder(io::Error),
    /// It is encrypted and its key is not loaded.
    #[error("encryption key not loaded")]
    NoKey,
    /// Blocks were left out by the sender of the dataset.
    #[error("Dataset is not complete, was created by receiving a redacted zfs send stream.")]
    Redacted,
    /// It is no file system.
    #[error("operation not applicable to datasets of this type")]
    WrongKind,
    /// The dataset cannot be read.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// The file system cannot be opened.
    #[error(transparent)]
    Filesystem(#[from] zpl::Error),
    /// The front end or the kernel refuses.
    #[error(transparent)]
    Front(#[from] front::MountError),
    /// The pool is being exported.
    #[error(transparent)]
    Closed(#[from] crate::Closed),
}

/// Refuses a dataset whose contents cannot be read, or not all of them.
pub(super) fn check_contents(pool: &Pool, dataset: &str) -> Result<(), MountError> {
    let info = pool.dataset(dataset)?;
    if pool.lacks_key(&info)? {
        return Err(MountError::NoKey);
    }
    match pool.is_redacted(&info)? {
        true => Err(MountError::Redacted),
        false => Ok(()),
    }
}

/// Why a file system stays mounted.
#[derive(Debug, thiserror::Error)]
pub enum Unmounted {
    /// It is not mounted.
    #[error("not currently mounted")]
    NotMounted,
    /// It is in use.
    #[error("pool or dataset is busy")]
    Busy {
        /// Where it is mounted.
        point: PathBuf,
    },
    /// It was unmounted, but the pool does not accept its data.
    #[error(
        "the pool takes nothing of what was written there; the mount ends when it does ('zpool status' says more)"
    )]
    Stuck {
        /// Where it was mounted.
        point: PathBuf,
    },
    /// The pool is suspended: a device refuses writes, which wait for a retry.
    #[error("pool I/O is currently suspended")]
    Suspended,
    /// The kernel refuses.
    #[error("{why}")]
    Refused {
        /// Where it is mounted.
        point: PathBuf,
        /// Why.
        why: String,
    },
    /// The pool is being exported.
    #[error(transparent)]
    Closed(#[from] crate::Closed),
}

impl Unmounted {
    /// The same, of a file system that was to be mounted otherwise.
    pub(super) fn of_dataset(self, dataset: &str) -> MountError {
        match self {
            Unmounted::Busy { point } => front::MountError::Busy(point).into(),
            error => {
                let (point, reason) = (PathBuf::from(dataset), error.to_string());
                front::MountError::Unmount { point, reason }.into()
            }
        }
    }

    pub(super) fn of(point: &Path, error: front::MountError) -> Unmounted {
        let point = point.to_path_buf();
        let why = match error {
            front::MountError::Busy(_) => return Unmounted::Busy { point },
            front::MountError::Stuck(_) => return Unmounted::Stuck { point },
            front::MountError::Covered(_) => "something else is mounted over it".to_owned(),
            front::MountError::Elsewhere { keeper: Some(keeper), .. } => keeper.to_string(),
            front::MountError::Elsewhere { .. } => {
                "it is in use in another mount namespace, or by an open file".to_owned()
            }
            front::MountError::Unmount { reason, .. } => reason,
            other => other.to_string(),
        };
        Unmounted::Refused { point, why }
    }
}

/// Result of mounting several file systems.
#[derive(Debug, Default)]
pub struct Report {
    /// Those that are not, with the reason.
    pub failed: Vec<(String, MountError)>,
    /// Those mounted elsewhere than they should.
    pub moved: Vec<Moved>,
    /// Further remarks for the user who mounts.
    pub notes: Vec<String>,
}

impl Report {
    pub(crate) fn enter(&mut self, dataset: &str, done: Result<Option<Moved>, MountError>) {
        match done {
            Ok(None) => {}
            Ok(Some(moved)) => self.moved.push(moved),
            Err(error) => self.failed.push((dataset.to_owned(), error)),
        }
    }
}

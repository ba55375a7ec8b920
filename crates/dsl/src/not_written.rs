//! Why a pool, or a dataset in it, is not written.
//!
//! From:   an import, which looks at the pool and its devices; the user, who wants it only read; properties of a dataset.
//! To:     [`Error::ReadOnly`](crate::Error::ReadOnly), and people who ask why.

use std::path::PathBuf;

use storage::Unwritable;

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// As the user wanted it.
    #[error("it was opened for reading only")]
    Asked,
    /// This build writes the little-endian byte order only.
    #[error("a big-endian machine wrote it last")]
    BigEndian,
    /// Active features that this build only reads.
    #[error("it uses {}, which this version of cenote does not write", .0.join(", "))]
    Features(Vec<String>),
    /// Pools of such a version are only read.
    #[error("pools of version {0} are not written")]
    Version(u64),
    /// The sums of space of such a pool count parity, also after an upgrade.
    #[error("raidz in pools made before version 3 is not written")]
    OldRaidz,
    /// A top-level vdev is missing, was removed, or has a layout that is not known.
    #[error("writing to {0} vdevs is not supported yet")]
    Vdev(Unwritable),
    /// A device is shorter than it was.
    #[error("{} has {has} bytes, and was of {needed} at least: its end is missing", .device.display())]
    CutShort {
        /// Its path.
        device: PathBuf,
        /// Present size of the device in bytes.
        has: u64,
        /// The size in bytes that the device had at least.
        needed: u64,
    },
    /// Devices that are missing, or missed txgs, would be needed to read what was written.
    #[error("of what was written in some txgs the devices that are there do not have enough")]
    DevicesMissing,
    /// The pool is to return to an earlier state, and a device is missing.
    #[error("a device that is not there may hold states later than the one to return to")]
    LaterStates,
    /// A checkpoint in a pool that cannot note which blocks it keeps.
    #[error("it has a checkpoint and no place to note what that keeps")]
    CheckpointWithoutPlace,
    /// OpenZFS remapped blocks, which this build does not continue.
    #[error("blocks of a removed device were given new pointers")]
    Remapped,
    /// A scan that this build does not continue.
    #[error("a scan of an unknown kind is under way")]
    UnknownScan,
    /// A scrub that this build does not continue.
    #[error("a scrub of known errors is under way")]
    ErrorScrub,
    /// The state of the scan is damaged.
    #[error("its scan state is not understood: {0}")]
    DamagedScan(String),
    /// The expansion of a raidz vdev is under way, and this build does not continue it.
    #[error(transparent)]
    Expansion(#[from] NotExpanded),
    /// An intent log cannot be claimed.
    #[error("replaying the intent log of '{dataset}': {why}")]
    Log {
        /// Whose log it is.
        dataset: String,
        /// The reason.
        why: String,
    },
    /// The dataset's own property.
    #[error("'{0}' has readonly=on")]
    Property(String),
    /// The dataset is a snapshot.
    #[error("'{0}' is a snapshot")]
    Snapshot(String),
    /// The dataset has keys of the first version.
    #[error("'{0}' is encrypted in a format of before ZFS 0.8")]
    OldEncryption(String),
    /// Changes must not come before those of the log.
    #[error("'{0}' has an intent log that was not replayed yet")]
    LogWaits(String),
}

/// Why an expansion of a raidz vdev is not continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExpanded {
    /// The uberblock says that sectors move, and the configuration does not.
    #[error("sectors of a raidz vdev move, and its configuration does not say which")]
    NoVdev,
    /// One at a time is expanded.
    #[error("several raidz vdevs are being expanded")]
    Several,
    /// It is no raidz vdev at the top, or has no ZAP.
    #[error(
        "the expansion of a raidz vdev is under way, and it is not one that this version of cenote continues"
    )]
    OtherKind,
    /// Devices are missing.
    #[error("the expansion of a raidz vdev is under way, and too few of its devices are there")]
    DevicesMissing,
    /// An expansion before this one has not settled.
    #[error(
        "the expansion of a raidz vdev is under way, and blocks are still born that do not count with the child before"
    )]
    NotSettled,
    /// The first sectors pass through boot areas.
    #[error("the expansion of a raidz vdev is under way, and its boot areas are too small")]
    NoScratch,
    /// The word in the uberblock is impossible.
    #[error("the expansion of a raidz vdev is under way, and what the uberblock says of it is damaged")]
    Damaged,
    /// The boot areas hold the only copy of the first sectors.
    #[error(
        "the expansion of a raidz vdev is under way, and one device that holds the copy of its first sectors is missing or outdated"
    )]
    ScratchNotWhole,
}

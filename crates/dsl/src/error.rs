//! Errors of operations on pools and datasets.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use storage::allocator::AllocError;
use storage::{ReadError, WriteError};

use crate::NotWritten;
use crate::props::PropertyError;
use crate::props::names::NameError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a pool or dataset failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A signal interrupted the program that waits for the request. If the request changed something, the program does not
    /// get this error.
    #[error("interrupted")]
    Interrupted,
    /// No pool of that name (or guid) was found where we looked.
    #[error("no such pool '{0}'")]
    NoPool(String),
    /// The path holds no pool label.
    #[error("'{}' holds no pool: {why}", .path.display())]
    NotAPool {
        /// Where we looked.
        path: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// The pool's own name is one that no pool may have.
    #[error("{why}")]
    BadPoolName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// A dataset, snapshot or bookmark in the pool has an invalid name.
    #[error("'{}' in the pool: {why}", .name.escape_debug())]
    BadName {
        /// The full name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// Nothing new may have this name.
    #[error("'{}': {why}", .name.escape_debug())]
    InvalidName {
        /// The full name.
        name: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// Labels are there, but no consistent state of the pool.
    #[error("pool '{pool}' cannot be opened: {why}")]
    Damaged {
        /// The pool.
        pool: String,
        /// What is wrong.
        why: String,
    },
    /// Devices are missing.
    #[error("pool '{pool}' cannot be opened: too many devices are missing: {}", some_of(devices))]
    MissingDevices {
        /// The pool.
        pool: String,
        /// Missing devices because of which top-level vdevs cannot be read: the last known path of each, or its guid. If no
        /// label lists the devices, the top-level vdev itself.
        devices: Vec<String>,
    },
    /// The pool needs a feature that this build does not have.
    #[error("pool '{pool}' uses {what}, which this version of cenote cannot read")]
    Unreadable {
        /// The pool.
        pool: String,
        /// Feature guids or the like.
        what: String,
    },
    /// A dataset that must be freed in one txg has blocks that cannot be found.
    #[error("{place} cannot be read ({why}): nothing was freed")]
    Unfreeable {
        /// Where in the pool's objects.
        place: String,
        /// Why.
        why: String,
    },
    /// A scrub is at work.
    #[error("currently scrubbing; use 'zpool scrub -s' to cancel scrub")]
    Scrubbing,
    /// No scrub is running or paused.
    #[error("there is no active scrub")]
    NotScrubbing,
    /// The pool is too old for vdev properties: the vdev has no ZAP.
    #[error("Invalid argument")]
    NoVdevZap,
    /// It is the last vdev that takes new blocks.
    #[error("Invalid argument")]
    LastVdev,
    /// Only a top-level vdev for data can have this property.
    #[error("operation not supported on this type of vdev")]
    VdevKind,
    /// No vdev consists of such devices: the layout and their number.
    #[error("no vdev is {0}")]
    BadLayout(String),
    /// Another pool or vdev has that guid.
    #[error("File exists")]
    GuidTaken,
    /// A device is offline, missing or failed.
    #[error("one or more devices is currently unavailable")]
    DeviceAway,
    /// The pool has no such device.
    #[error("no such device in pool")]
    NoSuchDevice,
    /// The other devices do not hold all data of this one.
    #[error("no valid replicas")]
    NoReplicas,
    /// Devices leave mirrors only.
    #[error("only applicable to mirror and replacing vdevs")]
    NotAMirror,
    /// A split takes one side of each mirror.
    #[error("Source pool must be composed only of mirrors")]
    OnlyMirrors,
    /// The devices named for a split are not one side of each mirror.
    #[error("Device list must include at most one disk from each mirror")]
    OneOfEach,
    /// A split needs mirrors whose sides all hold all data.
    #[error("pool or dataset is busy")]
    NotWhole,
    /// No device can be attached to this vdev.
    #[error("can only attach to mirrors and top-level disks")]
    NotAttachable,
    /// The device is being replaced, or a spare has its place.
    #[error("already in replacing/spare config; wait for completion or use 'zpool detach'")]
    InReplacement,
    /// Special and dedup vdevs need the feature `allocation_classes`.
    #[error("operation not supported on this type of pool: the feature allocation_classes is not enabled")]
    NoClasses,
    /// Draid vdevs need the feature `draid`.
    #[error("operation not supported on this type of pool: the feature draid is not enabled")]
    NoDraid,
    /// A spare does not hold logs.
    #[error("cannot replace a log with a spare")]
    SpareForLog,
    /// A distributed spare is space on the devices of a draid vdev: it is there as long as the vdev.
    #[error("dRAID spares cannot be removed")]
    DistributedSpareStays,
    /// A distributed spare lies on the devices of another vdev.
    #[error("a distributed spare takes the place of devices of its own draid vdev only")]
    OtherDraid,
    /// The device is smaller than the one to which it is attached.
    #[error("device is too small")]
    TooSmall,
    /// The pool has a checkpoint.
    #[error("checkpoint exists")]
    CheckpointExists,
    /// The pool has no checkpoint.
    #[error("checkpoint does not exist")]
    NoCheckpoint,
    /// The blocks of a discarded checkpoint are being freed.
    #[error("currently discarding checkpoint")]
    DiscardingCheckpoint,
    /// The spare took the place of another device.
    #[error("Pool busy; removal may already be in progress")]
    SpareInUse,
    /// An intent log waits for its replay, or restarted each time it was ended.
    #[error(
        "a file system has an intent log on it; mount the file systems that were in use at a crash, and try again"
    )]
    LogInUse,
    /// A vdev is being removed.
    #[error("device removal in progress")]
    Removing,
    /// It is being removed already.
    #[error("removal for this vdev is already in progress.")]
    RemovingThis,
    /// Devices cannot be added to raidz vdevs of this pool.
    #[error("raidz_expansion feature must be enabled in order to attach a device to raidz")]
    RaidzExpansionOff,
    /// A raidz vdev gets a device, and its sectors move.
    #[error("raidz expansion in progress")]
    Expanding,
    /// A raidz vdev can be expanded while all its devices are there and have everything.
    #[error("a device of the raidz vdev is missing, faulted, offline, being replaced or resilvered")]
    RaidzNotWhole,
    /// A boot loader lies where the first sectors have to pass through.
    #[error("the reserved boot area of a device of the raidz vdev is in use")]
    BootAreaInUse,
    /// The rest of an expansion waits for a device.
    #[error("the expansion waits until every device of the raidz vdev is whole")]
    ExpansionWaits,
    /// No vdev is being removed.
    #[error("operation is not in progress")]
    NotRemoving,
    /// The vdevs differ. Only if all vdevs are alike do the copies take the same space on other vdevs.
    #[error("invalid config; all top-level vdevs must have the same sector size and not be raidz.")]
    NotAlike,
    /// Blocks of removed vdevs are found on mirrors and single devices only.
    #[error(
        "invalid config; a pool with removing/removed vdevs does not support adding raidz or dRAID vdevs"
    )]
    HasRemoved,
    /// Only whole top-level vdevs are removed.
    #[error("operation not supported on this type of pool")]
    NotRemovable,
    /// The device is not open, or has no ZAP for the state of initialize and trim.
    #[error("invalid device")]
    NotTreatable,
    /// Its free space is being overwritten or trimmed.
    #[error("currently {0}")]
    Treating(&'static str),
    /// Its free space is not being overwritten or trimmed.
    #[error("there is no active {0}")]
    NotTreated(&'static str),
    /// A device became larger while it was open, and the pool cannot be read while the device is opened again.
    #[error("its new size is seen at the next import: export and import the pool")]
    GrownMeanwhile,
    /// A new vdev has sectors of another size than those of the pool.
    #[error("adding devices with different physical sector sizes is not allowed")]
    AshiftMismatch,
    /// OpenZFS must finish a resilver first.
    #[error("currently resilvering")]
    Resilvering,
    /// A device of a vdev is being rebuilt in the order of its places.
    #[error("currently sequentially resilvering")]
    Rebuilding,
    /// The layout of the vdev does not show without its blocks where data belongs, or the feature `device_rebuild` is
    /// not enabled.
    #[error("only mirror and dRAID vdevs support sequential reconstruction")]
    NotSequential,
    /// A tunable does not take a value.
    #[error(transparent)]
    Tune(crate::tune_error::TuneError),
    /// The pool is open read-only.
    #[error("pool '{pool}' is read-only: {reason}")]
    ReadOnly {
        /// The pool.
        pool: String,
        /// Why.
        reason: NotWritten,
    },
    /// A device is in use, by another process or pool.
    #[error("'{}' is in use{}", .path.display(), .holder.as_deref().map(|h| format!(" by {h}")).unwrap_or_default())]
    Busy {
        /// The device.
        path: PathBuf,
        /// The holder, if known.
        holder: Option<String>,
    },
    /// The device cannot be a vdev.
    #[error("'{}' cannot be a vdev: {why}", .path.display())]
    BadDevice {
        /// The device.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The system refused.
    #[error("'{}': {source}", .path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No such dataset or snapshot.
    #[error("dataset '{0}' does not exist")]
    NoDataset(String),
    /// The name is taken.
    #[error("dataset '{0}' already exists")]
    Exists(String),
    /// The first file system of a pool is neither renamed nor destroyed.
    #[error("operation does not apply to pools")]
    IsPool,
    /// A dataset does not move below itself.
    #[error("New dataset name cannot be a descendant of current dataset name")]
    BelowItself,
    /// Only file systems have children.
    #[error("parent is not a filesystem")]
    ParentKind,
    /// One transaction takes at most one snapshot of each dataset.
    #[error("multiple snapshots of same fs not allowed")]
    SeveralOfOne,
    /// As many destroyed datasets wait to be freed as may.
    #[error("pool or dataset is busy: many destroyed datasets are still being freed; try again later")]
    FreesWait,
    /// The dataset has children or snapshots.
    #[error("dataset '{0}' has children")]
    HasChildren(String),
    /// The pool's version does not have it.
    #[error("pool must be upgraded")]
    OldPool,
    /// A key of an encrypted dataset is missing or is a wrong one.
    #[error(transparent)]
    Key(#[from] crate::KeyError),
    /// The dataset is in use.
    #[error("dataset '{0}' is busy")]
    DatasetBusy(String),
    /// The snapshot has clones.
    #[error("snapshot '{0}' has dependent clones")]
    HasClones(String),
    /// The snapshot is held.
    #[error("snapshot '{0}' is held")]
    Held(String),
    /// The snapshot is not held under this tag.
    #[error("no such tag '{0}'")]
    NoHold(String),
    /// The full name of the snapshot would be too long.
    #[error("dataset name is too long")]
    NameTooLong(String),
    /// A tag to hold a snapshot under, or the name of a set of permissions, that is empty, too long or holds control
    /// characters.
    #[error("{}", match .0.len() {
        1..crate::props::names::NAME_MAX => format!("invalid tag '{}'", .0.escape_debug()),
        0 => "invalid name".to_owned(),
        _ => "tag too long".to_owned(),
    })]
    BadTag(String),
    /// It is no clone, so it cannot be promoted.
    #[error("'{0}' is not a cloned filesystem")]
    NotAClone(String),
    /// The promoted clone and its origin's dataset both have a snapshot of this name.
    #[error("conflicting snapshot '{leaf}' from parent '{parent}'")]
    SnapshotConflict {
        /// The name after the `@`.
        leaf: String,
        /// The dataset that the clone was cloned from.
        parent: String,
    },
    /// A bookmark's source lies outside the history of its dataset.
    #[error("the source of '{0}' is not an ancestor of its dataset")]
    NotAncestor(String),
    /// Blocks of this dataset were left out by its sender.
    #[error("Dataset is not complete, was created by receiving a redacted zfs send stream.")]
    Redacted(String),
    /// A raw stream of an encrypted dataset that leaves blocks out, or brings blocks that its source lacks.
    #[error("raw sends may not be redacted")]
    RawRedacted,
    /// The list of a redaction bookmark was not made to its end.
    #[error("the redaction bookmark is not complete ('zfs redact' with the same snapshots completes it)")]
    RedactionUnfinished,
    /// The redaction snapshot is no snapshot after the one to be redacted.
    #[error("redaction snapshot must be descendent of snapshot being redacted")]
    NotDescendant,
    /// The dataset to redact, or one by which it would be redacted, is redacted already.
    #[error("attempted to redact redacted dataset or with respect to redacted dataset")]
    RedactedAgain,
    /// The list of a redaction bookmark was made for other snapshots.
    #[error("attempted to resume redaction  with a mismatched redaction list")]
    OtherRedaction,
    /// The bookmark has no redaction list.
    #[error("not a redaction bookmark")]
    NotRedaction,
    /// The redaction bookmark is of another snapshot than the one to be sent.
    #[error("Invalid argument")]
    OtherSnapshotRedacted,
    /// A redaction list for more snapshots than its header has room for.
    #[error("too many redaction snapshots specified")]
    TooManyRedactions,
    /// There are newer snapshots.
    #[error("there are snapshots newer than '{0}'")]
    NotNewest(String),
    /// The source of an incremental stream is no ancestor.
    #[error("cannot send '{0}': not an earlier snapshot from the same fs")]
    NotEarlier(String),
    /// A replication stream would lack blocks that are older than the snapshot of the parent.
    #[error("cannot send {top} recursively: snapshot {missing} does not exist")]
    NoSnapshotBelow {
        /// The snapshot that is sent.
        top: String,
        /// The snapshot that is missing.
        missing: String,
    },
    /// A package has properties, and the properties of an encrypted dataset have no meaning without its encryption.
    #[error(
        "cannot send {top}: encrypted dataset {dataset} may not be sent with properties without the raw flag"
    )]
    NotRaw {
        /// The snapshot that is sent.
        top: String,
        /// The encrypted dataset.
        dataset: String,
    },
    /// The output cannot be written.
    #[error("{0}")]
    Output(#[source] io::Error),
    /// A stream that cannot be received.
    #[error(transparent)]
    Receive(#[from] crate::ReceiveError),
    /// The operation must wait for the next txg. This error never leaves the crate.
    #[error("not in the same transaction group")]
    SameTxg,
    /// A property does not accept this value, or not on this dataset.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// No space left, or over quota.
    #[error("out of space")]
    NoSpace,
    /// A dataset's quota is used up.
    #[error("quota exceeded")]
    Quota,
    /// A write failed: the pool stopped at its last synced txg.
    #[error("the pool stopped, its last synced state is safe: {0}")]
    Stopped(Arc<Error>),
    /// Another machine holds the pool.
    #[error("pool is imported on host '{host}' (hostid={hostid:x})")]
    ActiveElsewhere {
        /// Its name, as the labels have it.
        host: String,
        /// Its number.
        hostid: u64,
    },
    /// A pool with `multihost` on needs a machine with a number.
    #[error(
        "pool has the multihost property on and the system's hostid is not set. Set a unique system hostid with the zgenhostid(8) command."
    )]
    NoHostId,
    /// With `multihost` on: the pool may be taken by another machine.
    #[error("no heartbeat reached the pool's devices in time: another machine may have taken the pool")]
    HeartbeatLost,
    /// A device refuses writes; the pool is suspended and will retry them.
    #[error("pool I/O is currently suspended")]
    Suspended,
    /// An invariant of cenote's own code was broken: the pool stopped before the error reached the disks.
    #[error(
        "suspended after an internal error; what was not synced is lost: export and import the pool again"
    )]
    Internal,
    /// A job failed half-way; none of its changes reached the disks.
    #[error("stopped half-way: {0}")]
    Unfinished(String),
    /// Blocks could not be read or written.
    #[error(transparent)]
    Dmu(#[from] dmu::Error),
    /// A block could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A block could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A record of an intent log cannot be replayed: the log is damaged, or another program wrote it.
    #[error("replaying the intent log of '{dataset}': {why}")]
    Replay {
        /// Whose log it is.
        dataset: String,
        /// The reason why the record cannot be replayed.
        why: String,
    },
    /// A record is longer than a block of an intent log. A sync takes its place.
    #[error("a record of {0} bytes does not fit into a block of an intent log")]
    LongRecord(usize),
    /// An intent log lost blocks after it was claimed.
    #[error("an intent log is damaged since it was claimed")]
    DamagedLog,
    /// This build does not do it.
    #[error("not supported: {0}")]
    Unsupported(String),
}

impl From<AllocError<Error>> for Error {
    fn from(error: AllocError<Error>) -> Error {
        match error {
            AllocError::Source { source, .. } => source,
            AllocError::NoSpace { .. } => Error::NoSpace,
            AllocError::Damaged { damage, .. } => ReadError::from(damage).into(),
        }
    }
}

impl Error {
    /// Whether the error or one of its causes is that no space is left.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(
            self,
            Error::NoSpace
                | Error::Quota
                | Error::Write(WriteError::NoSpace)
                | Error::Dmu(dmu::Error::Write(WriteError::NoSpace))
        )
    }

    /// The error that an object of the MOS is damaged, and how.
    pub fn corrupt(object: format::ObjectId) -> impl FnOnce(format::Corrupt) -> Error {
        move |source| Error::Dmu(dmu::Error::Corrupt { object, source })
    }
}

/// Names in one line, and how many more there are: the labels of a damaged pool may name any number of devices.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len() {
        ..=SHOWN => shown,
        all => format!("{shown} and {} more", all - SHOWN),
    }
}

/// The result of `survey`, or the first error that it reported.
pub fn all_or_first_error<T>(survey: impl FnOnce(&mut dyn FnMut(Error)) -> Result<T>) -> Result<T> {
    let mut first = None;
    let found = survey(&mut |error| {
        first.get_or_insert(error);
    })?;
    first.map_or(Ok(found), Err)
}

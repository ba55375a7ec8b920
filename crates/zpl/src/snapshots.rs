//! The snapshots of a file system, for front ends that show them.

use format::znode::Time;
use pool::{SnapDir, SnapshotEntry, SnapshotKey};

use crate::{Error, Filesystem, Result};

/// A destroyed snapshot is no damage.
pub(crate) fn gone(error: pool::Error) -> Error {
    match error {
        pool::Error::NoDataset(_) => Error::NotFound,
        other => other.into(),
    }
}

impl Filesystem {
    /// Whether a mount shows the snapshots, as the property `snapdir` says now. A snapshot has none of its own.
    #[must_use]
    pub fn snapdir(&self) -> SnapDir {
        if self.inner.dataset.is_snapshot() {
            SnapDir::Disabled
        } else {
            self.inner.dataset.settings().snapdir
        }
    }

    /// Some snapshots from `cookie` on (0: from the start); none at the end. Go on with the cookie of the last that was
    /// used; cookies are 4 at least.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the file system was destroyed; the list cannot be read.
    pub fn snapshots_from(&self, cookie: u64) -> Result<Vec<SnapshotEntry>> {
        self.inner.dataset.snapshots_from(cookie).map_err(gone)
    }

    /// The snapshot called `name`.
    ///
    /// # Errors
    /// As [`Filesystem::snapshots_from`].
    pub fn snapshot_named(&self, name: &[u8]) -> Result<Option<SnapshotKey>> {
        self.inner.dataset.snapshot_named(name).map_err(gone)
    }

    /// How many snapshots there are, and when they last changed, where that is known.
    ///
    /// # Errors
    /// As [`Filesystem::snapshots_from`].
    pub fn snapshots_sum(&self) -> Result<(u64, Option<Time>)> {
        let dataset = &self.inner.dataset;
        let changed = dataset.snapshots_changed().map_err(gone)?;
        let changed = changed.map(|[secs, nanos]| Time { secs: secs as i64, nanos });
        Ok((dataset.snapshot_count().map_err(gone)?, changed))
    }

    /// The file system as it was when the snapshot was taken; as [`pool::Dataset::open_snapshot`] with its name.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the snapshot was destroyed; else what [`Filesystem::open`] says.
    pub fn open_snapshot(&self, key: SnapshotKey, called: &[u8]) -> Result<Filesystem> {
        Filesystem::open(self.inner.dataset.open_snapshot(key, called).map_err(gone)?)
    }
}

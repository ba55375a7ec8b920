//! The volumes directly below a file system, for front ends that show them.

use pool::SnapshotKey;

use crate::snapshots::gone;
use crate::{Filesystem, Result, Volume};

impl Filesystem {
    /// The volumes directly below it that programs are shown, with their snapshots that are: names and keys.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when the file system was destroyed; the list cannot be read.
    pub fn volumes(&self) -> Result<Vec<(String, SnapshotKey)>> {
        self.inner.dataset.volumes().map_err(gone)
    }

    /// The one called `name`.
    ///
    /// # Errors
    /// As [`Filesystem::volumes`].
    pub fn volume_named(&self, name: &[u8]) -> Result<Option<SnapshotKey>> {
        self.inner.dataset.volume_named(name).map_err(gone)
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when it was destroyed; else what [`Volume::open`] says.
    pub fn open_volume(&self, key: SnapshotKey, name: &[u8]) -> Result<Volume> {
        Volume::open(self.inner.dataset.open_volume(key, name).map_err(gone)?)
    }
}

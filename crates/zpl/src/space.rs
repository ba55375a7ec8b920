//! Space of a file system, for `statfs`.
//!
//! Source: docs/format/06-mos-dsl.md §8.5.

use crate::{Filesystem, Result};

/// Figures of a file system, as of the last sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Largest block of a new file, in bytes.
    pub record_size: u64,
    /// Bytes that the file system refers to.
    pub referenced: u64,
    /// Bytes that may still be written, within the quotas and the pool.
    pub available: u64,
    /// Objects in use.
    pub objects: u64,
}

impl Filesystem {
    /// How much is used and how much is left.
    ///
    /// # Errors
    /// If the dataset's object cannot be read.
    pub fn space(&self) -> Result<Space> {
        let dataset = &self.inner.dataset;
        let (referenced, available) = dataset.space()?;
        let (_, root) = self.inner.objset.synced_root();
        Ok(Space { record_size: dataset.settings().record_size, referenced, available, objects: root.fill() })
    }
}

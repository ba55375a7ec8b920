//! The disks and files at the bottom of the vdev tree.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use format::label::DATA_START;

use crate::error::{ReadError, WriteError};
use crate::host::Disk;
use crate::meter::{Meter, Metered};
use crate::unflushed::Unflushed;

/// A disk or file at the bottom of the tree.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Guid from its label.
    pub guid: u64,
    /// The open device; counts into `meter`.
    pub disk: Arc<dyn Disk>,
    /// What the device was asked for.
    pub meter: Arc<Meter>,
    pub(crate) unflushed: Arc<Unflushed>,
}

impl Leaf {
    /// A leaf on an open device.
    #[must_use]
    pub fn new(guid: u64, disk: Arc<dyn Disk>) -> Leaf {
        let meter = Arc::new(Meter::default());
        let unflushed = Arc::default();
        Leaf { guid, disk: Arc::new(Metered { disk, meter: meter.clone() }), meter, unflushed }
    }
}

impl Leaf {
    /// Fills `buf` from `offset` of the allocatable area.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let at = offset.saturating_add(DATA_START);
        self.disk.read_at(buf, at).map_err(|source| ReadError::Device {
            path: self.disk.path().to_path_buf(),
            offset: at,
            source,
        })
    }

    /// As [`Leaf::flush`], with the device in the error.
    pub(crate) fn flush_or_say(&self) -> Result<(), WriteError> {
        self.flush().map_err(|source| device_error(self.disk.path().to_path_buf(), 0, source))
    }
}

pub(crate) fn device_error(path: PathBuf, offset: u64, source: io::Error) -> WriteError {
    WriteError::Device { path, offset, source }
}

//! The caches and spares of the pool. They are open, so that no other process takes them.
//!
//! Invariant: none of them is part of the tree of vdevs.

use std::path::Path;
use std::sync::Arc;

use storage::host::Disk;
use storage::rank::{MutexHeld, RankedMutex};

/// Caches and spares that are open.
#[derive(Default)]
pub(crate) struct AuxDisks(RankedMutex<Vec<Arc<dyn Disk>>>);

impl AuxDisks {
    pub(crate) fn new(disks: Vec<Arc<dyn Disk>>) -> AuxDisks {
        AuxDisks(RankedMutex::leaf(disks))
    }

    fn lock(&self) -> MutexHeld<'_, Vec<Arc<dyn Disk>>> {
        self.0.lock()
    }

    /// Number of devices.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Holds exactly these devices from now on.
    pub(crate) fn replace(&self, disks: Vec<Arc<dyn Disk>>) {
        // The old devices are closed without the lock.
        let before = std::mem::replace(&mut *self.lock(), disks);
        drop(before);
    }

    /// Holds these devices, too.
    pub(crate) fn hold(&self, disks: impl IntoIterator<Item = Arc<dyn Disk>>) {
        self.lock().extend(disks);
    }

    /// Stops holding the device at `path`, and returns it.
    pub(crate) fn take(&self, path: &Path) -> Option<Arc<dyn Disk>> {
        let mut disks = self.lock();
        let at = disks.iter().position(|disk| disk.path() == path)?;
        Some(disks.remove(at))
    }
}

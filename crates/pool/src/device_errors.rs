//! Counters of device errors and of slow requests.
//!
//! From:   the meters of the leaves in `storage`.
//! To:     `zpool status`, `zpool clear`.

use crate::Result;
use crate::pool::Pool;

impl Pool {
    /// Read, write and checksum errors of each present device, by its guid.
    #[must_use]
    pub fn device_errors(&self) -> Vec<(u64, [u64; 3])> {
        let leaves = self.inner.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        let errors = |stats: storage::IoStats| [stats.read_errors, stats.write_errors, stats.checksum_errors];
        let caches = self.inner.storage.second().devices();
        let of_caches = caches.iter().map(|cache| (cache.guid.0, errors(cache.io)));
        leaves.map(|leaf| (leaf.guid, errors(leaf.meter.stats()))).chain(of_caches).collect()
    }

    /// Number of requests of each present device that took longer than `zio_slow_io_ms`, by its guid.
    #[must_use]
    pub fn slow_requests(&self) -> Vec<(u64, u64)> {
        let leaves = self.inner.storage.vdevs().leaves();
        leaves.map(|leaf| (leaf.guid, leaf.meter.stats().slow)).collect()
    }

    /// Resets the error counters of all devices, or of the device with the guid `only`. Notes an event for each device that
    /// had errors.
    pub fn clear_errors(&self, only: Option<u64>) {
        let leaves = self.inner.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        for leaf in leaves.filter(|leaf| only.is_none_or(|guid| guid == leaf.guid)) {
            let stats = leaf.meter.stats();
            leaf.meter.clear_errors();
            if stats.read_errors + stats.write_errors + stats.checksum_errors > 0 {
                self.inner.happened_to("vdev_clear", leaf);
            }
        }
    }

    /// Writes the pool's configuration to all labels once more, and the command into the history.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::ReadOnly`].
    pub fn rewrite_config(&self) -> Result<()> {
        self.run(|syncing| {
            syncing.state.config_dirty = true;
            Ok(())
        })
    }
}

//! Free space, for trim and initialize.
//!
//! From:   `pool`, on the thread that allocates: what it is given stays free until it allocates again.

use format::VdevId;

use super::{AllocError, Allocator, Runs, SpaceMapSource};

impl Allocator {
    /// The runs of a metaslab that may be handed out next, as (byte offset within the vdev, bytes): no state of the pool that
    /// anybody may fall back to has anything there.
    ///
    /// # Errors
    /// [`AllocError`] when the space map cannot be read.
    ///
    /// # Panics
    /// If there is no such metaslab.
    pub fn free_runs<S: SpaceMapSource + ?Sized>(
        &mut self,
        vdev: VdevId,
        metaslab: u32,
        source: &mut S,
    ) -> Result<Runs, AllocError<S::Error>> {
        let index = self.index_of(vdev).expect("a vdev of the pool");
        self.vdevs[index].free_runs(metaslab, self.synced[0], source)
    }
}

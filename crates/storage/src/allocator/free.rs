//! Runs of a metaslab: free ones for trim and initialize, others for what moves or is rebuilt.
//!
//! From:   `pool`, on the thread that allocates: what it is given stays so until it allocates or frees again.

use format::VdevId;

use super::{AllocError, Allocator, Runs, SpaceMapSource, Which};

impl Allocator {
    /// Runs of a metaslab, as (byte offset within the vdev, bytes).
    ///
    /// # Errors
    /// [`AllocError`] when the space map cannot be read.
    ///
    /// # Panics
    /// If there is no such metaslab.
    pub fn runs<S: SpaceMapSource + ?Sized>(
        &mut self,
        vdev: VdevId,
        of: (u32, Which),
        source: &mut S,
    ) -> Result<Runs, AllocError<S::Error>> {
        let index = self.index_of(vdev).expect("a vdev of the pool");
        self.vdevs[index].runs(of, self.synced[0], source)
    }
}

//! Space of a raidz vdev that gets one child more: what of it moves, and the room that blocks get.
//!
//! From:   `pool`, whose sync moves the sectors.
//! To:     the same.
//! Source: docs/format/11-redundancy.md §2.2, §11.

use format::VdevId;

use super::{AllocError, Allocator, Runs, SpaceMapSource};
use crate::layout::Sizes;

impl Allocator {
    /// What is not to be handed out now in a metaslab, as (byte offset within the vdev, bytes): in use, or freed and not reusable yet.
    ///
    /// # Errors
    /// [`AllocError`] when the space map cannot be read.
    ///
    /// # Panics
    /// If there is no such metaslab.
    pub fn runs_not_free<S: SpaceMapSource + ?Sized>(
        &mut self,
        vdev: VdevId,
        metaslab: u32,
        source: &mut S,
    ) -> Result<Runs, AllocError<S::Error>> {
        let index = self.index_of(vdev).expect("a vdev of the pool");
        self.vdevs[index].runs_not_free(metaslab, self.synced[0], source)
    }

    /// From now on blocks that are placed on a vdev get as much room as `sizes` say.
    pub fn set_sizes(&mut self, vdev: VdevId, sizes: Sizes) {
        if let Some(index) = self.index_of(vdev) {
            self.vdevs[index].spec.sizes = Some(sizes);
        }
    }
}

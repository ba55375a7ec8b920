//! Space of a raidz vdev that gets one child more: what of it moves, and the room that blocks get.
//!
//! From:   `pool`, whose sync moves the sectors.
//! To:     the same.
//! Source: docs/format/11-redundancy.md §2.2, §11.

use format::VdevId;

use super::Allocator;
use crate::layout::Sizes;

impl Allocator {
    /// From now on blocks that are placed on a vdev get as much room as `sizes` say.
    pub fn set_sizes(&mut self, vdev: VdevId, sizes: Sizes) {
        if let Some(index) = self.index_of(vdev) {
            self.vdevs[index].spec.sizes = Some(sizes);
        }
    }
}

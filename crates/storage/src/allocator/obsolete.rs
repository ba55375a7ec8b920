//! Frees on removed vdevs: obsolete ranges of their mappings.
//!
//! From:   `pool`, which frees the blocks where they lie now, and notes where their pointers say that they lie.
//! To:     the same, which writes that down.
//! Source: docs/format/12-auxiliary-vdevs.md §5.8.

use format::VdevId;
use format::blkptr::Dva;

use super::{Allocator, Runs};

impl Allocator {
    /// Notes that the block at `dva`, on a removed vdev, was freed.
    pub fn note_obsolete(&mut self, dva: Dva) {
        let noted = self.obsolete.entry(dva.vdev).or_default().add(dva.offset, dva.offset + dva.asize);
        // The free of the block at its present place was accepted, so it is freed once.
        debug_assert!(noted.is_ok(), "{dva:?} is freed once");
    }

    /// The ranges that were noted since the last call, as (byte offset within the removed vdev, bytes), by vdev.
    #[must_use = "what was noted and is not written down is lost"]
    pub fn take_obsolete(&mut self) -> Vec<(VdevId, Runs)> {
        let noted = std::mem::take(&mut self.obsolete);
        let runs = |(start, end)| (start, end - start);
        noted.into_iter().map(|(vdev, segments)| (vdev, segments.iter().map(runs).collect())).collect()
    }
}

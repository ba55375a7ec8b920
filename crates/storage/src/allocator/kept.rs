//! Space that a checkpoint keeps: its blocks stay allocated when they are freed.
//!
//! From:   `pool`, which says up to which txg blocks are kept.
//! To:     the same, which writes what was freed and kept into lists of its own.
//! Source: docs/format/12-auxiliary-vdevs.md §6.2.

use format::blkptr::Dva;
use format::{Txg, VdevId};

use super::{Allocator, FreeError, Runs};

impl Allocator {
    /// From now on, blocks born in `txg` or before stay allocated when they are freed; `None`: no blocks do.
    pub fn keep_born_until(&mut self, txg: Option<Txg>) {
        self.kept_until = txg;
    }

    /// As [`Allocator::free`], for a block born in `birth`. A kept block stays allocated, and [`Allocator::take_kept`]
    /// returns it.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    ///
    /// # Panics
    /// As [`Allocator::free`].
    pub fn free_born(&mut self, dva: Dva, birth: Txg, txg: Txg) -> Result<(), FreeError> {
        if self.kept_until.is_none_or(|until| birth > until) {
            return self.free(dva, txg);
        }
        let index = self.index_of(dva.vdev).ok_or(FreeError::NoSuchPlace(dva))?;
        if !self.vdevs[index].is_place(&dva) {
            return Err(FreeError::NoSuchPlace(dva));
        }
        let kept = self.kept.entry(dva.vdev).or_default();
        kept.add(dva.offset, dva.offset + dva.asize).map_err(|_| FreeError::NotAllocated(dva))
    }

    /// The ranges that were freed and kept since the last call, as (byte offset within the vdev, bytes), by vdev. No
    /// run crosses the border of a metaslab.
    #[must_use = "what was kept and is not written down is lost"]
    pub fn take_kept(&mut self) -> Vec<(VdevId, Runs)> {
        let kept = std::mem::take(&mut self.kept);
        let cut = |(vdev, segments): (VdevId, super::Segments)| {
            let index = self.index_of(vdev).expect("what was kept lies on a known vdev");
            let shift = self.vdevs[index].spec.metaslab_shift;
            let mut runs = Runs::new();
            for (mut start, end) in segments.iter() {
                while start < end {
                    let stop = end.min(((start >> shift) + 1) << shift);
                    runs.push((start, stop - start));
                    start = stop;
                }
            }
            (vdev, runs)
        };
        kept.into_iter().map(cut).collect()
    }
}

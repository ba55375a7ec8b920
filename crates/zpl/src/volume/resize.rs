//! Changing the size of a volume.
//!
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §5.

use std::sync::atomic::Ordering;

use dmu::zap;
use format::zap::Value;
use pool::Hold;

use super::{DATA, PROPERTIES, SIZE, Volume};
use crate::change;
use crate::fs::ATTRIBUTE_COST;
use crate::{Error, Result};

impl Volume {
    /// Gives the volume another size. Blocks behind a smaller size are freed, and new space reads as zeros. The size is
    /// on the disks when this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size that is no multiple of the block size, or zero; [`Error::ReadOnly`]; the pool could
    /// not write. The volume may have the new size and keep the blocks behind it; the next change of its size frees them.
    pub fn resize(&self, size: u64) -> Result<()> {
        if size == 0 || size > i64::MAX as u64 || !size.is_multiple_of(self.inner.block) {
            return Err(Error::Invalid);
        }
        let dataset = &self.inner.dataset;
        dataset.check_writable()?;
        let _turn = self.inner.resizing.lock_after_panics();
        // A change of the size that a crash interrupted may have left blocks after the end.
        self.free_behind(self.size())?;
        dataset.wait_for_room();
        change::retrying(dataset, || self.store_size(size))?;
        dataset.sync()?;
        self.free_behind(size)
    }

    fn store_size(&self, size: u64) -> Result<()> {
        let dataset = &self.inner.dataset;
        let _shape = self.inner.shape.write(DATA);
        let properties = dataset.objset().object(PROPERTIES)?;
        let tx = change::begin(dataset, Hold::write(ATTRIBUTE_COST))?;
        zap::update(&properties, &tx, SIZE, &Value::from_u64(size))?;
        dataset.note_unlogged(&tx);
        self.inner.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Frees all blocks after byte `size`, the end of the volume. No thread writes there.
    fn free_behind(&self, size: u64) -> Result<()> {
        let keep = size / self.inner.block;
        while self.inner.data.max_blkid() >= keep {
            change::retrying(&self.inner.dataset, || self.free_step_behind(keep))?;
        }
        Ok(())
    }

    /// Frees blocks from the end of the data, as many as one transaction frees, and none of the first `keep`.
    fn free_step_behind(&self, keep: u64) -> Result<()> {
        let (dataset, object) = (&self.inner.dataset, &self.inner.data);
        let blocks = object.max_blkid() + 1;
        let first = blocks.saturating_sub(change::free_step(dataset, blocks)).max(keep);
        object.check_indirect(first, u64::MAX)?;
        let tx = change::begin(dataset, Hold::free().of_blocks(object.blocks_to_free(first, u64::MAX)))?;
        object.free_blocks(&tx, first, u64::MAX);
        dataset.note_unlogged(&tx);
        Ok(())
    }
}

//! Making changes of a volume durable before their txg.
//!
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §4; docs/format/08-zil.md §3.

use format::zil::Write;
use format::{BlockPtr, Txg};
use pool::zil::Batch;

use super::{DATA, Volume};
use crate::change::{self, Range};
use crate::log::{POINTED_MIN, READ_STEP};
use crate::{ObjectId, Result};

impl Volume {
    /// Blocks until everything written so far is durable. With `sync=disabled` it returns at once.
    ///
    /// # Errors
    /// The pool could not write.
    pub fn flush(&self) -> Result<()> {
        change::make_safe(&self.inner.dataset, None, |batch, txg, left| {
            match self.point_for_log(batch, txg, left)? {
                None => self.read_for_log(left).map(Some),
                pointed => Ok(pointed),
            }
        })
    }

    /// A record that points at the block at the start of the range. For a large block that was written whole, this avoids
    /// writing it twice.
    fn point_for_log(&self, batch: &mut Batch<'_>, txg: Txg, left: Range) -> Result<Option<Write>> {
        let (block, offset) = (self.inner.block, left.offset);
        let length = left.length.min(block - offset % block);
        let is_large = block >= POINTED_MIN && length == block;
        if !is_large && !self.inner.dataset.settings().log_points {
            return Ok(None);
        }
        let ptr = batch.place_data(txg, &self.inner.data, offset)?;
        Ok(ptr.map(|ptr| Write { object: DATA, offset, length, block_offset: 0, ptr, data: None }))
    }

    /// A record of the present data in the range.
    fn read_for_log(&self, left: Range) -> Result<Write> {
        let Range { offset, length, .. } = left;
        let length = length.min(READ_STEP);
        let mut data = vec![0; length as usize];
        let _stripe = self.inner.stripes.read(ObjectId(offset / self.stripe()));
        self.inner.data.read(offset, &mut data)?;
        Ok(Write { object: DATA, offset, length, block_offset: 0, ptr: BlockPtr::HOLE, data: Some(data) })
    }
}

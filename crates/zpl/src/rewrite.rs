//! `zfs rewrite`: writes data again with the present settings: compression, checksum, copies.
//!
//! Neither block sizes nor attributes change, so programs notice nothing.

use format::ObjectId;
use pool::Hold;

use crate::{Filesystem, Result};

impl Filesystem {
    /// Rewrites the blocks of a file that contain `len` bytes from `offset` on (`None`: to the end). Holes stay holes.
    /// Returns the bytes written.
    ///
    /// # Errors
    /// As [`Filesystem::write`]; blocks that were rewritten before the error stay so.
    pub fn rewrite(&self, id: ObjectId, offset: u64, len: Option<u64>) -> Result<u64> {
        let mut written = 0;
        let mut from = None;
        loop {
            // The lock is released between two blocks for other changes of the file.
            self.wait_for_room();
            match self.retrying(|| self.rewrite_block(id, (offset, len), from))? {
                None => return Ok(written),
                Some((blkid, block)) => (written, from) = (written + block, Some(blkid + 1)),
            }
        }
    }

    /// Rewrites the first block with data, from block `from` or the start of the range on. Returns its number and size;
    /// `None` at the end of the range.
    fn rewrite_block(
        &self,
        id: ObjectId,
        (offset, len): (u64, Option<u64>),
        from: Option<u64>,
    ) -> Result<Option<(u64, u64)>> {
        let _node = self.inner.nodes.write(id);
        let (object, znode) = self.file(id)?;
        self.check_contents_change(&znode)?;
        let end = offset.saturating_add(len.unwrap_or(u64::MAX)).min(znode.size);
        let block = object.block_size();
        let Some(next) = object.next_block(from.unwrap_or(offset / block))? else { return Ok(None) };
        if offset >= end || next.saturating_mul(block) >= end {
            return Ok(None);
        }
        let record = object.block_once(next)?;
        self.node_for_change(id)?;
        let tx = self.begin(Hold::write(block))?;
        object.put_block(&tx, next, record);
        Ok(Some((next, block)))
    }
}

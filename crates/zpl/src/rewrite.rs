//! Writing old data anew, so that it takes the settings that new data takes: compression, checksum, copies.
//!
//! Neither the size of the file's blocks nor any of its attributes changes: programs notice nothing.

use format::ObjectId;
use pool::Hold;

use crate::{Filesystem, Result};

impl Filesystem {
    /// Writes the blocks of a file anew that hold `len` bytes from `offset` on (`None`: all that follow). Holes
    /// stay holes. Returns the bytes written.
    ///
    /// # Errors
    /// As [`Filesystem::write`]; the blocks before stay written anew.
    pub fn rewrite(&self, id: ObjectId, offset: u64, len: Option<u64>) -> Result<u64> {
        let mut written = 0;
        let mut from = None;
        loop {
            // Other changes of the file go on between two blocks.
            self.wait_for_room();
            match self.retrying(|| self.rewrite_block(id, (offset, len), from))? {
                None => return Ok(written),
                Some((blkid, block)) => (written, from) = (written + block, Some(blkid + 1)),
            }
        }
    }

    /// Writes the first block anew that is not a hole, from block `from` on, or from where the range begins. Gives its
    /// number and its bytes; `None` at the end of the range.
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

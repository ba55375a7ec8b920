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
        let mut blkid = None;
        loop {
            // Others get their turn between two blocks.
            self.wait_for_room();
            let _node = self.inner.nodes.write(id);
            let (object, znode) = self.file(id)?;
            self.check_contents_change(&znode)?;
            let end = offset.saturating_add(len.unwrap_or(u64::MAX)).min(znode.size);
            let block = object.block_size();
            let Some(next) = object.next_block(blkid.unwrap_or(offset / block))? else { return Ok(written) };
            if offset >= end || next.saturating_mul(block) >= end {
                return Ok(written);
            }
            let record = object.block_once(next)?;
            self.node_for_change(id)?;
            let tx = self.begin(Hold::write(block))?;
            object.put_block(&tx, next, record);
            written += block;
            blkid = Some(next + 1);
        }
    }
}

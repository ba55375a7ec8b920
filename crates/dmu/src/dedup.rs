//! Deduplication: whether a block with the same content exists already.
//!
//! From:   the sync of a dataset with `dedup`, for each encoded block of data.
//! To:     the pool's dedup table, through [`Space`](crate::Space).
//! Source: docs/format/14-dedup-and-cloning.md §1, §4.

use format::blkptr::Block;
use storage::Payload;

use crate::Result;
use crate::context::SyncCtx;
use crate::policy::{Dedup, Plan};

/// How to write a block.
pub(crate) enum Share {
    /// Write it without a table entry.
    No,
    /// Write it and add it to the table.
    New,
    /// Refer to this existing block with the same content. Its reference is counted already.
    Known(Block),
}

impl SyncCtx<'_, '_> {
    /// Looks `block` (with all fields except its DVAs) up in the table. `payload` are its bytes. Without them, they are read
    /// from disk if needed.
    pub(crate) fn share(&mut self, plan: Plan, block: &Block, payload: Option<&Payload>) -> Result<Share> {
        let Some(Dedup { verify, .. }) = plan.dedup else { return Ok(Share::No) };
        let Some(known) = self.space.find_shared(block, plan.copies)? else {
            return Ok(if self.space.takes_shared(block, plan.copies) { Share::New } else { Share::No });
        };
        if verify && !self.is_same(&known, block, payload)? {
            return Ok(Share::No);
        }
        self.space.refer(&known, plan.copies)?;
        let physical_birth = if known.birth == self.txg { format::Txg(0) } else { known.birth };
        Ok(Share::Known(Block { dvas: known.dvas, physical_birth, dedup: true, ..*block }))
    }

    /// Adds a block that was just written to the table.
    pub(crate) fn enter(&mut self, plan: Plan, block: Block) -> Result<Block> {
        let block = Block { dedup: true, ..block };
        self.space.refer(&block, plan.copies)?;
        Ok(block)
    }

    /// Whether the bytes on the disk are equal. An unreadable block counts as different.
    fn is_same(&mut self, known: &Block, block: &Block, payload: Option<&Payload>) -> Result<bool> {
        if known.birth == self.txg {
            self.writer.drain()?;
        }
        let read = |block: &Block| {
            let read = self.storage().reader().read_stored(block);
            read.inspect_err(|error| tracing::warn!(?block, %error, "a shared block cannot be compared"))
        };
        let Ok(stored) = read(known) else { return Ok(false) };
        Ok(match payload {
            Some(payload) => *stored == *payload.bytes(),
            None => read(block).is_ok_and(|own| own == stored),
        })
    }
}

//! Blocks of the same content that are stored once: whether a block that is about to be written is there already.
//!
//! From:   the sync of a dataset with `dedup`, for each encoded block of data.
//! To:     the pool's dedup table, through [`Space`](crate::Space).
//! Source: docs/format/14-dedup-and-cloning.md §1, §4.

use format::blkptr::Block;
use storage::Payload;

use crate::Result;
use crate::context::SyncCtx;
use crate::policy::{Dedup, Plan};

/// What is to be done with a block.
pub(crate) enum Share {
    /// It is written, and nobody else may refer to it.
    No,
    /// It is written and entered into the table.
    New,
    /// Its content is there: this block. It has a reference more.
    Known(Block),
}

impl SyncCtx<'_, '_> {
    /// Looks `block`, which is complete but for its place, up in the table. `payload`: its bytes; without them they are read from its
    /// place, if they are needed.
    pub(crate) fn share(&mut self, plan: Plan, block: &Block, payload: Option<&Payload>) -> Result<Share> {
        let Some(Dedup { verify, .. }) = plan.dedup else { return Ok(Share::No) };
        let Some(known) = self.space.find_shared(block, plan.copies)? else {
            return Ok(if self.space.takes_shared() { Share::New } else { Share::No });
        };
        if verify && !self.is_same(&known, block, payload)? {
            return Ok(Share::No);
        }
        self.space.refer(&known, plan.copies)?;
        let physical_birth = if known.birth == self.txg { format::Txg(0) } else { known.birth };
        Ok(Share::Known(Block { dvas: known.dvas, physical_birth, dedup: true, ..*block }))
    }

    /// Enters a block that was just written into the table.
    pub(crate) fn enter(&mut self, plan: Plan, block: Block) -> Result<Block> {
        let block = Block { dedup: true, ..block };
        self.space.refer(&block, plan.copies)?;
        Ok(block)
    }

    /// Whether the bytes on the disk are the same. A block that cannot be read is not the same as any.
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

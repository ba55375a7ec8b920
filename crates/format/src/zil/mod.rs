//! Intent logs: chains of blocks with records of the changes since the last synced txg.
//!
//! From:   blocks that `pool` found by following the chain from an objset's `ZilHeader`; they were verified with the
//!         chain's identity, or are about to be sealed with it.
//! To:     `pool`, which follows chains; `zpl`, which replays records.
//! Source: docs/format/08-zil.md §2, §3.

mod decode;
mod encode;
mod record;
#[cfg(test)]
mod tests;

pub use decode::{Records, outlines, records};
pub use record::kind;
pub use record::{
    Acl, Attrs, Body, CloneRange, Create, CreateKind, LoggedNode, NewAcl, Rename, RenameKind, SetAttr, Write,
    mask, xat,
};
pub use record::{Outline, Record};

use crate::{BlockPtr, ByteOrder, ChecksumKind, Corrupt};

/// Smallest log block and the unit of their sizes, in bytes; the unit that is written and verified, too.
pub const BLOCK_MIN: usize = 4 << 10;
/// Largest log block, in bytes.
pub const BLOCK_MAX: usize = 128 << 10;
/// Bytes of the chain header in every block.
pub const CHAIN_SIZE: usize = 0xb8;
/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 0x20;
/// Bytes of a TX_WRITE record without its data.
pub const WRITE_HEADER: usize = 0xc0;
/// Most bytes of data that one TX_WRITE record in the largest block holds.
pub const WRITE_MAX: usize = BLOCK_MAX - CHAIN_SIZE - WRITE_HEADER;

const NEXT_AT: usize = 0x08;
const USED_AT: usize = 0x88;
/// Where the magic number and the checksum lie within the chain header.
pub const TRAILER_AT: usize = 0x90;

/// The chain header, which contains the pointer to the next log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The next block, allocated and not necessarily written yet.
    pub next: BlockPtr,
    /// Bytes in use: with the chain header in a slim block, without it in a classic one.
    pub used: u64,
}

impl Chain {
    /// Where the chain header of a block of `len` bytes begins: slim blocks (ZILOG2) have it first, classic ones
    /// (ZILOG) last. `None` for a length that no log block has.
    #[must_use]
    pub const fn place(kind: ChecksumKind, len: usize) -> Option<usize> {
        if len < BLOCK_MIN || len > BLOCK_MAX {
            return None;
        }
        match kind {
            ChecksumKind::Zilog2 => Some(0),
            ChecksumKind::Zilog => Some(len - CHAIN_SIZE),
            _ => None,
        }
    }

    /// Decodes the chain header of the block `raw`. Also returns the range of its records.
    ///
    /// # Errors
    /// [`Corrupt`] for a block of another length or checksum, a bad pointer, or more bytes in use than there are.
    pub fn decode(
        raw: &[u8],
        kind: ChecksumKind,
        order: ByteOrder,
    ) -> Result<(Chain, core::ops::Range<usize>), Corrupt> {
        let at = Chain::place(kind, raw.len()).ok_or(Corrupt::new("log block length", raw.len() as u64))?;
        let chain = Chain {
            next: BlockPtr::decode(&raw[at + NEXT_AT..at + USED_AT], order)?,
            used: order.u64(raw, at + USED_AT),
        };
        let records = if at == 0 {
            CHAIN_SIZE..usize::try_from(chain.used).unwrap_or(usize::MAX)
        } else {
            0..usize::try_from(chain.used).unwrap_or(usize::MAX)
        };
        let limit = if at == 0 { raw.len() } else { at };
        if records.start > records.end || records.end > limit {
            return Err(Corrupt::new("bytes in use of a log block", chain.used));
        }
        Ok((chain, records))
    }

    /// Writes the chain header at the start of the slim block `raw`; the checksum is left out.
    ///
    /// # Panics
    /// If the block is too short for it.
    pub fn encode(&self, raw: &mut [u8], order: ByteOrder) {
        raw[..CHAIN_SIZE].fill(0);
        raw[NEXT_AT..USED_AT].copy_from_slice(&self.next.encode(order));
        order.put_u64(raw, USED_AT, self.used);
    }
}

/// Bytes of a slim block that are written and verified when `used` of them are in use.
#[must_use]
pub const fn written(used: usize) -> usize {
    used.next_multiple_of(BLOCK_MIN)
}

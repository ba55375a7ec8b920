//! Writing gangs: what a header says of the pieces of a block that no hole takes whole.
//!
//! From:   `dmu`, which has found no place for a block and places it piece by piece.
//! To:     bytes for the places of the header.
//! Source: docs/format/02-blocks-checksums-compression.md §2.

use format::blkptr::{self, Block, BlockPtr, Dva};
use format::{ByteOrder, Checksum, ChecksumKind, Txg};

use crate::Storage;

/// Bytes of a classic gang header.
pub const HEADER: usize = 512;
/// Pieces that it names.
pub const MEMBERS_MAX: usize = 3;

impl Storage {
    /// The header over `members`, whose first copy lies at `first` and which is born in `txg`.
    ///
    /// # Panics
    /// If there are more members than a header names.
    #[must_use]
    pub fn gang_header(&self, members: &[Block], first: Dva, txg: Txg) -> Vec<u8> {
        assert!(members.len() <= MEMBERS_MAX, "a gang header names three members");
        let mut header = vec![0; HEADER];
        for (slot, member) in header.chunks_exact_mut(blkptr::SIZE).zip(members) {
            slot.copy_from_slice(&BlockPtr::Block(*member).encode(ByteOrder::Little));
        }
        codec::embedded::seal(&mut header, [u64::from(first.vdev.0), first.offset, txg.0, 0]);
        header
    }

    /// The checksum of a piece.
    #[must_use]
    pub fn checksum(&self, kind: ChecksumKind, bytes: &[u8]) -> Checksum {
        codec::checksum_of(kind, bytes, &self.salt(), ByteOrder::Little)
    }
}

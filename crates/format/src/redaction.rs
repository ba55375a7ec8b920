//! Redaction lists: the blocks of a snapshot that a redacted stream leaves out.
//!
//! From:   the object that a redaction bookmark names: its header is in the bonus (or in the spill block), its entries are data.
//! To:     `dsl`, and through it the sender of a stream.
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §6.

use alloc::vec::Vec;

use crate::{ByteOrder, Corrupt, ObjectType, SECTOR_SHIFT};

/// Type of the object and of its bonus.
pub const OBJECT_TYPE: ObjectType = ObjectType::UINT64_METADATA;
/// Size of the object's blocks, in bytes.
pub const BLOCK_SIZE: u32 = 128 << 10;
/// Bytes of an entry.
pub const ENTRY: usize = 0x20;
/// Bytes of the header before its guids.
const HEADER: usize = 0x20;
/// Bits of the number of blocks of an entry.
const COUNT_BITS: u32 = 48;

/// The header of a redaction list.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// How far the list is made: up to this block of this object. `None`: it is complete.
    pub progress: Option<(u64, u64)>,
    /// Number of entries.
    pub entries: u64,
    /// Guids of the redaction snapshots.
    pub snaps: Vec<u64>,
}

/// Some blocks of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object.
    pub object: u64,
    /// The first block.
    pub blkid: u64,
    /// Bytes of each block, in whole sectors.
    pub block_size: u64,
    /// Number of blocks, at least 1.
    pub count: u64,
}

impl Header {
    /// Bytes of a header with so many guids.
    #[must_use]
    pub const fn len_of(guids: usize) -> usize {
        HEADER + 8 * guids
    }

    /// # Errors
    /// [`Corrupt`] when there are fewer bytes than guids.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        let short = || Corrupt::new("length of a redaction list's header", raw.len() as u64);
        let (head, rest) = raw.split_at_checked(HEADER).ok_or_else(short)?;
        let count = order.u64(head, 0x18);
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(8)).ok_or_else(short)?;
        let guids = rest.get(..len).ok_or_else(short)?;
        let at = (order.u64(head, 0), order.u64(head, 8));
        Ok(Header {
            progress: (at != (u64::MAX, u64::MAX)).then_some(at),
            entries: order.u64(head, 0x10),
            snaps: guids.chunks_exact(8).map(|guid| order.u64(guid, 0)).collect(),
        })
    }

    /// The bytes of the header, little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (object, blkid) = self.progress.unwrap_or((u64::MAX, u64::MAX));
        let head = [object, blkid, self.entries, self.snaps.len() as u64];
        head.iter().chain(&self.snaps).flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl Entry {
    /// From [`ENTRY`] bytes.
    ///
    /// # Errors
    /// [`Corrupt`] when it has no block size, or is too short.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Entry, Corrupt> {
        if raw.len() < ENTRY {
            return Err(Corrupt::new("length of a redaction list's entry", raw.len() as u64));
        }
        let word = order.u64(raw, 0x10);
        let sectors = word >> COUNT_BITS;
        let (object, blkid) = (order.u64(raw, 0), order.u64(raw, 8));
        let count = (word & ((1 << COUNT_BITS) - 1)) + 1;
        if sectors == 0 || blkid.checked_add(count).is_none() {
            return Err(Corrupt::new("blocks of a redaction list's entry", word));
        }
        Ok(Entry { object, blkid, block_size: sectors << SECTOR_SHIFT, count })
    }

    /// The bytes of the entry, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut raw = [0; ENTRY];
        let word = (self.block_size >> SECTOR_SHIFT) << COUNT_BITS | (self.count - 1);
        for (part, value) in raw.chunks_exact_mut(8).zip([self.object, self.blkid, word]) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        raw
    }

    /// The last block.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.blkid + (self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_of_openzfs_is_read() {
        // Blocks 6 to 11 of object 5, each of 4 KiB; by OpenZFS 2.1.11.
        let words: [u64; 4] = [5, 6, 8 << 48 | 5, 0];
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let entry = Entry::decode(&raw, ByteOrder::Little).unwrap();
        assert_eq!(entry, Entry { object: 5, blkid: 6, block_size: 4096, count: 6 });
        assert_eq!(entry.last(), 11);
        assert!(Entry::decode(&raw[1..], ByteOrder::Little).is_err());
        assert!(Entry::decode(&[0; ENTRY], ByteOrder::Little).is_err(), "no block size");
    }

    proptest! {
        #[test]
        fn a_header_survives_a_round_trip(
            progress in proptest::option::of((0..u64::MAX, any::<u64>())),
            entries in any::<u64>(),
            snaps in proptest::collection::vec(any::<u64>(), 0..40),
        ) {
            let header = Header { progress, entries, snaps };
            let raw = header.encode();
            prop_assert_eq!(Header::decode(&raw, ByteOrder::Little), Ok(header));
            prop_assert!(Header::decode(&raw[..raw.len() - 1], ByteOrder::Little).is_err());
        }

        #[test]
        fn an_entry_survives_a_round_trip(
            object in any::<u64>(), blkid in 0..1u64 << 62, sectors in 1..1u64 << 16, count in 1..=1u64 << 48,
        ) {
            let entry = Entry { object, blkid, block_size: sectors << SECTOR_SHIFT, count };
            prop_assert_eq!(Entry::decode(&entry.encode(), ByteOrder::Little), Ok(entry));
        }

        #[test]
        fn any_bytes_are_taken(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::decode(&raw, ByteOrder::Big);
            let _ = Entry::decode(&raw, ByteOrder::Big);
        }
    }
}

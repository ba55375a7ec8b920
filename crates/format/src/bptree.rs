//! The list of destroyed datasets whose blocks are still to be freed.
//!
//! From:   the object `bptree_obj` of the MOS: a header in its bonus, entries in its data.
//! To:     `pool`, which frees the blocks below each entry and stores its progress.
//! Source: docs/format/06-mos-dsl.md §7.4.

use crate::blkptr::SIZE as PTR;
use crate::{BlockPtr, ByteOrder, Corrupt, ObjectId, Txg};

/// Bytes of the bonus.
pub const HEADER_SIZE: usize = 0x28;
/// Bytes of an entry.
pub const ENTRY_SIZE: usize = PTR + 8 + 4 * 8;
/// Dataset number in the mark of an entry, because the destroyed dataset has no number any more.
const DESTROYED: u64 = u64::MAX;

/// The bonus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Number of the first entry.
    pub begin: u64,
    /// Number after the last entry.
    pub end: u64,
    /// Space of all blocks below the entries, parity taken out, in bytes.
    pub bytes: u64,
    /// Sum of their physical sizes, in bytes.
    pub comp: u64,
    /// Sum of their logical sizes, in bytes.
    pub uncomp: u64,
}

impl Header {
    /// Decodes a bonus.
    ///
    /// # Errors
    /// [`Corrupt`] for another length, or if its end is before its begin.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        if bonus.len() != HEADER_SIZE {
            return Err(Corrupt::new("bptree bonus length", bonus.len() as u64));
        }
        let word = |index| order.word(bonus, index);
        let header = Header { begin: word(0), end: word(1), bytes: word(2), comp: word(3), uncomp: word(4) };
        if header.begin > header.end {
            return Err(Corrupt::new("first entry of a bptree", header.begin));
        }
        Ok(header)
    }

    /// The bonus, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let mut raw = [0; HEADER_SIZE];
        let words = [self.begin, self.end, self.bytes, self.comp, self.uncomp];
        for (slot, word) in raw.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        raw
    }
}

/// Progress of freeing a dataset: the first block of level 0 that is not freed. Blocks are freed in the order of the tree:
/// object by object, and each block after all blocks below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// 0 for the dnodes of the objset.
    pub object: ObjectId,
    /// Its number in the object; `u64::MAX` for a spill block.
    pub blkid: u64,
}

/// A destroyed dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its objset's root.
    pub root: BlockPtr,
    /// Only blocks born later are freed.
    pub since: Txg,
    /// `None`: nothing was freed.
    pub mark: Option<Mark>,
}

impl Entry {
    /// Decodes an entry.
    ///
    /// # Errors
    /// [`Corrupt`] for a damaged pointer, or a mark at a block of another level.
    pub fn decode(raw: &[u8; ENTRY_SIZE], order: ByteOrder) -> Result<Entry, Corrupt> {
        let word = |index| order.word(&raw[PTR..], index);
        let (dataset, object, level, blkid) = (word(1), word(2), word(3), word(4));
        if level != 0 {
            return Err(Corrupt::new("level of a bptree's mark", level));
        }
        let is_start = dataset == 0 && object == 0 && blkid == 0;
        Ok(Entry {
            root: BlockPtr::decode(&raw[..PTR], order)?,
            since: Txg(word(0)),
            mark: (!is_start).then_some(Mark { object: ObjectId(object), blkid }),
        })
    }

    /// The entry, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_SIZE] {
        let mut raw = [0; ENTRY_SIZE];
        raw[..PTR].copy_from_slice(&self.root.encode(ByteOrder::Little));
        let place = self.mark.map_or([0; 4], |mark| [DESTROYED, mark.object.0, 0, mark.blkid]);
        let words = [self.since.0].into_iter().chain(place);
        for (slot, word) in raw[PTR..].chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mark_at_the_first_block_is_another_than_none() {
        let entry = |mark| Entry { root: BlockPtr::HOLE, since: Txg(7), mark };
        let first = Mark { object: ObjectId(0), blkid: 0 };
        for mark in [None, Some(first), Some(Mark { object: ObjectId(u64::MAX), blkid: u64::MAX })] {
            let raw = entry(mark).encode();
            assert_eq!(Entry::decode(&raw, ByteOrder::Little), Ok(entry(mark)));
        }
    }

    proptest! {
        #[test]
        fn a_header_survives_a_round_trip(words in any::<[u64; 5]>()) {
            let [begin, more, bytes, comp, uncomp] = words;
            let header = Header { begin, end: begin.saturating_add(more), bytes, comp, uncomp };
            prop_assert_eq!(Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(raw in prop::collection::vec(any::<u8>(), ENTRY_SIZE)) {
            let raw: [u8; ENTRY_SIZE] = raw.try_into().unwrap();
            if let Ok(entry) = Entry::decode(&raw, ByteOrder::Big) {
                prop_assert_eq!(Entry::decode(&entry.encode(), ByteOrder::Little), Ok(entry));
            }
            if let Ok(header) = Header::decode(&raw[..HEADER_SIZE], ByteOrder::Big) {
                prop_assert_eq!(Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
            }
        }
    }
}

//! Block pointer objects: lists of blocks to be freed (deadlists, deferred frees).
//!
//! From:   the bonus of an object of type BPOBJ; its data is an array of block pointers.
//! To:     `pool`, which appends to them and frees what they list.
//! Source: docs/format/06-mos-dsl.md §7.1.

use alloc::vec::Vec;

use crate::{BlockPtr, ByteOrder, Checksum, Corrupt, ObjectId, blkptr};

/// Bytes of a new bonus.
pub const SIZE: usize = 0x30;
/// Bytes of a new bonus while the feature `livelist` is active.
pub const SIZE_LIVELIST: usize = 0x38;

/// The bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Block pointers in the object's own data.
    pub num_blkptrs: u64,
    /// Space of all blocks listed, parity taken out, sub-objects included, in bytes.
    pub bytes: u64,
    /// Sum of physical sizes, sub-objects included, in bytes.
    pub comp: u64,
    /// Sum of logical sizes, sub-objects included, in bytes.
    pub uncomp: u64,
    /// Object with the array of sub-objects; 0: none.
    pub subobjs: ObjectId,
    /// Sub-objects in that array.
    pub num_subobjs: u64,
    /// Entries of a livelist that are frees.
    pub num_freed: u64,
    /// Bytes of the bonus: 16, 32, 48 or 56. Fields beyond it are 0.
    pub size: usize,
}

impl Header {
    /// The header of an empty list with a bonus of `size` bytes.
    #[must_use]
    pub const fn new(size: usize) -> Header {
        Header {
            num_blkptrs: 0,
            bytes: 0,
            comp: 0,
            uncomp: 0,
            subobjs: ObjectId(0),
            num_subobjs: 0,
            num_freed: 0,
            size,
        }
    }

    /// Decodes a bonus of 16, 32, 48 or 56 bytes.
    ///
    /// # Errors
    /// [`Corrupt`] for another length, or sub-objects without their array.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        let size = bonus.len();
        if !matches!(size, 0x10 | 0x20 | SIZE | SIZE_LIVELIST) {
            return Err(Corrupt::new("bpobj bonus length", size as u64));
        }
        let word = |index: usize| if index * 8 < size { order.word(bonus, index) } else { 0 };
        let header = Header {
            num_blkptrs: word(0),
            bytes: word(1),
            comp: word(2),
            uncomp: word(3),
            subobjs: ObjectId(word(4)),
            num_subobjs: word(5),
            num_freed: word(6),
            size,
        };
        if header.subobjs.0 == 0 && header.num_subobjs != 0 {
            return Err(Corrupt::new("bpobj sub-object count", header.num_subobjs));
        }
        Ok(header)
    }

    /// The bonus, little-endian.
    ///
    /// # Panics
    /// If `size` is none of 16, 32, 48 and 56.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(matches!(self.size, 0x10 | 0x20 | SIZE | SIZE_LIVELIST), "a bpobj has a known size");
        let words = [
            self.num_blkptrs,
            self.bytes,
            self.comp,
            self.uncomp,
            self.subobjs.0,
            self.num_subobjs,
            self.num_freed,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).take(self.size).collect()
    }

    /// Whether nothing is listed, here or below.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.num_blkptrs == 0 && self.num_subobjs == 0
    }
}

/// `ptr` in the form of lists: without fields that a free does not need. `free` marks a free in a livelist.
///
/// # Panics
/// For a hole, which cannot be freed.
#[must_use]
pub fn normalize(ptr: &BlockPtr, free: bool) -> BlockPtr {
    match ptr {
        BlockPtr::Hole(_) => panic!("a hole is never listed"),
        BlockPtr::Embedded(embedded) => {
            BlockPtr::Embedded(blkptr::Embedded { payload: [0; blkptr::EMBEDDED_MAX], ..*embedded })
        }
        BlockPtr::Block(block) => BlockPtr::Block(blkptr::Block {
            fill: free.into(),
            checksum: if block.dedup { block.checksum } else { Checksum::default() },
            ..*block
        }),
    }
}

/// Whether a livelist's entry is a free.
#[must_use]
pub const fn is_free(ptr: &BlockPtr) -> bool {
    match ptr {
        BlockPtr::Block(block) => block.fill & 1 == 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChecksumKind, Compression, ObjectType, Txg, VdevId, blkptr::Dva};
    use proptest::prelude::*;

    fn block(dedup: bool) -> blkptr::Block {
        let dva = Dva { vdev: VdevId(1), asize: 1024, offset: 4096, gang: false };
        blkptr::Block {
            dvas: [dva, Dva::default(), Dva::default()],
            lsize: 4096,
            psize: 1024,
            compression: Compression::Lz4,
            checksum_kind: ChecksumKind::Sha256,
            dedup,
            checksum: Checksum([1, 2, 3, 4]),
            ..blkptr::Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(9))
        }
    }

    #[test]
    fn a_stored_pointer_keeps_its_checksum_only_for_dedup() {
        let plain = normalize(&BlockPtr::Block(block(false)), false);
        assert_eq!(plain.block().map(|b| (b.fill, b.checksum)), Some((0, Checksum::default())));
        let dedup = normalize(&BlockPtr::Block(block(true)), true);
        assert_eq!(dedup.block().map(|b| (b.fill, b.checksum)), Some((1, Checksum([1, 2, 3, 4]))));
        assert!(is_free(&dedup) && !is_free(&plain));
    }

    #[test]
    fn a_stored_embedded_pointer_loses_its_payload() {
        let embedded = blkptr::Embedded {
            kind: 0,
            lsize: 512,
            psize: 50,
            compression: Compression::Lz4,
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: 0,
            order: ByteOrder::Little,
            birth: Txg(9),
            payload: [7; blkptr::EMBEDDED_MAX],
        };
        let raw = normalize(&BlockPtr::Embedded(embedded), false).encode(ByteOrder::Little);
        let used: Vec<usize> =
            raw.chunks(8).enumerate().filter(|(_, w)| **w != [0; 8]).map(|(i, _)| i).collect();
        assert_eq!(used, [6, 10]);
    }

    proptest! {
        #[test]
        fn a_header_survives_a_round_trip(words in any::<[u64; 7]>(), which in 0usize..4) {
            let size = [0x10, 0x20, SIZE, SIZE_LIVELIST][which];
            let raw: Vec<u8> = words.iter().flat_map(|w| w.max(&1).to_le_bytes()).take(size).collect();
            let header = Header::decode(&raw, ByteOrder::Little).unwrap();
            prop_assert_eq!(header.encode(), raw);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(header) = Header::decode(&raw, ByteOrder::Big) {
                prop_assert_eq!(Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
            }
        }
    }
}

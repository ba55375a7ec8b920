//! Fat ZAP headers and pointer tables: from a hash to the block id of its leaf.
//!
//! From:   block 0 of a ZAP object, and the blocks of an external pointer table (both little-endian; see
//!         [`swap`](crate::swap)).
//! To:     `dmu`, which reads, dirties and frees the blocks named here.
//! Source: docs/format/04-zap.md §3.1, §3.3.
//!
//! Inserting into a full leaf, as `dmu` does it: while the leaf's prefix is as long as the table is deep,
//! [`Header::grow`] and copy with [`double_table`]; then [`Header::take_block`], [`leaf::split`](super::leaf::split),
//! and store the new block id at [`pointer_range`] of the new leaf.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::name::{self, NameError};
use super::value::Key;
use super::{HEADER_TYPE, hash};
use crate::{ByteOrder, Corrupt};

/// Flag: hashes have 48 significant bits instead of 28.
pub const HASH64: u64 = 1;
/// Flag: keys are arrays of `u64`.
pub const UINT64_KEY: u64 = 2;
/// Flag: the first word of the key is the hash.
pub const PRE_HASHED_KEY: u64 = 4;

/// log2 of the default block size of a fat ZAP.
pub const DEFAULT_BLOCK_SHIFT: u32 = 14;

const MAGIC: u64 = 0x2_f52a_b2ab;
const LE: ByteOrder = ByteOrder::Little;

/// The fields of a fat ZAP's block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// log2 of the object's block size.
    pub block_shift: u32,
    /// First block of the external pointer table; 0 while it is embedded in block 0.
    pub table_blk: u64,
    /// Blocks of the external table; 0 while it is embedded.
    pub table_blks: u64,
    /// log2 of the number of pointers.
    pub shift: u32,
    /// First block of the table that is being filled by a doubling in progress; else 0.
    pub next_blk: u64,
    /// Old table blocks that the doubling has copied.
    pub blks_copied: u64,
    /// Next block id that was never used.
    pub free_blk: u64,
    /// Leaf blocks.
    pub leaves: u64,
    /// Entries in all leaves.
    pub entries: u64,
    /// Seed of the hash.
    pub salt: u64,
    /// How names are normalised before hashing; see [`normalise`](super::normalise).
    pub normflags: u64,
    /// [`HASH64`] | [`UINT64_KEY`] | [`PRE_HASHED_KEY`].
    pub flags: u64,
}

/// Where a pointer lies: byte offset in a block of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Block of the object; 0 is the header.
    pub blkid: u64,
    /// Byte offset of the little-endian `u64`.
    pub offset: usize,
}

/// A doubling of the pointer table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Blocks of the table as it was, to be freed after copying; `None` when it is embedded in the header.
    pub old: Option<Range<u64>>,
    /// Blocks of the table as it will be.
    pub new: Range<u64>,
    shift: u32,
}

/// The pointer table is as large as the hash allows: the ZAP takes no more keys like this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ZAP's pointer table cannot grow any further")
    }
}

impl core::error::Error for TableFull {}

/// log2 of a fat ZAP's block size in bytes.
///
/// # Errors
/// When no fat ZAP can have blocks of `len` bytes.
pub fn block_shift(len: usize) -> Result<u32, Corrupt> {
    // Chunk numbers are 16 bits wide, so leaves beyond 1 MiB could not be addressed.
    if !len.is_power_of_two() || !(512..=1 << 20).contains(&len) {
        return Err(Corrupt::new("fat ZAP block size", len as u64));
    }
    Ok(len.trailing_zeros())
}

impl Header {
    /// The header of a ZAP with one empty leaf in block 1, which the caller makes with
    /// [`leaf::new_block`](super::leaf::new_block).
    ///
    /// # Panics
    /// If `block_shift` is outside 9…20 or `salt` is zero.
    #[must_use]
    pub fn new(block_shift: u32, salt: u64, normflags: u64, flags: u64) -> Header {
        assert!((9..=20).contains(&block_shift), "a fat ZAP's blocks have 512 bytes to 1 MiB");
        assert_ne!(salt, 0, "a ZAP's salt is nonzero");
        Header {
            block_shift,
            table_blk: 0,
            table_blks: 0,
            shift: block_shift - 4,
            next_blk: 0,
            blks_copied: 0,
            free_blk: 2,
            leaves: 1,
            entries: 0,
            salt,
            normflags,
            flags,
        }
    }

    /// Decodes block 0; its length is the object's block size.
    ///
    /// # Errors
    /// [`Corrupt`] for a wrong magic, or a table that does not fit its depth.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        let block_shift = block_shift(raw.len())?;
        let word = |i| order.word(raw, i);
        if word(0) != HEADER_TYPE {
            return Err(Corrupt::new("fat ZAP block type", word(0)));
        }
        if word(1) != MAGIC {
            return Err(Corrupt::new("fat ZAP magic", word(1)));
        }
        let header = Header {
            block_shift,
            table_blk: word(2),
            table_blks: word(3),
            shift: u32::try_from(word(4)).unwrap_or(u32::MAX),
            next_blk: word(5),
            blks_copied: word(6),
            free_blk: word(7),
            leaves: word(8),
            entries: word(9),
            salt: word(10),
            normflags: word(11),
            flags: word(12),
        };
        // Also keeps every shift below the width of a word.
        if header.shift > header.hash_bits() {
            return Err(Corrupt::new("fat ZAP table shift", word(4)));
        }
        let fits = if header.is_embedded() {
            header.table_blk == 0 && header.shift <= block_shift - 4
        } else {
            header.shift >= block_shift - 3 && header.table_blks == 1 << (header.shift - (block_shift - 3))
        };
        if !fits {
            return Err(Corrupt::new("fat ZAP table blocks", header.table_blks));
        }
        if header.flags & !(HASH64 | UINT64_KEY | PRE_HASHED_KEY) != 0 {
            return Err(Corrupt::new("fat ZAP flags", header.flags));
        }
        // An object's bytes are numbered by 64 bits, so its blocks by fewer.
        for blkid in [header.table_blk, header.next_blk, header.free_blk] {
            if blkid >> (63 - block_shift) != 0 {
                return Err(Corrupt::new("fat ZAP block id", blkid));
            }
        }
        Ok(header)
    }

    /// Writes the fields into the little-endian block 0, leaving the embedded table alone.
    ///
    /// # Panics
    /// If `raw` is not a block of this ZAP.
    pub fn encode(&self, raw: &mut [u8]) {
        assert_eq!(raw.len(), 1 << self.block_shift, "the header fills one block");
        let words = [
            HEADER_TYPE,
            MAGIC,
            self.table_blk,
            self.table_blks,
            self.shift.into(),
            self.next_blk,
            self.blks_copied,
            self.free_blk,
            self.leaves,
            self.entries,
            self.salt,
            self.normflags,
            self.flags,
        ];
        for (i, word) in words.into_iter().enumerate() {
            LE.put_u64(raw, i * 8, word);
        }
    }

    /// Block 0 of a fresh ZAP: the fields, and an embedded table whose every pointer is leaf 1.
    #[must_use]
    pub fn new_block(&self) -> Vec<u8> {
        let mut raw = vec![0; 1 << self.block_shift];
        self.encode(&mut raw);
        let half = raw.len() / 2;
        raw[half..].chunks_exact_mut(8).for_each(|slot| LE.put_u64(slot, 0, 1));
        raw
    }

    /// Significant bits of this ZAP's hashes.
    #[must_use]
    pub const fn hash_bits(&self) -> u32 {
        if self.flags & HASH64 != 0 { hash::BITS_LONG } else { hash::BITS }
    }

    /// The hash of `key` in this ZAP.
    ///
    /// # Errors
    /// [`NameError`] when the key isn't of the ZAP's kind, or its normal form isn't known here.
    pub fn hash(&self, key: Key<'_>) -> Result<u64, NameError> {
        let bits = self.hash_bits();
        match key {
            Key::Name(text) if self.flags & UINT64_KEY == 0 => {
                Ok(hash::hash_bytes(self.salt, &name::normalise(text, self.normflags)?, bits))
            }
            Key::Words(words) if self.flags & UINT64_KEY != 0 && !words.is_empty() => {
                Ok(if self.flags & PRE_HASHED_KEY != 0 {
                    hash::truncate(words[0], bits)
                } else {
                    hash::hash_words(self.salt, words, bits)
                })
            }
            _ => Err(NameError::WrongKind),
        }
    }

    /// Whether the pointer table lies in the second half of block 0.
    #[must_use]
    pub const fn is_embedded(&self) -> bool {
        self.table_blks == 0
    }

    /// Number of the pointer for `hash`.
    #[must_use]
    pub const fn pointer_index(&self, hash: u64) -> u64 {
        if self.shift == 0 { 0 } else { hash >> (64 - self.shift) }
    }

    /// Where pointer `index` lies.
    #[must_use]
    pub const fn slot(&self, index: u64) -> Slot {
        if self.is_embedded() {
            let half = 1 << (self.block_shift - 1);
            return Slot { blkid: 0, offset: half + index as usize * 8 };
        }
        let per_block = self.block_shift - 3;
        Slot {
            blkid: self.table_blk + (index >> per_block),
            offset: ((index & ((1 << per_block) - 1)) as usize) * 8,
        }
    }

    /// The pointer in `slot` of `block`: the block id of a leaf.
    ///
    /// # Errors
    /// [`Corrupt`] when it can't be a leaf.
    ///
    /// # Panics
    /// If `block` is not a block of this ZAP.
    pub fn leaf_at(&self, block: &[u8], slot: Slot) -> Result<u64, Corrupt> {
        assert_eq!(block.len(), 1 << self.block_shift, "tables fill whole blocks");
        let blkid = LE.u64(block, slot.offset);
        if blkid == 0 || blkid >= self.free_blk {
            return Err(Corrupt::new("fat ZAP leaf pointer", blkid));
        }
        Ok(blkid)
    }

    /// Takes the id of a never used block.
    #[must_use]
    pub fn take_block(&mut self) -> u64 {
        self.free_blk += 1;
        self.free_blk - 1
    }

    /// The doubling that another writer left half done. Finish it before inserting: copy the whole old
    /// table again, then [`Header::finish_growth`].
    #[must_use]
    pub fn pending_growth(&self) -> Option<Growth> {
        if self.next_blk == 0 || self.is_embedded() {
            return None;
        }
        Some(Growth {
            old: Some(self.table_blk..self.table_blk + self.table_blks),
            new: self.next_blk..self.next_blk + 2 * self.table_blks,
            shift: self.shift + 1,
        })
    }

    /// Plans a doubling of the pointer table, taking block ids for the new one. The caller fills them with
    /// [`double_table`] of the old pointers, then calls [`Header::finish_growth`].
    ///
    /// # Errors
    /// [`TableFull`] when the table is as deep as it may get.
    pub fn grow(&mut self) -> Result<Growth, TableFull> {
        if self.shift >= self.hash_bits() - 2 {
            return Err(TableFull);
        }
        let old = (!self.is_embedded()).then(|| self.table_blk..self.table_blk + self.table_blks);
        let new_blks = if self.is_embedded() { 1 } else { 2 * self.table_blks };
        let new = self.free_blk..self.free_blk + new_blks;
        self.free_blk += new_blks;
        Ok(Growth { old, new, shift: self.shift + 1 })
    }

    /// Puts the new table of `growth` in place of the old one. The caller frees the old blocks afterwards.
    pub fn finish_growth(&mut self, growth: &Growth) {
        assert_eq!(growth.shift, self.shift + 1, "a table doubles one step at a time");
        self.table_blk = growth.new.start;
        self.table_blks = growth.new.end - growth.new.start;
        self.shift = growth.shift;
        self.next_blk = 0;
        self.blks_copied = 0;
    }

    /// The pointers embedded in block 0, as bytes.
    ///
    /// # Panics
    /// If `raw` is not a block of this ZAP.
    #[must_use]
    pub fn embedded_table<'a>(&self, raw: &'a [u8]) -> &'a [u8] {
        assert_eq!(raw.len(), 1 << self.block_shift, "the header fills one block");
        let half = raw.len() / 2;
        &raw[half..half + (8 << self.shift.min(self.block_shift - 4))]
    }
}

/// Every pointer of `old` twice: the table one step deeper. One block gives two.
#[must_use]
pub fn double_table(old: &[u8]) -> Vec<u8> {
    old.chunks_exact(8).flat_map(|pointer| [pointer, pointer]).flatten().copied().collect()
}

/// Numbers of the pointers that lead to the leaf with this prefix, in a table of depth `shift`.
///
/// # Panics
/// If the prefix is longer than the table is deep.
#[must_use]
pub fn pointer_range(prefix: u64, prefix_len: u32, shift: u32) -> Range<u64> {
    assert!(prefix_len <= shift, "a leaf's prefix is at most as long as the table is deep");
    let spread = shift - prefix_len;
    prefix << spread..(prefix + 1) << spread
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_header_points_everywhere_at_leaf_1() {
        let header = Header::new(14, 5, 0, 0);
        let raw = header.new_block();
        assert_eq!(Header::decode(&raw, LE), Ok(header));
        assert_eq!(header.embedded_table(&raw).len(), 8192);
        let slot = header.slot(header.pointer_index(u64::MAX));
        assert_eq!(slot, Slot { blkid: 0, offset: 16376 });
        assert_eq!(header.leaf_at(&raw, slot), Ok(1));
    }

    #[test]
    fn the_table_leaves_the_header_one_block_at_first_then_doubles() {
        let mut header = Header::new(14, 5, 0, 0);
        let first = header.grow().unwrap();
        assert_eq!((first.old.clone(), first.new.clone()), (None, 2..3));
        header.finish_growth(&first);
        assert_eq!((header.shift, header.table_blk, header.table_blks, header.free_blk), (11, 2, 1, 3));
        let second = header.grow().unwrap();
        assert_eq!((second.old.clone(), second.new.clone()), (Some(2..3), 3..5));
        header.finish_growth(&second);
        assert_eq!(header.slot(2048), Slot { blkid: 4, offset: 0 });
        let mut raw = header.new_block();
        header.encode(&mut raw);
        assert_eq!(Header::decode(&raw, LE), Ok(header));
    }

    #[test]
    fn a_table_stops_growing_two_bits_before_the_hash_ends() {
        let mut header = Header::new(9, 5, 0, 0);
        while let Ok(growth) = header.grow() {
            header.finish_growth(&growth);
        }
        assert_eq!(header.shift, 26);
    }

    #[test]
    fn a_pointer_to_no_leaf_is_corrupt() {
        let header = Header::new(9, 5, 0, 0);
        let mut raw = header.new_block();
        for bad in [0, 2, u64::MAX] {
            LE.put_u64(&mut raw, 256, bad);
            assert_eq!(header.leaf_at(&raw, header.slot(0)), Err(Corrupt::new("fat ZAP leaf pointer", bad)));
        }
    }

    #[test]
    fn pointers_double_in_place_order() {
        let old: Vec<u8> = [1u64, 2].iter().flat_map(|p| p.to_le_bytes()).collect();
        let new = double_table(&old);
        assert_eq!((0..4).map(|i| LE.word(&new, i)).collect::<Vec<_>>(), [1, 1, 2, 2]);
        assert_eq!(pointer_range(0b10, 2, 4), 8..12);
    }

    proptest! {
        #[test]
        fn any_words_decode_or_are_refused_and_survive_a_round_trip(
            words in proptest::array::uniform12(prop_oneof![0u64..40, any::<u64>()]), big: bool
        ) {
            let order = if big { ByteOrder::Big } else { LE };
            let mut raw = vec![0; 512];
            order.put_u64(&mut raw, 0, HEADER_TYPE);
            order.put_u64(&mut raw, 8, MAGIC);
            for (i, word) in words.into_iter().skip(1).enumerate() {
                order.put_u64(&mut raw, 16 + i * 8, word);
            }
            if let Ok(header) = Header::decode(&raw, order) {
                let mut again = vec![0; 512];
                header.encode(&mut again);
                prop_assert_eq!(Header::decode(&again, LE), Ok(header));
                let slot = header.slot(header.pointer_index(u64::MAX));
                prop_assert!(slot.offset + 8 <= 512);
            }
        }
    }
}

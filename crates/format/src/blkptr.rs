//! Block pointers: the 128 bytes by which every other block is found and proved.
//!
//! From:   bytes of a block already verified by its parent (or by an uberblock).
//! To:     `storage`, which exchanges a pointer for the bytes it promises.
//! Source: docs/format/02-blocks-checksums-compression.md §1.

use crate::crypt::{self, Sealing};
use crate::{ByteOrder, Checksum, ChecksumKind, Compression, Corrupt, ObjectType, SECTOR_SHIFT, Txg, VdevId};

/// Bytes of a block pointer on disk.
pub const SIZE: usize = 128;
/// Largest payload of an embedded pointer, in bytes.
pub const EMBEDDED_MAX: usize = 112;

const _: () = assert!(SIZE == 16 * size_of::<u64>());

/// The half of the fill field with the count, if the other half holds the end of the initialisation vector.
const FILL_OF_SEALED: u64 = u32::MAX as u64;

/// Where one copy of a block lies: top-level vdev, offset and allocated size, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Dva {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// Allocated bytes, parity and padding included.
    pub asize: u64,
    /// Byte offset in the vdev's allocatable area.
    pub offset: u64,
    /// The offset holds a gang header, not the data.
    pub gang: bool,
}

impl Dva {
    /// Decodes the two words of a DVA.
    #[must_use]
    pub const fn decode(word0: u64, word1: u64) -> Dva {
        Dva {
            vdev: VdevId((word0 >> 32 & 0xff_ffff) as u32),
            asize: (word0 & 0xff_ffff) << SECTOR_SHIFT,
            offset: (word1 & !(1 << 63)) << SECTOR_SHIFT,
            gang: word1 >> 63 != 0,
        }
    }

    /// The two words of the DVA.
    #[must_use]
    pub const fn encode(self) -> (u64, u64) {
        (
            (self.vdev.0 as u64) << 32 | self.asize >> SECTOR_SHIFT,
            self.offset >> SECTOR_SHIFT | (self.gang as u64) << 63,
        )
    }

    /// No copy here. A DVA is absent when its allocated size is zero.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.asize == 0
    }
}

/// A hole: the range reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hole {
    /// Logical bytes of the missing block; 0 for a slot that was never written.
    pub lsize: u64,
    /// Type of the object.
    pub object_type: ObjectType,
    /// Level in the object's tree.
    pub level: u8,
    /// Txg in which a former block was freed; 0 for a slot that was never written.
    pub birth: Txg,
}

/// A pointer that contains its (compressed) data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// 0: data. 2: redacted.
    pub kind: u8,
    /// Logical bytes.
    pub lsize: u64,
    /// Bytes of `payload` in use.
    pub psize: u8,
    /// How the payload is framed.
    pub compression: Compression,
    /// Type of the object.
    pub object_type: ObjectType,
    /// Level; always 0 when OpenZFS writes it.
    pub level: u8,
    /// Byte order of the payload's contents.
    pub order: ByteOrder,
    /// Txg of the write.
    pub birth: Txg,
    /// The data, zero-filled.
    pub payload: [u8; EMBEDDED_MAX],
}

/// A pointer to a block on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Up to three copies, packed from index 0; two for an encrypted block, which has [`Block::sealing`] in place of the third.
    pub dvas: [Dva; 3],
    /// Logical bytes.
    pub lsize: u64,
    /// Bytes on disk before parity: what is read and checksummed.
    pub psize: u64,
    /// How the bytes on disk are framed.
    pub compression: Compression,
    /// The algorithm of `checksum`.
    pub checksum_kind: ChecksumKind,
    /// Type of the object.
    pub object_type: ObjectType,
    /// Level in the object's tree; 0 holds data.
    pub level: u8,
    /// X: in an encrypted dataset, so encrypted or authenticated.
    pub encrypted: bool,
    /// D: in a dedup table.
    pub dedup: bool,
    /// B: byte order of structured contents.
    pub order: ByteOrder,
    /// Words 7 and 8, carried through unchanged (word 7 bit 63: physically rewritten).
    pub pad: [u64; 2],
    /// Txg in which the space was allocated; 0 when equal to `birth`.
    pub physical_birth: Txg,
    /// Txg in which this content was written.
    pub birth: Txg,
    /// Objects (dnode blocks) or non-hole blocks below.
    pub fill: u64,
    /// Checksum of the `psize` bytes on disk.
    pub checksum: Checksum,
    /// Encryption parameters of an encrypted block; `None` for blocks that are only authenticated, and for indirect blocks.
    pub sealing: Option<Sealing>,
}

/// A block pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "all variants stand for the same 128 bytes")]
pub enum BlockPtr {
    /// Nothing there.
    Hole(Hole),
    /// Data inside the pointer.
    Embedded(Embedded),
    /// Data on disk.
    Block(Block),
}

impl Block {
    /// The authentication code of a block in an encrypted dataset: the last two words of the checksum, as bytes. The objset
    /// block has its codes inside and an ordinary checksum here.
    #[must_use]
    pub fn mac(&self) -> [u8; crypt::MAC] {
        let mut mac = [0; crypt::MAC];
        self.order.put_u64(&mut mac, 0, self.checksum.0[2]);
        self.order.put_u64(&mut mac, 8, self.checksum.0[3]);
        mac
    }

    /// Puts `mac` in the place of the last two words of the checksum.
    pub fn set_mac(&mut self, mac: &[u8; crypt::MAC]) {
        self.checksum.0[2] = self.order.u64(mac, 0);
        self.checksum.0[3] = self.order.u64(mac, 8);
    }
}

impl Default for BlockPtr {
    fn default() -> Self {
        BlockPtr::HOLE
    }
}

const fn bits(word: u64, low: u32, len: u32) -> u64 {
    word >> low & ((1 << len) - 1)
}

/// Words of an embedded pointer that carry payload, in order.
const PAYLOAD_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

/// Decodes one block pointer. Sizes come back in **bytes** (on disk: 512-byte sectors, minus one).
///
/// `order` is that of the block *holding* the pointer; the pointer's own order bit is about its target.
///
/// # Errors
/// [`Corrupt`] names the field and the value when OpenZFS could not have written it.
pub fn decode(raw: &[u8], order: ByteOrder) -> Result<BlockPtr, Corrupt> {
    if raw.len() < SIZE {
        return Err(Corrupt::new("block pointer length", raw.len() as u64));
    }
    let word = |i| order.word(raw, i);
    let prop = word(6);
    let object_type = ObjectType(bits(prop, 48, 8) as u8);
    let level = bits(prop, 56, 5) as u8;
    if bits(prop, 39, 1) == 1 {
        return decode_embedded(raw, order, prop).map(BlockPtr::Embedded);
    }
    let encrypted = bits(prop, 61, 1) == 1;
    let mut dvas = [0, 2, 4].map(|i| Dva::decode(word(i), word(i + 1)));
    if word(0) == 0 && word(1) == 0 {
        if prop != bits(prop, 0, 16) | kind_bits(object_type, level) {
            return Err(Corrupt::new("hole properties", prop));
        }
        let lsize = (bits(prop, 0, 16) + 1) << SECTOR_SHIFT;
        let never_written = prop == 0 && word(10) == 0;
        return Ok(BlockPtr::Hole(Hole {
            lsize: if never_written { 0 } else { lsize },
            object_type,
            level,
            birth: Txg(word(10)),
        }));
    }
    if dvas[0].is_empty() {
        return Err(Corrupt::new("first DVA size", 0));
    }
    let (mut fill, mut sealing) = (word(11), None);
    if encrypted && level == 0 && object_type.is_encrypted() {
        dvas[2] = Dva::default();
        sealing = Some(Sealing::decode([word(4), word(5)], (fill >> 32) as u32, order_bit(prop)));
        fill &= FILL_OF_SEALED;
    }
    if !object_type.is_valid() {
        return Err(Corrupt::new("block pointer object type", object_type.0.into()));
    }
    let size_bytes = |low| (bits(prop, low, 16) + 1) << SECTOR_SHIFT;
    let block = Block {
        dvas,
        lsize: size_bytes(0),
        psize: size_bytes(16),
        compression: Compression::from_disk(bits(prop, 32, 7))?,
        checksum_kind: ChecksumKind::from_disk(bits(prop, 40, 8))?,
        object_type,
        level,
        encrypted,
        dedup: bits(prop, 62, 1) == 1,
        order: order_bit(prop),
        pad: [word(7), word(8)],
        physical_birth: Txg(word(9)),
        birth: Txg(word(10)),
        fill,
        checksum: Checksum([12, 13, 14, 15].map(word)),
        sealing,
    };
    if block.lsize > crate::MAX_BLOCK {
        return Err(Corrupt::new("block pointer lsize", block.lsize));
    }
    if block.psize > block.lsize {
        return Err(Corrupt::new("block pointer psize", block.psize));
    }
    if block.compression == Compression::Off && block.psize != block.lsize && !block.encrypted {
        return Err(Corrupt::new("psize of an uncompressed block", block.psize));
    }
    Ok(BlockPtr::Block(block))
}

const fn order_bit(prop: u64) -> ByteOrder {
    if prop >> 63 == 1 { ByteOrder::Little } else { ByteOrder::Big }
}

fn decode_embedded(raw: &[u8], order: ByteOrder, prop: u64) -> Result<Embedded, Corrupt> {
    let kind = bits(prop, 40, 8) as u8;
    if kind > 2 {
        return Err(Corrupt::new("embedded pointer kind", kind.into()));
    }
    let psize = bits(prop, 25, 7) as usize + 1;
    if psize > EMBEDDED_MAX {
        return Err(Corrupt::new("embedded pointer psize", psize as u64));
    }
    let lsize = bits(prop, 0, 25) + 1;
    if lsize > crate::MAX_BLOCK {
        return Err(Corrupt::new("embedded pointer lsize", lsize));
    }
    let mut payload = [0; EMBEDDED_MAX];
    for (chunk, index) in payload.chunks_exact_mut(8).zip(PAYLOAD_WORDS) {
        chunk.copy_from_slice(&order.word(raw, index).to_le_bytes());
    }
    Ok(Embedded {
        kind,
        lsize,
        psize: psize as u8,
        compression: Compression::from_disk(bits(prop, 32, 7))?,
        object_type: ObjectType(bits(prop, 48, 8) as u8),
        level: bits(prop, 56, 5) as u8,
        order: order_bit(prop),
        birth: Txg(order.word(raw, 10)),
        payload,
    })
}

impl Block {
    /// A pointer for a new leaf with default fields. The caller sets place, sizes and contents.
    #[must_use]
    pub fn plain(object_type: ObjectType, birth: Txg) -> Block {
        Block {
            dvas: [Dva::default(); 3],
            lsize: 0,
            psize: 0,
            compression: Compression::Off,
            checksum_kind: ChecksumKind::Off,
            object_type,
            level: 0,
            encrypted: false,
            dedup: false,
            order: ByteOrder::Little,
            pad: [0; 2],
            physical_birth: Txg(0),
            birth,
            fill: 1,
            checksum: Checksum::default(),
            sealing: None,
        }
    }

    /// The copies that exist.
    pub fn copies(&self) -> impl Iterator<Item = Dva> + '_ {
        self.dvas.iter().copied().filter(|dva| !dva.is_empty())
    }

    /// The txg in which the space was allocated.
    #[must_use]
    pub fn physical_birth(&self) -> Txg {
        if self.physical_birth.0 != 0 { self.physical_birth } else { self.birth }
    }

    /// Whether any copy is a gang block.
    #[must_use]
    pub fn is_gang(&self) -> bool {
        self.dvas.iter().any(|dva| dva.gang)
    }

    /// Allocated bytes over all copies.
    #[must_use]
    pub fn asize(&self) -> u64 {
        self.copies().map(|dva| dva.asize).sum()
    }
}

impl BlockPtr {
    /// A slot that was never written.
    pub const HOLE: BlockPtr =
        BlockPtr::Hole(Hole { lsize: 0, object_type: ObjectType::NONE, level: 0, birth: Txg(0) });

    /// Decodes from the first [`SIZE`] bytes of `raw`; see [`decode`].
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<BlockPtr, Corrupt> {
        decode(raw, order)
    }

    /// The 128 bytes of this pointer inside a block of byte order `order`.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> [u8; SIZE] {
        let mut raw = [0; SIZE];
        let mut put = |index: usize, value| order.put_u64(&mut raw, index * 8, value);
        match self {
            BlockPtr::Hole(hole) => {
                if hole.lsize != 0 {
                    put(6, ((hole.lsize >> SECTOR_SHIFT) - 1) | kind_bits(hole.object_type, hole.level));
                }
                put(10, hole.birth.0);
            }
            BlockPtr::Embedded(e) => {
                for (chunk, index) in e.payload.chunks_exact(8).zip(PAYLOAD_WORDS) {
                    put(index, ByteOrder::Little.u64(chunk, 0));
                }
                let prop = (e.lsize - 1)
                    | (u64::from(e.psize) - 1) << 25
                    | e.compression.to_disk() << 32
                    | 1 << 39
                    | u64::from(e.kind) << 40
                    | kind_bits(e.object_type, e.level)
                    | u64::from(e.order == ByteOrder::Little) << 63;
                put(6, prop);
                put(10, e.birth.0);
            }
            BlockPtr::Block(b) => {
                for (i, dva) in b.dvas.iter().enumerate() {
                    let (word0, word1) = dva.encode();
                    put(2 * i, word0);
                    put(2 * i + 1, word1);
                }
                let mut fill = b.fill;
                if let Some(sealing) = b.sealing {
                    let (words, tail) = sealing.encode(b.order);
                    put(4, words[0]);
                    put(5, words[1]);
                    fill = fill & FILL_OF_SEALED | u64::from(tail) << 32;
                }
                let prop = ((b.lsize >> SECTOR_SHIFT) - 1)
                    | ((b.psize >> SECTOR_SHIFT) - 1) << 16
                    | b.compression.to_disk() << 32
                    | b.checksum_kind.to_disk() << 40
                    | kind_bits(b.object_type, b.level)
                    | u64::from(b.encrypted) << 61
                    | u64::from(b.dedup) << 62
                    | u64::from(b.order == ByteOrder::Little) << 63;
                put(6, prop);
                put(7, b.pad[0]);
                put(8, b.pad[1]);
                put(9, b.physical_birth.0);
                put(10, b.birth.0);
                put(11, fill);
                for (i, word) in b.checksum.0.into_iter().enumerate() {
                    put(12 + i, word);
                }
            }
        }
        raw
    }

    /// Whether nothing is there.
    #[must_use]
    pub const fn is_hole(&self) -> bool {
        matches!(self, BlockPtr::Hole(_))
    }

    /// The pointer to a block on disk, if it is one.
    #[must_use]
    pub const fn block(&self) -> Option<&Block> {
        match self {
            BlockPtr::Block(block) => Some(block),
            _ => None,
        }
    }

    /// Logical birth; 0 for a slot that was never written.
    #[must_use]
    pub const fn birth(&self) -> Txg {
        match self {
            BlockPtr::Hole(h) => h.birth,
            BlockPtr::Embedded(e) => e.birth,
            BlockPtr::Block(b) => b.birth,
        }
    }

    /// The birth that snapshot and free logic use: the logical one, or the physical one of a block that
    /// was rewritten in place by `zfs rewrite` (feature `physical_rewrite`).
    #[must_use]
    pub fn accounting_birth(&self) -> Txg {
        match self {
            BlockPtr::Block(b) if b.pad[0] >> 63 == 1 => b.physical_birth(),
            other => other.birth(),
        }
    }

    /// Logical bytes.
    #[must_use]
    pub const fn lsize(&self) -> u64 {
        match self {
            BlockPtr::Hole(h) => h.lsize,
            BlockPtr::Embedded(e) => e.lsize,
            BlockPtr::Block(b) => b.lsize,
        }
    }

    /// Level in the object's tree.
    #[must_use]
    pub const fn level(&self) -> u8 {
        match self {
            BlockPtr::Hole(h) => h.level,
            BlockPtr::Embedded(e) => e.level,
            BlockPtr::Block(b) => b.level,
        }
    }

    /// The share of this pointer in the fill count of its parent.
    #[must_use]
    pub const fn fill(&self) -> u64 {
        match self {
            BlockPtr::Hole(_) => 0,
            BlockPtr::Embedded(_) => 1,
            BlockPtr::Block(b) => b.fill,
        }
    }
}

fn kind_bits(object_type: ObjectType, level: u8) -> u64 {
    u64::from(object_type.0) << 48 | u64::from(level) << 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_block() -> impl Strategy<Value = Block> {
        let dva = (0u32..1 << 24, 1u64..1 << 24, 0u64..1 << 54, any::<bool>())
            .prop_map(|(v, a, o, gang)| Dva { vdev: VdevId(v), asize: a << 9, offset: o << 9, gang });
        let sizes = (0u64..32768, 0u64..32768);
        (prop::array::uniform3(dva), sizes, 0u8..54, 0u8..32, any::<[u64; 8]>(), 6u64..9, 2u64..17).prop_map(
            |(dvas, (a, b), t, level, w, sum, comp)| {
                let (psize, lsize) = ((a.min(b) + 1) << 9, (a.max(b) + 1) << 9);
                let compression = Compression::from_disk(comp).unwrap();
                Block {
                    dvas,
                    lsize,
                    psize: if compression == Compression::Off { lsize } else { psize },
                    compression,
                    checksum_kind: ChecksumKind::from_disk(sum).unwrap(),
                    object_type: ObjectType(t),
                    level,
                    encrypted: false,
                    dedup: w[0] & 1 == 1,
                    order: if w[0] & 2 == 2 { ByteOrder::Little } else { ByteOrder::Big },
                    pad: [w[1], w[2]],
                    physical_birth: Txg(w[3]),
                    birth: Txg(w[4]),
                    fill: w[5],
                    checksum: Checksum([w[6], w[7], w[0], w[1]]),
                    sealing: None,
                }
            },
        )
    }

    fn any_order() -> impl Strategy<Value = ByteOrder> {
        prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
    }

    proptest! {
        #[test]
        fn block_survives_a_round_trip(block in any_block(), order in any_order()) {
            let ptr = BlockPtr::Block(block);
            prop_assert_eq!(decode(&ptr.encode(order), order), Ok(ptr));
        }

        #[test]
        fn any_bytes_decode_or_are_refused_and_survive_a_round_trip(words in any::<[u64; 16]>(), order in any_order()) {
            let mut raw = [0; SIZE];
            for (i, w) in words.into_iter().enumerate() {
                order.put_u64(&mut raw, i * 8, w);
            }
            if let Ok(ptr) = decode(&raw, order) {
                let again = decode(&ptr.encode(order), order);
                prop_assert_eq!(again, Ok(ptr));
            }
        }
    }

    #[test]
    fn embedded_payload_lies_around_prop_and_birth() {
        let mut payload = [0; EMBEDDED_MAX];
        payload.iter_mut().enumerate().for_each(|(i, b)| *b = i as u8 + 1);
        let ptr = BlockPtr::Embedded(Embedded {
            kind: 0,
            lsize: 131072,
            psize: 112,
            compression: Compression::Lz4,
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: 0,
            order: ByteOrder::Little,
            birth: Txg(7),
            payload,
        });
        let raw = ptr.encode(ByteOrder::Little);
        assert_eq!(raw[..48], payload[..48]);
        assert_eq!(raw[56..80], payload[48..72]);
        assert_eq!(raw[88..], payload[72..]);
        assert_eq!(decode(&raw, ByteOrder::Little), Ok(ptr));
    }

    #[test]
    fn a_freed_hole_keeps_size_type_level_and_birth() {
        let hole = BlockPtr::Hole(Hole {
            lsize: 131072,
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            level: 1,
            birth: Txg(9),
        });
        let raw = hole.encode(ByteOrder::Little);
        assert_eq!(ByteOrder::Little.word(&raw, 6), 0x0113_0000_0000_00ff);
        assert_eq!(decode(&raw, ByteOrder::Little), Ok(hole));
        assert_eq!(decode(&[0; SIZE], ByteOrder::Little), Ok(BlockPtr::HOLE));
    }
}

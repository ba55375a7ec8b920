//! Dedup tables: entries of blocks to which several block pointers refer.
//!
//! From:   ZAPs in the MOS, one for each checksum and class; their values after decompression.
//! To:     `pool`, which looks blocks up by their checksum and counts their references.
//! Source: docs/format/14-dedup-and-cloning.md §2, §3.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::blkptr::{Block, Dva};
use crate::{ByteOrder, Checksum, ChecksumKind, Compression, Corrupt, ObjectType, Txg};

/// Words of a key.
pub const KEY_WORDS: usize = 5;
/// Slots of an entry: slot `n` is about a block that was written in `n` copies. Slot 0 is from old pools only.
pub const SLOTS: usize = 4;
/// The slot of an entry of a table with logs.
pub const FLAT_SLOT: usize = 1;
/// Bytes of an entry before compression.
pub const ENTRY_SIZE: usize = SLOTS * SLOT_WORDS * 8;
/// Key of the statistics in the object directory.
pub const STATISTICS: &str = "DDT-statistics";

const SLOT_WORDS: usize = 8;
const SECTOR_SHIFT: u32 = 9;

/// Two blocks are equal if these agree: checksum, sizes and compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u64; KEY_WORDS]);

impl Key {
    /// The key of a block. Its DVAs are not used.
    #[must_use]
    pub fn of(block: &Block) -> Key {
        let [a, b, c, d] = block.checksum.0;
        let sectors = |bytes: u64| (bytes >> SECTOR_SHIFT) - 1;
        let about = sectors(block.lsize)
            | sectors(block.psize) << 16
            | block.compression.to_disk() << 32
            | u64::from(block.encrypted) << 39;
        Key([a, b, c, d, about])
    }

    /// Bytes before compression.
    #[must_use]
    pub const fn lsize(&self) -> u64 {
        ((self.0[4] & 0xffff) + 1) << SECTOR_SHIFT
    }

    /// Bytes on disk, before parity.
    #[must_use]
    pub const fn psize(&self) -> u64 {
        ((self.0[4] >> 16 & 0xffff) + 1) << SECTOR_SHIFT
    }

    const fn is_encrypted(&self) -> bool {
        self.0[4] >> 39 & 1 == 1
    }
}

/// A block of an entry: its place and its reference count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The words of its three DVAs. Of an encrypted block the last two are no DVA.
    pub places: [u64; 6],
    /// References.
    pub refs: u64,
    /// When it was written; 0 for an unused slot.
    pub birth: Txg,
}

impl Slot {
    /// A block before its first reference.
    #[must_use]
    pub fn of(block: &Block) -> Slot {
        let mut places = [0; 6];
        for (pair, dva) in places.chunks_exact_mut(2).zip(block.dvas) {
            let (first, second) = dva.encode();
            pair.copy_from_slice(&[first, second]);
        }
        Slot { places, refs: 0, birth: block.physical_birth() }
    }

    /// Whether it is in use.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.birth.0 != 0
    }

    /// Whether `block` is the block of this slot.
    #[must_use]
    pub fn holds(&self, block: &Block) -> bool {
        self.is_used()
            && self.birth == block.physical_birth()
            && Dva::decode(self.places[0], self.places[1]) == block.dvas[0]
    }

    /// The copies, as a block pointer has them.
    #[must_use]
    pub fn dvas(&self, key: &Key) -> [Dva; 3] {
        let mut dvas = [0, 2, 4].map(|i| Dva::decode(self.places[i], self.places[i + 1]));
        if key.is_encrypted() {
            dvas[2] = Dva::default();
        }
        dvas
    }
}

/// An entry. One of a table with logs has a single slot, [`FLAT_SLOT`], whatever the number of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// By number of copies.
    pub slots: [Slot; SLOTS],
    /// In a table with logs: when it changed last, in seconds.
    pub changed: u64,
}

impl Entry {
    /// Decodes a value after decompression.
    ///
    /// # Errors
    /// [`Corrupt`] for another length.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Entry, Corrupt> {
        if raw.len() != ENTRY_SIZE {
            return Err(Corrupt::new("dedup table entry length", raw.len() as u64));
        }
        let mut entry = Entry::default();
        for (slot, raw) in entry.slots.iter_mut().zip(raw.chunks_exact(SLOT_WORDS * 8)) {
            let word = |i| order.word(raw, i);
            *slot = Slot { places: [0, 1, 2, 3, 4, 5].map(word), refs: word(6), birth: Txg(word(7)) };
        }
        Ok(entry)
    }

    /// The value before compression.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_SIZE] {
        let mut raw = [0; ENTRY_SIZE];
        for (slot, raw) in self.slots.iter().zip(raw.chunks_exact_mut(SLOT_WORDS * 8)) {
            let words = slot.places.iter().copied().chain([slot.refs, slot.birth.0]);
            words.enumerate().for_each(|(i, word)| ByteOrder::Little.put_u64(raw, i * 8, word));
        }
        raw
    }

    /// References over all slots that are counted.
    #[must_use]
    pub fn refs(&self) -> u64 {
        self.slots[1..].iter().fold(0, |sum, slot| sum.saturating_add(slot.refs))
    }

    /// The class of an entry with these references; `None` without references.
    #[must_use]
    pub fn class(&self) -> Option<Class> {
        match self.refs() {
            0 => None,
            1 => Some(Class::Unique),
            _ => Some(Class::Duplicate),
        }
    }

    /// The entry of a table with logs.
    #[must_use]
    pub fn flat(slot: Slot, changed: u64) -> Entry {
        let mut entry = Entry { changed, ..Entry::default() };
        entry.slots[FLAT_SLOT] = slot;
        entry
    }

    /// The block of a slot, as it is freed or read.
    ///
    /// # Errors
    /// [`Corrupt`] if the key names no known compression.
    pub fn block(kind: ChecksumKind, key: &Key, slot: &Slot) -> Result<Block, Corrupt> {
        let [a, b, c, d, about] = key.0;
        Ok(Block {
            dvas: slot.dvas(key),
            lsize: key.lsize(),
            psize: key.psize(),
            compression: Compression::from_disk(about >> 32 & 0x7f)?,
            checksum_kind: kind,
            checksum: Checksum([a, b, c, d]),
            encrypted: key.is_encrypted(),
            ..Block::plain(ObjectType::DEDUP, slot.birth)
        })
    }
}

/// The stores of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Blocks with extra copies, from old pools only.
    Ditto,
    /// Blocks with several references.
    Duplicate,
    /// Blocks with one reference.
    Unique,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 3] = [Class::Ditto, Class::Duplicate, Class::Unique];

    /// The number in records of logs.
    #[must_use]
    pub const fn to_disk(self) -> u64 {
        match self {
            Class::Ditto => 0,
            Class::Duplicate => 1,
            Class::Unique => 2,
        }
    }

    /// The word in names and texts.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Class::Ditto => "ditto",
            Class::Duplicate => "duplicate",
            Class::Unique => "unique",
        }
    }
}

/// The checksums that tables exist for, with their words in names.
pub const KINDS: [(ChecksumKind, &str); 5] = [
    (ChecksumKind::Sha256, "sha256"),
    (ChecksumKind::Sha512, "sha512"),
    (ChecksumKind::Skein, "skein"),
    (ChecksumKind::Edonr, "edonr"),
    (ChecksumKind::Blake3, "blake3"),
];

/// The name of a store in the object directory and in the statistics.
///
/// # Panics
/// If there are no tables of this checksum.
#[must_use]
pub fn store_name(kind: ChecksumKind, class: Class) -> String {
    let known = KINDS.iter().find(|(known, _)| *known == kind);
    let (_, word) = known.expect("only checksums of dedup tables have stores");
    format!("DDT-{word}-zap-{}", class.word())
}

/// Buckets of a histogram: bucket `n` counts entries with 2^n references up to twice as many.
pub const BUCKETS: usize = 64;
const COUNT_WORDS: usize = 8;

/// Blocks and their sizes, once for each block and once for each reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks.
    pub blocks: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes that datasets are charged with.
    pub dsize: u64,
    /// References.
    pub ref_blocks: u64,
    /// `lsize` times references.
    pub ref_lsize: u64,
    /// `psize` times references.
    pub ref_psize: u64,
    /// `dsize` times references.
    pub ref_dsize: u64,
}

impl Counts {
    fn words(&self) -> [u64; COUNT_WORDS] {
        let Counts { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize } = *self;
        [blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize]
    }

    fn from_words(words: [u64; COUNT_WORDS]) -> Counts {
        let [blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize] = words;
        Counts { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize }
    }

    /// The counts of an entry; `dsize_of` gives the bytes that one block is charged with.
    #[must_use]
    pub fn of(key: &Key, entry: &Entry, dsize_of: impl Fn(&Slot) -> u64) -> Counts {
        let mut counts = Counts::default();
        for slot in entry.slots[1..].iter().filter(|slot| slot.is_used() && slot.refs > 0) {
            let [lsize, psize, dsize] = [key.lsize(), key.psize(), dsize_of(slot)];
            let times = |bytes: u64| bytes.saturating_mul(slot.refs);
            let one = [1, lsize, psize, dsize, slot.refs, times(lsize), times(psize), times(dsize)];
            counts = counts.plus(&Counts::from_words(one));
        }
        counts
    }

    /// The sums of both. A sum that would be too large stays at the largest number: figures from a disk may be anything.
    #[must_use]
    pub fn plus(&self, other: &Counts) -> Counts {
        let (a, b) = (self.words(), other.words());
        Counts::from_words(core::array::from_fn(|i| a[i].saturating_add(b[i])))
    }

    /// The difference. No count falls below 0: figures from a disk may be anything.
    #[must_use]
    pub fn minus(&self, other: &Counts) -> Counts {
        let (a, b) = (self.words(), other.words());
        Counts::from_words(core::array::from_fn(|i| a[i].saturating_sub(b[i])))
    }

    /// References over blocks, by what datasets are charged with, in hundredths: the property `dedupratio`.
    #[must_use]
    pub fn ratio_percent(&self) -> u64 {
        match self.dsize {
            0 => 100,
            dsize => (u128::from(self.ref_dsize) * 100 / u128::from(dsize)).try_into().unwrap_or(u64::MAX),
        }
    }

    /// Bytes that deduplication saves.
    #[must_use]
    pub fn saved(&self) -> u64 {
        self.ref_dsize.saturating_sub(self.dsize)
    }
}

/// The statistics of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// By log2 of the references.
    pub buckets: [Counts; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [Counts::default(); BUCKETS] }
    }
}

impl Histogram {
    /// Decodes the numbers of a value of the statistics.
    ///
    /// # Errors
    /// [`Corrupt`] for another number of them.
    pub fn decode(words: &[u64]) -> Result<Histogram, Corrupt> {
        let (rows, rest) = words.as_chunks::<COUNT_WORDS>();
        if rows.len() != BUCKETS || !rest.is_empty() {
            return Err(Corrupt::new("dedup table statistics length", words.len() as u64));
        }
        let mut histogram = Histogram::default();
        for (bucket, row) in histogram.buckets.iter_mut().zip(rows) {
            *bucket = Counts::from_words(*row);
        }
        Ok(histogram)
    }

    /// The numbers as they are stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u64> {
        self.buckets.iter().flat_map(Counts::words).collect()
    }

    /// Adds an entry.
    pub fn add(&mut self, counts: &Counts) {
        if let Some(bucket) = self.bucket(counts) {
            *bucket = bucket.plus(counts);
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, counts: &Counts) {
        if let Some(bucket) = self.bucket(counts) {
            *bucket = bucket.minus(counts);
        }
    }

    fn bucket(&mut self, counts: &Counts) -> Option<&mut Counts> {
        Some(&mut self.buckets[counts.ref_blocks.checked_ilog2()? as usize])
    }

    /// All buckets together.
    #[must_use]
    pub fn total(&self) -> Counts {
        self.buckets.iter().fold(Counts::default(), |sum, bucket| sum.plus(bucket))
    }

    /// Adds another store's.
    pub fn merge(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, bucket)| *sum = sum.plus(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VdevId;

    fn block() -> Block {
        let dva = Dva { vdev: VdevId(1), asize: 8192, offset: 0x4000, gang: false };
        Block {
            dvas: [dva, Dva::default(), Dva::default()],
            lsize: 128 << 10,
            psize: 5632,
            compression: Compression::Lz4,
            checksum_kind: ChecksumKind::Sha256,
            checksum: Checksum([1, 2, 3, 4]),
            dedup: true,
            ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(7))
        }
    }

    #[test]
    fn a_dedup_key_has_the_sizes_compression_and_checksum_of_its_block() {
        let key = Key::of(&block());
        assert_eq!(key.0, [1, 2, 3, 4, 255 | 10 << 16 | 15 << 32]);
        assert_eq!((key.lsize(), key.psize()), (128 << 10, 5632));
    }

    #[test]
    fn an_entry_survives_a_round_trip_and_gives_the_block_back() {
        let (key, mut entry) = (Key::of(&block()), Entry::default());
        entry.slots[2] = Slot { refs: 3, ..Slot::of(&block()) };
        assert_eq!(Entry::decode(&entry.encode(), ByteOrder::Little), Ok(entry));
        assert!(Entry::decode(&[0; 8], ByteOrder::Little).is_err());
        assert!(entry.slots[2].holds(&block()) && !entry.slots[1].holds(&block()));
        let later = Block { birth: Txg(9), ..block() };
        assert!(!entry.slots[2].holds(&later), "another block lay there before");
        let again = Entry::block(ChecksumKind::Sha256, &key, &entry.slots[2]).unwrap();
        assert_eq!(Block { object_type: block().object_type, dedup: true, ..again }, block());
        assert_eq!(entry.class(), Some(Class::Duplicate));
    }

    #[test]
    fn statistics_follow_entries_and_never_wrap() {
        let mut entry = Entry::default();
        entry.slots[1] = Slot { refs: 3, ..Slot::of(&block()) };
        let counts = Counts::of(&Key::of(&block()), &entry, |_| 8192);
        assert_eq!((counts.blocks, counts.ref_blocks, counts.ref_dsize), (1, 3, 3 * 8192));
        let mut histogram = Histogram::default();
        histogram.add(&counts);
        assert_eq!(histogram.buckets[1], counts);
        assert_eq!(Histogram::decode(&histogram.encode()), Ok(histogram.clone()));
        assert_eq!((counts.ratio_percent(), counts.saved()), (300, 2 * 8192));
        histogram.remove(&counts);
        histogram.remove(&counts);
        assert_eq!(histogram, Histogram::default());
        assert!(Histogram::decode(&[0; 511]).is_err());
        let huge = Counts { ref_dsize: u64::MAX, dsize: 1, ..counts };
        assert_eq!(huge.plus(&huge).ratio_percent(), u64::MAX);
    }
}

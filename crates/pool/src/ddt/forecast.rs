//! The size that a dedup table will have.
//!
//! From:   blocks that are not written yet, and how often each will be written.
//! To:     the [`Figures`] that the stores of the table will have when they are written.
//!
//! A store is a ZAP. Its size follows from where the hashes of its entries are: a leaf that is full is split by the next bit of the
//! hash. The hash is the first word of the checksum, so the forecast has the same leaves as the store. Leaves that lose their entries stay.
//!
//! Source: docs/format/04-zap.md §3; 14-dedup-and-cloning.md §2, §5.

use std::collections::BTreeMap;

use format::blkptr::Block;
use format::compression::{Compression, CompressionSetting};
use format::ddt::{Class, Entry, FLAT_SLOT, Key, Slot};
use format::zap::{self, leaf};

use super::store::{BLOCK_SHIFT, Figures, INDIRECT_SHIFT, Kind, pack};

/// Bytes of a key or a value that fit into one chunk of a leaf.
const CHUNK_BYTES: usize = 21;
/// Chunks of a leaf.
const CHUNKS: usize = ((1 << BLOCK_SHIFT) - 2 * (1 << (BLOCK_SHIFT - 5))) / 24 - 2;
/// Bits of a hash that count.
const HASH_BITS: u32 = 48;
/// log2 of the pointers to leaves that fit into the first block of a store, and of those in each other block.
const POINTERS_SHIFT: u32 = BLOCK_SHIFT - 4;
const BLOCK_POINTERS_SHIFT: u32 = BLOCK_SHIFT - 3;
/// Copies of a block of a store.
const COPIES: u64 = 3;
/// Block pointers of a dnode and of an indirect block, and the bytes of each in a compressed
/// indirect block (measured).
const DNODE_POINTERS: u64 = 3;
const INDIRECT_POINTERS: u64 = 1 << (INDIRECT_SHIFT - 7);
const POINTER_LEFT: u64 = 60;
/// Entries that are kept whole, to see how well their leaves compress.
const SAMPLE: usize = 1024;

/// A leaf: how many bits all its hashes share, and the hash and the chunks of each entry.
#[derive(Default)]
struct Sheet {
    bits: u32,
    entries: Vec<(u64, u8)>,
}

impl Sheet {
    fn chunks(&self) -> usize {
        self.entries.iter().map(|(_, chunks)| usize::from(*chunks)).sum()
    }
}

/// One store.
struct Model {
    /// By the lowest hash that belongs into the leaf.
    leaves: BTreeMap<u64, Sheet>,
    entries: u64,
    /// The entries with the lowest hashes.
    sample: BTreeMap<u64, (Key, zap::Value)>,
}

impl Default for Model {
    fn default() -> Model {
        let leaves = std::iter::once((0, Sheet::default())).collect();
        Model { leaves, entries: 0, sample: BTreeMap::new() }
    }
}

fn hash(key: &Key) -> u64 {
    key.0[0] >> (64 - HASH_BITS) << (64 - HASH_BITS)
}

impl Model {
    fn put(&mut self, key: &Key, value: zap::Value) {
        let hash = hash(key);
        let chunks = 1 + size_of::<Key>().div_ceil(CHUNK_BYTES) + value.data().len().div_ceil(CHUNK_BYTES);
        self.remove(key);
        self.entries += 1;
        while let Some((&start, sheet)) = self.leaves.range_mut(..=hash).next_back() {
            if sheet.chunks() + chunks <= CHUNKS || sheet.bits >= HASH_BITS {
                sheet.entries.push((hash, chunks as u8));
                break;
            }
            let above = start | 1 << (63 - sheet.bits);
            sheet.bits += 1;
            let entries = sheet.entries.extract_if(.., |(hash, _)| *hash >= above).collect();
            let right = Sheet { bits: sheet.bits, entries };
            self.leaves.insert(above, right);
        }
        self.sample.insert(hash, (*key, value));
        if self.sample.len() > SAMPLE {
            self.sample.pop_last();
        }
    }

    /// Removes the entry, if it is there.
    fn remove(&mut self, key: &Key) {
        let hash = hash(key);
        let Some((_, sheet)) = self.leaves.range_mut(..=hash).next_back() else { return };
        if let Some(at) = sheet.entries.iter().position(|(known, _)| *known == hash) {
            sheet.entries.swap_remove(at);
            // It stays in the sample, because its bytes stay in the leaf until another entry takes their place.
            self.entries -= 1;
        }
    }

    /// The share of their bytes that blocks of the store take on the disks, in sectors of `1 << ashift` bytes.
    fn share_left(&self, ashift: u32) -> f64 {
        let known = self.sample.last_key_value().map_or(0, |(hash, _)| *hash);
        let mut starts: Vec<u64> = self.leaves.keys().copied().collect();
        starts.push(u64::MAX);
        let ranges = starts.iter().zip(&starts[1..]);
        let whole = ranges.filter(|(_, end)| **end <= known || starts.len() == 2);
        let (mut bytes, mut blocks) = (0, 0);
        for (start, end) in whole {
            let bits = self.leaves[start].bits;
            let prefix = start.checked_shr(64 - bits).unwrap_or(0);
            let mut raw = leaf::new_block(1 << BLOCK_SHIFT, prefix, bits, false);
            for (hash, (key, value)) in self.sample.range(*start..*end) {
                // Those that do not fit are in the place of removed ones.
                let _ = leaf::insert(&mut raw, *hash, zap::Key::Words(&key.0), value);
            }
            bytes += packed_len(&raw, ashift);
            blocks += 1;
        }
        if blocks == 0 { 1.0 } else { bytes as f64 / f64::from(blocks << BLOCK_SHIFT) }
    }

    /// Its size, if the entries are one of `share` that the store has.
    fn figures(&self, share: f64, ashift: u32) -> Figures {
        if self.leaves.len() == 1 && self.entries == 0 {
            return Figures::default();
        }
        let more_bits = (1.0 / share).log2().round() as u32;
        let shift = self.leaves.values().map(|sheet| sheet.bits).max().unwrap_or(0) + more_bits;
        let pointers =
            if shift > POINTERS_SHIFT { 1u64 << (shift - BLOCK_POINTERS_SHIFT.min(shift)) } else { 0 };
        let leaves = (self.leaves.len() as f64 / share) as u64;
        let in_core = (1 + leaves + pointers) << BLOCK_SHIFT;
        // Indirect blocks lead to the places of earlier tables of pointers, too.
        let above = indirect_bytes(1 + leaves + 2 * pointers, ashift);
        let on_disk = COPIES * ((in_core as f64 * self.share_left(ashift)) as u64 + above);
        Figures { entries: (self.entries as f64 / share) as u64, on_disk, in_core }
    }
}

/// Bytes of the indirect blocks above so many blocks.
fn indirect_bytes(blocks: u64, ashift: u32) -> u64 {
    let (mut below, mut bytes) = (blocks, 0);
    while below > DNODE_POINTERS {
        let of = |pointers: u64| (pointers * POINTER_LEFT).next_multiple_of(1 << ashift);
        bytes += below / INDIRECT_POINTERS * of(INDIRECT_POINTERS) + of(below % INDIRECT_POINTERS);
        below = below.div_ceil(INDIRECT_POINTERS);
    }
    bytes
}

/// Bytes that a block takes on a disk with such sectors.
fn packed_len(raw: &[u8], ashift: u32) -> u64 {
    let mut room = vec![0; raw.len() - raw.len() / 8];
    let packed = codec::compress(CompressionSetting::plain(Compression::Lz4), raw, &mut room);
    (packed.unwrap_or(raw.len()) as u64).next_multiple_of(1 << ashift)
}

/// The table of one checksum, as it will be.
pub struct Forecast {
    kind: Kind,
    unique: Model,
    duplicate: Model,
}

impl Forecast {
    /// An empty table: one with logs (feature `fast_dedup`), or one without.
    #[must_use]
    pub fn new(logs: bool) -> Forecast {
        let kind = if logs { Kind::Flat } else { Kind::Legacy };
        Forecast { kind, unique: Model::default(), duplicate: Model::default() }
    }

    /// At the end of a txg so many block pointers refer to `block`, which has its place.
    pub fn store(&mut self, block: &Block, refs: u64, changed: u64) {
        let (key, slot) = (Key::of(block), Slot { refs, ..Slot::of(block) });
        let mut entry = Entry::flat(slot, changed);
        if self.kind == Kind::Legacy {
            entry = Entry::default();
            entry.slots[FLAT_SLOT] = slot;
        }
        let Forecast { unique, duplicate, .. } = self;
        let (to, from) = match entry.class() {
            Some(Class::Unique) => (unique, duplicate),
            _ => (duplicate, unique),
        };
        from.remove(&key);
        to.put(&key, pack(&entry, self.kind));
    }

    /// The size of its stores. `share` of the entries were entered, a power of two. A sector has `1 << ashift` bytes.
    #[must_use]
    pub fn figures(&self, share: f64, ashift: u32) -> Figures {
        let [unique, duplicate] = [&self.unique, &self.duplicate].map(|store| store.figures(share, ashift));
        Figures {
            entries: unique.entries + duplicate.entries,
            on_disk: unique.on_disk + duplicate.on_disk,
            in_core: unique.in_core + duplicate.in_core,
        }
    }
}

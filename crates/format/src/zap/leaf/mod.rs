//! Leaves of fat ZAPs: a hash table of entries whose names and values lie in chains of 24-byte chunks.
//!
//! From:   blocks that a pointer table names, turned little-endian by [`swap`](crate::swap).
//! To:     `dmu`.
//! Source: docs/format/04-zap.md §3.2, §3.3.
//!
//! Chains come from the disk: every walk is bounded by the number of chunks, every change collects and checks
//! the chunks it touches before it writes the first byte. On any error the block is as it was.

mod change;
mod entry;
#[cfg(test)]
mod tests;

pub use self::change::{insert, insert_with_cd, new_block, remove, split, update};

use alloc::vec::Vec;
use core::fmt;

use super::cursor::Position;
use super::name::{NameError, normalise};
use super::value::Key;
use super::{LEAF_TYPE, fat};
use crate::{ByteOrder, Corrupt};

const MAGIC: u32 = 0x2ab_1eaf;
const NIL: u16 = 0xffff;
const FREE: u8 = 253;
const ENTRY: u8 = 252;
const ARRAY: u8 = 251;
const HEADER: usize = 0x30;
const CHUNK: usize = 24;
/// Data bytes of an array chunk.
const ARRAY_BYTES: usize = 21;
const FLAG_SORTED: u8 = 1;

const AT_PREFIX: usize = 0x10;
const AT_NFREE: usize = 0x1c;
const AT_NENTRIES: usize = 0x1e;
const AT_PREFIX_LEN: usize = 0x20;
const AT_FREELIST: usize = 0x22;
const AT_FLAGS: usize = 0x24;

const LE: ByteOrder = ByteOrder::Little;

/// Why a leaf was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafError {
    /// Too few free chunks here: [`split`] and try again.
    NeedSplit,
    /// The key is there already.
    Exists,
    /// The key isn't there.
    Absent,
    /// Key or value are larger than a ZAP can hold.
    TooBig,
    /// The leaf is damaged.
    Corrupt(Corrupt),
}

impl From<Corrupt> for LeafError {
    fn from(corrupt: Corrupt) -> Self {
        LeafError::Corrupt(corrupt)
    }
}

impl fmt::Display for LeafError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeafError::NeedSplit => "the ZAP leaf is full",
            LeafError::Exists => "the key exists",
            LeafError::Absent => "the key does not exist",
            LeafError::TooBig => "the key or value is too large for a ZAP",
            LeafError::Corrupt(corrupt) => return corrupt.fmt(f),
        })
    }
}

impl core::error::Error for LeafError {}

/// A leaf, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    raw: &'a [u8],
}

/// An entry of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    leaf: Leaf<'a>,
    chunk: u16,
    next: u16,
    name_chunk: u16,
    name_count: u16,
    value_chunk: u16,
    value_count: u16,
    width: u8,
    /// Collision differentiator.
    pub cd: u32,
    /// Truncated hash.
    pub hash: u64,
}

const fn bucket_count(size: usize) -> usize {
    size / 32
}

const fn chunk_count(size: usize) -> usize {
    (size - 2 * bucket_count(size)) / CHUNK - 2
}

const fn chunk_at(size: usize, chunk: u16) -> usize {
    HEADER + 2 * bucket_count(size) + CHUNK * chunk as usize
}

impl<'a> Leaf<'a> {
    /// Checks size and header. Chains are checked as they are walked; [`Leaf::validate`] walks them all.
    ///
    /// # Errors
    /// [`Corrupt`] names the field.
    pub fn new(raw: &'a [u8]) -> Result<Leaf<'a>, Corrupt> {
        fat::block_shift(raw.len())?;
        if LE.word(raw, 0) != LEAF_TYPE {
            return Err(Corrupt::new("ZAP leaf block type", LE.word(raw, 0)));
        }
        if LE.u32(raw, 0x18) != MAGIC {
            return Err(Corrupt::new("ZAP leaf magic", LE.u32(raw, 0x18).into()));
        }
        let leaf = Leaf { raw };
        for count in [leaf.free_count(), leaf.entry_count()] {
            if count > leaf.chunks() {
                return Err(Corrupt::new("ZAP leaf chunk count", count as u64));
            }
        }
        // Within the longest hash: every later shift stays in range.
        if leaf.prefix_len() > 48 {
            return Err(Corrupt::new("ZAP leaf prefix length", leaf.prefix_len().into()));
        }
        if leaf.prefix() >> leaf.prefix_len() != 0 {
            return Err(Corrupt::new("ZAP leaf prefix", leaf.prefix()));
        }
        Ok(leaf)
    }

    /// The top bits that all hashes in here share, right aligned.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        LE.u64(self.raw, AT_PREFIX)
    }

    /// Number of those bits.
    #[must_use]
    pub fn prefix_len(&self) -> u32 {
        LE.u16(self.raw, AT_PREFIX_LEN).into()
    }

    /// Number of entries, as the header says.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        LE.u16(self.raw, AT_NENTRIES).into()
    }

    /// Number of free chunks, as the header says.
    #[must_use]
    pub fn free_count(&self) -> usize {
        LE.u16(self.raw, AT_NFREE).into()
    }

    /// Whether `hash` belongs into this leaf.
    #[must_use]
    pub fn owns(&self, hash: u64) -> bool {
        self.prefix_len() == 0 || hash >> (64 - self.prefix_len()) == self.prefix()
    }

    fn chunks(&self) -> usize {
        chunk_count(self.raw.len())
    }

    fn bucket_of(&self, hash: u64) -> usize {
        let bits = bucket_count(self.raw.len()).trailing_zeros();
        let shift = 64 - bits - self.prefix_len();
        (hash >> shift) as usize & (bucket_count(self.raw.len()) - 1)
    }

    /// The chunk, which must be of type `kind`.
    fn chunk(&self, number: u16, kind: u8) -> Result<&'a [u8], Corrupt> {
        if usize::from(number) >= self.chunks() {
            return Err(Corrupt::new("ZAP leaf chunk number", number.into()));
        }
        let at = chunk_at(self.raw.len(), number);
        let chunk = &self.raw[at..at + CHUNK];
        if chunk[0] != kind {
            return Err(Corrupt::new("ZAP leaf chunk type", chunk[0].into()));
        }
        Ok(chunk)
    }

    fn entry(self, number: u16) -> Result<Entry<'a>, Corrupt> {
        let chunk = self.chunk(number, ENTRY)?;
        if !matches!(chunk[1], 1 | 2 | 4 | 8) {
            return Err(Corrupt::new("ZAP integer width", chunk[1].into()));
        }
        Ok(Entry {
            leaf: self,
            chunk: number,
            width: chunk[1],
            next: LE.u16(chunk, 2),
            name_chunk: LE.u16(chunk, 4),
            name_count: LE.u16(chunk, 6),
            value_chunk: LE.u16(chunk, 8),
            value_count: LE.u16(chunk, 10),
            cd: LE.u32(chunk, 12),
            hash: LE.u64(chunk, 16),
        })
    }

    /// The entries of one bucket, as they are linked.
    fn bucket(self, bucket: usize) -> impl Iterator<Item = Result<Entry<'a>, Corrupt>> {
        let mut next = LE.u16(self.raw, HEADER + 2 * bucket);
        let mut budget = self.chunks();
        core::iter::from_fn(move || {
            if next == NIL {
                return None;
            }
            if budget == 0 {
                let looped = next;
                next = NIL;
                return Some(Err(Corrupt::new("endless ZAP leaf chain at chunk", looped.into())));
            }
            budget -= 1;
            let entry = self.entry(next);
            next = entry.map_or(NIL, |entry| entry.next);
            Some(entry)
        })
    }

    /// The data of an array of `len` bytes, chunk by chunk.
    fn array(self, first: u16, len: usize) -> impl Iterator<Item = Result<(u16, &'a [u8]), Corrupt>> {
        let (mut next, mut left) = (first, len);
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let number = next;
            let used = left.min(ARRAY_BYTES);
            let chunk = self.chunk(number, ARRAY);
            (next, left) = chunk.map_or((NIL, 0), |chunk| (LE.u16(chunk, 22), left - used));
            Some(chunk.map(|chunk| (number, &chunk[1..1 + used])))
        })
    }

    fn array_bytes(self, first: u16, len: usize) -> Result<Vec<u8>, Corrupt> {
        if len > self.chunks() * ARRAY_BYTES {
            return Err(Corrupt::new("ZAP array length", len as u64));
        }
        let mut bytes = Vec::with_capacity(len);
        for part in self.array(first, len) {
            bytes.extend_from_slice(part?.1);
        }
        Ok(bytes)
    }

    /// The entry with exactly this key. `hash` is the key's, truncated.
    ///
    /// # Errors
    /// [`Corrupt`] when a chain on the way is damaged.
    pub fn lookup(self, hash: u64, key: Key<'_>) -> Result<Option<Entry<'a>>, Corrupt> {
        let wanted = key.to_bytes();
        for entry in self.bucket(self.bucket_of(hash)) {
            let entry = entry?;
            if entry.hash == hash && entry.has_key(key, &wanted)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The entries of this hash, in order of cd.
    ///
    /// # Errors
    /// [`Corrupt`] when a chain on the way is damaged.
    pub fn matching(self, hash: u64) -> Result<Vec<Entry<'a>>, Corrupt> {
        let mut found = Vec::new();
        for entry in self.bucket(self.bucket_of(hash)) {
            let entry = entry?;
            if entry.hash == hash {
                found.push(entry);
            }
        }
        found.sort_by_key(|entry| entry.cd);
        Ok(found)
    }

    /// The first entry, in order of cd, whose name has the normal form of `name`.
    ///
    /// # Errors
    /// [`Corrupt`] when a chain is damaged; the inner [`NameError`] when a normal form isn't known here.
    pub fn lookup_normalised(
        self,
        hash: u64,
        name: &[u8],
        normflags: u64,
    ) -> Result<Result<Option<Entry<'a>>, NameError>, Corrupt> {
        let wanted = match normalise(name, normflags) {
            Ok(wanted) => wanted,
            Err(error) => return Ok(Err(error)),
        };
        for entry in self.matching(hash)? {
            match normalise(&entry.name()?, normflags) {
                Ok(normal) if normal == wanted => return Ok(Ok(Some(entry))),
                Ok(_) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(None))
    }

    /// The entries at or after `from`, in order of (hash, cd).
    ///
    /// # Errors
    /// [`Corrupt`] when a chain is damaged or leads to another bucket's entries.
    pub fn entries_from(self, from: Position) -> Result<Vec<Entry<'a>>, Corrupt> {
        let mut found = Vec::with_capacity(self.entry_count().min(self.chunks()));
        let first = if self.owns(from.hash) {
            self.bucket_of(from.hash)
        } else if from.hash >> (64 - self.prefix_len()) < self.prefix() {
            0
        } else {
            return Ok(found);
        };
        for bucket in first..bucket_count(self.raw.len()) {
            for entry in self.bucket(bucket) {
                let entry = entry?;
                // An entry in the chain of another bucket could be reached twice.
                if !self.owns(entry.hash) || self.bucket_of(entry.hash) != bucket {
                    return Err(Corrupt::new("ZAP leaf entry hash", entry.hash));
                }
                if (Position { hash: entry.hash, cd: entry.cd }) >= from {
                    found.push(entry);
                }
            }
        }
        found.sort_unstable_by_key(|entry| (entry.hash, entry.cd));
        Ok(found)
    }

    /// Walks everything: each chunk is free, an entry, or part of one array; counts and buckets are right.
    ///
    /// # Errors
    /// [`Corrupt`] names the first thing that is wrong.
    pub fn validate(self) -> Result<(), Corrupt> {
        if LE.word(self.raw, 1) != 0 {
            return Err(Corrupt::new("ZAP leaf pad", LE.word(self.raw, 1)));
        }
        let mut used = Vec::new();
        let mut next = LE.u16(self.raw, AT_FREELIST);
        while next != NIL {
            if used.len() == self.chunks() {
                return Err(Corrupt::new("endless ZAP leaf free list at chunk", next.into()));
            }
            used.push(next);
            next = LE.u16(self.chunk(next, FREE)?, 22);
        }
        if used.len() != self.free_count() {
            return Err(Corrupt::new("ZAP leaf free count", self.free_count() as u64));
        }
        let entries = self.entries_from(Position::START.max(self.first_position()))?;
        for entry in &entries {
            entry.chunks(&mut used)?;
        }
        if entries.len() != self.entry_count() {
            return Err(Corrupt::new("ZAP leaf entry count", self.entry_count() as u64));
        }
        if let Some(twin) = entries.windows(2).find(|w| (w[0].hash, w[0].cd) == (w[1].hash, w[1].cd)) {
            return Err(Corrupt::new("ZAP leaf cd twice for hash", twin[0].hash));
        }
        distinct(&used)?;
        if used.len() != self.chunks() {
            return Err(Corrupt::new("used and free chunks of a ZAP leaf", used.len() as u64));
        }
        Ok(())
    }

    fn first_position(&self) -> Position {
        let hash = if self.prefix_len() == 0 { 0 } else { self.prefix() << (64 - self.prefix_len()) };
        Position { hash, cd: 0 }
    }

    /// `count` chunks from the free list; the second value is the list's next head.
    fn free_chunks(&self, count: usize) -> Result<(Vec<u16>, u16), LeafError> {
        if count > self.free_count().min(self.chunks()) {
            return Err(LeafError::NeedSplit);
        }
        let mut next = LE.u16(self.raw, AT_FREELIST);
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            taken.push(next);
            next = LE.u16(self.chunk(next, FREE)?, 22);
        }
        distinct(&taken)?;
        Ok((taken, next))
    }
}

fn distinct(chunks: &[u16]) -> Result<(), Corrupt> {
    let mut sorted = chunks.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Corrupt::new("ZAP leaf chunk used twice", pair[0].into())),
        None => Ok(()),
    }
}

/// Turns a leaf into the other byte order. Sizes that no leaf has stay as they are.
pub(super) fn swap(raw: &mut [u8]) {
    if fat::block_shift(raw.len()).is_err() {
        return;
    }
    let size = raw.len();
    for (at, len) in [(0, 8), (8, 8), (0x10, 8), (0x18, 4), (0x1c, 2), (0x1e, 2), (0x20, 2), (0x22, 2)] {
        raw[at..at + len].reverse();
    }
    raw[HEADER..HEADER + 2 * bucket_count(size)].chunks_exact_mut(2).for_each(<[u8]>::reverse);
    for number in 0..chunk_count(size) as u16 {
        let at = chunk_at(size, number);
        let fields: &[(usize, usize)] = match raw[at] {
            ENTRY => &[(2, 2), (4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 8)],
            _ => &[(22, 2)],
        };
        for &(offset, len) in fields {
            raw[at + offset..at + offset + len].reverse();
        }
    }
}

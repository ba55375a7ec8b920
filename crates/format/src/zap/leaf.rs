//! Leaves of fat ZAPs: a hash table of entries whose names and values lie in chains of 24-byte chunks.
//!
//! From:   blocks that a pointer table names, turned little-endian by [`swap`](crate::swap).
//! To:     `dmu`.
//! Source: docs/format/04-zap.md §3.2, §3.3.
//!
//! Chains come from the disk: every walk is bounded by the number of chunks, every change collects and checks
//! the chunks it touches before it writes the first byte. On any error the block is as it was.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::cursor::Position;
use super::name::{NameError, normalise};
use super::value::{Key, MAX_VALUE, Value};
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
                // An entry under a bucket not its own could be reached twice.
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

impl<'a> Entry<'a> {
    /// Place in the iteration order.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { hash: self.hash, cd: self.cd }
    }

    /// The string key without its NUL.
    ///
    /// # Errors
    /// [`Corrupt`] when its chain is damaged or it does not end in NUL.
    pub fn name(&self) -> Result<Vec<u8>, Corrupt> {
        let mut name = self.leaf.array_bytes(self.name_chunk, self.name_count.into())?;
        match name.pop() {
            Some(0) => Ok(name),
            _ => Err(Corrupt::new("ZAP name without end, of length", self.name_count.into())),
        }
    }

    /// The integer key.
    ///
    /// # Errors
    /// [`Corrupt`] when its chain is damaged.
    pub fn words(&self) -> Result<Vec<u64>, Corrupt> {
        let bytes = self.leaf.array_bytes(self.name_chunk, usize::from(self.name_count) * 8)?;
        Ok(bytes.chunks_exact(8).map(|word| ByteOrder::Big.u64(word, 0)).collect())
    }

    /// The value.
    ///
    /// # Errors
    /// [`Corrupt`] when its chain is damaged.
    pub fn value(&self) -> Result<Value, Corrupt> {
        Value::new(self.width, self.leaf.array_bytes(self.value_chunk, self.value_len())?)
    }

    /// The first integer of a value of 8-byte integers: what directories and object maps hold.
    ///
    /// # Errors
    /// [`Corrupt`] when the value is of another kind or its chain is damaged.
    pub fn value_u64(&self) -> Result<u64, Corrupt> {
        if self.width != 8 || self.value_count == 0 {
            return Err(Corrupt::new("width of a ZAP value that should be one u64", self.width.into()));
        }
        let mut word = 0;
        for part in self.leaf.array(self.value_chunk, 8) {
            word = part?.1.iter().fold(word, |word, &byte| word << 8 | u64::from(byte));
        }
        Ok(word)
    }

    /// Bytes of one integer of the value.
    #[must_use]
    pub fn width(&self) -> u8 {
        self.width
    }

    /// Number of integers of the value.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.value_count.into()
    }

    fn value_len(&self) -> usize {
        usize::from(self.value_count) * usize::from(self.width)
    }

    fn has_key(&self, key: Key<'_>, wanted: &[u8]) -> Result<bool, Corrupt> {
        if usize::from(self.name_count) != key.count() {
            return Ok(false);
        }
        let mut rest = wanted;
        for part in self.leaf.array(self.name_chunk, wanted.len()) {
            let (here, after) = rest.split_at(rest.len().min(ARRAY_BYTES));
            if part?.1 != here {
                return Ok(false);
            }
            rest = after;
        }
        Ok(true)
    }

    /// The chunks of the name, to the end of their chain. (Whether the name is text or words, and so its
    /// length in bytes, is known to the header alone.)
    fn name_chain(&self) -> Result<Vec<u16>, Corrupt> {
        let mut chain = Vec::with_capacity(1);
        let mut next = self.name_chunk;
        while next != NIL {
            if chain.len() == self.leaf.chunks() {
                return Err(Corrupt::new("endless ZAP leaf chain at chunk", next.into()));
            }
            chain.push(next);
            next = LE.u16(self.leaf.chunk(next, ARRAY)?, 22);
        }
        let count = usize::from(self.name_count);
        if ![count, count * 8].iter().any(|bytes| bytes.div_ceil(ARRAY_BYTES) == chain.len()) || count == 0 {
            return Err(Corrupt::new("ZAP name length", count as u64));
        }
        Ok(chain)
    }

    /// Appends the chunks of this entry: itself, its name, its value.
    fn chunks(&self, into: &mut Vec<u16>) -> Result<(), Corrupt> {
        into.push(self.chunk);
        into.extend(self.name_chain()?);
        self.value_chunks(into)
    }

    fn value_chunks(&self, into: &mut Vec<u16>) -> Result<(), Corrupt> {
        for part in self.leaf.array(self.value_chunk, self.value_len()) {
            into.push(part?.0);
        }
        Ok(())
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

/// An empty leaf of `size` bytes. `sorted` is set iff the ZAP has normflags.
///
/// # Panics
/// If no fat ZAP can have blocks of `size` bytes.
#[must_use]
pub fn new_block(size: usize, prefix: u64, prefix_len: u32, sorted: bool) -> Vec<u8> {
    assert!(fat::block_shift(size).is_ok(), "ZAP leaf of {size} bytes");
    let chunks = chunk_count(size) as u16;
    let mut raw = vec![0; size];
    LE.put_u64(&mut raw, 0, LEAF_TYPE);
    LE.put_u64(&mut raw, AT_PREFIX, prefix);
    LE.put_u32(&mut raw, 0x18, MAGIC);
    LE.put_u16(&mut raw, AT_NFREE, chunks);
    LE.put_u16(&mut raw, AT_PREFIX_LEN, prefix_len as u16);
    raw[AT_FLAGS] = if sorted { FLAG_SORTED } else { 0 };
    raw[HEADER..HEADER + 2 * bucket_count(size)].fill(0xff);
    for number in 0..chunks {
        let at = chunk_at(size, number);
        raw[at] = FREE;
        LE.put_u16(&mut raw, at + 22, if number + 1 == chunks { NIL } else { number + 1 });
    }
    raw
}

/// Adds an entry with the lowest unused cd of its hash, and returns that cd.
///
/// # Errors
/// [`LeafError`]; the block is unchanged.
pub fn insert(raw: &mut [u8], hash: u64, key: Key<'_>, value: &Value) -> Result<u32, LeafError> {
    let mut lowest = 0;
    for entry in Leaf::new(raw)?.matching(hash)? {
        if entry.cd == lowest {
            lowest += 1;
        }
    }
    insert_with_cd(raw, hash, lowest, key, value)?;
    Ok(lowest)
}

/// Adds an entry with a given cd: for entries that move here from a micro ZAP.
///
/// # Errors
/// [`LeafError`]; the block is unchanged.
pub fn insert_with_cd(
    raw: &mut [u8],
    hash: u64,
    cd: u32,
    key: Key<'_>,
    value: &Value,
) -> Result<(), LeafError> {
    let name_count = u16::try_from(key.count()).map_err(|_| LeafError::TooBig)?;
    if name_count == 0 || value.data().len() > MAX_VALUE {
        return Err(LeafError::TooBig);
    }
    let leaf = Leaf::new(raw)?;
    if !leaf.owns(hash) {
        return Err(Corrupt::new("prefix of the ZAP leaf for this hash", leaf.prefix()).into());
    }
    if leaf.lookup(hash, key)?.is_some() {
        return Err(LeafError::Exists);
    }
    place(raw, Position { hash, cd }, &key.to_bytes(), name_count, value)
}

/// Adds an entry whose key is known to be new: `name` are the bytes of its chunks, `name_count` what is said
/// of them.
fn place(
    raw: &mut [u8],
    position: Position,
    name: &[u8],
    name_count: u16,
    value: &Value,
) -> Result<(), LeafError> {
    let leaf = Leaf::new(raw)?;
    let parts = name.len().div_ceil(ARRAY_BYTES);
    let needed = 1 + parts + value.data().len().div_ceil(ARRAY_BYTES);
    if needed > leaf.chunks() {
        return Err(LeafError::TooBig);
    }
    let (taken, freelist) = leaf.free_chunks(needed)?;
    // Chains are in order of cd: the new entry goes before the first larger one.
    let bucket = leaf.bucket_of(position.hash);
    let mut link = HEADER + 2 * bucket;
    for entry in leaf.bucket(bucket) {
        let entry = entry?;
        if entry.cd > position.cd {
            break;
        }
        link = chunk_at(raw.len(), entry.chunk) + 2;
    }
    let next = LE.u16(raw, link);
    let (nfree, nentries) = (leaf.free_count() - needed, leaf.entry_count() + 1);

    let (name_chunks, value_chunks) = taken[1..].split_at(parts);
    write_array(raw, name_chunks, name);
    write_array(raw, value_chunks, value.data());
    let at = chunk_at(raw.len(), taken[0]);
    raw[at] = ENTRY;
    raw[at + 1] = value.width();
    LE.put_u16(raw, at + 2, next);
    LE.put_u16(raw, at + 4, name_chunks[0]);
    LE.put_u16(raw, at + 6, name_count);
    LE.put_u16(raw, at + 8, value_chunks.first().copied().unwrap_or(NIL));
    LE.put_u16(raw, at + 10, value.count() as u16);
    LE.put_u32(raw, at + 12, position.cd);
    LE.put_u64(raw, at + 16, position.hash);
    LE.put_u16(raw, link, taken[0]);
    LE.put_u16(raw, AT_FREELIST, freelist);
    LE.put_u16(raw, AT_NFREE, nfree as u16);
    LE.put_u16(raw, AT_NENTRIES, nentries as u16);
    Ok(())
}

fn write_array(raw: &mut [u8], chunks: &[u16], data: &[u8]) {
    for (i, (&number, part)) in chunks.iter().zip(data.chunks(ARRAY_BYTES)).enumerate() {
        let at = chunk_at(raw.len(), number);
        raw[at] = ARRAY;
        raw[at + 1..at + 1 + ARRAY_BYTES].fill(0);
        raw[at + 1..at + 1 + part.len()].copy_from_slice(part);
        LE.put_u16(raw, at + 22, chunks.get(i + 1).copied().unwrap_or(NIL));
    }
}

/// Puts chunks in front of the free list whose first chunk is `head`.
fn release(raw: &mut [u8], chunks: &[u16], mut head: u16) {
    for &number in chunks.iter().rev() {
        let at = chunk_at(raw.len(), number);
        raw[at..at + CHUNK].fill(0);
        raw[at] = FREE;
        LE.put_u16(raw, at + 22, head);
        head = number;
    }
    LE.put_u16(raw, AT_FREELIST, head);
}

/// Replaces the value of `key`, of whatever length and width.
///
/// # Errors
/// [`LeafError`]; the block is unchanged.
pub fn update(raw: &mut [u8], hash: u64, key: Key<'_>, value: &Value) -> Result<(), LeafError> {
    let leaf = Leaf::new(raw)?;
    let entry = leaf.lookup(hash, key)?.ok_or(LeafError::Absent)?;
    let number = entry.chunk;
    let needed = value.data().len().div_ceil(ARRAY_BYTES);
    let name_and_entry = 1 + key.to_bytes().len().div_ceil(ARRAY_BYTES);
    if value.data().len() > MAX_VALUE || name_and_entry + needed > leaf.chunks() {
        return Err(LeafError::TooBig);
    }
    let mut chunks = Vec::new();
    entry.value_chunks(&mut chunks)?;
    distinct(&chunks)?;
    let had = chunks.len();
    let mut freelist = LE.u16(raw, AT_FREELIST);
    if needed > had {
        let (more, head) = leaf.free_chunks(needed - had)?;
        chunks.extend(more);
        freelist = head;
    }
    let nfree = leaf.free_count() + had - needed;
    if nfree > leaf.chunks() {
        return Err(Corrupt::new("ZAP leaf free count", leaf.free_count() as u64).into());
    }

    let (kept, spare) = chunks.split_at(needed);
    write_array(raw, kept, value.data());
    release(raw, spare, freelist);
    LE.put_u16(raw, AT_NFREE, nfree as u16);
    let at = chunk_at(raw.len(), number);
    raw[at + 1] = value.width();
    LE.put_u16(raw, at + 8, kept.first().copied().unwrap_or(NIL));
    LE.put_u16(raw, at + 10, value.count() as u16);
    Ok(())
}

/// Removes the entry of `key`.
///
/// # Errors
/// [`LeafError`]; the block is unchanged.
pub fn remove(raw: &mut [u8], hash: u64, key: Key<'_>) -> Result<(), LeafError> {
    let leaf = Leaf::new(raw)?;
    let entry = leaf.lookup(hash, key)?.ok_or(LeafError::Absent)?;
    let mut chunks = Vec::new();
    entry.chunks(&mut chunks)?;
    distinct(&chunks)?;
    let bucket = leaf.bucket_of(hash);
    let mut link = HEADER + 2 * bucket;
    for other in leaf.bucket(bucket) {
        let other = other?;
        if other.next == entry.chunk {
            link = chunk_at(raw.len(), other.chunk) + 2;
        }
    }
    if LE.u16(raw, link) != entry.chunk {
        return Err(Corrupt::new("ZAP leaf chain to chunk", entry.chunk.into()).into());
    }
    let (nfree, nentries) = (leaf.free_count() + chunks.len(), leaf.entry_count());
    if nfree > leaf.chunks() || nentries == 0 {
        return Err(Corrupt::new("ZAP leaf free count", leaf.free_count() as u64).into());
    }
    let next = entry.next;
    let freelist = LE.u16(raw, AT_FREELIST);

    LE.put_u16(raw, link, next);
    release(raw, &chunks, freelist);
    LE.put_u16(raw, AT_NFREE, nfree as u16);
    LE.put_u16(raw, AT_NENTRIES, nentries as u16 - 1);
    Ok(())
}

/// Splits by the bit after the prefix: the entries that have it clear stay, the others are in the block
/// returned. Both prefixes are one bit longer. cds and hashes stay.
///
/// # Errors
/// [`Corrupt`] when the leaf is damaged or its prefix uses up the hash; the block is unchanged.
pub fn split(raw: &mut [u8]) -> Result<Vec<u8>, Corrupt> {
    let leaf = Leaf::new(raw)?;
    let (prefix, prefix_len) = (leaf.prefix(), leaf.prefix_len());
    if prefix_len >= 48 {
        return Err(Corrupt::new("ZAP leaf prefix length", prefix_len.into()));
    }
    let sorted = raw[AT_FLAGS] & FLAG_SORTED != 0;
    let mut low = new_block(raw.len(), prefix << 1, prefix_len + 1, sorted);
    let mut high = new_block(raw.len(), prefix << 1 | 1, prefix_len + 1, sorted);
    for entry in leaf.entries_from(leaf.first_position())? {
        let target = if entry.hash >> (63 - prefix_len) & 1 == 1 { &mut high } else { &mut low };
        copy_entry(target, &entry)?;
    }
    raw.copy_from_slice(&low);
    Ok(high)
}

/// Adds a copy of an entry of another leaf to `raw`, which has room if that leaf was sound.
fn copy_entry(raw: &mut [u8], entry: &Entry<'_>) -> Result<(), Corrupt> {
    let chain = entry.name_chain()?;
    let name = entry.leaf.array_bytes(entry.name_chunk, chain.len() * ARRAY_BYTES)?;
    place(raw, entry.position(), &name, entry.name_count, &entry.value()?).map_err(|error| match error {
        LeafError::Corrupt(corrupt) => corrupt,
        _ => Corrupt::new("ZAP leaf entry that fits no leaf, of hash", entry.hash),
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: u64 = 0x1234_5670_0000_0000;

    type Operation<'a> = &'a dyn Fn(&mut [u8]) -> bool;

    fn key(name: &str) -> Key<'_> {
        name.into()
    }

    #[test]
    fn a_16_kib_leaf_has_512_buckets_and_638_chunks() {
        let raw = new_block(16384, 0, 0, false);
        assert_eq!((bucket_count(16384), chunk_count(16384)), (512, 638));
        assert_eq!(Leaf::new(&raw).unwrap().free_count(), 638);
        assert_eq!(Leaf::new(&raw).unwrap().validate(), Ok(()));
    }

    #[test]
    fn values_change_length_and_width_in_place() {
        let mut raw = new_block(512, 0, 0, false);
        assert_eq!(insert(&mut raw, HASH, key("name"), &Value::from_u64(7)), Ok(0));
        for value in [Value::from_bytes(&[9; 60]), Value::from_bytes(&[]), Value::from_u16s(&[1, 2, 3])] {
            assert_eq!(update(&mut raw, HASH, key("name"), &value), Ok(()));
            let leaf = Leaf::new(&raw).unwrap();
            assert_eq!(leaf.validate(), Ok(()));
            assert_eq!(leaf.lookup(HASH, key("name")).unwrap().unwrap().value(), Ok(value));
        }
        let large = Value::from_bytes(&[0; 21 * 17]);
        assert_eq!(update(&mut raw, HASH, key("name"), &large), Err(LeafError::TooBig));
        assert_eq!(update(&mut raw, HASH, key("nama"), &large), Err(LeafError::Absent));
        assert_eq!(remove(&mut raw, HASH, key("name")), Ok(()));
        assert_eq!(Leaf::new(&raw).unwrap().free_count(), chunk_count(512));
        assert_eq!(Leaf::new(&raw).unwrap().validate(), Ok(()));
    }

    #[test]
    fn equal_hashes_take_the_lowest_unused_cd() {
        let mut raw = new_block(1024, 0, 0, true);
        for (name, cd) in [("a", 0), ("b", 1), ("c", 2)] {
            assert_eq!(insert(&mut raw, HASH, key(name), &Value::from_u64(cd.into())), Ok(cd));
        }
        assert_eq!(insert(&mut raw, HASH, key("b"), &Value::from_u64(0)), Err(LeafError::Exists));
        remove(&mut raw, HASH, key("b")).unwrap();
        assert_eq!(insert(&mut raw, HASH, key("d"), &Value::from_u64(9)), Ok(1));
        let leaf = Leaf::new(&raw).unwrap();
        let order: Vec<_> = leaf.bucket(leaf.bucket_of(HASH)).map(|e| e.unwrap().cd).collect();
        assert_eq!(order, [0, 1, 2]);
        let rest = leaf.entries_from(Position::after(HASH, 0)).unwrap();
        assert_eq!(rest.iter().map(|e| e.value_u64().unwrap()).collect::<Vec<_>>(), [9, 2]);
        let found = leaf.lookup_normalised(HASH, b"D", 2).unwrap().unwrap().unwrap();
        assert_eq!(found.name(), Ok(b"d".to_vec()));
    }

    #[test]
    fn integer_keys_keep_all_their_words_through_a_split() {
        let mut raw = new_block(4096, 0, 0, false);
        let value = Value::from_bytes(b"v");
        for i in 0..20u64 {
            let words = [i, i << 40];
            insert(&mut raw, i << 59, Key::Words(&words[..1 + (i % 2) as usize]), &value).unwrap();
        }
        let high = split(&mut raw).unwrap();
        for i in 0..20u64 {
            let words = [i, i << 40];
            let words = &words[..1 + (i % 2) as usize];
            let leaf = Leaf::new(if i << 59 >> 63 == 1 { &high } else { &raw }).unwrap();
            assert_eq!(leaf.validate(), Ok(()));
            let found = leaf.lookup(i << 59, Key::Words(words)).unwrap().unwrap();
            assert_eq!(found.words().unwrap(), words);
        }
    }

    #[test]
    fn endless_chains_are_refused() {
        let mut raw = new_block(512, 0, 0, false);
        insert(&mut raw, HASH, key("name"), &Value::from_u64(7)).unwrap();
        let at = chunk_at(512, 0);
        assert_eq!(raw[at], ENTRY);
        let mut entry_loop = raw.clone();
        LE.put_u16(&mut entry_loop, at + 2, 0);
        let leaf = Leaf::new(&entry_loop).unwrap();
        assert!(leaf.lookup(HASH, key("other")).is_err());
        assert!(leaf.entries_from(Position::START).is_err());
        let mut free_loop = raw.clone();
        let first_free = LE.u16(&raw, AT_FREELIST);
        LE.put_u16(&mut free_loop, chunk_at(512, first_free) + 22, first_free);
        let before = free_loop.clone();
        assert!(matches!(
            insert(&mut free_loop, HASH, key("other"), &Value::from_u64(1)),
            Err(LeafError::Corrupt(_))
        ));
        assert_eq!(free_loop, before);
    }

    #[test]
    fn a_foreign_leaf_reads_after_turning() {
        let mut raw = new_block(512, 0, 0, false);
        insert(&mut raw, HASH, key("name"), &Value::from_u64(7)).unwrap();
        let mut foreign = raw.clone();
        swap(&mut foreign);
        assert_ne!(foreign, raw);
        super::super::swap(&mut foreign);
        assert_eq!(foreign, raw);
    }

    proptest! {
        #[test]
        fn a_damaged_leaf_is_read_or_refused_and_never_changed_by_an_error(
            names in proptest::collection::vec("[a-z]{1,40}", 1..8),
            damage in proptest::collection::vec((0usize..512, any::<u8>()), 1..6),
        ) {
            let mut raw = new_block(512, 0, 0, false);
            for name in &names {
                let _ = insert(&mut raw, HASH, key(name), &Value::from_u64(7));
            }
            for (at, byte) in damage {
                raw[at] = byte;
            }
            if let Ok(leaf) = Leaf::new(&raw) {
                let _ = leaf.validate();
                let _ = leaf.lookup_normalised(HASH, b"a", 2);
                for entry in leaf.entries_from(Position::START).unwrap_or_default() {
                    let _ = (entry.name(), entry.words(), entry.value(), entry.value_u64());
                }
            }
            let operations: [Operation<'_>; 4] = [
                &|raw| insert(raw, HASH, key("new"), &Value::from_bytes(&[1; 30])).is_ok(),
                &|raw| update(raw, HASH, key(&names[0]), &Value::from_bytes(&[1; 50])).is_ok(),
                &|raw| remove(raw, HASH, key(&names[0])).is_ok(),
                &|raw| split(raw).is_ok(),
            ];
            for operation in operations {
                let mut changed = raw.clone();
                if !operation(&mut changed) {
                    prop_assert_eq!(&changed, &raw);
                }
            }
        }
    }
}

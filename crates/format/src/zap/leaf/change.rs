//! Changing a leaf: adding and removing entries, and splitting it.

use alloc::vec;
use alloc::vec::Vec;

use super::{
    ARRAY, ARRAY_BYTES, AT_FLAGS, AT_FREELIST, AT_NENTRIES, AT_NFREE, AT_PREFIX, AT_PREFIX_LEN, CHUNK, ENTRY,
    Entry, FLAG_SORTED, FREE, HEADER, LE, Leaf, LeafError, MAGIC, NIL, bucket_count, chunk_at, chunk_count,
    distinct,
};
use crate::Corrupt;
use crate::zap::cursor::Position;
use crate::zap::value::{Key, MAX_VALUE, Value};
use crate::zap::{LEAF_TYPE, fat};

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

/// Adds an entry whose key is known to be new: `name` are the bytes of its chunks, `name_count` the stored length.
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

/// Replaces the value of `key`. The new value may have another length and width.
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

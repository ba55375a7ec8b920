//! Micro ZAPs: one block of 64-byte slots, each a short name and one integer.
//!
//! From:   block 0 of a ZAP object. Reading takes both byte orders; changing takes little-endian blocks.
//! To:     `dmu`, which keeps an [`Index`] beside a block that is used often.
//! Source: docs/format/04-zap.md §2.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::cursor::Position;
use super::name::{NameError, normalise};
use super::{MICRO_TYPE, hash};
use crate::{ByteOrder, Corrupt};

/// Bytes of a slot, and of the header.
const SLOT: usize = 64;
const NAME_AT: usize = 14;
/// Names are shorter than this many bytes, NUL excluded.
pub const NAME_LIMIT: usize = 50;
/// Block size of a new micro ZAP, and the step by which it grows.
pub const STEP: usize = 512;
/// Largest block without feature `large_microzap`; a full one becomes a fat ZAP.
pub const MAX_SIZE: usize = 128 << 10;
/// Largest block with feature `large_microzap`.
const MAX_SIZE_LARGE: usize = 1 << 20;

const LE: ByteOrder = ByteOrder::Little;

/// A used slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name without its NUL.
    pub name: &'a [u8],
    /// The value.
    pub value: u64,
    /// Collision differentiator: distinguishes entries of equal hash.
    pub cd: u32,
}

/// A micro ZAP's block, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Micro<'a> {
    raw: &'a [u8],
    order: ByteOrder,
}

/// Why a slot wasn't filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// No free slot: [`grow`] the block, or upgrade to a fat ZAP.
    Full,
    /// The name is empty, too long, or contains a NUL: only a fat ZAP could hold it.
    BadName,
    /// The name is there already.
    Exists,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InsertError::Full => "the micro ZAP is full",
            InsertError::BadName => "the name does not fit a micro ZAP",
            InsertError::Exists => "the name exists",
        })
    }
}

impl core::error::Error for InsertError {}

impl<'a> Micro<'a> {
    /// Checks the header, the size, and that each name ends within its slot.
    ///
    /// # Errors
    /// [`Corrupt`] when one of them is wrong.
    pub fn decode(raw: &'a [u8], order: ByteOrder) -> Result<Micro<'a>, Corrupt> {
        if !is_size(raw.len()) {
            return Err(Corrupt::new("micro ZAP block size", raw.len() as u64));
        }
        if order.word(raw, 0) != MICRO_TYPE {
            return Err(Corrupt::new("micro ZAP block type", order.word(raw, 0)));
        }
        if let Some(slot) = slots(raw).position(|slot| slot[SLOT - 1] != 0 && !slot[NAME_AT..].contains(&0)) {
            return Err(Corrupt::new("micro ZAP name without end in slot", slot as u64));
        }
        Ok(Micro { raw, order })
    }

    /// Seed of the hash.
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.order.word(self.raw, 1)
    }

    /// How names are normalised before hashing.
    #[must_use]
    pub fn normflags(&self) -> u64 {
        self.order.word(self.raw, 2)
    }

    /// The used slots, in the order they lie in.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let order = self.order;
        slots(self.raw).filter(|slot| slot[NAME_AT] != 0).map(move |slot| entry(slot, order))
    }

    /// The hash of `name` in this ZAP.
    ///
    /// # Errors
    /// [`NameError`] when the name's normal form isn't known here.
    pub fn hash(&self, name: &[u8]) -> Result<u64, NameError> {
        Ok(hash::hash_bytes(self.salt(), &normalise(name, self.normflags())?, hash::BITS))
    }

    /// The first entry, in order of cd, whose normal form is that of `name`.
    ///
    /// # Errors
    /// [`NameError`] when the normal form of `name`, or of a name here, isn't known.
    pub fn lookup_normalised(&self, name: &[u8]) -> Result<Option<Entry<'a>>, NameError> {
        let wanted = normalise(name, self.normflags())?;
        let mut first: Option<Entry<'a>> = None;
        for entry in self.entries() {
            if first.is_none_or(|found| entry.cd < found.cd)
                && normalise(entry.name, self.normflags())? == wanted
            {
                first = Some(entry);
            }
        }
        Ok(first)
    }
}

/// Whether a micro ZAP's block can have `len` bytes.
fn is_size(len: usize) -> bool {
    (STEP..=MAX_SIZE_LARGE).contains(&len) && len.is_multiple_of(STEP)
}

fn slots(raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    raw.chunks_exact(SLOT).skip(1)
}

fn entry(slot: &[u8], order: ByteOrder) -> Entry<'_> {
    let name = &slot[NAME_AT..];
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Entry { name: &name[..len], value: order.u64(slot, 0), cd: order.u32(slot, 8) }
}

/// Byte offset of the slot that holds exactly `name`.
fn find(raw: &[u8], name: &[u8]) -> Option<usize> {
    if name.is_empty() || name.len() >= NAME_LIMIT || name.contains(&0) {
        return None;
    }
    let end = NAME_AT + name.len();
    // The first byte sorts out nearly every slot without a call.
    let matches = |slot: &[u8]| slot[NAME_AT] == name[0] && slot[end] == 0 && slot[NAME_AT..end] == *name;
    Some((slots(raw).position(matches)? + 1) * SLOT)
}

/// A block of `size` bytes without entries.
///
/// # Panics
/// If `size` is not a multiple of [`STEP`] within the limits, or `salt` is zero.
#[must_use]
pub fn new_block(size: usize, salt: u64, normflags: u64) -> Vec<u8> {
    assert!(is_size(size), "micro ZAP of {size} bytes");
    assert_ne!(salt, 0, "a ZAP's salt is nonzero");
    let mut raw = vec![0; size];
    LE.put_u64(&mut raw, 0, MICRO_TYPE);
    LE.put_u64(&mut raw, 8, salt);
    LE.put_u64(&mut raw, 16, normflags);
    raw
}

/// Adds one [`STEP`] of free slots.
pub fn grow(raw: &mut Vec<u8>) {
    raw.resize(raw.len() + STEP, 0);
}

/// Number of entries.
#[must_use]
pub fn count(raw: &[u8]) -> usize {
    slots(raw).filter(|slot| slot[NAME_AT] != 0).count()
}

/// The entry with exactly this name, in a little-endian block.
#[must_use]
pub fn lookup<'a>(raw: &'a [u8], name: &[u8]) -> Option<Entry<'a>> {
    find(raw, name).map(|at| entry(&raw[at..at + SLOT], LE))
}

/// The lowest cd that no entry of this `hash` has.
///
/// # Errors
/// As [`Micro::hash`].
pub fn lowest_cd(micro: &Micro<'_>, hash: u64) -> Result<u32, NameError> {
    let mut used = Vec::new();
    for entry in micro.entries() {
        if micro.hash(entry.name)? == hash {
            used.push(entry.cd);
        }
    }
    Ok(lowest_unused(used))
}

fn lowest_unused(mut used: Vec<u32>) -> u32 {
    used.sort_unstable();
    used.into_iter().fold(0, |lowest, cd| if cd == lowest { lowest + 1 } else { lowest })
}

/// Fills a free slot. `cd` is the lowest unused one of the name's hash ([`lowest_cd`] or [`Index::cd_for`]).
///
/// # Errors
/// [`InsertError`]; the block is unchanged.
pub fn insert(raw: &mut [u8], name: &[u8], value: u64, cd: u32) -> Result<(), InsertError> {
    fill_slot(raw, name, value, cd).map(|_| ())
}

/// As [`insert`]; returns the number of the slot.
fn fill_slot(raw: &mut [u8], name: &[u8], value: u64, cd: u32) -> Result<usize, InsertError> {
    if name.is_empty() || name.len() >= NAME_LIMIT || name.contains(&0) {
        return Err(InsertError::BadName);
    }
    if find(raw, name).is_some() {
        return Err(InsertError::Exists);
    }
    let free = slots(raw).position(|slot| slot[NAME_AT] == 0).ok_or(InsertError::Full)?;
    let slot = &mut raw[(free + 1) * SLOT..(free + 2) * SLOT];
    slot.fill(0);
    LE.put_u64(slot, 0, value);
    LE.put_u32(slot, 8, cd);
    slot[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
    Ok(free)
}

/// Replaces the value of `name`; `false` when it isn't there.
pub fn update(raw: &mut [u8], name: &[u8], value: u64) -> bool {
    let found = find(raw, name);
    if let Some(at) = found {
        LE.put_u64(raw, at, value);
    }
    found.is_some()
}

/// Clears the slot of `name` and returns its value; `None` when it isn't there.
pub fn remove(raw: &mut [u8], name: &[u8]) -> Option<u64> {
    let at = find(raw, name)?;
    let value = LE.u64(raw, at);
    raw[at..at + SLOT].fill(0);
    Some(value)
}

/// Entries by (hash, cd): iteration order, and the cd of a new name without hashing all others again.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Place and slot number of each entry, sorted.
    sorted: Vec<(Position, u16)>,
}

impl Index {
    /// Hashes every name.
    ///
    /// # Errors
    /// As [`Micro::hash`].
    pub fn build(micro: &Micro<'_>) -> Result<Index, NameError> {
        let mut sorted = Vec::new();
        for (number, slot) in slots(micro.raw).enumerate().filter(|(_, slot)| slot[NAME_AT] != 0) {
            let entry = entry(slot, micro.order);
            let place = Position { hash: micro.hash(entry.name)?, cd: entry.cd };
            sorted.push((place, number as u16));
        }
        sorted.sort_unstable();
        Ok(Index { sorted })
    }

    /// The lowest cd that no entry of this `hash` has.
    #[must_use]
    pub fn cd_for(&self, hash: u64) -> u32 {
        let start = self.sorted.partition_point(|(place, _)| place.hash < hash);
        let same = self.sorted[start..].iter().take_while(|(place, _)| place.hash == hash);
        same.fold(0, |lowest, (place, _)| if place.cd == lowest { lowest + 1 } else { lowest })
    }

    /// The entries of `micro`, the block this index was built from, at or after `from`, in order.
    pub fn entries_from<'a>(
        &'a self,
        micro: Micro<'a>,
        from: Position,
    ) -> impl Iterator<Item = (Position, Entry<'a>)> {
        let start = self.sorted.partition_point(|(place, _)| *place < from);
        self.sorted[start..].iter().map(move |&(place, number)| {
            let at = (usize::from(number) + 1) * SLOT;
            (place, entry(&micro.raw[at..at + SLOT], micro.order))
        })
    }

    /// Inserts into `raw` and notes it here; returns the cd. `hash` is that of the name in this ZAP.
    ///
    /// # Errors
    /// As [`insert`].
    pub fn insert(&mut self, raw: &mut [u8], hash: u64, name: &[u8], value: u64) -> Result<u32, InsertError> {
        let place = Position { hash, cd: self.cd_for(hash) };
        let number = fill_slot(raw, name, value, place.cd)?;
        let index = self.sorted.partition_point(|(other, _)| *other < place);
        self.sorted.insert(index, (place, number as u16));
        Ok(place.cd)
    }

    /// Removes from `raw` and here; returns the value. `hash` is that of the name in this ZAP.
    pub fn remove(&mut self, raw: &mut [u8], hash: u64, name: &[u8]) -> Option<u64> {
        let cd = lookup(raw, name)?.cd;
        let number = (find(raw, name)? / SLOT - 1) as u16;
        self.sorted.retain(|&(place, slot)| slot != number || place != Position { hash, cd });
        remove(raw, name)
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

/// Turns a block into the other byte order.
pub(super) fn swap(raw: &mut [u8]) {
    let mut slots = raw.chunks_exact_mut(SLOT);
    if let Some(header) = slots.next() {
        header.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    }
    for slot in slots {
        slot[..8].reverse();
        slot[8..12].reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_block_takes_another_name_after_it_grew() {
        let mut raw = new_block(512, 1, 0);
        for i in 0..7u8 {
            assert_eq!(insert(&mut raw, &[b'a' + i], i.into(), 0), Ok(()));
        }
        assert_eq!(insert(&mut raw, b"z", 9, 0), Err(InsertError::Full));
        grow(&mut raw);
        assert_eq!(insert(&mut raw, b"z", 9, 0), Ok(()));
        assert_eq!(insert(&mut raw, b"z", 9, 0), Err(InsertError::Exists));
        assert_eq!(count(&raw), 8);
        assert_eq!(lookup(&raw, b"z"), Some(Entry { name: b"z", value: 9, cd: 0 }));
        assert!(update(&mut raw, b"z", 10));
        assert_eq!(remove(&mut raw, b"z"), Some(10));
        assert_eq!(remove(&mut raw, b"z"), None);
        assert_eq!((lookup(&raw, b"z"), count(&raw)), (None, 7));
    }

    #[test]
    fn a_name_of_49_bytes_fits_and_one_of_50_does_not() {
        let mut raw = new_block(512, 1, 0);
        assert_eq!(insert(&mut raw, &[b'x'; 50], 1, 0), Err(InsertError::BadName));
        assert_eq!(insert(&mut raw, &[b'x'; 49], 1, 0), Ok(()));
        assert_eq!(Micro::decode(&raw, LE).unwrap().entries().next().unwrap().name, [b'x'; 49]);
        assert_eq!(lookup(&raw, &[b'x'; 48]), None);
        assert_eq!(insert(&mut raw, b"", 1, 0), Err(InsertError::BadName));
        assert_eq!(insert(&mut raw, b"a\0b", 1, 0), Err(InsertError::BadName));
    }

    #[test]
    fn a_name_without_end_is_corrupt() {
        let mut raw = new_block(512, 1, 0);
        raw[64 + NAME_AT..128].fill(b'x');
        assert_eq!(
            Micro::decode(&raw, LE).map(|_| ()),
            Err(Corrupt::new("micro ZAP name without end in slot", 0))
        );
        assert!(Micro::decode(&raw[..511], LE).is_err());
        assert!(Micro::decode(&[0; 512], LE).is_err());
    }

    #[test]
    fn colliding_names_get_the_lowest_unused_cd() {
        assert_eq!(lowest_unused(Vec::new()), 0);
        assert_eq!(lowest_unused(vec![1, 0, 3]), 2);
        let mut index = Index::default();
        let mut raw = new_block(512, 1, 0);
        for name in [b"a", b"b", b"c"] {
            index.insert(&mut raw, 7 << 36, name, 0).unwrap();
        }
        assert_eq!(index.remove(&mut raw, 7 << 36, b"b"), Some(0));
        assert_eq!(index.cd_for(7 << 36), 1);
        assert_eq!(index.cd_for(8 << 36), 0);
    }

    #[test]
    fn names_with_the_same_normal_form_are_ordered_by_their_collision_number() {
        let mut raw = new_block(512, 1, 2);
        insert(&mut raw, b"Daily", 1, 1).unwrap();
        insert(&mut raw, b"DAILY", 2, 0).unwrap();
        let micro = Micro::decode(&raw, LE).unwrap();
        assert_eq!(micro.lookup_normalised(b"daily").unwrap().unwrap().value, 2);
        assert_eq!(micro.lookup_normalised(b"weekly"), Ok(None));
        assert_eq!(lowest_cd(&micro, micro.hash(b"dailY").unwrap()), Ok(2));
    }

    #[test]
    fn a_foreign_block_reads_the_same_before_and_after_turning() {
        let mut raw = new_block(512, 0x1122, 0);
        insert(&mut raw, b"name", 0x3344, 5).unwrap();
        let mut foreign = raw.clone();
        swap(&mut foreign);
        let read = Micro::decode(&foreign, ByteOrder::Big).unwrap();
        assert_eq!((read.salt(), read.entries().next()), (0x1122, lookup(&raw, b"name")));
        super::super::swap(&mut foreign);
        assert_eq!(foreign, raw);
    }
}

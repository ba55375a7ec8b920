//! Space maps: logs of ranges allocated and freed.
//!
//! From:   the data of a space map object, and its bonus.
//! To:     `storage`'s allocator (ranges), `pool` (what to append to the object).
//! Source: docs/format/05-space-maps.md §2.

use alloc::vec::Vec;

use crate::{ByteOrder, Corrupt, ObjectId, Txg, VdevId};

/// Bytes of the bonus without histogram (pools without feature `spacemap_histogram`).
pub const HEADER_V0: usize = 24;
/// Bytes of the bonus with histogram.
pub const HEADER_SIZE: usize = 320;
/// Buckets of a histogram.
pub const BUCKETS: usize = 32;
/// log2 bytes of the unit of log space maps.
pub const LOG_SHIFT: u32 = 9;

const HISTOGRAM_AT: usize = 0x40;
/// Longest run of a one-word entry, in units.
const ONE_WORD_RUN: u64 = 1 << 15;
/// First offset too large for a one-word entry, in units.
const ONE_WORD_OFFSET: u64 = 1 << 47;
/// Longest run of a two-word entry, in units.
const TWO_WORD_RUN: u64 = 1 << 36;
/// A debug word with txg 0: padding in the last word of a block before a two-word entry.
const PADDING: u64 = 2 << 62;

/// The bonus of a space map object.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// The object itself.
    pub object: ObjectId,
    /// Bytes of entries in use.
    pub length: u64,
    /// Bytes allocated less bytes freed, over all entries.
    pub alloc: i64,
    /// Free segments by size: bucket `i` counts sizes from `2^(i + shift)` bytes. `None`: the old short bonus.
    pub histogram: Option<[u64; BUCKETS]>,
}

impl Header {
    /// Decodes a bonus of [`HEADER_V0`] or [`HEADER_SIZE`] bytes.
    ///
    /// # Errors
    /// [`Corrupt`] for another length, or entries that are not whole words.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        if bonus.len() != HEADER_V0 && bonus.len() != HEADER_SIZE {
            return Err(Corrupt::new("space map bonus length", bonus.len() as u64));
        }
        let length = order.u64(bonus, 8);
        if !length.is_multiple_of(8) {
            return Err(Corrupt::new("space map length", length));
        }
        Ok(Header {
            object: ObjectId(order.u64(bonus, 0)),
            length,
            alloc: order.u64(bonus, 16) as i64,
            histogram: (bonus.len() == HEADER_SIZE)
                .then(|| core::array::from_fn(|i| order.word(&bonus[HISTOGRAM_AT..], i))),
        })
    }

    /// The bonus, little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let order = ByteOrder::Little;
        let mut bonus = alloc::vec![0; if self.histogram.is_some() { HEADER_SIZE } else { HEADER_V0 }];
        order.put_u64(&mut bonus, 0, self.object.0);
        order.put_u64(&mut bonus, 8, self.length);
        order.put_u64(&mut bonus, 16, self.alloc as u64);
        for (i, count) in self.histogram.iter().flatten().enumerate() {
            order.put_u64(&mut bonus, HISTOGRAM_AT + 8 * i, *count);
        }
        bonus
    }
}

/// The change of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It was allocated.
    Alloc,
    /// It was freed.
    Free,
}

/// A range allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which of the two.
    pub kind: Kind,
    /// First byte, counted from where the map's vdev (or DTL) begins.
    pub offset: u64,
    /// Bytes (or txgs, in a DTL).
    pub run: u64,
    /// The vdev id of a two-word entry; it means something in log space maps only.
    pub vdev: Option<VdevId>,
}

/// Where the offsets of a map begin, and their unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First byte of the mapped range: a metaslab's start, else 0.
    pub start: u64,
    /// log2 bytes of a unit: ashift for metaslabs, [`LOG_SHIFT`] for logs, 0 for DTLs.
    pub shift: u32,
}

/// Reads the entries in `raw`, which is the used part of a map or whole blocks of it. Debug and padding
/// words are passed over. The iterator ends after the first error.
pub fn entries(raw: &[u8], order: ByteOrder, layout: Layout) -> Entries<'_> {
    Entries { rest: raw, order, layout }
}

/// Iterator of [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    order: ByteOrder,
    layout: Layout,
}

impl Entries<'_> {
    fn word(&mut self) -> Result<Option<u64>, Corrupt> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (word, rest) =
            self.rest.split_at_checked(8).ok_or(Corrupt::new("space map length", self.rest.len() as u64))?;
        self.rest = rest;
        Ok(Some(self.order.u64(word, 0)))
    }

    fn entry(&mut self) -> Result<Option<Entry>, Corrupt> {
        loop {
            let Some(word) = self.word()? else { return Ok(None) };
            let (free, offset, run, vdev) = match word >> 62 {
                0 | 1 => (word >> 15 & 1 == 1, word >> 16, (word & 0x7fff) + 1, None),
                2 => continue,
                _ => {
                    if word >> 60 & 3 != 0 {
                        return Err(Corrupt::new("space map entry padding", word));
                    }
                    let second = self.word()?.ok_or(Corrupt::new("half a space map entry", word))?;
                    let vdev = VdevId((word & 0xff_ffff) as u32);
                    (second >> 63 == 1, second << 1 >> 1, (word >> 24 & (TWO_WORD_RUN - 1)) + 1, Some(vdev))
                }
            };
            let Layout { start, shift } = self.layout;
            let bytes = |units: u64| units.checked_mul(1 << shift);
            let end = bytes(offset)
                .zip(bytes(run))
                .and_then(|(offset, run)| Some((start.checked_add(offset)?, run)))
                .filter(|(offset, run)| offset.checked_add(*run).is_some());
            let (offset, run) = end.ok_or(Corrupt::new("space map entry offset", offset))?;
            let kind = if free { Kind::Free } else { Kind::Alloc };
            return Ok(Some(Entry { kind, offset, run, vdev }));
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.entry().transpose();
        if let Some(Err(_)) = item {
            self.rest = &[];
        }
        item
    }
}

/// Makes the bytes to append to a space map.
#[derive(Clone, Debug)]
pub struct Writer {
    layout: Layout,
    block_size: u64,
    two_words: bool,
    at: u64,
    out: Vec<u8>,
}

impl Writer {
    /// A writer that continues a map of `length` bytes with blocks of `block_size` bytes. `two_words`: whether the feature
    /// `spacemap_v2` is active.
    ///
    /// # Panics
    /// If the length is no multiple of a word, or the block size none of two words.
    #[must_use]
    pub fn new(length: u64, block_size: u64, layout: Layout, two_words: bool) -> Writer {
        assert!(length.is_multiple_of(8), "a space map is made of words");
        assert!(block_size > 0 && block_size.is_multiple_of(16), "two-word entries fit in a block");
        assert!(layout.shift < 64, "a unit is less than the whole");
        Writer { layout, block_size, two_words, at: length, out: Vec::new() }
    }

    fn put(&mut self, word: u64) {
        self.out.extend_from_slice(&word.to_le_bytes());
        self.at += 8;
    }

    /// Notes that entries of one kind from this sync pass follow; only for people who read the map.
    pub fn note(&mut self, kind: Kind, txg: Txg, pass: u32) {
        // With txg 0 it would be a padding word, which is harmless.
        self.put(PADDING | (kind as u64) << 60 | (u64::from(pass) & 0x3ff) << 50 | txg.0 & ((1 << 50) - 1));
    }

    /// Appends an entry, in as many words as it takes.
    ///
    /// # Panics
    /// If the range is empty, lies before the layout's start, is not made of units, or needs two words (a
    /// vdev, a very large offset) where they are not allowed.
    pub fn push(&mut self, entry: Entry) {
        let Layout { start, shift } = self.layout;
        assert!(entry.run > 0, "a range has bytes");
        assert!(entry.offset >= start, "a range lies in its map");
        let relative = entry.offset - start;
        assert!((relative | entry.run).trailing_zeros() >= shift, "a range is made of whole units");
        let (mut offset, mut run) = (relative >> shift, entry.run >> shift);
        let needs_two = entry.vdev.is_some() || run > ONE_WORD_RUN || offset + run > ONE_WORD_OFFSET;
        let two = self.two_words && needs_two;
        assert!(two || entry.vdev.is_none() && offset + run <= ONE_WORD_OFFSET, "two words are allowed");
        let vdev = entry.vdev.map_or(0, |vdev| u64::from(vdev.0));
        assert!(vdev < 1 << 24, "vdev ids have 24 bits");
        while run > 0 {
            let part = run.min(if two { TWO_WORD_RUN } else { ONE_WORD_RUN });
            if two {
                if self.at % self.block_size == self.block_size - 8 {
                    self.put(PADDING);
                }
                self.put(3 << 62 | (part - 1) << 24 | vdev);
                self.put((entry.kind as u64) << 63 | offset);
            } else {
                self.put(offset << 16 | (entry.kind as u64) << 15 | (part - 1));
            }
            offset += part;
            run -= part;
        }
    }

    /// The bytes to append, little-endian.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// The histogram of free segments of these sizes in bytes, for a map with this shift.
#[must_use]
pub fn histogram(segments: impl IntoIterator<Item = u64>, shift: u32) -> [u64; BUCKETS] {
    let mut buckets = [0; BUCKETS];
    for size in segments.into_iter().filter(|size| *size > 0) {
        let bucket = size.ilog2().saturating_sub(shift) as usize;
        buckets[bucket.min(BUCKETS - 1)] += 1;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All entries of a metaslab of a pool of OpenZFS 2.1.11: start 0, ashift 9, alloc 0x2b400.
    const REAL: &[u8] = include_bytes!("../tests/fixtures/space-map.raw");
    const SECTORS: Layout = Layout { start: 0, shift: 9 };

    #[test]
    fn a_real_map_sums_up_to_its_header() {
        let (mut sum, mut first) = (0i64, None);
        for entry in entries(REAL, ByteOrder::Little, SECTORS) {
            let entry = entry.unwrap();
            first.get_or_insert(entry);
            sum += if entry.kind == Kind::Alloc { entry.run as i64 } else { -(entry.run as i64) };
        }
        assert_eq!(sum, 0x2b400);
        assert_eq!(first, Some(Entry { kind: Kind::Alloc, offset: 0, run: 0x2e00, vdev: None }));
    }

    #[test]
    fn a_real_batch_comes_out_byte_for_byte() {
        let mut writer = Writer::new(0, 131_072, SECTORS, true);
        writer.note(Kind::Alloc, Txg(5), 1);
        writer.push(Entry { kind: Kind::Alloc, offset: 0, run: 0x2e00, vdev: None });
        writer.push(Entry { kind: Kind::Alloc, offset: 0x3000, run: 0x5a00, vdev: None });
        assert_eq!(writer.finish(), REAL[..24]);
    }

    #[test]
    fn a_two_word_entry_never_straddles_a_block_border() {
        let entry = Entry { kind: Kind::Free, offset: 512, run: 512, vdev: Some(VdevId(3)) };
        let mut writer = Writer::new(4088, 4096, SECTORS, true);
        writer.push(entry);
        let raw = writer.finish();
        assert_eq!(raw.len(), 24);
        assert_eq!(ByteOrder::Little.word(&raw, 0), PADDING);
        assert_eq!(ByteOrder::Little.word(&raw, 1), 0xc000_0000_0000_0003);
        assert_eq!(ByteOrder::Little.word(&raw, 2), 0x8000_0000_0000_0001);
        let read: Vec<_> = entries(&raw, ByteOrder::Little, SECTORS).collect();
        assert_eq!(read, [Ok(entry)]);
    }

    #[test]
    fn half_a_space_map_entry_is_refused_and_ends_the_iteration() {
        let raw = (3u64 << 62).to_le_bytes();
        let mut all = entries(&raw, ByteOrder::Little, SECTORS);
        assert_eq!(all.next(), Some(Err(Corrupt::new("half a space map entry", 3 << 62))));
        assert_eq!(all.next(), None);
        assert!(entries(&raw[..7], ByteOrder::Little, SECTORS).next().unwrap().is_err());
    }

    #[test]
    fn an_offset_beyond_all_vdevs_is_refused() {
        let raw: Vec<u8> = [3u64 << 62, (1 << 63) - 1].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert!(entries(&raw, ByteOrder::Little, SECTORS).next().unwrap().is_err());
    }

    #[test]
    fn segments_are_counted_by_their_highest_bit() {
        let buckets = histogram([512, 1023, 1024, 1 << 63, 0], 9);
        assert_eq!((buckets[0], buckets[1], buckets[31]), (2, 1, 1));
        assert_eq!(buckets.iter().sum::<u64>(), 4);
    }

    proptest! {
        #[test]
        fn written_space_map_entries_cover_the_pushed_ranges(
            pushed in prop::collection::vec((any::<bool>(), 0u64..1 << 40, 1u64..1 << 38), 0..20),
            start in 0u64..1000, shift in 0u32..17, two in any::<bool>(), length in 0u64..600,
        ) {
            let layout = Layout { start: start << shift, shift };
            let mut writer = Writer::new(length * 8, 512, layout, two);
            let bound = if two { u64::MAX } else { 1 << 20 };
            let pushed: Vec<Entry> = pushed.into_iter().map(|(free, offset, run)| Entry {
                kind: if free { Kind::Free } else { Kind::Alloc },
                offset: layout.start + (offset << shift),
                run: run.min(bound) << shift,
                vdev: None,
            }).collect();
            pushed.iter().for_each(|entry| writer.push(*entry));
            let raw = writer.finish();
            let mut read: Vec<Entry> = Vec::new();
            for entry in entries(&raw, ByteOrder::Little, layout) {
                let entry = Entry { vdev: None, ..entry.unwrap() };
                // Parts of one long run follow each other.
                let whole = pushed.get(read.len().wrapping_sub(1));
                match (read.last_mut(), whole) {
                    (Some(last), Some(whole)) if last.run < whole.run => {
                        prop_assert_eq!((entry.kind, entry.offset), (last.kind, last.offset + last.run));
                        last.run += entry.run;
                    }
                    _ => read.push(entry),
                }
            }
            prop_assert_eq!(read, pushed);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(raw in prop::collection::vec(any::<u8>(), 0..200), shift in 0u32..20) {
            let layout = Layout { start: 1 << 40, shift };
            prop_assert!(entries(&raw, ByteOrder::Little, layout).count() <= raw.len() / 8 + 1);
            let _ = Header::decode(&raw, ByteOrder::Big);
        }

        #[test]
        fn a_header_survives_a_round_trip(a in any::<(u64, u64, i64)>(), h in any::<Option<[u64; BUCKETS]>>()) {
            let header = Header { object: ObjectId(a.0), length: a.1 & !7, alloc: a.2, histogram: h };
            prop_assert_eq!(Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
        }
    }
}

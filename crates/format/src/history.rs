//! The pool's history: a ring of records of commands and events.
//!
//! From:   the bonus and data of the object of type SPA_HISTORY.
//! To:     `pool`, which appends records; `cli`, which prints them.
//! Source: docs/format/06-mos-dsl.md §1.4.

use alloc::vec::Vec;

use crate::{ByteOrder, Corrupt, NvList};

/// Bytes of the bonus.
pub const SIZE: usize = 40;
/// Smallest ring, in bytes.
pub const RING_MIN: u64 = 128 << 10;
/// Largest ring, in bytes.
pub const RING_MAX: u64 = 1 << 30;
/// Bytes of the length before each record, always little-endian.
pub const LENGTH_WORD: u64 = 8;
/// Longest record that is read, in bytes: more than OpenZFS writes.
pub const RECORD_MAX: u64 = 16 << 20;

/// Begin and end of the ring. The first record stays forever; the ring follows it. Positions in the ring are logical: they
/// only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Bytes of the first record, which describes how the pool was made; 0 until it is there.
    pub create_len: u64,
    /// Bytes of the object.
    pub size: u64,
    /// Logical begin of the oldest record in the ring.
    pub begin: u64,
    /// Logical end of the newest record.
    pub end: u64,
    /// Records that gave way to newer ones.
    pub records_lost: u64,
}

impl Ring {
    /// An empty ring for a pool whose normal vdevs hold `space` bytes.
    #[must_use]
    pub fn new(space: u64) -> Ring {
        let size = (space / 1000).clamp(RING_MIN, RING_MAX);
        Ring { create_len: 0, size, begin: 0, end: 0, records_lost: 0 }
    }

    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt`] when the positions make no ring.
    pub fn decode(bonus: &[u8], order: ByteOrder) -> Result<Ring, Corrupt> {
        if bonus.len() < SIZE {
            return Err(Corrupt::new("history bonus length", bonus.len() as u64));
        }
        let [create_len, size, begin, end, records_lost] = [0, 1, 2, 3, 4].map(|i| order.word(bonus, i));
        if create_len >= size || size > 1 << 40 {
            return Err(Corrupt::new("history size", size));
        }
        // An impossible position, which would overflow with the next record.
        if begin < create_len || begin > end || end - begin > size - create_len || end > u64::MAX - size {
            return Err(Corrupt::new("history end", end));
        }
        Ok(Ring { create_len, size, begin, end, records_lost })
    }

    /// The bonus, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let mut raw = [0; SIZE];
        let words = [self.create_len, self.size, self.begin, self.end, self.records_lost];
        for (i, word) in words.into_iter().enumerate() {
            ByteOrder::Little.put_u64(&mut raw, 8 * i, word);
        }
        raw
    }

    /// Where `len` bytes from logical position `at` lie in the object: one or two pieces (offset, length).
    /// A piece of length 0 is none.
    ///
    /// # Panics
    /// If `len` is more than the ring.
    #[must_use]
    pub fn pieces(&self, at: u64, len: u64) -> [(u64, u64); 2] {
        let ring = self.size - self.create_len;
        assert!(len <= ring, "the ring holds what is asked of it");
        let offset = self.create_len + at.saturating_sub(self.create_len) % ring;
        let first = len.min(self.size - offset);
        [(offset, first), (self.create_len, len - first)]
    }

    /// Whether the oldest record must go before `len` more bytes can be written.
    #[must_use]
    pub const fn must_drop(&self, len: u64) -> bool {
        self.begin < self.end && self.size - self.create_len - (self.end - self.begin) <= len
    }

    /// Whether `len` bytes can be written once nothing must be dropped for them. A ring that OpenZFS made is large enough.
    #[must_use]
    pub const fn has_room(&self, len: u64) -> bool {
        len < self.size - self.create_len && !self.must_drop(len)
    }

    /// Forgets the oldest record, which is `record_len` bytes long without its length word.
    ///
    /// # Errors
    /// [`Corrupt`] when the record would end behind the newest one.
    pub fn drop_oldest(&mut self, record_len: u64) -> Result<(), Corrupt> {
        let begin = record_len.checked_add(LENGTH_WORD).and_then(|len| self.begin.checked_add(len));
        self.begin =
            begin.filter(|at| *at <= self.end).ok_or(Corrupt::new("history record length", record_len))?;
        self.records_lost = self.records_lost.saturating_add(1);
        Ok(())
    }

    /// Notes that `len` bytes, length word included, were written at the end. The first record with a
    /// command (`is_command`) closes the part that is kept for ever, if it is near the begin: the command that makes a pool is
    /// among the first records, and a program that makes pools without a command may fill the ring before the first command is logged.
    ///
    /// # Panics
    /// If room was not made before.
    pub fn appended(&mut self, len: u64, is_command: bool) {
        assert!(!self.must_drop(len), "room was made for the record");
        self.end += len;
        let is_early = self.records_lost == 0 && self.end <= self.size / 4;
        if self.create_len == 0 && is_command && is_early {
            self.create_len = self.end;
            self.begin = self.end;
        }
    }
}

/// The bytes of a record with its length word.
#[must_use]
pub fn frame(record: &NvList) -> Vec<u8> {
    let packed = record.to_native();
    let mut raw = (packed.len() as u64).to_le_bytes().to_vec();
    raw.extend_from_slice(&packed);
    raw
}

/// Takes the record off the front of `raw`; `None` at the end of input.
///
/// # Errors
/// [`Corrupt`] for a length beyond the input, or a bad list.
pub fn take(raw: &mut &[u8]) -> Result<Option<NvList>, Corrupt> {
    if raw.is_empty() {
        return Ok(None);
    }
    let Some((word, rest)) = raw.split_at_checked(LENGTH_WORD as usize) else {
        return Err(Corrupt::new("history record header length", raw.len() as u64));
    };
    let len = ByteOrder::Little.u64(word, 0);
    let bad = Corrupt::new("history record length", len);
    let (record, rest) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)).ok_or(bad)?;
    *raw = rest;
    NvList::decode(record).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    /// The first records of a pool of OpenZFS 2.1.11.
    const REAL: &[u8] = include_bytes!("../tests/fixtures/history.raw");

    #[test]
    fn real_records_come_out_byte_for_byte() {
        let (mut rest, mut names) = (REAL, Vec::new());
        loop {
            let before = rest;
            let Some(record) = take(&mut rest).unwrap() else { break };
            assert_eq!(frame(&record), before[..before.len() - rest.len()]);
            assert!(record.get_u64("history time").is_some());
            names.push(record.get_str("internal_name").map(String::from));
        }
        assert_eq!(names.len(), 11);
        assert_eq!(names[0].as_deref(), Some("create"));
    }

    #[test]
    fn the_first_command_is_kept_for_ever() {
        let mut ring = Ring::new(0);
        assert_eq!(ring.size, RING_MIN);
        ring.appended(384, true);
        assert_eq!((ring.create_len, ring.begin, ring.end), (384, 384, 384));
        ring.appended(1000, true);
        assert_eq!((ring.create_len, ring.begin, ring.end), (384, 384, 1384));
        assert_eq!(ring.pieces(384 + 2 * (RING_MIN - 384) - 10, 30), [(RING_MIN - 10, 10), (384, 20)]);
    }

    #[test]
    fn a_command_in_a_full_ring_is_not_kept_for_ever() {
        let lost = Ring { create_len: 0, size: 251_658, begin: 204_640, end: 456_112, records_lost: 642 };
        let late = Ring { begin: 0, end: 200_000, records_lost: 0, ..lost };
        for mut ring in [lost, late] {
            while ring.must_drop(400) {
                ring.drop_oldest(300).unwrap();
            }
            ring.appended(400, true);
            assert_eq!(ring.create_len, 0);
            assert_eq!(Ring::decode(&ring.encode(), ByteOrder::Little), Ok(ring));
        }
    }

    #[test]
    fn counters_at_their_maximum_are_accepted() {
        let worn = Ring { create_len: 100, size: 1100, begin: 100, end: 1000, records_lost: u64::MAX };
        let mut ring = Ring::decode(&worn.encode(), ByteOrder::Little).unwrap();
        ring.drop_oldest(192).unwrap();
        assert_eq!(ring.records_lost, u64::MAX);
        let end = u64::MAX - 1000;
        let impossible = Ring { begin: end - 500, end, ..worn };
        assert!(Ring::decode(&impossible.encode(), ByteOrder::Little).is_err());
    }

    #[test]
    fn the_oldest_records_are_dropped() {
        let mut ring = Ring { create_len: 100, size: 1100, begin: 100, end: 1000, records_lost: 0 };
        assert!(!ring.must_drop(99));
        assert!(ring.must_drop(100));
        assert!(ring.drop_oldest(1000).is_err());
        ring.drop_oldest(192).unwrap();
        assert!(!ring.must_drop(100));
        assert_eq!((ring.begin, ring.records_lost), (300, 1));
    }

    proptest! {
        #[test]
        fn any_ring_decodes_or_is_refused(words in any::<[u64; 5]>(), small in any::<bool>()) {
            let raw: Vec<u8> =
                words.iter().flat_map(|w| if small { w % 5000 } else { *w }.to_le_bytes()).collect();
            if let Ok(ring) = Ring::decode(&raw, ByteOrder::Little) {
                prop_assert_eq!(ring.encode().to_vec(), raw);
                let len = ring.end - ring.begin;
                let pieces = ring.pieces(ring.begin, len);
                prop_assert_eq!(pieces[0].1 + pieces[1].1, len);
                prop_assert!(pieces.iter().all(|(at, len)| at + len <= ring.size));
            }
        }

        #[test]
        fn any_bytes_are_records_or_refused(at in 0..REAL.len(), byte in any::<u8>()) {
            let mut raw = REAL.to_vec();
            raw[at] = byte;
            let mut rest = raw.as_slice();
            while let Ok(Some(_)) = take(&mut rest) {}
        }
    }
}

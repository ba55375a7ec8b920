//! Logs of dedup tables: entries that are newer than those in the stores (feature `fast_dedup`).
//!
//! From:   the bonus and the blocks of a log object in the MOS.
//! To:     `pool`, which reads the tables.
//! Source: docs/format/14-dedup-and-cloning.md §2.3, §6.1, §6.2.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ddt::{Entry, KEY_WORDS, KINDS, Key, Slot};
use crate::{ByteOrder, ChecksumKind, Corrupt, Txg};

/// Words of the value of an entry.
const FLAT_WORDS: usize = 9;
/// Bytes of the value of an entry, before compression.
pub const FLAT_SIZE: usize = FLAT_WORDS * 8;
const RECORD_SIZE: usize = 8 + KEY_WORDS * 8 + FLAT_SIZE;
const HEADER_SIZE: usize = 0x40;
const ENTRY: u64 = 1;
const VERSION: u64 = 1;
const FLUSHING: u64 = 1;
const CHECKPOINT: u64 = 2;

/// The names of a table and of its logs in the object directory and in the table's own directory.
#[must_use]
pub fn names(kind: ChecksumKind) -> Option<(String, [String; 2])> {
    let (_, word) = KINDS.iter().find(|(known, _)| *known == kind)?;
    Some((format!("DDT-{word}"), [0, 1].map(|number| format!("DDT-log-{word}-{number}"))))
}

/// Decodes the value of an entry. It has one slot, whatever the number of its copies.
///
/// # Errors
/// [`Corrupt`] for another length.
pub fn decode_flat(raw: &[u8], order: ByteOrder) -> Result<Entry, Corrupt> {
    if raw.len() != FLAT_SIZE {
        return Err(Corrupt::new("dedup table entry length", raw.len() as u64));
    }
    let word = |i| order.word(raw, i);
    let slot = Slot { places: [0, 1, 2, 3, 4, 5].map(word), refs: word(6), birth: Txg(word(7)) };
    let mut entry = Entry::default();
    entry.slots[1] = slot;
    Ok(entry)
}

/// What the bonus says of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Set: its entries are being moved into the stores. Not set: it takes new entries.
    pub is_flushing: bool,
    /// Bytes that count.
    pub length: u64,
    /// Entries up to this key are in the stores.
    pub checkpoint: Option<Key>,
}

impl Header {
    /// Decodes a bonus.
    ///
    /// # Errors
    /// [`Corrupt`] for another length or version.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        if raw.len() < HEADER_SIZE {
            return Err(Corrupt::new("dedup log header length", raw.len() as u64));
        }
        let word = |i| order.word(raw, i);
        if word(0) & 0xff != VERSION {
            return Err(Corrupt::new("dedup log version", word(0) & 0xff));
        }
        let flags = word(0) >> 8 & 0xff;
        let checkpoint = Key([3, 4, 5, 6, 7].map(word));
        Ok(Header {
            is_flushing: flags & FLUSHING != 0,
            length: word(1),
            checkpoint: (flags & CHECKPOINT != 0).then_some(checkpoint),
        })
    }
}

/// The entries of a block of a log.
///
/// # Errors
/// [`Corrupt`] for a record of another kind or length.
pub fn records(block: &[u8], order: ByteOrder) -> Result<Vec<(Key, Entry)>, Corrupt> {
    let mut found = Vec::new();
    let mut rest = block;
    while rest.len() >= 8 {
        let head = order.word(rest, 0);
        match head & 0xff {
            0 => break,
            ENTRY => {}
            other => return Err(Corrupt::new("dedup log record", other)),
        }
        let len = (head >> 8 & 0xffff) as usize;
        if len < RECORD_SIZE || len > rest.len() || !len.is_multiple_of(8) {
            return Err(Corrupt::new("dedup log record length", len as u64));
        }
        let (record, behind) = rest.split_at(len);
        let key = Key([1, 2, 3, 4, 5].map(|i| order.word(record, i)));
        found.push((key, decode_flat(&record[8 + KEY_WORDS * 8..RECORD_SIZE], order)?));
        rest = behind;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const LE: ByteOrder = ByteOrder::Little;

    #[test]
    fn records_follow_each_other_until_one_of_no_kind() {
        let mut block = vec![0; 3 * RECORD_SIZE];
        for (number, record) in block.chunks_exact_mut(RECORD_SIZE).take(2).enumerate() {
            LE.put_u64(record, 0, ENTRY | (RECORD_SIZE as u64) << 8);
            LE.put_u64(record, 8, 7 + number as u64);
            LE.put_u64(record, 8 + KEY_WORDS * 8 + 48, 3);
            LE.put_u64(record, 8 + KEY_WORDS * 8 + 56, 99);
        }
        let found = records(&block, LE).unwrap();
        assert_eq!(found.iter().map(|(key, _)| key.0[0]).collect::<Vec<_>>(), [7, 8]);
        assert_eq!((found[0].1.refs(), found[0].1.slots[1].birth), (3, Txg(99)));
        for (at, wrong) in [(0, 5), (0, ENTRY | 8 << 8), (0, ENTRY | 0xffff << 8)] {
            let mut block = block.clone();
            LE.put_u64(&mut block, at, wrong);
            assert!(records(&block, LE).is_err(), "{wrong:#x}");
        }
        assert_eq!(records(&[], LE), Ok(Vec::new()));
    }

    #[test]
    fn a_header_tells_of_its_checkpoint_only_where_there_is_one() {
        let mut raw = [0; HEADER_SIZE];
        LE.put_u64(&mut raw, 0, VERSION | FLUSHING << 8);
        LE.put_u64(&mut raw, 0x18, 5);
        let header = Header::decode(&raw, LE).unwrap();
        assert!(header.is_flushing && header.checkpoint.is_none());
        LE.put_u64(&mut raw, 0, VERSION | CHECKPOINT << 8);
        assert_eq!(Header::decode(&raw, LE).unwrap().checkpoint, Some(Key([5, 0, 0, 0, 0])));
        assert!(Header::decode(&[0; HEADER_SIZE], LE).is_err() && Header::decode(&[1; 8], LE).is_err());
    }
}

//! Logs of dedup tables: entries that are newer than those in the stores (feature `fast_dedup`).
//!
//! From:   the bonus and the blocks of a log object in the MOS.
//! To:     `pool`, which keeps the tables.
//! Source: docs/format/14-dedup-and-cloning.md §2.3, §6.1, §6.2.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ddt::{Class, Entry, FLAT_SLOT, KEY_WORDS, KINDS, Key, Slot};
use crate::{ByteOrder, ChecksumKind, Corrupt, Txg};

/// Words of the value of an entry.
const FLAT_WORDS: usize = 9;
/// Bytes of the value of an entry, before compression.
pub const FLAT_SIZE: usize = FLAT_WORDS * 8;
const VALUE_AT: usize = 8 + KEY_WORDS * 8;
/// Bytes of a record as it is written here.
pub const RECORD_SIZE: usize = VALUE_AT + FLAT_SIZE;
/// Bytes of the bonus of a log.
pub const HEADER_SIZE: usize = 0x40;
const ENTRY: u64 = 1;
const VERSION: u64 = 1;
const FLUSHING: u64 = 1;
const CHECKPOINT: u64 = 2;
/// Kind and class of a store in a record, of an entry that is in none.
const NO_STORE: u64 = 1;
const NO_CLASS: u64 = 3;

/// The names of a table and of its logs in the object directory and in the table's own directory.
#[must_use]
pub fn names(kind: ChecksumKind) -> Option<(String, [String; 2])> {
    let (_, word) = KINDS.iter().find(|(known, _)| *known == kind)?;
    Some((format!("DDT-{word}"), [0, 1].map(|number| format!("DDT-log-{word}-{number}"))))
}

/// Key of the version in a table's directory, and the only one.
pub const VERSION_KEY: (&str, u64) = ("version", 1);
/// Key of the flags in a table's directory, and the only ones that are known: flat entries, and logs.
pub const FLAGS_KEY: (&str, u64) = ("flags", 3);
/// Bytes of a block of a log.
pub const BLOCK_SIZE: usize = 128 << 10;

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
    Ok(Entry::flat(slot, word(8)))
}

/// The value of an entry before compression.
#[must_use]
pub fn encode_flat(entry: &Entry) -> [u8; FLAT_SIZE] {
    let mut raw = [0; FLAT_SIZE];
    let Slot { places, refs, birth } = entry.slots[FLAT_SLOT];
    let words = places.into_iter().chain([refs, birth.0, entry.changed]);
    words.enumerate().for_each(|(i, word)| ByteOrder::Little.put_u64(&mut raw, i * 8, word));
    raw
}

/// The header of a log, from the bonus of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Set: its entries are being moved into the stores. Not set: it takes new entries.
    pub is_flushing: bool,
    /// Bytes that count.
    pub length: u64,
    /// Since when new entries went into it.
    pub first_txg: Txg,
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
            first_txg: Txg(word(2)),
            checkpoint: (flags & CHECKPOINT != 0).then_some(checkpoint),
        })
    }

    /// The bonus.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let flushing = if self.is_flushing { FLUSHING } else { 0 };
        let checkpoint = if self.checkpoint.is_some() { CHECKPOINT } else { 0 };
        let head = VERSION | (flushing | checkpoint) << 8;
        let key = self.checkpoint.map_or([0; KEY_WORDS], |key| key.0);
        let mut raw = [0; HEADER_SIZE];
        let words = [head, self.length, self.first_txg.0].into_iter().chain(key);
        words.enumerate().for_each(|(i, word)| ByteOrder::Little.put_u64(&mut raw, i * 8, word));
        raw
    }
}

/// A record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The entry.
    pub entry: Entry,
    /// The store that has an older version of it.
    pub class: Option<Class>,
}

impl Record {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let (store, class) = self.class.map_or((NO_STORE, NO_CLASS), |class| (0, class.to_disk()));
        let mut raw = [0; RECORD_SIZE];
        let head = ENTRY | (RECORD_SIZE as u64) << 8 | store << 48 | class << 56;
        let words = core::iter::once(head).chain(self.key.0);
        words.enumerate().for_each(|(i, word)| ByteOrder::Little.put_u64(&mut raw, i * 8, word));
        raw[VALUE_AT..].copy_from_slice(&encode_flat(&self.entry));
        raw
    }
}

/// The records of a block of a log.
///
/// # Errors
/// [`Corrupt`] for a record of another kind or length.
pub fn records(block: &[u8], order: ByteOrder) -> Result<Vec<Record>, Corrupt> {
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
        let class = match (head >> 48 & 0xff, head >> 56) {
            (NO_STORE, _) | (_, NO_CLASS) => None,
            (_, number) => {
                let class = Class::ALL.into_iter().find(|class| class.to_disk() == number);
                Some(class.ok_or_else(|| Corrupt::new("class in a dedup log record", number))?)
            }
        };
        let (record, behind) = rest.split_at(len);
        let key = Key([1, 2, 3, 4, 5].map(|i| order.word(record, i)));
        found.push(Record { key, entry: decode_flat(&record[VALUE_AT..RECORD_SIZE], order)?, class });
        rest = behind;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LE: ByteOrder = ByteOrder::Little;

    #[test]
    fn records_follow_each_other_until_one_of_no_kind() {
        let slot = Slot { places: [1, 2, 3, 4, 5, 6], refs: 3, birth: Txg(99) };
        let of = |number, class| Record { key: Key([number; 5]), entry: Entry::flat(slot, 77), class };
        let written = [of(7, None), of(8, Some(Class::Unique)), of(9, Some(Class::Duplicate))];
        let mut block: Vec<u8> = written.iter().flat_map(Record::encode).collect();
        block.resize(4 * RECORD_SIZE, 0);
        assert_eq!(records(&block, LE), Ok(written.to_vec()));
        assert_eq!(LE.word(&block, 0), 0x0301_0000_0000_7801, "as OpenZFS writes it");
        for (at, wrong) in [(0, 5), (0, ENTRY | 8 << 8), (0, ENTRY | 0xffff << 8), (0, 0x0700_0000_0000_7801)]
        {
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
        let header = Header::decode(&raw, LE).unwrap();
        assert_eq!(header.checkpoint, Some(Key([5, 0, 0, 0, 0])));
        assert_eq!(header.encode(), raw);
        let header = Header { is_flushing: true, length: 1 << 20, first_txg: Txg(9), checkpoint: None };
        assert_eq!(Header::decode(&header.encode(), LE), Ok(header));
        assert!(Header::decode(&[0; HEADER_SIZE], LE).is_err() && Header::decode(&[1; 8], LE).is_err());
    }
}

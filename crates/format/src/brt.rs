//! Tables of cloned blocks: how many block pointers refer to a block besides the first.
//!
//! From:   the bonus of an object in the MOS, one for each top-level vdev with cloned blocks; its bytes; values of a ZAP.
//! To:     `pool`, which asks the table before it frees a block.
//! Source: docs/format/14-dedup-and-cloning.md §10.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::zap::Value;
use crate::{ByteOrder, Corrupt, ObjectId};

/// Bytes of the bonus.
pub const HEADER_SIZE: usize = 0x38;
/// Bytes of a range in a new table.
pub const RANGE_SIZE: u64 = 1 << 24;
/// Bytes of the count of a range.
const COUNT_SIZE: u64 = 2;
/// Most ranges that a table has: a vdev of an exbibyte has fewer.
const RANGES_MAX: u64 = 1 << 36;

/// The key of a vdev's table in the object directory.
#[must_use]
pub fn directory_key(vdev: u32) -> String {
    format!("com.fudosecurity:brt:vdev:{vdev}")
}

/// The header of a table, from the bonus of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The ZAP from offsets of blocks to their further references.
    pub entries: ObjectId,
    /// Ranges that the vdev is divided into. The object holds the number of entries of each.
    pub ranges: u64,
    /// Byte order of those numbers.
    pub order: ByteOrder,
    /// Entries.
    pub total: u64,
    /// Bytes of a range.
    pub range_size: u64,
    /// Bytes of the cloned blocks.
    pub used: u64,
    /// Bytes of the further references.
    pub saved: u64,
}

impl Header {
    /// Decodes a bonus.
    ///
    /// # Errors
    /// [`Corrupt`] for another length, or figures that no vdev has.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Header, Corrupt> {
        if raw.len() < HEADER_SIZE {
            return Err(Corrupt::new("clone table header length", raw.len() as u64));
        }
        let word = |i| order.word(raw, i);
        let header = Header {
            entries: ObjectId(word(0)),
            ranges: word(1),
            order: if word(2) == 0 { ByteOrder::Little } else { ByteOrder::Big },
            total: word(3),
            range_size: word(4),
            used: word(5),
            saved: word(6),
        };
        if header.ranges > RANGES_MAX {
            return Err(Corrupt::new("clone table ranges", header.ranges));
        }
        if header.range_size == 0 {
            return Err(Corrupt::new("clone table range size", 0));
        }
        Ok(header)
    }

    /// The bonus.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let order = u64::from(self.order == ByteOrder::Big);
        let Header { entries, ranges, total, range_size, used, saved, .. } = *self;
        let words = [entries.0, ranges, order, total, range_size, used, saved];
        let mut raw = [0; HEADER_SIZE];
        words.into_iter().enumerate().for_each(|(i, word)| ByteOrder::Little.put_u64(&mut raw, i * 8, word));
        raw
    }

    /// Where the count of the range lies that holds `offset`; none beyond the last range.
    #[must_use]
    pub fn count_at(&self, offset: u64) -> Option<u64> {
        Some(offset / self.range_size).filter(|range| *range < self.ranges).map(|range| range * COUNT_SIZE)
    }
}

/// The number in a value, which an older OpenZFS stores as the bytes of its machine.
#[must_use]
pub fn count_of(value: &Value, order: ByteOrder) -> Option<u64> {
    match value.width() {
        8 => value.as_u64(),
        1 if value.data().len() == 8 => Some(order.u64(value.data(), 0)),
        _ => None,
    }
}

/// The value for a number; `is_number`: as one number, not as bytes.
#[must_use]
pub fn value_of(count: u64, is_number: bool, order: ByteOrder) -> Value {
    if is_number {
        return Value::from_u64(count);
    }
    let mut raw: Vec<u8> = alloc::vec![0; 8];
    order.put_u64(&mut raw, 0, count);
    Value::from_bytes(&raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_a_round_trip() {
        let header = Header {
            entries: ObjectId(7),
            ranges: 4,
            order: ByteOrder::Big,
            total: 3,
            range_size: 1 << 24,
            used: 81_408,
            saved: 162_816,
        };
        assert_eq!(Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
        assert_eq!((header.count_at(3 << 24), header.count_at(4 << 24)), (Some(6), None));
        assert!(Header::decode(&[0; HEADER_SIZE], ByteOrder::Little).is_err());
        assert!(Header::decode(&[0xff; HEADER_SIZE], ByteOrder::Little).is_err());
        assert!(Header::decode(&[1; 8], ByteOrder::Little).is_err());
    }

    #[test]
    fn both_forms_of_a_value_are_understood() {
        for is_number in [true, false] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                assert_eq!(count_of(&value_of(5, is_number, order), order), Some(5));
            }
        }
        assert_eq!(count_of(&Value::from_bytes(&[1, 2]), ByteOrder::Little), None);
    }
}

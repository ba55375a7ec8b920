//! Deadlists (and livelists): totals over the bpobjs that a ZAP lists by txg.
//!
//! From:   the bonus (type 51) of a type 50 ZAP; its keys are [`zap::int_key`](crate::zap::int_key)s of
//!         txgs, its values bpobjs.
//! To:     `pool`.
//! Source: docs/format/06-mos-dsl.md §7.3.

use crate::{ByteOrder, Corrupt, Txg};

/// Bytes of the bonus.
pub const SIZE: usize = 0x140;

/// The bonus of a deadlist: signed sums over all its entries, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlistHeader {
    /// Allocated (deflated) bytes.
    pub used: i64,
    /// Bytes before parity and copies.
    pub compressed: i64,
    /// Bytes before compression.
    pub uncompressed: i64,
    /// Words that have no meaning yet, kept.
    pub pad: [u64; 37],
}

impl Default for DeadlistHeader {
    fn default() -> Self {
        DeadlistHeader { used: 0, compressed: 0, uncompressed: 0, pad: [0; 37] }
    }
}

impl DeadlistHeader {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt`] when it isn't [`SIZE`] bytes long.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<DeadlistHeader, Corrupt> {
        if raw.len() != SIZE {
            return Err(Corrupt::new("deadlist header length", raw.len() as u64));
        }
        let word = |i| order.word(raw, i);
        Ok(DeadlistHeader {
            used: word(0) as i64,
            compressed: word(1) as i64,
            uncompressed: word(2) as i64,
            pad: core::array::from_fn(|i| word(3 + i)),
        })
    }

    /// The little-endian bonus.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let sums = [self.used, self.compressed, self.uncompressed].map(|sum| sum as u64);
        let mut raw = [0; SIZE];
        for (i, word) in sums.into_iter().chain(self.pad).enumerate() {
            ByteOrder::Little.put_u64(&mut raw, i * 8, word);
        }
        raw
    }
}

/// Which of the ascending `keys` takes a block born in `birth`: the largest one below it, by index.
/// `None` when there is none, which a sound deadlist never lets happen.
#[must_use]
pub fn entry_for(keys: &[Txg], birth: Txg) -> Option<usize> {
    keys.partition_point(|key| *key < birth).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bonus_of_the_right_length_survives_a_round_trip(words: [[u64; 10]; 4]) {
            let mut raw = [0; SIZE];
            for (i, word) in words.into_iter().flatten().enumerate() {
                ByteOrder::Little.put_u64(&mut raw, i * 8, word);
            }
            let header = DeadlistHeader::decode(&raw, ByteOrder::Little).unwrap();
            prop_assert_eq!(header.encode(), raw);
            raw.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            prop_assert_eq!(DeadlistHeader::decode(&raw, ByteOrder::Big), Ok(header));
        }
    }

    #[test]
    fn a_block_goes_to_the_largest_txg_before_its_birth() {
        let keys = [Txg(0), Txg(1), Txg(0x35)];
        assert_eq!(entry_for(&keys, Txg(1)), Some(0));
        assert_eq!(entry_for(&keys, Txg(0x35)), Some(1));
        assert_eq!(entry_for(&keys, Txg(0x36)), Some(2));
        assert_eq!(entry_for(&keys, Txg(0)), None);
        assert!(DeadlistHeader::decode(&[0; 8], ByteOrder::Little).is_err());
    }
}

//! DSL directories: a node of the dataset tree, with its charged space.
//!
//! From:   the bonus (type 12) of a MOS object.
//! To:     `pool`.
//! Source: docs/format/06-mos-dsl.md §4.

use crate::{ByteOrder, Corrupt, ObjectId};

/// Bytes of the bonus.
pub const SIZE: usize = 0x100;
/// `flags`: `used_breakdown` is kept. Always set by OpenZFS.
pub const USED_BREAKDOWN: u64 = 1;

/// The parts of a directory's `used_bytes`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UsedBreakdown {
    /// The head dataset.
    pub head: u64,
    /// Snapshots.
    pub snap: u64,
    /// Child directories.
    pub child: u64,
    /// Reservations of children that they don't use yet.
    pub child_rsrv: u64,
    /// The head's reservation that it doesn't use yet.
    pub refrsrv: u64,
}

/// The bonus of a DSL directory. Object 0 means "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DslDir {
    /// Seconds since 1970.
    pub creation_time: u64,
    /// The head dataset; none for `$MOS`, `$FREE`, `$LEAKED`.
    pub head_dataset: ObjectId,
    /// The parent directory; none for the root.
    pub parent: ObjectId,
    /// The snapshot that the head was cloned from; `$ORIGIN@$ORIGIN` for a dataset that is no clone.
    pub origin: ObjectId,
    /// ZAP: name → child directory.
    pub child_dir_zap: ObjectId,
    /// Bytes charged to this directory and all below.
    pub used_bytes: u64,
    /// The same before parity and copies.
    pub compressed_bytes: u64,
    /// The same before compression.
    pub uncompressed_bytes: u64,
    /// Bytes; 0 for none.
    pub quota: u64,
    /// Bytes; 0 for none.
    pub reserved: u64,
    /// ZAP of properties.
    pub props_zap: ObjectId,
    /// ZAP of delegated permissions; none at first.
    pub deleg_zap: ObjectId,
    /// [`USED_BREAKDOWN`].
    pub flags: u64,
    /// Parts of `used_bytes`.
    pub used_breakdown: UsedBreakdown,
    /// ZAP: heads of clones whose origin is a snapshot of this directory; none until the first clone.
    pub clones: ObjectId,
    /// Words that have no meaning yet, kept.
    pub pad: [u64; 13],
}

impl DslDir {
    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt`] when it isn't [`SIZE`] bytes long.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<DslDir, Corrupt> {
        if raw.len() != SIZE {
            return Err(Corrupt::new("DSL directory length", raw.len() as u64));
        }
        let word = |i| order.word(raw, i);
        let object = |i| ObjectId(word(i));
        Ok(DslDir {
            creation_time: word(0),
            head_dataset: object(1),
            parent: object(2),
            origin: object(3),
            child_dir_zap: object(4),
            used_bytes: word(5),
            compressed_bytes: word(6),
            uncompressed_bytes: word(7),
            quota: word(8),
            reserved: word(9),
            props_zap: object(10),
            deleg_zap: object(11),
            flags: word(12),
            used_breakdown: UsedBreakdown {
                head: word(13),
                snap: word(14),
                child: word(15),
                child_rsrv: word(16),
                refrsrv: word(17),
            },
            clones: object(18),
            pad: core::array::from_fn(|i| word(19 + i)),
        })
    }

    /// The little-endian bonus.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let used = &self.used_breakdown;
        let words = [
            self.creation_time,
            self.head_dataset.0,
            self.parent.0,
            self.origin.0,
            self.child_dir_zap.0,
            self.used_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.quota,
            self.reserved,
            self.props_zap.0,
            self.deleg_zap.0,
            self.flags,
            used.head,
            used.snap,
            used.child,
            used.child_rsrv,
            used.refrsrv,
            self.clones.0,
        ];
        let mut raw = [0; SIZE];
        for (i, word) in words.into_iter().chain(self.pad).enumerate() {
            ByteOrder::Little.put_u64(&mut raw, i * 8, word);
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bonus_of_the_right_length_survives_a_round_trip(words: [u64; 32]) {
            let mut raw = [0; SIZE];
            for (i, word) in words.into_iter().enumerate() {
                ByteOrder::Big.put_u64(&mut raw, i * 8, word);
            }
            let dir = DslDir::decode(&raw, ByteOrder::Big).unwrap();
            let again = dir.encode();
            prop_assert_eq!(DslDir::decode(&again, ByteOrder::Little), Ok(dir));
            raw.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            prop_assert_eq!(again, raw);
        }
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let dir = DslDir { flags: 7, clones: ObjectId(9), ..DslDir::default() };
        let raw = dir.encode();
        assert_eq!((raw[0x60], raw[0x90]), (7, 9));
        assert_eq!(
            DslDir::decode(&raw[1..], ByteOrder::Little),
            Err(Corrupt::new("DSL directory length", 255))
        );
    }
}

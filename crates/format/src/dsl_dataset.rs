//! DSL datasets: a head or a snapshot, and the pointer to its objset.
//!
//! From:   the bonus (type 16) of a MOS object.
//! To:     `pool`.
//! Source: docs/format/06-mos-dsl.md §5.

use crate::{BlockPtr, ByteOrder, Corrupt, Guid, ObjectId, Txg, blkptr};

/// Bytes of the bonus.
pub const SIZE: usize = 0x140;
const BP_AT: usize = 0x80;

/// `flags`: being received or destroyed; a read-write import destroys it.
pub const INCONSISTENT: u64 = 1;
/// `flags`: must not be promoted.
pub const NO_PROMOTE: u64 = 2;
/// `flags`: `unique_bytes` is kept up to date. OpenZFS always sets this flag.
pub const UNIQUE_ACCURATE: u64 = 4;
/// `flags`: the snapshot is destroyed when its last hold or clone goes.
pub const DEFER_DESTROY: u64 = 8;
/// `flags`: names of the file system ignore case.
pub const CASE_INSENSITIVE: u64 = 1 << 16;

/// The bonus of a dataset. Object 0 means "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DslDataset {
    /// The directory it belongs to.
    pub dir: ObjectId,
    /// The snapshot before; the origin if there is none of its own.
    pub prev_snap: ObjectId,
    /// Creation txg of that snapshot.
    pub prev_snap_txg: Txg,
    /// Of a snapshot: the next newer snapshot, or the head.
    pub next_snap: ObjectId,
    /// Of a head: ZAP of its snapshots by name.
    pub snapnames_zap: ObjectId,
    /// Of a snapshot: number of datasets whose `prev_snap` it is, at least 1. Of a head: 0.
    pub num_children: u64,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Txg that created it.
    pub creation_txg: Txg,
    /// Deadlist: blocks of the snapshot before that are no longer referenced here.
    pub deadlist: ObjectId,
    /// Bytes reachable from here.
    pub referenced_bytes: u64,
    /// The same before parity and copies.
    pub compressed_bytes: u64,
    /// The same before compression.
    pub uncompressed_bytes: u64,
    /// Bytes reachable from nowhere else.
    pub unique_bytes: u64,
    /// 56 bits, nonzero, unique among the datasets in use.
    pub fsid_guid: Guid,
    /// Never changes; nonzero.
    pub guid: Guid,
    /// [`INCONSISTENT`], [`UNIQUE_ACCURATE`], ….
    pub flags: u64,
    /// The objset.
    pub bp: BlockPtr,
    /// Of a snapshot: ZAP of the first datasets of its clones; none until the first clone.
    pub next_clones: ObjectId,
    /// Of a snapshot: ZAP of its own properties.
    pub props: ObjectId,
    /// Of a snapshot: ZAP of holds.
    pub userrefs: ObjectId,
    /// Words that have no meaning yet, kept.
    pub pad: [u64; 5],
}

impl DslDataset {
    /// Whether this is a snapshot, not a head.
    #[must_use]
    pub const fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }

    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt`] when it isn't [`SIZE`] bytes long or holds no block pointer.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<DslDataset, Corrupt> {
        if raw.len() != SIZE {
            return Err(Corrupt::new("DSL dataset length", raw.len() as u64));
        }
        let word = |i| order.word(raw, i);
        let object = |i| ObjectId(word(i));
        Ok(DslDataset {
            dir: object(0),
            prev_snap: object(1),
            prev_snap_txg: Txg(word(2)),
            next_snap: object(3),
            snapnames_zap: object(4),
            num_children: word(5),
            creation_time: word(6),
            creation_txg: Txg(word(7)),
            deadlist: object(8),
            referenced_bytes: word(9),
            compressed_bytes: word(10),
            uncompressed_bytes: word(11),
            unique_bytes: word(12),
            fsid_guid: Guid(word(13)),
            guid: Guid(word(14)),
            flags: word(15),
            bp: BlockPtr::decode(&raw[BP_AT..], order)?,
            next_clones: object(32),
            props: object(33),
            userrefs: object(34),
            pad: core::array::from_fn(|i| word(35 + i)),
        })
    }

    /// The little-endian bonus.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let before = [
            self.dir.0,
            self.prev_snap.0,
            self.prev_snap_txg.0,
            self.next_snap.0,
            self.snapnames_zap.0,
            self.num_children,
            self.creation_time,
            self.creation_txg.0,
            self.deadlist.0,
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.unique_bytes,
            self.fsid_guid.0,
            self.guid.0,
            self.flags,
        ];
        let after = [self.next_clones.0, self.props.0, self.userrefs.0];
        let mut raw = [0; SIZE];
        for (i, word) in before.into_iter().enumerate() {
            ByteOrder::Little.put_u64(&mut raw, i * 8, word);
        }
        raw[BP_AT..BP_AT + blkptr::SIZE].copy_from_slice(&self.bp.encode(ByteOrder::Little));
        for (i, word) in after.into_iter().chain(self.pad).enumerate() {
            ByteOrder::Little.put_u64(&mut raw, BP_AT + blkptr::SIZE + i * 8, word);
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
        fn any_bonus_decodes_to_what_it_encodes_to_or_is_refused(words: [[u64; 10]; 4], hole: bool, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let mut raw = [0; SIZE];
            for (i, word) in words.into_iter().flatten().enumerate() {
                order.put_u64(&mut raw, i * 8, word);
            }
            if hole {
                raw[BP_AT..BP_AT + blkptr::SIZE].fill(0);
            }
            let decoded = DslDataset::decode(&raw, order);
            prop_assert!(!hole || decoded.is_ok());
            if let Ok(dataset) = decoded {
                prop_assert_eq!(DslDataset::decode(&dataset.encode(), ByteOrder::Little), Ok(dataset));
            }
        }
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let dataset = DslDataset { flags: 4, userrefs: ObjectId(9), ..DslDataset::default() };
        let raw = dataset.encode();
        assert_eq!((raw[0x78], raw[0x110]), (4, 9));
        assert!(!dataset.is_snapshot());
        assert!(DslDataset::decode(&raw[..0x100], ByteOrder::Little).is_err());
    }
}

//! Objsets: the block at the root of a dataset or of the MOS.
//!
//! From:   the block that an uberblock (MOS) or a DSL dataset points to, in the block's byte order.
//! To:     `dmu`, which finds every object through the meta-dnode; `pool`, which owns the intent log.
//! Source: docs/format/03-dmu.md §1; docs/format/08-zil.md §1.

use alloc::vec::Vec;

use crate::{BlockPtr, ByteOrder, Corrupt, Dnode, Txg, dnode};

/// Bytes of an objset block before user accounting (pool version < 15).
pub const SIZE_V1: usize = 1024;
/// Bytes of an objset block with user and group accounting.
pub const SIZE_V2: usize = 2048;
/// Bytes of an objset block with project accounting, and of every new one.
pub const SIZE_V3: usize = 4096;

/// Flag: user and group space accounting is complete.
pub const FLAG_USER_ACCOUNTING: u64 = 1;
/// Flag: object counts per user and group are complete.
pub const FLAG_USEROBJ_ACCOUNTING: u64 = 2;
/// Flag: project accounting is complete.
pub const FLAG_PROJECT_QUOTA: u64 = 4;

const ZIL_HEADER_AT: usize = 0x200;
const TYPE_AT: usize = 0x2c0;
const FLAGS_AT: usize = 0x2c8;
const PORTABLE_MAC_AT: usize = 0x2d0;
const LOCAL_MAC_AT: usize = 0x2f0;
const PAD_AT: usize = 0x310;
const USER_USED_AT: usize = 0x400;
const GROUP_USED_AT: usize = 0x600;
const PROJECT_USED_AT: usize = 0x800;
const KNOWN_END: usize = 0xa00;

/// Byte offsets of the dnodes in the block, including those that only longer blocks have.
pub(crate) const DNODES_AT: [usize; 4] = [0, USER_USED_AT, GROUP_USED_AT, PROJECT_USED_AT];
/// The bytes that are words: the ZIL header, the type and the flags.
pub(crate) const WORDS: core::ops::Range<usize> = ZIL_HEADER_AT..PORTABLE_MAC_AT;

/// The type of an objset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ObjsetType {
    /// Not yet said.
    None = 0,
    /// The meta-objset.
    Meta = 1,
    /// A file system.
    Zfs = 2,
    /// A volume.
    Zvol = 3,
    /// Test data.
    Other = 4,
}

impl ObjsetType {
    /// The type with on-disk number `id`.
    ///
    /// # Errors
    /// [`Corrupt`] for a number that no OpenZFS writes.
    pub const fn from_disk(id: u64) -> Result<ObjsetType, Corrupt> {
        Ok(match id {
            0 => ObjsetType::None,
            1 => ObjsetType::Meta,
            2 => ObjsetType::Zfs,
            3 => ObjsetType::Zvol,
            4 => ObjsetType::Other,
            _ => return Err(Corrupt::new("objset type", id)),
        })
    }
}

/// Header of an objset's intent log: first block, and progress of claim and replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ZilHeader {
    /// Txg in which the chain was claimed; 0 if it was not.
    pub claim_txg: Txg,
    /// Highest record sequence number already replayed.
    pub replay_seq: u64,
    /// First block of the chain; a hole when there is no log.
    pub log: BlockPtr,
    /// Highest claimed block sequence number.
    pub claim_blk_seq: u64,
    /// `FLAG_*` of this type.
    pub flags: u64,
    /// Highest claimed record sequence number.
    pub claim_lr_seq: u64,
}

impl ZilHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 0xc0;
    /// Flag: records wait to be replayed.
    pub const FLAG_REPLAY_NEEDED: u64 = 1;
    /// Flag: `claim_lr_seq` is valid.
    pub const FLAG_CLAIM_LR_SEQ_VALID: u64 = 2;

    /// Decodes the first [`ZilHeader::SIZE`] bytes of `raw`.
    ///
    /// # Errors
    /// [`Corrupt`] for short input, a bad pointer or nonzero padding.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<ZilHeader, Corrupt> {
        if raw.len() < Self::SIZE {
            return Err(Corrupt::new("ZIL header length", raw.len() as u64));
        }
        if raw[0xa8..Self::SIZE].iter().any(|byte| *byte != 0) {
            return Err(Corrupt::new("ZIL header padding", 1));
        }
        Ok(ZilHeader {
            claim_txg: Txg(order.u64(raw, 0)),
            replay_seq: order.u64(raw, 8),
            log: BlockPtr::decode(&raw[0x10..], order)?,
            claim_blk_seq: order.u64(raw, 0x90),
            flags: order.u64(raw, 0x98),
            claim_lr_seq: order.u64(raw, 0xa0),
        })
    }

    /// The bytes of the header, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; ZilHeader::SIZE] {
        let order = ByteOrder::Little;
        let mut raw = [0; Self::SIZE];
        order.put_u64(&mut raw, 0, self.claim_txg.0);
        order.put_u64(&mut raw, 8, self.replay_seq);
        raw[0x10..0x90].copy_from_slice(&self.log.encode(order));
        order.put_u64(&mut raw, 0x90, self.claim_blk_seq);
        order.put_u64(&mut raw, 0x98, self.flags);
        order.put_u64(&mut raw, 0xa0, self.claim_lr_seq);
        raw
    }
}

/// The root of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objset {
    /// The object whose data is the array of all other dnodes.
    pub meta_dnode: Dnode,
    /// The intent log.
    pub zil_header: ZilHeader,
    /// The type of the objset.
    pub os_type: ObjsetType,
    /// `FLAG_*` of this module.
    pub flags: u64,
    /// MAC over the portable parts of an encrypted objset, else zero.
    pub portable_mac: [u8; 32],
    /// MAC over the local parts of an encrypted objset, else zero.
    pub local_mac: [u8; 32],
    /// ZAP of space per user.
    pub user_used: Option<Dnode>,
    /// ZAP of space per group.
    pub group_used: Option<Dnode>,
    /// ZAP of space per project.
    pub project_used: Option<Dnode>,
}

impl Objset {
    /// An objset without objects; `meta_levels` is 1 for the MOS, [`dnode::META_LEVELS`] otherwise.
    #[must_use]
    pub fn new(os_type: ObjsetType, meta_levels: u8) -> Objset {
        Objset {
            meta_dnode: Dnode::meta(meta_levels),
            zil_header: ZilHeader::default(),
            os_type,
            flags: 0,
            portable_mac: [0; 32],
            local_mac: [0; 32],
            user_used: None,
            group_used: None,
            project_used: None,
        }
    }

    /// Decodes an objset block of 1024, 2048 or 4096 bytes.
    ///
    /// # Errors
    /// [`Corrupt`] for another length, an impossible field or nonzero padding.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Objset, Corrupt> {
        if ![SIZE_V1, SIZE_V2, SIZE_V3].contains(&raw.len()) {
            return Err(Corrupt::new("objset length", raw.len() as u64));
        }
        let pads = [&raw[PAD_AT..USER_USED_AT], raw.get(KNOWN_END..).unwrap_or(&[])];
        if pads.into_iter().flatten().any(|byte| *byte != 0) {
            return Err(Corrupt::new("objset padding", 1));
        }
        let special = |at: usize| match raw.get(at..at + dnode::SLOT) {
            Some(slot) => Dnode::decode(slot, order),
            None => Ok(None),
        };
        let mac = |at: usize| core::array::from_fn(|i| raw[at + i]);
        let meta_dnode = special(0)?.ok_or(Corrupt::new("meta-dnode type", 0))?;
        if meta_dnode.object_type != crate::ObjectType::DNODE {
            return Err(Corrupt::new("meta-dnode type", meta_dnode.object_type.0.into()));
        }
        if meta_dnode.block_size as usize != dnode::BLOCK {
            return Err(Corrupt::new("meta-dnode block size", meta_dnode.block_size.into()));
        }
        Ok(Objset {
            meta_dnode,
            zil_header: ZilHeader::decode(&raw[ZIL_HEADER_AT..], order)?,
            os_type: ObjsetType::from_disk(order.u64(raw, TYPE_AT))?,
            flags: order.u64(raw, FLAGS_AT),
            portable_mac: mac(PORTABLE_MAC_AT),
            local_mac: mac(LOCAL_MAC_AT),
            user_used: special(USER_USED_AT)?,
            group_used: special(GROUP_USED_AT)?,
            project_used: special(PROJECT_USED_AT)?,
        })
    }

    /// The objset block of `size` bytes, little-endian.
    ///
    /// # Panics
    /// If `size` is not one of `SIZE_*`, a special dnode does not fit in it, or one has several slots.
    #[must_use]
    pub fn encode(&self, size: usize) -> Vec<u8> {
        assert!([SIZE_V1, SIZE_V2, SIZE_V3].contains(&size), "an objset is 1, 2 or 4 KiB");
        let order = ByteOrder::Little;
        let mut raw = alloc::vec![0; size];
        self.meta_dnode.encode(&mut raw[..dnode::SLOT]);
        raw[ZIL_HEADER_AT..TYPE_AT].copy_from_slice(&self.zil_header.encode());
        order.put_u64(&mut raw, TYPE_AT, self.os_type as u64);
        order.put_u64(&mut raw, FLAGS_AT, self.flags);
        raw[PORTABLE_MAC_AT..LOCAL_MAC_AT].copy_from_slice(&self.portable_mac);
        raw[LOCAL_MAC_AT..PAD_AT].copy_from_slice(&self.local_mac);
        let specials = [
            (&self.user_used, USER_USED_AT),
            (&self.group_used, GROUP_USED_AT),
            (&self.project_used, PROJECT_USED_AT),
        ];
        for (dnode, at) in specials {
            if let Some(dnode) = dnode {
                dnode.encode(&mut raw[at..at + dnode::SLOT]);
            }
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectType;
    use proptest::prelude::*;

    fn user_objset() -> Objset {
        let mut objset = Objset::new(ObjsetType::Zfs, dnode::META_LEVELS);
        let mut used = Dnode::meta(1);
        used.object_type = ObjectType::USERGROUP_USED;
        used.block_size = 512;
        objset.flags = 7;
        objset.user_used = Some(used.clone());
        objset.group_used = Some(used.clone());
        objset.project_used = Some(used);
        objset.portable_mac[3] = 9;
        objset.zil_header.claim_txg = Txg(77);
        objset.zil_header.flags = 2;
        objset
    }

    #[test]
    fn an_objset_survives_a_round_trip_at_every_size() {
        let full = user_objset();
        assert_eq!(Objset::decode(&full.encode(SIZE_V3), ByteOrder::Little), Ok(full.clone()));
        let v2 = Objset { project_used: None, ..full };
        assert_eq!(Objset::decode(&v2.encode(SIZE_V2), ByteOrder::Little), Ok(v2.clone()));
        let v1 = Objset { user_used: None, group_used: None, ..v2 };
        assert_eq!(Objset::decode(&v1.encode(SIZE_V1), ByteOrder::Little), Ok(v1));
    }

    #[test]
    fn a_block_without_meta_dnode_is_no_objset() {
        assert_eq!(Objset::decode(&[0; SIZE_V1], ByteOrder::Little), Err(Corrupt::new("meta-dnode type", 0)));
        assert!(Objset::decode(&[0; 1500], ByteOrder::Little).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused_and_survive_a_round_trip(
            changes in prop::collection::vec((0..SIZE_V3, any::<u8>()), 0..4), big in any::<bool>(),
        ) {
            let mut raw = user_objset().encode(SIZE_V3);
            changes.into_iter().for_each(|(at, byte)| raw[at] = byte);
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            if let Ok(objset) = Objset::decode(&raw, order) {
                let again = objset.encode(SIZE_V3);
                let decoded = Objset::decode(&again, ByteOrder::Little).unwrap();
                prop_assert_eq!(decoded.encode(SIZE_V3), again);
            }
        }

        #[test]
        fn a_zil_header_survives_a_round_trip(a in any::<[u64; 5]>()) {
            let header = ZilHeader {
                claim_txg: Txg(a[0]), replay_seq: a[1], log: BlockPtr::HOLE,
                claim_blk_seq: a[2], flags: a[3], claim_lr_seq: a[4],
            };
            prop_assert_eq!(ZilHeader::decode(&header.encode(), ByteOrder::Little), Ok(header));
        }
    }
}

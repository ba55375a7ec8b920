//! Byte-swapping whole blocks in place.
//!
//! A block pointer contains the byte order and the type of its target; the type determines the structure. Blocks are swapped
//! once, right after reading, so all code above sees little-endian blocks only. Data with its own order mark (SA buffers,
//! nvlists) or without an order (file data, names) stays unchanged.
//!
//! This never fails: impossible contents are swapped as far as possible, and their decoder refuses them. So one damaged
//! bonus does not affect the other objects of its block.
//!
//! From:   `storage`, which has verified and decompressed the block.
//! Source: docs/format/02-blocks-checksums-compression.md §1.8, 03-dmu.md §4.

use crate::object_type::SwapClass;
use crate::{ByteOrder, Corrupt, ObjectType, acl, blkptr, dnode, objset, zap, znode};

/// Makes `block`, written in `order` at `level` of an object of this type, little-endian.
///
/// # Errors
/// [`Corrupt`] for a type without a known structure.
pub fn to_little(
    block: &mut [u8],
    object_type: ObjectType,
    level: u8,
    order: ByteOrder,
) -> Result<(), Corrupt> {
    if order == ByteOrder::Little { Ok(()) } else { turn(block, object_type, level, order) }
}

/// Turns `block` from order `from` into the other one.
///
/// # Errors
/// As [`to_little`].
pub fn turn(block: &mut [u8], object_type: ObjectType, level: u8, from: ByteOrder) -> Result<(), Corrupt> {
    let class = if level > 0 { Some(SwapClass::U64) } else { object_type.swap_class() };
    let unknown = Corrupt::new("object type of a block to be turned", object_type.0.into());
    by_class(block, class.ok_or(unknown)?, from);
    Ok(())
}

fn by_class(raw: &mut [u8], class: SwapClass, from: ByteOrder) {
    match class {
        SwapClass::U8 => {}
        SwapClass::U16 => integers(raw, 2),
        SwapClass::U32 => integers(raw, 4),
        SwapClass::U64 => integers(raw, 8),
        SwapClass::Zap => zap::swap(raw),
        SwapClass::Dnode => dnodes(raw, from),
        SwapClass::Objset => objset(raw, from),
        SwapClass::Znode => legacy_znode(raw, from),
        SwapClass::OldAcl => acl::swap_old(raw),
        SwapClass::Acl => acl::swap(raw, from),
    }
}

fn integers(raw: &mut [u8], width: usize) {
    raw.chunks_exact_mut(width).for_each(<[u8]>::reverse);
}

fn dnodes(mut block: &mut [u8], from: ByteOrder) {
    while block.len() >= dnode::SLOT {
        // A free slot says nothing about the next one.
        let slots = if block[0] == 0 { 1 } else { usize::from(block[0x0c]) + 1 };
        let len = (slots * dnode::SLOT).min(block.len());
        let (one, rest) = block.split_at_mut(len);
        if one[0] != 0 {
            single_dnode(one, from);
        }
        block = rest;
    }
}

/// `raw`: all slots of the dnode.
fn single_dnode(raw: &mut [u8], from: ByteOrder) {
    let bonus_class = ObjectType(raw[4]).swap_class();
    let (nblkptr, has_spill) = (usize::from(raw[3]), raw[7] & dnode::FLAG_SPILL != 0);
    let bonus_len = usize::from(from.u16(raw, 0x0a));
    integers(&mut raw[8..0x0c], 2);
    integers(&mut raw[0x10..0x20], 8);
    let (pointers, rest) =
        raw[dnode::HEADER..].split_at_mut_checked(nblkptr * blkptr::SIZE).unwrap_or_default();
    integers(pointers, 8);
    let spill = if has_spill { blkptr::SIZE.min(rest.len()) } else { 0 };
    let (rest, spill) = rest.split_at_mut(rest.len() - spill);
    integers(spill, 8);
    if let (Some(bonus), Some(class)) = (rest.get_mut(..bonus_len), bonus_class)
        // A bonus contains no dnodes or objsets; a damaged one must not cause endless recursion.
        && !matches!(class, SwapClass::Dnode | SwapClass::Objset)
    {
        by_class(bonus, class, from);
    }
}

fn objset(raw: &mut [u8], from: ByteOrder) {
    if ![objset::SIZE_V1, objset::SIZE_V2, objset::SIZE_V3].contains(&raw.len()) {
        return;
    }
    for at in objset::DNODES_AT {
        if let Some(slot) = raw.get_mut(at..at + dnode::SLOT)
            && slot[0] != 0
        {
            single_dnode(slot, from);
        }
    }
    integers(&mut raw[objset::WORDS], 8);
}

fn legacy_znode(raw: &mut [u8], from: ByteOrder) {
    // A symbolic link's target follows.
    let Some(raw) = raw.get_mut(..znode::LEGACY_SIZE) else { return };
    let (words, acl) = raw.split_at_mut(znode::LEGACY_ACL);
    integers(words, 8);
    let (head, aces) = acl.split_at_mut(16);
    let version = from.u16(head, 12);
    integers(&mut head[..8], 8);
    integers(&mut head[8..12], 4);
    integers(&mut head[12..], 2);
    if version == 0 { acl::swap_old(aces) } else { acl::swap(aces, from) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zap::{Key, Value, fat, leaf, micro};
    use crate::znode::LegacyZnode;
    use crate::{BlockPtr, Dnode, Objset, blkptr::Hole, objset::ObjsetType};
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const BIG: ByteOrder = ByteOrder::Big;
    const LITTLE: ByteOrder = ByteOrder::Little;

    fn foreign(raw: &[u8], object_type: ObjectType) -> Vec<u8> {
        let mut block = raw.to_vec();
        turn(&mut block, object_type, 0, LITTLE).unwrap();
        let mut back = block.clone();
        to_little(&mut back, object_type, 0, BIG).unwrap();
        assert_eq!(back, raw);
        to_little(&mut back, object_type, 0, LITTLE).unwrap();
        assert_eq!(back, raw);
        block
    }

    /// A dnode of two slots with a hole, a bonus and a spill pointer.
    fn dnode(bonus_type: ObjectType, bonus: Vec<u8>) -> Dnode {
        let hole = Hole { lsize: 512, object_type: ObjectType::DNODE, level: 0, birth: crate::Txg(0x1234) };
        let ptr = BlockPtr::Hole(hole);
        Dnode {
            object_type: ObjectType::DSL_DATASET,
            bonus_type,
            bonus,
            slots: 2,
            flags: dnode::FLAG_USED_BYTES | dnode::FLAG_SPILL,
            used: 0x0102_0304,
            block_ptrs: vec![ptr],
            spill: Some(ptr),
            ..Dnode::meta(1)
        }
    }

    fn words(count: u64) -> Vec<u8> {
        (0..count).flat_map(|i| (i << 32 | 77).to_le_bytes()).collect()
    }

    #[test]
    fn a_block_of_dnodes_turns_dnode_by_dnode_and_bonus_by_bonus() {
        let dataset = dnode(ObjectType::DSL_DATASET, words(40));
        let file = dnode(ObjectType::SA, words(5));
        let mut block = vec![0; 6 * dnode::SLOT];
        dataset.encode(&mut block[..2 * dnode::SLOT]);
        // A free slot lies between.
        file.encode(&mut block[3 * dnode::SLOT..5 * dnode::SLOT]);
        let foreign = foreign(&block, ObjectType::DNODE);
        let read = |at: usize| Dnode::decode(&foreign[at * dnode::SLOT..], BIG).unwrap();
        let bonus = dataset.bonus.chunks(8).flat_map(|word| word.iter().rev().copied()).collect();
        assert_eq!(read(0), Some(Dnode { bonus, ..dataset }));
        assert_eq!(read(2), None);
        assert_eq!(read(3), Some(file), "an SA bonus names its own order and is not touched");
    }

    #[test]
    fn objsets_of_every_size_turn() {
        let mut objset = Objset::new(ObjsetType::Zfs, 6);
        objset.flags = 7;
        objset.portable_mac = [9; 32];
        objset.zil_header.claim_txg = crate::Txg(0x55);
        for (size, user, project) in
            [(objset::SIZE_V1, false, false), (objset::SIZE_V2, true, false), (objset::SIZE_V3, true, true)]
        {
            let accounts = || Some(Dnode { max_blkid: 2, ..Dnode::meta(1) });
            objset.user_used = user.then(accounts).flatten();
            objset.group_used = user.then(accounts).flatten();
            objset.project_used = project.then(accounts).flatten();
            let foreign = foreign(&objset.encode(size), ObjectType::OBJSET);
            assert_eq!(Objset::decode(&foreign, BIG), Ok(objset.clone()));
        }
    }

    #[test]
    fn zap_blocks_turn_by_their_kind() {
        let mut raw = micro::new_block(1024, 0x1122, 0);
        micro::insert(&mut raw, b"name", 0x3344, 5).unwrap();
        let turned = foreign(&raw, ObjectType::DSL_PROPS);
        let read = micro::Micro::decode(&turned, BIG).unwrap();
        assert_eq!((read.salt(), read.entries().next()), (0x1122, micro::lookup(&raw, b"name")));
        let mut raw = leaf::new_block(1024, 3, 2, true);
        let hash = 3 << 62;
        leaf::insert(&mut raw, hash, Key::from("a name"), &Value::from_u64(0x0102_0304)).unwrap();
        let turned = foreign(&raw, ObjectType::DIRECTORY_CONTENTS);
        let text = |raw: &[u8]| raw.windows(6).any(|window| window == b"a name");
        assert!(text(&raw) && text(&turned), "names are bytes");
        assert_ne!(raw, turned);
        let header = fat::Header::new(14, 0x1234_5678, 0, fat::HASH64);
        let turned = foreign(&header.new_block(), ObjectType::ZAP_METADATA);
        assert_eq!(fat::Header::decode(&turned, BIG), Ok(header));
    }

    #[test]
    fn blocks_above_level_0_are_swapped_as_block_pointers_and_leaves_by_their_type() {
        let mut block = words(16);
        turn(&mut block, ObjectType::PLAIN_FILE_CONTENTS, 1, BIG).unwrap();
        assert_eq!(block[..16], [0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 1, 0, 0, 0, 77]);
        let mut data = words(16);
        turn(&mut data, ObjectType::PLAIN_FILE_CONTENTS, 0, BIG).unwrap();
        assert_eq!(data, words(16), "file data has no order");
        turn(&mut data[..8], ObjectType(0x82), 0, BIG).unwrap();
        assert_eq!(data[..8], [0, 0, 0, 77, 0, 0, 0, 0]);
        assert!(turn(&mut data, ObjectType(99), 0, BIG).is_err());
        assert!(turn(&mut data, ObjectType(0x8a), 0, BIG).is_err());
    }

    #[test]
    fn access_lists_turn_entry_by_entry() {
        let aces = acl::trivial(0o100_640);
        let mut raw = acl::encode(&aces);
        raw.extend([0, 0, 0x40, 0, 1, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0]);
        let turned = foreign(&raw, ObjectType::ACL);
        assert_eq!(acl::decode_all(&turned, BIG), acl::decode_all(&raw, LITTLE));
    }

    proptest! {
        #[test]
        fn any_legacy_znode_reads_the_same_in_both_orders(
            raw in proptest::collection::vec(any::<u8>(), 0x100..0x140), version in 0u8..2,
        ) {
            let mut raw = raw;
            LITTLE.put_u16(&mut raw, znode::LEGACY_ACL + 12, version.into());
            let turned = foreign(&raw, ObjectType::ZNODE);
            if let Ok(mut big) = LegacyZnode::decode(&turned, BIG) {
                let mut little = LegacyZnode::decode(&raw, LITTLE).unwrap();
                // The bytes after the last entry have no meaning.
                let used = if version == 0 { 72 } else { big.acl.size.min(72) as usize };
                big.acl.aces[used..].fill(0);
                little.acl.aces[used..].fill(0);
                if version == 0 || big.acl.external.0 == 0 {
                    prop_assert_eq!(big, little);
                }
            }
        }

        #[test]
        fn any_block_of_any_type_turns_there_and_back(
            raw in proptest::collection::vec(any::<u8>(), 0..4097), object_type: u8, level in 0u8..2, big: bool,
        ) {
            let (from, to) = if big { (BIG, LITTLE) } else { (LITTLE, BIG) };
            let mut block = raw.clone();
            if turn(&mut block, ObjectType(object_type), level, from).is_ok() {
                prop_assert_eq!(turn(&mut block, ObjectType(object_type), level, to), Ok(()));
                prop_assert_eq!(block, raw);
            }
        }
    }
}

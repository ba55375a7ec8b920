//! Owner and generation of an object, read from its bonus without knowing its attribute layout.
//!
//! Space accounting and `zfs receive` look at fixed offsets: every layout of a bonus begins with the same attributes.
//! Source: docs/format/07-zpl-sa.md §4, §4.3, §8.

use crate::znode::pflags;
use crate::{ByteOrder, ObjectType};

const SA_MAGIC: u32 = 0x002f_505a;
/// Offsets from the end of the SA header.
const SA_GEN: usize = 0x10;
const SA_UID: usize = 0x18;
const SA_GID: usize = 0x20;
const SA_FLAGS: usize = 0x30;
const SA_PROJID: usize = 0x80;
/// Offsets in a legacy znode.
const ZNODE_GEN: usize = 0x40;
const ZNODE_UID: usize = 0x80;
const ZNODE_GID: usize = 0x88;

/// Byte order of an SA bonus and the length of its header; `None` for a bonus without the SA header.
fn sa_header(bonus: &[u8]) -> Option<(ByteOrder, usize)> {
    let orders = [ByteOrder::Little, ByteOrder::Big];
    let order = orders.into_iter().find(|order| bonus.len() >= 8 && order.u32(bonus, 0) == SA_MAGIC)?;
    Some((order, usize::from(order.u16(bonus, 4) >> 10) * 8))
}

fn word_in(order: ByteOrder, bonus: &[u8], at: usize) -> Option<u64> {
    bonus.get(at..at + 8).map(|_| order.u64(bonus, at))
}

/// uid, gid and project id; `None` for an object that is not accounted to anyone.
#[must_use]
pub fn owner_ids(bonus_type: ObjectType, bonus: &[u8]) -> Option<[u64; 3]> {
    let word = |order: ByteOrder, at: usize| word_in(order, bonus, at).unwrap_or(0);
    match bonus_type {
        ObjectType::ZNODE => {
            Some([word(ByteOrder::Little, ZNODE_UID), word(ByteOrder::Little, ZNODE_GID), 0])
        }
        ObjectType::SA => {
            // Not yet initialised: counts for root, as in OpenZFS.
            let Some((order, header)) = sa_header(bonus) else { return Some([0; 3]) };
            let word = |at| word(order, header + at);
            let has_project = word(SA_FLAGS) & pflags::PROJID != 0;
            let project = if has_project { word(SA_PROJID) } else { 0 };
            Some([word(SA_UID), word(SA_GID), project])
        }
        _ => None,
    }
}

/// The generation of a file or directory: the txg that created it. Two objects that had the same number one after the
/// other have different generations. `None` for an object that is neither file nor directory.
#[must_use]
pub fn generation(bonus_type: ObjectType, bonus: &[u8]) -> Option<u64> {
    match bonus_type {
        ObjectType::ZNODE => word_in(ByteOrder::Little, bonus, ZNODE_GEN),
        ObjectType::SA => {
            let (order, header) = sa_header(bonus)?;
            word_in(order, bonus, header + SA_GEN)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_project_counts_only_with_its_flag() {
        // An SA bonus names its own order.
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut bonus = vec![0; 8 + 168];
            order.put_u32(&mut bonus, 0, SA_MAGIC);
            order.put_u16(&mut bonus, 4, 1 << 10 | 2);
            order.put_u64(&mut bonus, 8 + SA_UID, 1000);
            order.put_u64(&mut bonus, 8 + SA_GID, 100);
            order.put_u64(&mut bonus, 8 + SA_PROJID, 7);
            assert_eq!(owner_ids(ObjectType::SA, &bonus), Some([1000, 100, 0]));
            order.put_u64(&mut bonus, 8 + SA_FLAGS, pflags::PROJID);
            assert_eq!(owner_ids(ObjectType::SA, &bonus), Some([1000, 100, 7]));
            assert_eq!(owner_ids(ObjectType::DSL_DIR, &bonus), None);
        }
    }

    #[test]
    fn a_generation_is_read_where_the_bonus_has_one() {
        let mut bonus = vec![0; 8 + 168];
        ByteOrder::Little.put_u32(&mut bonus, 0, SA_MAGIC);
        ByteOrder::Little.put_u16(&mut bonus, 4, 1 << 10 | 2);
        ByteOrder::Little.put_u64(&mut bonus, 8 + SA_GEN, 4711);
        assert_eq!(generation(ObjectType::SA, &bonus), Some(4711));
        assert_eq!(generation(ObjectType::SA, &bonus[..16]), None);
        assert_eq!(generation(ObjectType::SA, &[0; 176]), None);
        let mut znode = vec![0; 264];
        ByteOrder::Little.put_u64(&mut znode, ZNODE_GEN, 12);
        assert_eq!(generation(ObjectType::ZNODE, &znode), Some(12));
        assert_eq!(generation(ObjectType::NONE, &bonus), None);
    }
}

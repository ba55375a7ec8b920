//! Who owns an object, read from its bonus without knowing its attribute layout.
//!
//! Space accounting looks at fixed offsets; every layout of a bonus begins with the same attributes for it.
//! Source: docs/format/07-zpl-sa.md §4, §4.3, §8.

use crate::znode::pflags;
use crate::{ByteOrder, ObjectType};

const SA_MAGIC: u32 = 0x002f_505a;
/// Offsets from the end of the SA header.
const SA_UID: usize = 0x18;
const SA_GID: usize = 0x20;
const SA_FLAGS: usize = 0x30;
const SA_PROJID: usize = 0x80;
/// Offsets in a legacy znode.
const ZNODE_UID: usize = 0x80;
const ZNODE_GID: usize = 0x88;

/// uid, gid and project id; `None` for an object that is not accounted to anyone.
#[must_use]
pub fn owner_ids(bonus_type: ObjectType, bonus: &[u8]) -> Option<[u64; 3]> {
    let word_in = |order: ByteOrder, at: usize| match bonus.get(at..at + 8) {
        Some(_) => order.u64(bonus, at),
        None => 0,
    };
    match bonus_type {
        ObjectType::ZNODE => {
            Some([word_in(ByteOrder::Little, ZNODE_UID), word_in(ByteOrder::Little, ZNODE_GID), 0])
        }
        ObjectType::SA => {
            let orders = [ByteOrder::Little, ByteOrder::Big];
            let order = orders.into_iter().find(|order| bonus.len() >= 8 && order.u32(bonus, 0) == SA_MAGIC);
            // Not yet initialised: counts for root, as OpenZFS has it.
            let Some(order) = order else { return Some([0; 3]) };
            let word = |at| word_in(order, at);
            let header = usize::from(order.u16(bonus, 4) >> 10) * 8;
            let has_project = word(header + SA_FLAGS) & pflags::PROJID != 0;
            let project = if has_project { word(header + SA_PROJID) } else { 0 };
            Some([word(header + SA_UID), word(header + SA_GID), project])
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
}

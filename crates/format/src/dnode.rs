//! Dnodes: the attributes of an object and its block pointers.
//!
//! From:   the 16 KiB blocks of a meta-dnode, or an objset block (verified, in the block's byte order).
//! To:     `dmu`, which walks the block tree and interprets the bonus.
//! Source: docs/format/03-dmu.md §2, §3, §5.

use alloc::vec::Vec;
use core::ops::Range;

use crate::{BlockPtr, ByteOrder, Corrupt, ObjectType, SECTOR_SHIFT, blkptr};

/// Bytes of a dnode slot.
pub const SLOT: usize = 512;
/// log2 of [`SLOT`].
pub const SLOT_SHIFT: u32 = 9;
/// Bytes of a block of dnodes: a dnode never crosses it.
pub const BLOCK: usize = 16384;
/// Slots per [`BLOCK`], and the most that one dnode takes.
pub const SLOTS_PER_BLOCK: usize = BLOCK / SLOT;
/// Bytes before the block pointers.
pub const HEADER: usize = 64;
/// Most block pointers of a dnode.
pub const MAX_BLKPTRS: usize = 3;
/// Smallest log2 of an indirect block that OpenZFS writes today.
pub const MIN_INDIRECT_SHIFT: u8 = 12;
/// Largest log2 of an indirect block, and the default.
pub const MAX_INDIRECT_SHIFT: u8 = 17;
/// Most levels that 64-bit block ids can need.
pub const MAX_LEVELS: u8 = 20;
/// Levels of the meta-dnode of a new objset other than the MOS: enough for 2^48 objects.
pub const META_LEVELS: u8 = 6;

/// Flag: `used` counts bytes, not sectors.
pub const FLAG_USED_BYTES: u8 = 1;
/// Flag: the space is in the user accounting.
pub const FLAG_USERUSED_ACCOUNTED: u8 = 2;
/// Flag: the last 128 bytes are the spill pointer.
pub const FLAG_SPILL: u8 = 4;
/// Flag: the object is in the object-count accounting.
pub const FLAG_USEROBJUSED_ACCOUNTED: u8 = 8;

/// Old versions wrote indirect blocks as small as 1 KiB.
const OLDEST_INDIRECT_SHIFT: u8 = 10;

const _: () = assert!(SLOT == 1 << SLOT_SHIFT && HEADER + MAX_BLKPTRS * blkptr::SIZE <= SLOT);

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnode {
    /// Type of the object and its blocks; never `NONE`.
    pub object_type: ObjectType,
    /// log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Levels of the tree; 1: the pointers lead to data.
    pub levels: u8,
    /// Type of the bonus, and of the spill block.
    pub bonus_type: ObjectType,
    /// Checksum kind by number; 0: the dataset's.
    pub checksum: u8,
    /// Compression by number; 0: the dataset's.
    pub compress: u8,
    /// `FLAG_*`; [`FLAG_SPILL`] follows `spill`.
    pub flags: u8,
    /// Bytes of a data block: a multiple of 512, a power of two if there is more than one block.
    pub block_size: u32,
    /// Slots taken, 1 to 32.
    pub slots: u8,
    /// Largest block id; 0 for an empty object too.
    pub max_blkid: u64,
    /// Space taken as stored: bytes, or sectors without [`FLAG_USED_BYTES`]. See [`Dnode::used_bytes`].
    pub used: u64,
    /// The 1 to 3 roots of the block tree.
    pub block_ptrs: Vec<BlockPtr>,
    /// The bonus: as many bytes as are in use. Its words stay in the byte order of the decoded block. Swap
    /// them before rewriting a big-endian dnode.
    pub bonus: Vec<u8>,
    /// The spill block.
    pub spill: Option<BlockPtr>,
}

/// Bytes of bonus that fit in a dnode of `slots` slots and `nblkptr` pointers, beside a spill pointer.
#[must_use]
pub const fn bonus_capacity(slots: usize, nblkptr: usize, spill: bool) -> usize {
    (slots * SLOT).saturating_sub(HEADER + (nblkptr + spill as usize) * blkptr::SIZE)
}

/// Block pointers of a new dnode with such a bonus.
#[must_use]
pub const fn nblkptr_for(bonus_type: ObjectType, bonus_len: usize, slots: usize) -> usize {
    if bonus_type.0 == ObjectType::SA.0 {
        return 1;
    }
    let more = (slots * SLOT).saturating_sub(HEADER + blkptr::SIZE + bonus_len) / blkptr::SIZE;
    if more + 1 > MAX_BLKPTRS { MAX_BLKPTRS } else { more + 1 }
}

/// Block ids that a tree of `levels` levels can reach; saturates at `u64::MAX`.
#[must_use]
pub const fn blocks_reachable(levels: u8, nblkptr: usize, indirect_shift: u8) -> u64 {
    let shift = (levels as u32 - 1) * (indirect_shift as u32 - 7);
    if shift >= 64 || (nblkptr as u64) > u64::MAX >> shift { u64::MAX } else { (nblkptr as u64) << shift }
}

/// Fewest levels that reach block `blkid`.
#[must_use]
pub const fn levels_for(blkid: u64, nblkptr: usize, indirect_shift: u8) -> u8 {
    let mut levels = 1;
    while levels < MAX_LEVELS && blocks_reachable(levels, nblkptr, indirect_shift) <= blkid {
        levels += 1;
    }
    levels
}

/// The bytes of the slots of the dnode at the start of `raw`; `None` when the slot is free.
fn slots_of(raw: &[u8]) -> Result<Option<&[u8]>, Corrupt> {
    if raw.len() < SLOT {
        return Err(Corrupt::new("dnode length", raw.len() as u64));
    }
    if raw[0] == 0 {
        return Ok(None);
    }
    let slots = raw[0x0c] as usize + 1;
    if slots > SLOTS_PER_BLOCK || raw.len() < slots * SLOT {
        return Err(Corrupt::new("dnode slots", slots as u64));
    }
    Ok(Some(&raw[..slots * SLOT]))
}

/// The types of the object and of its bonus.
fn types_of(raw: &[u8]) -> Result<(ObjectType, ObjectType), Corrupt> {
    let (object_type, bonus_type) = (ObjectType(raw[0]), ObjectType(raw[4]));
    if !object_type.is_valid() {
        return Err(Corrupt::new("dnode object type", raw[0].into()));
    }
    if !bonus_type.is_valid() {
        return Err(Corrupt::new("dnode bonus type", raw[4].into()));
    }
    Ok((object_type, bonus_type))
}

/// The shape of a block tree, as the header of its dnode gives it.
struct Tree {
    indirect_shift: u8,
    levels: u8,
    nblkptr: usize,
    block_size: u32,
    max_blkid: u64,
}

impl Tree {
    fn decode(raw: &[u8], order: ByteOrder) -> Result<Tree, Corrupt> {
        let (indirect_shift, levels, nblkptr) = (raw[1], raw[2], raw[3] as usize);
        if !(OLDEST_INDIRECT_SHIFT..=MAX_INDIRECT_SHIFT).contains(&indirect_shift) {
            return Err(Corrupt::new("dnode indirect block shift", indirect_shift.into()));
        }
        if !(1..=MAX_LEVELS).contains(&levels) {
            return Err(Corrupt::new("dnode levels", levels.into()));
        }
        // More levels than block numbers have bits; such levels could not be reached.
        if u32::from(levels - 1) * (u32::from(indirect_shift) - blkptr::SIZE.ilog2()) >= u64::BITS {
            return Err(Corrupt::new("dnode levels", levels.into()));
        }
        if !(1..=MAX_BLKPTRS).contains(&nblkptr) {
            return Err(Corrupt::new("dnode block pointer count", nblkptr as u64));
        }
        let block_size = u32::from(order.u16(raw, 8)) << SECTOR_SHIFT;
        if block_size == 0 || u64::from(block_size) > crate::MAX_BLOCK {
            return Err(Corrupt::new("dnode block size", block_size.into()));
        }
        let max_blkid = order.u64(raw, 0x10);
        if max_blkid >= blocks_reachable(levels, nblkptr, indirect_shift) {
            return Err(Corrupt::new("dnode largest block id", max_blkid));
        }
        if max_blkid > 0 && !block_size.is_power_of_two() {
            return Err(Corrupt::new("block size of a dnode with many blocks", block_size.into()));
        }
        Ok(Tree { indirect_shift, levels, nblkptr, block_size, max_blkid })
    }
}

/// The areas behind the block pointers.
struct Tail {
    /// How many of the pointers are whole.
    whole: usize,
    /// Where the bonus is; it follows the pointers directly.
    bonus: Range<usize>,
    spill: Option<BlockPtr>,
}

/// Block pointers of a dnode that are whole: OpenZFS 2.3 gives lists for redaction three and a spill pointer, which lies upon half of the third.
const fn whole_ptrs(slots: usize, nblkptr: usize, spill: bool) -> usize {
    let room = slots * SLOT - HEADER - spill as usize * blkptr::SIZE;
    if nblkptr * blkptr::SIZE > room { room / blkptr::SIZE } else { nblkptr }
}

impl Tail {
    fn decode(raw: &[u8], order: ByteOrder, tree: &Tree, has_spill: bool) -> Result<Tail, Corrupt> {
        let nblkptr = tree.nblkptr;
        let bonus_at = HEADER + nblkptr * blkptr::SIZE;
        let whole = whole_ptrs(raw.len() / SLOT, nblkptr, has_spill);
        if whole < nblkptr {
            let half = HEADER + whole * blkptr::SIZE..raw.len() - blkptr::SIZE;
            let is_used = tree.max_blkid >= blocks_reachable(tree.levels, whole, tree.indirect_shift);
            if is_used || raw[half].iter().any(|byte| *byte != 0) {
                return Err(Corrupt::new("block pointer under a spill pointer", nblkptr as u64));
            }
        }
        let bonus_len = order.u16(raw, 0x0a) as usize;
        if bonus_len > bonus_capacity(raw.len() / SLOT, nblkptr, has_spill) {
            return Err(Corrupt::new("dnode bonus length", bonus_len as u64));
        }
        let spill =
            if has_spill { Some(BlockPtr::decode(&raw[raw.len() - blkptr::SIZE..], order)?) } else { None };
        Ok(Tail { whole, bonus: bonus_at..bonus_at + bonus_len, spill })
    }
}

impl Dnode {
    /// The meta-dnode of an objset with no objects yet; 1 level in the MOS, [`META_LEVELS`] elsewhere.
    #[must_use]
    pub fn meta(levels: u8) -> Dnode {
        Dnode {
            object_type: ObjectType::DNODE,
            indirect_shift: MAX_INDIRECT_SHIFT,
            levels,
            bonus_type: ObjectType::NONE,
            checksum: 0,
            compress: 0,
            flags: FLAG_USED_BYTES,
            block_size: BLOCK as u32,
            slots: 1,
            max_blkid: 0,
            used: 0,
            block_ptrs: [BlockPtr::HOLE; MAX_BLKPTRS].into(),
            bonus: Vec::new(),
            spill: None,
        }
    }

    /// Decodes the dnode at the start of `raw`; `None` when the slot is free. Only `slots * 512` bytes are
    /// looked at; `raw` may be longer (the rest of the block).
    ///
    /// # Errors
    /// [`Corrupt`] names the field that OpenZFS could not have written.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<Option<Dnode>, Corrupt> {
        let Some(raw) = slots_of(raw)? else { return Ok(None) };
        let (object_type, bonus_type) = types_of(raw)?;
        let tree = Tree::decode(raw, order)?;
        // Unknown contents: writing zeros back would lose data that this build does not understand.
        if raw[0x0d..0x10].iter().chain(&raw[0x20..HEADER]).any(|byte| *byte != 0) {
            return Err(Corrupt::new("dnode padding", 1));
        }
        let flags = raw[7];
        let has_spill = flags & FLAG_SPILL != 0;
        let tail = Tail::decode(raw, order, &tree, has_spill)?;
        let mut block_ptrs = raw[HEADER..][..tail.whole * blkptr::SIZE]
            .chunks_exact(blkptr::SIZE)
            .map(|ptr| BlockPtr::decode(ptr, order))
            .collect::<Result<Vec<_>, _>>()?;
        block_ptrs.resize(tree.nblkptr, BlockPtr::HOLE);
        Ok(Some(Dnode {
            object_type,
            indirect_shift: tree.indirect_shift,
            levels: tree.levels,
            bonus_type,
            checksum: raw[5],
            compress: raw[6],
            flags,
            block_size: tree.block_size,
            slots: (raw.len() / SLOT) as u8,
            max_blkid: tree.max_blkid,
            used: order.u64(raw, 0x18),
            block_ptrs,
            bonus: raw[tail.bonus].to_vec(),
            spill: tail.spill,
        }))
    }

    /// Writes the dnode over all of `raw`, little-endian; bytes not in use become zero.
    ///
    /// # Panics
    /// If `raw` is not `slots * 512` bytes long, or the fields break their documented ranges.
    pub fn encode(&self, raw: &mut [u8]) {
        let order = ByteOrder::Little;
        let slots = self.slots as usize;
        let nblkptr = self.block_ptrs.len();
        assert!((1..=SLOTS_PER_BLOCK).contains(&slots), "a dnode has 1 to 32 slots");
        assert_eq!(raw.len(), slots * SLOT, "a dnode fills its slots");
        assert_ne!(self.object_type, ObjectType::NONE, "a free slot is not a dnode");
        assert!((1..=MAX_BLKPTRS).contains(&nblkptr), "a dnode has 1 to 3 block pointers");
        assert!((1..=MAX_LEVELS).contains(&self.levels), "a dnode has a level");
        assert!(self.block_size > 0 && self.block_size.is_multiple_of(512), "block sizes are whole sectors");
        assert!(u64::from(self.block_size) <= crate::MAX_BLOCK, "block sizes end at 16 MiB");
        let used_by_spill = if self.spill.is_some() { blkptr::SIZE } else { 0 };
        let bonus_at = HEADER + nblkptr * blkptr::SIZE;
        let bonus_end = bonus_at + self.bonus.len();
        let whole = whole_ptrs(slots, nblkptr, self.spill.is_some());
        let is_beside = bonus_end + used_by_spill <= raw.len();
        assert!(is_beside || whole < nblkptr && self.bonus.is_empty(), "the bonus fits beside the pointers");
        let is_free = self.block_ptrs[whole..].iter().all(|ptr| *ptr == BlockPtr::HOLE);
        assert!(is_free, "nothing is under the spill pointer");
        raw.fill(0);
        raw[0] = self.object_type.0;
        raw[1] = self.indirect_shift;
        raw[2] = self.levels;
        raw[3] = nblkptr as u8;
        raw[4] = self.bonus_type.0;
        raw[5] = self.checksum;
        raw[6] = self.compress;
        raw[7] = if self.spill.is_some() { self.flags | FLAG_SPILL } else { self.flags & !FLAG_SPILL };
        order.put_u16(raw, 8, (self.block_size >> SECTOR_SHIFT) as u16);
        order.put_u16(raw, 0x0a, self.bonus.len() as u16);
        raw[0x0c] = self.slots - 1;
        order.put_u64(raw, 0x10, self.max_blkid);
        order.put_u64(raw, 0x18, self.used);
        for (chunk, ptr) in raw[HEADER..].chunks_exact_mut(blkptr::SIZE).zip(&self.block_ptrs) {
            chunk.copy_from_slice(&ptr.encode(order));
        }
        raw[bonus_at..bonus_end].copy_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            let spill_at = raw.len() - blkptr::SIZE;
            raw[spill_at..].copy_from_slice(&spill.encode(order));
        }
    }

    /// The encoded dnode, `slots * 512` bytes; see [`Dnode::encode`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut raw = alloc::vec![0; self.slots as usize * SLOT];
        self.encode(&mut raw);
        raw
    }

    /// Space taken by all blocks of the object, in bytes, parity taken out.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        if self.flags & FLAG_USED_BYTES != 0 { self.used } else { self.used.saturating_mul(SLOT as u64) }
    }

    /// Bytes the bonus may grow to.
    #[must_use]
    pub fn bonus_capacity(&self) -> usize {
        bonus_capacity(self.slots as usize, self.block_ptrs.len(), self.spill.is_some())
    }

    /// log2 of the block pointers in an indirect block.
    #[must_use]
    pub const fn fanout_shift(&self) -> u32 {
        self.indirect_shift as u32 - 7
    }

    /// Bytes of a block at `level`.
    #[must_use]
    pub const fn level_size(&self, level: u8) -> u64 {
        if level == 0 { self.block_size as u64 } else { 1 << self.indirect_shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Txg, blkptr::Hole};
    use alloc::vec;
    use proptest::prelude::*;

    fn any_ptr() -> impl Strategy<Value = BlockPtr> {
        (0u64..64, 0u8..54, 0u8..6, any::<u64>()).prop_map(|(size, kind, level, birth)| {
            BlockPtr::Hole(Hole {
                lsize: (size + 1) << 9,
                object_type: ObjectType(kind),
                level,
                birth: Txg(birth.max(1)),
            })
        })
    }

    prop_compose! {
        fn any_dnode()(slots in 1u8..=32, count in 1usize..=3, spill in any::<bool>())(
            ptrs in prop::collection::vec(any_ptr(), count),
            spill in any_ptr().prop_map(move |p| (spill && (slots > 1 || count < 3)).then_some(p)),
            bonus in prop::collection::vec(any::<u8>(),
                0..=bonus_capacity(slots as usize, count, spill && (slots > 1 || count < 3))),
            (object_type, bonus_type, levels, shift) in (1u8..54, 0u8..54, 1u8..=MAX_LEVELS, 12u8..=17),
            (checksum, compress, flags, block) in (any::<u8>(), any::<u8>(), any::<u8>(), 0u32..=15),
            (max, used) in any::<(u64, u64)>(),
            slots in Just(slots),
        ) -> Dnode {
            let flags = if spill.is_some() { flags | FLAG_SPILL } else { flags & !FLAG_SPILL };
            // Each level adds `shift - 7` bits to block numbers, which have 64.
            let levels = levels.min(1 + (u64::BITS as u8 - 1) / (shift - 7));
            Dnode {
                object_type: ObjectType(object_type),
                indirect_shift: shift,
                levels,
                bonus_type: ObjectType(bonus_type),
                checksum,
                compress,
                flags,
                block_size: 512 << block,
                slots,
                max_blkid: max % blocks_reachable(levels, ptrs.len(), shift),
                used,
                block_ptrs: ptrs,
                bonus,
                spill,
            }
        }
    }

    proptest! {
        #[test]
        fn a_dnode_survives_a_round_trip(dnode in any_dnode()) {
            let raw = dnode.to_bytes();
            prop_assert_eq!(Dnode::decode(&raw, ByteOrder::Little), Ok(Some(dnode)));
        }

        #[test]
        fn any_bytes_decode_or_are_refused_and_survive_a_round_trip(
            dnode in any_dnode(), at in 0usize..SLOT, byte in any::<u8>(), big in any::<bool>(),
        ) {
            let mut raw = dnode.to_bytes();
            raw[at] = byte;
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            if let Ok(Some(decoded)) = Dnode::decode(&raw, order) {
                let again = decoded.to_bytes();
                let decoded = Dnode::decode(&again, ByteOrder::Little).unwrap().unwrap();
                prop_assert_eq!(decoded.to_bytes(), again);
            }
        }

        #[test]
        fn more_levels_than_block_numbers_have_bits_are_refused(dnode in any_dnode()) {
            let per_level = dnode.indirect_shift - 7;
            let levels = 2 + (u64::BITS as u8 - 1) / per_level;
            let mut raw = dnode.to_bytes();
            raw[2] = levels;
            let refused = Corrupt::new("dnode levels", levels.into());
            prop_assert_eq!(Dnode::decode(&raw, ByteOrder::Little), Err(refused));
        }

        #[test]
        fn random_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..1100)) {
            let _ = Dnode::decode(&raw, ByteOrder::Little);
        }

        #[test]
        fn the_levels_for_a_block_are_the_fewest(blkid in any::<u64>(), n in 1usize..=3, shift in 12u8..=17) {
            let blkid = blkid >> (blkid & 63);
            let levels = levels_for(blkid, n, shift);
            let reach = blocks_reachable(levels, n, shift);
            prop_assert!(reach > blkid || reach == u64::MAX);
            prop_assert!(levels == 1 || blocks_reachable(levels - 1, n, shift) <= blkid);
        }
    }

    #[test]
    fn small_bonuses_leave_room_for_three_pointers() {
        assert_eq!(nblkptr_for(ObjectType::BPOBJ_HDR, 0, 1), 3);
        assert_eq!(nblkptr_for(ObjectType::BPOBJ_HDR, 64, 1), 3);
        assert_eq!(nblkptr_for(ObjectType::DSL_DIR, 256, 1), 1);
        assert_eq!(nblkptr_for(ObjectType::DSL_DATASET, 320, 1), 1);
        assert_eq!(nblkptr_for(ObjectType::SA, 0, 32), 1);
        assert_eq!(bonus_capacity(1, 1, false), 320);
        assert_eq!(bonus_capacity(1, 3, true), 0);
    }

    #[test]
    fn six_levels_reach_every_object_number() {
        let last_block = (1u64 << 48) / SLOTS_PER_BLOCK as u64 - 1;
        assert_eq!(levels_for(last_block, 3, 17), META_LEVELS);
        assert_eq!(levels_for(2, 3, 17), 1);
        assert_eq!(levels_for(3, 3, 17), 2);
        assert_eq!(levels_for(3071, 3, 17), 2);
        assert_eq!(levels_for(3072, 3, 17), 3);
    }

    #[test]
    fn a_slot_of_type_none_is_free() {
        assert_eq!(Dnode::decode(&[0; SLOT], ByteOrder::Little), Ok(None));
    }

    #[test]
    fn a_bonus_may_not_reach_into_the_spill_pointer() {
        let mut dnode = Dnode::meta(1);
        dnode.block_ptrs.truncate(1);
        dnode.spill = Some(BlockPtr::HOLE);
        dnode.bonus = vec![1; 192];
        let mut raw = dnode.to_bytes();
        assert!(Dnode::decode(&raw, ByteOrder::Little).is_ok());
        raw[0x0a] = 193;
        assert_eq!(Dnode::decode(&raw, ByteOrder::Little), Err(Corrupt::new("dnode bonus length", 193)));
        raw[0x0a] = 0;
        raw[3] = 3;
        assert!(Dnode::decode(&raw, ByteOrder::Little).is_err());
    }

    #[test]
    fn half_of_the_third_pointer_may_lie_under_the_spill_pointer_if_it_is_not_in_use() {
        let ptr = BlockPtr::Hole(Hole { lsize: 512, object_type: ObjectType(0), level: 0, birth: Txg(9) });
        let mut dnode = Dnode::meta(1);
        dnode.max_blkid = 1;
        dnode.spill = Some(ptr);
        dnode.flags |= FLAG_SPILL;
        let mut raw = dnode.to_bytes();
        assert_eq!(raw[3], 3);
        assert_eq!(Dnode::decode(&raw, ByteOrder::Little), Ok(Some(dnode)));
        raw[0x10] = 2;
        assert!(Dnode::decode(&raw, ByteOrder::Little).is_err(), "block 2 would be under it");
        raw[0x10] = 1;
        raw[HEADER + 2 * blkptr::SIZE] = 1;
        assert!(Dnode::decode(&raw, ByteOrder::Little).is_err(), "the third pointer is in use");
    }

    #[test]
    fn used_without_the_flag_counts_sectors() {
        let mut dnode = Dnode::meta(1);
        dnode.used = 3;
        assert_eq!(dnode.used_bytes(), 3);
        dnode.flags = 0;
        assert_eq!(dnode.used_bytes(), 1536);
    }
}

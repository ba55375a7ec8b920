//! OBJECT records: making objects, and deciding which blocks of existing objects stay.
//!
//! An increment brings only the blocks that changed. The blocks of an object therefore stay unless the record shows that
//! the stream brings all of them: the object has another type or dnode size, or another block size that only a new
//! object (or a rewritten single block) can have.
//! Source: docs/format/09-send-stream.md §2, §8.1.

use std::sync::Arc;

use dmu::{NewObject, Object};
use format::owner::generation;
use format::stream::{self, feature, flag};
use format::{ChecksumKind, Compression, MAX_BLOCK, ObjectId, ObjectType, dnode, features};

use pool::{Error, Hold, Result};

use super::apply::{Apply, NUMBERS_MAX, invalid};

/// Largest block, in bytes, of a stream that does not announce larger ones.
const OLD_MAX_BLOCK: u64 = 128 << 10;
/// Largest block that CCM seals.
const CCM_MAX_BLOCK: u64 = MAX_BLOCK / 2;
const CCM_TOO_LARGE: &str =
    "records of more than 8M in a dataset encrypted with CCM: receive into one with GCM, or a raw stream";

/// The treatment of the blocks of an object that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    /// They stay, with their size.
    Kept,
    /// They are freed, and the object takes the block size of the record: the stream brings all blocks.
    Replaced,
}

/// Checks that an object can be made from the record.
pub(super) fn check(record: &stream::Object, bonus: &[u8], features: u64) -> Result<()> {
    let slots = record.slots.max(1);
    let place = record.object % dnode::SLOTS_PER_BLOCK as u64 + u64::from(slots);
    if record.object == 0 || record.object >= NUMBERS_MAX || place > dnode::SLOTS_PER_BLOCK as u64 {
        return Err(invalid("object number"));
    }
    let size = u64::from(record.block_size);
    if record.object_type == ObjectType::NONE || size == 0 || !size.is_multiple_of(512) || size > MAX_BLOCK {
        return Err(invalid("object type or block size"));
    }
    // The head of the stream was checked for these features.
    if size > OLD_MAX_BLOCK && features & feature::LARGE_BLOCKS == 0
        || slots > 1 && features & feature::LARGE_DNODE == 0
    {
        return Err(invalid("an object larger than announced"));
    }
    let len = record.bonus_len as usize;
    let has_spill = record.flags & stream::OBJECT_SPILL != 0;
    let nblkptr = dnode::nblkptr_for(record.bonus_type, len, slots.into());
    if len > dnode::bonus_capacity(slots.into(), nblkptr, has_spill) || bonus.len() < len {
        return Err(invalid("bonus length"));
    }
    Ok(())
}

/// Whether the object can be changed to match the record without being freed: block type and dnode shape are equal. The
/// bonus type may differ, because an upgrade of the file system changes it.
fn same_shape(object: &Object, new: &NewObject) -> bool {
    let head = object.head();
    let nblkptr = dnode::nblkptr_for(new.bonus_type, new.bonus.len(), new.slots.into());
    head.object_type == new.object_type && head.slots == new.slots && usize::from(head.nblkptr) == nblkptr
}

/// The treatment of the blocks of `object`, which has the shape of `new`.
///
/// A stream without `-L` brings the records of a large block in pieces of 128 KiB, and the object here has blocks of that
/// size. In a later increment with `-L` the same object has larger blocks: its blocks here must stay, because the
/// increment brings only those that changed. An object that was freed and made anew under the same number must give up
/// its blocks instead. The generation distinguishes the two.
fn blocks_of(object: &Object, new: &NewObject) -> Result<Blocks> {
    let head = object.head();
    let (here, sent) = (head.block_size, new.block_size);
    if here == sent {
        return Ok(Blocks::Kept);
    }
    // An object of one block changes its size only by writing that block anew.
    if head.max_blkid == 0 {
        return Ok(Blocks::Replaced);
    }
    let same = match new.object_type {
        ObjectType::PLAIN_FILE_CONTENTS => {
            let before = generation(head.bonus_type, &head.bonus);
            match (before, generation(new.bonus_type, &new.bonus)) {
                (Some(before), Some(after)) => before == after,
                _ => return Err(invalid("a file without a generation changes its block size")),
            }
        }
        // The object exists as long as the volume.
        ObjectType::ZVOL => true,
        _ => false,
    };
    match same {
        false => Ok(Blocks::Replaced),
        true if sent > here => Ok(Blocks::Kept),
        true => Err(invalid("the block size of a file becomes smaller")),
    }
}

impl Apply<'_> {
    /// Refuses records that the dataset's encryption suite cannot encrypt.
    fn check_sealable(&self, record: &stream::Object) -> Result<()> {
        let is_ccm = self.objset().io().keys().is_some_and(|keys| keys.suite().is_ccm());
        match is_ccm && u64::from(record.block_size) > CCM_MAX_BLOCK {
            true => Err(Error::Unsupported(CCM_TOO_LARGE.into())),
            false => Ok(()),
        }
    }

    pub(super) fn object(&mut self, record: &stream::Object, bonus: &[u8]) -> Result<()> {
        check(record, bonus, self.begin.features)?;
        self.check_sealable(record)?;
        let slots = record.slots.max(1);
        let new = NewObject {
            slots,
            compress: self.compression(record.compress),
            checksum: self.checksum(record.checksum),
            ..NewObject::plain(record.object_type)
                .block_size(record.block_size)
                .bonus(record.bonus_type, bonus[..record.bonus_len as usize].to_vec())
        };
        let kept = match self.existing(record.object)? {
            Some(object) if same_shape(&object, &new) => Some(object),
            Some(object) => {
                self.begin_tx(0, |tx| self.objset().free_object(tx, &object))?;
                // Its number is free again after a sync.
                self.dataset.sync()?;
                None
            }
            None => None,
        };
        self.free_slots(record.object, slots)?;
        let object = match kept {
            Some(object) => {
                self.change(&object, record, new)?;
                object
            }
            None => {
                let (id, len) = (ObjectId(record.object), new.bonus.len() as u64);
                match self.begin_tx(len, |tx| self.objset().create_object_numbered(tx, id, new))? {
                    Err(dmu::Error::Exists) => {
                        return Err(invalid("an object in the slots of another"));
                    }
                    made => made?,
                }
            }
        };
        self.current = Some(object);
        Ok(())
    }

    /// Changes an object to match the record, which has the same dnode shape.
    fn change(&self, object: &Arc<Object>, record: &stream::Object, new: NewObject) -> Result<()> {
        let has_spill = record.flags & stream::OBJECT_SPILL != 0;
        let knows_spill = self.begin.flags & flag::SPILL_BLOCK != 0;
        let keeps_spill = has_spill || !knows_spill && object.spill()?.is_some();
        let (len, nblkptr) = (new.bonus.len(), object.head().nblkptr);
        if len > dnode::bonus_capacity(new.slots.into(), nblkptr.into(), keeps_spill) {
            return Err(invalid("bonus length"));
        }
        if blocks_of(object, &new)? == Blocks::Replaced {
            let hold = Hold::free().of_blocks(object.blocks_to_free(0, u64::MAX));
            let tx = self.dataset.begin(hold)?;
            object.free_blocks(&tx, 0, u64::MAX);
            object.set_block_size(&tx, new.block_size.into())?;
        }
        self.begin_tx(len as u64, |tx| {
            if knows_spill && !has_spill {
                object.set_spill(tx, None);
            }
            object.redefine(tx, new);
        })
    }

    /// The number of the compression if the pool supports it; otherwise that of the dataset.
    pub(super) fn compression(&self, number: u8) -> u8 {
        let needed = match Compression::from_disk(number.into()) {
            Ok(Compression::Zstd) => Some(&features::ZSTD_COMPRESS),
            Ok(Compression::Lz4) => Some(&features::LZ4_COMPRESS),
            Ok(_) => None,
            Err(_) => return 0,
        };
        if needed.is_none_or(|feature| self.enabled(feature)) { number } else { 0 }
    }

    /// The number of the checksum if the pool supports it; otherwise that of the dataset.
    pub(super) fn checksum(&self, number: u8) -> u8 {
        use ChecksumKind::{Blake3, Edonr, Fletcher2, Fletcher4, Off, On, Sha256, Sha512, Skein};
        match ChecksumKind::from_disk(number.into()) {
            Ok(On | Off | Fletcher2 | Fletcher4 | Sha256) => number,
            Ok(kind @ (Sha512 | Skein | Edonr | Blake3)) => {
                let needed = pool::checksum_feature(kind);
                if needed.is_some_and(|feature| self.enabled(feature)) { number } else { 0 }
            }
            _ => 0,
        }
    }

    fn enabled(&self, feature: &features::Feature) -> bool {
        self.dataset.pool_enables(feature)
    }

    /// Frees the objects in the slots of a new large dnode.
    pub(super) fn free_slots(&mut self, id: u64, slots: u8) -> Result<()> {
        let mut freed = false;
        for other in id + 1..id + u64::from(slots) {
            if let Some(object) = self.existing(other)? {
                self.begin_tx(0, |tx| self.objset().free_object(tx, &object))?;
                freed = true;
            }
        }
        if freed { self.dataset.sync() } else { Ok(()) }
    }
}

//! A vdev that is being removed: its record, and the objects that list the copied blocks.
//!
//! From:   the MOS; the sync, which copies (`sync/evacuate.rs`).
//! To:     the same. The objects stay when the vdev has left.
//! Source: docs/format/12-auxiliary-vdevs.md §5.2 to §5.6; 05-space-maps.md §9.

use std::sync::Arc;

use dmu::{NewObject, Object, Tx, zap};
use format::blkptr::Dva;
use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::zap::Value;
use format::{ByteOrder, Corrupt, ObjectId, ObjectType, Txg, VdevId};
use storage::allocator::Allocator;
use storage::{Move, Moves};

use crate::mos::{DIRECTORY, Mos};
use crate::{Error, Result};

const LE: ByteOrder = ByteOrder::Little;
/// Bytes of an entry of a mapping.
pub(crate) const ENTRY: usize = 24;
/// Bytes of an entry that says when a part was copied.
const BIRTH: usize = 16;
/// Bytes of a block of each of these objects.
const BLOCK: u32 = 128 << 10;
/// Bytes of a mapping that are read into memory at most.
const MAPPING_MAX: u64 = 1 << 30;
/// The record of the last removal in the object directory.
const REMOVING: &str = "com.delphix:removing";
/// Bytes of one entry of the mapping, at most.
pub(crate) const PIECE_MAX: u64 = 16 << 20;
/// Bytes of its bonus where the pool counts the obsolete bytes of each entry.
const BONUS: usize = 32;
/// In the record: no vdev was removed before.
const NONE: u64 = u64::MAX;
/// The key of the mapping in the configuration of a vdev.
pub(crate) const MAPPING: &str = "com.delphix:indirect_object";
/// The key of the list of when parts of it were copied.
pub(crate) const BIRTHS: &str = "com.delphix:indirect_births";
/// The key of the vdev that was removed before.
pub(crate) const BEFORE: &str = "com.delphix:prev_indirect_vdev";
/// The key that marks a vdev that is being removed.
pub(crate) const IS_REMOVED: &str = "removing";

/// Key of a top-level vdev that takes no new blocks.
pub(crate) const NON_ALLOCATING: &str = "non_allocating";

/// The top-level vdevs that take no new blocks, by id.
pub(crate) fn non_allocating(config: &PoolConfig) -> Vec<u32> {
    let is_set = |vdev: &VdevConfig, key| vdev.extra.get_u64(key).is_some_and(|value| value != 0);
    let closed = |vdev: &&VdevConfig| is_set(vdev, NON_ALLOCATING) || is_set(vdev, IS_REMOVED);
    config.tree.children.iter().filter(closed).map(|vdev| vdev.id as u32).collect()
}

/// How far a removal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is in progress.
    Running,
    /// It has ended.
    Finished,
    /// It was cancelled.
    Canceled,
}

/// The record of the last removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) stage: Stage,
    pub(crate) vdev: u64,
    /// The vdev whose removal ended last before this one.
    pub(crate) before: Option<u64>,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) to_copy: u64,
    pub(crate) copied: u64,
}

impl Record {
    /// The record of the pool, if a vdev was ever removed from it.
    pub(crate) fn read(mos: &Mos) -> Result<Option<Record>> {
        let Some(value) = zap::lookup(&*mos.object(DIRECTORY)?, REMOVING.as_bytes())? else {
            return Ok(None);
        };
        let words = value.to_u64s();
        let corrupt = || Error::corrupt(DIRECTORY)(Corrupt::new("record of a removal", words.len() as u64));
        let &[stage, vdev, before, begun, ended, to_copy, copied] = words.as_slice() else {
            return Err(corrupt());
        };
        let stage = match stage {
            1 => Stage::Running,
            2 => Stage::Finished,
            3 => Stage::Canceled,
            _ => return Err(corrupt()),
        };
        let before = Some(before).filter(|before| *before != NONE);
        Ok(Some(Record { stage, vdev, before, begun, ended, to_copy, copied }))
    }

    pub(crate) fn write(&self, mos: &Mos, tx: &Tx) -> Result<()> {
        let stage = match self.stage {
            Stage::Running => 1,
            Stage::Finished => 2,
            Stage::Canceled => 3,
        };
        let before = self.before.unwrap_or(NONE);
        let words = [stage, self.vdev, before, self.begun, self.ended, self.to_copy, self.copied];
        mos.set_directory(tx, REMOVING, &Value::from_u64s(&words))
    }
}

/// The objects of a vdev that is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects {
    pub(crate) mapping: ObjectId,
    pub(crate) births: ObjectId,
    /// Bytes of each entry that are obsolete; not in all pools.
    pub(crate) counts: Option<ObjectId>,
}

impl Objects {
    /// New, empty ones.
    pub(crate) fn create(mos: &Mos, tx: &Tx, counts: bool) -> Result<Objects> {
        let (mapping, counts) = Objects::create_mapping(mos, tx, counts)?;
        let births = Objects::new_object(mos, tx, ObjectType::UINT64_METADATA, 8)?.id();
        Ok(Objects { mapping, births, counts })
    }

    fn new_object(mos: &Mos, tx: &Tx, object_type: ObjectType, bonus: usize) -> Result<Arc<Object>> {
        let new = NewObject::plain(object_type).block_size(BLOCK);
        mos.create(tx, if bonus == 0 { new } else { new.bonus(object_type, vec![0; bonus]) })
    }

    /// A new mapping, with its counts where the pool has them.
    pub(crate) fn create_mapping(mos: &Mos, tx: &Tx, counts: bool) -> Result<(ObjectId, Option<ObjectId>)> {
        let new = |object_type, bonus| Objects::new_object(mos, tx, object_type, bonus);
        let counts = if counts { Some(new(ObjectType::UINT32_METADATA, 0)?.id()) } else { None };
        let mapping = new(ObjectType::UINT64_METADATA, if counts.is_some() { BONUS } else { BONUS - 8 })?;
        if let Some(counts) = counts {
            mapping.edit_bonus(tx, |raw| LE.put_u64(raw, 24, counts.0));
        }
        Ok((mapping.id(), counts))
    }

    /// Those of this vdev.
    pub(crate) fn of(mos: &Mos, vdev: &VdevConfig) -> Result<Objects> {
        let (mapping, births) = (object_of(vdev, MAPPING)?, object_of(vdev, BIRTHS)?);
        Ok(Objects { mapping, births, counts: counts_of(mos, mapping)? })
    }

    /// As these, with another mapping, and the byte of the vdev where that ends.
    pub(crate) fn of_other_mapping(self, mos: &Mos, mapping: ObjectId) -> Result<(Objects, u64)> {
        let counts = counts_of(mos, mapping)?;
        Ok((Objects { mapping, counts, ..self }, bonus_word(mos, mapping, 0)?))
    }

    /// Appends the ranges that were copied in the txg of `tx`, each with its number of unused bytes.
    pub(crate) fn append(&self, mos: &Mos, tx: &Tx, copied: &[(Move, u32)]) -> Result<()> {
        let Some((last, _)) = copied.last() else { return Ok(()) };
        self.append_entries(mos, tx, copied)?;
        let births = mos.object(self.births)?;
        let count = bonus_word(mos, self.births, 0)?;
        let raw = [last.end(), tx.txg().0].map(u64::to_le_bytes).concat();
        births.write(tx, count * BIRTH as u64, &raw)?;
        births.edit_bonus(tx, |raw| LE.put_u64(raw, 0, count + 1));
        Ok(())
    }

    /// Appends entries to the mapping and its counts, each with its number of unused bytes.
    pub(crate) fn append_entries(&self, mos: &Mos, tx: &Tx, copied: &[(Move, u32)]) -> Result<()> {
        let Some((last, _)) = copied.last() else { return Ok(()) };
        let mapping = mos.object(self.mapping)?;
        let (bytes, count) = (bonus_word(mos, self.mapping, 8)?, bonus_word(mos, self.mapping, 16)?);
        let entry = |(Move { from, to }, _): &(Move, u32)| {
            let (first, second) = to.encode();
            [from >> 9, first, second].map(u64::to_le_bytes).concat()
        };
        let raw: Vec<u8> = copied.iter().flat_map(entry).collect();
        mapping.write(tx, count * ENTRY as u64, &raw)?;
        let more: u64 = copied.iter().map(|(each, _)| each.to.asize).sum();
        mapping.edit_bonus(tx, |raw| {
            LE.put_u64(raw, 0, last.end());
            LE.put_u64(raw, 8, bytes + more);
            LE.put_u64(raw, 16, count + copied.len() as u64);
        });
        if let Some(counts) = self.counts {
            let raw: Vec<u8> = copied.iter().flat_map(|(_, obsolete)| obsolete.to_le_bytes()).collect();
            mos.object(counts)?.write(tx, count * 4, &raw)?;
        }
        Ok(())
    }

    /// Frees them: the vdev stays.
    pub(crate) fn free(&self, mos: &Mos, tx: &Tx) -> Result<()> {
        let all = [Some(self.mapping), Some(self.births), self.counts];
        all.into_iter().flatten().try_for_each(|id| mos.free(tx, id))
    }
}

/// A running removal.
#[derive(Debug)]
pub(crate) struct Evacuating {
    pub(crate) record: Record,
    pub(crate) objects: Objects,
    /// Everything in use before this byte was copied.
    pub(crate) next: u64,
}

impl Evacuating {
    /// The id of the vdev.
    pub(crate) fn vdev(&self) -> VdevId {
        VdevId(self.record.vdev as u32)
    }
}

/// The running removal, and the ranges that were copied.
///
/// # Errors
/// The MOS cannot be read.
pub(crate) fn running(mos: &Mos, config: &PoolConfig) -> Result<Option<(Evacuating, Moves)>> {
    let running = |record: &Record| record.stage == Stage::Running;
    let Some(record) = Record::read(mos)?.filter(running) else { return Ok(None) };
    let corrupt = || Error::corrupt(DIRECTORY)(Corrupt::new("vdev that is being removed", record.vdev));
    let vdev = config.tree.children.get(record.vdev as usize).ok_or_else(corrupt)?;
    if vdev.kind != VdevKind::Mirror && !vdev.kind.is_leaf() {
        return Err(corrupt());
    }
    let copied = mapping(mos, vdev)?;
    Ok(Some((Evacuating { record, objects: Objects::of(mos, vdev)?, next: copied.end() }, copied)))
}

fn object_of(vdev: &VdevConfig, key: &'static str) -> Result<ObjectId> {
    let id = vdev.extra.get_u64(key).filter(|id| *id != 0);
    id.map(ObjectId)
        .ok_or(Error::corrupt(ObjectId(0))(Corrupt::new("removed vdev without a mapping", vdev.id)))
}

/// `count` entries of `size` bytes from the beginning of an object.
fn entries(mos: &Mos, id: ObjectId, count: u64, size: usize) -> Result<Vec<u8>> {
    let object = mos.object(id)?;
    let bytes = count.checked_mul(size as u64).filter(|len| *len <= MAPPING_MAX.min(object.capacity()));
    let bytes = bytes.ok_or(Error::corrupt(id)(Corrupt::new("entries of a mapping", count)))?;
    let mut raw = vec![0; bytes as usize];
    object.read(0, &mut raw)?;
    Ok(raw)
}

fn counts_of(mos: &Mos, mapping: ObjectId) -> Result<Option<ObjectId>> {
    let has_counts = mos.object(mapping)?.bonus().len() >= BONUS;
    let counts = if has_counts { bonus_word(mos, mapping, 24)? } else { 0 };
    Ok(Some(ObjectId(counts)).filter(|id| id.0 != 0))
}

/// Bytes that the mapping of a vdev leads to, and how many entries it has.
///
/// # Errors
/// The MOS cannot be read.
pub(crate) fn mapped(mos: &Mos, vdev: &VdevConfig) -> Result<(u64, u64)> {
    let id = object_of(vdev, MAPPING)?;
    Ok((bonus_word(mos, id, 8)?, bonus_word(mos, id, 16)?))
}

fn bonus_word(mos: &Mos, id: ObjectId, at: usize) -> Result<u64> {
    let word = mos.object(id)?.with_bonus(|_, raw| raw.get(at..at + 8).map(|raw| LE.u64(raw, 0)));
    word.ok_or(Error::corrupt(id)(Corrupt::new("bonus of a mapping", at as u64)))
}

pub(crate) fn mapping(mos: &Mos, vdev: &VdevConfig) -> Result<Moves> {
    let id = object_of(vdev, MAPPING)?;
    let raw = entries(mos, id, bonus_word(mos, id, 16)?, ENTRY)?;
    let entry = |raw: &[u8]| {
        let from = (LE.u64(raw, 0) & (u64::MAX >> 1)).checked_mul(512);
        let to = Dva::decode(LE.u64(raw, 8), LE.u64(raw, 16));
        Some(Move { from: from?, to: Dva { gang: false, ..to } })
            .filter(|_| to.vdev != VdevId(vdev.id as u32))
    };
    let all: Option<Vec<Move>> = raw.chunks_exact(ENTRY).map(entry).collect();
    let all = all.ok_or(Error::corrupt(id)(Corrupt::new("entry of a mapping", 0)))?;
    Moves::new(all).map_err(Error::corrupt(id))
}

/// The txgs in which blocks were copied from vdevs that were removed, or from one that is being removed. The births of
/// these blocks do not show it.
///
/// # Errors
/// It cannot be read when something was copied.
pub(crate) fn txgs_of_copies(mos: &Mos, config: &PoolConfig) -> Result<Vec<Txg>> {
    let mut txgs = Vec::new();
    for vdev in config.tree.children.iter().filter(|top| top.extra.get_u64(BIRTHS).is_some()) {
        let id = object_of(vdev, BIRTHS)?;
        let raw = entries(mos, id, bonus_word(mos, id, 0)?, BIRTH)?;
        txgs.extend(raw.chunks_exact(BIRTH).map(|raw| Txg(LE.u64(raw, 8))));
    }
    Ok(txgs)
}

/// Passes the running removal and the copied ranges to the allocator.
///
/// # Errors
/// The MOS cannot be read.
pub(crate) fn resume(
    mos: &Mos,
    config: &PoolConfig,
    allocator: &mut Allocator,
) -> Result<Option<Evacuating>> {
    Ok(running(mos, config)?.map(|(it, copies)| {
        allocator.begin_evacuation(it.vdev(), copies);
        it
    }))
}

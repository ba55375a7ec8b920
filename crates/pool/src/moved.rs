//! Removed vdevs: where their data was copied to, and which copies are obsolete.
//!
//! From:   the mapping that OpenZFS keeps of each in the MOS.
//! To:     `storage`, which finds blocks by it.
//! Source: docs/format/12-auxiliary-vdevs.md §5.2, §5.4, §5.8; 05-space-maps.md §9.

use std::collections::BTreeSet;
use std::sync::Arc;

use dmu::zap;
use format::blkptr::Dva;
use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::{ByteOrder, Corrupt, ObjectId, Txg, VdevId};
use storage::{Move, Moves, Shape, Storage, TxgRuns, Vdevs};

use crate::mos::{DIRECTORY, Mos};
use crate::{Error, Result};

const LE: ByteOrder = ByteOrder::Little;
/// Bytes of an entry of a mapping.
const ENTRY: usize = 24;
/// Bytes of an entry that says when a part was copied.
const BIRTH: usize = 16;
/// Bytes of a mapping that are read into memory at most.
const MAPPING_MAX: u64 = 1 << 30;
/// The record of the last removal in the object directory.
const REMOVING: &str = "com.delphix:removing";
/// A removal goes on.
const RUNNING: u64 = 1;
/// It has ended.
const FINISHED: u64 = 2;

/// The last removal of a vdev, for `zpool status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The vdev that was removed.
    pub vdev: u64,
    /// When it began and ended, in seconds since 1970.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes of the mappings of all removed vdevs.
    pub mapping: u64,
}

impl crate::Pool {
    /// The last removal of a vdev that held data, if it has ended.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn removal(&self) -> Result<Option<Removal>> {
        let Some(words) = record(&self.inner.mos)? else { return Ok(None) };
        let &[FINISHED, vdev, _, begun, ended, _, copied, ..] = words.as_slice() else { return Ok(None) };
        let tops = self.inner.storage.vdevs().tops();
        let entries = tops.iter().map(|top| match &top.shape {
            Shape::Moved(moves) => moves.count() as u64,
            _ => 0,
        });
        let mapping = entries.sum::<u64>() * ENTRY as u64;
        Ok(Some(Removal { vdev, begun, ended, copied, mapping }))
    }
}

/// The words of the record of the last removal.
fn record(mos: &Mos) -> Result<Option<Vec<u64>>> {
    Ok(zap::lookup(&*mos.object(DIRECTORY)?, REMOVING.as_bytes())?.map(|value| value.to_u64s()))
}

/// Why the pool is not written during a removal, or while the mapping of a removed vdev is condensed.
pub(crate) fn unfinished(mos: &Mos) -> Result<Option<String>> {
    if record(mos)?.is_some_and(|words| words.first() == Some(&RUNNING)) {
        return Ok(Some("a device is being removed".into()));
    }
    let directory = mos.object(DIRECTORY)?;
    for (key, what) in [
        ("com.delphix:condensing_indirect", "the mapping of a removed device is being rewritten"),
        ("com.delphix:obsolete_bpobj", "blocks of a removed device were given new pointers"),
    ] {
        if zap::lookup(&directory, key.as_bytes())?.is_some() {
            return Ok(Some(what.into()));
        }
    }
    Ok(None)
}

/// Reads the mappings of removed vdevs. A mapping may lie on a vdev that was removed later, so the later one is read first.
///
/// # Errors
/// A mapping cannot be read.
pub(crate) fn load(mos: &Mos, storage: &Storage, config: &PoolConfig) -> Result<()> {
    let is_moved = |top: &&VdevConfig| top.kind == VdevKind::Indirect;
    let mut left: BTreeSet<u64> = config.tree.children.iter().filter(is_moved).map(|top| top.id).collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut next = record(mos)?.and_then(|words| words.get(2).copied());
    while let Some(id) = next.filter(|id| left.remove(id)) {
        let vdev = &config.tree.children[id as usize];
        let moves = Arc::new(mapping(mos, vdev)?);
        let mut tops = storage.vdevs().tops().to_vec();
        tops[id as usize].shape = Shape::Moved(moves);
        storage.set_vdevs(Vdevs::new(tops));
        next = vdev.extra.get_u64("com.delphix:prev_indirect_vdev");
    }
    match left.first() {
        None => Ok(()),
        Some(id) => Err(Error::corrupt(DIRECTORY)(Corrupt::new("removed vdev that none leads to", *id))),
    }
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

fn bonus_word(mos: &Mos, id: ObjectId, at: usize) -> Result<u64> {
    let word = mos.object(id)?.with_bonus(|_, raw| raw.get(at..at + 8).map(|raw| LE.u64(raw, 0)));
    word.ok_or(Error::corrupt(id)(Corrupt::new("bonus of a mapping", at as u64)))
}

fn mapping(mos: &Mos, vdev: &VdevConfig) -> Result<Moves> {
    let id = object_of(vdev, "com.delphix:indirect_object")?;
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

/// Whether a device lacks txgs in which blocks were copied from a removed vdev. The birth txgs of such blocks are older than
/// the copies, so they do not show it.
///
/// # Errors The txgs of the copies cannot be read.
pub(crate) fn lacks_copies(mos: &Mos, config: &PoolConfig, missing: &[Arc<TxgRuns>]) -> Result<bool> {
    if missing.iter().all(|missing| missing.is_empty()) {
        return Ok(false);
    }
    for vdev in config.tree.children.iter().filter(|top| top.kind == VdevKind::Indirect) {
        let id = object_of(vdev, "com.delphix:indirect_births")?;
        let raw = entries(mos, id, bonus_word(mos, id, 0)?, BIRTH)?;
        let mut copied = raw.chunks_exact(BIRTH).map(|raw| Txg(LE.u64(raw, 8)));
        if copied.any(|txg| missing.iter().any(|missing| missing.contains(txg))) {
            return Ok(true);
        }
    }
    Ok(false)
}

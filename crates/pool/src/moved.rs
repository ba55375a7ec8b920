//! The blocks that were copied from removed vdevs, and from one that is being removed, as the MOS lists them.
//!
//! From:   the mapping of each in the MOS, and the record of the last removal.
//! To:     `storage`, which finds blocks by it; the sync, which continues a removal (`sync/evacuate.rs`).
//! Source: docs/format/12-auxiliary-vdevs.md §5.2, §5.4, §5.8; 05-space-maps.md §9.

use std::collections::BTreeSet;
use std::sync::Arc;

use dmu::zap;
use format::Corrupt;
use format::config::{PoolConfig, VdevConfig, VdevKind};
use storage::{Moves, Shape, Storage, Vdevs};

use crate::evacuation::{self, BEFORE, ENTRY, MAPPING, PIECE_MAX, Record, Stage, mapping};
use crate::mos::{DIRECTORY, Mos};
use crate::obsolete::Obsolete;
use crate::{Error, NotWritten, Result, space_maps};

/// log2 of the bytes from which on a run of free space ends an entry, as OpenZFS estimates it.
const JOINED_BELOW: u32 = 14;

/// The last removal of a vdev, for `zpool status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// How far it is.
    pub stage: Stage,
    /// The vdev that is removed, or was.
    pub vdev: u64,
    /// When it began, in seconds since 1970.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Bytes of the mappings of all removed vdevs.
    pub mapping: u64,
}

impl crate::Pool {
    /// The last removal of a vdev that held data.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn removal(&self) -> Result<Option<Removal>> {
        let Some(record) = Record::read(&self.inner.mos)? else { return Ok(None) };
        let config = self.info().config;
        let mut entries = 0u64;
        for vdev in config.tree.children.iter().filter(is_moved) {
            entries = entries.saturating_add(evacuation::mapped(&self.inner.mos, vdev)?.1);
        }
        let mapping = entries.saturating_mul(ENTRY as u64);
        let Record { stage, vdev, begun, ended, to_copy, copied, .. } = record;
        Ok(Some(Removal { stage, vdev, begun, ended, to_copy, copied, mapping }))
    }

    /// Bytes that the mapping of a top-level vdev would take if it were removed, as OpenZFS shows them before a removal.
    ///
    /// # Errors
    /// Its space maps cannot be read.
    pub fn mapping_after(&self, vdev: u32) -> Result<u64> {
        let (table, _) = self.inner.read_space_tables()?;
        let info = self.info();
        let shift = self.inner.storage.vdevs().tops().get(vdev as usize).map_or(0, |top| top.ashift);
        let mut bytes = info.vdev_space.get(&vdev).map_or(0, |space| space.allocated);
        let mut pieces = 0u64;
        let maps = table.vdevs.get(&vdev).map(|(_, maps)| maps.as_slice()).unwrap_or_default();
        for map in maps.iter().filter(|map| map.0 != 0) {
            let header = space_maps::header(&self.inner.mos.objset, *map)?;
            for (power, runs) in (shift..).zip(header.histogram.unwrap_or_default()) {
                // Short runs of free space are copied together with the data around them.
                match power < JOINED_BELOW {
                    true => bytes = bytes.saturating_add(runs.saturating_mul(2 << power)),
                    false => pieces = pieces.saturating_add(runs),
                }
            }
        }
        Ok(pieces.saturating_add(bytes / PIECE_MAX).saturating_mul(ENTRY as u64))
    }

    /// Bytes that a vdev that is being removed still has to be freed from; at least one while that goes on.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn unmoved(&self) -> Result<u64> {
        let record = Record::read(&self.inner.mos)?.filter(|record| record.stage == Stage::Running);
        Ok(record.map_or(0, |record| record.to_copy.saturating_sub(record.copied).max(1)))
    }
}

impl crate::Inner {
    /// Whether a writable device misses txgs in which blocks were copied from a removed vdev, or from one that is being
    /// removed.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn lacks_copies(&self) -> Result<bool> {
        let config = self.info().config.clone();
        let txgs = evacuation::txgs_of_copies(&self.mos, &config)?;
        let tops = self.storage.vdevs().tops();
        let lacks = |leaf: &storage::Leaf| txgs.iter().any(|txg| leaf.health.missing().contains(*txg));
        Ok(tops.iter().flat_map(|top| top.written()).any(lacks))
    }

    /// The obsolete parts of each mapping that counts them exactly.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn obsolete(&self) -> Result<Vec<Obsolete>> {
        let config = self.info().config.clone();
        let moved = config.tree.children.iter().filter(|top| top.extra.get_u64(MAPPING).is_some());
        moved.map(|top| Obsolete::read(&self.mos, top)).filter_map(Result::transpose).collect()
    }

    /// The vdev that is being removed, with the ranges copied so far.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn copied_so_far(&self) -> Result<Option<(u32, Moves)>> {
        let config = self.info().config.clone();
        Ok(evacuation::running(&self.mos, &config)?.map(|(it, moves)| (it.vdev().0, moves)))
    }
}

/// The reason why the pool cannot be written while an interrupted removal is tidied up.
pub(crate) fn unfinished(mos: &Mos) -> Result<Option<NotWritten>> {
    let remapped = zap::lookup(&*mos.object(DIRECTORY)?, b"com.delphix:obsolete_bpobj")?;
    Ok(remapped.map(|_| NotWritten::Remapped))
}

fn is_moved(top: &&VdevConfig) -> bool {
    top.kind == VdevKind::Indirect
}

/// Reads the mappings of removed vdevs. A mapping may lie on a vdev that was removed later, so the later one is read first.
///
/// # Errors
/// A mapping cannot be read.
pub(crate) fn load(mos: &Mos, storage: &Storage, config: &PoolConfig) -> Result<()> {
    let mut left: BTreeSet<u64> = config.tree.children.iter().filter(is_moved).map(|top| top.id).collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut next = Record::read(mos)?.and_then(|record| record.before);
    while let Some(id) = next.filter(|id| left.remove(id)) {
        let vdev = &config.tree.children[id as usize];
        let moves = Arc::new(mapping(mos, vdev)?);
        let mut tops = storage.vdevs().tops().to_vec();
        tops[id as usize].shape = Shape::Moved(moves);
        storage.set_vdevs(Vdevs::new(tops));
        next = vdev.extra.get_u64(BEFORE);
    }
    match left.first() {
        None => Ok(()),
        Some(id) => Err(Error::corrupt(DIRECTORY)(Corrupt::new("removed vdev that none leads to", *id))),
    }
}

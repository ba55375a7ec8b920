//! Obsolete parts of the mappings of removed vdevs: what was freed since it was copied, or was in use by nothing then.
//!
//! From:   the counts and the space maps of each vdev in the MOS.
//! To:     `scan`, which compares them with what is in use; the sync, which condenses mappings (`sync/condense.rs`).
//! Source: docs/format/12-auxiliary-vdevs.md §5.2, §5.4, §5.8, §5.9.

use dmu::{Tx, zap};
use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::space_map::Layout;
use format::zap::Value;
use format::{ByteOrder, Corrupt, ObjectId};
use storage::{Move, Moves};

use crate::evacuation::{Objects, mapping};
use crate::mos::{DIRECTORY, Mos};
use crate::{Error, Result, space_maps};

/// The key of the space map of obsolete parts in the ZAP of the vdev.
pub(crate) const MAP: &[u8] = b"com.delphix:indirect_obsolete_sm";
/// Marks a vdev whose obsolete bytes are counted exactly.
pub(crate) const IS_PRECISE: &[u8] = b"com.delphix:obsolete_counts_are_precise";
/// Bytes of one of the counts.
const COUNT: usize = 4;
/// Its segments are in bytes, from the beginning of the vdev.
pub(crate) const LAYOUT: Layout = Layout { start: 0, shift: 0 };

/// The obsolete ranges of a mapping.
#[derive(Clone, Debug)]
pub struct Obsolete {
    /// The vdev that was removed, or is being removed.
    pub vdev: u32,
    /// Its mapping.
    pub moves: Moves,
    /// Bytes of each entry of the mapping.
    pub bytes: Vec<u64>,
}

impl Obsolete {
    /// The obsolete ranges of the vdev, if they are counted exactly.
    pub(crate) fn read(mos: &Mos, vdev: &VdevConfig) -> Result<Option<Obsolete>> {
        let Some(own) = vdev.zap_top.filter(|own| own.0 != 0) else { return Ok(None) };
        let own = mos.object(own)?;
        if zap::lookup_u64(&own, IS_PRECISE)?.is_none_or(|value| value == 0) {
            return Ok(None);
        }
        let mut all = Obsolete::when_copied(mos, vdev)?;
        if let Some(map) = zap::lookup_u64(&own, MAP)? {
            all.add_map(mos, ObjectId(map))?;
        }
        if let Some(condensed) = Condensed::read(mos)?.filter(|condensed| condensed.vdev == vdev.id) {
            all.add_map(mos, condensed.map)?;
        }
        Ok(Some(all))
    }

    /// The ranges that were obsolete when the mapping was written.
    fn when_copied(mos: &Mos, vdev: &VdevConfig) -> Result<Obsolete> {
        let moves = mapping(mos, vdev)?;
        let bytes = match Objects::of(mos, vdev)?.counts {
            Some(counts) => read_counts(mos, counts, moves.count())?,
            None => vec![0; moves.count()],
        };
        Ok(Obsolete { vdev: vdev.id as u32, moves, bytes })
    }

    /// Adds the segments of a space map.
    fn add_map(&mut self, mos: &Mos, map: ObjectId) -> Result<()> {
        let Obsolete { moves, bytes, .. } = self;
        space_maps::for_each_entry(&mos.objset, map, LAYOUT, &mut |segment| {
            for (index, part) in moves.numbered_parts(segment.offset, segment.run) {
                bytes[index] = bytes[index].saturating_add(part.to.asize);
            }
            Ok(())
        })
    }
}

/// The record of a mapping that is being condensed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condensed {
    pub(crate) vdev: u64,
    /// The parts of the old mapping that are obsolete and left out of the new one. Parts that become obsolete later are in another
    /// space map.
    pub(crate) map: ObjectId,
    /// The new mapping.
    pub(crate) mapping: ObjectId,
}

impl Condensed {
    /// Its key in the object directory.
    pub(crate) const KEY: &str = "com.delphix:condensing_indirect";

    pub(crate) fn read(mos: &Mos) -> Result<Option<Condensed>> {
        let Some(value) = zap::lookup(&*mos.object(DIRECTORY)?, Condensed::KEY.as_bytes())? else {
            return Ok(None);
        };
        let words = value.to_u64s();
        let &[vdev, map, mapping] = words.as_slice() else {
            let why = Corrupt::new("record of a mapping that is condensed", words.len() as u64);
            return Err(Error::corrupt(DIRECTORY)(why));
        };
        Ok(Some(Condensed { vdev, map: ObjectId(map), mapping: ObjectId(mapping) }))
    }

    pub(crate) fn write(&self, mos: &Mos, tx: &Tx) -> Result<()> {
        mos.set_directory(tx, Condensed::KEY, &Value::from_u64s(&[self.vdev, self.map.0, self.mapping.0]))
    }
}

/// A mapping that is being condensed.
#[derive(Debug)]
pub(crate) struct Condensing {
    pub(crate) condensed: Condensed,
    /// Those of the new mapping.
    pub(crate) objects: Objects,
    old: Obsolete,
    /// The first entry of the old mapping that was not looked at.
    next: usize,
}

impl Condensing {
    /// The condensing that is under way, if there is one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub(crate) fn resume(mos: &Mos, config: &PoolConfig) -> Result<Option<Condensing>> {
        let Some(condensed) = Condensed::read(mos)? else { return Ok(None) };
        let corrupt =
            || Error::corrupt(DIRECTORY)(Corrupt::new("vdev of a condensed mapping", condensed.vdev));
        let vdev = config.tree.children.get(condensed.vdev as usize).ok_or_else(corrupt)?;
        if vdev.kind != VdevKind::Indirect {
            return Err(corrupt());
        }
        Condensing::load(mos, condensed, vdev).map(Some)
    }

    pub(crate) fn load(mos: &Mos, condensed: Condensed, vdev: &VdevConfig) -> Result<Condensing> {
        let mut old = Obsolete::when_copied(mos, vdev)?;
        old.add_map(mos, condensed.map)?;
        let (objects, end) = Objects::of(mos, vdev)?.of_other_mapping(mos, condensed.mapping)?;
        let next = old.moves.iter().take_while(|each| each.end() <= end).count();
        Ok(Condensing { condensed, objects, old, next })
    }

    /// Looks at so many entries; returns those that are still referenced, each with its obsolete bytes.
    pub(crate) fn take(&mut self, count: usize) -> Vec<(Move, u32)> {
        let those = self.old.moves.iter().zip(&self.old.bytes).skip(self.next).take(count);
        let kept = those.filter(|(each, obsolete)| **obsolete < each.to.asize);
        let kept = kept.map(|(each, obsolete)| (*each, *obsolete as u32)).collect();
        self.next = self.next.saturating_add(count).min(self.old.moves.count());
        kept
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.old.moves.count()
    }
}

fn read_counts(mos: &Mos, id: ObjectId, count: usize) -> Result<Vec<u64>> {
    let object = mos.object(id)?;
    let len = count * COUNT;
    if len as u64 > object.capacity() {
        return Err(Error::corrupt(id)(Corrupt::new("counts of a mapping", count as u64)));
    }
    let mut raw = vec![0; len];
    object.read(0, &mut raw)?;
    Ok(raw.chunks_exact(COUNT).map(|raw| u64::from(ByteOrder::Little.u32(raw, 0))).collect())
}

//! Obsolete parts of the mappings of removed vdevs: what was freed since it was copied, or was in use by nothing then.
//!
//! From:   the counts and the space maps of each vdev in the MOS.
//! To:     `scan`, which compares them with what is in use.
//! Source: docs/format/12-auxiliary-vdevs.md §5.2, §5.4, §5.8.

use dmu::zap;
use format::config::VdevConfig;
use format::space_map::Layout;
use format::{ByteOrder, Corrupt, ObjectId};
use storage::Moves;

use crate::evacuation::{MAPPING, Objects, mapping};
use crate::mos::Mos;
use crate::{Error, Result, space_maps};

/// The key of the space map of obsolete parts in the ZAP of the vdev.
pub(crate) const MAP: &[u8] = b"com.delphix:indirect_obsolete_sm";
/// Marks a vdev of which it is counted exactly what is obsolete.
pub(crate) const IS_PRECISE: &[u8] = b"com.delphix:obsolete_counts_are_precise";
/// Bytes of one of the counts.
const COUNT: usize = 4;
/// Its segments are in bytes, from the beginning of the vdev.
pub(crate) const LAYOUT: Layout = Layout { start: 0, shift: 0 };

/// What of a mapping is obsolete.
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
    /// That of the vdev, if it is counted exactly.
    pub(crate) fn read(mos: &Mos, vdev: &VdevConfig) -> Result<Option<Obsolete>> {
        let Some(own) = vdev.zap_top.filter(|own| own.0 != 0) else { return Ok(None) };
        let own = mos.object(own)?;
        if zap::lookup_u64(&own, IS_PRECISE)?.is_none_or(|value| value == 0) {
            return Ok(None);
        }
        let moves = mapping(mos, vdev)?;
        let bytes = match Objects::of(mos, vdev)?.counts {
            Some(counts) => read_counts(mos, counts, moves.count())?,
            None => vec![0; moves.count()],
        };
        let mut all = Obsolete { vdev: vdev.id as u32, moves, bytes };
        if let Some(map) = zap::lookup_u64(&own, MAP)? {
            all.add_map(mos, ObjectId(map))?;
        }
        Ok(Some(all))
    }

    /// Adds the segments of a space map.
    pub(crate) fn add_map(&mut self, mos: &Mos, map: ObjectId) -> Result<()> {
        let Obsolete { moves, bytes, .. } = self;
        space_maps::for_each_entry(&mos.objset, map, LAYOUT, &mut |segment| {
            for (index, part) in moves.numbered_parts(segment.offset, segment.run) {
                bytes[index] = bytes[index].saturating_add(part.to.asize);
            }
            Ok(())
        })
    }
}

impl crate::Inner {
    /// What is obsolete of each mapping of which that is counted exactly.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn obsolete(&self) -> Result<Vec<Obsolete>> {
        let config = self.info().config.clone();
        let moved = config.tree.children.iter().filter(|top| top.extra.get_u64(MAPPING).is_some());
        moved.map(|top| Obsolete::read(&self.mos, top)).filter_map(Result::transpose).collect()
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

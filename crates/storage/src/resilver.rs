//! Writing blocks to devices that missed them.
//!
//! From:   `pool`, which visits every block of the txgs that a device missed.
//! To:     those devices alone: what others hold of the block is not written again.
//! Source: docs/format/11-redundancy.md §6.6.

use std::sync::Arc;

use format::Txg;
use format::blkptr::{Block, Dva};

use crate::gang::{GANG_DEPTH_MAX, deeper};
use crate::vdev::Shape;
use crate::{Leaf, ReadError, Reader, Storage, TopVdev, WriteError};

/// A copy that a device misses, and the right data.
#[derive(Clone, Debug)]
pub struct Missed {
    dva: Dva,
    born: Txg,
    replica: usize,
    bytes: Arc<Vec<u8>>,
}

impl Missed {
    /// Bytes that belong there.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
}

impl Reader<'_> {
    /// The copies of `block` that devices lack which take writes; of a gang those of its header and of its pieces. Their
    /// contents were read from other devices and verified.
    ///
    /// # Errors
    /// No good copy can be read.
    pub fn missed(&self, block: &Block) -> Result<Vec<Missed>, ReadError> {
        let mut found = Vec::new();
        self.collect_missed(block, GANG_DEPTH_MAX, &mut found)?;
        Ok(found)
    }

    fn collect_missed(&self, block: &Block, depth: u32, found: &mut Vec<Missed>) -> Result<(), ReadError> {
        for gang in [false, true] {
            let copies = block.copies().filter(|dva| dva.gang == gang);
            let places = copies.flat_map(|dva| self.storage.lacking(&dva, block.physical_birth()));
            let places: Vec<(Dva, usize)> = places.collect();
            if places.is_empty() {
                continue;
            }
            let mut raw = Vec::new();
            match gang {
                true => raw = self.good_gang_header(block)?,
                false => self.read_raw(block, &mut raw)?,
            }
            let bytes = Arc::new(raw);
            found.extend(places.into_iter().map(|(dva, replica)| Missed {
                dva,
                born: block.physical_birth(),
                replica,
                bytes: bytes.clone(),
            }));
        }
        if block.is_gang() {
            let depth = deeper(depth)?;
            for member in self.any_gang_members(block)? {
                self.collect_missed(&member, depth, found)?;
            }
        }
        Ok(())
    }
}

impl Storage {
    /// As [`Reader::missed`], for a block of an intent log. The result is empty if the block was never written.
    ///
    /// # Errors
    /// A device refused.
    pub fn missed_log(&self, block: &Block) -> Result<Vec<Missed>, ReadError> {
        let places: Vec<_> = block.copies().flat_map(|dva| self.lacking(&dva, block.birth)).collect();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let Some((raw, _)) = self.read_log(block)? else { return Ok(Vec::new()) };
        let bytes = Arc::new(raw);
        let of = |(dva, replica)| Missed { dva, born: block.birth, replica, bytes: bytes.clone() };
        Ok(places.into_iter().map(of).collect())
    }

    /// The replicas at `dva` on writable devices that may miss blocks born in `birth`.
    fn lacking(&self, dva: &Dva, birth: Txg) -> Vec<(Dva, usize)> {
        // The birth of a moved block does not show when it was copied. The write finds the places that differ.
        if let Ok(Some(places)) = self.moved(dva, dva.asize) {
            let may_lack = |leaf: &Leaf| !leaf.health.missing().is_empty();
            let tops = places.iter().filter_map(|place| self.vdevs().top_of(place).ok());
            let lacks_any = tops.flat_map(TopVdev::written).any(may_lack);
            return if lacks_any { vec![(*dva, 0)] } else { Vec::new() };
        }
        let Ok(top) = self.vdevs().top_of(dva) else { return Vec::new() };
        let lacks = |child: &usize| {
            top.child(*child).is_some_and(|leaf| !leaf.health.has_failed() && leaf.health.misses(birth))
        };
        match &top.shape {
            Shape::Mirror(children) => {
                (0..children.len()).filter(lacks).map(|replica| (*dva, replica)).collect()
            }
            // The columns that differ are found when the block is written.
            Shape::Parity { .. } if (0..top.places().count()).any(|leaf| lacks(&leaf)) => vec![(*dva, 0)],
            _ => Vec::new(),
        }
    }

    /// Writes a copy that a device missed. The block must be in use while this runs. Returns the bytes written.
    ///
    /// # Errors
    /// A device that the pool needs refused.
    pub fn write_missed(&self, missed: &Missed) -> Result<u64, WriteError> {
        self.write_over((&missed.dva, missed.born), missed.replica, &missed.bytes)
    }
}

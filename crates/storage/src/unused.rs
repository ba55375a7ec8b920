//! Trimming and overwriting free space.
//!
//! From:   `pool`, which knows what is free.
//! To:     the devices.
//! Source: docs/format/12-auxiliary-vdevs.md §7; 11-redundancy.md §2.2.

use std::io::IoSlice;

use format::label::DATA_START;

use crate::layout::Spread;
use crate::{Leaf, Shape, TopVdev, WriteError};

/// Bytes that are written at once.
const PIECE: u64 = 1 << 20;

impl TopVdev {
    /// The range on child `child` that holds `len` bytes from `offset` of the allocatable area, in whole sectors:
    /// offset and length on the child, without the labels before its allocatable area.
    #[must_use]
    pub fn range_on(&self, child: usize, offset: u64, len: u64) -> (u64, u64) {
        let sides = match &self.shape {
            // Where sectors lie that are on their way may change at any moment.
            Shape::Parity { .. } if self.motion().is_some() => return (0, 0),
            Shape::Parity { layout: Spread::Raidz(_) | Spread::Grown(_), sides } => sides,
            // No range of a draid vdev is one range of each child.
            Shape::Parity { layout: Spread::Draid(_), .. } => return (0, 0),
            _ => return (offset, len),
        };
        let (width, child) = (sides.len() as u64, child as u64);
        // Sectors go to the children in turn.
        let row = |at: u64| (at >> self.ashift).saturating_sub(child).div_ceil(width) << self.ashift;
        let (start, end) = (row(offset), row(offset + len));
        (start, end - start)
    }

    /// The child that is the leaf with this guid, or that has it below it.
    #[must_use]
    pub fn child_of(&self, guid: u64) -> Option<usize> {
        match &self.shape {
            Shape::Disk(leaf) => (leaf.guid == guid).then_some(0),
            Shape::Mirror(children) => {
                children.iter().position(|child| child.as_ref().is_some_and(|leaf| leaf.guid == guid))
            }
            Shape::Parity { sides, .. } => {
                sides.iter().position(|side| side.leaves().any(|leaf| leaf.guid == guid))
            }
            Shape::Hole | Shape::Moved(_) | Shape::Missing | Shape::Unsupported(_) => None,
        }
    }

    /// Trims `len` bytes at `offset` on all devices.
    ///
    /// # Errors
    /// The first device that refused.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), WriteError> {
        for leaf in self.written() {
            let child = self.child_of(leaf.guid).expect("a leaf of this vdev");
            let (offset, len) = self.range_on(child, offset, len);
            if len > 0 {
                leaf.discard(offset, len)?;
            }
        }
        Ok(())
    }
}

impl Leaf {
    /// Trims `len` bytes of the device at `offset` of the allocatable area.
    ///
    /// # Errors
    /// The device refused.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), WriteError> {
        let at = offset + DATA_START;
        self.disk.discard(at, len).map_err(|source| self.refused(at, source))
    }

    /// Overwrites `len` bytes from `offset` of the allocatable area, whole words, with copies of `word`.
    ///
    /// # Errors
    /// The device refused.
    pub fn overwrite(&self, offset: u64, len: u64, word: u64) -> Result<(), WriteError> {
        let piece: Vec<u8> = word.to_ne_bytes().repeat((len.min(PIECE) / 8) as usize);
        let mut done = 0;
        while done < len {
            let at = offset + done + DATA_START;
            let take = (len - done).min(PIECE);
            let written = self.disk.write_at(&[IoSlice::new(&piece[..take as usize])], at);
            written.map_err(|source| self.refused(at, source))?;
            done += take;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::allocator::Class;
    use crate::host::ScriptedDisk;
    use crate::layout::Raidz;

    #[test]
    fn ranges_on_the_children_of_raidz_cover_each_sector_once() {
        for (parity, width) in [(1, 2), (1, 3), (2, 5), (3, 7)] {
            let side = |guid| Some(Leaf::new(guid, Arc::new(ScriptedDisk::new(64 << 20)))).into();
            let top = TopVdev {
                id: 0,
                guid: 1,
                ashift: 12,
                asize: 1 << 30,
                metaslab_shift: 24,
                class: Class::Normal,
                shape: Shape::Parity {
                    layout: Spread::Raidz(Raidz::new(12, width, parity).unwrap()),
                    sides: (0..width as u64).map(side).collect(),
                },
            };
            for first in 0..20u64 {
                for end in first..40 {
                    let mut found = Vec::new();
                    for child in 0..width {
                        let (offset, len) = top.range_on(child, first << 12, (end - first) << 12);
                        let rows = offset >> 12..(offset + len) >> 12;
                        found.extend(rows.map(|row| row * width as u64 + child as u64));
                    }
                    found.sort_unstable();
                    assert_eq!(found, (first..end).collect::<Vec<_>>(), "raidz{parity} of {width}");
                }
            }
        }
    }
}

//! Sectors of a raidz vdev that gets one child more, copied from where they are to where they belong.
//!
//! From:   the sync thread of the pool, which knows what is in use and keeps everybody else out (`gate`).
//! To:     the devices of the vdev.
//! Source: docs/format/11-redundancy.md §11.
//!
//! Nothing is verified and nothing is computed: each sector is copied as it is. So all devices must be whole, else the sectors stay
//! where they are.

use std::sync::Arc;
use std::time::Instant;

use format::label::{BOOT_START, DATA_START};

use crate::io_queue::Job;
use crate::layout::{Column, Grown, Map, Spread};
use crate::raidz::spread;
use crate::side::Side;
use crate::vdev::Shape;
use crate::{Leaf, Payload, Purpose, ReadError, Storage, TopVdev, WriteError};

/// Bytes that are read before they are written.
const PIECE: u64 = 8 << 20;

/// The bytes that pass through the boot areas of the devices: the bytes of each child, in order.
#[derive(Debug)]
pub struct Scratch(Vec<Payload>);

/// Why nothing was copied, or not all.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Obstacle {
    /// The sectors of the vdev do not move.
    #[error("it is not being expanded")]
    NotExpanding,
    /// Sectors move between whole devices only.
    #[error("a device is missing, has failed, is being replaced or lacks something")]
    NotWhole,
    /// The first sectors do not fit into the boot areas of its devices.
    #[error("its boot areas do not suit it")]
    NoScratch,
    /// A device could not be read.
    #[error(transparent)]
    Unreadable(#[from] Arc<ReadError>),
    /// A device failed while sectors were written to it.
    #[error("a device failed")]
    Failed,
}

impl Obstacle {
    /// Whether it is of the same kind as `other`. Which device refused is noted with its errors.
    #[must_use]
    pub fn is_like(&self, other: &Obstacle) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl From<ReadError> for Obstacle {
    fn from(error: ReadError) -> Obstacle {
        Obstacle::Unreadable(Arc::new(error))
    }
}

impl Storage {
    /// Whether each child of this vdev is one device that is there, takes writes and missed nothing.
    #[must_use]
    pub fn is_whole(&self, vdev: u32) -> bool {
        self.vdevs().tops().get(vdev as usize).is_some_and(|top| children(top).is_some())
    }

    fn expanding(&self, vdev: u32) -> Result<(&Grown, Vec<&Leaf>), Obstacle> {
        let top = &self.vdevs().tops()[vdev as usize];
        let Shape::Parity { layout: Spread::Grown(layout), .. } = &top.shape else {
            return Err(Obstacle::NotExpanding);
        };
        Ok((layout, children(top).ok_or(Obstacle::NotWhole)?))
    }

    /// Copies the sectors of these ranges (offset, length) to where they lie with the newest child, and makes them durable. Where that
    /// fails, nothing was overwritten that is read.
    ///
    /// # Errors
    /// A device that the pool needs refused.
    pub fn move_sectors(&self, vdev: u32, ranges: &[(u64, u64)]) -> Result<Result<(), Obstacle>, WriteError> {
        let (layout, leaves) = match self.expanding(vdev) {
            Ok(found) => found,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let unit = 1u64 << self.vdevs().tops()[vdev as usize].ashift;
        let piece = PIECE / unit * unit;
        for (offset, len) in ranges {
            let (mut at, end) = (*offset, offset + len);
            while at < end {
                let bytes = at..end.min(at + piece);
                at = bytes.end;
                let mut all = vec![0; (bytes.end - bytes.start) as usize];
                let sector = |number: u64| (number * unit) as usize..((number + 1) * unit) as usize;
                for share in layout.shares(&bytes, false) {
                    let mut read = vec![0; share.place.len as usize];
                    if let Err(error) =
                        leaves[share.place.child].read(Purpose::Scrub, share.place.offset, &mut read)
                    {
                        return Ok(Err(error.into()));
                    }
                    for (row, found) in (0..).zip(read.chunks_exact(unit as usize)) {
                        all[sector(share.first + row * share.step)].copy_from_slice(found);
                    }
                }
                for share in layout.shares(&bytes, true) {
                    let rows = 0..share.place.len / unit;
                    let part: Vec<u8> =
                        rows.flat_map(|row| &all[sector(share.first + row * share.step)]).copied().collect();
                    self.submit_part(
                        (vdev, leaves[share.place.child]),
                        share.place.offset + DATA_START,
                        part.into(),
                    )?;
                }
            }
        }
        self.settle(vdev)
    }

    /// Writes the sectors before the border at the end of [`Grown::scratch`] into the boot areas, and makes them
    /// durable there. They have the order that they will have with the newest child.
    ///
    /// # Errors
    /// As [`Storage::move_sectors`].
    pub fn fill_scratch(&self, vdev: u32) -> Result<Result<Scratch, Obstacle>, WriteError> {
        let (layout, leaves) = match self.expanding(vdev) {
            Ok(found) => found,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let Some(len) = layout.scratch() else { return Ok(Err(Obstacle::NoScratch)) };
        let (unit, width) = (1usize << self.vdevs().tops()[vdev as usize].ashift, leaves.len());
        let mut before = Vec::with_capacity(width - 1);
        for leaf in &leaves[..width - 1] {
            let mut read = vec![0; layout.before_scratch() as usize];
            if let Err(error) = leaf.read(Purpose::Scrub, 0, &mut read) {
                return Ok(Err(error.into()));
            }
            before.push(read);
        }
        let mut after = vec![vec![0; len as usize / width]; width];
        let place = |number: usize, width: usize| (number % width, number / width * unit);
        for number in 0..len as usize / unit {
            let ((from, row), (to, new_row)) = (place(number, width - 1), place(number, width));
            after[to][new_row..new_row + unit].copy_from_slice(&before[from][row..row + unit]);
        }
        let scratch = Scratch(after.into_iter().map(Payload::from).collect());
        for (leaf, part) in leaves.iter().zip(&scratch.0) {
            self.submit_part((vdev, leaf), BOOT_START, part.clone())?;
        }
        Ok(self.settle(vdev)?.map(|()| scratch))
    }

    /// The content of the boot areas of a vdev, after `len` bytes passed through them.
    ///
    /// # Errors
    /// A device is not there, or refuses.
    pub fn read_scratch(&self, vdev: u32, len: u64) -> Result<Scratch, Obstacle> {
        let (_, leaves) = self.expanding(vdev)?;
        let own = len as usize / leaves.len();
        let read = |leaf: &&Leaf| {
            let mut bytes = vec![0; own];
            let refused = |source| ReadError::Device {
                path: leaf.disk.path().to_path_buf(),
                offset: BOOT_START,
                source,
            };
            leaf.disk.read_at(&mut bytes, BOOT_START).map_err(refused)?;
            Ok(Payload::from(bytes))
        };
        leaves.iter().map(read).collect::<Result<_, Obstacle>>().map(Scratch)
    }

    /// Writes the contents of the boot areas to their places, and makes them durable. Returns whether every device
    /// accepted them: a device that did not has no right data there.
    ///
    /// # Errors
    /// As [`Storage::move_sectors`].
    pub fn empty_scratch(&self, vdev: u32, scratch: Scratch) -> Result<Result<(), Obstacle>, WriteError> {
        let top = &self.vdevs().tops()[vdev as usize];
        for (leaf, part) in top.leaves().zip(scratch.0) {
            self.submit_part((vdev, leaf), DATA_START, part)?;
        }
        self.settle(vdev)
    }

    fn submit_part(&self, (vdev, leaf): (u32, &Leaf), offset: u64, part: Payload) -> Result<(), WriteError> {
        let len = part.bytes().len();
        let (leaf, buffers, submitted) = (leaf.clone(), vec![part], Instant::now());
        self.io().submit(Job { vdev, leaf, offset, buffers, len, submitted })
    }

    /// Waits for all submitted writes, and makes them durable.
    fn settle(&self, vdev: u32) -> Result<Result<(), Obstacle>, WriteError> {
        self.io().drain()?;
        self.flush()?;
        Ok(if self.is_whole(vdev) { Ok(()) } else { Err(Obstacle::Failed) })
    }
}

/// Each place where a part of the block is to be written, with its bytes: the columns, and copies of the columns that
/// have a second place.
pub(crate) fn placed(map: &Map, block: &Payload) -> Vec<(Column, Payload)> {
    let parts = spread(map, block);
    let copies = map.copies.iter().map(|(column, place)| (*place, parts[*column].clone()));
    let copies: Vec<_> = copies.collect();
    map.columns.iter().copied().zip(parts).chain(copies).collect()
}

/// The devices of a vdev, one for each child, if all are whole.
fn children(top: &TopVdev) -> Option<Vec<&Leaf>> {
    let Shape::Parity { sides, .. } = &top.shape else { return None };
    let only = |side: &'_ Side| -> bool { side.places().len() == 1 };
    if !sides.iter().all(only) {
        return None;
    }
    let is_whole = |leaf: &&Leaf| !leaf.health.has_failed() && leaf.health.missing().is_empty();
    let whole: Vec<&Leaf> = sides.iter().flat_map(Side::leaves).filter(is_whole).collect();
    (whole.len() == sides.len()).then_some(whole)
}

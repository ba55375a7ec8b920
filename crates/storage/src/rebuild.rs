//! Rebuilding devices in the order of places: what is in use of a range is copied from other devices, or computed from parity,
//! without knowledge of the blocks in it.
//!
//! From:   `pool`, which knows what is in use, and which devices are rebuilt.
//! To:     those devices alone.
//! Source: docs/format/11-redundancy.md §7.
//!
//! There are no checksums here, so only devices that miss nothing are read. No block is written to a range while it is
//! copied: the sync thread, which calls this, writes nothing else meanwhile, and blocks of intent logs wait (`beside`).
//! Otherwise data that was read before such a block was written could be written over it.

use std::time::Instant;

use codec::parity::{generate, reconstruct};
use format::label::DATA_START;

use crate::distributed::{Holder, Ways};
use crate::io_queue::Job;
use crate::layout::{Column, Draid, Map, Spread};
use crate::side::Side;
use crate::vdev::Shape;
use crate::{Caller, Leaf, Payload, Purpose, Storage, TopVdev, WriteError};

/// Bytes of a mirror, or of each column, that are read at once.
const CHUNK: u64 = 1 << 20;
/// Number of chunks during which blocks of intent logs must wait.
const CHUNKS_AT_ONCE: usize = 8;
/// log2 of the bytes that are read from one side of a mirror before it is another one's turn.
const TURN_SHIFT: u32 = 21;

/// The result of rebuilding ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Bytes written to devices.
    pub written: u64,
    /// Pieces of the ranges that too few devices could give.
    pub unreadable: u64,
}

/// A write to one device.
struct Part<'a> {
    leaf: &'a Leaf,
    offset: u64,
    payload: Payload,
}

impl Storage {
    /// Writes the data of `ranges`, each an offset and a length, to the leaves `targets` of a top-level vdev. The
    /// ranges must be in use while this runs. For the sync thread alone.
    ///
    /// # Errors
    /// A device that the pool needs refused.
    ///
    /// # Panics
    /// There is no such vdev; another thread panicked while it wrote a block of an intent log.
    pub fn rebuild(&self, vdev: u32, targets: &[u64], ranges: &[(u64, u64)]) -> Result<Rebuilt, WriteError> {
        let top = &self.vdevs().tops()[vdev as usize];
        let chunks: Vec<(u64, u64)> =
            ranges.iter().flat_map(|(start, len)| chunks(top, *start, *len)).collect();
        let mut rebuilt = Rebuilt::default();
        for some in chunks.chunks(CHUNKS_AT_ONCE) {
            let _alone = self.beside.write();
            let parts_of = |(start, len): (u64, u64)| parts(top, targets, start, len);
            let sink = |parts: Option<Vec<Part<'_>>>| {
                match parts {
                    None => rebuilt.unreadable += 1,
                    Some(parts) => {
                        for part in parts {
                            rebuilt.written += part.payload.bytes().len() as u64;
                            self.write_rebuilt(vdev, part)?;
                        }
                    }
                }
                Ok::<(), WriteError>(())
            };
            self.readers().map_ordered(
                Caller::Works,
                some.iter().copied(),
                CHUNKS_AT_ONCE,
                parts_of,
                sink,
            )?;
            self.io().drain()?;
        }
        Ok(rebuilt)
    }

    fn write_rebuilt(&self, vdev: u32, part: Part<'_>) -> Result<(), WriteError> {
        let Part { leaf, offset, payload } = part;
        let (len, submitted) = (payload.bytes().len(), Instant::now());
        let (leaf, offset, buffers) = (leaf.clone(), offset + DATA_START, vec![payload]);
        self.io().submit(Job { vdev, leaf, offset, buffers, len, submitted })
    }
}

/// A range, divided into pieces that are rebuilt separately.
fn chunks(top: &TopVdev, start: u64, len: u64) -> Vec<(u64, u64)> {
    let end = start + len;
    let mut chunks = Vec::new();
    let mut at = start;
    while at < end {
        let most = match &top.shape {
            Shape::Parity { layout: Spread::Draid(layout), .. } => layout.rest_of_group(at, CHUNK),
            _ => CHUNK,
        };
        let len = most.min(end - at);
        chunks.push((at, len));
        at += len;
    }
    chunks
}

/// Whether the data of this leaf is right, as far as that is known.
fn is_whole(leaf: &Leaf, targets: &[u64]) -> bool {
    !targets.contains(&leaf.guid) && !leaf.health.has_failed() && leaf.health.missing().is_empty()
}

fn takes(leaf: &Leaf, targets: &[u64]) -> bool {
    targets.contains(&leaf.guid) && !leaf.health.has_failed()
}

/// Whether what a device holds for a leaf is right, as far as that is known.
fn holds_all(holder: &Holder<'_>, targets: &[u64]) -> bool {
    holder.chain().all(|leaf| is_whole(leaf, targets))
}

/// Whether a device gets data of a leaf: the leaf is rebuilt, or a distributed spare that leads to it.
fn is_rebuilt(holder: &Holder<'_>, targets: &[u64]) -> bool {
    holder.chain().any(|leaf| targets.contains(&leaf.guid))
}

/// The writes that rebuild a chunk. `None`: its content cannot be known.
fn parts<'a>(top: &'a TopVdev, targets: &[u64], start: u64, len: u64) -> Option<Vec<Part<'a>>> {
    match &top.shape {
        Shape::Mirror(_) => {
            let sources: Vec<&Leaf> = top.leaves().filter(|leaf| is_whole(leaf, targets)).collect();
            let first = (start >> TURN_SHIFT) as usize % sources.len().max(1);
            let mut in_turn = sources[first..].iter().chain(&sources[..first]);
            let payload = in_turn.find_map(|leaf| read(leaf, start, len))?;
            let targets = top.leaves().filter(|leaf| takes(leaf, targets));
            Some(targets.map(|leaf| Part { leaf, offset: start, payload: payload.clone() }).collect())
        }
        Shape::Parity { layout: Spread::Draid(layout), sides } => {
            Stripes { map: map(layout, start, len), sides, ways: top.ways(), targets }.parts()
        }
        _ => None,
    }
}

fn read(leaf: &Leaf, offset: u64, len: u64) -> Option<Payload> {
    let mut bytes = vec![0; len as usize];
    leaf.read(Purpose::Scrub, offset, &mut bytes).ok()?;
    Some(Payload::from(bytes))
}

/// The columns of whole stripes within one group.
fn map(layout: &Draid, start: u64, len: u64) -> Map {
    let spec = layout.spec();
    layout.map(start, len / spec.width() * spec.data)
}

/// Whole stripes of a group.
struct Stripes<'a, 'b> {
    map: Map,
    sides: &'a [Side],
    ways: Ways<'a>,
    targets: &'b [u64],
}

impl<'a> Stripes<'a, '_> {
    /// The writes that rebuild these stripes.
    fn parts(&self) -> Option<Vec<Part<'a>>> {
        let wanted: Vec<usize> =
            (0..self.map.columns.len()).filter(|column| !self.takers(*column).is_empty()).collect();
        if wanted.is_empty() {
            return Some(Vec::new());
        }
        let mut found: Vec<Option<Payload>> = vec![None; self.map.columns.len()];
        for column in &wanted {
            found[*column] = self.read(*column);
        }
        if wanted.iter().any(|column| found[*column].is_none()) {
            self.complete(&mut found)?;
        }
        let mut parts = Vec::new();
        for column in wanted {
            let (payload, offset) = (found[column].clone()?, self.column(column).offset);
            let leaves = self.takers(column).into_iter();
            parts.extend(leaves.map(|leaf| Part { leaf, offset, payload: payload.clone() }));
        }
        Some(parts)
    }

    fn column(&self, column: usize) -> &Column {
        &self.map.columns[column]
    }

    fn side(&self, column: usize) -> &'a Side {
        &self.sides[self.column(column).child]
    }

    /// The devices that get a column. A rebuilt leaf of which no device takes the column goes on missing all that it misses.
    fn takers(&self, column: usize) -> Vec<&'a Leaf> {
        let offset = self.column(column).offset;
        let mut takers = Vec::new();
        for leaf in self.side(column).leaves().filter(|leaf| !leaf.health.has_failed()) {
            let held: Vec<Holder<'a>> = self.ways.written(leaf, offset).collect();
            if held.is_empty() && takes(leaf, self.targets) {
                leaf.health.keep_all_missing();
            }
            let meant = held.iter().filter(|holder| is_rebuilt(holder, self.targets));
            takers.extend(meant.map(|holder| holder.device));
        }
        takers
    }

    /// A column, read from a complete device.
    fn read(&self, column: usize) -> Option<Payload> {
        let Column { offset, len, .. } = *self.column(column);
        let holders = self.side(column).leaves().flat_map(|leaf| self.ways.holders(leaf, offset));
        let mut sources = holders.filter(|holder| holds_all(holder, self.targets));
        sources.find_map(|holder| read(holder.device, offset, len))
    }

    /// Computes the columns that no device has from the others.
    fn complete(&self, found: &mut [Option<Payload>]) -> Option<()> {
        for (column, known) in found.iter_mut().enumerate() {
            if known.is_none() {
                *known = self.read(column);
            }
        }
        let group = 0..found.len();
        let (parity, data) = (self.map.parity_of(&group), self.map.data_of(&group));
        let bytes = |column: usize| match &found[column] {
            Some(payload) => payload.bytes().to_vec(),
            None => vec![0; self.column(column).len as usize],
        };
        let mut columns: Vec<Vec<u8>> = data.clone().map(bytes).collect();
        let lost: Vec<usize> = (0..data.len()).filter(|at| found[data.start + at].is_none()).collect();
        if !lost.is_empty() {
            let left: Vec<Option<&[u8]>> =
                parity.clone().map(|column| found[column].as_ref().map(Payload::bytes)).collect();
            let mut views: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
            reconstruct(&mut views, &left, &lost).ok()?;
        }
        let views: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
        let mut made: Vec<Vec<u8>> =
            parity.clone().map(|column| vec![0; self.column(column).len as usize]).collect();
        let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        generate(&views, &mut outputs);
        for (column, bytes) in parity.zip(made).chain(data.zip(columns)) {
            found[column].get_or_insert_with(|| Payload::from(bytes));
        }
        Some(())
    }
}

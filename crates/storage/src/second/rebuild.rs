//! Finds what is on a cache device: from the header along two chains of log blocks, newest first.
//!
//! Source: docs/format/12-auxiliary-vdevs.md §2.7.

use format::l2arc::{LOG_BLOCK_SIZE, LogBlock, LogPtr};
use format::{ChecksumKind, Compression};

use super::device::Device;
use super::index::{Key, Place};
use super::ring::{Buffer, Ring};
use crate::meter::Purpose;

/// The contents of a device that has a header of this pool; `None`: it has none.
pub(super) fn read(device: &Device) -> Option<Ring> {
    let header = device.read_header()?;
    let newest = header.newest[0];
    // Without a log block nothing can be found, and the first sweep begins anew.
    if newest.is_none() || newest.at < device.start || newest.end() > device.end {
        return None;
    }
    let mut ring = Ring {
        hand: newest.end(),
        evict: header.evict,
        first_sweep: header.first_sweep,
        newest: header.newest,
        trim: header.trim,
        ..Ring::empty(device)
    };
    let blocks = walk(device, &ring);
    for (pointer, block) in blocks.into_iter().rev() {
        ring.logs.push_back(pointer);
        ring.buffers.extend(buffers(device, &block));
    }
    Some(ring)
}

/// The log blocks that can be read and were not overwritten, newest first.
fn walk(device: &Device, ring: &Ring) -> Vec<(LogPtr, LogBlock)> {
    let mut blocks: Vec<(LogPtr, LogBlock)> = Vec::new();
    let [mut next, mut after] = ring.newest;
    // Each log block has its own place on the device, so a longer chain would be a circle.
    let most = (device.end - device.start) / device.sector;
    while is_valid(device, ring, &next) && (blocks.len() as u64) < most {
        let Some(block) = read_block(device, &next) else { break };
        let is_last = !ring.first_sweep && is_between(after.payload_start, next.payload_start, ring.evict);
        let previous = block.previous;
        blocks.push((next, block));
        if is_last {
            break;
        }
        (next, after) = (after, previous);
    }
    blocks
}

/// Whether a log block and all that it lists lie in the part of the device that was not given up.
fn is_valid(device: &Device, ring: &Ring, pointer: &LogPtr) -> bool {
    let last = pointer.end().saturating_sub(1);
    let is_inside = !pointer.is_none()
        && pointer.stored <= LOG_BLOCK_SIZE as u64
        && pointer.lsize == LOG_BLOCK_SIZE as u64
        && pointer.payload_start >= device.start
        && pointer.payload_start < device.end
        && pointer.at >= device.start
        && pointer.end() <= device.end;
    if !is_inside {
        return false;
    }
    if ring.first_sweep {
        return pointer.end() <= ring.hand;
    }
    let (from, to) = (pointer.payload_start, last);
    let is_given_up = is_between(from, to, ring.hand)
        || is_between(from, to, ring.evict)
        || is_between(ring.hand, ring.evict, from)
        || is_between(ring.hand, ring.evict, to);
    !is_given_up
}

/// Whether `at` lies in the part of the ring that begins at `from` and ends with `to`.
fn is_between(from: u64, to: u64, at: u64) -> bool {
    if from <= to { from <= at && at <= to } else { at <= to || from <= at }
}

fn read_block(device: &Device, pointer: &LogPtr) -> Option<LogBlock> {
    let mut stored = vec![0; pointer.stored as usize];
    device.read(Purpose::AsyncRead, pointer.at, &mut stored).ok()?;
    let sum = codec::checksum(ChecksumKind::Fletcher4, &stored, &codec::Salt::none());
    if sum != pointer.checksum {
        return None;
    }
    let mut raw = vec![0; LOG_BLOCK_SIZE];
    match Compression::from_disk(pointer.compression).ok()? {
        kind @ (Compression::Off | Compression::Lz4) => codec::decompress(kind, &stored, &mut raw).ok()?,
        _ => return None,
    }
    LogBlock::decode(&raw, device.log_entries).ok()
}

/// The buffers that a log block lists; places outside the device are left out.
fn buffers<'a>(device: &'a Device, block: &'a LogBlock) -> impl Iterator<Item = Buffer> + 'a {
    let inside = |at: u64, psize: u64| {
        at >= device.start && at.checked_add(device.asize(psize)).is_some_and(|end| end <= device.end)
    };
    block.entries.iter().filter(move |entry| inside(entry.at, entry.psize)).map(|entry| Buffer {
        key: Key::new(&entry.dva, entry.birth),
        place: Place { device: device.guid, at: entry.at, psize: entry.psize },
    })
}

//! The thread that writes cache devices.
//!
//! A feed takes the blocks that were offered since the last feed and writes them to one device; the devices take turns.
//! It first drops old contents, then writes blocks and log blocks, and then the index and the header refer to them.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use format::Compression;
use format::compression::CompressionSetting;
use format::l2arc::{LOG_BLOCK_SIZE, LogBlock, LogPtr};

use super::device::Device;
use super::index::Place;
use super::ring::{Buffer, Ring};
use super::{Offer, Orders, Shared, count, rebuild};
use crate::WriteError;

/// Time between two feeds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two feeds while many blocks are offered.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Pieces of one write: fewer than any system refuses.
const PIECES_MAX: usize = 512;
/// Bytes behind a buffer up to the next sector.
static PADDING: [u8; 1 << 16] = [0; 1 << 16];

/// A device and what is on it.
struct Fed {
    device: Arc<Device>,
    ring: Ring,
}

/// Carries out orders until the last one is to leave.
pub(super) fn run(shared: &Shared) {
    let mut fed: Vec<Fed> = Vec::new();
    let mut last = Instant::now();
    while let Some(mut orders) = next(shared, last) {
        for guid in orders.removed.drain(..) {
            fed.retain(|fed| fed.device.guid != guid);
            publish(shared, &fed);
            shared.index().remove_device(guid);
        }
        for device in orders.added.drain(..) {
            if let Some(ring) = begin(shared, &device) {
                fed.push(Fed { device, ring });
                publish(shared, &fed);
            }
        }
        if !orders.offers.is_empty() {
            last = Instant::now();
            // The device that was fed longest ago.
            let by = usize::from(fed.len() > 1);
            fed.rotate_left(by);
            feed(shared, fed.last_mut(), orders.offers);
            if fed.iter().any(|fed| fed.device.is_failed()) {
                fed.retain(|fed| !fed.device.is_failed());
            }
        }
        shared.orders().busy = false;
        shared.changed.notify_all();
    }
    for fed in &fed {
        // If the device refuses, a later import finds less.
        let _ = fed.device.flush();
    }
}

/// The next orders, when it is time for them; `None`: the thread is to end.
fn next(shared: &Shared, last: Instant) -> Option<Orders> {
    let half = shared.limits().write_max / 2;
    let mut orders = shared.orders();
    loop {
        if orders.leaving {
            return None;
        }
        let interval = if orders.bytes >= half { INTERVAL_MIN } else { INTERVAL };
        let rest = interval.saturating_sub(last.elapsed());
        if orders.is_urgent() || (!orders.offers.is_empty() && rest.is_zero()) {
            let taken = std::mem::take(&mut *orders);
            orders.busy = true;
            return Some(taken);
        }
        let wait = if orders.offers.is_empty() { Duration::MAX } else { rest };
        orders = if wait == Duration::MAX {
            shared.wait_for_change(orders)
        } else {
            orders.wait(|orders| {
                shared.changed.wait_timeout(orders, wait).expect("no code panics while holding the orders").0
            })
        };
    }
}

/// Gives readers the list of devices.
fn publish(shared: &Shared, fed: &[Fed]) {
    let devices: Vec<_> = fed.iter().map(|fed| fed.device.clone()).collect();
    shared.used.store(!devices.is_empty(), Ordering::Relaxed);
    *shared.devices.write() = devices;
}

/// Reads the state of a device that is new here, or writes a header to one that has none. `None`: it refuses.
fn begin(shared: &Shared, device: &Device) -> Option<Ring> {
    if device.rebuild
        && let Some(ring) = rebuild::read(device)
    {
        let mut index = shared.index();
        let room = shared.index_max.load(Ordering::Relaxed).saturating_sub(index.len());
        let skipped = ring.buffers.len().saturating_sub(room as usize);
        for buffer in ring.buffers.iter().skip(skipped) {
            index.insert(buffer.key, buffer.place);
        }
        count(&shared.counters.restored, (ring.buffers.len() - skipped) as u64);
        device.used.store(ring.used(device), Ordering::Relaxed);
        return Some(ring);
    }
    let ring = Ring::empty(device);
    match device.write_header(&ring.header(device)) {
        Ok(()) => Some(ring),
        Err(error) => {
            device.fail(&error);
            None
        }
    }
}

/// Writes the offered blocks to a device, at most a quarter of its size. The rest is dropped.
fn feed(shared: &Shared, fed: Option<&mut Fed>, mut offers: Vec<Offer>) {
    let written = match fed {
        Some(Fed { device, ring }) => write(shared, device, ring, &mut offers),
        None => 0,
    };
    let mut index = shared.index();
    offers[written..].iter().for_each(|offer| index.give_up(&offer.key));
}

/// As [`feed`]; returns how many of the offers are on the device.
fn write(shared: &Shared, device: &Device, ring: &mut Ring, offers: &mut [Offer]) -> usize {
    let (taken, len) = fitting(device, offers);
    if taken == 0 {
        return 0;
    }
    let gone = ring.make_room(device, len);
    {
        let mut index = shared.index();
        let evicted = gone.iter().filter(|buffer| index.remove_at(&buffer.key, buffer.place)).count();
        count(&shared.counters.evicted, evicted as u64);
    }
    match write_offers(device, ring, &mut offers[..taken]) {
        Ok(buffers) => {
            let mut index = shared.index();
            for buffer in &buffers {
                index.insert(buffer.key, buffer.place);
            }
            drop(index);
            ring.buffers.extend(buffers);
            device.used.store(ring.used(device), Ordering::Relaxed);
            count(&shared.counters.feeds, 1);
            count(&shared.counters.written, taken as u64);
            taken
        }
        Err(error) => {
            device.fail(&error);
            shared.index().remove_device(device.guid);
            0
        }
    }
}

/// How many of the offers fit into a quarter of the device, and the bytes that they take with their log blocks.
fn fitting(device: &Device, offers: &[Offer]) -> (usize, u64) {
    let quarter = (device.end - device.start) / 4;
    let log = device.asize(LOG_BLOCK_SIZE as u64);
    let mut len = if device.log_entries > 0 { log } else { 0 };
    let mut taken = 0;
    for offer in offers {
        let log_due = device.log_entries > 0 && (taken as u64 + 1).is_multiple_of(device.log_entries);
        let more = device.asize(offer.raw.len() as u64) + if log_due { log } else { 0 };
        if len + more > quarter {
            break;
        }
        len += more;
        taken += 1;
    }
    (taken, len)
}

/// Bytes on their way to a device, one after another.
struct Pieces<'a> {
    /// Where the first one goes.
    at: u64,
    pieces: Vec<Piece<'a>>,
}

enum Piece<'a> {
    Buffer(&'a [u8]),
    Log(Vec<u8>),
}

impl Piece<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Buffer(bytes) => bytes,
            Piece::Log(bytes) => bytes,
        }
    }
}

impl Pieces<'_> {
    fn write(&self, device: &Device) -> Result<(), WriteError> {
        let mut at = self.at;
        for pieces in self.pieces.chunks(PIECES_MAX / 2) {
            let mut slices = Vec::with_capacity(PIECES_MAX);
            let mut len = 0;
            for bytes in pieces.iter().map(Piece::bytes) {
                let padding = device.asize(bytes.len() as u64) - bytes.len() as u64;
                slices.push(IoSlice::new(bytes));
                if padding > 0 {
                    slices.push(IoSlice::new(&PADDING[..padding as usize]));
                }
                len += bytes.len() as u64 + padding;
            }
            device.write(&slices, at)?;
            at += len;
        }
        Ok(())
    }
}

/// Writes all offers behind each other, with log blocks where these are due, and then the header.
fn write_offers(device: &Device, ring: &mut Ring, offers: &mut [Offer]) -> Result<Vec<Buffer>, WriteError> {
    let mut out = Pieces { at: ring.hand, pieces: Vec::new() };
    let mut buffers = Vec::with_capacity(offers.len());
    for offer in offers {
        offer.entry.at = ring.hand;
        let place = Place { device: device.guid, at: ring.hand, psize: offer.entry.psize };
        buffers.push(Buffer { key: offer.key, place });
        ring.hand += device.asize(offer.entry.psize);
        out.pieces.push(Piece::Buffer(&offer.raw));
        if device.log_entries > 0 {
            ring.open.push(offer.entry);
            if ring.open.len() as u64 == device.log_entries {
                out.pieces.push(Piece::Log(close_log(device, ring)));
            }
        }
    }
    out.write(device)?;
    device.write_header(&ring.header(device))?;
    Ok(buffers)
}

/// Makes a log block of the waiting entries, at the present position. Returns its bytes.
fn close_log(device: &Device, ring: &mut Ring) -> Vec<u8> {
    let entries = std::mem::take(&mut ring.open);
    let payload_start = entries[0].at;
    let payload_asize = entries.iter().map(|entry| device.asize(entry.psize)).sum();
    let raw = LogBlock { previous: ring.newest[1], entries }.encode();
    let (stored, compression) = compressed(device, raw);
    let checksum = codec::checksum(format::ChecksumKind::Fletcher4, &stored, &codec::Salt::none());
    let pointer = LogPtr {
        payload_asize,
        payload_start,
        ..LogPtr::new(ring.hand, stored.len() as u64, compression, checksum)
    };
    ring.hand += pointer.stored;
    ring.newest = [pointer, ring.newest[0]];
    ring.logs.push_back(pointer);
    stored
}

/// A log block as it is stored, in whole sectors: with LZ4 if that saves one.
fn compressed(device: &Device, raw: Vec<u8>) -> (Vec<u8>, Compression) {
    let mut packed = vec![0; raw.len() - device.sector as usize];
    match codec::compress(CompressionSetting::plain(Compression::Lz4), &raw, &mut packed) {
        Some(len) => {
            let stored = device.asize(len as u64) as usize;
            packed[len..stored].fill(0);
            packed.truncate(stored);
            (packed, Compression::Lz4)
        }
        None => (raw, Compression::Off),
    }
}

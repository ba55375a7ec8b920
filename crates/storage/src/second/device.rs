//! A cache device: where its contents lie, its header, and reads of it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use format::l2arc::{self, HEADER_AT, HEADER_SIZE, Header};
use format::{Guid, label};

use super::{SecondDevice, SecondLimits};
use crate::host::Disk;
use crate::leaf::Leaf;
use crate::meter::Purpose;
use crate::{ReadError, WriteError};

/// Fewer bytes for contents are not worth using.
const MIN_SIZE: u64 = 8 << 20;
/// A larger sector no device has.
const ASHIFT_MAX: u32 = 16;

/// A device that blocks are kept on.
pub(super) struct Device {
    pub(super) pool: Guid,
    pub(super) guid: Guid,
    pub(super) leaf: Leaf,
    /// Bytes of a sector.
    pub(super) sector: u64,
    /// Where contents begin, in bytes from the beginning of the device.
    pub(super) start: u64,
    /// Where contents end.
    pub(super) end: u64,
    /// Entries of each log block; 0: the device has none.
    pub(super) log_entries: u64,
    /// Look for what is on it.
    pub(super) rebuild: bool,
    pub(super) used: AtomicU64,
    /// Why the device is not used any more.
    failed: OnceLock<String>,
}

impl Device {
    /// `None` for a device that is too small.
    pub(super) fn new(
        pool: Guid,
        guid: Guid,
        disk: Arc<dyn Disk>,
        ashift: u32,
        limits: &SecondLimits,
    ) -> Option<Device> {
        let sector = 1u64 << ashift.clamp(format::SECTOR_SHIFT, ASHIFT_MAX);
        let start = HEADER_AT + sector.max(HEADER_SIZE as u64);
        let end = label::DATA_START + label::asize_of(disk.size());
        if end < start + MIN_SIZE {
            return None;
        }
        Some(Device {
            pool,
            guid,
            leaf: Leaf::new(guid.0, disk),
            sector,
            start,
            end,
            log_entries: l2arc::log_entries(start, end, limits.log_min),
            rebuild: limits.rebuild,
            used: AtomicU64::new(0),
            failed: OnceLock::new(),
        })
    }

    /// Bytes that a buffer of `len` bytes takes.
    pub(super) const fn asize(&self, len: u64) -> u64 {
        len.next_multiple_of(self.sector)
    }

    /// Fills `buf` from the byte offset `at`.
    pub(super) fn read(&self, purpose: Purpose, at: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        self.leaf.read(purpose, at - label::DATA_START, buf)
    }

    /// Writes `bytes` from the byte offset `at`.
    pub(super) fn write(&self, bytes: &[IoSlice<'_>], at: u64) -> Result<(), WriteError> {
        self.leaf.write(bytes, at)
    }

    /// The header as it is on the device, if it is one of this device and pool.
    pub(super) fn read_header(&self) -> Option<Header> {
        let mut raw = vec![0; (self.start - HEADER_AT) as usize];
        self.leaf.disk.read_at(&mut raw, HEADER_AT).ok()?;
        let order = codec::embedded::verify(&raw, [HEADER_AT, 0, 0, 0])?;
        let header = Header::decode(&raw).ok().filter(|_| order == format::ByteOrder::Little)?;
        let is_ours = header.pool == self.pool
            && header.vdev == self.guid
            && header.log_entries == self.log_entries
            && (header.start, header.end) == (self.start, self.end)
            && (self.start..=self.end).contains(&header.evict);
        is_ours.then_some(header)
    }

    /// Writes the header. Whatever it leads to must be on the device already.
    pub(super) fn write_header(&self, header: &Header) -> Result<(), WriteError> {
        let mut raw = header.encode((self.start - HEADER_AT) as usize);
        codec::embedded::seal(&mut raw, [HEADER_AT, 0, 0, 0]);
        self.write(&[IoSlice::new(&raw)], HEADER_AT)
    }

    /// The device refused: it is not used any more.
    pub(super) fn fail(&self, error: &WriteError) {
        let _ = self.failed.set(error.to_string());
        self.used.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    pub(super) fn figures(&self) -> SecondDevice {
        SecondDevice {
            guid: self.guid,
            size: self.end - label::DATA_START,
            used: self.used.load(Ordering::Relaxed),
            failed: self.failed.get().cloned(),
            io: self.leaf.meter.stats(),
            times: self.leaf.meter.times(),
        }
    }

    /// Makes all writes durable: the next import relies on it.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.leaf.disk.flush()
    }
}

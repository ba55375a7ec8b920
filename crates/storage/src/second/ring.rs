//! Contents of a cache device. They are written from its start to its end, and then over the oldest ones.

use std::collections::VecDeque;

use format::l2arc::{Entry, Header, LogPtr};

use super::device::Device;
use super::index::{Key, Place};

/// A buffer on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub(super) key: Key,
    pub(super) place: Place,
}

/// The contents of a cache device, in the order in which they were written.
pub(super) struct Ring {
    /// Where the next buffer goes.
    pub(super) hand: u64,
    /// Old contents were dropped up to this place.
    pub(super) evict: u64,
    /// The end was not reached yet.
    pub(super) first_sweep: bool,
    pub(super) buffers: VecDeque<Buffer>,
    /// Log blocks, oldest first.
    pub(super) logs: VecDeque<LogPtr>,
    /// The newest log block and the one before it, which may be overwritten already.
    pub(super) newest: [LogPtr; 2],
    /// The entries of the next log block.
    pub(super) open: Vec<Entry>,
    pub(super) trim: [u64; 2],
}

impl Ring {
    /// Of a device with no contents.
    pub(super) fn empty(device: &Device) -> Ring {
        Ring {
            hand: device.start,
            evict: device.start,
            first_sweep: true,
            buffers: VecDeque::new(),
            logs: VecDeque::new(),
            newest: [LogPtr::default(); 2],
            open: Vec::new(),
            trim: [0; 2],
        }
    }

    /// The header that describes these contents.
    pub(super) fn header(&self, device: &Device) -> Header {
        Header {
            pool: device.pool,
            vdev: device.guid,
            log_entries: device.log_entries,
            evict: self.evict,
            first_sweep: self.first_sweep,
            start: device.start,
            end: device.end,
            newest: self.newest,
            log_asize: self.logs.iter().map(|log| log.stored).sum(),
            log_count: self.logs.len() as u64,
            trim: self.trim,
        }
    }

    /// Bytes of the contents.
    pub(super) fn used(&self, device: &Device) -> u64 {
        let buffers: u64 = self.buffers.iter().map(|buffer| device.asize(buffer.place.psize)).sum();
        buffers + self.logs.iter().map(|log| log.stored).sum::<u64>()
    }

    /// Drops the contents of the next `len` bytes, which are at most a quarter of the device. Goes back to the start if
    /// the rest of the device is too short. Returns the dropped buffers.
    pub(super) fn make_room(&mut self, device: &Device, len: u64) -> Vec<Buffer> {
        let mut gone = Vec::new();
        if self.hand + len > device.end {
            self.give_up(device.end, &mut gone);
            (self.hand, self.evict) = (device.start, device.start);
            self.first_sweep = false;
        }
        if !self.first_sweep {
            let to = self.hand + len;
            self.give_up(to, &mut gone);
            self.evict = self.evict.max(to);
        }
        gone
    }

    /// Drops cached blocks between the write position and `to`: the oldest contents, if the device was filled before.
    fn give_up(&mut self, to: u64, gone: &mut Vec<Buffer>) {
        let hand = self.hand;
        let is_next = |at: u64| at >= hand && at < to;
        let first_kept = |buffer: &Buffer| !is_next(buffer.place.at);
        let buffers = self.buffers.iter().position(first_kept).unwrap_or(self.buffers.len());
        gone.extend(self.buffers.drain(..buffers));
        // A log block goes with the first of the buffers that it lists.
        let first_kept = |log: &LogPtr| !is_next(log.payload_start) && !is_next(log.at);
        let logs = self.logs.iter().position(first_kept).unwrap_or(self.logs.len());
        self.logs.drain(..logs);
    }
}

//! A disk that is no faster than it is told to be.
//!
//! From:   a [`Disk`], and what another one could do.
//! To:     measurements of how a pool behaves behind a slower device than the one at hand.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use storage::host::Disk;

use crate::Device;

/// Requests may be this far ahead of their time: a device has a small buffer.
const AHEAD: Duration = Duration::from_millis(5);

/// When the device will have done what it was asked so far.
#[derive(Debug)]
struct Queue {
    bytes_per_second: Option<u64>,
    free_at: Mutex<Instant>,
}

impl Queue {
    fn new(bytes_per_second: Option<u64>) -> Queue {
        Queue { bytes_per_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Returns when the device would be done with `bytes` more.
    fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let done = {
            let mut free_at = self.free_at.lock().expect("no code panics while holding the time");
            *free_at = (*free_at).max(Instant::now()) + takes;
            *free_at
        };
        let wait = done.saturating_duration_since(Instant::now());
        if wait > AHEAD {
            std::thread::sleep(wait - AHEAD);
        }
    }

    /// Returns when the device is done with all it was asked.
    fn drain(&self) {
        let done = *self.free_at.lock().expect("no code panics while holding the time");
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}

/// A disk with a limit.
#[derive(Debug)]
pub(crate) struct Throttled {
    disk: Arc<dyn Disk>,
    reads: Queue,
    writes: Queue,
}

impl Throttled {
    /// `disk`, held to what `device` can do.
    pub(crate) fn over(disk: Arc<dyn Disk>, device: Device) -> Arc<dyn Disk> {
        if device == Device::default() {
            return disk;
        }
        let (reads, writes) = (Queue::new(device.read_bytes), Queue::new(device.write_bytes));
        Arc::new(Throttled { disk, reads, writes })
    }
}

impl Disk for Throttled {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector_size(&self) -> u32 {
        self.disk.sector_size()
    }

    fn physical_sector_size(&self) -> u32 {
        self.disk.physical_sector_size()
    }

    fn is_block_device(&self) -> bool {
        self.disk.is_block_device()
    }

    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.take(buf.len() as u64);
        self.disk.read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.writes.take(bufs.iter().map(|buf| buf.len() as u64).sum());
        self.disk.write_at(bufs, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.writes.drain();
        self.disk.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.discard(offset, len)
    }

    fn hint_willneed(&self, offset: u64, len: u64) {
        self.disk.hint_willneed(offset, len);
    }

    fn drop_cache(&self) {
        self.disk.drop_cache();
    }
}

//! A disk and a network with a limited rate.
//!
//! From:   a [`Disk`] or the work of a measurement, and what another disk or a network could do.
//! To:     measurements of how a pool behaves with slower devices or clients than this machine has.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use storage::host::{Before, Disk};
use zpl::rank::RankedMutex;

use crate::{Device, Event, Phase, Watch};

/// Requests may be this far ahead of their time: a device has a small buffer.
const AHEAD: Duration = Duration::from_millis(5);

/// The time when the device will have finished all requests so far.
#[derive(Debug)]
struct Queue {
    bytes_per_second: Option<u64>,
    free_at: RankedMutex<Instant>,
}

impl Queue {
    fn new(bytes_per_second: Option<u64>) -> Queue {
        Queue { bytes_per_second, free_at: RankedMutex::leaf(Instant::now()) }
    }

    /// Returns when the device would be done with `bytes` more.
    fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let done = {
            let mut free_at = self.free_at.lock();
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
        let done = *self.free_at.lock();
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
    /// `disk`, limited to the rates of `device`.
    pub(crate) fn over(disk: Arc<dyn Disk>, device: Device) -> Arc<dyn Disk> {
        if device == Device::default() {
            return disk;
        }
        let (reads, writes) = (Queue::new(device.read_bytes), Queue::new(device.write_bytes));
        Arc::new(Throttled { disk, reads, writes })
    }
}

impl Before for Throttled {
    fn disk(&self) -> &dyn Disk {
        &*self.disk
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
}

/// Limits reads and writes of files to the rate of a network. The events report each part.
pub(crate) struct Networked<'a> {
    watch: &'a dyn Watch,
    queue: Queue,
    /// Bytes come and go over the network in this phase.
    counts: AtomicBool,
}

impl<'a> Networked<'a> {
    /// Over a network of `bytes_per_second`, if there is one.
    pub(crate) fn over(watch: &'a dyn Watch, bytes_per_second: Option<u64>) -> Networked<'a> {
        Networked { watch, queue: Queue::new(bytes_per_second), counts: AtomicBool::new(false) }
    }
}

impl Watch for Networked<'_> {
    fn event(&self, event: Event<'_>) {
        match &event {
            Event::Phase(phase) => {
                let counts = matches!(phase, Phase::Write | Phase::Read | Phase::WarmRead);
                self.counts.store(counts, Ordering::Relaxed);
            }
            Event::Bytes(bytes) if self.counts.load(Ordering::Relaxed) => self.queue.take(*bytes),
            _ => {}
        }
        self.watch.event(event);
    }

    fn stopped(&self) -> bool {
        self.watch.stopped()
    }
}

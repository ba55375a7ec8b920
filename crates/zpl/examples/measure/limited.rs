//! A device of a given rate, so that a layout's speed on slow devices can be measured on a machine with one fast disk.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use storage::host::{Access, Before, Disk, FileDisk};

/// The limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// MB/s of reads and writes in sequence.
    pub rate: u32,
    /// Milliseconds that it takes to go to another place, unless reading up to there takes less.
    pub seek: f64,
}

/// A file that reads and writes no more than a number of bytes each second, one request after another. Of the requests that wait it
/// takes the nearest ahead, as disks do.
#[derive(Debug)]
struct Limited {
    disk: FileDisk,
    limits: Limits,
    queue: Mutex<Queue>,
    turns: Condvar,
}

#[derive(Debug)]
struct Queue {
    /// Offsets of the requests that wait, each with a number of its own.
    waiting: BTreeSet<(u64, u64)>,
    numbers: u64,
    is_moving: bool,
    /// When the requests that it has taken will be done.
    free_at: Instant,
    /// Where the last of them ends.
    end: u64,
}

impl Queue {
    fn nearest(&self) -> Option<(u64, u64)> {
        self.waiting.range((self.end, 0)..).next().or_else(|| self.waiting.first()).copied()
    }
}

impl Limited {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds this lock")
    }

    /// Waits until the device has moved `bytes`.
    fn wait(&self, offset: u64, bytes: usize) {
        let came = Instant::now();
        let mut queue = self.lock();
        queue.numbers += 1;
        let own = (offset, queue.numbers);
        queue.waiting.insert(own);
        let mut queue = self
            .turns
            .wait_while(queue, |queue| queue.is_moving || queue.nearest() != Some(own))
            .expect("no code panics while it holds this lock");
        queue.waiting.remove(&own);
        queue.is_moving = true;
        let time = |bytes: u64| bytes as f64 * 1e-6 / f64::from(self.limits.rate);
        let seek = self.limits.seek * 1e-3;
        let there = offset.checked_sub(queue.end).map_or(seek, |gap| time(gap).min(seek));
        queue.free_at = queue.free_at.max(came) + Duration::from_secs_f64(there + time(bytes as u64));
        queue.end = offset + bytes as u64;
        let free_at = queue.free_at;
        drop(queue);
        std::thread::sleep(free_at.saturating_duration_since(Instant::now()));
        self.lock().is_moving = false;
        self.turns.notify_all();
    }
}

impl Before for Limited {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        Disk::read_at(&self.disk, buf, offset)?;
        self.wait(offset, buf.len());
        Ok(())
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        Disk::write_at(&self.disk, bufs, offset)?;
        self.wait(offset, bufs.iter().map(|buf| buf.len()).sum());
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Disk::flush(&self.disk)
    }
}

/// The image at `path` on a device of these limits.
pub fn open(path: &Path, access: Access, limits: Option<Limits>) -> Arc<dyn Disk> {
    let disk = FileDisk::open(path, access).expect("the image opens");
    match limits {
        None => Arc::new(disk),
        Some(limits) => {
            let queue = Queue {
                waiting: BTreeSet::new(),
                numbers: 0,
                is_moving: false,
                free_at: Instant::now(),
                end: 0,
            };
            Arc::new(Limited { disk, limits, queue: Mutex::new(queue), turns: Condvar::new() })
        }
    }
}

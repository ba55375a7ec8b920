//! A device of a given rate, so that a layout's speed on slow devices can be measured on a machine with one fast disk.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use storage::host::{Access, Before, Disk, FileDisk};

/// A file that reads and writes no more than a number of bytes each second, one request after another.
#[derive(Debug)]
struct Limited {
    disk: FileDisk,
    seconds_per_byte: f64,
    /// When the requests that it has taken will be done.
    free_at: Mutex<Instant>,
}

impl Limited {
    /// Waits until the device has moved `bytes`.
    fn wait(&self, bytes: usize) {
        let took = Duration::from_secs_f64(bytes as f64 * self.seconds_per_byte);
        let done = {
            let mut free_at = self.free_at.lock().expect("no code panics while it holds this lock");
            *free_at = (*free_at).max(Instant::now()) + took;
            *free_at
        };
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}

impl Before for Limited {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        Disk::read_at(&self.disk, buf, offset)?;
        self.wait(buf.len());
        Ok(())
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        Disk::write_at(&self.disk, bufs, offset)?;
        self.wait(bufs.iter().map(|buf| buf.len()).sum());
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Disk::flush(&self.disk)
    }
}

/// The image at `path`; with `rate`, no faster than that many MB/s.
pub fn open(path: &Path, access: Access, rate: Option<u32>) -> Arc<dyn Disk> {
    let disk = FileDisk::open(path, access).expect("the image opens");
    match rate {
        None => Arc::new(disk),
        Some(rate) => {
            let seconds_per_byte = 1e-6 / f64::from(rate);
            Arc::new(Limited { disk, seconds_per_byte, free_at: Mutex::new(Instant::now()) })
        }
    }
}

//! Data that was written to a device and not flushed yet. They are kept so that they can be written again.
//!
//! From:   every write of blocks to a leaf.
//! To:     [`Unflushed::flush`]. After a flush that failed the kernel may have dropped the data of the writes before it, and
//!         reports success next time. Only a flush after all of them were written again proves that they are durable.

use std::io::{self, IoSlice};

use crate::Payload;
use crate::host::Disk;
use crate::rank::{MutexHeld, Rank, RankedMutex};

/// Bytes kept for one device, at most: with more of them the device is flushed.
pub(crate) const KEPT_MAX: u64 = 128 << 20;

#[derive(Debug)]
struct Kept {
    offset: u64,
    buffers: Vec<Payload>,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<Kept>,
    bytes: u64,
}

/// Writes of one device since its last good flush.
#[derive(Debug)]
pub(crate) struct Unflushed {
    state: RankedMutex<State>,
    /// Held during a flush. Whether the last flush failed.
    failed: RankedMutex<bool>,
}

impl Default for Unflushed {
    fn default() -> Unflushed {
        Unflushed { state: RankedMutex::default(), failed: RankedMutex::new(Rank::Flushing, false) }
    }
}

impl Unflushed {
    fn state(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// Remembers a write that the device took.
    pub(crate) fn keep(&self, offset: u64, buffers: Vec<Payload>) {
        let mut state = self.state();
        state.bytes += length(&buffers);
        state.writes.push(Kept { offset, buffers });
    }

    /// Bytes of the writes that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Makes every block that was written before the call durable. After a flush that failed, all blocks since the last
    /// good one are written again first.
    ///
    /// # Errors
    /// The device refused; everything since the last good flush is kept for the next try.
    pub(crate) fn flush(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut failed = self.failed.lock();
        let taken = std::mem::take(&mut *self.state());
        let flushed = if *failed { write_again(&taken.writes, disk) } else { Ok(()) };
        let flushed = flushed.and_then(|()| disk.flush());
        *failed = flushed.is_err();
        if flushed.is_err() {
            let mut state = self.state();
            let since = std::mem::replace(&mut *state, taken);
            state.bytes += since.bytes;
            state.writes.extend(since.writes);
        }
        flushed
    }
}

fn length(buffers: &[Payload]) -> u64 {
    buffers.iter().map(|buffer| buffer.bytes().len() as u64).sum()
}

fn write_again(writes: &[Kept], disk: &dyn Disk) -> io::Result<()> {
    for write in writes {
        let slices: Vec<IoSlice<'_>> = write.buffers.iter().map(|b| IoSlice::new(b.bytes())).collect();
        disk.write_at(&slices, write.offset)?;
    }
    disk.written_again();
    Ok(())
}

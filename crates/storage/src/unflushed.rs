//! What was written to a device and not flushed yet, kept to be written again.
//!
//! From:   every write of blocks to a [`Leaf`].
//! To:     [`Leaf::flush`]. After a flush that failed the kernel may have dropped the data of the writes before it, and
//!         reports success next time. Only a flush after all of them were written again proves that they are durable.

use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard};

use crate::{Leaf, Payload};

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
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    state: Mutex<State>,
    /// Held by whoever flushes. Whether the last flush failed.
    failed: Mutex<bool>,
}

impl Unflushed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding the unflushed writes")
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
}

fn length(buffers: &[Payload]) -> u64 {
    buffers.iter().map(|buffer| buffer.bytes().len() as u64).sum()
}

impl Leaf {
    /// Makes every block that was written before the call durable. After a flush that failed, all blocks since the last
    /// good one are written again first.
    ///
    /// # Errors
    /// The device refused; everything since the last good flush is kept for the next try.
    ///
    /// # Panics
    /// If another thread panicked while flushing.
    pub fn flush(&self) -> io::Result<()> {
        let mut failed = self.unflushed.failed.lock().expect("no code panics while flushing a device");
        let taken = std::mem::take(&mut *self.unflushed.state());
        let flushed = if *failed { self.write_again(&taken.writes) } else { Ok(()) };
        let flushed = flushed.and_then(|()| self.disk.flush());
        *failed = flushed.is_err();
        if flushed.is_err() {
            let mut state = self.unflushed.state();
            let since = std::mem::replace(&mut *state, taken);
            state.bytes += since.bytes;
            state.writes.extend(since.writes);
        }
        flushed
    }

    fn write_again(&self, writes: &[Kept]) -> io::Result<()> {
        for write in writes {
            let slices: Vec<IoSlice<'_>> = write.buffers.iter().map(|b| IoSlice::new(b.bytes())).collect();
            self.disk.write_at(&slices, write.offset)?;
        }
        self.disk.written_again();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host::{CrashPolicy, Disk, Fault, Script};

    #[test]
    fn what_a_failed_flush_may_have_dropped_is_written_again_before_the_next_one() {
        let script = Script::new();
        let disk = script.disk("a", 1 << 20);
        let leaf = Leaf::new(1, Arc::new(disk.clone()));
        let write = |offset: u64, byte: u8| {
            let payload = Payload::Owned(Arc::new(vec![byte; 512]));
            leaf.disk.write_at(&[IoSlice::new(payload.bytes())], offset).expect("taken");
            leaf.unflushed.keep(offset, vec![payload]);
        };
        write(0, 1);
        leaf.flush().expect("durable");
        assert_eq!(leaf.unflushed.bytes(), 0);
        write(4096, 2);
        disk.inject(Fault::LoseAtFlush { from_op: script.op_count() });
        leaf.flush().expect_err("the device refuses");
        assert_eq!(leaf.unflushed.bytes(), 512, "it is kept");
        disk.heal();
        write(8192, 3);
        leaf.flush().expect("durable");
        let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1).disks();
        for (offset, byte) in [(0, 1), (4096, 2), (8192, 3)] {
            let mut found = [0; 512];
            after[0].read_at(&mut found, offset).expect("readable");
            assert_eq!(found, [byte; 512], "at {offset}");
        }
    }
}

//! The disks and files at the bottom of the vdev tree.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use format::label::DATA_START;

use crate::error::{ReadError, WriteError};
use crate::health::Health;
use crate::host::{Backing, Closable, Disk};
use crate::meter::{Meter, Metered, Purpose, ReadUnderWay};
use crate::unflushed::Unflushed;

/// A disk or file at the bottom of the tree.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Guid from its label.
    pub guid: u64,
    /// The open device; counts into `meter`.
    pub disk: Arc<dyn Disk>,
    /// The counts of requests to the device.
    pub meter: Arc<Meter>,
    /// Whether the leaf takes part, and the txgs that it missed.
    pub health: Arc<Health>,
    pub(crate) unflushed: Arc<Unflushed>,
    /// Which distributed spare of its vdev it is.
    distributed: Option<u64>,
    metered: Arc<Metered>,
    door: Arc<Closable>,
}

impl Leaf {
    /// A leaf on an open device.
    #[must_use]
    pub fn new(guid: u64, disk: Arc<dyn Disk>) -> Leaf {
        Leaf::with_health(guid, disk, Arc::default())
    }

    /// A leaf on an open device whose missed txgs are known.
    #[must_use]
    pub fn with_health(guid: u64, disk: Arc<dyn Disk>, health: Arc<Health>) -> Leaf {
        let meter = Arc::new(Meter::default());
        let door = Arc::new(Closable::new(disk));
        let metered = Arc::new(Metered { disk: door.clone(), meter: meter.clone() });
        let (unflushed, distributed) = (Arc::default(), None);
        Leaf { guid, disk: metered.clone(), metered, meter, health, unflushed, distributed, door }
    }

    /// The leaf as distributed spare `number` of a draid vdev: its data lies on the devices of the vdev.
    #[must_use]
    pub fn as_distributed(self, number: u64) -> Leaf {
        Leaf { distributed: Some(number), ..self }
    }

    /// Which distributed spare of its vdev it is. It has no device of its own then, and so no labels.
    #[must_use]
    pub const fn distributed(&self) -> Option<u64> {
        self.distributed
    }

    /// The same leaf by another guid.
    #[must_use]
    pub fn renamed(&self, guid: u64) -> Leaf {
        Leaf { guid, ..self.clone() }
    }

    /// Releases the device: it is closed when the last request to it has ended, and every later one fails.
    pub fn close(&self) {
        self.door.close();
        self.meter.admission.open_to_all();
    }
}

impl Leaf {
    /// Fills `buf` from `offset` of the allocatable area, for `purpose`.
    pub(crate) fn read(&self, purpose: Purpose, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        // The boot area lies before the allocatable area.
        let at = Leaf::place_of(offset);
        self.metered.read_for(purpose, buf, at).map_err(|source| self.unread(at, source))
    }

    /// The offset from the beginning of the device, of an offset in its allocatable area.
    pub(crate) fn place_of(offset: u64) -> u64 {
        offset.wrapping_add(DATA_START)
    }

    /// The error for a failed read at `offset` from the beginning of the device.
    pub(crate) fn unread(&self, offset: u64, source: io::Error) -> ReadError {
        ReadError::Device { path: self.disk.path().to_path_buf(), offset, source }
    }

    /// Begins a read that the caller makes itself: the offset from the beginning of the device, and the bytes. `None` where it would have to
    /// wait for others.
    pub(crate) fn begin_read(&self, purpose: Purpose, range: (u64, u64)) -> Option<ReadUnderWay<'_>> {
        self.metered.begin_read(purpose, range)
    }

    /// The file or device that reads can be made from without this leaf.
    pub(crate) fn backing(&self) -> Option<Backing> {
        self.door.backing()
    }

    /// Tells the system that these bytes of the allocatable area will soon be read.
    pub(crate) fn hint_willneed(&self, offset: u64, len: u64) {
        self.disk.hint_willneed(Leaf::place_of(offset), len);
    }

    /// Writes `bytes` at `at`, an offset from the beginning of the device. A caller waits for it.
    pub(crate) fn write(&self, bytes: &[IoSlice<'_>], at: u64) -> Result<(), WriteError> {
        self.disk.write_at(bytes, at).map_err(|source| self.refused(at, source))
    }

    /// As [`Leaf::write`] for a write that stood in the queue of a txg for `waited`.
    pub(crate) fn write_queued(
        &self,
        bytes: &[IoSlice<'_>],
        at: u64,
        waited: Duration,
    ) -> Result<(), WriteError> {
        self.metered.write_queued(bytes, at, waited).map_err(|source| self.refused(at, source))
    }

    pub(crate) fn refused(&self, offset: u64, source: io::Error) -> WriteError {
        WriteError::Device { path: self.disk.path().to_path_buf(), offset, source }
    }

    /// Makes every block that was written before the call durable. After a flush that failed, all blocks since the last
    /// good one are written again first.
    ///
    /// # Errors
    /// The device refused; everything since the last good flush is kept for the next try.
    ///
    /// # Panics
    /// If another thread panicked while flushing.
    pub fn flush(&self) -> io::Result<()> {
        self.unflushed.flush(&*self.disk)
    }

    /// As [`Leaf::flush`], with the device in the error.
    pub(crate) fn flush_or_say(&self) -> Result<(), WriteError> {
        self.flush().map_err(|source| self.refused(0, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;
    use crate::host::{CrashPolicy, Fault, Script};

    #[test]
    fn writes_lost_by_a_failed_flush_are_repeated_before_the_next_one() {
        let script = Script::new();
        let disk = script.disk("a", 1 << 20);
        let leaf = Leaf::new(1, Arc::new(disk.clone()));
        let write = |offset: u64, byte: u8| {
            let payload = Payload::from(vec![byte; 512]);
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

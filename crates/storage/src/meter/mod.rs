//! Counters of requests and errors of each disk since the pool was opened.

mod admission;
mod outstanding;
mod times;

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::fence::Fence;
use crate::host::{Before, Disk};
use admission::{Admission, Admitted};
pub use outstanding::{Deed, Request};
use outstanding::{Outstanding, Sent};
pub use times::{IoTimes, PURPOSES, Purpose, SIZE_BUCKETS, Sizes, TIME_BUCKETS, Times};
use times::{Timing, Underway};

/// Counters of one leaf, shared by all its users.
#[derive(Debug, Default)]
pub struct Meter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
    timing: Timing,
    outstanding: Outstanding,
    /// Until when the disk may be changed; none for a disk of no pool.
    fence: OnceLock<Arc<Fence>>,
    /// Lets requests begin.
    pub(crate) admission: Admission,
}

/// A meter's counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Reads, also those that failed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, also those that failed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Copies of blocks that did not match their checksums.
    pub checksum_errors: u64,
    /// Requests that took longer than the pool's limit for slow I/O.
    pub slow: u64,
}

impl IoStats {
    /// The sum of two disks.
    #[must_use]
    pub fn plus(self, other: IoStats) -> IoStats {
        self.each(other, |a, b| a + b)
    }

    /// The increase since `earlier`.
    #[must_use]
    pub fn since(self, earlier: IoStats) -> IoStats {
        self.each(earlier, u64::saturating_sub)
    }

    /// Every number, for another process; [`IoStats::from_words`] reads them.
    #[must_use]
    pub const fn to_words(self) -> [u64; 8] {
        let IoStats { reads, read_bytes, writes, write_bytes, .. } = self;
        let IoStats { read_errors, write_errors, checksum_errors, slow, .. } = self;
        [reads, read_bytes, writes, write_bytes, read_errors, write_errors, checksum_errors, slow]
    }

    /// Decodes the output of [`IoStats::to_words`].
    #[must_use]
    pub const fn from_words(words: [u64; 8]) -> IoStats {
        let [reads, read_bytes, writes, write_bytes, read_errors, write_errors, checksum_errors, slow] =
            words;
        IoStats { reads, read_bytes, writes, write_bytes, read_errors, write_errors, checksum_errors, slow }
    }

    fn each(self, other: IoStats, join: impl Fn(u64, u64) -> u64) -> IoStats {
        IoStats {
            reads: join(self.reads, other.reads),
            read_bytes: join(self.read_bytes, other.read_bytes),
            writes: join(self.writes, other.writes),
            write_bytes: join(self.write_bytes, other.write_bytes),
            read_errors: join(self.read_errors, other.read_errors),
            write_errors: join(self.write_errors, other.write_errors),
            checksum_errors: join(self.checksum_errors, other.checksum_errors),
            slow: join(self.slow, other.slow),
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Meter {
    /// The counters now.
    #[must_use]
    pub fn stats(&self) -> IoStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoStats {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            write_bytes: get(&self.write_bytes),
            read_errors: get(&self.read_errors),
            write_errors: get(&self.write_errors),
            checksum_errors: get(&self.checksum_errors),
            slow: self.outstanding.late(),
        }
    }

    /// From now on a request counts as slow that takes `limit` or longer.
    pub fn set_slow_limit(&self, limit: Duration) {
        self.outstanding.set_limit(limit);
    }

    /// From now on the disk is written only as long as `fence` allows it. A disk of a pool never moves to another pool.
    pub(crate) fn set_fence(&self, fence: &Arc<Fence>) {
        self.fence.get_or_init(|| fence.clone());
    }

    fn check_fence(&self) -> io::Result<()> {
        self.fence.get().map_or(Ok(()), |fence| fence.check())
    }

    /// The slow requests that ended since this was called last; only the first few of many.
    #[must_use]
    pub fn take_slow(&self) -> Vec<Request> {
        self.outstanding.take_late()
    }

    /// How many requests the disk works on.
    pub(crate) fn load(&self) -> usize {
        self.outstanding.count()
    }

    /// The oldest request that the disk did not answer yet.
    #[must_use]
    pub fn oldest(&self) -> Option<Request> {
        self.outstanding.oldest()
    }

    /// The oldest request, if the disk did not answer it for `limit` and this was not told before.
    #[must_use]
    pub fn overdue(&self, limit: Duration) -> Option<Request> {
        self.outstanding.overdue(limit)
    }

    /// When the disk last answered a request.
    #[must_use]
    pub fn answered(&self) -> Option<Instant> {
        self.outstanding.answered()
    }

    /// How long requests took, how large they were, how many are under way.
    #[must_use]
    pub fn times(&self) -> IoTimes {
        self.timing.now()
    }

    /// Forgets the errors and the slow requests (`zpool clear`); what was read and written stays.
    pub fn clear_errors(&self) {
        for counter in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            counter.store(0, Ordering::Relaxed);
        }
        self.outstanding.forget_late();
    }

    /// A write enters the queue.
    pub(crate) fn enqueued(&self) {
        self.timing.enqueued();
    }

    /// A write leaves the queue.
    pub(crate) fn dequeued(&self) {
        self.timing.dequeued();
    }

    pub(crate) fn bad_checksum(&self) {
        add(&self.checksum_errors, 1);
    }

    /// A read of a range begins: the offset and the bytes.
    fn admitted<'a>(
        &'a self,
        admitted: Admitted<'a>,
        purpose: Purpose,
        range: (u64, u64),
    ) -> ReadUnderWay<'a> {
        add(&self.reads, 1);
        let (offset, len) = range;
        let timed = self.timing.begin(purpose, len, 1);
        let sent = self.outstanding.send(Deed::Read, offset, len);
        ReadUnderWay { meter: self, len, _counted: (sent, timed, admitted) }
    }
}

/// A read that a disk works on.
pub(crate) struct ReadUnderWay<'a> {
    meter: &'a Meter,
    /// Bytes.
    len: u64,
    _counted: (Sent<'a>, Underway<'a>, Admitted<'a>),
}

impl ReadUnderWay<'_> {
    /// The disk has answered.
    pub(crate) fn end(self, result: io::Result<()>) -> io::Result<()> {
        match &result {
            Ok(()) => add(&self.meter.read_bytes, self.len),
            Err(_) => add(&self.meter.read_errors, 1),
        }
        result
    }
}

/// A disk that counts its requests.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) meter: Arc<Meter>,
}

impl Metered {
    /// As [`Before::read_at`], counted as a request for `purpose`.
    pub(crate) fn read_for(&self, purpose: Purpose, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let read =
            self.meter.admitted(self.meter.admission.enter(purpose), purpose, (offset, buf.len() as u64));
        let result = self.disk.read_at(buf, offset);
        read.end(result)
    }

    /// As [`Metered::read_for`], for a read that the caller makes itself: `range` is the offset and the number of
    /// bytes. `None` if the read would have to wait for others.
    pub(crate) fn begin_read(&self, purpose: Purpose, range: (u64, u64)) -> Option<ReadUnderWay<'_>> {
        let admitted = self.meter.admission.try_enter(purpose)?;
        Some(self.meter.admitted(admitted, purpose, range))
    }

    /// As [`Before::write_at`] for blocks of a txg that stood in its queue for `waited`.
    pub(crate) fn write_queued(&self, bufs: &[IoSlice<'_>], offset: u64, waited: Duration) -> io::Result<()> {
        self.write_for(Purpose::AsyncWrite, bufs, offset, Some(waited))
    }

    fn write_for(
        &self,
        purpose: Purpose,
        bufs: &[IoSlice<'_>],
        offset: u64,
        waited: Option<Duration>,
    ) -> io::Result<()> {
        add(&self.meter.writes, 1);
        let bytes = bufs.iter().map(|buf| buf.len() as u64).sum();
        let _admitted = self.meter.admission.enter(purpose);
        let _underway = self.meter.timing.begin(purpose, bytes, bufs.len()).after(waited);
        let _sent = self.meter.outstanding.send(Deed::Write, offset, bytes);
        match self.meter.check_fence().and_then(|()| self.disk.write_at(bufs, offset)) {
            Ok(()) => add(&self.meter.write_bytes, bytes),
            Err(error) => {
                add(&self.meter.write_errors, 1);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Before for Metered {
    fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_for(Purpose::SyncRead, buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.write_for(Purpose::SyncWrite, bufs, offset, None)
    }

    fn flush(&self) -> io::Result<()> {
        let _sent = self.meter.outstanding.send(Deed::Flush, 0, 0);
        self.disk.flush().inspect_err(|_| add(&self.meter.write_errors, 1))
    }

    fn ask(&self) -> io::Result<()> {
        let _sent = self.meter.outstanding.send(Deed::Read, 0, 0);
        self.disk.ask()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let _admitted = self.meter.admission.enter(Purpose::Trim);
        let _underway = self.meter.timing.begin(Purpose::Trim, len, 1);
        let _sent = self.meter.outstanding.send(Deed::Trim, offset, len);
        self.meter.check_fence()?;
        self.disk.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Leaf;
    use crate::host::ScriptedDisk;

    #[test]
    fn a_request_is_counted_as_what_it_is_for() {
        let leaf = Leaf::new(7, Arc::new(ScriptedDisk::new(5 << 20)));
        let mut buf = [0; 512];
        for purpose in [Purpose::SyncRead, Purpose::AsyncRead, Purpose::Scrub] {
            leaf.read(purpose, 0, &mut buf).expect("good");
        }
        leaf.write(&[IoSlice::new(&buf)], 0).expect("good");
        leaf.write_queued(&[IoSlice::new(&buf)], 0, Duration::from_millis(3)).expect("good");
        let times = leaf.meter.times();
        assert_eq!(times.single.map(|sizes| sizes[0]), [1, 1, 1, 1, 1, 0]);
        assert_eq!(times.queue[Purpose::AsyncWrite as usize].nanos, 3_000_000);
    }

    #[test]
    fn a_leaf_counts_what_its_disk_does() {
        let disk = ScriptedDisk::new(1 << 20);
        let leaf = Leaf::new(7, Arc::new(disk));
        leaf.disk.write_at(&[IoSlice::new(&[1; 512]), IoSlice::new(&[2; 512])], 4096).expect("good");
        leaf.disk.read_at(&mut [0; 512], 4096).expect("good");
        leaf.disk.read_at(&mut [0; 512], 1 << 20).expect_err("past the end");
        let stats = leaf.meter.stats();
        assert_eq!((stats.writes, stats.write_bytes), (1, 1024));
        assert_eq!((stats.reads, stats.read_bytes, stats.read_errors), (2, 512, 1));
        leaf.meter.clear_errors();
        let cleared = leaf.meter.stats();
        assert_eq!((cleared.reads, cleared.read_errors), (2, 0));
        assert_eq!(cleared.since(stats), IoStats::default());
        assert_eq!(stats.plus(stats).writes, 2);
    }
}

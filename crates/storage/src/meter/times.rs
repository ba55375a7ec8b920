//! How long requests to a disk took, how large they were, how many are under way: by what they are for.
//!
//! From:   [`super::Metered`], which sees each request, and the write queue.
//! To:     `zpool iostat -l -q -r -w`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Buckets of a histogram of times; bucket `i` counts those of 2^i to 2^(i+1) − 1 nanoseconds.
pub const TIME_BUCKETS: usize = 37;
/// Buckets of a histogram of sizes; bucket `i` counts those of 512·2^i bytes up to twice that.
pub const SIZE_BUCKETS: usize = 16;
/// log2 of the smallest size that has a bucket.
const SIZE_SHIFT: u32 = 9;

/// The purpose of a request. The order is that of the columns of `zpool iostat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A reader waits for it.
    SyncRead,
    /// A writer waits for it: intent log, labels, uberblocks.
    SyncWrite,
    /// Read ahead of a reader.
    AsyncRead,
    /// Blocks of a txg.
    AsyncWrite,
    /// A scrub looks at all copies.
    Scrub,
    /// Free space is given back to the device.
    Trim,
}

/// Number of purposes.
pub const PURPOSES: usize = 6;

/// Times and how they are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Their sum in nanoseconds.
    pub nanos: u64,
    /// How many fell into each bucket.
    pub buckets: [u64; TIME_BUCKETS],
}

impl Default for Times {
    fn default() -> Times {
        Times { nanos: 0, buckets: [0; TIME_BUCKETS] }
    }
}

impl Times {
    /// The mean in nanoseconds; `None` of nothing.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        self.nanos.checked_div(self.buckets.iter().sum())
    }
}

/// Sizes of requests, in buckets.
pub type Sizes = [u64; SIZE_BUCKETS];

/// The times and sizes of requests to a disk, up to one moment. Arrays of [`PURPOSES`] are indexed by [`Purpose`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoTimes {
    /// Waiting in a queue and at the disk; reads, writes.
    pub total: [Times; 2],
    /// At the disk; reads, writes.
    pub disk: [Times; 2],
    /// In a queue, of those that stood in one.
    pub queue: [Times; PURPOSES],
    /// Requests of one block each.
    pub single: [Sizes; PURPOSES],
    /// Requests gathered from neighbouring blocks.
    pub gathered: [Sizes; PURPOSES],
    /// In a queue now.
    pub pending: [u64; PURPOSES],
    /// At the disk now.
    pub active: [u64; PURPOSES],
}

impl IoTimes {
    /// The sum of two disks.
    #[must_use]
    pub fn plus(mut self, other: &IoTimes) -> IoTimes {
        self.each(other, |a, b| *a += b);
        for (a, b) in
            self.pending.iter_mut().zip(other.pending).chain(self.active.iter_mut().zip(other.active))
        {
            *a += b;
        }
        self
    }

    /// The increase since `earlier`. The counts of requests under way stay: they describe the present.
    #[must_use]
    pub fn since(mut self, earlier: &IoTimes) -> IoTimes {
        self.each(earlier, |a, b| *a = a.saturating_sub(b));
        self
    }

    /// Every number, for another process; [`IoTimes::from_words`] reads them.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        self.clone().words().map(|word| *word).collect()
    }

    /// Decodes the output of [`IoTimes::to_words`]; `None` if the count of numbers is another one.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<IoTimes> {
        let mut times = IoTimes::default();
        if times.words().count() != words.len() {
            return None;
        }
        times.words().zip(words).for_each(|(ours, word)| *ours = *word);
        Some(times)
    }

    fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        let times = self.total.iter_mut().chain(&mut self.disk).chain(&mut self.queue);
        let times = times.flat_map(|times| std::iter::once(&mut times.nanos).chain(&mut times.buckets));
        let sizes = self.single.iter_mut().chain(&mut self.gathered).flatten();
        times.chain(sizes).chain(&mut self.pending).chain(&mut self.active)
    }

    /// Joins every counter that only grows.
    fn each(&mut self, other: &IoTimes, join: impl Fn(&mut u64, u64)) {
        let ours = self.total.iter_mut().chain(&mut self.disk).chain(&mut self.queue);
        let theirs = other.total.iter().chain(&other.disk).chain(&other.queue);
        for (a, b) in ours.zip(theirs) {
            join(&mut a.nanos, b.nanos);
            a.buckets.iter_mut().zip(b.buckets).for_each(|(a, b)| join(a, b));
        }
        let ours = self.single.iter_mut().chain(&mut self.gathered).flatten();
        let theirs = other.single.iter().chain(&other.gathered).flatten();
        ours.zip(theirs).for_each(|(a, b)| join(a, *b));
    }
}

/// Counters that grow together.
#[derive(Debug)]
struct Buckets<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Buckets<N> {
    fn default() -> Buckets<N> {
        Buckets([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Buckets<N> {
    fn count(&self, bucket: usize) {
        self.0[bucket.min(N - 1)].fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> [u64; N] {
        std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct Clocked {
    nanos: AtomicU64,
    buckets: Buckets<TIME_BUCKETS>,
}

impl Clocked {
    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.buckets.count(nanos.max(1).ilog2() as usize);
    }

    fn now(&self) -> Times {
        Times { nanos: self.nanos.load(Ordering::Relaxed), buckets: self.buckets.now() }
    }
}

/// The counters behind [`IoTimes`].
#[derive(Debug, Default)]
pub(super) struct Timing {
    total: [Clocked; 2],
    disk: [Clocked; 2],
    queue: [Clocked; PURPOSES],
    single: [Buckets<SIZE_BUCKETS>; PURPOSES],
    gathered: [Buckets<SIZE_BUCKETS>; PURPOSES],
    pending: Buckets<PURPOSES>,
    active: Buckets<PURPOSES>,
}

/// A request at the disk.
pub(super) struct Underway<'a> {
    timing: &'a Timing,
    purpose: Purpose,
    /// How long it stood in a queue, if it did.
    waited: Option<Duration>,
    began: Instant,
}

impl Underway<'_> {
    /// The request stood in a queue for `waited` before.
    pub(super) fn after(mut self, waited: Option<Duration>) -> Self {
        self.waited = waited;
        self
    }
}

impl Timing {
    /// A request of `bytes` goes to the disk; `blocks` of them were gathered into it. It ends when the result is dropped.
    pub(super) fn begin(&self, purpose: Purpose, bytes: u64, blocks: usize) -> Underway<'_> {
        let at = purpose as usize;
        let bucket = bytes.max(1).ilog2().saturating_sub(SIZE_SHIFT) as usize;
        if blocks > 1 { &self.gathered[at] } else { &self.single[at] }.count(bucket);
        self.active.count(at);
        Underway { timing: self, purpose, waited: None, began: Instant::now() }
    }

    /// A write is in the queue.
    pub(super) fn enqueued(&self) {
        self.pending.count(Purpose::AsyncWrite as usize);
    }

    /// A write leaves the queue.
    pub(super) fn dequeued(&self) {
        self.pending.0[Purpose::AsyncWrite as usize].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> IoTimes {
        IoTimes {
            total: std::array::from_fn(|i| self.total[i].now()),
            disk: std::array::from_fn(|i| self.disk[i].now()),
            queue: std::array::from_fn(|i| self.queue[i].now()),
            single: std::array::from_fn(|i| self.single[i].now()),
            gathered: std::array::from_fn(|i| self.gathered[i].now()),
            pending: self.pending.now(),
            active: self.active.now(),
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let (timing, at, waited) = (self.timing, self.purpose as usize, self.waited);
        timing.active.0[at].fetch_sub(1, Ordering::Relaxed);
        let way = match self.purpose {
            Purpose::SyncRead | Purpose::AsyncRead | Purpose::Scrub => 0,
            Purpose::SyncWrite | Purpose::AsyncWrite => 1,
            // Neither read nor written.
            Purpose::Trim => return,
        };
        timing.disk[way].add(took);
        timing.total[way].add(took + waited.unwrap_or_default());
        if let Some(waited) = waited {
            timing.queue[at].add(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_where_its_power_of_two_says() {
        let clocked = Clocked::default();
        for nanos in [0, 1, 2, 3, 1023, 1024, u64::MAX >> 1] {
            clocked.add(Duration::from_nanos(nanos));
        }
        let times = clocked.now();
        assert_eq!((times.buckets[0], times.buckets[1], times.buckets[9], times.buckets[10]), (2, 2, 1, 1));
        assert_eq!(times.buckets[TIME_BUCKETS - 1], 1);
        assert_eq!(Times::default().mean(), None);
        assert_eq!(Times { nanos: 30, buckets: std::array::from_fn(|i| u64::from(i < 3)) }.mean(), Some(10));
    }

    #[test]
    fn counters_survive_a_round_trip_as_words() {
        let mut sent = IoTimes::default();
        let count = sent.words().count();
        sent.words().zip(1..).for_each(|(word, n)| *word = n);
        let words = sent.to_words();
        assert_eq!((words.len(), words[0], words[count - 1]), (count, 1, count as u64));
        assert_eq!(IoTimes::from_words(&words), Some(sent));
        assert_eq!(IoTimes::from_words(&words[1..]), None);
    }

    #[test]
    fn waiting_time_counts_in_its_queue_and_in_the_total() {
        let timing = Timing::default();
        timing.enqueued();
        assert_eq!(timing.now().pending[Purpose::AsyncWrite as usize], 1);
        timing.dequeued();
        let underway = timing.begin(Purpose::AsyncWrite, 8192, 2).after(Some(Duration::from_millis(3)));
        assert_eq!(timing.now().active[Purpose::AsyncWrite as usize], 1);
        drop(underway);
        drop(timing.begin(Purpose::AsyncWrite, 300, 1));
        let now = timing.now();
        let at = Purpose::AsyncWrite as usize;
        assert_eq!((now.pending[at], now.active[at]), (0, 0));
        assert_eq!(
            now.queue[at],
            Times { nanos: 3_000_000, buckets: std::array::from_fn(|i| u64::from(i == 21)) }
        );
        assert!(now.total[1].nanos >= 3_000_000 + now.disk[1].nanos);
        assert_eq!((now.gathered[at][4], now.single[at][0]), (1, 1));
        let twice = now.clone().plus(&now);
        assert_eq!(twice.gathered[at][4], 2);
        assert_eq!(twice.since(&now), now);
    }
}

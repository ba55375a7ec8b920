//! Progress of a mount's messages, and the dirty pages that the kernel still holds back.

use std::collections::BTreeSet;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuser::WriteFlags;
use rustix::param::page_size;
use zpl::rank::{MutexHeld, RankedMutex};

use crate::kept::Kept;

/// Maximal error of the kernel's page sums, because each core keeps its own counter for a while.
const COUNTED_LATE: u64 = 4096;
/// Interval of the checks whether all messages are served.
const GLANCE: Duration = Duration::from_millis(1);

/// Progress of a mount's messages.
#[derive(Debug)]
pub(crate) struct Progress {
    pages: RankedMutex<Pages>,
    /// Messages that are done.
    done: AtomicU64,
    /// Messages that threads are just serving.
    serving: AtomicU64,
    /// Threads that serve messages.
    threads: u64,
    /// No thread may begin to serve a message.
    is_held: AtomicBool,
    /// Threads that have a message and may not serve it wait here.
    waiting: (RankedMutex<()>, Condvar),
    /// Bytes of data that waited for a permit in their message, and as a copy.
    queued: (AtomicU64, AtomicU64),
}

/// Pages of the kernel's cache that a write brings, for which no program waits; 0 for a write that a program waits for.
pub(crate) fn cached_pages(flags: WriteFlags, data: &[u8]) -> u64 {
    let is_cached = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
    if is_cached { data.len().div_ceil(page_size()) as u64 } else { 0 }
}

/// No message is being served, and none is begun before this is dropped.
pub(crate) struct HeldBack<'a>(&'a Progress);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        let (lock, changed) = &self.0.waiting;
        let waiting = lock.lock_after_panics();
        self.0.is_held.store(false, Ordering::SeqCst);
        drop(waiting);
        changed.notify_all();
    }
}

/// A message that a thread serves; it is done when this is dropped.
pub(crate) struct Serving<'a>(&'a Progress);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Ordering::SeqCst);
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes from the kernel's cache, for which no program waits.
#[derive(Debug, Default)]
struct Pages {
    /// Pages that came in them.
    taken: u64,
    /// The number of the next one.
    next: u64,
    /// Number of messages that arrived and are not done.
    under_way: BTreeSet<u64>,
}

/// A message that is not done.
#[derive(Clone, Copy, Debug)]
#[must_use = "who takes a message finishes it"]
pub(crate) struct Taken(Option<u64>);

/// The writes that arrived from the kernel's cache up to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Pages.
    pub(crate) pages: u64,
    /// Writes before this one.
    next: u64,
    /// All of them are done, and a thread is free to take the next message: the kernel's queue is empty.
    pub(crate) is_idle: bool,
}

impl Progress {
    /// For a mount with this many threads.
    pub(crate) fn new(threads: usize) -> Progress {
        let (done, serving) = (AtomicU64::new(0), AtomicU64::new(0));
        let (is_held, waiting, queued) = (AtomicBool::new(false), Default::default(), Default::default());
        Progress {
            pages: RankedMutex::default(),
            done,
            serving,
            threads: threads as u64,
            is_held,
            waiting,
            queued,
        }
    }

    /// Marks the start of a message. Blocks while messages are held back.
    pub(crate) fn serve(&self) -> Serving<'_> {
        loop {
            // The counter is incremented before the flag is read, and `hold_back` does the reverse, so one of the two sees
            // the other.
            self.serving.fetch_add(1, Ordering::SeqCst);
            if !self.is_held.load(Ordering::SeqCst) {
                return Serving(self);
            }
            self.serving.fetch_sub(1, Ordering::SeqCst);
            let (lock, changed) = &self.waiting;
            let mut waiting = lock.lock();
            let wait = |waiting| changed.wait(waiting).expect("no code panics while holding this lock");
            while self.is_held.load(Ordering::SeqCst) {
                waiting = waiting.wait(wait);
            }
        }
    }

    /// Waits for the running messages and holds back all others. `None` if they did not end within `limit`, because one may
    /// wait for another that is held back.
    pub(crate) fn hold_back(&self, limit: Duration) -> Option<HeldBack<'_>> {
        let until = Instant::now() + limit;
        self.is_held.store(true, Ordering::SeqCst);
        let held = HeldBack(self);
        while self.serving.load(Ordering::SeqCst) > 0 {
            if Instant::now() > until {
                return None;
            }
            std::thread::sleep(GLANCE);
        }
        Some(held)
    }

    /// Whether a thread waits for messages. While all serve one, more may wait in the kernel's queue unseen.
    fn has_free_thread(&self) -> bool {
        self.serving.load(Ordering::Relaxed) < self.threads
    }

    fn lock(&self) -> MutexHeld<'_, Pages> {
        self.pages.lock()
    }

    /// Counts a message with this many pages of the kernel's cache.
    pub(crate) fn take(&self, pages: u64) -> Taken {
        if pages == 0 {
            return Taken(None);
        }
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.taken += pages;
        state.under_way.insert(number);
        Taken(Some(number))
    }

    /// It is done.
    pub(crate) fn finish(&self, Taken(number): Taken) {
        if let Some(number) = number {
            self.lock().under_way.remove(&number);
        }
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that are done.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Counts data that wait for a permit.
    pub(crate) fn note_queued(&self, kept: &Kept) {
        let count = if kept.is_copy() { &self.queued.1 } else { &self.queued.0 };
        count.fetch_add(kept.data().len() as u64, Ordering::Relaxed);
    }

    /// Bytes of data that waited for a permit in their message, and as a copy.
    pub(crate) fn queued(&self) -> (u64, u64) {
        (self.queued.0.load(Ordering::Relaxed), self.queued.1.load(Ordering::Relaxed))
    }

    pub(crate) fn mark(&self) -> Mark {
        let state = self.lock();
        let is_idle = state.under_way.is_empty() && self.has_free_thread();
        Mark { pages: state.taken, next: state.next, is_idle }
    }

    /// Whether all writes that had arrived at `mark` are done.
    pub(crate) fn has_done(&self, mark: Mark) -> bool {
        self.lock().under_way.first().is_none_or(|oldest| *oldest >= mark.next)
    }
}

/// Pages that the kernel holds back or has queued for all its file systems. This is an upper bound of the pages still to
/// come.
pub(crate) fn pages_to_come() -> u64 {
    std::fs::read_to_string("/proc/meminfo").map_or(u64::MAX, |text| pages_in(&text))
}

/// The pages that a `/proc/meminfo` calls dirty, or on their way.
fn pages_in(meminfo: &str) -> u64 {
    let kilobytes = |line: &str| -> Option<u64> {
        let (name, value) = line.split_once(':')?;
        let counts = matches!(name, "Dirty" | "Writeback" | "WritebackTmp");
        value.trim().strip_suffix(" kB").filter(|_| counts)?.parse().ok()
    };
    let bytes = meminfo.lines().filter_map(kilobytes).sum::<u64>().saturating_mul(1024);
    bytes / page_size() as u64 + COUNTED_LATE
}

/// Waits as long as there is progress.
pub(crate) struct Patience<F> {
    limit: Duration,
    moved: F,
    seen: u64,
    since: Instant,
}

impl<F: Fn() -> u64> Patience<F> {
    /// Waits at most `limit` while `moved` returns the same number.
    pub(crate) fn new(limit: Duration, moved: F) -> Patience<F> {
        let seen = moved();
        Patience { limit, moved, seen, since: Instant::now() }
    }

    /// Whether nothing moved for as long as the limit.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = (self.moved)();
        if now != self.seen {
            (self.seen, self.since) = (now, Instant::now());
        }
        self.since.elapsed() >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_covers_only_writes_before_the_mark() {
        let progress = Progress::new(2);
        let first = progress.take(3);
        let direct = progress.take(0);
        let mark = progress.mark();
        assert_eq!((mark.pages, mark.is_idle), (3, false));
        let second = progress.take(2);
        progress.finish(second);
        assert!(!progress.has_done(mark), "a later one is done, the earlier one is not");
        progress.finish(first);
        let third = progress.take(1);
        assert!(progress.has_done(mark));
        assert_eq!((progress.mark().pages, progress.mark().is_idle), (6, false));
        progress.finish(third);
        progress.finish(direct);
        assert!(progress.mark().is_idle);
        assert_eq!(progress.done(), 4);
    }

    #[test]
    fn a_mount_whose_threads_all_read_is_not_idle() {
        let progress = Progress::new(2);
        let first = progress.serve();
        assert!(progress.mark().is_idle, "the second thread takes messages");
        let second = progress.serve();
        assert!(!progress.mark().is_idle, "writes may wait behind the readers");
        drop(first);
        assert!(progress.mark().is_idle);
        drop(second);
        assert_eq!(progress.done(), 2, "a reader that comes to its end is progress, too");
    }

    #[test]
    fn messages_held_back_begin_when_they_are_let_go_and_not_before() {
        let progress = Progress::new(2);
        let first = progress.serve();
        assert!(progress.hold_back(Duration::from_millis(5)).is_none(), "one is being served");
        drop(progress.serve());
        drop(first);
        let held = progress.hold_back(Duration::from_millis(5)).expect("none is served");
        let served = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _serving = progress.serve();
                served.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!served.load(Ordering::SeqCst));
            drop(held);
        });
        assert!(served.load(Ordering::SeqCst));
    }

    #[test]
    fn dirty_bytes_of_the_kernel_are_counted_in_pages() {
        let page = page_size() as u64 / 1024;
        let text = format!(
            "MemFree: 999 kB\nDirty:    {} kB\nWriteback:  {page} kB\nWritebackTmp:   0 kB\nHugePages_Free: 5\n",
            10 * page
        );
        assert_eq!(pages_in(&text), 11 + COUNTED_LATE);
        assert_eq!(pages_in(""), COUNTED_LATE);
        assert!(pages_to_come() < u64::MAX);
    }
}

//! Permits for jobs that may wait for the pool. There are fewer permits than threads, so that some threads serve other messages
//! while all writers wait.
//!
//! A job without a permit waits in a queue, and its thread goes on to the next message. A thread that has finished a job takes
//! the next one from the queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use zpl::rank::{MutexHeld, RankedMutex};

/// Threads beyond the number of permits.
pub(crate) const SPARE: usize = 2;
/// Maximal bytes of the queued jobs of all mounts. A job beyond this limit is not queued; it gets an extra permit.
const QUEUED_MAX: u64 = 128 << 20;

static QUEUED: AtomicU64 = AtomicU64::new(0);

/// The permits and the queue.
pub(crate) struct Permits<T> {
    most: usize,
    state: RankedMutex<State<T>>,
    /// Bytes held in queues.
    queued: &'static AtomicU64,
}

struct State<T> {
    taken: usize,
    /// With the bytes that each holds.
    queue: VecDeque<(T, u64)>,
}

impl<T> Permits<T> {
    /// For `threads`.
    pub(crate) fn new(threads: usize) -> Permits<T> {
        let state = State { taken: 0, queue: VecDeque::new() };
        Permits {
            most: threads.saturating_sub(SPARE).max(1),
            state: RankedMutex::leaf(state),
            queued: &QUEUED,
        }
    }

    fn lock(&self) -> MutexHeld<'_, State<T>> {
        self.state.lock()
    }

    /// Takes a permit, if one is free. The caller then calls [`Permits::next`] until it returns nothing.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        let mut state = self.lock();
        let free = state.taken < self.most;
        state.taken += usize::from(free);
        free
    }

    /// Queues `job`, which holds `bytes`. If a permit is free, or the queue has no room for the bytes, returns the job with a
    /// permit instead. Jobs without bytes are limited by the number of waiting programs.
    #[must_use]
    pub(crate) fn take_or_queue(&self, job: T, bytes: u64) -> Option<T> {
        let mut state = self.lock();
        if state.taken < self.most || !self.hold(bytes) {
            state.taken += 1;
            return Some(job);
        }
        state.queue.push_back((job, bytes));
        None
    }

    /// Whether queued jobs hold less than half of their limit.
    pub(crate) fn has_room(&self) -> bool {
        self.queued.load(Ordering::Relaxed) < QUEUED_MAX / 2
    }

    fn hold(&self, bytes: u64) -> bool {
        let more = |queued: u64| (bytes == 0 || queued + bytes <= QUEUED_MAX).then_some(queued + bytes);
        self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// The longest waiting job. Without one the permit is returned; so is an extra permit.
    #[must_use]
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        if state.taken <= self.most
            && let Some((job, bytes)) = state.queue.pop_front()
        {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            return Some(job);
        }
        state.taken -= 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_job_without_a_permit_is_run_by_a_thread_that_has_one() {
        let permits = Permits::new(4);
        assert!(permits.take() && permits.take() && !permits.take());
        assert_eq!(permits.take_or_queue('a', 0), None);
        assert_eq!(permits.take_or_queue('b', 7), None);
        assert_eq!((permits.next(), permits.next()), (Some('a'), Some('b')));
        assert_eq!(permits.next(), None);
        assert_eq!(permits.take_or_queue('c', 0), Some('c'), "one left meanwhile");
        assert_eq!((permits.next(), permits.next()), (None, None));
        assert!(permits.take() && permits.take() && !permits.take());
    }

    #[test]
    fn queued_bytes_are_limited_and_an_extra_permit_is_returned_first() {
        let queued = Box::leak(Box::new(AtomicU64::new(0)));
        let permits = Permits { queued, ..Permits::new(1) };
        assert!(permits.take());
        assert!(permits.has_room());
        assert_eq!(permits.take_or_queue(1, QUEUED_MAX - 5), None);
        assert!(!permits.has_room());
        assert_eq!(permits.take_or_queue(2, 5), None);
        assert_eq!(permits.take_or_queue(3, 1), Some(3), "no room for another byte");
        assert_eq!(permits.take_or_queue(4, 0), None, "it holds nothing");
        assert_eq!(permits.next(), None, "the holder of the regular permit serves the queue");
        assert_eq!((permits.next(), permits.next(), permits.next()), (Some(1), Some(2), Some(4)));
        assert_eq!((permits.next(), queued.load(Ordering::Relaxed)), (None, 0));
        assert!(permits.take() && !permits.take());
    }

    #[test]
    fn every_job_is_done_once() {
        let permits = Permits::new(3);
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (permits, done) = (&permits, &done);
                scope.spawn(move || {
                    for number in 0..200 {
                        let own = thread * 200 + number;
                        let mut job =
                            if permits.take() { Some(own) } else { permits.take_or_queue(own, number) };
                        while let Some(one) = job {
                            done.lock().unwrap().push(one);
                            job = permits.next();
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1600));
        assert_eq!(permits.lock().taken, 0);
    }
}

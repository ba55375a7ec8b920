//! Requests of one connection that wait for a thread.
//!
//! From:   the thread that reads the connection; it waits while too many requests, or too many bytes, are under way.
//! To:     the threads that carry requests out.

use std::collections::VecDeque;
use std::sync::Condvar;

use zpl::rank::{MutexHeld, RankedMutex};

/// Bytes that the requests of a connection may take in memory.
const BYTES_MAX: usize = 8 << 20;
/// Requests of a connection that are waiting or carried out.
const REQUESTS_MAX: usize = 64;

struct State<T> {
    waiting: VecDeque<(usize, T)>,
    /// Requests that were let in and are not done.
    requests: usize,
    /// Bytes that these take.
    bytes: usize,
    is_closed: bool,
}

/// A queue of bounded size.
pub(crate) struct Queue<T> {
    state: RankedMutex<State<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        let state = State { waiting: VecDeque::new(), requests: 0, bytes: 0, is_closed: false };
        Queue { state: RankedMutex::leaf(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexHeld<'_, State<T>> {
        self.state.lock()
    }

    fn wait<'a>(&self, state: MutexHeld<'a, State<T>>) -> MutexHeld<'a, State<T>> {
        state.wait(|state| self.changed.wait(state).expect("no code panics while holding a queue"))
    }

    /// Waits until a request of so many bytes may be let in, and counts it.
    pub(crate) fn let_in(&self, bytes: usize) {
        let mut state = self.lock();
        while state.requests >= REQUESTS_MAX || state.requests > 0 && state.bytes + bytes > BYTES_MAX {
            state = self.wait(state);
        }
        state.requests += 1;
        state.bytes += bytes;
    }

    /// Requests that were let in and are not done.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().requests
    }

    /// Hands over a request that was let in.
    pub(crate) fn push(&self, bytes: usize, request: T) {
        self.lock().waiting.push_back((bytes, request));
        self.changed.notify_all();
    }

    /// The next request and its bytes; `None` when no more come. It waits for one.
    pub(crate) fn next(&self) -> Option<(usize, T)> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            if state.is_closed {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// A request of so many bytes is done.
    pub(crate) fn done(&self, bytes: usize) {
        let mut state = self.lock();
        state.requests -= 1;
        state.bytes -= bytes;
        drop(state);
        self.changed.notify_all();
    }

    /// No more requests come. Those that wait are still handed out.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_reader_waits_while_too_much_is_under_way_and_one_large_request_always_fits() {
        let queue = Queue::new();
        queue.let_in(BYTES_MAX * 2);
        let let_in = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    queue.let_in(1);
                    let_in.fetch_add(1, Ordering::SeqCst);
                    queue.push(1, ());
                }
                queue.close();
            });
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert_eq!(let_in.load(Ordering::SeqCst), 0);
            queue.done(BYTES_MAX * 2);
            let mut seen = 0;
            while let Some((bytes, ())) = queue.next() {
                assert!(queue.under_way() <= REQUESTS_MAX);
                queue.done(bytes);
                seen += 1;
            }
            assert_eq!(seen, 100);
        });
    }
}

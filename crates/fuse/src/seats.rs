//! Seats for those who wait for the pool: fewer than threads, so that others are served while all who write wait.
//!
//! Who finds no seat waits in a queue, and the thread that brought it goes on to the next message; who is done with one
//! takes the next from there.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// Threads that find no seat.
pub(crate) const SPARE: usize = 2;
/// In the queue, each with at most one request's bytes; those beyond take a seat more.
const QUEUE_MAX: usize = 64;

/// The seats, and the queue before them.
pub(crate) struct Seats<T> {
    most: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    taken: usize,
    queue: VecDeque<T>,
}

impl<T> Seats<T> {
    /// For `threads`.
    pub(crate) fn new(threads: usize) -> Seats<T> {
        let state = State { taken: 0, queue: VecDeque::new() };
        Seats { most: threads.saturating_sub(SPARE).max(1), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no code panics while holding the seats")
    }

    /// Takes a seat, if there is one. Who has it calls [`Seats::next`] until that gives nothing.
    #[must_use]
    pub(crate) fn sit(&self) -> bool {
        let mut state = self.lock();
        let free = state.taken < self.most;
        state.taken += usize::from(free);
        free
    }

    /// Leaves `job` to those who sit. If there is a seat, or no room in the queue, it comes back with a seat.
    #[must_use]
    pub(crate) fn sit_or_leave(&self, job: T) -> Option<T> {
        let mut state = self.lock();
        if state.taken < self.most || state.queue.len() >= QUEUE_MAX {
            state.taken += 1;
            return Some(job);
        }
        state.queue.push_back(job);
        None
    }

    /// What has waited longest; without any, the seat is given up.
    #[must_use]
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.lock();
        let next = state.queue.pop_front();
        state.taken -= usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_seat_is_served_by_those_who_sit() {
        let seats = Seats::new(4);
        assert!(seats.sit() && seats.sit() && !seats.sit());
        assert_eq!(seats.sit_or_leave('a'), None);
        assert_eq!(seats.sit_or_leave('b'), None);
        assert_eq!((seats.next(), seats.next()), (Some('a'), Some('b')));
        assert_eq!(seats.next(), None);
        assert_eq!(seats.sit_or_leave('c'), Some('c'), "one left meanwhile");
        assert_eq!((seats.next(), seats.next()), (None, None));
        assert!(seats.sit() && seats.sit() && !seats.sit());
    }

    #[test]
    fn the_queue_has_an_end() {
        let seats = Seats::new(1);
        assert!(seats.sit());
        assert!((0..QUEUE_MAX).all(|job| seats.sit_or_leave(job).is_none()));
        assert_eq!(seats.sit_or_leave(QUEUE_MAX), Some(QUEUE_MAX));
        assert!((0..QUEUE_MAX).all(|job| seats.next() == Some(job)));
        assert_eq!((seats.next(), seats.next()), (None, None));
        assert!(seats.sit() && !seats.sit());
    }

    #[test]
    fn every_job_is_done_once() {
        let seats = Seats::new(3);
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (seats, done) = (&seats, &done);
                scope.spawn(move || {
                    for number in 0..200 {
                        let own = thread * 200 + number;
                        let mut job = if seats.sit() { Some(own) } else { seats.sit_or_leave(own) };
                        while let Some(one) = job {
                            done.lock().unwrap().push(one);
                            job = seats.next();
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1600));
        assert_eq!(seats.lock().taken, 0);
    }
}

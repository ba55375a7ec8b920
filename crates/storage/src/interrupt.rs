//! Interrupts: a signal ends a program that waits for a request.
//!
//! From:   `fuse`, which hears from the kernel that a program got a signal while it waits for a request.
//! To:     every place where the thread of a request may wait long: it ends the wait while nothing was changed.
//!
//! A thread has the interrupt of the request that it serves. Threads that serve no request have none, and their waits cannot
//! be interrupted.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, MutexGuard};
use std::time::Duration;

/// How often a wait that may be interrupted looks whether it is.
const LOOK: Duration = Duration::from_millis(100);

/// How urgently the program wants its request to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wish {
    /// It waits for the answer.
    #[default]
    Stay,
    /// It handles a signal by which users end programs, and continues afterwards: it may see the answer.
    Asked,
    /// The program dies, so the answer does not matter.
    Dying,
}

/// The interrupt of one request.
#[derive(Debug, Default)]
pub struct Interrupt {
    wish: AtomicU8,
    /// The request began a change.
    has_changed: AtomicBool,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Interrupt>>> = const { RefCell::new(None) };
}

impl Interrupt {
    /// The program's wish is `wish` now.
    pub fn set(&self, wish: Wish) {
        self.wish.store(wish as u8, Ordering::Release);
    }

    /// Whether the request is to end. A request that has changed something ends early only for a program that dies:
    /// another one would take the error for "nothing was changed".
    fn is_wanted(&self) -> bool {
        let wish = self.wish.load(Ordering::Acquire);
        wish == Wish::Dying as u8 || wish == Wish::Asked as u8 && !self.has_changed.load(Ordering::Acquire)
    }
}

/// Puts the interrupt back that the thread had before, also where `work` panics.
struct Before(Option<Arc<Interrupt>>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Does `work` for the request of `interrupt` on the calling thread.
pub fn serving<T>(interrupt: &Arc<Interrupt>, work: impl FnOnce() -> T) -> T {
    let _before = Before(CURRENT.replace(Some(interrupt.clone())));
    work()
}

/// Whether the request that the calling thread serves is to end.
#[must_use]
pub fn is_wanted() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|interrupt| interrupt.is_wanted()))
}

/// The calling thread begins a change.
pub fn note_change() {
    CURRENT.with_borrow(|current| {
        if let Some(interrupt) = current {
            interrupt.has_changed.store(true, Ordering::Release);
        }
    });
}

/// Waits for `changed`. A thread that serves a request returns after a moment in any case, so that the caller can ask
/// [`is_wanted`].
///
/// # Panics
/// If a thread panicked while it held the lock.
pub fn wait<'a, T>(changed: &Condvar, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    let held = "no code panics while holding a state that others wait for";
    if CURRENT.with_borrow(Option::is_none) {
        return changed.wait(state).expect(held);
    }
    changed.wait_timeout(state, LOOK).expect(held).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_has_changed_something_ends_early_only_for_a_program_that_dies() {
        assert!(!is_wanted(), "this thread serves no request");
        let interrupt = Arc::new(Interrupt::default());
        serving(&interrupt, || {
            assert!(!is_wanted());
            interrupt.set(Wish::Asked);
            assert!(is_wanted());
            note_change();
            assert!(!is_wanted());
            interrupt.set(Wish::Dying);
            assert!(is_wanted());
        });
        assert!(!is_wanted(), "the thread goes on to something else");
    }
}

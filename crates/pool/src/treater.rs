//! The state that the thread for initialize and trim shares with its callers.
//!
//! From:   `unused`: who begins and ends treatments, and the thread that carries them out.
//! To:     the pool, which ends the thread when it is closed.

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use storage::rank::{MutexHeld, RankedMutex};

/// The pool property that turns on trimming of freed space.
pub(crate) const AUTOTRIM: &str = "autotrim";

/// The thread for initialize and trim, if it runs.
#[derive(Debug, Default)]
pub(crate) struct Treater {
    state: RankedMutex<State>,
    pub(crate) changed: Condvar,
    /// The value of that property: whether freed space is trimmed after each txg.
    autotrim: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) running: bool,
    /// The pool is being closed.
    pub(crate) leaving: bool,
    /// An order came since the thread last looked.
    pub(crate) ordered: bool,
    /// A step is running: its changes are visible but not synced yet.
    pub(crate) in_step: bool,
    /// How many steps have ended, synced or failed.
    pub(crate) steps_ended: u64,
}

impl Treater {
    pub(crate) fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// Whether freed space is trimmed.
    pub(crate) fn trims_freed(&self) -> bool {
        self.autotrim.load(Ordering::Relaxed)
    }

    pub(crate) fn set_autotrim(&self, on: bool) {
        self.autotrim.store(on, Ordering::Relaxed);
    }

    /// Wakes the thread, if it runs, from its pause.
    pub(crate) fn look_again(&self) -> MutexHeld<'_, State> {
        let mut state = self.lock();
        state.ordered = true;
        self.changed.notify_all();
        state
    }

    /// Ends the thread. Its work continues after the next import.
    pub(crate) fn leave(&self) {
        let thread = {
            let mut state = self.lock();
            state.leaving = true;
            state.thread.take()
        };
        self.changed.notify_all();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that treats free space panicked");
        }
    }
}

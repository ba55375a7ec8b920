//! What the visitor of a scrub and those who order it tell each other.
//!
//! From:   `scrub`: who begins, pauses or cancels one, and the thread that carries it out.
//! To:     the pool, which ends the visit when it is let go.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use format::ObjectId;
use format::scan::Scan;
use storage::rank::{Rank, Ranked};

/// A block that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataError {
    /// DSL dataset object; 0 for the MOS.
    pub dataset: ObjectId,
    /// Object in it; 0 for the objset itself.
    pub object: ObjectId,
    /// Level in the object's tree.
    pub level: i64,
    /// Block of that level.
    pub blkid: u64,
    /// Its birth, where the log says it.
    pub birth: u64,
}

/// What the visitor is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Go,
    Pause,
    /// Give up; the state on disk says so.
    Cancel,
    /// The pool is let go; the state on disk stays as it is.
    Leave,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) running: bool,
    pub(crate) order: Order,
    /// The state on disk with what was done since.
    pub(crate) scan: Option<Scan>,
    /// When it was paused, seconds since 1970.
    pub(crate) paused_at: u64,
    pub(crate) errors: BTreeSet<DataError>,
    pub(crate) failed: Option<String>,
}

/// A pool's visitor, if one is at work.
#[derive(Default)]
pub(crate) struct Scrubber {
    state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// Held by who begins, pauses or cancels, until it is on disk: one does not overtake the other.
    turn: Mutex<()>,
}

impl Scrubber {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding the scrub state")
    }

    pub(crate) fn turn(&self) -> Ranked<MutexGuard<'_, ()>> {
        Ranked::lock(Rank::ScrubTurn, || self.turn.lock().expect("no code panics while it has its turn"))
    }

    pub(crate) fn give(&self, order: Order) {
        self.lock().order = order;
        self.changed.notify_all();
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).expect("no code panics while holding the scrub state")
    }

    /// What the visitor is to do now; waits while it is paused.
    pub(crate) fn order(&self) -> Order {
        let mut state = self.lock();
        while state.order == Order::Pause {
            state = self.wait(state);
        }
        state.order
    }

    /// Ends the visit without a word on disk: the pool is let go.
    pub(crate) fn leave(&self) {
        self.give(Order::Leave);
        self.join();
    }

    pub(crate) fn join(&self) {
        let thread = self.lock().thread.take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the scrub thread panicked");
        }
    }
}

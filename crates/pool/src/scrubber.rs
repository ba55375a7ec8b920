//! What the visitor of a scrub and those who order it tell each other.
//!
//! From:   `scrub`: who begins, pauses or cancels one, and the thread that carries it out.
//! To:     the pool, which ends the visit when it is let go.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use dsl::walk::{Place, Target};
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

impl DataError {
    /// The block at `place`.
    #[must_use]
    pub fn at(place: &Place) -> DataError {
        let target = place.target();
        DataError {
            dataset: place.owner(),
            object: target.object,
            level: target.level,
            blkid: target.blkid,
            birth: 0,
        }
    }

    /// The block, in whatever tree.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { object: self.object, level: self.level, blkid: self.blkid }
    }
}

/// What the visitor is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Visit blocks.
    #[default]
    Go,
    /// Wait for another order.
    Pause,
    /// Give up; the state on disk says so.
    Cancel,
    /// The pool is let go; the state on disk stays as it is.
    Leave,
}

/// How far the visitor is, and what it is to do.
#[derive(Default)]
pub struct State {
    /// The visitor.
    pub thread: Option<JoinHandle<()>>,
    /// It was begun and has not ended.
    pub running: bool,
    /// What it is to do.
    pub order: Order,
    /// The state on disk with what was done since.
    pub scan: Option<Scan>,
    /// When it was paused, seconds since 1970.
    pub paused_at: u64,
    /// Lost blocks that it met and that are not in the log on disk yet.
    pub errors: BTreeSet<DataError>,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A pool's visitor, if one is at work.
#[derive(Default)]
pub struct Scrubber {
    state: Mutex<State>,
    /// Signalled when the order changes and when the visitor ends.
    pub changed: Condvar,
    /// Held by who begins, pauses or cancels, until it is on disk: one does not overtake the other.
    turn: Mutex<()>,
}

impl Scrubber {
    /// The state, for looking at it or changing it in memory.
    ///
    /// # Panics
    /// A thread panicked while it held the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding the scrub state")
    }

    /// The turn to begin, pause or cancel.
    ///
    /// # Panics
    /// A thread panicked while it had its turn.
    pub fn turn(&self) -> Ranked<MutexGuard<'_, ()>> {
        Ranked::lock(Rank::ScrubTurn, || self.turn.lock().expect("no code panics while it has its turn"))
    }

    /// Tells the visitor what to do.
    pub fn give(&self, order: Order) {
        self.lock().order = order;
        self.changed.notify_all();
    }

    /// Waits until something of the state changes.
    ///
    /// # Panics
    /// As [`Scrubber::lock`].
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).expect("no code panics while holding the scrub state")
    }

    /// What the visitor is to do now; waits while it is paused.
    pub fn order(&self) -> Order {
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

    /// Waits for the end of the visitor's thread.
    pub fn join(&self) {
        let thread = self.lock().thread.take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the scrub thread panicked");
        }
    }
}

//! The state that the scrub thread shares with the callers that start, pause and cancel scrubs.
//!
//! From:   `scrub`: its callers and its thread.
//! To:     the pool, which stops the thread when it is closed.

use std::sync::Condvar;
use std::thread::JoinHandle;

use dsl::walk::{Place, Target};
use format::ObjectId;
use storage::rank::{MutexHeld, Rank, RankedMutex};

use crate::scan_state::Progress;

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

    /// The block that the entry names, in any tree.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { object: self.object, level: self.level, blkid: self.blkid }
    }
}

/// The task of the visitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Visit blocks.
    #[default]
    Go,
    /// Wait for another order.
    Pause,
    /// Stop for good; the state on disk says so.
    Cancel,
    /// Stop because the pool is closed; the state on disk stays as it is.
    Leave,
}

/// Progress of the scrub thread, and the order for it.
#[derive(Default)]
pub struct State {
    /// The visitor.
    pub thread: Option<JoinHandle<()>>,
    /// It was begun and has not ended.
    pub running: bool,
    /// The thread rebuilds devices, and visits no blocks yet.
    pub rebuilding: bool,
    /// The task of the visitor.
    pub order: Order,
    /// The scan that is under way, or paused: as of the last sync, and with the work since. It is known from the first
    /// sync after the import on.
    pub progress: Option<Progress>,
    /// When it was paused, seconds since 1970.
    pub paused_at: u64,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A pool's scrub thread, if one runs.
pub struct Scrubber {
    state: RankedMutex<State>,
    /// Signalled when the order changes and when the thread ends.
    pub changed: Condvar,
    /// Callers that start, pause or cancel hold this lock until their change is on disk, so that changes keep their order.
    turn: RankedMutex<()>,
}

impl Default for Scrubber {
    fn default() -> Scrubber {
        let state = RankedMutex::new(Rank::Scrub, State::default());
        let turn = RankedMutex::new(Rank::ScrubTurn, ());
        Scrubber { state, changed: Condvar::new(), turn }
    }
}

impl Scrubber {
    /// The state, for looking at it or changing it in memory.
    ///
    /// # Panics
    /// A thread panicked while it held the state.
    pub fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// Takes the lock for starting, pausing or cancelling.
    ///
    /// # Panics
    /// A thread panicked while it held the lock.
    pub fn turn(&self) -> MutexHeld<'_, ()> {
        self.turn.lock()
    }

    /// Changes the place of the running scan, when datasets change.
    pub(crate) fn follow(&self, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = &mut self.lock().progress {
            change(progress);
        }
    }

    /// Whether more was done than is on disk.
    pub(crate) fn is_newer(&self) -> bool {
        self.lock().progress.as_ref().is_some_and(|progress| progress.is_newer)
    }

    /// Tells the visitor what to do.
    pub fn give(&self, order: Order) {
        self.lock().order = order;
        self.changed.notify_all();
    }

    /// Waits until the state changes.
    ///
    /// # Panics
    /// As [`Scrubber::lock`].
    pub fn wait<'a>(&self, state: MutexHeld<'a, State>) -> MutexHeld<'a, State> {
        state.wait(|state| self.changed.wait(state).expect("no code panics while holding the scrub state"))
    }

    /// The present order for the scrub thread. Blocks while the scrub is paused.
    pub fn order(&self) -> Order {
        let mut state = self.lock();
        while state.order == Order::Pause {
            state = self.wait(state);
        }
        state.order
    }

    /// Stops the thread because the pool is closed. Changes nothing on disk.
    pub(crate) fn leave(&self) {
        self.give(Order::Leave);
        self.join();
    }

    /// Waits until the scrub thread has ended.
    pub fn join(&self) {
        let thread = self.lock().thread.take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the scrub thread panicked");
        }
    }
}

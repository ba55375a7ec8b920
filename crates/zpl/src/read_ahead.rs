//! Blocks of one object in order, read by the workers before they are asked for.
//!
//! From:   block numbers within a window.
//! To:     one reader. If the next block is not there yet, the reader reads blocks itself instead of sleeping, so that no
//!         thread is woken for each block.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar};

use dmu::rank::{MutexHeld, RankedMutex};
use dmu::{Object, Objset, Record};

/// The result of reading a block.
type Read = dmu::Result<Record>;

struct State {
    /// `None` when the reader is gone. Workers keep the object and its devices open only while the reader exists.
    object: Option<Arc<Object>>,
    /// Blocks that no thread has started, with their position.
    todo: VecDeque<(u64, u64)>,
    /// Workers that are reading.
    reading: usize,
    done: BTreeMap<u64, Result<Read, Box<dyn Any + Send>>>,
    reader_waits: bool,
}

struct Lane {
    state: RankedMutex<State>,
    /// A worker has finished a block.
    finished: Condvar,
}

impl Lane {
    fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// For a worker: reads the next block that no thread has started.
    fn read_next(&self) {
        let (object, turn, blkid) = {
            let mut state = self.lock();
            let Some(object) = state.object.clone() else { return };
            let Some((turn, blkid)) = state.todo.pop_front() else { return };
            state.reading += 1;
            (object, turn, blkid)
        };
        let read = catch_unwind(AssertUnwindSafe(|| object.block_ahead(blkid)));
        drop(object);
        let mut state = self.lock();
        state.reading -= 1;
        state.done.insert(turn, read);
        if state.reader_waits {
            self.finished.notify_one();
        }
    }
}

/// The reader's end.
pub(crate) struct ReadAhead {
    lane: Arc<Lane>,
    objset: Arc<Objset>,
    object: Arc<Object>,
    window: u64,
    /// The block to look for next; `None` at the end.
    next: Option<u64>,
    end: u64,
    /// Blocks on their way, by turn.
    blkids: VecDeque<u64>,
    /// Turn of the first of them.
    turn: u64,
    /// Why the following blocks cannot be determined.
    broken: Option<dmu::Error>,
}

impl ReadAhead {
    /// The blocks of `object` below `end` that hold data, at most `window` of them ahead of the reader.
    pub(crate) fn new(objset: Arc<Objset>, object: Arc<Object>, end: u64, window: u64) -> ReadAhead {
        let state = State {
            object: Some(object.clone()),
            todo: VecDeque::new(),
            reading: 0,
            done: BTreeMap::new(),
            reader_waits: false,
        };
        let lane = Arc::new(Lane { state: RankedMutex::leaf(state), finished: Condvar::new() });
        let (blkids, broken) = (VecDeque::new(), None);
        ReadAhead { lane, objset, object, window, next: Some(0), end, blkids, turn: 0, broken }
    }

    /// Hands blocks to the workers as far as the window reaches.
    fn fill(&mut self) {
        while (self.blkids.len() as u64) < self.window {
            let Some(from) = self.next else { return };
            self.next = None;
            match self.object.next_block(from) {
                Ok(Some(blkid)) if blkid < self.end => {
                    self.next = Some(blkid + 1);
                    self.lane.lock().todo.push_back((self.turn + self.blkids.len() as u64, blkid));
                    self.blkids.push_back(blkid);
                    let lane = self.lane.clone();
                    self.objset.readers().spawn(move || lane.read_next());
                }
                Ok(_) => {}
                Err(error) => self.broken = Some(error),
            }
        }
    }

    /// The next block with data and the result of reading it; an error if the next block cannot be determined.
    pub(crate) fn next(&mut self) -> Option<dmu::Result<(u64, Read)>> {
        self.fill();
        let Some(blkid) = self.blkids.pop_front() else { return self.broken.take().map(Err) };
        let turn = self.turn;
        self.turn += 1;
        let mut state = self.lane.lock();
        loop {
            if let Some(read) = state.done.remove(&turn) {
                drop(state);
                return Some(Ok((blkid, read.unwrap_or_else(|panic| resume_unwind(panic)))));
            }
            if let Some((turn, blkid)) = state.todo.pop_front() {
                drop(state);
                let read = self.object.block_ahead(blkid);
                state = self.lane.lock();
                state.done.insert(turn, Ok(read));
            } else {
                state = self.wait(state);
            }
        }
    }

    fn wait<'a>(&'a self, mut state: MutexHeld<'a, State>) -> MutexHeld<'a, State> {
        state.reader_waits = true;
        let wait = |state| self.lane.finished.wait(state).expect("no code panics while holding a lane");
        let mut state = state.wait(wait);
        state.reader_waits = false;
        state
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.object = None;
        state.todo.clear();
        while state.reading > 0 {
            state = self.wait(state);
        }
        let unread = std::mem::take(&mut state.done);
        drop(state);
        drop(unread);
    }
}

//! Intent logs: what makes a change safe before its txg is.
//!
//! From:   an upper crate, which notes what it did in each transaction ([`Dataset::note`]) and, when somebody wants
//!         it safe now, turns notes into records ([`Dataset::commit_turn`]).
//! To:     chains of log blocks, outside of txgs; the header of the chain in the objset, with each sync.
//! Source: docs/format/08-zil.md. Why it is done so: docs/decisions/0006-intent-log.md.
//!
//! Nothing is noted before somebody asks for the first time: a pool that is only copied into pays nothing. The first
//! one waits for a sync, which makes the chain; from then on notes are kept until their txg is synced or they are
//! in the log. Whatever cannot be logged is made safe by a sync, which is always right.

pub mod chain;
mod commit;
pub(crate) mod recover;
pub(crate) mod stash;
mod sync;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use format::blkptr::Block;
use format::zil::{Body, Record};
use format::{BlockPtr, ObjectId, Txg};
use storage::Record as Bytes;
use storage::rank::{Rank, Ranked};

use crate::dataset::Dataset;
use crate::tx::Tx;
use crate::{Error, Result};

pub use commit::{Batch, Ticket, Turn};
use recover::Recovery;
pub(crate) use sync::{add_logged, durable};

/// Notes kept per dataset; beyond that, a sync makes the changes safe. Each takes some hundred bytes.
const NOTES_MAX: usize = 64 << 10;

/// A change that was made and is not safe yet.
#[derive(Clone, Debug)]
pub enum Note {
    /// It can be told at once.
    Done(Box<Body>),
    /// Data was written: it is read again when it is needed.
    Data {
        /// The file.
        object: ObjectId,
        /// From here.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

/// A note in its place.
#[derive(Debug)]
struct Itx {
    txg: Txg,
    /// Only who asks for this object asks for it; `None`: everybody does, because others build on it.
    of: Option<ObjectId>,
    note: Note,
}

/// A block of the chain that is being written.
#[derive(Clone, Copy, Debug)]
struct Link {
    block: Block,
    /// Latest txg of its records.
    max_txg: Txg,
    written: bool,
}

/// What the log is doing.
#[derive(Debug, Default)]
enum Phase {
    /// Nothing is noted.
    #[default]
    Off,
    /// Somebody asked; the next sync makes the chain.
    Starting,
    /// Notes are kept, and written when somebody asks.
    On,
    /// No more is written; the chain ends when what it holds is synced.
    Closing,
    /// A crash left it, claimed; it is to be replayed before anything else is changed.
    Replay(Box<Recovery>),
    /// What is left of it is to be freed.
    Discard(Vec<Block>),
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// Oldest first.
    notes: VecDeque<Itx>,
    /// Changes up to this txg were not all noted: only a sync makes them safe.
    unnoted: Txg,
    /// Last synced txg.
    durable: Txg,
    /// From the block that the header names to the one that is to be written next.
    chain: VecDeque<Link>,
    /// The header that names the chain is on disk when this txg is.
    usable: Txg,
    /// The dataset says on disk that its log may hold records of extended attributes in nodes.
    sa_xattrs: bool,
    /// Number of the last record.
    seq: u64,
    /// Bytes that the last commits took, for the size of the next block.
    history: [usize; 4],
    /// Somebody is writing.
    writing: bool,
    /// Top-level vdevs with blocks of the chain that nobody flushed: their batch was not finished.
    unflushed: BTreeSet<u32>,
    /// Askers so far, and those whose changes are safe.
    asked: u64,
    served: u64,
    /// What the askers since the last batch want: an object, or everything. With their numbers.
    wanted: Vec<(u64, Option<ObjectId>)>,
}

/// Values of [`Log::mode`]: what a note costs nothing to look at.
const OFF: u8 = 0;
const NOTING: u8 = 1;
const REPLAYING: u8 = 2;

/// The intent log of an open dataset.
#[derive(Debug, Default)]
pub(crate) struct Log {
    mode: AtomicU8,
    state: Mutex<State>,
    changed: Condvar,
    /// Held by whoever replays.
    replay: Mutex<()>,
}

impl Log {
    fn lock(&self) -> Ranked<MutexGuard<'_, State>> {
        Ranked::lock(Rank::Log, || self.state.lock().expect("no code panics while holding an intent log"))
    }

    /// `txg` is durable: what was noted for it need not be logged any more.
    pub(crate) fn durable(&self, txg: Txg) {
        let mut state = self.lock();
        state.durable = txg;
        state.notes.retain(|itx| itx.txg > txg);
        self.changed.notify_all();
    }

    /// Whether the log is of no more concern to syncs.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.lock().phase, Phase::Off)
    }

    /// No more is logged; what the log holds is freed when it is synced. One that waits to be replayed stays.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Starting | Phase::On) {
            state.phase = Phase::Closing;
        }
    }

    /// Whether a crash left something to be replayed.
    fn to_replay(&self) -> bool {
        matches!(self.lock().phase, Phase::Replay(_))
    }

    /// Refuses changes to a dataset whose log is not replayed, but for the replay itself.
    pub(crate) fn check_replayed(&self, name: impl FnOnce() -> String) -> Result<(), String> {
        if self.mode.load(Ordering::Acquire) != REPLAYING && self.to_replay() {
            return Err(format!("'{}' has an intent log that was not replayed yet", name()));
        }
        Ok(())
    }

    /// Whether the present caller is replaying: properties do not bind it.
    pub(crate) fn is_replaying(&self) -> bool {
        self.mode.load(Ordering::Acquire) == REPLAYING
    }
}

impl Dataset {
    /// Notes a change made under `tx`, which must still be held. `of` is the object that it is about when nothing but
    /// that object's own state hangs on it; `None` for a change of names.
    pub fn note(&self, tx: &Tx, of: Option<ObjectId>, note: impl FnOnce() -> Note) {
        match self.log.mode.load(Ordering::Acquire) {
            OFF => {}
            REPLAYING => self.log.lock().note_replayed(tx.txg()),
            _ => {
                let note = note();
                self.log.lock().keep(Itx { txg: tx.txg(), of, note });
            }
        }
    }

    /// As [`Dataset::note`], for a change that has no record: only a sync makes it safe.
    pub fn note_unlogged(&self, tx: &Tx) {
        match self.log.mode.load(Ordering::Acquire) {
            OFF => {}
            REPLAYING => self.log.lock().note_replayed(tx.txg()),
            _ => {
                let mut state = self.log.lock();
                state.unnoted = state.unnoted.max(tx.txg());
            }
        }
    }

    /// Whether the log may be told of extended attributes that lie in nodes: where the pool has the feature
    /// `zilsaxattr`, and the log is in use.
    #[must_use]
    pub fn logs_sa_xattrs(&self) -> bool {
        self.log.lock().sa_xattrs
    }

    /// From now on, everybody who asks asks for the changes of `object`, too: its name is about to replace another.
    pub fn note_for_all(&self, object: ObjectId) {
        if self.log.mode.load(Ordering::Acquire) == NOTING {
            let mut state = self.log.lock();
            state.notes.iter_mut().filter(|itx| itx.of == Some(object)).for_each(|itx| itx.of = None);
        }
    }

    /// Whether a crash left an intent log that must be replayed before anything is changed.
    #[must_use]
    pub fn has_log_to_replay(&self) -> bool {
        self.log.to_replay()
    }

    /// Begins the replay; `None` when there is nothing to replay (any more).
    #[must_use]
    pub fn replay(&self) -> Option<Replay<'_>> {
        let turn = self.log.replay.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let records = match &self.log.lock().phase {
            Phase::Replay(recovery) => recovery.header,
            _ => return None,
        };
        self.log.mode.store(REPLAYING, Ordering::Release);
        Some(Replay { dataset: self, header: records, finished: false, _turn: turn })
    }

    /// Has the next sync free what whoever wrote the pool before left of a log that is not in use.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn discard_leftover(self: &Arc<Self>) -> Result<()> {
        let header = self.objset().zil_header();
        let mut state = self.log.lock();
        if header.log.is_hole() || !matches!(state.phase, Phase::Off) {
            return Ok(());
        }
        let synced = self.pool.info().txg;
        state.phase = Phase::Discard(chain::allocated(&self.pool.storage, self.id, &header, synced)?);
        drop(state);
        self.list_logged();
        Ok(())
    }

    /// Reads the data that a record of a log refers to.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_log_data(&self, ptr: &BlockPtr) -> Result<Bytes> {
        Ok(self.pool.storage.read_once(ptr)?)
    }

    /// Keeps the dataset open and lets every sync look at its log.
    pub(crate) fn list_logged(self: &Arc<Self>) {
        self.pool.logged().insert(self.id, self.clone());
    }
}

impl State {
    fn keep(&mut self, itx: Itx) {
        if self.notes.len() == NOTES_MAX {
            self.unnoted = itx.txg;
            self.notes.clear();
        }
        if self.unnoted < itx.txg {
            self.notes.push_back(itx);
        }
    }

    fn note_replayed(&mut self, txg: Txg) {
        if let Phase::Replay(recovery) = &mut self.phase {
            recovery.note_replayed(txg);
        }
    }
}

/// The replay of one log. While it lives, the dataset can be changed by who replays, and by nobody else.
pub struct Replay<'a> {
    dataset: &'a Dataset,
    header: format::objset::ZilHeader,
    finished: bool,
    _turn: MutexGuard<'a, ()>,
}

impl Replay<'_> {
    /// The records that are not part of the dataset yet, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        recover::unreplayed(&self.dataset.pool.storage, self.dataset.id, &self.header)
    }

    /// The next change made under a transaction is the last one of record `seq`: when that txg is on disk, the record
    /// is done. `None`: a change that is only a part of a record's.
    pub fn at(&self, seq: Option<u64>) {
        if let Phase::Replay(recovery) = &mut self.dataset.log.lock().phase {
            recovery.at(seq);
        }
    }

    /// All records are done: the next sync frees the log.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn finish(mut self) -> Result<()> {
        self.finished = true;
        let open = self.dataset.pool.groups.lock().open;
        if let Phase::Replay(recovery) = &mut self.dataset.log.lock().phase {
            recovery.finish(open);
        }
        self.dataset.pool.groups.sync()
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        // A replay that stopped half-way is taken up again where it stopped; until then nothing may be changed.
        let mode = &self.dataset.log.mode;
        let _ = mode.compare_exchange(REPLAYING, OFF, Ordering::AcqRel, Ordering::Acquire);
        if let Phase::Replay(recovery) = &mut self.dataset.log.lock().phase
            && !self.finished
        {
            recovery.stop();
        }
    }
}

/// Why the intent log of the dataset `name` is not replayed.
fn bad_log(name: &str, why: impl std::fmt::Display) -> Error {
    Error::Replay { dataset: name.into(), why: why.to_string() }
}

//! State of a dataset's intent log: the notes in memory and the chain on disk.
//!
//! From:   `zil`, which notes changes, writes records, and syncs.
//! To:     the open dataset, which keeps a [`Log`]; the pool, which keeps the [`space::LogSpace`].
//! Source: docs/format/08-zil.md. Why it is done so: docs/decisions/0006-intent-log.md.

pub mod chain;
pub(crate) mod recovery;
pub(crate) mod space;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Condvar;
use std::sync::atomic::{AtomicU8, Ordering};

use format::blkptr::Block;
use format::objset::ZilHeader;
use format::zil::Body;
use format::{BlockPtr, ObjectId, Txg};
use storage::rank::{MutexHeld, Rank, RankedMutex};

use recovery::Recovery;

/// Maximal number of notes per dataset; a sync makes further changes durable. A note takes some hundred bytes.
const NOTES_MAX: usize = 64 << 10;

/// A change that is not durable yet.
#[derive(Clone, Debug)]
pub enum Note {
    /// The record is complete and can be written at once.
    Done(Box<Body>),
    /// Data was written. It is read again when the record is written.
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
pub(crate) struct Itx {
    pub(crate) txg: Txg,
    /// Only a commit of this object needs it; `None`: every commit needs it, because later changes depend on it.
    pub(crate) of: Option<ObjectId>,
    pub(crate) note: Note,
}

/// A block of the chain that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) block: Block,
    /// Latest txg of its records.
    pub(crate) max_txg: Txg,
    pub(crate) written: bool,
}

/// The phase in which the log is.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Nothing is noted.
    #[default]
    Off,
    /// A commit was requested; the next sync makes the chain.
    Starting,
    /// Notes are kept, and a commit writes them.
    On,
    /// No more records are written. The chain is freed when all its records are synced.
    Closing,
    /// A crash left the log; it is claimed and must be replayed before any other change.
    Replay(Box<Recovery>),
    /// The remaining blocks must be freed.
    Discard(Vec<Block>),
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// Oldest first.
    pub(crate) notes: VecDeque<Itx>,
    /// Some changes up to this txg have no note; only a sync makes them durable.
    pub(crate) unnoted: Txg,
    /// Last synced txg.
    pub(crate) durable: Txg,
    /// From the block that the header names to the one that is to be written next.
    pub(crate) chain: VecDeque<Link>,
    /// The header that names the chain is on disk when this txg is.
    pub(crate) usable: Txg,
    /// The dataset is marked on disk as one whose log may hold records of extended attributes (`zilsaxattr`).
    pub(crate) sa_xattrs: bool,
    /// Number of the last record.
    pub(crate) seq: u64,
    /// Bytes that the last commits took, for the size of the next block.
    pub(crate) history: [usize; 4],
    /// A thread is writing.
    pub(crate) writing: bool,
    /// Top-level vdevs with unflushed blocks of the chain, because their batch was not finished.
    pub(crate) unflushed: BTreeSet<u32>,
    /// Number of commits requested so far, and number of those that are done.
    pub(crate) asked: u64,
    pub(crate) served: u64,
    /// Commits requested since the last batch: their number, and the object (`None`: everything).
    pub(crate) wanted: Vec<(u64, Option<ObjectId>)>,
}

/// Values of [`Log::mode`], which a note reads without a lock.
pub(crate) const OFF: u8 = 0;
pub(crate) const NOTING: u8 = 1;
pub(crate) const REPLAYING: u8 = 2;

/// The intent log of an open dataset.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) mode: AtomicU8,
    pub(crate) state: RankedMutex<State>,
    pub(crate) changed: Condvar,
    /// Held during a replay.
    replay: RankedMutex<()>,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            mode: AtomicU8::default(),
            state: RankedMutex::new(Rank::Log, State::default()),
            changed: Condvar::new(),
            replay: RankedMutex::new(Rank::Replay, ()),
        }
    }
}

impl Log {
    pub(crate) fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// The turn to replay the log: one replay at a time.
    pub(crate) fn replay_turn(&self) -> MutexHeld<'_, ()> {
        self.replay.lock_after_panics()
    }

    /// `txg` is durable: drops its notes.
    pub(crate) fn durable(&self, txg: Txg) {
        let mut state = self.lock();
        state.durable = txg;
        state.notes.retain(|itx| itx.txg > txg);
        self.changed.notify_all();
    }

    /// Whether syncs need not visit the log any more.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self.lock().phase, Phase::Off)
    }

    /// Stops logging. The blocks of the log are freed when their changes are synced. A log that waits for its replay stays.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Starting | Phase::On) {
            state.phase = Phase::Closing;
        }
    }

    /// Whether a crash left records to replay.
    pub(crate) fn to_replay(&self) -> bool {
        matches!(self.lock().phase, Phase::Replay(_))
    }

    /// Blocks of other files that the log clones from the syncing txg on.
    pub(crate) fn take_claimed(&self) -> Vec<Block> {
        match &mut self.lock().phase {
            Phase::Replay(recovery) => recovery.take_uncounted(),
            _ => Vec::new(),
        }
    }

    /// Whether the log must be replayed before the dataset is changed. The replay itself changes it.
    pub(crate) fn waits_for_replay(&self) -> bool {
        self.mode.load(Ordering::Acquire) != REPLAYING && self.to_replay()
    }

    /// Whether the present caller is replaying: properties do not bind it.
    pub(crate) fn is_replaying(&self) -> bool {
        self.mode.load(Ordering::Acquire) == REPLAYING
    }
}

impl Log {
    /// Whether the sync of `txg` has something to do for this log, whatever else changed.
    pub(crate) fn wants_sync(&self, txg: Txg, on_disk: &ZilHeader) -> bool {
        let state = self.lock();
        match &state.phase {
            Phase::Off => false,
            Phase::Starting | Phase::Discard(_) => true,
            Phase::On => state.chain.front().is_some_and(|link| link.written && link.is_over(txg)),
            Phase::Closing => !state.writing && state.chain.front().is_none_or(|link| link.is_over(txg)),
            Phase::Replay(recovery) => recovery.is_done(txg) || recovery.header_of(txg, on_disk) != *on_disk,
        }
    }

    /// Removes from the chain the blocks whose records are all synced with `txg`.
    pub(crate) fn shorten(&self, txg: Txg) -> (BlockPtr, Vec<Block>) {
        let mut state = self.lock();
        let closing = matches!(state.phase, Phase::Closing) && !state.writing;
        let mut freed = Vec::new();
        while let Some(link) = state.chain.front()
            && link.is_over(txg)
            && (link.written || closing)
        {
            freed.push(link.block);
            state.chain.pop_front();
        }
        let Some(first) = state.chain.front().map(|link| link.block) else {
            self.mode.store(OFF, Ordering::Release);
            state.phase = Phase::Off;
            state.sa_xattrs = false;
            state.notes.clear();
            return (BlockPtr::HOLE, freed);
        };
        (BlockPtr::Block(first), freed)
    }

    /// The log is no longer needed: all its blocks were freed.
    pub(crate) fn end(&self) {
        self.lock().phase = Phase::Off;
    }
}

impl Link {
    /// Neither its records nor its birth have a txg above `txg`.
    pub(crate) fn is_over(&self, txg: Txg) -> bool {
        self.block.birth <= txg && self.max_txg <= txg
    }
}

impl State {
    pub(crate) fn keep(&mut self, itx: Itx) {
        if self.notes.len() == NOTES_MAX {
            self.unnoted = itx.txg;
            self.notes.clear();
        }
        if self.unnoted < itx.txg {
            self.notes.push_back(itx);
        }
    }

    pub(crate) fn note_replayed(&mut self, txg: Txg) {
        if let Phase::Replay(recovery) = &mut self.phase {
            recovery.note_replayed(txg);
        }
    }
}

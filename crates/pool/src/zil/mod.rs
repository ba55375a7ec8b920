//! Intent logs: they make changes durable before their txg is.
//!
//! From:   an upper crate, which notes what it did in each transaction ([`Dataset::note`]) and, when somebody wants
//!         it safe now, turns notes into records ([`Dataset::commit_turn`]).
//! To:     chains of log blocks, outside of txgs; the header of the chain in the objset, with each sync.
//! Source: docs/format/08-zil.md. Why it is done so: docs/decisions/0006-intent-log.md.
//!
//! No notes are made before the first commit, so a dataset that is never synced by a program pays nothing. The first
//! commit waits for a sync, which makes the chain. From then on, notes are kept until their txg is synced or they are
//! in the log. A sync replaces the log for every change that cannot be logged.

mod commit;
pub(crate) mod recover;
pub(crate) mod stash;
mod sync;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::crypt::Sealing;
use format::zil::Record;
use format::{BlockPtr, ObjectId};
use storage::Record as Bytes;
use storage::rank::MutexHeld;

use crate::log::{Itx, NOTING, OFF, Phase, REPLAYING, chain};
use crate::state::Dataset;
use crate::tx::Tx;
use crate::{Error, Result};

pub use crate::log::Note;
pub use commit::{Batch, Ticket, Turn};
pub(crate) use sync::{add_logged, durable};

impl Dataset {
    /// Notes a change made under `tx`, which must still be held. `of` is the changed object if no other object depends on
    /// the change; `None` for a change of names.
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

    /// As [`Dataset::note`], for a change without a record type: only a sync makes it durable.
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

    /// Whether the log can contain records of extended attributes that are stored in dnodes. This is so if the log is in use and
    /// the feature `zilsaxattr` is enabled.
    #[must_use]
    pub fn logs_sa_xattrs(&self) -> bool {
        self.log.lock().sa_xattrs
    }

    /// From now on, every commit also writes the changes of `object`. For a rename that replaces another file.
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
        let turn = self.log.replay_turn();
        let records = match &self.log.lock().phase {
            Phase::Replay(recovery) => recovery.header,
            _ => return None,
        };
        self.log.mode.store(REPLAYING, Ordering::Release);
        Some(Replay { dataset: self, header: records, finished: false, _turn: turn })
    }

    /// Requests that the next sync frees an unused log that the previous writer of the pool left.
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

    /// Key and parameters that encrypt the next log block of an encrypted dataset.
    fn log_sealing(&self) -> Option<Sealing> {
        let entropy = &self.pool.host.entropy;
        self.objset().io().keys().map(|keys| keys.next_sealing(&mut |bytes| entropy.fill(bytes)))
    }

    /// Reads the data that a record of a log refers to.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_log_data(&self, ptr: &BlockPtr) -> Result<Bytes> {
        Ok(self.objset().io().read_once(ptr)?)
    }

    /// Keeps the dataset open and lets every sync look at its log.
    pub(crate) fn list_logged(self: &Arc<Self>) {
        self.pool.open.logged().insert(self.id, self.clone());
    }
}

/// The replay of one log. While it exists, only the replaying thread can change the dataset.
pub struct Replay<'a> {
    dataset: &'a Dataset,
    header: format::objset::ZilHeader,
    finished: bool,
    _turn: MutexHeld<'a, ()>,
}

impl Replay<'_> {
    /// The records that are not part of the dataset yet, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        let keys = self.dataset.objset().io().keys();
        recover::unreplayed(&self.dataset.pool.storage, self.dataset.id, &self.header, keys)
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
        // A replay that stopped half-way continues later where it stopped. Until then the dataset cannot be changed.
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

//! Whether a leaf takes part in its pool, and the txgs whose writes it missed.
//!
//! From:   writes and flushes that the leaf's device refused; the lists of missed txgs that a pool keeps on disk.
//! To:     the write pipeline, which leaves out a leaf that failed; readers, which ask other leaves first; `pool`, which keeps the
//!         list on disk.
//! Source: docs/format/11-redundancy.md §3.4, §5.

use std::sync::Arc;

use format::Txg;

use crate::rank::{MutexHeld, RankedMutex};
use crate::txg_runs::TxgRuns;

/// How a leaf takes part.
#[derive(Debug, Default)]
pub struct Health(RankedMutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Why nothing is written to it any more.
    failed: Option<String>,
    missing: Arc<TxgRuns>,
    /// Of these txgs a resilver could not write everything. They are part of `missing`.
    unwritten: TxgRuns,
}

impl Health {
    /// Of a leaf that takes no writes from `from` on, because its device is not there.
    #[must_use]
    pub fn absent_since(from: Txg, missing: &TxgRuns) -> Health {
        let health = Health::default();
        health.set_missing(missing.clone());
        health.miss_since(from);
        health
    }

    fn lock(&self) -> MutexHeld<'_, State> {
        self.0.lock()
    }

    /// Whether the leaf is not written any more, because its device refused something.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    /// The request that the device refused, and its reason.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    /// The txgs whose writes the leaf missed.
    #[must_use]
    pub fn missing(&self) -> Arc<TxgRuns> {
        self.lock().missing.clone()
    }

    /// Whether the leaf may lack a block that was born in `txg`.
    #[must_use]
    pub fn misses(&self, txg: Txg) -> bool {
        let state = self.lock();
        !state.missing.is_empty() && state.missing.contains(txg)
    }

    /// Replaces the set of txgs whose writes the leaf missed.
    pub fn set_missing(&self, missing: TxgRuns) {
        self.lock().missing = Arc::new(missing);
    }

    /// Adds the txgs from `from` up to, without, `to`.
    pub fn add_missing(&self, from: Txg, to: Txg) {
        let mut state = self.lock();
        let mut missing = TxgRuns::clone(&state.missing);
        missing.insert(from, to);
        state.missing = Arc::new(missing);
    }

    /// A resilver cannot write what was born in the txgs from `from` up to, without, `to`: they stay missing after it.
    pub(crate) fn keep_missing(&self, from: Txg, to: Txg) {
        self.lock().unwritten.insert(from, to);
    }

    /// As [`Health::keep_missing`] of all txgs that the leaf misses.
    pub fn keep_all_missing(&self) {
        let mut state = self.lock();
        let missing = state.missing.clone();
        state.unwritten.extend(&missing);
    }

    /// A resilver begins, which visits everything that the leaf misses.
    pub fn resilver_begins(&self) {
        self.lock().unwritten = TxgRuns::default();
    }

    /// A resilver has written the blocks born below `end`, as far as it could.
    pub fn resilvered_below(&self, end: Txg) {
        let mut state = self.lock();
        let mut missing = state.missing.not_below(end);
        missing.extend(&std::mem::take(&mut state.unwritten));
        state.missing = Arc::new(missing);
    }

    /// From now on the leaf misses every txg, beginning with `from`.
    pub fn miss_since(&self, from: Txg) {
        self.add_missing(from, Txg(u64::MAX));
    }

    /// The leaf takes writes again. It missed all txgs below `next` that are in its list.
    pub fn come_back(&self, next: Txg) {
        let mut state = self.lock();
        state.failed = None;
        state.missing = Arc::new(state.missing.below(next));
    }

    pub(crate) fn fail(&self, why: String, from: Txg) {
        self.lock().failed.get_or_insert(why);
        self.miss_since(from);
    }
}

//! The lock of the dataset layer.
//!
//! Invariant: only the sync thread holds it exclusively, for one job at a time. So a reader that holds it shared sees a
//! job that changes several objects of the DSL either completely or not at all.

use storage::rank::{Rank, RankedRwLock, ReadHeld, WriteHeld};

/// The lock of the dataset layer.
#[derive(Debug)]
pub(crate) struct DslLock(RankedRwLock<()>);

impl Default for DslLock {
    fn default() -> DslLock {
        DslLock(RankedRwLock::new(Rank::Dsl, ()))
    }
}

impl DslLock {
    /// Nothing in the DSL changes while the guard lives.
    pub(crate) fn read(&self) -> ReadHeld<'_, ()> {
        self.0.read()
    }

    /// No thread reads the DSL while the guard lives.
    pub(crate) fn write(&self) -> WriteHeld<'_, ()> {
        self.0.write()
    }
}

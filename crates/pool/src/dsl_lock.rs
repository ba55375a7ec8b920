//! The lock of the dataset layer.
//!
//! Invariant: only the sync thread holds it exclusively, for one job at a time. So a job that changes several objects of the
//! DSL is seen whole or not at all by those who read with it.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use storage::rank::{Rank, Ranked};

/// The lock of the dataset layer.
#[derive(Debug, Default)]
pub(crate) struct DslLock(RwLock<()>);

impl DslLock {
    /// Nothing in the DSL changes while the guard lives.
    pub(crate) fn read(&self) -> Ranked<RwLockReadGuard<'_, ()>> {
        Ranked::lock(Rank::Dsl, || self.0.read().expect("no code panics while holding the DSL lock"))
    }

    /// Nobody reads the DSL while the guard lives.
    pub(crate) fn write(&self) -> Ranked<RwLockWriteGuard<'_, ()>> {
        Ranked::lock(Rank::Dsl, || self.0.write().expect("no code panics while holding the DSL lock"))
    }
}

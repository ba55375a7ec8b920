//! The jobs of the open txg.
//!
//! Invariant: the list changes only while the state of the txgs is held. So a job runs in the txg that was open when it was
//! queued.

use storage::rank::{MutexHeld, Rank, RankedMutex};

use crate::tx::Locked;

/// The jobs of the open txg, in the order in which they were queued.
#[derive(Debug)]
pub(crate) struct Jobs<J>(RankedMutex<Vec<J>>);

impl<J> Default for Jobs<J> {
    fn default() -> Jobs<J> {
        Jobs(RankedMutex::new(Rank::Jobs, Vec::new()))
    }
}

impl<J> Jobs<J> {
    fn lock(&self) -> MutexHeld<'_, Vec<J>> {
        self.0.lock()
    }

    /// Adds a job of the open txg. The caller holds the state of the txgs.
    pub(crate) fn push(&self, _: &Locked<'_>, job: J) {
        self.lock().push(job);
    }

    /// The jobs of the txg that is being closed. The caller holds the state of the txgs.
    pub(crate) fn take(&self, _: &Locked<'_>) -> Vec<J> {
        std::mem::take(&mut *self.lock())
    }
}

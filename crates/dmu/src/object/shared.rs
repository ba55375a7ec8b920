//! State that all objects of an objset share: block I/O, budget, and the list of dirty objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::ObjectId;
use storage::rank::{MutexHeld, Rank, RankedMutex};

use super::Object;
use crate::bound::{Bound, Nodes};
use crate::budget::DirtyBudget;
use crate::io::BlockIo;

/// Object numbers have 48 bits.
pub(crate) const NUMBERS_MAX: u64 = 1 << 48;

/// State that all objects of an objset share.
pub(crate) struct Shared {
    pub(crate) io: BlockIo,
    pub(crate) budget: Arc<DirtyBudget>,
    pub(crate) bound: Bound,
    dirty: RankedMutex<DirtyList>,
    changes: AtomicU64,
}

/// The objects that the open txg changes.
#[derive(Default)]
pub(crate) struct DirtyList {
    pub(crate) objects: BTreeMap<ObjectId, Arc<Object>>,
    /// Blocks of the meta-dnode whose space is counted.
    nodes: Nodes,
}

impl Shared {
    pub(crate) fn new(io: BlockIo, budget: Arc<DirtyBudget>, bound: Bound) -> Shared {
        Shared {
            io,
            budget,
            bound,
            dirty: RankedMutex::new(Rank::DirtyList, DirtyList::default()),
            changes: AtomicU64::new(0),
        }
    }

    /// Changes made since the objset was opened.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn list_dirty(&self, object: Arc<Object>) {
        let mut dirty = self.lock_dirty();
        let (listed, id) = (dirty.objects.len() as u64, object.id());
        if dirty.objects.insert(id, object).is_none() && id.0 < NUMBERS_MAX {
            self.budget.add_space(self.bound.dnode(self.io.storage(), &mut dirty.nodes, id, listed));
        }
    }

    pub(crate) fn lock_dirty(&self) -> MutexHeld<'_, DirtyList> {
        self.dirty.lock()
    }
}

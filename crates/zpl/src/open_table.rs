//! The table of open file systems and volumes: one value with locks and handles for each open dataset.
//!
//! From:   [`Filesystem::open`](crate::Filesystem::open) and [`Volume::open`](crate::Volume::open).
//! To:     all openers of a dataset, which share the value. It is dropped with its last user. `pool` gives all openers the
//!         same [`Dataset`], and knows nothing of these values.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use dmu::rank::{Rank, RankedMutex};
use format::ObjectId;
use pool::Dataset;

use crate::Result;

/// Number of entries from which on a table is searched for closed datasets.
const ENTRIES_MIN: usize = 64;

/// The open datasets of one kind, and a `T` for each.
pub(crate) struct OpenTable<T> {
    table: RankedMutex<Table<T>>,
}

struct Table<T> {
    /// By the number of the dataset in its pool. A process may have several pools.
    entries: BTreeMap<ObjectId, Vec<Entry<T>>>,
    /// Entries in all.
    count: usize,
    /// Number of entries at which closed datasets are removed.
    limit: usize,
}

struct Entry<T> {
    /// Its memory is not reused for another dataset while this entry exists.
    dataset: Weak<Dataset>,
    slot: Arc<Slot<T>>,
}

/// The lock is held while the `T` of the dataset is made, so that it is made once.
struct Slot<T>(RankedMutex<Weak<T>>);

impl<T> OpenTable<T> {
    pub(crate) const fn new() -> OpenTable<T> {
        OpenTable {
            table: RankedMutex::leaf(Table { entries: BTreeMap::new(), count: 0, limit: ENTRIES_MIN }),
        }
    }

    /// Returns the `T` of `dataset`. `open` makes it if it has no user.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn share(&self, dataset: &Arc<Dataset>, open: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let slot = self.slot(dataset);
        // A caller that panicked while it made the value stored nothing.
        let mut known = slot.0.lock_after_panics();
        if let Some(known) = known.upgrade() {
            return Ok(known);
        }
        let made = Arc::new(open()?);
        *known = Arc::downgrade(&made);
        Ok(made)
    }

    fn slot(&self, dataset: &Arc<Dataset>) -> Arc<Slot<T>> {
        let mut table = self.table.lock();
        let is_it = |entry: &&Entry<T>| std::ptr::eq(entry.dataset.as_ptr(), Arc::as_ptr(dataset));
        let known = table.entries.get(&dataset.id()).and_then(|entries| entries.iter().find(is_it));
        if let Some(entry) = known {
            return entry.slot.clone();
        }
        table.forget_closed();
        let slot = Arc::new(Slot(RankedMutex::new(Rank::Opened, Weak::new())));
        let entry = Entry { dataset: Arc::downgrade(dataset), slot: slot.clone() };
        table.entries.entry(dataset.id()).or_default().push(entry);
        table.count += 1;
        slot
    }
}

impl<T> Table<T> {
    /// Removes the entries of closed datasets, if the number of entries has doubled since the last time.
    fn forget_closed(&mut self) {
        if self.count < self.limit {
            return;
        }
        self.entries.retain(|_, entries| {
            entries.retain(|entry| entry.dataset.strong_count() > 0);
            !entries.is_empty()
        });
        self.count = self.entries.values().map(Vec::len).sum();
        self.limit = ENTRIES_MIN.max(2 * self.count);
    }
}

//! The datasets that are open, those that the open txg changes, and those with intent logs.
//!
//! Invariant: each open dataset is in the table once, so that all its users share it. A dataset with changes in the open txg, or
//! with an intent log, stays open even without users.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use format::ObjectId;
use storage::rank::{MutexHeld, Rank, RankedMutex};

type Table<D> = HashMap<ObjectId, Weak<D>>;
type Kept<D> = BTreeMap<ObjectId, Arc<D>>;

/// The open datasets, by their object in the MOS.
#[derive(Debug)]
pub(crate) struct OpenDatasets<D> {
    table: RankedMutex<Table<D>>,
    logged: RankedMutex<Kept<D>>,
    dirty: RankedMutex<Kept<D>>,
}

impl<D> Default for OpenDatasets<D> {
    fn default() -> OpenDatasets<D> {
        OpenDatasets {
            table: RankedMutex::new(Rank::OpenDatasets, Table::default()),
            logged: RankedMutex::new(Rank::LoggedDatasets, Kept::default()),
            dirty: RankedMutex::new(Rank::DirtyDatasets, Kept::default()),
        }
    }
}

impl<D> OpenDatasets<D> {
    fn table(&self) -> MutexHeld<'_, Table<D>> {
        self.table.lock()
    }

    /// The datasets with intent logs, which syncs must visit.
    pub(crate) fn logged(&self) -> MutexHeld<'_, Kept<D>> {
        self.logged.lock()
    }

    fn dirty(&self) -> MutexHeld<'_, Kept<D>> {
        self.dirty.lock()
    }

    /// The dataset, if it is open.
    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<D>> {
        self.table().get(&id).and_then(Weak::upgrade)
    }

    /// Enters an opened dataset. Returns the dataset in the table, which another thread may have entered before.
    pub(crate) fn enter(&self, id: ObjectId, dataset: Arc<D>) -> Arc<D> {
        let mut table = self.table();
        if let Some(open) = table.get(&id).and_then(Weak::upgrade) {
            drop(table);
            return open;
        }
        table.insert(id, Arc::downgrade(&dataset));
        dataset
    }

    /// Removes a destroyed dataset from the table. Returns it if it is open.
    pub(crate) fn forget(&self, id: ObjectId) -> Option<Arc<D>> {
        self.table().remove(&id).and_then(|known| known.upgrade())
    }

    /// All open datasets, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<D>> {
        let mut table = self.table();
        table.retain(|_, dataset| dataset.strong_count() > 0);
        let mut open: Vec<_> =
            table.iter().filter_map(|(id, dataset)| Some((*id, dataset.upgrade()?))).collect();
        drop(table);
        open.sort_by_key(|(id, _)| *id);
        open.into_iter().map(|(_, dataset)| dataset).collect()
    }

    /// Whether the dataset is open.
    pub(crate) fn is_open(&self, id: ObjectId) -> bool {
        self.table().get(&id).is_some_and(|open| open.strong_count() > 0)
    }

    /// Whether a dataset has users. A dataset without users may still be open because of its intent log.
    pub(crate) fn is_used(&self, id: ObjectId) -> bool {
        let by_log = usize::from(self.logged().contains_key(&id));
        self.table().get(&id).is_some_and(|open| open.strong_count() > by_log)
    }

    /// Keeps a dataset until its changes of the open txg are synced.
    pub(crate) fn list_dirty(&self, id: ObjectId) {
        let dataset = self.get(id).expect("a dataset in use is in the table");
        self.dirty().insert(id, dataset);
    }

    /// The datasets that the open txg changes.
    pub(crate) fn changed(&self) -> Vec<Arc<D>> {
        self.dirty().values().cloned().collect()
    }

    /// The datasets changed in the txg that is being closed.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<D>> {
        let dirty = std::mem::take(&mut *self.dirty());
        dirty.into_values().collect()
    }

    /// Stops keeping datasets open for their intent logs, because the pool is closed.
    pub(crate) fn drop_logged(&self) {
        let logged = std::mem::take(&mut *self.logged());
        drop(logged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_is_used_unless_only_its_log_keeps_it() {
        let open = OpenDatasets::<u8>::default();
        let id = ObjectId(7);
        let first = open.enter(id, Arc::new(1));
        assert_eq!(*open.enter(id, Arc::new(2)), 1, "the next opener shares it");
        open.logged().insert(id, first.clone());
        assert!(open.is_used(id));
        drop(first);
        assert!(open.is_open(id) && !open.is_used(id));
        open.drop_logged();
        assert!(!open.is_open(id) && open.all().is_empty());
    }

    #[test]
    fn a_dataset_that_is_changed_stays_open_until_it_is_synced() {
        let open = OpenDatasets::<u8>::default();
        let id = ObjectId(7);
        let dataset = open.enter(id, Arc::new(1));
        open.list_dirty(id);
        drop(dataset);
        assert!(open.is_open(id) && open.changed().len() == 1);
        drop(open.take_dirty());
        assert!(!open.is_open(id) && open.changed().is_empty());
    }
}

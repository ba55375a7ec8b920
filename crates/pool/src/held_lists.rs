//! Redaction lists by which streams are made. Their bookmarks cannot be destroyed until the streams end.
//!
//! Invariant: a list is entered while the DSL lock is held for reading. So no job of the sync thread frees the list between the
//! look at its bookmark and the entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::ObjectId;
use storage::rank::{MutexHeld, RankedMutex};

/// The lists, each with its number of users.
#[derive(Debug, Default)]
pub(crate) struct HeldLists(RankedMutex<BTreeMap<ObjectId, u64>>);

/// The use of a list, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    lists: Arc<HeldLists>,
    list: ObjectId,
}

impl HeldLists {
    fn table(&self) -> MutexHeld<'_, BTreeMap<ObjectId, u64>> {
        self.0.lock()
    }

    /// One more user of a list.
    pub(crate) fn hold(lists: &Arc<HeldLists>, list: ObjectId) -> Held {
        *lists.table().entry(list).or_default() += 1;
        Held { lists: lists.clone(), list }
    }

    /// Whether a list has users.
    pub(crate) fn is_held(&self, list: ObjectId) -> bool {
        self.table().contains_key(&list)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.lists.table();
        if let Some(users) = table.get_mut(&self.list) {
            *users -= 1;
            if *users == 0 {
                table.remove(&self.list);
            }
        }
    }
}

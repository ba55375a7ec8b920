//! The places in the number space of a mount, and their owners.
//!
//! A snapshot that is open, and a file system that is shown in place of a directory, have a place each, and their nodes are
//! called by it (`zpl::session::Numbers`).

use std::collections::HashMap;

use zpl::ObjectId;
use zpl::rank::{RankedRwLock, ReadHeld, WriteHeld};
use zpl::session::Slot;

/// Whose a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A file system's that is shown in place of a directory.
    Tree,
    /// An open snapshot's of the file system at that place; `None`: of the one that is mounted.
    Snapshot(Option<Slot>),
    /// A file system's that was taken from programs while they used it. The kernel may still name nodes of it, so the
    /// place is nobody else's as long as the mount lasts.
    Lost,
}

/// The places of a mount.
#[derive(Default)]
pub(crate) struct Places(RankedRwLock<HashMap<Slot, Owner>>);

impl Places {
    fn read(&self) -> ReadHeld<'_, HashMap<Slot, Owner>> {
        self.0.read()
    }

    fn write(&self) -> WriteHeld<'_, HashMap<Slot, Owner>> {
        self.0.write()
    }

    /// Takes a place for dataset `id`: the same one each time, as a rule. `None` when there is none left.
    pub(crate) fn take(&self, id: ObjectId, owner: Owner) -> Option<Slot> {
        let mut places = self.write();
        let mut choices = (0..Slot::COUNT).map(|attempt| Slot::choice(id, attempt));
        let slot = choices.find(|slot| !places.contains_key(slot))?;
        places.insert(slot, owner);
        Some(slot)
    }

    /// Frees the place, because the kernel knows none of its nodes any more. A lost place stays.
    pub(crate) fn free(&self, slot: Slot) {
        self.write().retain(|at, owner| *at != slot || *owner == Owner::Lost);
    }

    /// Marks the file system at `slot` and its snapshots as lost: programs that use them get errors.
    pub(crate) fn lose(&self, slot: Slot) {
        let is_its = |(at, owner): (&Slot, &Owner)| *at == slot || *owner == Owner::Snapshot(Some(slot));
        for (at, owner) in self.write().iter_mut() {
            if is_its((at, owner)) {
                *owner = Owner::Lost;
            }
        }
    }

    pub(crate) fn owner(&self, slot: Slot) -> Option<Owner> {
        self.read().get(&slot).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_owner_and_a_lost_place_gets_no_other() {
        let places = Places::default();
        let id = ObjectId(54);
        let tree = places.take(id, Owner::Tree).unwrap();
        assert_eq!((tree, places.owner(tree)), (Slot::choice(id, 0), Some(Owner::Tree)));
        let snapshot = places.take(id, Owner::Snapshot(Some(tree))).unwrap();
        let other = places.take(id, Owner::Snapshot(None)).unwrap();
        assert!(snapshot != tree && other != snapshot && other != tree);
        places.lose(tree);
        assert_eq!([tree, snapshot].map(|slot| places.owner(slot)), [Some(Owner::Lost); 2]);
        assert_eq!(places.owner(other), Some(Owner::Snapshot(None)));
        places.free(snapshot);
        assert_eq!(places.owner(snapshot), Some(Owner::Lost));
        places.free(other);
        assert_eq!((places.take(id, Owner::Tree), places.owner(other)), (Some(other), Some(Owner::Tree)));
    }

    #[test]
    fn a_mount_runs_out_of_places() {
        let places = Places::default();
        for id in 0..u64::from(Slot::COUNT) {
            assert!(places.take(ObjectId(id), Owner::Tree).is_some());
        }
        assert_eq!(places.take(ObjectId(7), Owner::Tree), None);
    }
}

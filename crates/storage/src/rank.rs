//! The order of locks (ARCHITECTURE.md), checked in debug builds whenever a lock is taken.
//!
//! From:   each thread that takes a lock: every lock is a [`RankedMutex`] or a [`RankedRwLock`].
//! To:     a panic of a thread that takes an outer lock while it holds an inner one. Two such threads could wait for each
//!         other for ever; this shows the fault without the second thread.

mod locks;

use std::ops::{Deref, DerefMut};

use held::Place;
pub use locks::{MutexHeld, RankedMutex, RankedRwLock, ReadHeld, WriteHeld};

/// Locks in their order: outer locks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Files that a copy has made in a folder, or that a measurement has made as one file, while it makes more.
    Making,
    /// The turn of the one command of a server that changes datasets or properties.
    CommandTurn,
    /// Volumes that a server exports.
    VolumeExports,
    /// File systems that a server shares.
    Shares,
    /// File systems that servers of the system share.
    SystemShares,
    /// The mounts of a server.
    Mounts,
    /// Mounts that other programs unmounted and that are still in use.
    LeftMounts,
    /// The pool of a server, until it is exported.
    PoolSlot,
    /// The clients of a service.
    Clients,
    /// The turn to open a file system for clients of NFS.
    ExportOpening,
    /// The side of a connection of an NFS client that calls are read from.
    NextCall,
    /// The side of a connection of an NBD client that replies are written to; some are read piece by piece meanwhile.
    Replies,
    /// The directory in whose place a file system without a mount of its own is shown.
    Covered,
    /// File systems that are shown in place of directories of a mount; that of the outer one comes first.
    Trees,
    /// The snapshots that a mount has open.
    OpenSnapshots,
    /// The value of `snapdir` that the kernel knows.
    SnapdirTold,
    /// The volumes whose files the kernel knows.
    KnownVolumes,
    /// The turn to begin or end a scrub.
    ScrubTurn,
    /// The state that the crate `zpl` keeps of one open dataset, while it is made.
    Opened,
    /// The turn to replay an intent log.
    Replay,
    /// The turn to change the size of a volume.
    Resizing,
    /// Moves of directories to another parent.
    Renames,
    /// Names in directories; several in the order of their shards.
    Names,
    /// Files and directories; several in the order of their shards.
    Nodes,
    /// The DSL of a pool.
    Dsl,
    /// The keys that are loaded, while the key object of a dataset is looked for.
    Keyring,
    /// The layouts of attributes in a file system.
    Layouts,
    /// A ZAP.
    Zap,
    /// Blocks that are written past the sync thread, on vdevs whose sectors may be copied elsewhere.
    LayoutWriters,
    /// The state of the txgs.
    Txgs,
    /// The jobs of the open txg.
    Jobs,
    /// The table of open datasets.
    OpenDatasets,
    /// Datasets with intent logs.
    LoggedDatasets,
    /// Datasets that the open txg changes.
    DirtyDatasets,
    /// The state of an intent log.
    Log,
    /// Space that is set aside for intent logs.
    LogSpace,
    /// Blocks of intent logs that are written, or a range that is rebuilt.
    NoRebuild,
    /// Reads of blocks from vdevs whose sectors may be moved.
    LayoutReaders,
    /// Operations that wait for a device.
    Suspended,
    /// Space that is promised to transactions.
    Promises,
    /// The space that owners of files may come to use.
    Pending,
    /// The table of objects of an objset.
    Objects,
    /// The state of an object.
    Object,
    /// The objects of an objset that the open txg changes.
    DirtyList,
    /// The figures of a scrub.
    Scrub,
    /// How each leaf takes part.
    Members,
    /// States on the disks that others read.
    Leases,
    /// The newest events.
    Events,
    /// The limits of a dataset, as of the last sync.
    OwnLimits,
    /// The settings that the properties of a dataset give its users.
    Settings,
    /// The features that a dataset is marked with.
    Marks,
    /// The name of a dataset.
    Name,
    /// The facts that `zpool list` and `zpool status` report.
    Info,
    /// The open handles of a file system.
    Handles,
    /// The objects that a session's front end holds; one part of the table at a time.
    Held,
    /// Writes on their way to devices.
    Flight,
    /// The turn to flush a device.
    Flushing,
    /// The decision whether the pool can work without a leaf.
    Verdict,
    /// Writes to a file that bypass the page cache, or one that does not.
    DirectWrites,
    /// The turn to have the system flush a file.
    DeviceFlush,
    /// Every other lock. It is held only to read or change values in memory, and no other lock is taken under it but the next two.
    Leaf,
    /// The threads that ask about paths (`front/apart.rs`). Questions are asked under any lock of `fuse` and `server`.
    Askers,
    /// Lines that are missing in the log of a server. Messages are logged under any lock.
    LogLines,
}

#[cfg(debug_assertions)]
impl Rank {
    /// Several locks of this kind are taken in one order of their own.
    fn is_several(self) -> bool {
        matches!(self, Rank::Trees | Rank::Names | Rank::Nodes)
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        /// The ranks of the locks that the thread holds. They prove an order; nothing is decided by them.
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// The place of a lock in the order.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Place(Rank);

    impl Place {
        pub(super) const fn of(rank: Rank) -> Place {
            Place(rank)
        }

        pub(super) fn enter(self) {
            let rank = self.0;
            HELD.with_borrow_mut(|held| {
                let inner = held.iter().find(|held| **held > rank || **held == rank && !rank.is_several());
                // A thread that panics already says why.
                assert!(
                    inner.is_none() || std::thread::panicking(),
                    "{rank:?} is taken while {inner:?} is held: see the order of locks in ARCHITECTURE.md"
                );
                held.push(rank);
            });
        }

        pub(super) fn leave(self) {
            // The thread may end, and its list with it.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|held| *held == self.0) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    /// Release builds keep and check no ranks: this takes no room and does nothing.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Place;

    impl Place {
        pub(super) const fn of(_: super::Rank) -> Place {
            Place
        }

        pub(super) fn enter(self) {}

        pub(super) fn leave(self) {}
    }
}

/// Notes for as long as it lives that the thread holds a lock.
#[derive(Debug)]
struct Held(Place);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The guard of a lock whose place in the order was checked.
#[derive(Debug)]
pub struct Ranked<G> {
    guard: G,
    held: Held,
}

impl<G> Ranked<G> {
    /// Takes a lock of this place with `lock`.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock that comes after this one.
    fn lock(place: Place, lock: impl FnOnce() -> G) -> Ranked<G> {
        place.enter();
        let held = Held(place);
        Ranked { guard: lock(), held }
    }

    /// As [`Ranked::lock`]; `None` if `lock` gives none.
    fn try_lock(place: Place, lock: impl FnOnce() -> Option<G>) -> Option<Ranked<G>> {
        let Ranked { guard, held } = Ranked::lock(place, lock);
        guard.map(|guard| Ranked { guard, held })
    }

    /// Passes the guard through `wait`, which releases the lock for a time.
    #[must_use]
    pub fn wait(self, wait: impl FnOnce(G) -> G) -> Ranked<G> {
        Ranked { guard: wait(self.guard), held: self.held }
    }
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_from_outside_to_inside() {
        let (outer, inner) = (RankedMutex::new(Rank::Nodes, 1), RankedMutex::new(Rank::Nodes, 2));
        let first = outer.lock();
        let second = inner.lock();
        drop(first);
        assert_eq!(*second, 2);
        drop(second);
        drop(RankedMutex::new(Rank::Names, ()).lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn an_outer_lock_taken_late_is_a_fault_at_once() {
        let (object, other) = (RankedMutex::new(Rank::Object, ()), RankedMutex::new(Rank::Object, ()));
        let dsl = RankedMutex::new(Rank::Dsl, ());
        let late = std::panic::catch_unwind(|| {
            let _inner = object.lock_after_panics();
            let _outer = dsl.lock_after_panics();
        });
        assert!(late.is_err());
        let again = std::panic::catch_unwind(|| {
            let _first = object.lock_after_panics();
            let _second = other.lock_after_panics();
        });
        assert!(again.is_err(), "one of a kind");
        drop(RankedMutex::new(Rank::ScrubTurn, ()).lock());
    }
}

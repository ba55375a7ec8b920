//! Locks by object number.
//!
//! Order, everywhere: the rename lock, then directories' names ([`Locks`] of names, several at once in order of shard), then
//! nodes (the same), then a transaction. A thread that holds a transaction takes none of these locks.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use dmu::rank::{Rank, Ranked};
use format::ObjectId;

/// How many locks objects share.
pub(crate) const SHARDS: usize = 512;
const POISON: &str = "the locks guard no memory that a panic could leave half changed";

/// A held lock of an object. Other threads cannot change its state meanwhile.
pub(crate) type Guard<'a> = Ranked<RwLockWriteGuard<'a, ()>>;

/// Locks of objects. Several objects may share a lock, so a caller that needs several locks takes them in one call.
pub(crate) struct Locks {
    rank: Rank,
    shards: Box<[RwLock<()>]>,
}

impl Locks {
    /// Locks of one kind.
    pub(crate) fn new(rank: Rank) -> Locks {
        Locks { rank, shards: (0..SHARDS).map(|_| RwLock::new(())).collect() }
    }

    fn shard(id: ObjectId) -> usize {
        (id.0 % SHARDS as u64) as usize
    }

    pub(crate) fn read(&self, id: ObjectId) -> Ranked<RwLockReadGuard<'_, ()>> {
        Ranked::lock(self.rank, || self.shards[Locks::shard(id)].read().expect(POISON))
    }

    pub(crate) fn write(&self, id: ObjectId) -> Guard<'_> {
        self.write_shard(Locks::shard(id))
    }

    fn write_shard(&self, shard: usize) -> Guard<'_> {
        Ranked::lock(self.rank, || self.shards[shard].write().expect(POISON))
    }

    /// All of them, each shard once.
    pub(crate) fn write_all(&self, ids: &[ObjectId]) -> Vec<Guard<'_>> {
        let mut shards: Vec<usize> = ids.iter().map(|&id| Locks::shard(id)).collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| self.write_shard(shard)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_shard_are_locked_once() {
        let locks = Locks::new(Rank::Nodes);
        let guards = locks.write_all(&[ObjectId(1), ObjectId(1 + SHARDS as u64), ObjectId(1), ObjectId(2)]);
        assert_eq!(guards.len(), 2);
    }
}

//! Locks by object number.
//!
//! Order, everywhere: the rename lock, then directories' names ([`Locks`] of names, several at once in order of shard), then
//! nodes (the same), then a transaction. A thread that holds a transaction takes none of these locks.

use dmu::rank::{Rank, RankedRwLock, ReadHeld, WriteHeld};
use format::ObjectId;

/// How many locks objects share.
pub(crate) const SHARDS: usize = 512;

/// A held lock of an object. Other threads cannot change its state meanwhile.
pub(crate) type Guard<'a> = WriteHeld<'a, ()>;

/// Locks of objects. Several objects may share a lock, so a caller that needs several locks takes them in one call.
pub(crate) struct Locks {
    shards: Box<[RankedRwLock<()>]>,
}

impl Locks {
    /// Locks of one kind.
    pub(crate) fn new(rank: Rank) -> Locks {
        Locks { shards: (0..SHARDS).map(|_| RankedRwLock::new(rank, ())).collect() }
    }

    fn shard(id: ObjectId) -> usize {
        (id.0 % SHARDS as u64) as usize
    }

    pub(crate) fn read(&self, id: ObjectId) -> ReadHeld<'_, ()> {
        self.shards[Locks::shard(id)].read()
    }

    pub(crate) fn write(&self, id: ObjectId) -> Guard<'_> {
        self.write_shard(Locks::shard(id))
    }

    fn write_shard(&self, shard: usize) -> Guard<'_> {
        self.shards[shard].write()
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

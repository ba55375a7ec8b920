//! Freeing the blocks of destroyed snapshots and datasets in the background. Each txg frees a bounded number, so that no txg
//! takes long.
//!
//! From:   the lists that `dsl` keeps of them.
//! To:     free space.
//! Source: docs/format/06-mos-dsl.md §1 (`free_bpobj`), §7.4, §7.5, §9.3, §9.4.

use std::sync::atomic::Ordering;

use dsl::bptree::{self, Freed, Progress};
use dsl::space::{Category, add_space};
use dsl::walk::{self, Item, Walk};
use dsl::{Sizes, bpobj, frees, livelist};
use format::blkptr::BlockPtr;

use crate::Result;
use crate::state::Syncing;

/// Blocks freed with each txg at least, however little space is left.
const FREES_MIN: u64 = 16;
/// Reading an indirect block costs as much of the budget as freeing this many blocks.
const READ: u64 = 20;

impl Syncing<'_> {
    /// Frees waiting blocks, up to the budget of one txg.
    pub(crate) fn free_waiting(&mut self) -> Result<()> {
        if !self.state.freeing {
            return Ok(());
        }
        let count = self.inner.groups.limits.async_blocks.load(Ordering::Relaxed);
        let count = self.frees_max(count);
        let (listed, more) = self.free_listed(count)?;
        let more = more || self.free_destroyed(count.saturating_sub(listed))?;
        self.state.freeing = more || self.free_clones(count.saturating_sub(listed))?;
        Ok(())
    }

    /// Frees up to `count` blocks that livelists of destroyed clones have. Returns whether more are left. A list that cannot be
    /// read stays, and the next import tries again.
    fn free_clones(&mut self, mut count: u64) -> Result<bool> {
        let (mos, inner) = (self.mos(), self.inner);
        let lists = livelist::queued(mos).unwrap_or_else(|error| {
            tracing::error!(%error, "the queue of livelists cannot be read: what is in it stays allocated");
            Vec::new()
        });
        for list in lists {
            loop {
                if count == 0 {
                    return Ok(true);
                }
                let taken = match livelist::take(mos, &mut self.state.features, &self.tx, list, count) {
                    Ok(taken) => taken,
                    Err(error) => {
                        tracing::error!(%error, "a livelist cannot be read: its blocks stay allocated");
                        break;
                    }
                };
                for ptr in &taken.blocks {
                    self.free_block(ptr)?;
                }
                add_space(&inner.mos, &self.tx, frees::dir(mos)?, Category::Head, -taken.sizes)?;
                count = count.saturating_sub(taken.entries);
                if taken.all {
                    count = count.saturating_sub(READ);
                    break;
                }
            }
        }
        Ok(false)
    }

    /// As many of `count` blocks as can be freed so that the changes of dedup tables find space, whatever else the txg writes.
    pub(super) fn frees_max(&self, count: u64) -> u64 {
        let budget = &self.inner.budget;
        let room = self.state.allocator.allocatable() / 8;
        if !budget.has_table() || budget.cost_of_entries(count) <= room {
            return count;
        }
        count.min(room / self.state.ddt.block_bytes(self.inner.storage.vdevs())).max(FREES_MIN)
    }

    /// Frees up to `count` listed blocks. Returns the number of freed blocks and whether the list has more.
    fn free_listed(&mut self, count: u64) -> Result<(u64, bool)> {
        let mos = self.mos();
        let Some(list) = mos.directory_object("free_bpobj")? else { return Ok((0, false)) };
        let inner = self.inner;
        let sizes_of = |ptr: &_| Sizes::of(inner.storage.vdevs(), ptr);
        let before = bpobj::totals(mos, list)?;
        let blocks = bpobj::take_last(mos, &self.tx, list, count, &sizes_of)?;
        for ptr in &blocks {
            self.free_block(ptr)?;
        }
        let freed = before - bpobj::totals(mos, list)?;
        let waiting = frees::dir(mos)?;
        add_space(mos, &self.tx, waiting, Category::Head, -freed)?;
        Ok((blocks.len() as u64, !bpobj::is_empty(mos, list)?))
    }

    /// Frees blocks of destroyed datasets, up to a budget of `count` blocks. Returns whether more are left. Blocks below an
    /// unreadable block stay allocated and listed, and the next import tries again.
    fn free_destroyed(&mut self, count: u64) -> Result<bool> {
        let stays = "what was destroyed cannot all be freed";
        let mut spent = 0;
        for entry in bptree::entries(self.mos()) {
            let (number, entry) = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    tracing::error!(%error, stays);
                    return Ok(false);
                }
            };
            let root = walk::destroyed(&entry);
            let mut walk = Walk::children_first(&self.inner.storage, &root);
            let (mut blocks, mut freed, mut is_at_end) = (0, Sizes::default(), false);
            let progress = loop {
                let (place, ptr) = match walk.next() {
                    None => break Progress::All,
                    Some(Item::Block(place, block)) => (place, BlockPtr::Block(block)),
                    Some(Item::Embedded(place, embedded)) => (place, BlockPtr::Embedded(embedded)),
                    Some(Item::Unreadable(place, why)) => {
                        tracing::error!(%place, why, stays);
                        break Progress::UpTo(place.freed_so_far());
                    }
                };
                // A mark is at a block of level 0; at least one is freed before the next.
                is_at_end = blocks > 0 && spent + blocks + walk.reads() * READ >= count;
                if is_at_end && place.level == 0 && !place.is_root() {
                    break Progress::UpTo(Some(place.freed_up_to()));
                }
                self.free_block(&ptr)?;
                freed += Sizes::of(self.inner.storage.vdevs(), &ptr);
                blocks += 1;
            };
            if blocks == 0 && matches!(progress, Progress::UpTo(_)) {
                // It is as it was.
                continue;
            }
            spent += blocks + walk.reads() * READ;
            let is_stopped = is_at_end && matches!(progress, Progress::UpTo(_));
            self.enter_freed(Freed { number, entry: &entry, progress, sizes: freed })?;
            if is_stopped {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn enter_freed(&mut self, freed: Freed<'_>) -> Result<()> {
        let sizes = freed.sizes;
        let mos = self.mos();
        let Some(features) = self.state.features.as_mut() else { return Ok(()) };
        let left = bptree::progress(mos, features, &self.tx, freed)?;
        if !left.is_zero() {
            tracing::warn!(?left, "destroyed datasets were not as large as counted");
        }
        add_space(mos, &self.tx, frees::dir(mos)?, Category::Head, -(sizes + left))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dmu::{Object, Tx};
    use dsl::Mos;
    use format::bptree::{Entry, Header};
    use format::{ByteOrder, Txg};

    use super::*;
    use crate::Error;
    use crate::testing::made;

    fn list(mos: &Mos) -> Result<(Arc<Object>, Header)> {
        let object = mos.object(mos.need("bptree_obj")?)?;
        let header = object.with_bonus(|_, raw| Header::decode(raw, ByteOrder::Little)).expect("a header");
        Ok((object, header))
    }

    fn put_header(object: &Arc<Object>, tx: &Tx, header: Header) {
        object.edit_bonus(tx, |raw| raw.copy_from_slice(&header.encode()));
    }

    #[test]
    fn an_empty_list_stops_neither_the_list_of_trees_nor_the_pool() {
        let disk = storage::host::ScriptedDisk::new(64 << 20);
        let pool = made(std::slice::from_ref(&disk));
        pool.run(|syncing| {
            let (mos, tx) = (syncing.mos(), &syncing.tx);
            let entry = Entry { root: format::BlockPtr::HOLE, since: Txg(9), mark: None };
            let features = syncing.state.features.as_mut().ok_or(Error::Internal)?;
            bptree::add(mos, features, tx, &entry, Sizes::default())?;
            let (object, header) = list(mos)?;
            put_header(&object, tx, Header { end: 700, ..header });
            syncing.state.freeing = true;
            Ok(())
        })
        .expect("written");
        for _ in 0..3 {
            pool.run(|_| Ok(())).expect("the pool goes on");
        }
        let mut found = Vec::new();
        crate::roots::roots(&pool.inner, &mut |_, why| found.push(why)).expect("listed");
        assert!(found.len() == 1 && found[0].contains("bptree"), "{found:?}");
        let disks: Vec<Arc<dyn storage::host::Disk>> = vec![Arc::new(disk.clone())];
        pool.export().expect("exported");
        let pool = crate::Pool::import_disks(disks, crate::Options::default()).expect("imported");
        pool.sync().expect("synced");
        pool.run(|syncing| {
            let (object, header) = list(syncing.mos())?;
            put_header(
                &object,
                &syncing.tx,
                Header { end: header.begin + bptree::ENTRIES_MAX + 1, ..header },
            );
            Ok(())
        })
        .expect("written");
        assert!(bptree::check_room(&pool.inner.mos).is_err());
        pool.run(|_| Ok(())).expect("the pool goes on");
    }
}

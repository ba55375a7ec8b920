//! Accounting of a sync: allocated and freed space, sizes, and the features that blocks need.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dmu::{Frozen, Tx};
use dsl::bookmark::Freed;
use dsl::livelist::Listed;
use format::blkptr::{Block, BlockPtr, Dva};
use format::ddt::Key;
use format::{ChecksumKind, Compression, Corrupt, Txg};
use storage::allocator::{AllocError, Allocator, Want};
use storage::{Storage, WriteError, Writer};

use crate::brt::Brt;
use crate::ddt::{self, Ddt};
use crate::features::Features;
use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::space_maps::{Source, free_extents};
use crate::state::{Dataset, SyncState, Syncing};
use crate::{Error, Result};

/// Allocates and accounts the blocks of one dataset, or of the MOS.
pub(super) struct Books<'a> {
    pub(super) storage: &'a Storage,
    pub(super) allocator: &'a mut Allocator,
    pub(super) ddt: &'a mut Ddt,
    pub(super) brt: &'a mut Brt,
    pub(super) features: &'a mut Option<Features>,
    pub(super) mos: &'a Mos,
    pub(super) tx: &'a Tx,
    pub(super) source: Source<'a>,
    pub(super) txg: Txg,
    /// Seconds since 1970.
    pub(super) now: u64,
    /// Blocks born later belong to the dataset alone.
    pub(super) prev_snap_txg: Txg,
    pub(super) delta: Sizes,
    /// Change of the dataset's unique bytes.
    pub(super) unique: i64,
    /// Freed blocks that a snapshot still uses.
    pub(super) dead: Vec<(BlockPtr, Sizes)>,
    /// Killed blocks that bookmarks count.
    pub(super) freed: Freed,
    /// Written and freed blocks, if the dataset is a clone that has a livelist.
    pub(super) listed: Option<Listed>,
    pub(super) needs: Needs,
}

/// Per-dataset features that written blocks need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub(super) large_blocks: bool,
    pub(super) zstd: bool,
    pub(super) checksum: Option<ChecksumKind>,
}

impl dmu::Space for Books<'_> {
    fn allocate(&mut self, want: Want) -> Result<[Dva; 3], WriteError> {
        self.allocator.allocate_for(want, self.txg, &mut self.source).map_err(|error| match error {
            AllocError::NoSpace { .. } => WriteError::NoSpace,
            AllocError::Source { source: Error::Dmu(dmu::Error::Block { source, .. }), .. } => {
                WriteError::Read(source)
            }
            AllocError::Source { vdev, metaslab, source } => {
                tracing::error!(vdev = vdev.0, metaslab, %source, "space map cannot be read");
                WriteError::Read(Corrupt::new("space map of metaslab", metaslab.into()).into())
            }
            AllocError::Damaged { damage, .. } => WriteError::Read(damage.into()),
        })
    }

    fn give_back(&mut self, dva: Dva) {
        self.allocator.give_back(dva, self.txg);
    }

    fn born(&mut self, ptr: &BlockPtr) {
        let sizes = Sizes::of(self.storage.vdevs(), ptr);
        self.delta += sizes;
        self.unique += sizes.used;
        if let Some(listed) = &mut self.listed {
            listed.born(ptr, sizes);
        }
        if ptr.lsize() > 128 << 10 {
            self.needs.large_blocks = true;
        }
        let compression = match ptr {
            BlockPtr::Block(block) => {
                if !matches!(block.checksum_kind, ChecksumKind::Fletcher2 | ChecksumKind::Fletcher4) {
                    self.needs.checksum = Some(block.checksum_kind);
                }
                block.compression
            }
            BlockPtr::Embedded(embedded) => embedded.compression,
            BlockPtr::Hole(_) => return,
        };
        self.needs.zstd |= compression == Compression::Zstd;
    }

    fn find_shared(&mut self, block: &Block, copies: u8) -> Result<Option<Block>, dmu::Error> {
        self.make_room()?;
        self.ddt.find(self.storage.vdevs(), block, copies)
    }

    fn look_ahead(&self) -> Option<dmu::LookAhead> {
        self.ddt.look_ahead()
    }

    fn takes_shared(&self, block: &Block, copies: u8) -> bool {
        self.ddt.takes(block, copies)
    }

    fn refer(&mut self, block: &Block, copies: u8) -> Result<(), dmu::Error> {
        self.ddt.refer(self.storage.vdevs(), block, copies)
    }

    fn killed(&mut self, ptr: &BlockPtr) -> Result<(), dmu::Error> {
        let sizes = Sizes::of(self.storage.vdevs(), ptr);
        self.delta += -sizes;
        self.freed.killed(ptr, sizes);
        if let Some(listed) = &mut self.listed {
            listed.killed(ptr, sizes);
        }
        if ptr.accounting_birth() <= self.prev_snap_txg {
            self.dead.push((*ptr, sizes));
            return Ok(());
        }
        self.unique -= sizes.used;
        if let BlockPtr::Block(block) = ptr {
            self.free(block)?;
        }
        Ok(())
    }
}

impl<'a> Books<'a> {
    /// Frees a block that one block pointer less refers to: now, or with the last reference that a table counts.
    fn free(&mut self, block: &Block) -> Result<(), dmu::Error> {
        if block.dedup {
            self.make_room()?;
            if self.ddt.release(self.storage.vdevs(), block)? {
                return Ok(());
            }
        }
        if self.brt.release(self.storage.vdevs(), block)? {
            return Ok(());
        }
        free_extents(self.storage, self.allocator, block, self.txg)
    }

    /// Counts one more pointer to a block on disk.
    fn refer_cloned(&mut self, block: &Block) -> Result<()> {
        if block.dedup {
            self.make_room()?;
            if self.ddt.share(self.storage.vdevs(), block)? {
                return Ok(());
            }
        }
        self.brt.refer((self.mos, self.tx), self.storage.vdevs(), self.features, block)
    }

    /// Stores entries of the dedup table where too many of them are in memory.
    fn make_room(&mut self) -> Result<(), dmu::Error> {
        if self.ddt.is_full() { self.store_entries() } else { Ok(()) }
    }

    /// Stores all entries of the dedup table that are in memory, and frees the blocks that nothing refers to any more.
    fn store_entries(&mut self) -> Result<(), dmu::Error> {
        let freed = self.ddt.store(&self.means())?;
        self.free_unshared(freed)
    }

    fn means(&self) -> ddt::Means<'a> {
        ddt::Means {
            mos: &self.mos.objset,
            tx: self.tx,
            vdevs: self.storage.vdevs(),
            salt: self.mos.salt(),
            now: self.now,
        }
    }

    /// Frees blocks that left the dedup table.
    fn free_unshared(&mut self, blocks: Vec<Block>) -> Result<(), dmu::Error> {
        for block in blocks {
            self.storage.forget(&block);
            free_extents(self.storage, self.allocator, &block, self.txg)?;
        }
        Ok(())
    }
}

impl Syncing<'_> {
    /// Counts the pointers to blocks on disk that this txg adds: those of changed files, and those of intent logs that it claims. To be called
    /// before anything is freed in the txg.
    pub(super) fn refer_cloned(&mut self, changed: &[(Arc<Dataset>, Frozen)]) -> Result<()> {
        for (dataset, frozen) in changed {
            if dataset.destroyed.load(Ordering::Acquire) {
                continue;
            }
            let claimed = dataset.log.take_claimed();
            let (mut books, _) = self.books(Txg(0));
            frozen.cloned().chain(claimed).try_for_each(|block| books.refer_cloned(&block))?;
        }
        Ok(())
    }
}

impl<'a> Syncing<'a> {
    /// Books for blocks of a dataset whose newest snapshot was taken in `prev_snap_txg`, and the writer.
    pub(super) fn books(&mut self, prev_snap_txg: Txg) -> (Books<'_>, &mut Writer<'a>) {
        let SyncState { allocator, table, logs, ddt, brt, features, .. } = &mut *self.state;
        let source = Source {
            objset: self.before.as_ref(),
            tops: self.inner.storage.vdevs().tops(),
            maps: table,
            logs,
        };
        let books = Books {
            storage: &self.inner.storage,
            allocator,
            ddt,
            brt,
            features,
            mos: &self.inner.mos,
            tx: &self.tx,
            source,
            txg: self.txg,
            now: self.inner.host.clock.now().0,
            prev_snap_txg,
            delta: Sizes::default(),
            unique: 0,
            dead: Vec::new(),
            freed: Freed::default(),
            listed: None,
            needs: Needs::default(),
        };
        (books, &mut self.writer)
    }

    /// Result of `ask` on the allocator. The allocator may first load space maps.
    pub(crate) fn with_space<T>(&mut self, ask: impl FnOnce(&mut Allocator, &mut Source<'_>) -> T) -> T {
        let SyncState { allocator, table, logs, .. } = &mut *self.state;
        let tops = self.inner.storage.vdevs().tops();
        ask(allocator, &mut Source { objset: self.before.as_ref(), tops, maps: table, logs })
    }

    /// Room for a log block of `size` bytes; `None` when there is none.
    pub(crate) fn allocate_log_block(&mut self, size: u64) -> Result<Option<Dva>> {
        let txg = self.txg;
        let (mut books, _) = self.books(Txg(0));
        let Books { allocator, source, .. } = &mut books;
        match allocator.allocate_log(size, txg, source) {
            Ok(dva) => Ok(Some(dva)),
            Err(AllocError::NoSpace { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Frees a block without references. No dataset is charged for it.
    pub(crate) fn free_block(&mut self, ptr: &BlockPtr) -> Result<()> {
        if let BlockPtr::Block(block) = ptr {
            self.freed += 1;
            self.inner.storage.forget(block);
            self.books(Txg(0)).0.free(block)?;
        }
        Ok(())
    }

    /// Stores the txg's changes of the dedup tables and of the tables of cloned blocks.
    pub(super) fn store_references(&mut self) -> Result<()> {
        let SyncState { brt, features, .. } = &mut *self.state;
        brt.store(&self.inner.mos.objset, &self.tx, features)?;
        let most = self.frees_max(u64::MAX);
        let (mut books, _) = self.books(Txg(0));
        books.store_entries()?;
        let means = books.means();
        let freed = books.ddt.flush(&means, most, false)?;
        books.free_unshared(freed)?;
        books.ddt.count(&means, books.features)
    }

    /// Moves the entries in logs of dedup tables into the stores, as far as there is room; returns whether all are
    /// there.
    pub(crate) fn flush_dedup(&mut self) -> Result<bool> {
        let most = self.frees_max(u64::MAX);
        let (mut books, _) = self.books(Txg(0));
        books.store_entries()?;
        let freed = books.ddt.flush(&books.means(), most, true)?;
        books.free_unshared(freed)?;
        Ok(self.state.ddt.is_flushed())
    }

    /// Removes entries with one reference from the dedup tables, as far as there is room; returns the remaining keys,
    /// and the number of removed entries.
    pub(crate) fn prune_dedup(
        &mut self,
        mut keys: Vec<(ChecksumKind, Key)>,
    ) -> Result<(Vec<(ChecksumKind, Key)>, u64)> {
        let most = self.frees_max(keys.len() as u64) as usize;
        let rest = keys.split_off(most.min(keys.len()));
        let (books, _) = self.books(Txg(0));
        let (means, mut pruned) = (books.means(), 0);
        for (kind, key) in keys {
            pruned += u64::from(books.ddt.prune(&means, kind, &key)?);
        }
        Ok((rest, pruned))
    }

    /// Enters blocks into the dedup tables, each with one reference, as though datasets had written them. For trials with
    /// large tables: no block pointer leads to these blocks.
    ///
    /// # Errors
    /// If the tables cannot be read or written.
    pub fn enter_shared(&mut self, blocks: impl Iterator<Item = Block>) -> Result<()> {
        let (mut books, _) = self.books(Txg(0));
        for block in blocks {
            books.make_room()?;
            let vdevs = books.storage.vdevs();
            books.ddt.refer(vdevs, &block, block.copies().count() as u8)?;
        }
        Ok(())
    }
}

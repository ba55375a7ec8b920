//! The part of a sync that handles logs: their headers, their first blocks, and freeing old blocks.
//!
//! From:   `sync`, on its thread, before a dataset's root is written.
//! Source: docs/format/08-zil.md §4.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dmu::{Frozen, Objset, zap};
use format::blkptr::{Block, BlockPtr};
use format::objset::{ObjsetType, ZilHeader};
use format::{ObjectId, Txg, features, zil};

use crate::Result;
use crate::log::{Link, OFF, Phase, chain};
use crate::space_maps::free_extents;
use crate::state::{Dataset, Inner, Syncing};

/// Bytes of the first block of a chain.
const FIRST: u64 = zil::BLOCK_MIN as u64;

/// Adds the datasets to `changed` that the sync of `txg` must visit for their logs alone.
pub(crate) fn add_logged(inner: &Inner, txg: Txg, changed: &mut Vec<(Arc<Dataset>, Frozen)>) {
    let logged: Vec<Arc<Dataset>> = inner.open.logged().values().cloned().collect();
    changed.retain(|(dataset, frozen)| {
        !frozen.is_empty() || dataset.log.wants_sync(txg, &dataset.objset().zil_header())
    });
    for dataset in logged {
        let visited = changed.iter().any(|(other, _)| other.id == dataset.id);
        if !visited && dataset.log.wants_sync(txg, &dataset.objset().zil_header()) {
            changed.push((dataset, Frozen::nothing()));
        }
    }
}

/// `txg` is durable.
pub(crate) fn durable(inner: &Inner, txg: Txg) {
    let logged: Vec<Arc<Dataset>> = inner.open.logged().values().cloned().collect();
    logged.iter().for_each(|dataset| dataset.log.durable(txg));
    let mut table = inner.open.logged();
    table.retain(|_, dataset| !dataset.log.is_off());
    if table.is_empty() {
        inner.log_space.rest();
    }
}

impl Syncing<'_> {
    /// Brings the header of a dataset's log up to date. Its root is written afterwards.
    pub(crate) fn sync_log(&mut self, dataset: &Dataset) -> Result<()> {
        let on_disk = dataset.objset().zil_header();
        let txg = self.txg;
        let (mut replayed, mut discarded) = (None, None);
        let starting = {
            let mut state = dataset.log.lock();
            match &mut state.phase {
                Phase::Off => return Ok(()),
                Phase::Starting => true,
                Phase::On | Phase::Closing => false,
                Phase::Replay(recovery) => {
                    replayed = Some((recovery.header_of(txg, &on_disk), recovery.take_blocks(txg)));
                    false
                }
                Phase::Discard(blocks) => {
                    discarded = Some(std::mem::take(blocks));
                    false
                }
            }
        };
        let (header, freed) = match (replayed, discarded) {
            (Some((header, None)), _) => (header, Vec::new()),
            (Some((_, Some(blocks))), _) | (_, Some(blocks)) => {
                dataset.log.end();
                (ZilHeader::default(), blocks)
            }
            _ if starting => (self.start_log(dataset, &on_disk)?, Vec::new()),
            _ => {
                let (log, freed) = dataset.log.shorten(txg);
                (ZilHeader { log, ..ZilHeader::default() }, freed)
            }
        };
        self.free_log_blocks(freed)?;
        if header.log.is_hole() && !on_disk.log.is_hole() {
            self.retract_sa_xattrs(dataset.id)?;
        }
        if header != on_disk {
            dataset.objset().set_zil_header(header);
        }
        Ok(())
    }

    /// Makes the first block of a new chain. Without space for it there is no chain, and every commit waits for a sync.
    fn start_log(&mut self, dataset: &Dataset, on_disk: &ZilHeader) -> Result<ZilHeader> {
        self.free_leftover(dataset.id, on_disk)?;
        let sector = self.inner.storage.vdevs().min_alloc();
        let size = FIRST.max(sector);
        let Some(dva) = self.allocate_log_block(size)? else { return Ok(ZilHeader::default()) };
        let entropy = &self.inner.host.entropy;
        let sa_xattrs = self.announce_sa_xattrs(dataset)?;
        let identity = chain::first_identity([entropy.u64(), entropy.u64()], dataset.id);
        let block = chain::link(dva, size, identity, self.txg, dataset.log_sealing());
        let mut state = dataset.log.lock();
        state.chain = VecDeque::from([Link { block, max_txg: Txg(0), written: false }]);
        state.phase = Phase::On;
        state.usable = self.txg;
        state.sa_xattrs = sa_xattrs;
        state.seq = 0;
        Ok(ZilHeader { log: BlockPtr::Block(block), ..ZilHeader::default() })
    }

    /// Marks a file system whose log may hold records that only the feature `zilsaxattr` knows; says whether it may.
    fn announce_sa_xattrs(&mut self, dataset: &Dataset) -> Result<bool> {
        let feature = &features::ZILSAXATTR;
        let enabled = self.state.features.as_ref().is_some_and(|features| features.is_enabled(feature));
        if !enabled || dataset.objset().os_type() != ObjsetType::Zfs {
            return Ok(false);
        }
        if !dsl::change::marks(self.mos(), dataset.id)?.contains(feature.guid) {
            self.change(|dsl| dsl.mark_dataset(dataset.id, feature))?;
        }
        Ok(true)
    }

    /// Removes that mark, because the log is gone.
    fn retract_sa_xattrs(&mut self, id: ObjectId) -> Result<()> {
        let feature = &features::ZILSAXATTR;
        if dsl::change::marks(self.mos(), id)?.contains(feature.guid)
            && let Some(features) = self.state.features.as_mut()
        {
            zap::remove(&self.inner.mos.object(id)?, &self.tx, feature.guid.as_bytes())?;
            features.adjust(&self.tx, feature, -1)?;
        }
        Ok(())
    }

    /// Frees an empty log that another system left.
    fn free_leftover(&mut self, id: ObjectId, header: &ZilHeader) -> Result<()> {
        let synced = self.state.uberblock.txg;
        let blocks = chain::allocated(&self.inner.storage, id, header, synced)?;
        self.free_log_blocks(blocks)
    }

    fn free_log_blocks(&mut self, blocks: Vec<Block>) -> Result<()> {
        for block in blocks {
            self.free_block(&BlockPtr::Block(block))?;
        }
        Ok(())
    }

    /// Frees the log of a head with this root that is destroyed or rolled back.
    pub(crate) fn free_log_of(&mut self, id: ObjectId, root: &BlockPtr) -> Result<()> {
        if root.is_hole() {
            return Ok(());
        }
        let objset = Objset::open(self.inner.storage.clone(), self.inner.budget.clone(), *root)?;
        self.free_log(id, &objset.zil_header())
    }

    fn free_log(&mut self, id: ObjectId, header: &ZilHeader) -> Result<()> {
        let Some(dataset) = self.inner.open.logged().remove(&id) else {
            return self.free_leftover(id, header);
        };
        let mut state = dataset.log.lock();
        let chain = std::mem::take(&mut state.chain);
        let phase = std::mem::take(&mut state.phase);
        dataset.log.mode.store(OFF, Ordering::Release);
        drop(state);
        for Link { block, .. } in &chain {
            // Space of the present open txg is freed in that txg.
            let txg = self.txg.max(block.birth);
            free_extents(&self.inner.storage, &mut self.state.allocator, block, txg)?;
        }
        let mut blocks = Vec::new();
        match phase {
            Phase::Replay(recovery) => blocks.extend(recovery.into_blocks()),
            Phase::Discard(left) => blocks.extend(left),
            Phase::Starting => return self.free_leftover(id, header),
            Phase::Off | Phase::On | Phase::Closing => {}
        }
        self.free_log_blocks(blocks)
    }
}

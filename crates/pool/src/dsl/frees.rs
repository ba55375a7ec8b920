//! Blocks of destroyed snapshots, freed in the background.
//!
//! Source: docs/format/06-mos-dsl.md §1 (`free_bpobj`), §9.3.

use format::ObjectId;

use super::{Category, Sizes, add_space, lookup};
use crate::sync::Syncing;
use crate::{Error, Result, bpobj};

/// Blocks freed in one txg: enough to be quick, few enough that nobody waits long for the txg.
const BLOCKS_PER_TXG: u64 = 100_000;

impl Syncing<'_> {
    /// The directory that blocks waiting to be freed are charged to.
    pub(crate) fn free_dir(&self) -> Result<ObjectId> {
        let mos = self.mos();
        lookup::child(mos, lookup::root_dir(mos)?, "$FREE")?
            .ok_or_else(|| Error::Unsupported("pools without a $FREE directory".into()))
    }

    /// Frees what waits for it, up to the measure of one txg.
    pub(crate) fn free_waiting(&mut self) -> Result<()> {
        if !self.state.freeing {
            return Ok(());
        }
        let mos = self.mos();
        let Some(list) = mos.directory_object("free_bpobj")? else {
            self.state.freeing = false;
            return Ok(());
        };
        let inner = self.inner;
        let sizes_of = |ptr: &_| Sizes::of(inner.storage.vdevs(), ptr);
        let before = bpobj::totals(mos, list)?;
        let blocks = bpobj::take_last(mos, &self.tx, list, BLOCKS_PER_TXG, &sizes_of)?;
        for ptr in &blocks {
            self.free_block(ptr)?;
        }
        let freed = before - bpobj::totals(mos, list)?;
        let waiting = self.free_dir()?;
        add_space(mos, &self.tx, waiting, Category::Head, -freed)?;
        self.state.freeing = !bpobj::is_empty(mos, list)?;
        Ok(())
    }
}

//! What users ask about blocks that are shared.
//!
//! From:   the dedup tables of an open pool.
//! To:     `zpool status -D`, `zpool prefetch`.

use format::ddt::Histogram;

use crate::Result;
use crate::ddt::{Ddt, Figures};
use crate::pool::Pool;

/// Bytes that an entry of a log takes in memory.
const LOGGED_BYTES: u64 = 176;

/// The dedup tables of a pool, as `zpool status -D` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dedup {
    /// Statistics over all stores.
    pub histogram: Histogram,
    /// Sizes over all stores.
    pub figures: Figures,
}

impl Pool {
    /// Reads the dedup tables, so that the cache holds as much of them as it can.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn prefetch_dedup(&self) -> Result<()> {
        for store in Ddt::load(&self.inner.mos.objset)?.stores() {
            for entry in store.entries() {
                entry?;
            }
        }
        Ok(())
    }

    /// The dedup tables as of the last synced txg.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn dedup(&self) -> Result<Dedup> {
        let mut sum = Dedup::default();
        let ddt = Ddt::load(&self.inner.mos.objset)?;
        for (kind, key, entry) in ddt.logged() {
            sum.histogram.add(&crate::ddt::counts(self.inner.storage.vdevs(), kind, key, entry));
            sum.figures.entries += 1;
            sum.figures.in_core += LOGGED_BYTES;
        }
        sum.figures.on_disk += ddt.log_bytes();
        for store in ddt.stores() {
            sum.histogram.merge(&store.histogram);
            let Figures { entries, on_disk, in_core } = store.figures()?;
            sum.figures.entries += entries;
            sum.figures.on_disk += on_disk;
            sum.figures.in_core = sum.figures.in_core.saturating_add(in_core);
        }
        Ok(sum)
    }
}

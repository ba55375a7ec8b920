//! The calls of a pool for blocks that are shared.
//!
//! From:   the dedup tables of an open pool.
//! To:     `zpool status -D`, `zpool prefetch`, `zpool ddtprune`.

use std::collections::BTreeMap;

use format::ChecksumKind;
use format::ddt::{Histogram, Key};

use crate::Result;
use crate::ddt::{Cut, Ddt, Figures};
use crate::pool::Pool;

/// Entries that are pruned with each txg at most.
const PRUNED_MAX: usize = 10_000;
/// The maximal number of flushes until the logs count as flushed, although other writers continue.
const FLUSHES_MAX: usize = 100;

/// Bytes that an entry of a log takes in memory.
const LOGGED_BYTES: u64 = 176;

/// Which entries of blocks with one reference leave the tables that have logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Those that did not change for so many seconds.
    Older(u64),
    /// So many percent of them, the oldest first.
    Percent(u64),
}

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
        for store in Ddt::load(&self.inner.mos.objset, self.inner.storage.vdevs())?.stores() {
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
        let ddt = Ddt::load(&self.inner.mos.objset, self.inner.storage.vdevs())?;
        for (kind, key, entry) in ddt.logged() {
            sum.histogram.add(&crate::ddt::counts(self.inner.storage.vdevs(), kind, key, &entry));
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

    /// Removes entries from the dedup tables that have logs. Their blocks stay, and are not shared from then on.
    /// Returns the number of removed entries.
    ///
    /// # Errors
    /// If the tables cannot be read or written.
    pub fn prune_dedup(&self, which: Prune) -> Result<u64> {
        for _ in 0..FLUSHES_MAX {
            if self.run(|syncing| syncing.flush_dedup())? {
                break;
            }
        }
        let now = self.inner.host.clock.now().0;
        let mut cut = match which {
            Prune::Older(seconds) => Cut { before: now.saturating_sub(seconds), ties: 0 },
            Prune::Percent(percent) => self.oldest(percent)?,
        };
        let (mut batch, mut pruned) = (Vec::new(), 0);
        for entry in self.prunable()?.iter().flat_map(crate::ddt::Store::keyed) {
            let (kind, key, changed) = entry?;
            if cut.takes(changed) {
                batch.push((kind, key));
            }
            if batch.len() >= PRUNED_MAX {
                pruned += self.prune(std::mem::take(&mut batch))?;
            }
        }
        Ok(pruned + self.prune(batch)?)
    }

    /// The stores whose entries can be pruned, as of the last txg.
    fn prunable(&self) -> Result<Vec<crate::ddt::Store>> {
        let ddt = Ddt::load(&self.inner.mos.objset, self.inner.storage.vdevs())?;
        Ok(ddt.into_stores().filter(crate::ddt::Store::is_prunable).collect())
    }

    /// Until when the oldest of `percent` percent of the entries changed.
    fn oldest(&self, percent: u64) -> Result<Cut> {
        let (mut by_second, mut all) = (BTreeMap::<u64, u64>::new(), 0_u64);
        for entry in self.prunable()?.iter().flat_map(crate::ddt::Store::keyed) {
            let (_, _, changed) = entry?;
            *by_second.entry(changed).or_default() += 1;
            all += 1;
        }
        let mut left = (u128::from(all) * u128::from(percent) / 100) as u64;
        for (second, count) in by_second {
            if left < count {
                return Ok(Cut { before: second, ties: left });
            }
            left -= count;
        }
        Ok(Cut { before: u64::MAX, ties: 0 })
    }

    /// Prunes these entries, as many with each txg as there is room for.
    fn prune(&self, mut keys: Vec<(ChecksumKind, Key)>) -> Result<u64> {
        let mut pruned = 0;
        while !keys.is_empty() {
            let (rest, done) = self.run(move |syncing| syncing.prune_dedup(keys))?;
            keys = rest;
            pruned += done;
        }
        Ok(pruned)
    }
}

//! Entries of logs on their way into the stores: so many with each txg that the logs stay small.
//!
//! Source: docs/format/14-dedup-and-cloning.md §6.4.

use format::blkptr::Block;

use super::log::Flat;
use super::{Ddt, Means, Named, kind_of};
use crate::Result;

/// Entries of a log from which on it is flushed.
const LOG_MAX: u64 = 1 << 17;
/// Txgs after which a log is flushed, however few entries it has.
const LOG_TXGS: u64 = 8;
/// Entries that are flushed with each txg at least.
const FLUSHED_MIN: u64 = 200;

/// Entries of the log to flush in this txg: twice what was added, at least 1 % of the log and at least [`FLUSHED_MIN`].
fn measure(flat: &Flat) -> u64 {
    FLUSHED_MIN.max(flat.appended.saturating_mul(2)).max(flat.flushing() / 100)
}

impl Flat {
    /// Whether the log that takes new entries is to be flushed.
    fn is_due(&self, means: &Means<'_>, at_once: bool) -> bool {
        let Some((entries, since)) = self.active() else { return false };
        let is_old = since.0 + LOG_TXGS <= means.tx.txg().0;
        self.flushing() == 0 && entries > 0 && (at_once || is_old || entries >= LOG_MAX)
    }
}

impl Ddt {
    /// Whether blocks to which nothing refers any more wait in logs. Txgs go on until they are freed.
    pub(crate) fn is_freeing(&self) -> bool {
        self.logged.unused > 0
    }

    /// Bytes that are freed when the logs are flushed.
    pub(crate) fn freeing_bytes(&self) -> u64 {
        self.logged.unused_bytes
    }

    /// Moves entries of logs into the stores: as many as one txg should move, and `most` of each table; all of them if
    /// `at_once`. Returns the blocks that are no longer referenced; the caller frees them.
    pub(crate) fn flush(&mut self, means: &Means<'_>, most: u64, at_once: bool) -> Result<Vec<Block>> {
        let mut freed = Vec::new();
        // A txg without changes does not delay blocks that wait to be freed.
        let is_idle = self.tables.values().flat_map(|table| &table.flat).all(|flat| flat.appended == 0);
        let soon = at_once || is_idle && self.is_freeing();
        for (number, table) in &mut self.tables {
            let (Some(kind), Some(flat)) = (kind_of(*number), &mut table.flat) else { continue };
            if flat.is_due(means, soon) {
                flat.swap(means.tx);
            }
            let wanted = if at_once { u64::MAX } else { measure(flat) };
            flat.appended = 0;
            let mut last = None;
            for _ in 0..wanted.min(most) {
                let Some((key, logged)) = table.flat.as_mut().and_then(Flat::take) else { break };
                let named = Named { kind, key: &key };
                self.logged.remove(means.vdevs, named, &logged.entry());
                table.put(means, named, logged.entry(), logged.class, &mut freed)?;
                last = Some(key);
            }
            if let (Some(last), Some(flat)) = (last, &mut table.flat) {
                flat.flushed(means.tx, last);
                self.counted = true;
            }
        }
        Ok(freed)
    }
}

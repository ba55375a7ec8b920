//! The place of a scrub or resilver, kept on disk with each txg.
//!
//! From:   the progress in memory, which the scan's thread and changes of datasets move.
//! To:     the MOS; after an import, the progress in memory.
//! Source: docs/format/11-redundancy.md §6.4.

use std::collections::BTreeMap;

use format::ObjectType;
use format::scan::Scan;

use crate::Result;
use crate::scan_state::{self, Progress};
use crate::state::{Inner, Syncing};

impl Inner {
    /// Carries `look` out while no job of the sync thread changes datasets.
    ///
    /// # Panics
    /// A job panicked.
    pub fn while_datasets_stay<T>(&self, look: impl FnOnce() -> T) -> T {
        let _stay = self.dsl.read();
        look()
    }
}

impl Syncing<'_> {
    /// For the first sync after an import: from now on, a scan that is under way is kept in step with the datasets.
    pub(crate) fn take_over_scan(&mut self) -> Result<()> {
        let under_way = |scan: &Scan| scan.is_scrubbing() || scan.is_resilvering();
        let Some(scan) = scan_state::read(self.mos())?.filter(under_way) else { return Ok(()) };
        let progress =
            match scan_state::followed(self.mos(), &scan).filter(|progress| progress.scan.queue.0 != 0) {
                Some(progress) => progress,
                None => {
                    tracing::warn!("how far the scan under way was cannot be read: it begins anew");
                    if scan.queue.0 != 0 {
                        self.mos().free(&self.tx, scan.queue)?;
                    }
                    let queue = self.mos().create_zap(&self.tx, ObjectType::SCAN_QUEUE, 0)?.id();
                    let scan = Scan { queue, ..scan.restarted() };
                    Progress { is_newer: true, ..Progress::on_disk(scan, BTreeMap::new()) }
                }
            };
        self.inner.scrub.lock().progress = Some(progress);
        Ok(())
    }

    /// Writes down how far the scan under way is, if that changed.
    pub(crate) fn keep_scan(&mut self) -> Result<()> {
        let newer = {
            let mut state = self.inner.scrub.lock();
            let newer = state.progress.as_mut().filter(|progress| progress.is_newer);
            newer.map(|progress| {
                progress.is_newer = false;
                progress.clone()
            })
        };
        let Some(progress) = newer else { return Ok(()) };
        scan_state::write_queue(self.mos(), &self.tx, &progress)?;
        scan_state::write(self.mos(), &self.tx, &progress.scan)
    }
}

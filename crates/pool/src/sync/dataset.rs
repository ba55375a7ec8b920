//! Writing a dataset's changes: its blocks, its accounting, its deadlist and its features.

use std::sync::atomic::Ordering;

use dmu::{Frozen, SyncCtx, Synced};
use dsl::bookmark::Freed;
use dsl::livelist::Listed;
use dsl::settings::checksum_feature;
use dsl::settle::Settled;
use format::features;

use super::books::{Books, Needs};
use crate::Result;
use crate::state::Dataset;
use crate::state::Syncing;

impl Syncing<'_> {
    /// As a job does it: the blocks can be read when this returns.
    pub(crate) fn sync_and_settle(&mut self, dataset: &Dataset, frozen: Frozen) -> Result<()> {
        if let Some(synced) = self.sync_dataset(dataset, frozen)? {
            self.writer.drain()?;
            synced.settle(dataset.objset());
        }
        Ok(())
    }

    /// Writes a dataset's frozen changes and updates its accounting. The writes may still be in flight when it returns.
    /// `None` if the dataset was destroyed.
    pub(super) fn sync_dataset(&mut self, dataset: &Dataset, frozen: Frozen) -> Result<Option<Synced>> {
        if dataset.destroyed.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut needs = Needs::default();
        let prev = self.mos().dataset(dataset.id)?.prev_snap_txg;
        let policy = dataset.policy();
        let txg = self.txg;
        self.sync_log(dataset)?;
        let watched = Freed::watch(self.mos(), dataset.id, prev)?;
        let listed = Listed::watch(self.mos(), dataset.dir, self.inner.groups.limits.livelists())?;
        let (io, entropy) = (dataset.objset().io(), &*self.inner.host.entropy);
        let (mut books, writer) = self.books(prev);
        (books.freed, books.listed) = (watched, listed);
        let mut ctx = SyncCtx { io, txg, space: &mut books, writer, policy, mos_pass: 0, entropy };
        let synced = dataset.objset().sync(&mut ctx, frozen)?;
        let Books { delta, unique, dead, freed, listed, needs: found, .. } = books;
        needs.large_blocks |= found.large_blocks;
        needs.zstd |= found.zstd;
        needs.checksum = found.checksum;
        let settled = Settled { root: synced.ptr, delta, unique, dead, freed, listed };
        self.change(|dsl| dsl.settle_head(dataset.id, &settled))?;
        self.activate(dataset, needs)?;
        Ok(Some(synced))
    }

    /// Marks the dataset with the features that its blocks need.
    fn activate(&mut self, dataset: &Dataset, needs: Needs) -> Result<()> {
        let checksum = needs.checksum.and_then(checksum_feature);
        let wanted = [
            needs.large_blocks.then_some(&features::LARGE_BLOCKS),
            needs.zstd.then_some(&features::ZSTD_COMPRESS),
            checksum,
            (dataset.settings().dnode_slots > 1).then_some(&features::LARGE_DNODE),
        ];
        for feature in wanted.into_iter().flatten() {
            let known = dataset.marks().contains(feature.guid);
            if !known {
                self.change(|dsl| dsl.mark_dataset(dataset.id, feature))?;
                dataset.marks().insert(feature.guid.to_owned());
            }
        }
        Ok(())
    }
}

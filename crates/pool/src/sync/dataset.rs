//! A dataset's changes on their way to disk: its blocks, its sizes, its snapshots' dead blocks, its features.

use std::sync::atomic::Ordering;

use dmu::{Frozen, SyncCtx, Synced, zap};
use format::blkptr::BlockPtr;
use format::features::{self, Feature};
use format::zap::Value;
use format::{ChecksumKind, ObjectId, ObjectType, Txg};

use super::Syncing;
use super::books::{Books, Needs};
use crate::dataset::Dataset;
use crate::dsl::bookmark::Freed;
use crate::dsl::{self, Category, add_space};
use crate::sizes::Sizes;
use crate::{Error, Result};

impl Syncing<'_> {
    /// As a job does it: the blocks can be read when this returns.
    pub(crate) fn sync_and_settle(&mut self, dataset: &Dataset, frozen: Frozen) -> Result<()> {
        if let Some(synced) = self.sync_dataset(dataset, frozen)? {
            self.writer.drain()?;
            synced.settle(dataset.objset());
        }
        Ok(())
    }

    /// Writes a dataset's frozen changes and brings its books up to date. Settles nothing: the blocks are still on
    /// their way. `None` for a dataset that is gone.
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
        let (mut books, writer) = self.books(prev);
        books.freed = watched;
        let io = dataset.objset().io();
        let mut ctx = SyncCtx { io, txg, space: &mut books, writer, policy, mos_pass: 0 };
        let synced = dataset.objset().sync(&mut ctx, frozen)?;
        let Books { delta, unique, dead, freed, needs: found, .. } = books;
        needs.large_blocks |= found.large_blocks;
        needs.zstd |= found.zstd;
        needs.checksum = found.checksum;
        self.settle_dataset(dataset.id, synced.ptr, delta, unique, &dead)?;
        self.settle_bookmarks(dataset.id, &freed)?;
        self.activate(dataset, needs)?;
        Ok(Some(synced))
    }

    /// Enters a head's new root and sizes.
    fn settle_dataset(
        &mut self,
        id: ObjectId,
        root: BlockPtr,
        delta: Sizes,
        unique: i64,
        dead: &[(BlockPtr, Sizes)],
    ) -> Result<()> {
        let mos = self.mos();
        let mut phys = mos.dataset(id)?;
        let dir = phys.dir;
        phys.bp = root;
        phys.referenced_bytes = phys.referenced_bytes.wrapping_add_signed(delta.used);
        phys.compressed_bytes = phys.compressed_bytes.wrapping_add_signed(delta.comp);
        phys.uncompressed_bytes = phys.uncompressed_bytes.wrapping_add_signed(delta.uncomp);
        let unique_before = phys.unique_bytes;
        phys.unique_bytes = phys.unique_bytes.wrapping_add_signed(unique);
        let (prev_snap, deadlist, unique_after) = (phys.prev_snap, phys.deadlist, phys.unique_bytes);
        mos.put_dataset(&self.tx, id, &phys)?;
        // Blocks kept by a snapshot stay charged to the directory, in another category.
        let kept = dead.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        add_space(mos, &self.tx, dir, Category::Head, delta + kept)?;
        self.keep_promise(dir, unique_before, unique_after)?;
        if dead.is_empty() {
            return Ok(());
        }
        let origin_txg = mos.origin_txg(mos.dir(dir)?.origin)?;
        let mut snap = mos.dataset(prev_snap)?;
        dsl::deadlist::insert(mos, &mut self.state.features, &self.tx, deadlist, dead)?;
        // Of a clone, what its origin already had was never charged to it.
        let charged = |birth: Txg| birth > origin_txg;
        let mut own = 0;
        for (ptr, sizes) in dead {
            let birth = ptr.accounting_birth();
            if snap.next_snap == id && birth > snap.prev_snap_txg {
                snap.unique_bytes = snap.unique_bytes.wrapping_add_signed(sizes.used);
            }
            if charged(birth) {
                own += sizes.used;
            }
        }
        dsl::space::move_space(mos, &self.tx, dir, Category::Head, Category::Snap, own)?;
        mos.put_dataset(&self.tx, prev_snap, &snap)
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
            let known = dataset
                .active_features
                .lock()
                .expect("no code panics while holding the feature list")
                .contains(feature.guid);
            if !known {
                self.mark_dataset(dataset.id, feature)?;
                let mut marks =
                    dataset.active_features.lock().expect("no code panics while holding the feature list");
                marks.insert(feature.guid.to_owned());
            }
        }
        Ok(())
    }

    /// Adds a per-dataset feature's mark to a dataset and counts it.
    pub(crate) fn mark_dataset(&mut self, id: ObjectId, feature: &'static Feature) -> Result<()> {
        let mos = self.mos();
        self.zapify(id)?;
        zap::insert(&mos.object(id)?, &self.tx, feature.guid.as_bytes(), &Value::from_u64(0))?;
        let features = self.state.features.as_mut().ok_or_else(|| {
            Error::Unsupported(format!("feature {} in a pool without feature flags", feature.name))
        })?;
        if !features.is_enabled(feature) {
            return Err(Error::Unsupported(format!("feature {} is not enabled in this pool", feature.name)));
        }
        features.adjust(&self.tx, feature, 1)
    }

    /// Gives a DSL object a ZAP of its own (06 §3).
    pub(crate) fn zapify(&mut self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let object = mos.object(id)?;
        if object.object_type() == ObjectType::ZAP_METADATA {
            return Ok(());
        }
        object.set_type(&self.tx, ObjectType::ZAP_METADATA);
        zap::create(&object, &self.tx, mos.salt(), 0)?;
        if let Some(features) = self.state.features.as_mut() {
            features.adjust(&self.tx, &features::EXTENSIBLE_DATASET, 1)?;
        }
        Ok(())
    }
}

/// The feature that a checksum kind needs.
#[must_use]
pub fn checksum_feature(kind: ChecksumKind) -> Option<&'static Feature> {
    match kind {
        ChecksumKind::Sha512 => Some(&features::SHA512),
        ChecksumKind::Skein => Some(&features::SKEIN),
        ChecksumKind::Edonr => Some(&features::EDONR),
        ChecksumKind::Blake3 => Some(&features::BLAKE3),
        _ => None,
    }
}

//! The first sync after an import: finishes the work that the previous writer of the pool left.

use dmu::zap;
use format::ObjectId;
use format::features;

use crate::mos::DIRECTORY;
use crate::space_maps::MapWriter;
use crate::state::{SyncState, Syncing};
use crate::{Result, bpobj};

impl Syncing<'_> {
    /// Finishes the work of the previous writer: deferred frees and log space maps.
    pub(super) fn first_sync(&mut self) -> Result<()> {
        self.state.fresh = false;
        let mos = self.mos();
        let list = mos.need("sync_bplist")?;
        if !bpobj::is_empty(mos, list)? {
            let mut blocks = Vec::new();
            bpobj::for_each(mos, list, &mut |ptr| {
                blocks.push(*ptr);
                Ok(())
            })?;
            for ptr in &blocks {
                self.free_block(ptr)?;
            }
            bpobj::clear(mos, &self.tx, list)?;
        }
        self.take_over_scan()?;
        self.fold_logs()
    }

    /// Folds log space maps into the metaslabs' own and gives the feature up until OpenZFS takes it again
    /// (05 §5, strategy b).
    fn fold_logs(&mut self) -> Result<()> {
        let mos = self.mos();
        let Some(zap_id) = mos.directory_object("com.delphix:log_spacemap_zap")? else { return Ok(()) };
        let logs = self.state.logs.clone();
        let SyncState { features, table, .. } = &mut *self.state;
        let tops = self.inner.storage.vdevs().tops();
        let mut writer = MapWriter { mos, features, tx: &self.tx, tops, table, pass: 1 };
        for ((vdev, metaslab), entries) in &logs {
            writer.fold(*vdev, *metaslab, entries)?;
        }
        let mut freed = 0;
        for entry in zap::entries(&*mos.object(zap_id)?).collect::<Vec<_>>() {
            if let Some(map) = entry?.number() {
                mos.free(&self.tx, ObjectId(map))?;
                freed += 1;
            }
        }
        mos.free(&self.tx, zap_id)?;
        zap::remove(&mos.object(DIRECTORY)?, &self.tx, b"com.delphix:log_spacemap_zap")?;
        for vdev in &self.state.config.tree.children {
            let Some(top_zap) = vdev.zap_top.filter(|id| id.0 != 0) else { continue };
            let object = mos.object(top_zap)?;
            let key = b"com.delphix:ms_unflushed_phys_txgs";
            if let Some(array) = zap::lookup_u64(&object, key)? {
                mos.free(&self.tx, ObjectId(array))?;
                zap::remove(&object, &self.tx, key)?;
            }
        }
        let features = self.state.features.as_mut().expect("log space maps are a feature");
        features.adjust(&self.tx, &features::SPACEMAP_HISTOGRAM, -freed)?;
        features.adjust(&self.tx, &features::LOG_SPACEMAP, -1)
    }
}

//! The MOS and the space maps: written pass by pass until writing them changes nothing any more.

use dmu::{Policy, Redundant, SyncCtx};
use dsl::settings::metadata_compression;
use dsl::space::{Category, add_space};
use dsl::tree;
use format::blkptr::BlockPtr;
use format::config::PoolState;
use format::features;
use format::zap::Value;
use format::{ChecksumKind, Txg};
use storage::GzipEngine;

use crate::features::Features;
use crate::space_maps::MapWriter;
use crate::state::{SyncState, Syncing};
use crate::{Result, version};

/// After this many passes the space maps must not change any more.
const PASSES_MAX: u32 = 32;

impl Syncing<'_> {
    /// For export and destroy: the labels of this txg carry the state.
    pub(crate) fn set_pool_state(&mut self, state: PoolState) {
        self.state.config.state = state;
        self.state.config_dirty = true;
    }

    fn write_config(&mut self) -> Result<()> {
        if let Some(salt) = self.state.new_salt.take() {
            let value = Value::from_bytes(&salt);
            self.mos().set_directory(&self.tx, "org.illumos:checksum_salt", &value)?;
        }
        let labels = self.state.features.as_ref().map(Features::label_list);
        if labels != self.state.config.features_for_read {
            self.state.config.features_for_read = labels;
            self.state.config_dirty = true;
        }
        if self.state.config_dirty {
            self.state.config.txg = self.txg;
            let list = self.state.config_on_disk().to_mos_nvlist();
            self.mos().put_packed(&self.tx, self.state.config_object, &list)?;
        }
        Ok(())
    }

    /// Writes the MOS, and the space maps that this changes, until nothing changes any more.
    pub(super) fn sync_mos(&mut self) -> Result<BlockPtr> {
        let mos = self.mos();
        self.write_config()?;
        let mut root = mos.objset.synced_root().1;
        for _ in 0..PASSES_MAX {
            self.mos_passes += 1;
            let pass = self.mos_passes;
            let changes = self.state.allocator.take_changes(self.txg);
            {
                let SyncState { allocator, features, table, .. } = &mut *self.state;
                let tops = self.inner.storage.vdevs().tops();
                let mut writer = MapWriter { mos, features, tx: &self.tx, tops, table, pass };
                for change in &changes {
                    writer.write(allocator, change)?;
                }
            }
            self.write_kept(pass)?;
            self.write_obsolete(pass)?;
            let delta = std::mem::take(&mut self.state.mos_delta);
            if let Some(dir) = tree::mos_dir(mos)? {
                add_space(mos, &self.tx, dir, Category::Head, delta)?;
            }
            let frozen = mos.objset.freeze();
            if frozen.is_empty() {
                break;
            }
            let policy = self.mos_policy();
            let txg = self.txg;
            let (io, entropy) = (mos.objset.io(), &*self.inner.host.entropy);
            let (mut books, writer) = self.books(Txg(0));
            let mut ctx = SyncCtx { io, txg, space: &mut books, writer, policy, mos_pass: pass, entropy };
            let synced = mos.objset.sync(&mut ctx, frozen)?;
            let mut delta = books.delta;
            // Everything in the MOS is metadata: what it would be uncompressed is not counted.
            delta.uncomp = delta.comp;
            root = synced.ptr;
            synced.settle(&mos.objset);
            self.state.mos_delta += delta;
        }
        assert!(self.state.allocator.is_quiet(self.txg), "space maps still moving after the last pass");
        assert!(!mos.objset.is_dirty(), "the MOS still moving after the last pass");
        Ok(root)
    }

    fn mos_policy(&self) -> Policy {
        let features = self.state.features.as_ref();
        let active = |feature| features.is_some_and(|f| f.is_active(feature));
        Policy {
            compression: metadata_compression(active(&features::LZ4_COMPRESS)),
            metadata_compression: metadata_compression(active(&features::LZ4_COMPRESS)),
            gzip_engine: GzipEngine::DEFAULT,
            checksum: ChecksumKind::Fletcher4,
            copies: 3,
            dedup: None,
            redundant: Redundant::All,
            small_blocks: 0,
            embed: active(&features::EMBEDDED_DATA),
            hole_birth: active(&features::HOLE_BIRTH),
            single: self.mos().version() < version::COPIES,
            counts_sectors: self.mos().version() < version::DEFLATED,
            secondary: Default::default(),
            encrypted: false,
        }
    }
}

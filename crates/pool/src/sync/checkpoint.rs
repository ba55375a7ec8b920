//! Keeping the blocks of a checkpoint allocated, and freeing them when the checkpoint is discarded.
//!
//! From:   the allocator, which hands out what was freed and stays allocated.
//! To:     a space map for each top-level vdev that has such space.
//! Source: docs/format/12-auxiliary-vdevs.md §6.1 to §6.3.

use dmu::zap;
use format::blkptr::Dva;
use format::features;
use format::space_map::{self, Entry, Kind, Layout};
use format::uberblock::Uberblock;
use format::zap::Value;
use format::{ByteOrder, Corrupt, ObjectId, Txg, VdevId};
use storage::Record;

use crate::checkpoint::{self, KEY, MAP, Stage};
use crate::mos::DIRECTORY;
use crate::space_maps::{self, Form};
use crate::state::{SyncState, Syncing};
use crate::{Error, Result};

/// Block size of the space map of kept blocks. Each txg frees the entries of one block of it.
const BLOCK: u32 = 128 << 10;

impl Syncing<'_> {
    /// Whether the pool has a checkpoint, or still frees the blocks of one.
    #[must_use]
    pub fn has_checkpoint(&self) -> bool {
        self.state.keeping.stage != Stage::None
    }

    fn kept_layout(&self, vdev: u32) -> Layout {
        let shift = self.inner.storage.vdevs().tops()[vdev as usize].ashift;
        Layout { start: 0, shift }
    }

    /// Makes the last synced state the checkpoint, if one is wanted. Call it before the txg frees anything.
    pub(super) fn begin_checkpoint(&mut self) -> Result<()> {
        if self.state.keeping.stage != Stage::Wanted {
            return Ok(());
        }
        let last = &self.state.uberblock;
        let kept = Uberblock { checkpoint_txg: last.txg, ..last.clone() };
        let features = self.state.features.as_mut().expect("the feature is enabled");
        let value = checkpoint::words(&kept, features.is_enabled(&features::RAIDZ_EXPANSION));
        features.adjust(&self.tx, &features::ZPOOL_CHECKPOINT, 1)?;
        self.mos().set_directory(&self.tx, KEY, &value)?;
        self.state.keeping.stage = Stage::Exists { txg: kept.txg, created: kept.timestamp };
        Ok(())
    }

    /// From now on the pool cannot return to the checkpoint.
    pub(crate) fn give_up_checkpoint(&mut self) -> Result<()> {
        match self.state.keeping.stage {
            Stage::None | Stage::Wanted => return Err(Error::NoCheckpoint),
            Stage::Discarding => return Err(Error::DiscardingCheckpoint),
            Stage::Exists { .. } => {}
        }
        zap::remove(&self.mos().object(DIRECTORY)?, &self.tx, KEY.as_bytes())?;
        self.state.allocator.keep_born_until(None);
        self.state.keeping.stage = Stage::Discarding;
        // Blocks freed in this txg are in no list yet.
        for (vdev, runs) in self.state.allocator.take_kept() {
            for (offset, asize) in runs {
                self.free_run(vdev, offset, asize)?;
            }
        }
        Ok(())
    }

    fn free_run(&mut self, vdev: VdevId, offset: u64, asize: u64) -> Result<()> {
        let dva = Dva { vdev, offset, asize, gang: false };
        self.state.allocator.free(dva, self.txg).map_err(|error| {
            tracing::error!(%error, "the list of what the checkpoint kept is wrong");
            Error::corrupt(ObjectId(0))(Corrupt::new("space that a checkpoint kept, at", offset))
        })
    }

    /// Records the space that was freed since the last call and stays allocated.
    pub(super) fn write_kept(&mut self, pass: u32) -> Result<()> {
        for (vdev, runs) in self.state.allocator.take_kept() {
            let map = self.kept_map(vdev.0)?;
            let two_words =
                self.state.features.as_ref().is_some_and(|all| all.is_enabled(&features::SPACEMAP_V2));
            let form = Form { layout: self.kept_layout(vdev.0), two_words, pass };
            let bytes: u64 = runs.iter().map(|(_, len)| len).sum();
            let entry = |(offset, run)| Entry { kind: Kind::Free, offset, run, vdev: None };
            let entries = runs.into_iter().map(entry).collect();
            space_maps::append(self.mos(), &self.tx, map, form, &[entries])?;
            if let Some((_, sum)) = self.state.keeping.maps.get_mut(&vdev.0) {
                *sum += bytes;
            }
        }
        Ok(())
    }

    /// The list of the space kept on a top-level vdev; it is made if there is none.
    fn kept_map(&mut self, vdev: u32) -> Result<ObjectId> {
        if let Some((map, _)) = self.state.keeping.maps.get(&vdev) {
            return Ok(*map);
        }
        let own = self.top_zap(vdev)?;
        let map = self.create_space_map(BLOCK)?;
        zap::insert(&self.mos().object(own)?, &self.tx, MAP.as_bytes(), &Value::from_u64(map.0))?;
        self.state.keeping.maps.insert(vdev, (map, 0));
        Ok(map)
    }

    pub(crate) fn top_zap(&self, vdev: u32) -> Result<ObjectId> {
        let top = self.state.config.tree.children.get(vdev as usize);
        top.and_then(|top| top.zap_top).filter(|id| id.0 != 0).ok_or(Error::NoVdevZap)
    }

    /// Frees a part of the blocks that a discarded checkpoint kept.
    pub(super) fn free_kept(&mut self) -> Result<()> {
        if self.state.keeping.stage != Stage::Discarding {
            return Ok(());
        }
        for (vdev, (map, _)) in self.state.keeping.maps.clone() {
            if self.free_last_block(vdev, map)? {
                self.free_list(map)?;
                let own = self.top_zap(vdev)?;
                zap::remove(&self.mos().object(own)?, &self.tx, MAP.as_bytes())?;
                self.state.keeping.maps.remove(&vdev);
            }
        }
        if self.state.keeping.maps.is_empty() {
            let features = self.state.features.as_mut().expect("the feature is active");
            features.adjust(&self.tx, &features::ZPOOL_CHECKPOINT, -1)?;
            self.state.keeping.stage = Stage::None;
        }
        Ok(())
    }

    /// Frees the segments in the last block of a list and removes that block. `true` if the list is empty now.
    fn free_last_block(&mut self, vdev: u32, map: ObjectId) -> Result<bool> {
        let mos = self.mos();
        let object = mos.object(map)?;
        let mut header = space_maps::header(&mos.objset, map)?;
        let Some(last) = header.length.checked_sub(1) else { return Ok(true) };
        if header.length > object.capacity() {
            return Err(Error::corrupt(map)(Corrupt::new("length of a space map", header.length)));
        }
        let index = last / object.block_size();
        let start = index * object.block_size();
        let record: Record = object.block(index)?;
        let used = ((header.length - start) as usize).min(record.len());
        for entry in space_map::entries(&record[..used], ByteOrder::Little, self.kept_layout(vdev)) {
            let entry = entry.map_err(Error::corrupt(map))?;
            if entry.kind == Kind::Alloc {
                return Err(Error::corrupt(map)(Corrupt::new(
                    "allocation that a checkpoint kept",
                    entry.offset,
                )));
            }
            self.free_run(VdevId(vdev), entry.offset, entry.run)?;
            header.alloc += entry.run as i64;
        }
        header.length = start;
        object.free_blocks(&self.tx, index, u64::MAX);
        space_maps::put_header(&object, &self.tx, &header);
        if let Some((_, bytes)) = self.state.keeping.maps.get_mut(&vdev) {
            *bytes = header.alloc.min(0).unsigned_abs();
        }
        Ok(start == 0)
    }

    /// For the end of txg `txg`: if a checkpoint is wanted, blocks born up to this txg are not reused.
    pub(super) fn keep_from(state: &mut SyncState, txg: Txg) {
        if state.keeping.stage == Stage::Wanted {
            state.allocator.keep_born_until(Some(txg));
        }
    }
}

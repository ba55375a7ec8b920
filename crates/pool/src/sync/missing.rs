//! Writing the lists of the txgs that leaves missed (DTLs).
//!
//! From:   the health of the leaves, when all blocks of a txg but those of the MOS are written.
//! To:     the leaf's space map of txgs (its DTL), and the configuration, which names it.
//! Source: docs/format/11-redundancy.md §3.4; 05-space-maps.md §6.

use std::collections::BTreeSet;

use dmu::NewObject;
use format::config::VdevConfig;
use format::features;
use format::space_map::{self, BUCKETS, Entry, Header, Kind};
use format::{ObjectId, ObjectType};
use storage::TxgRuns;

use crate::Result;
use crate::distributed;
use crate::features::Features;
use crate::marks::{REBUILT, RESILVERED};
use crate::members::LAYOUT;
use crate::space_maps::put_header;
use crate::state::Syncing;

/// Bytes of a block of such a list.
const BLOCK: u32 = 4 << 10;

/// The leaf with this guid.
pub(crate) fn leaf_mut(vdev: &mut VdevConfig, guid: u64) -> Option<&mut VdevConfig> {
    if vdev.guid.0 == guid {
        return Some(vdev);
    }
    vdev.children.iter_mut().find_map(|child| leaf_mut(child, guid))
}

impl Syncing<'_> {
    /// Writes the changed lists, as of the end of this txg. Returns the failed leaves; their lists contain this txg.
    pub(super) fn note_missing(&mut self) -> Result<BTreeSet<u64>> {
        let failed = self.inner.members.failed();
        let by_devices = distributed::missed_by_devices(&self.state.config.tree, &self.inner.members);
        for (guid, missing) in self.inner.members.missing() {
            let mut missing = missing.below(self.txg.next());
            by_devices.get(&guid).into_iter().for_each(|more| missing.extend(&more.below(self.txg.next())));
            let on_disk = self.state.listed.get(&guid);
            if on_disk.map_or(missing.is_empty(), |on_disk| *on_disk == missing) {
                continue;
            }
            self.write_list(guid, &missing)?;
            self.state.listed.insert(guid, missing);
        }
        Ok(failed)
    }

    fn write_list(&mut self, guid: u64, missing: &TxgRuns) -> Result<()> {
        let Some(leaf) = leaf_mut(&mut self.state.config.tree, guid) else { return Ok(()) };
        let known = leaf.dtl.filter(|list| list.0 != 0);
        let list = match known {
            Some(list) => list,
            None => self.create_list(guid)?,
        };
        let mos = self.mos();
        let object = mos.object(list)?;
        let mut header = crate::space_maps::header(&mos.objset, list)?;
        object.free_blocks(&self.tx, 0, u64::MAX);
        let features = self.state.features.as_ref();
        let two_words = features.is_some_and(|f| f.is_enabled(&features::SPACEMAP_V2));
        let mut writer = space_map::Writer::new(0, object.block_size(), LAYOUT, two_words);
        header.alloc = 0;
        if !missing.is_empty() {
            writer.note(Kind::Alloc, self.txg, 1);
        }
        for (offset, run) in missing.runs() {
            writer.push(Entry { kind: Kind::Alloc, offset, run, vdev: None });
            header.alloc += run as i64;
        }
        let raw = writer.finish();
        object.write(&self.tx, 0, &raw)?;
        header.length = raw.len() as u64;
        put_header(&object, &self.tx, &header);
        Ok(())
    }

    fn create_list(&mut self, guid: u64) -> Result<ObjectId> {
        let list = self.create_space_map(BLOCK)?;
        let leaf =
            leaf_mut(&mut self.state.config.tree, guid).expect("the list belongs to a leaf of the pool");
        leaf.dtl = Some(list);
        self.state.config_dirty = true;
        Ok(list)
    }

    /// A new, empty space map with blocks of `block` bytes.
    pub(crate) fn create_space_map(&mut self, block: u32) -> Result<ObjectId> {
        let mos = self.mos();
        let features = self.state.features.as_ref();
        let counted = features.is_some_and(|f| f.is_enabled(&features::SPACEMAP_HISTOGRAM));
        let mut header = Header { histogram: counted.then_some([0; BUCKETS]), ..Header::default() };
        let new = NewObject::plain(ObjectType::SPACE_MAP)
            .block_size(block)
            .bonus(ObjectType::SPACE_MAP_HEADER, header.encode());
        let object = mos.create(&self.tx, new)?;
        header.object = object.id();
        put_header(&object, &self.tx, &header);
        self.count_list(counted, 1)?;
        Ok(object.id())
    }

    fn count_list(&mut self, counted: bool, by: i64) -> Result<()> {
        match self.state.features.as_mut().filter(|_| counted) {
            Some(features) => Features::adjust(features, &self.tx, &features::SPACEMAP_HISTOGRAM, by),
            None => Ok(()),
        }
    }

    /// Frees a space map: the list of a leaf that leaves the pool, or of what a checkpoint kept.
    pub(crate) fn free_list(&mut self, list: ObjectId) -> Result<()> {
        let counted = crate::space_maps::header(&self.mos().objset, list)?.histogram.is_some();
        self.mos().free(&self.tx, list)?;
        self.count_list(counted, -1)
    }

    /// Removes the mark of the leaf from the configuration that it is resilvered or rebuilt.
    pub fn forget_resilver(&mut self, guid: u64) {
        let leaf: Option<&mut VdevConfig> = leaf_mut(&mut self.state.config.tree, guid);
        for mark in leaf.into_iter().flat_map(|leaf| [RESILVERED, REBUILT].map(|key| leaf.extra.remove(key)))
        {
            self.state.config_dirty |= mark.is_some();
        }
    }
}

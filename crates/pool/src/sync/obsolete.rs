//! Obsolete parts of the mappings of removed vdevs.
//!
//! From:   the allocator, which knows each block that was freed there.
//! To:     the space map that OpenZFS keeps of each removed vdev.
//! Source: docs/format/12-auxiliary-vdevs.md §5.8.

use dmu::zap;
use format::ObjectId;
use format::features;
use format::space_map::{Entry, Kind};
use format::zap::Value;

use crate::Result;
use crate::obsolete::{LAYOUT, MAP};
use crate::space_maps::{self, Form};
use crate::state::Syncing;

/// Bytes of one of its blocks.
const BLOCK: u32 = 128 << 10;

impl Syncing<'_> {
    /// Writes the segments that became obsolete since the last call.
    pub(super) fn write_obsolete(&mut self, pass: u32) -> Result<()> {
        self.note_freed_early()?;
        for (vdev, runs) in self.state.allocator.take_obsolete() {
            let enabled = |feature| self.state.features.as_ref().is_some_and(|all| all.is_enabled(feature));
            if !enabled(&features::OBSOLETE_COUNTS) {
                continue;
            }
            let two_words = enabled(&features::SPACEMAP_V2);
            let map = self.obsolete_map(vdev.0)?;
            let form = Form { layout: LAYOUT, two_words, pass };
            let entry = |(offset, run)| Entry { kind: Kind::Alloc, offset, run, vdev: None };
            let entries = runs.into_iter().map(entry).collect();
            space_maps::append(self.mos(), &self.tx, map, form, &[entries])?;
        }
        Ok(())
    }

    fn obsolete_map(&mut self, vdev: u32) -> Result<ObjectId> {
        let own = self.mos().object(self.top_zap(vdev)?)?;
        if let Some(map) = zap::lookup_u64(&own, MAP)? {
            return Ok(ObjectId(map));
        }
        let map = self.create_space_map(BLOCK)?;
        zap::insert(&own, &self.tx, MAP, &Value::from_u64(map.0))?;
        let features = self.state.features.as_mut().expect("an enabled feature was found in them");
        features.adjust(&self.tx, &features::OBSOLETE_COUNTS, 1)?;
        Ok(map)
    }
}

//! Sequential rebuilds that OpenZFS left unfinished: a resilver takes their place, which verifies every block.
//!
//! From:   the record in the ZAP of a top-level vdev; the leaves that are marked as being rebuilt.
//! To:     the same, which say that the rebuild was canceled, and that the leaves are being resilvered.
//! Source: docs/format/11-redundancy.md §7.

use dmu::zap;
use format::zap::Value;
use format::{ObjectId, features};

use crate::Result;
use crate::state::Syncing;
use crate::sync::missing::leaf_mut;

/// Key of the record in the ZAP of a top-level vdev.
const RECORD: &[u8] = b"org.openzfs:vdev_rebuild";
/// States in the record's first word.
const ACTIVE: u64 = 1;
const CANCELED: u64 = 2;
/// Word of the record with the time of the end.
const END_TIME: usize = 5;
/// Keys of a leaf that say since when it is rebuilt or resilvered.
const REBUILT: &str = "rebuild_txg";
const RESILVERED: &str = "resilver_txg";

impl Syncing<'_> {
    /// Ends sequential rebuilds: a resilver that begins now writes what they left.
    ///
    /// # Errors
    /// A record cannot be read or written.
    pub fn cancel_rebuilds(&mut self) -> Result<()> {
        let tops = self.state.config.tree.children.iter();
        let zaps: Vec<ObjectId> = tops.filter_map(|top| top.zap_top.filter(|id| id.0 != 0)).collect();
        for id in zaps {
            let object = self.mos().object(id)?;
            let Some(mut words) = zap::lookup(&object, RECORD)?.map(|value| value.to_u64s()) else {
                continue;
            };
            if words.first() != Some(&ACTIVE) || words.len() <= END_TIME {
                continue;
            }
            words[0] = CANCELED;
            words[END_TIME] = self.inner.host.clock.now().0;
            zap::update(&object, &self.tx, RECORD, &Value::from_u64s(&words))?;
            if let Some(features) =
                self.state.features.as_mut().filter(|f| f.is_active(&features::DEVICE_REBUILD))
            {
                features.adjust(&self.tx, &features::DEVICE_REBUILD, -1)?;
            }
        }
        let rebuilt: Vec<u64> = {
            let leaves = self.state.config.tree.leaves();
            leaves.filter(|leaf| leaf.extra.contains(REBUILT)).map(|leaf| leaf.guid.0).collect()
        };
        for guid in rebuilt {
            let Some(leaf) = leaf_mut(&mut self.state.config.tree, guid) else { continue };
            if let Some(since) = leaf.extra.remove(REBUILT) {
                leaf.extra.insert(RESILVERED, since);
                self.state.config_dirty = true;
            }
        }
        Ok(())
    }
}

//! Leaves whose resilver waits for the end of the one that is under way (feature `resilver_defer`).
//!
//! From:   `scan`, which knows what the resilver under way visits.
//! To:     the configuration in the MOS, for imports by OpenZFS and by this build.
//! Source: docs/format/11-redundancy.md §1.1, §6.5, §6.7.

use format::config::{RESILVER_DEFER, VdevConfig};
use format::features;
use format::nvlist::NvValue;

use crate::Result;
use crate::pool::Inner;
use crate::state::Syncing;
use crate::sync::missing::leaf_mut;

fn is_deferred(leaf: &VdevConfig) -> bool {
    leaf.extra.contains(RESILVER_DEFER)
}

impl Inner {
    /// Guids of the leaves whose resilver waits.
    #[must_use]
    pub fn deferred(&self) -> Vec<u64> {
        let info = self.info();
        info.config.tree.leaves().filter(|leaf| is_deferred(leaf)).map(|leaf| leaf.guid.0).collect()
    }
}

impl Syncing<'_> {
    /// Makes the resilver of these leaves wait. `false`: the pool has not enabled the feature.
    ///
    /// # Errors
    /// The features cannot be written.
    pub fn defer_resilver(&mut self, guids: &[u64]) -> Result<bool> {
        let is_first = !self.state.config.tree.leaves().any(is_deferred);
        let Some(features) = &mut self.state.features else { return Ok(false) };
        if !features.is_enabled(&features::RESILVER_DEFER) {
            return Ok(false);
        }
        if is_first && !guids.is_empty() {
            features.adjust(&self.tx, &features::RESILVER_DEFER, 1)?;
        }
        for guid in guids {
            if let Some(leaf) = leaf_mut(&mut self.state.config.tree, *guid) {
                leaf.extra.insert(RESILVER_DEFER, NvValue::Boolean);
                self.state.config_dirty = true;
            }
        }
        Ok(true)
    }

    /// Whether the resilver of a leaf waits.
    #[must_use]
    pub fn is_deferred(&self, guid: u64) -> bool {
        self.state.config.tree.leaves().any(|leaf| leaf.guid.0 == guid && is_deferred(leaf))
    }

    /// The resilver of no leaf waits any more. Returns whether one did.
    ///
    /// # Errors
    /// The features cannot be written.
    pub fn end_deferring(&mut self) -> Result<bool> {
        let waiting: Vec<u64> = {
            let leaves = self.state.config.tree.leaves();
            leaves.filter(|leaf| is_deferred(leaf)).map(|leaf| leaf.guid.0).collect()
        };
        if waiting.is_empty() {
            return Ok(false);
        }
        for guid in waiting {
            if let Some(leaf) = leaf_mut(&mut self.state.config.tree, guid) {
                leaf.extra.remove(RESILVER_DEFER);
            }
        }
        self.state.config_dirty = true;
        if let Some(features) =
            self.state.features.as_mut().filter(|f| f.is_active(&features::RESILVER_DEFER))
        {
            features.adjust(&self.tx, &features::RESILVER_DEFER, -1)?;
        }
        Ok(true)
    }
}

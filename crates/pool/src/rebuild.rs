//! Sequential rebuilds: new devices get their data in the order of places. The rebuild copies the space in use, and
//! does not look at blocks.
//!
//! From:   `tree_change`, which begins one with a device; `scan`, whose thread has it go on txg by txg; OpenZFS, which may have
//!         left one in the middle.
//! To:     the record in the ZAP of the top-level vdev; in the end, the lists of what the devices lack.
//! Source: docs/format/11-redundancy.md §7.
//!
//! The ranges that a txg copies are noted in the same txg: after a power cut the rebuild continues from the last txg on disk.
//! New blocks go to the new device, too, whether the rebuild has passed their place or not. A resilver that begins takes the
//! place of every rebuild.

use std::time::Instant;

use dmu::zap;
use format::config::{VdevConfig, VdevKind};
use format::rebuild::{KEY, Rebuild, RebuildState};
use format::zap::Value;
use format::{VdevId, features};
use storage::TopVdev;
use storage::allocator::Runs;

use crate::marks::{Passing, REBUILT, RESILVERED};
use crate::mos::Mos;
use crate::pool::{Inner, Pool};
use crate::state::Syncing;
use crate::sync::missing::leaf_mut;
use crate::{Error, Result};

/// The result of a part of the rebuilds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A part was copied, and there may be more.
    GoesOn,
    /// No rebuild is under way.
    Ended,
    /// All of one vdev is copied.
    Completed,
    /// No device needs the rebuild of one vdev any more.
    Canceled,
    /// A range cannot be read from the complete devices: a resilver must do the rest.
    Obstructed,
}

/// Whether devices of this top-level vdev can be rebuilt.
pub(crate) fn is_sequential(top: &VdevConfig) -> bool {
    top.kind.is_leaf() || matches!(top.kind, VdevKind::Mirror | VdevKind::Draid { .. })
}

/// The last rebuild of each top-level vdev that ever had one, by its id.
fn all(mos: &Mos, tree: &VdevConfig) -> Result<Vec<(u32, Rebuild)>> {
    let mut found = Vec::new();
    for top in &tree.children {
        let Some(id) = top.zap_top.filter(|id| id.0 != 0) else { continue };
        let Some(value) = zap::lookup(&*mos.object(id)?, KEY)? else { continue };
        match Rebuild::from_words(&value.to_u64s()) {
            Ok(rebuild) => found.push((top.id as u32, rebuild)),
            // If this fails, devices that miss data are resilvered.
            Err(error) => tracing::warn!(vdev = top.id, %error, "the state of a rebuild is passed over"),
        }
    }
    Ok(found)
}

impl Inner {
    /// The last sequential rebuild of each top-level vdev that ever had one, by its id, as of the last sync.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn rebuilds(&self) -> Result<Vec<(u32, Rebuild)>> {
        let tree = self.info().config.tree.clone();
        all(&self.mos, &tree)
    }

    /// Whether a rebuild is under way on disk.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn is_rebuilding(&self) -> Result<bool> {
        Ok(self.rebuilds()?.iter().any(|(_, rebuild)| rebuild.is_active()))
    }

    /// Whether a scrub follows when the last rebuild has ended.
    #[must_use]
    pub fn scrubs_rebuilt(&self) -> bool {
        self.groups.limits.scrubs_rebuilt.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Pool {
    /// The last sequential rebuild of each top-level vdev that ever had one, by its id.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn rebuilds(&self) -> Result<Vec<(u32, Rebuild)>> {
        self.inner.rebuilds()
    }
}

impl Syncing<'_> {
    /// Whether a rebuild is under way.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn is_rebuilding(&self) -> Result<bool> {
        Ok(self.rebuilding()?.is_some())
    }

    /// The first rebuild that is under way, and its vdev.
    fn rebuilding(&self) -> Result<Option<(u32, Rebuild)>> {
        let found = all(self.mos(), &self.state.config.tree)?;
        Ok(found.into_iter().find(|(_, rebuild)| rebuild.is_active()))
    }

    fn keep_rebuild(&self, vdev: u32, rebuild: &Rebuild) -> Result<()> {
        let object = self.mos().object(self.top_zap(vdev)?)?;
        zap::update(&object, &self.tx, KEY, &Value::from_u64s(&rebuild.to_words()))?;
        Ok(())
    }

    /// Refuses a rebuild where none can be.
    pub(crate) fn check_sequential(&self, index: usize) -> Result<()> {
        let top = &self.state.config.tree.children[index];
        let features = self.state.features.as_ref();
        if !is_sequential(top) || !features.is_some_and(|f| f.is_enabled(&features::DEVICE_REBUILD)) {
            return Err(Error::NotSequential);
        }
        self.top_zap(top.id as u32)?;
        let progress = self.inner.scrub.lock().progress.as_ref().map(|progress| progress.scan);
        if progress.is_some_and(|scan| scan.is_resilvering()) { Err(Error::Resilvering) } else { Ok(()) }
    }

    /// Begins a rebuild of the leaves of a top-level vdev that are marked so, or begins it anew for one more of them.
    pub(crate) fn begin_rebuild(&mut self, index: usize) -> Result<()> {
        let vdev = self.state.config.tree.children[index].id as u32;
        let before = all(self.mos(), &self.state.config.tree)?;
        let is_new = !before.iter().any(|(id, rebuild)| *id == vdev && rebuild.is_active());
        let top = &self.inner.storage.vdevs().tops()[index];
        top.leaves().for_each(|leaf| leaf.health.resilver_begins());
        let bounds = top.written().filter_map(|leaf| leaf.health.missing().bounds());
        let bounds = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (first, end) = bounds.ok_or(Error::Internal)?;
        let rebuild = Rebuild {
            state: RebuildState::Active,
            min_txg: format::Txg(first.0.saturating_sub(1)),
            max_txg: end,
            start_time: self.mos().now(),
            to_scan: self.allocated_on(vdev),
            ..Rebuild::default()
        };
        self.keep_rebuild(vdev, &rebuild)?;
        self.state.passing = None;
        if is_new {
            let features = self.state.features.as_mut().ok_or(Error::Internal)?;
            features.adjust(&self.tx, &features::DEVICE_REBUILD, 1)?;
        }
        self.log_rebuild(vdev, if is_new { "started" } else { "reset" })?;
        self.inner.happened("resilver_start", &[("resilver_type", "sequential")]);
        Ok(())
    }

    /// Records the result of the rebuild of a vdev in the history.
    fn log_rebuild(&self, vdev: u32, what: &str) -> Result<()> {
        let guid = self.state.config.tree.children[vdev as usize].guid;
        self.log_internal("rebuild", &format!("vdev_id={vdev} vdev_guid={} {what}", guid.0))
    }

    fn allocated_on(&self, vdev: u32) -> u64 {
        self.state.allocator.vdev_space(VdevId(vdev)).map_or(0, |space| space.allocated)
    }

    /// The leaves of a top-level vdev that are rebuilt.
    fn rebuilt_leaves(&self, vdev: u32) -> Vec<u64> {
        let marked = self.marked(vdev);
        let top = &self.inner.storage.vdevs().tops()[vdev as usize];
        let is_meant =
            |leaf: &&storage::Leaf| marked.contains(&leaf.guid) && !leaf.health.missing().is_empty();
        top.written().filter(is_meant).map(|leaf| leaf.guid).collect()
    }

    fn marked(&self, vdev: u32) -> Vec<u64> {
        let top = self.state.config.tree.children.get(vdev as usize);
        let leaves = top.into_iter().flat_map(VdevConfig::leaves);
        leaves.filter(|leaf| leaf.extra.contains(REBUILT)).map(|leaf| leaf.guid.0).collect()
    }

    /// Copies the next part of a rebuild, about `bytes` of the space in use.
    ///
    /// # Errors
    /// The MOS cannot be read; a device that the pool needs refuses.
    pub fn rebuild_some(&mut self, bytes: u64) -> Result<Step> {
        let Some((vdev, mut rebuild)) = self.rebuilding()? else { return Ok(Step::Ended) };
        let targets = self.rebuilt_leaves(vdev);
        if targets.is_empty() {
            self.end_rebuild(vdev, rebuild, RebuildState::Canceled)?;
            return Ok(Step::Canceled);
        }
        // The blocks that this txg has written so far must be on their devices before they are read.
        self.writer.drain()?;
        let began = Instant::now();
        let ranges = self.next_in_use(vdev, rebuild.last_offset, bytes)?;
        let Some((last, len)) = ranges.last() else {
            self.empty_lists_of(vdev, &rebuild, &targets);
            self.end_rebuild(vdev, rebuild, RebuildState::Complete)?;
            return Ok(Step::Completed);
        };
        let rebuilt = self.inner.storage.rebuild(vdev, &targets, &ranges)?;
        let scanned: u64 = ranges.iter().map(|(_, len)| len).sum();
        rebuild.scan_ms += u64::try_from(began.elapsed().as_millis()).unwrap_or(0);
        rebuild.errors += rebuilt.unreadable;
        if rebuilt.unreadable == 0 {
            rebuild.last_offset = last + len;
            rebuild.scanned += scanned;
            rebuild.issued += scanned;
            rebuild.rebuilt += rebuilt.written;
        }
        self.keep_rebuild(vdev, &rebuild)?;
        Ok(if rebuilt.unreadable == 0 { Step::GoesOn } else { Step::Obstructed })
    }

    /// The ranges in use from `from` on, about `bytes` of them, as (offset, length).
    fn next_in_use(&mut self, vdev: u32, from: u64, bytes: u64) -> Result<Runs> {
        let inner = self.inner;
        let top = &inner.storage.vdevs().tops()[vdev as usize];
        let (mut found, mut left) = (Runs::new(), bytes);
        // A metaslab of draid may end a little behind its nominal end.
        let first = (from >> top.metaslab_shift).saturating_sub(1);
        // All metaslabs before the present one are copied.
        let passed = self.state.passing.filter(|passing| passing.vdev == vdev);
        let first = first.max(passed.map_or(0, |passing| passing.metaslab));
        let metaslabs = (first..top.metaslab_count()).filter(|metaslab| top.metaslab(*metaslab).end > from);
        for metaslab in metaslabs {
            let runs = self.runs_in_use(VdevId(vdev), metaslab)?;
            let end = self.end_of(vdev, metaslab, &runs);
            for (start, len) in runs {
                let (start, end) = (start.max(from), (start + len).min(end));
                if start >= end {
                    continue;
                }
                let len = whole_stripes(top, start, (end - start).min(left));
                found.push((start, len));
                left = left.saturating_sub(len);
                if left == 0 {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// The end of the space in use that a rebuild in this metaslab copies.
    fn end_of(&mut self, vdev: u32, metaslab: u64, runs: &Runs) -> u64 {
        match self.state.passing {
            Some(passing) if (passing.vdev, passing.metaslab) == (vdev, metaslab) => passing.end,
            _ => {
                let end = runs.last().map_or(0, |(start, len)| start + len);
                self.state.passing = Some(Passing { vdev, metaslab, end });
                end
            }
        }
    }

    /// These leaves now have all that they lacked when the rebuild began. This
    /// includes blocks that only a checkpoint reaches, since they are in use, too.
    fn empty_lists_of(&mut self, vdev: u32, rebuild: &Rebuild, targets: &[u64]) {
        let top = &self.inner.storage.vdevs().tops()[vdev as usize];
        let whole: Vec<storage::Leaf> = top
            .written()
            .filter(|leaf| targets.contains(&leaf.guid))
            // A leaf that was away meanwhile misses more, and is resilvered.
            .filter(|leaf| leaf.health.missing().bounds().is_none_or(|(_, end)| end <= rebuild.max_txg))
            .cloned()
            .collect();
        for leaf in whole {
            leaf.health.resilvered_below(rebuild.max_txg);
            if leaf.health.missing().is_empty() {
                self.forget_resilver(leaf.guid);
            }
        }
    }

    /// Records that a rebuild has ended. Leaves that still miss data are resilvered from now on.
    fn end_rebuild(&mut self, vdev: u32, mut rebuild: Rebuild, state: RebuildState) -> Result<()> {
        (rebuild.state, rebuild.end_time) = (state, self.mos().now());
        self.keep_rebuild(vdev, &rebuild)?;
        if let Some(features) =
            self.state.features.as_mut().filter(|f| f.is_active(&features::DEVICE_REBUILD))
        {
            features.adjust(&self.tx, &features::DEVICE_REBUILD, -1)?;
        }
        for guid in self.marked(vdev) {
            let Some(leaf) = leaf_mut(&mut self.state.config.tree, guid) else { continue };
            if let Some(since) = leaf.extra.remove(REBUILT) {
                leaf.extra.insert(RESILVERED, since);
                self.state.config_dirty = true;
            }
        }
        self.log_rebuild(vdev, if state == RebuildState::Complete { "complete" } else { "canceled" })?;
        self.inner.happened("resilver_finish", &[("resilver_type", "sequential")]);
        Ok(())
    }

    /// Ends sequential rebuilds: a resilver that begins now writes the rest.
    ///
    /// # Errors
    /// A record cannot be read or written.
    pub fn cancel_rebuilds(&mut self) -> Result<()> {
        while let Some((vdev, rebuild)) = self.rebuilding()? {
            self.end_rebuild(vdev, rebuild, RebuildState::Canceled)?;
        }
        Ok(())
    }
}

/// So many bytes at `start`, extended to whole stripes.
fn whole_stripes(top: &TopVdev, start: u64, len: u64) -> u64 {
    (start + len).next_multiple_of(top.unit()) - start
}

//! A mapping of a removed vdev of which much is obsolete is written anew, without the entries that nothing refers to.
//!
//! From:   the mapping, its counts and its space map of obsolete parts (`obsolete.rs`).
//! To:     another mapping in the MOS, which grows with each txg and takes the place of the old one when it is complete.
//! Source: docs/format/12-auxiliary-vdevs.md §5.9.
//!
//! In memory the old mapping stays until the pool is closed: readers of an earlier txg find blocks with it.

use std::sync::atomic::Ordering;

use dmu::zap;
use format::ObjectId;
use format::config::{VdevConfig, VdevKind};
use format::features;

use crate::evacuation::{ENTRY, MAPPING, Objects, mapped};
use crate::mos::DIRECTORY;
use crate::obsolete::{Condensed, Condensing, MAP};
use crate::state::Syncing;
use crate::{Error, Result, space_maps};

/// Percent of a mapping that are obsolete, from which on it is condensed.
const OBSOLETE_MIN_PERCENT: u128 = 25;
/// Bytes of the space map of obsolete parts, from which on the mapping is condensed in any case.
const MAP_MAX: u64 = 1 << 30;

impl Syncing<'_> {
    /// Continues to condense a mapping, or begins with one that should be condensed.
    pub(super) fn condense(&mut self) -> Result<()> {
        match self.state.condensing.take() {
            Some(it) => self.condense_more(it),
            None => self.begin_condensing(),
        }
    }

    fn begin_condensing(&mut self) -> Result<()> {
        // The blocks of a checkpoint are found with the mapping of its time; the checkpoint goes first.
        if self.has_checkpoint() {
            return Ok(());
        }
        let moved = self.state.config.tree.children.iter().filter(|top| top.kind == VdevKind::Indirect);
        let mut found = None;
        for top in moved {
            if let Some(map) = self.worth_condensing(top)? {
                found = Some((top.clone(), map));
                break;
            }
        }
        let Some((vdev, map)) = found else { return Ok(()) };
        let (mos, features) = (self.mos(), self.state.features.as_mut().ok_or(Error::Internal)?);
        let counts = features.is_enabled(&features::OBSOLETE_COUNTS);
        let (mapping, counts) = Objects::create_mapping(mos, &self.tx, counts)?;
        if counts.is_some() {
            features.adjust(&self.tx, &features::OBSOLETE_COUNTS, 1)?;
        }
        zap::remove(&mos.object(self.top_zap(vdev.id as u32)?)?, &self.tx, MAP)?;
        let condensed = Condensed { vdev: vdev.id, map, mapping };
        condensed.write(mos, &self.tx)?;
        self.state.condensing = Some(Condensing::load(mos, condensed, &vdev)?);
        Ok(())
    }

    /// The space map of obsolete parts of a vdev whose mapping should be condensed.
    fn worth_condensing(&self, vdev: &VdevConfig) -> Result<Option<ObjectId>> {
        let Some(own) = vdev.zap_top.filter(|own| own.0 != 0) else { return Ok(None) };
        let mos = self.mos();
        let map = zap::lookup_u64(&*mos.object(own)?, MAP)?;
        let Some(map) = map.map(ObjectId) else { return Ok(None) };
        let header = space_maps::header(&mos.objset, map)?;
        let (bytes, count) = mapped(mos, vdev)?;
        let obsolete = u128::from(header.alloc.max(0).unsigned_abs()) * 100;
        let least = self.inner.groups.limits.condense_min_mapping.load(Ordering::Relaxed);
        let is_sparse = bytes > 0 && obsolete >= OBSOLETE_MIN_PERCENT * u128::from(bytes);
        let is_large = count.saturating_mul(ENTRY as u64) > least;
        Ok(Some(map).filter(|_| is_sparse && is_large || header.length >= MAP_MAX))
    }

    /// Writes the next entries that are still referenced.
    fn condense_more(&mut self, mut it: Condensing) -> Result<()> {
        let at_once = self.inner.groups.limits.condensed_at_once.load(Ordering::Relaxed) as usize;
        let kept = it.take(at_once);
        it.objects.append_entries(self.mos(), &self.tx, &kept)?;
        match it.is_complete() {
            true => self.end_condensing(&it),
            false => {
                self.state.condensing = Some(it);
                Ok(())
            }
        }
    }

    /// The new mapping is complete: it takes the place of the old one.
    fn end_condensing(&mut self, it: &Condensing) -> Result<()> {
        let Condensed { vdev, map, mapping } = it.condensed;
        let (mos, index) = (self.mos(), vdev as usize);
        let old = Objects::of(mos, &self.state.config.tree.children[index])?;
        mos.free(&self.tx, old.mapping)?;
        let mut counted = 0;
        if let Some(counts) = old.counts {
            mos.free(&self.tx, counts)?;
            counted += 1;
        }
        self.free_list(map)?;
        counted += 1;
        let features = self.state.features.as_mut().ok_or(Error::Internal)?;
        features.adjust(&self.tx, &features::OBSOLETE_COUNTS, -counted)?;
        zap::remove(&mos.object(DIRECTORY)?, &self.tx, Condensed::KEY.as_bytes())?;
        self.state.config.tree.children[index].extra.insert(MAPPING, mapping.0);
        self.state.config_dirty = true;
        Ok(())
    }
}

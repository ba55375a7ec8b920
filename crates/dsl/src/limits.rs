//! Limits of datasets: checks of quotas and reservations, and counts of file systems and snapshots below a directory.
//!
//! Source: docs/format/06-mos-dsl.md §3, §8.3, §8.5, §9.

use dmu::zap;
use format::features;
use format::zap::Value;
use format::{ObjectId, ObjectType};

use crate::change::Change;
use crate::mos::Mos;
use crate::promises::{self, charged_above};
use crate::props::{self, PropertyError};
use crate::room::Reach;
use crate::{Error, Result, available, tree};

/// Properties that limit or reserve bytes. They are set on existing datasets, never during creation.
pub const SPACE: [&str; 4] = ["quota", "refquota", "reservation", "refreservation"];

/// File systems below a directory.
const FILESYSTEMS: &str = "com.joyent:filesystem_count";
/// Snapshots of a directory's dataset and of all below.
const SNAPSHOTS: &str = "com.joyent:snapshot_count";

/// Numbers of file systems and snapshots below a directory, if they are stored.
pub fn counts(mos: &Mos, dir: ObjectId) -> Result<Option<[u64; 2]>> {
    let object = mos.object(dir)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let Some(filesystems) = zap::lookup_u64(&object, FILESYSTEMS.as_bytes())? else { return Ok(None) };
    let snapshots = zap::lookup_u64(&object, SNAPSHOTS.as_bytes())?.unwrap_or(0);
    Ok(Some([filesystems, snapshots]))
}

impl Change<'_> {
    /// Refuses a quota below the used or reserved bytes, and a reservation above the available bytes. `given` are properties
    /// that the same change sets before this one.
    pub fn check_limit(&self, dir_id: ObjectId, name: &str, bytes: u64, given: &[(&str, u64)]) -> Result<()> {
        let (mos, view) = (self.mos(), &self.view);
        let dir = mos.dir(dir_id)?;
        let below_use = Err(Error::Property(PropertyError::BelowUse));
        let above_space = Err(Error::Property(PropertyError::AboveSpace));
        let now = |name: &str, stored: u64| {
            let given = given.iter().rev().find(|(given, _)| *given == name);
            given.map_or(stored, |(_, bytes)| *bytes)
        };
        let own = match dir.head_dataset {
            ObjectId(0) => None,
            head => Some(promises::own(mos, dir_id, head)?),
        };
        // A reservation of the dataset itself counts as used.
        let more_used = own.as_ref().map_or(0, |own| {
            let promised = now("refreservation", own.refreservation);
            promised.max(own.unique) as i64 - own.unique.max(own.refreservation) as i64
        });
        let used = dir.used_bytes.saturating_add_signed(more_used);
        let (quota, reserved) = (now("quota", dir.quota), now("reservation", dir.reserved));
        match (name, own) {
            ("quota", _) if bytes != 0 && (bytes < used || bytes < reserved) => below_use,
            ("reservation", _) => {
                let available = match dir.parent {
                    ObjectId(0) => view.room.usable(Reach::Limits).saturating_sub(dir.used_bytes),
                    parent => available::dir_available(view, parent)?,
                };
                let more = bytes.max(dir.used_bytes).saturating_sub(dir.used_bytes.max(dir.reserved));
                let over_quota = quota > 0 && bytes > quota;
                if more > 0 && (more > available || over_quota) { above_space } else { Ok(()) }
            }
            ("refquota", Some(own)) => {
                let promised = now("refreservation", own.refreservation);
                let too_small = bytes != 0 && (bytes < own.referenced || bytes < promised);
                if too_small { below_use } else { Ok(()) }
            }
            ("refreservation", Some(own)) => {
                let more = bytes.max(own.unique).saturating_sub(own.unique.max(own.refreservation));
                let refquota = now("refquota", own.refquota);
                let over = |quota: u64, bytes: u64| quota > 0 && bytes > quota;
                let over_quota = over(refquota, bytes) || over(quota, dir.used_bytes.saturating_add(more));
                let above = more > 0 && (more > available::dir_available(view, dir_id)? || over_quota);
                if above { above_space } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Refuses to move a directory, whose parent is charged `bytes` for it, if quotas at the target do not allow it.
    pub(crate) fn check_move(&self, from: ObjectId, to: ObjectId, bytes: u64) -> Result<()> {
        let mos = self.mos();
        let (old, new) = (tree::chain(mos, from)?, tree::chain(mos, to)?);
        let common = *old.iter().find(|id| new.contains(id)).ok_or_else(|| tree::tangled(to))?;
        let mut freed = bytes;
        for id in old.into_iter().take_while(|id| *id != common) {
            let dir = mos.dir(id)?;
            freed = charged_above(dir.reserved, dir.used_bytes.saturating_sub(freed), freed);
        }
        let mut taken = bytes;
        for id in new.into_iter().take_while(|id| *id != common) {
            let dir = mos.dir(id)?;
            if dir.quota > 0 && dir.used_bytes.saturating_add(taken) > dir.quota {
                return Err(Error::NoSpace);
            }
            taken = charged_above(dir.reserved, dir.used_bytes, taken);
        }
        if taken > freed && taken - freed > available::dir_available(&self.view, common)? {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Starts the counts of a directory before a limit on the number of file systems or snapshots is set.
    pub(crate) fn start_counting(&mut self, dir: ObjectId, value: Option<&props::Value>) -> Result<()> {
        if !matches!(value, Some(props::Value::Number(limit)) if *limit != props::UNLIMITED) {
            return Ok(());
        }
        let features = self.features.as_mut().filter(|f| f.is_enabled(&features::FILESYSTEM_LIMITS));
        let features = features.ok_or(Error::Property(PropertyError::NeedsFeature))?;
        if !features.is_active(&features::FILESYSTEM_LIMITS) {
            features.adjust(self.tx, &features::FILESYSTEM_LIMITS, 1)?;
        }
        self.count_below(dir, tree::DEPTH_MAX).map(drop)
    }

    /// Whether file systems and snapshots are counted in this pool.
    fn is_counting(&self) -> bool {
        self.features.as_ref().is_some_and(|f| f.is_active(&features::FILESYSTEM_LIMITS))
    }

    /// Stores the counts of file systems and snapshots of `dir` and below, where they are missing. Descends at most `depth`
    /// levels.
    fn count_below(&mut self, dir: ObjectId, depth: usize) -> Result<[u64; 2]> {
        let depth = depth.checked_sub(1).ok_or_else(|| tree::tangled(dir))?;
        let mos = self.mos();
        if let Some(known) = counts(mos, dir)? {
            return Ok(known);
        }
        let mut sums = [0, 0];
        for (_, child) in tree::children(mos, dir)? {
            let [filesystems, snapshots] = self.count_below(child, depth)?;
            sums[0] += filesystems + 1;
            sums[1] += snapshots;
        }
        sums[1] += own_snapshots(mos, dir)?;
        self.note_counts(dir, sums)?;
        Ok(sums)
    }

    fn note_counts(&mut self, dir: ObjectId, counts: [u64; 2]) -> Result<()> {
        self.zapify(dir)?;
        let object = self.mos().object(dir)?;
        for (key, count) in [FILESYSTEMS, SNAPSHOTS].into_iter().zip(counts) {
            zap::update(&object, self.tx, key.as_bytes(), &Value::from_u64(count))?;
        }
        Ok(())
    }

    /// Counts the new file system `dir` below `parent` in all directories above that keep counts.
    pub(crate) fn count_new_dir(&mut self, dir: ObjectId, parent: ObjectId) -> Result<()> {
        if self.is_counting() {
            self.note_counts(dir, [0, 0])?;
            self.adjust_counts(parent, [1, 0])?;
        }
        Ok(())
    }

    /// Counts one snapshot `leaf` of `dir` more or less. Temporary snapshots do not count.
    pub(crate) fn count_snapshot(&mut self, dir: ObjectId, leaf: &str, by: i64) -> Result<()> {
        if leaf.starts_with('%') { Ok(()) } else { self.adjust_counts(dir, [0, by]) }
    }

    /// Adds to the counts of file systems and snapshots of `dir` and of the directories above that keep counts.
    pub(crate) fn adjust_counts(&mut self, dir: ObjectId, by: [i64; 2]) -> Result<()> {
        if !self.is_counting() {
            return Ok(());
        }
        let mos = self.mos();
        for id in tree::chain(mos, dir)? {
            let Some(before) = counts(mos, id)? else { break };
            let after = [before[0].wrapping_add_signed(by[0]), before[1].wrapping_add_signed(by[1])];
            self.note_counts(id, after)?;
        }
        Ok(())
    }

    /// Numbers of file systems and snapshots that move with `dir` to a new parent.
    pub(crate) fn counts_to_move(&mut self, dir: ObjectId, new_parent: ObjectId) -> Result<[i64; 2]> {
        if !self.is_counting() {
            return Ok([0, 0]);
        }
        let mos = self.mos();
        let known = match counts(mos, new_parent)? {
            // If a directory keeps counts, all directories below it do.
            Some(_) => Some(self.count_below(dir, tree::DEPTH_MAX)?),
            None => counts(mos, dir)?,
        };
        let [filesystems, snapshots] = known.unwrap_or([0, 0]);
        Ok([filesystems as i64 + 1, snapshots as i64])
    }
}

/// Snapshots of a directory's head; temporary ones, whose names begin with `%`, do not count.
pub fn own_snapshots(mos: &Mos, dir: ObjectId) -> Result<u64> {
    let head = mos.dir(dir)?.head_dataset;
    if head.0 == 0 {
        return Ok(0);
    }
    let names = mos.object(mos.dataset(head)?.snapnames_zap)?;
    let mut count = 0;
    for entry in zap::entries(&names) {
        count += u64::from(!entry?.name.starts_with(b"%"));
    }
    Ok(count)
}

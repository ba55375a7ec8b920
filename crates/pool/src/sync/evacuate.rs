//! A vdev that is being removed: with each txg a part of it is copied to the others, until it can leave.
//!
//! From:   the record and the objects of the removal (`evacuation.rs`).
//! To:     the other vdevs; the mapping in the MOS, which grows with the txg that copied; in the end the configuration, in which the
//!         vdev is one that leads to the others.
//! Source: docs/format/12-auxiliary-vdevs.md §5.2 to §5.6.
//!
//! The copies, frees and records of a txg all count once its uberblock is written: after a power cut the removal continues
//! from the last txg on disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dmu::zap;
use format::blkptr::Dva;
use format::config::{TopConfig, VdevConfig, VdevKind};
use format::zap::Value;
use format::{Guid, VdevId, features};
use storage::allocator::{AllocError, Class, Runs, Which};
use storage::{Move, ReadError, Shape, TopVdev, Vdevs, WriteError};

use crate::evacuation::{
    BEFORE, BIRTHS, Evacuating, IS_REMOVED, MAPPING, NON_ALLOCATING, Objects, PIECE_MAX, Record, Stage,
    non_allocating,
};
use crate::features::Features;
use crate::mos::DIRECTORY;
use crate::obsolete::{IS_PRECISE, MAP};
use crate::state::Syncing;
use crate::{Error, Result};

/// A gap of at most so many bytes between ranges in use does not end an entry.
const GAP_MAX: u64 = 32 << 10;

/// The reason why a removal is cancelled.
enum Obstacle {
    /// The user asked for it.
    Asked,
    /// A range of the vdev cannot be read.
    Unreadable(ReadError),
    /// The others have no room for the rest.
    NoSpace,
}

/// A range that becomes one entry of the mapping: it begins and ends with something in use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    /// The ranges of it in use, as (offset, length).
    runs: Runs,
}

impl Piece {
    /// The first piece at or behind `from` of what is in use, of `max` bytes at most.
    fn next(in_use: &[(u64, u64)], from: u64, max: u64) -> Option<Piece> {
        let first = in_use.partition_point(|(start, len)| start + len <= from);
        let start = in_use.get(first)?.0.max(from);
        let mut piece = Piece { start, end: start, runs: Runs::new() };
        for (at, len) in &in_use[first..] {
            let (at, end) = ((*at).max(from), (at + len).min(start + max));
            if at >= end || at > piece.end + GAP_MAX {
                break;
            }
            piece.runs.push((at, end - at));
            piece.end = end;
        }
        Some(piece)
    }

    const fn len(&self) -> u64 {
        self.end - self.start
    }

    fn used(&self) -> u64 {
        self.runs.iter().map(|(_, len)| len).sum()
    }

    /// The ranges between its beginning and its end that are not in use, as (offset, length).
    fn gaps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let between = self.runs.windows(2).map(|two| (two[0].0 + two[0].1, two[1].0));
        between.map(|(start, end)| (start, end - start))
    }
}

impl Syncing<'_> {
    /// Copies the next part of the vdev that is being removed, if there is one, and has it leave when all is copied.
    pub(super) fn evacuate(&mut self) -> Result<()> {
        if self.inner.groups.limits.suspends_removal() {
            return Ok(());
        }
        let Some(mut it) = self.state.evacuating.take() else { return Ok(()) };
        // The vdevs may be replaced, which needs that no write is under way.
        self.writer.drain()?;
        let mut copied = Vec::new();
        let stopped = self.copy_some(&mut it, &mut copied)?;
        if let Some(obstacle) = stopped {
            return self.give_up_evacuation(it, &obstacle);
        }
        it.objects.append(self.mos(), &self.tx, &copied)?;
        if copied.is_empty() {
            return self.end_evacuation(it);
        }
        it.record.write(self.mos(), &self.tx)?;
        self.state.evacuating = Some(it);
        Ok(())
    }

    /// Copies about as much as one txg should. Nothing is left to be copied where nothing was.
    fn copy_some(&mut self, it: &mut Evacuating, copied: &mut Vec<(Move, u32)>) -> Result<Option<Obstacle>> {
        let top = self.inner.storage.vdevs().tops()[it.vdev().0 as usize].clone();
        let mut left = self.inner.groups.limits.copied_at_once.load(Ordering::Relaxed);
        let piece_max = left.next_multiple_of(1 << top.ashift).min(PIECE_MAX);
        for metaslab in it.next >> top.metaslab_shift..top.metaslab_count() {
            let runs = self.runs_in_use(it.vdev(), metaslab)?;
            let mut max = piece_max;
            while let Some(piece) = Piece::next(&runs, it.next, max) {
                match self.copy_piece(&top, &piece)? {
                    Ok(entry) => copied.push(entry),
                    Err(Obstacle::NoSpace) if piece.len() > 1 << top.ashift => {
                        max = (piece.len() / 2).next_multiple_of(1 << top.ashift);
                        continue;
                    }
                    Err(obstacle) => return Ok(Some(obstacle)),
                }
                it.next = piece.end;
                it.record.copied += piece.used();
                left = left.saturating_sub(piece.used());
                if left == 0 {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// The ranges of a metaslab in use, as (offset, length).
    pub(crate) fn runs_in_use(&mut self, vdev: VdevId, metaslab: u64) -> Result<Runs> {
        self.with_space(|allocator, source| allocator.runs(vdev, (metaslab as u32, Which::InUse), source))
            .map_err(Error::from)
    }

    /// How many metaslabs of a vdev begin before `end`.
    fn metaslabs_below(&self, vdev: VdevId, end: u64) -> u64 {
        end.div_ceil(1 << self.inner.storage.vdevs().tops()[vdev.0 as usize].metaslab_shift)
    }

    /// Copies a piece to free space that holds all of it; the space of its gaps is freed.
    fn copy_piece(
        &mut self,
        top: &TopVdev,
        piece: &Piece,
    ) -> Result<std::result::Result<(Move, u32), Obstacle>> {
        let (class, len, txg) = (top.class, piece.len(), self.txg);
        let to = match self.with_space(|allocator, source| allocator.allocate_like(class, len, txg, source)) {
            Ok(to) => to,
            Err(AllocError::NoSpace { .. }) => return Ok(Err(Obstacle::NoSpace)),
            Err(error) => return Err(error.into()),
        };
        let part = |offset: u64, len| Dva { offset: to.offset + (offset - piece.start), asize: len, ..to };
        for (offset, len) in &piece.runs {
            let from = Dva { vdev: VdevId(top.id), offset: *offset, asize: *len, gang: false };
            match self.writer.copy(from, part(*offset, *len), *len) {
                Ok(()) => {}
                Err(WriteError::Read(error)) => {
                    // Some of it is on its way already: nothing else is placed there in this txg.
                    self.state.allocator.free(to, txg).map_err(not_allocated)?;
                    return Ok(Err(Obstacle::Unreadable(error)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        for (offset, len) in piece.gaps() {
            self.state.allocator.give_back(part(offset, len), txg);
        }
        let entry = Move { from: piece.start, to };
        self.state.allocator.note_copied(entry);
        Ok(Ok((entry, (piece.len() - piece.used()) as u32)))
    }

    /// Begins the removal of a vdev, on which nothing new was placed since the last txg.
    pub(crate) fn begin_evacuation(&mut self, id: u32) -> Result<()> {
        let index = id as usize;
        let before = Record::read(self.mos())?.and_then(|record| record.before);
        let features = self.state.features.as_mut().ok_or(Error::NotRemovable)?;
        features.adjust(&self.tx, &features::DEVICE_REMOVAL, 1)?;
        let counts = features.is_enabled(&features::OBSOLETE_COUNTS);
        if counts {
            // One for the mark, one for the counts.
            features.adjust(&self.tx, &features::OBSOLETE_COUNTS, 2)?;
            let own = self.mos().object(self.top_zap(id)?)?;
            zap::insert(&own, &self.tx, IS_PRECISE, &Value::from_u64(1))?;
        }
        let objects = Objects::create(self.mos(), &self.tx, counts)?;
        let allocated = self.state.allocator.vdev_space(VdevId(id)).map_or(0, |space| space.allocated);
        let record = Record {
            stage: Stage::Running,
            vdev: id.into(),
            before,
            begun: self.mos().now(),
            ended: 0,
            to_copy: allocated,
            copied: 0,
        };
        record.write(self.mos(), &self.tx)?;
        self.rewrite_directory()?;
        self.free_lists_of(index)?;
        let vdev = &mut self.state.config.tree.children[index];
        vdev.extra.insert(IS_REMOVED, 1u64);
        vdev.extra.insert(NON_ALLOCATING, 1u64);
        vdev.extra.insert(MAPPING, objects.mapping.0);
        vdev.extra.insert(BIRTHS, objects.births.0);
        self.state.config_dirty = true;
        self.note_non_allocating();
        self.state.allocator.begin_evacuation(VdevId(id), Default::default());
        self.state.evacuating = Some(Evacuating { record, objects, next: 0 });
        Ok(())
    }

    /// Writes every block of the object directory anew: it is read before the mappings are.
    fn rewrite_directory(&self) -> Result<()> {
        let directory = self.mos().object(DIRECTORY)?;
        for blkid in 0..=directory.max_blkid() {
            directory.put_block(&self.tx, blkid, directory.block(blkid)?);
        }
        Ok(())
    }

    /// Frees the lists of missed txgs of the leaves of a vdev: they missed nothing, and nothing more is written to them.
    fn free_lists_of(&mut self, index: usize) -> Result<()> {
        let leaves: Vec<VdevConfig> = self.state.config.tree.children[index].leaves().cloned().collect();
        for leaf in leaves {
            if let Some(list) = leaf.dtl.filter(|list| list.0 != 0) {
                self.free_list(list)?;
            }
            self.state.listed.remove(&leaf.guid.0);
            let own = super::missing::leaf_mut(&mut self.state.config.tree, leaf.guid.0);
            own.into_iter().for_each(|own| own.dtl = None);
        }
        Ok(())
    }

    fn note_non_allocating(&self) {
        self.inner.accounts.close_vdevs(non_allocating(&self.state.config));
    }

    /// Refuses changes of the vdevs while one is being removed.
    pub(crate) fn check_not_removing(&self) -> Result<()> {
        if self.state.evacuating.is_some() { Err(Error::Removing) } else { Ok(()) }
    }

    /// Copies the blocks that devices may miss of the copies once more. No resilver finds them, because their pointers
    /// lead to the vdev that is being removed. `false` if a block cannot be read.
    ///
    /// # Errors
    /// A device that the pool needs refuses a write.
    pub fn copy_again(&mut self) -> Result<bool> {
        let Some(vdev) = self.state.evacuating.as_ref().map(Evacuating::vdev) else { return Ok(true) };
        let copies = self.state.allocator.evacuated().cloned().unwrap_or_default();
        let tops = self.inner.storage.vdevs().tops();
        let may_lack = |top: &TopVdev| top.written().any(|leaf| !leaf.health.missing().is_empty());
        for metaslab in 0..self.metaslabs_below(vdev, copies.end()) {
            let runs = self.runs_in_use(vdev, metaslab)?;
            for Move { from, to } in runs.iter().flat_map(|(offset, len)| copies.parts(*offset, *len)) {
                let from = Dva { vdev, offset: from, asize: to.asize, gang: false };
                if !may_lack(&tops[to.vdev.0 as usize]) {
                    continue;
                }
                match self.writer.copy(from, to, to.asize) {
                    Ok(()) => {}
                    Err(WriteError::Read(_)) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.writer.drain()?;
        Ok(true)
    }

    /// Cancels the running removal.
    pub(crate) fn cancel_evacuation(&mut self) -> Result<()> {
        let it = self.state.evacuating.take().ok_or(Error::NotRemoving)?;
        self.give_up_evacuation(it, &Obstacle::Asked)
    }

    /// The vdev stays: frees the copies of blocks that are still in use on it, and the records about them.
    fn give_up_evacuation(&mut self, mut it: Evacuating, why: &Obstacle) -> Result<()> {
        let vdev = it.vdev();
        match why {
            Obstacle::Asked => {}
            Obstacle::Unreadable(error) => tracing::error!(vdev = vdev.0, %error, "the vdev is not removed"),
            Obstacle::NoSpace => tracing::error!(vdev = vdev.0, "the vdev is not removed: out of space"),
        }
        it.record.copied += self.state.allocator.take_freed_early();
        let copies = self.state.allocator.give_up_evacuation().expect("a vdev is being removed");
        for metaslab in 0..self.metaslabs_below(vdev, copies.end()) {
            let runs = self.runs_in_use(vdev, metaslab)?;
            for copy in runs.iter().flat_map(|(offset, len)| copies.parts(*offset, *len)) {
                self.state.allocator.free(copy.to, self.txg).map_err(not_allocated)?;
            }
        }
        self.forget_copies(&it)?;
        (it.record.stage, it.record.ended) = (Stage::Canceled, self.mos().now());
        it.record.write(self.mos(), &self.tx)?;
        let own = &mut self.state.config.tree.children[vdev.0 as usize].extra;
        for key in [IS_REMOVED, NON_ALLOCATING, MAPPING, BIRTHS] {
            own.remove(key);
        }
        self.state.config_dirty = true;
        self.note_non_allocating();
        Ok(())
    }

    /// Frees the records of the copies in the MOS.
    fn forget_copies(&mut self, it: &Evacuating) -> Result<()> {
        let own = self.mos().object(self.top_zap(it.vdev().0)?)?;
        let mut counted = i64::from(it.objects.counts.is_some());
        if zap::lookup_u64(&own, IS_PRECISE)?.is_some() {
            zap::remove(&own, &self.tx, IS_PRECISE)?;
            counted += 1;
        }
        if let Some(map) = zap::lookup_u64(&own, MAP)? {
            self.free_list(format::ObjectId(map))?;
            zap::remove(&own, &self.tx, MAP)?;
            counted += 1;
        }
        it.objects.free(self.mos(), &self.tx)?;
        let features = self.state.features.as_mut().ok_or(Error::Internal)?;
        if counted > 0 {
            features.adjust(&self.tx, &features::OBSOLETE_COUNTS, -counted)?;
        }
        Features::adjust(features, &self.tx, &features::DEVICE_REMOVAL, -1)
    }

    /// All is copied: the vdev leaves, and blocks on it are found by the mapping from now on.
    fn end_evacuation(&mut self, mut it: Evacuating) -> Result<()> {
        let (id, index) = (it.vdev().0, it.vdev().0 as usize);
        let copies = self.state.allocator.end_evacuation();
        let mut tops = self.inner.storage.vdevs().tops().to_vec();
        self.state.leaving.extend(tops[index].leaves().map(|leaf| (self.txg, leaf.clone())));
        let config = &mut self.state.config.tree.children[index];
        let mut moved = VdevConfig::new(VdevKind::Indirect, config.id, Guid(self.inner.new_guid()));
        (moved.create_txg, moved.whole_disk) = (config.create_txg, Some(false));
        moved.zap_top = config.zap_top.take();
        moved.top =
            config.top.map(|top| TopConfig { metaslab_array: format::ObjectId(0), is_log: false, ..top });
        moved.extra.insert(MAPPING, it.objects.mapping.0);
        moved.extra.insert(BIRTHS, it.objects.births.0);
        if let Some(before) = it.record.before {
            moved.extra.insert(BEFORE, before);
        }
        let top = &mut tops[index];
        (top.guid, top.metaslab_shift, top.class) = (moved.guid.0, 0, Class::Normal);
        top.shape = Shape::Moved(Arc::new(copies));
        let gone = std::mem::replace(config, moved);
        self.inner.storage.set_vdevs(Vdevs::new(tops));
        self.free_objects_of(id, &gone)?;
        it.record = Record {
            stage: Stage::Finished,
            before: Some(id.into()),
            ended: self.mos().now(),
            copied: it.record.to_copy,
            ..it.record
        };
        it.record.write(self.mos(), &self.tx)?;
        self.state.config_dirty = true;
        self.note_non_allocating();
        self.inner.happened("vdev_remove_dev", &[]);
        Ok(())
    }

    /// Counts space that was freed before it was copied, since it needs no copy. For each pass over the MOS.
    pub(super) fn note_freed_early(&mut self) -> Result<()> {
        let freed = self.state.allocator.take_freed_early();
        match self.state.evacuating.as_mut().filter(|_| freed > 0) {
            Some(it) => {
                it.record.copied += freed;
                it.record.write(&self.inner.mos, &self.tx)
            }
            None => Ok(()),
        }
    }
}

fn not_allocated(error: storage::allocator::FreeError) -> Error {
    tracing::error!(%error, "the mapping of a vdev that is being removed is wrong");
    Error::corrupt(DIRECTORY)(format::Corrupt::new("copy of a vdev that is being removed", 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_what_lies_close_together_and_begin_and_end_with_something_in_use() {
        let (far, near) = (GAP_MAX + 512, GAP_MAX);
        let second = 1024 + near;
        let third = second + 512 + far;
        let in_use = [(0, 1024), (second, 512), (third, 4096)];
        let piece = |from, max| Piece::next(&in_use, from, max);
        let first = piece(0, PIECE_MAX).expect("there is one");
        assert_eq!((first.start, first.end, first.used()), (0, second + 512, 1536));
        assert_eq!(first.gaps().collect::<Vec<_>>(), [(1024, near)]);
        let last = piece(first.end, PIECE_MAX).expect("there is one");
        assert_eq!((last.start, last.end, last.gaps().count()), (third, third + 4096, 0));
        assert_eq!(piece(last.end, PIECE_MAX), None);
        // None begins or ends in a gap, however short it is to be.
        for max in [512, 1024, 1536, near, near + 1024, near + 1536] {
            let (mut at, mut seen) = (0, 0);
            while let Some(piece) = piece(at, max) {
                assert!(piece.len() <= max && piece.used() > 0, "{piece:?}");
                assert_eq!(piece.runs[0].0, piece.start);
                (at, seen) = (piece.end, seen + piece.used());
            }
            assert_eq!(seen, 1024 + 512 + 4096, "{max}");
        }
        assert_eq!(piece(512, 512).map(|piece| piece.runs), Some(vec![(512, 512)]));
    }
}

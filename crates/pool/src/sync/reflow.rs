//! A raidz vdev that gets one child more: with each txg a part of its sectors moves to where they lie with that child.
//!
//! From:   `widen`, which attached the child; the uberblock, which says how far the sectors have moved.
//! To:     the devices of the vdev; the next uberblock; in the end the configuration.
//! Source: docs/format/11-redundancy.md §11.
//!
//! All blocks of a txg are durable before its sectors are copied, and the copies are durable before its uberblock says that they are what
//! is read. A copy lies where no sector is that the uberblock before reads from its old place. So after a power cut either uberblock finds
//! all it reads. For the first sectors there is no such place: they are copied into the boot areas, an uberblock says so, and then they
//! are written over the old ones. An import that finds this uberblock writes them again.

use std::sync::atomic::Ordering;

use dmu::zap;
use format::uberblock::Uberblock;
use format::zap::Value;
use format::{Txg, VdevId};
use storage::allocator::{Runs, Which};
use storage::layout::Motion;
use storage::{Obstacle, Scratch, Vdevs, WithoutWriters};

use crate::labels::{self, Half};
use crate::reflow::{
    BYTES_COPIED, END_TIME, ENDED, IN_PLACE, IN_SCRATCH, OUT_AT_IMPORT, OUT_OF_SCRATCH, Reflow, STATE, Word,
    end_of, layout_of,
};
use crate::shape::{EXPAND_TXGS, EXPANDING};
use crate::state::{Inner, SyncState, Syncing};
use crate::{Error, Result};

/// So many txgs may have begun when an expansion ends: what is born in them is spread as before.
const TXGS_BEGUN: u64 = 3;
/// Free space of at most so many bytes between ranges in use is copied with them.
const GAP_MAX: u64 = 128 << 10;

/// The sectors copied in a txg; they count once its uberblock is written. Until then no other thread writes to vdevs with
/// parity.
pub(super) struct Moving<'a> {
    inner: &'a Inner,
    gate: WithoutWriters<'a>,
    vdev: u32,
    /// Everything before this byte has moved.
    moved: u64,
    /// The copies are in the boot areas.
    scratch: Option<Scratch>,
    _leases: Option<LeasesPaused<'a>>,
}

/// The move that was done, or the reason why it was not.
type Done<'a> = std::result::Result<Option<Moving<'a>>, Obstacle>;

/// No new reader of the pool may begin until this is dropped.
struct LeasesPaused<'a>(&'a Inner);

impl Drop for LeasesPaused<'_> {
    fn drop(&mut self) {
        self.0.leases.resume();
    }
}

/// Whether the next txg has work for an expansion.
pub(super) fn goes_on(inner: &Inner, state: &SyncState) -> bool {
    state.reflow.as_ref().is_some_and(|it| it.obstacle.is_none() && can_move(inner, state, it))
}

/// Whether nothing keeps sectors from moving that is known before it is tried.
fn can_move(inner: &Inner, state: &SyncState, it: &Reflow) -> bool {
    let most = inner.groups.limits.reflow_max.load(Ordering::Relaxed);
    let is_suspended = most != 0 && it.copied >= most;
    // A reader of an older state finds its sectors where the next ones would go.
    let is_read = inner.leases.oldest().is_some_and(|oldest| oldest < state.uberblock.txg);
    !is_suspended && !is_read && inner.storage.is_whole(it.vdev)
}

impl Syncing<'_> {
    /// Before anything of the txg is written: notes how much was copied, or ends the expansion that has nothing left to do.
    pub(super) fn note_reflow(&mut self) -> Result<()> {
        self.settle_sizes()?;
        let Some(it) = self.state.reflow.clone() else { return Ok(()) };
        let top = &self.inner.storage.vdevs().tops()[it.vdev as usize];
        let is_over = it.word.moved == end_of(top) && it.word.moved > 0;
        if is_over && self.inner.storage.is_whole(it.vdev) {
            return self.end_reflow(&it);
        }
        if it.copied != it.noted {
            self.set_of_top(it.vdev, BYTES_COPIED, it.copied)?;
            self.state.reflow.as_mut().into_iter().for_each(|now| now.noted = it.copied);
        }
        Ok(())
    }

    fn set_of_top(&self, vdev: u32, key: &[u8], value: u64) -> Result<()> {
        let own = self.mos().object(self.top_zap(vdev)?)?;
        Ok(zap::update(&own, &self.tx, key, &Value::from_u64(value))?)
    }

    /// Every sector has its new place: blocks that are born a little later are spread over all children.
    fn end_reflow(&mut self, it: &Reflow) -> Result<()> {
        self.set_of_top(it.vdev, BYTES_COPIED, it.copied)?;
        self.set_of_top(it.vdev, STATE, ENDED)?;
        self.set_of_top(it.vdev, END_TIME, self.inner.host.clock.now().0)?;
        let config = &mut self.state.config.tree.children[it.vdev as usize];
        config.extra.remove(EXPANDING);
        let mut since = config.extra.get_u64s(EXPAND_TXGS).unwrap_or_default().to_vec();
        since.push(self.txg.0 + TXGS_BEGUN);
        config.extra.insert(EXPAND_TXGS, since);
        self.state.config_dirty = true;
        self.state.reflow = None;
        let top = self.inner.storage.vdevs().tops()[it.vdev as usize].clone();
        self.relay(it.vdev as usize, top, &[]);
        self.log_expansion("completed", it.vdev)?;
        self.expand(it.vdev as usize)?;
        self.inner.reflow_news.end();
        Ok(())
    }

    /// From the txg on whose blocks are spread over all children of a vdev that was expanded, they get no more room than they need.
    fn settle_sizes(&mut self) -> Result<()> {
        let vdevs = self.inner.storage.vdevs();
        let settled = |grown: &storage::layout::Grown| grown.settles().is_some_and(|since| since <= self.txg);
        let ids: Vec<usize> = (0..vdevs.tops().len())
            .filter(|index| match vdevs.tops()[*index].spread() {
                Some(storage::layout::Spread::Grown(grown)) => settled(grown),
                _ => false,
            })
            .collect();
        for index in ids {
            let top = vdevs.tops()[index].clone();
            self.relay(index, top, &[]);
            let top = &self.inner.storage.vdevs().tops()[index];
            if let Some(layout) = top.spread() {
                self.state.allocator.set_sizes(VdevId(top.id), layout.sizes());
            }
        }
        Ok(())
    }

    /// When all of the txg but its uberblock is durable: copies the next sectors. The copies count once the uberblock is written.
    pub(super) fn reflow<'a>(&mut self, inner: &'a Inner) -> Result<Option<Moving<'a>>> {
        let Some(mut it) = self.state.reflow.clone() else { return Ok(None) };
        if self.txg <= it.since || !can_move(self.inner, self.state, &it) {
            return Ok(None);
        }
        let (moving, obstacle) = match self.move_some(inner, &mut it)? {
            Ok(moving) => (moving, None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        let is_known = |why: &&Obstacle| it.obstacle.as_ref().is_some_and(|before| before.is_like(why));
        if let Some(why) = obstacle.as_ref().filter(|why| !is_known(why)) {
            tracing::warn!(vdev = it.vdev, %why, "the expansion waits");
        }
        self.inner.reflow_news.tried(obstacle.as_ref());
        it.obstacle = obstacle;
        self.state.reflow = Some(it);
        Ok(moving)
    }

    fn move_some<'a>(&mut self, inner: &'a Inner, it: &mut Reflow) -> Result<Done<'a>> {
        let top = &inner.storage.vdevs().tops()[it.vdev as usize];
        let Some(layout) = layout_of(top) else { return Ok(Err(Obstacle::NotWhole)) };
        let end = end_of(top);
        if it.word.moved >= end {
            return Ok(Ok(None));
        }
        if it.word.moved == 0 {
            return move_first(inner, it, layout.scratch().filter(|len| *len <= end));
        }
        let most = inner.groups.limits.copied_at_once.load(Ordering::Relaxed).max(1 << top.ashift);
        let limit = layout.limit(it.word.moved).min(end);
        let gate = inner.storage.gate().keep_writers_out();
        let (ranges, moved) = self.ranges_to_move(it, limit, most)?;
        if let Err(obstacle) = inner.storage.move_sectors(it.vdev, &ranges)? {
            return Ok(Err(obstacle));
        }
        it.copied += ranges.iter().map(|(_, len)| len).sum::<u64>();
        it.word = Word { moved, state: IN_PLACE };
        Ok(Ok(Some(Moving { inner, gate, vdev: it.vdev, moved, scratch: None, _leases: None })))
    }

    /// The ranges in use from the border on up to `limit`, `most` bytes of them, and the place of the border after
    /// them.
    fn ranges_to_move(&mut self, it: &Reflow, limit: u64, most: u64) -> Result<(Runs, u64)> {
        let top = &self.inner.storage.vdevs().tops()[it.vdev as usize];
        let (vdev, shift) = (VdevId(it.vdev), top.metaslab_shift);
        let (mut ranges, mut left) = (Runs::new(), most);
        for metaslab in it.word.moved >> shift..limit.div_ceil(1 << shift) {
            let taken = self
                .with_space(|allocator, source| {
                    allocator.runs(vdev, (metaslab as u32, Which::NotFree), source)
                })
                .map_err(Error::from)?;
            for (start, len) in taken {
                let (start, end) = (start.max(it.word.moved), (start + len).min(limit));
                if start >= end {
                    continue;
                }
                let take = (end - start).min(left >> top.ashift << top.ashift);
                match ranges.last_mut() {
                    Some((at, len)) if start - (*at + *len) <= GAP_MAX => *len = start + take - *at,
                    _ if take > 0 => ranges.push((start, take)),
                    _ => {}
                }
                left -= take;
                if start + take < end {
                    return Ok((ranges, start + take));
                }
            }
        }
        Ok((ranges, limit))
    }
}

/// Copies the first sectors into the boot areas.
fn move_first<'a>(inner: &'a Inner, it: &mut Reflow, len: Option<u64>) -> Result<Done<'a>> {
    let Some(moved) = len else { return Ok(Err(Obstacle::NoScratch)) };
    if !inner.leases.pause() {
        return Ok(Ok(None));
    }
    let paused = LeasesPaused(inner);
    let gate = inner.storage.gate().keep_writers_out();
    let scratch = match inner.storage.fill_scratch(it.vdev)? {
        Ok(scratch) => scratch,
        Err(obstacle) => return Ok(Err(obstacle)),
    };
    it.copied += moved;
    it.word = Word { moved, state: IN_SCRATCH };
    Ok(Ok(Some(Moving { inner, gate, vdev: it.vdev, moved, scratch: Some(scratch), _leases: Some(paused) })))
}

impl Moving<'_> {
    /// The uberblock is durable: from now on the copies are read.
    pub(super) fn arrive(self, state: &mut SyncState, txg: Txg) -> Result<()> {
        let Moving { inner, gate, vdev, moved, scratch, .. } = self;
        let alone = gate.keep_readers_out();
        if let Some(scratch) = scratch {
            leave_scratch(inner, state, scratch, OUT_OF_SCRATCH)?;
            // A device that refused misses the data that all txgs wrote there.
            forget_refused(inner, vdev, txg);
        }
        let top = &inner.storage.vdevs().tops()[vdev as usize];
        top.motion().into_iter().for_each(|motion: &std::sync::Arc<Motion>| motion.set(moved, &alone));
        Ok(())
    }
}

/// Marks all txgs as missing on each device that failed while the contents of the boot areas were written to their places.
/// Old data in those places cannot be distinguished from the right data.
fn forget_refused(inner: &Inner, vdev: u32, txg: Txg) {
    let top = &inner.storage.vdevs().tops()[vdev as usize];
    for leaf in top.leaves().filter(|leaf| leaf.health.has_failed()) {
        leaf.health.add_missing(Txg::INITIAL, txg.next());
    }
}

/// Writes the contents of the boot areas to their places, and then the uberblock of the last txg again with this fact.
fn leave_scratch(inner: &Inner, state: &mut SyncState, scratch: Scratch, how: u64) -> Result<()> {
    let Some(it) = state.reflow.as_mut() else { return Ok(()) };
    if let Err(obstacle) = inner.storage.empty_scratch(it.vdev, scratch)? {
        tracing::warn!(vdev = it.vdev, why = %obstacle, "the first sectors are not on all devices");
    }
    it.word.state = how;
    let again = Uberblock {
        // Of two uberblocks of one txg the later one counts.
        timestamp: state.uberblock.timestamp.max(inner.host.clock.now().0) + 1,
        raidz_reflow: it.word.encode(),
        ..state.uberblock.clone()
    };
    // One half after the other: at any moment one of them is whole.
    for half in [Half::Even, Half::Odd] {
        inner.storage.on_written_leaves(|top, leaf| {
            labels::write_uberblock_half(&leaf.disk, &again, top.ashift, half)
        })?;
        inner.storage.flush()?;
    }
    inner.multihost.synced(&again);
    state.uberblock = again;
    Ok(())
}

/// At an import that finds the first sectors in the boot areas: writes them to their place. The pool is not used yet.
pub(crate) fn recover(inner: &Inner, state: &mut SyncState) -> Result<()> {
    let Some(it) = state.reflow.clone().filter(|it| it.word.state == IN_SCRATCH) else { return Ok(()) };
    let gate = inner.storage.gate().keep_writers_out();
    let alone = gate.keep_readers_out();
    let scratch = inner.storage.read_scratch(it.vdev, it.word.moved);
    let scratch = scratch.map_err(|why| Error::Damaged { pool: inner.name(), why: why.to_string() })?;
    leave_scratch(inner, state, scratch, OUT_AT_IMPORT)?;
    forget_refused(inner, it.vdev, state.uberblock.txg);
    let vdevs: &Vdevs = inner.storage.vdevs();
    if let Some(motion) = vdevs.tops()[it.vdev as usize].motion() {
        motion.set(it.word.moved, &alone);
    }
    inner.leases.synced(&state.uberblock);
    Ok(())
}

//! A raidz vdev that gets one child more while its sectors move: how far that is, as the uberblock says it, and what may stop it.
//!
//! From:   the uberblock and the ZAP of the vdev at an import; `widen`, which begins an expansion.
//! To:     the sync (`sync/reflow.rs`), which moves sectors; the next uberblocks.
//! Source: docs/format/11-redundancy.md §11; 01-labels-uberblock.md §5.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dmu::zap;
use format::Txg;
use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::uberblock::Uberblock;
use storage::layout::{Grown, Motion, Spread};
use storage::{Obstacle, Storage, TopVdev};

use crate::mos::Mos;
use crate::shape::{EXPAND_TXGS, is_expanding};
use crate::{NotExpanded, Result};

/// Bits of the word of the uberblock that hold how far the sectors have moved, in units of 512 bytes.
const STATE_SHIFT: u32 = 55;
/// The sectors that pass through the boot areas are there, and may be half written at their new place.
pub(crate) const IN_SCRATCH: u64 = 1;
/// They are at their new place.
pub(crate) const OUT_OF_SCRATCH: u64 = 2;
/// The same, and an import copied them there.
pub(crate) const OUT_AT_IMPORT: u64 = 3;
/// They were at their new place before this txg.
pub(crate) const IN_PLACE: u64 = 4;

/// Keys of the ZAP of a top-level vdev.
pub(crate) const STATE: &[u8] = b"org.openzfs:raidz_expand_state";
pub(crate) const START_TIME: &[u8] = b"org.openzfs:raidz_expand_start_time";
pub(crate) const END_TIME: &[u8] = b"org.openzfs:raidz_expand_end_time";
pub(crate) const BYTES_COPIED: &[u8] = b"org.openzfs:raidz_expand_bytes_copied";
/// States of an expansion in that ZAP: sectors move, and all have moved.
pub(crate) const MOVING: u64 = 1;
pub(crate) const ENDED: u64 = 2;

/// The state of an expansion, as an uberblock has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Everything before this byte of the allocatable area has its new place.
    pub(crate) moved: u64,
    /// Where that was on its way, one of the constants of this module.
    pub(crate) state: u64,
}

impl Word {
    pub(crate) const fn decode(word: u64) -> Word {
        Word { moved: (word & ((1 << STATE_SHIFT) - 1)) << 9, state: word >> STATE_SHIFT }
    }

    pub(crate) const fn encode(self) -> u64 {
        self.moved >> 9 | self.state << STATE_SHIFT
    }

    pub(crate) fn motion(self) -> Arc<Motion> {
        Motion::new(self.moved, self.state == IN_SCRATCH)
    }
}

/// A running expansion.
#[derive(Clone, Debug)]
pub(crate) struct Reflow {
    /// The id of the vdev.
    pub(crate) vdev: u32,
    /// The state for the next uberblock.
    pub(crate) word: Word,
    /// The txg that attached the child, or the one before the import. Sectors move after it.
    pub(crate) since: Txg,
    /// Bytes that were copied.
    pub(crate) copied: u64,
    /// The copied bytes that the ZAP of the vdev has.
    pub(crate) noted: u64,
    /// The error that stopped the expansion in its last txg.
    pub(crate) obstacle: Option<Obstacle>,
}

/// The news of an expansion for other threads, before they are in the MOS.
#[derive(Debug, Default)]
pub(crate) struct ReflowNews {
    /// An expansion has ended, and the scrub that is to follow has not begun.
    ended: AtomicBool,
    /// The last attempt to move sectors met an obstacle.
    hindered: AtomicBool,
}

impl ReflowNews {
    /// Sectors were moved, or an obstacle was met. For the sync thread.
    pub(crate) fn tried(&self, obstacle: Option<&Obstacle>) {
        self.hindered.store(obstacle.is_some(), Ordering::Release);
    }

    /// All sectors have moved. For the sync thread.
    pub(crate) fn end(&self) {
        self.tried(None);
        self.ended.store(true, Ordering::Release);
    }

    /// Whether an expansion has ended since the last call. One caller of all gets this answer.
    pub(crate) fn take_ended(&self) -> bool {
        self.ended.swap(false, Ordering::AcqRel)
    }

    /// Whether an obstacle kept sectors from moving at the last attempt.
    pub(crate) fn is_hindered(&self) -> bool {
        self.hindered.load(Ordering::Acquire)
    }
}

/// The layout of a vdev whose sectors move.
pub(crate) fn layout_of(top: &TopVdev) -> Option<&Grown> {
    match top.spread() {
        Some(Spread::Grown(layout)) if layout.motion().is_some() => Some(layout),
        _ => None,
    }
}

/// Where the last sector ends that moves.
pub(crate) fn end_of(top: &TopVdev) -> u64 {
    top.metaslab_count() << top.metaslab_shift
}

impl Reflow {
    /// The expansion that is under way in a pool, if there is one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub(crate) fn resume(mos: &Mos, config: &PoolConfig, uberblock: &Uberblock) -> Result<Option<Reflow>> {
        let Some(vdev) = config.tree.children.iter().find(|vdev| is_expanding(vdev)) else { return Ok(None) };
        let Some(own) = vdev.zap_top.filter(|own| own.0 != 0) else { return Ok(None) };
        let copied = zap::lookup_u64(&*mos.object(own)?, BYTES_COPIED)?.unwrap_or(0);
        Ok(Some(Reflow {
            vdev: vdev.id as u32,
            word: Word::decode(uberblock.raidz_reflow),
            since: uberblock.txg,
            copied,
            noted: copied,
            obstacle: None,
        }))
    }
}

/// Why an expansion that is under way is not continued by this build.
pub(crate) fn refused(config: &PoolConfig, storage: &Storage, uberblock: &Uberblock) -> Option<NotExpanded> {
    let word = Word::decode(uberblock.raidz_reflow);
    let expanding: Vec<&VdevConfig> = config.tree.walk().filter(|vdev| is_expanding(vdev)).collect();
    let [vdev] = expanding[..] else {
        return match (expanding.len(), uberblock.raidz_reflow) {
            (0, 0) => None,
            (0, _) => Some(NotExpanded::NoVdev),
            _ => Some(NotExpanded::Several),
        };
    };
    let is_top = config.tree.children.iter().any(|top| top.guid == vdev.guid);
    if !is_top || !matches!(vdev.kind, VdevKind::Raidz { .. }) || vdev.zap_top.is_none_or(|own| own.0 == 0) {
        return Some(NotExpanded::OtherKind);
    }
    let top = storage.vdevs().tops().get(vdev.id as usize)?;
    let Some(layout) = layout_of(top) else { return Some(NotExpanded::DevicesMissing) };
    let newest = vdev.extra.get_u64s(EXPAND_TXGS).and_then(|since| since.last().copied());
    if newest.is_some_and(|since| since > uberblock.txg.next().0) {
        return Some(NotExpanded::NotSettled);
    }
    let Some(scratch) = layout.scratch() else { return Some(NotExpanded::NoScratch) };
    let is_begun =
        word.moved >= scratch && word.moved <= end_of(top) && word.moved.is_multiple_of(1 << top.ashift);
    let is_known = match word.state {
        0 => word.moved == 0 || is_begun,
        IN_SCRATCH => word.moved == scratch,
        _ => word.state <= IN_PLACE && is_begun,
    };
    if !is_known {
        return Some(NotExpanded::Damaged);
    }
    if word.state == IN_SCRATCH && !storage.is_whole(top.id) {
        return Some(NotExpanded::ScratchNotWhole);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_expansion_is_reported_once_and_leaves_no_obstacle() {
        let news = ReflowNews::default();
        assert!(!news.take_ended() && !news.is_hindered());
        news.tried(Some(&Obstacle::NotWhole));
        assert!(news.is_hindered());
        news.end();
        assert!(!news.is_hindered());
        assert!(news.take_ended() && !news.take_ended());
    }

    #[test]
    fn the_word_of_an_uberblock_is_read_as_it_is_written() {
        for (moved, state) in [(0, 0), (14 << 20, IN_SCRATCH), (1 << 50, IN_PLACE), (512, OUT_AT_IMPORT)] {
            let word = Word { moved, state };
            assert_eq!(Word::decode(word.encode()), word);
        }
        assert_eq!(Word { moved: 14 << 20, state: OUT_OF_SCRATCH }.encode(), 2 << 55 | 14 << 11);
    }
}

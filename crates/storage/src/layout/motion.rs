//! The sectors of a raidz vdev on their way to where they lie with one child more.
//!
//! From:   the sync thread of the pool, which moves them, a part with each txg.
//! To:     everybody who reads or writes blocks of the vdev meanwhile.
//! Source: docs/format/11-redundancy.md §11.
//!
//! The new place of a sector lies before its old one, where the old place of another sector was, which has moved long ago. So the border
//! moves while there is no reader and no writer (`gate`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::gate::Alone;

/// The progress of the expansion of a raidz vdev: how far its sectors have moved. All users of the vdev share it.
#[derive(Debug, Default)]
pub struct Motion {
    /// Bytes of the allocatable area: everything before has its new place.
    moved: AtomicU64,
    is_in_scratch: AtomicBool,
}

impl PartialEq for Motion {
    fn eq(&self, other: &Motion) -> bool {
        (self.moved(), self.is_in_scratch()) == (other.moved(), other.is_in_scratch())
    }
}

impl Eq for Motion {}

impl Motion {
    /// Everything before byte `moved` has its new place; where `is_in_scratch`, it is in the boot areas only.
    #[must_use]
    pub fn new(moved: u64, is_in_scratch: bool) -> Arc<Motion> {
        Arc::new(Motion { moved: moved.into(), is_in_scratch: is_in_scratch.into() })
    }

    /// Everything before this byte of the allocatable area has its new place.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Acquire)
    }

    /// Whether the sectors with new places are still only in the boot areas, and are to be copied from there.
    #[must_use]
    pub fn is_in_scratch(&self) -> bool {
        self.is_in_scratch.load(Ordering::Acquire)
    }

    /// From now on everything before byte `moved` is read from its new place, and written there. The guards prove that nobody uses the
    /// border.
    pub fn set(&self, moved: u64, _alone: &Alone<'_>) {
        self.moved.store(moved, Ordering::Release);
        self.is_in_scratch.store(false, Ordering::Release);
    }
}

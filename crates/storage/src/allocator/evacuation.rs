//! Space of a vdev that is being removed: what of it is in use, and the copies of it, which are freed together with it.
//!
//! From:   `pool`, which copies the vdev range by range and says where to.
//! To:     the same: what lies where, and what was freed meanwhile.
//! Source: docs/format/12-auxiliary-vdevs.md §5.5.

use format::blkptr::Dva;
use format::{Txg, VdevId};

use super::class::Holds;
use super::{AllocError, Allocator, Class, FreeError, SpaceMapSource, Want};
use crate::moved::{Move, Moves};

/// The copies of the blocks of a vdev that is being removed.
#[derive(Clone, Debug)]
pub(super) struct Evacuation {
    vdev: VdevId,
    copies: Moves,
    /// Bytes freed on the vdev since the number was last asked for.
    freed: u64,
}

impl Allocator {
    /// From now on a vdev is being removed: nothing new is placed on it, and what is freed on it is freed in `copies`, too.
    pub fn begin_evacuation(&mut self, vdev: VdevId, copies: Moves) {
        self.set_allocating(vdev, false);
        self.evacuation = Some(Evacuation { vdev, copies, freed: 0 });
    }

    /// The ranges that were copied from the vdev that is being removed.
    #[must_use]
    pub fn evacuated(&self) -> Option<&Moves> {
        self.evacuation.as_ref().map(|evacuation| &evacuation.copies)
    }

    /// One more range was copied.
    ///
    /// # Panics
    /// If no vdev is being removed, or the range is not behind those before it.
    pub fn note_copied(&mut self, copied: Move) {
        self.evacuation.as_mut().expect("a vdev is being removed").copies.push(copied);
    }

    /// Bytes that were freed on the vdev that is being removed since the last call.
    pub fn take_freed_early(&mut self) -> u64 {
        self.evacuation.as_mut().map_or(0, |evacuation| std::mem::take(&mut evacuation.freed))
    }

    /// The vdev stays: new blocks may be placed on it again. Returns the ranges that were copied from it, and forgets
    /// which of them are obsolete.
    pub fn give_up_evacuation(&mut self) -> Option<Moves> {
        let Evacuation { vdev, copies, .. } = self.evacuation.take()?;
        self.obsolete.remove(&vdev);
        self.set_allocating(vdev, true);
        Some(copies)
    }

    /// Removes the vdev, even if space on it is allocated, because all data was copied. Returns the copies.
    ///
    /// # Panics
    /// If no vdev is being removed.
    pub fn end_evacuation(&mut self) -> Moves {
        let Evacuation { vdev, copies, .. } = self.evacuation.take().expect("a vdev is being removed");
        self.forget_vdev(self.index_of(vdev).expect("a vdev of the pool"));
        copies
    }

    /// Room for a copy of `len` bytes of a vdev of this class: on another vdev of the class, else on a normal one.
    ///
    /// # Errors
    /// See [`AllocError`]; nothing is allocated then.
    ///
    /// # Panics
    /// As [`Allocator::allocate`].
    pub fn allocate_like<S: SpaceMapSource + ?Sized>(
        &mut self,
        class: Class,
        len: u64,
        txg: Txg,
        source: &mut S,
    ) -> Result<Dva, AllocError<S::Error>> {
        assert!(txg > self.synced[0], "a copy is made in a txg that is not synced");
        let mut refused = AllocError::NoSpace { psize: len };
        for class in [class, Class::Normal] {
            if !self.takes(class, Holds::Data) {
                continue;
            }
            match self.allocate_in(class, Want { psize: len, copies: 1, holds: Holds::Data }, txg, source) {
                Err(error @ AllocError::NoSpace { .. }) => refused = error,
                done => return done.map(|dvas| dvas[0]),
            }
        }
        Err(refused)
    }

    /// For what was freed at `dva`: frees the copies of it that are on other vdevs by now.
    pub(super) fn free_copies(&mut self, dva: Dva, txg: Txg) -> Result<(), FreeError> {
        let Some(evacuation) = self.evacuation.as_mut().filter(|it| it.vdev == dva.vdev) else {
            return Ok(());
        };
        evacuation.freed += dva.asize;
        let parts: Vec<Move> = evacuation.copies.parts(dva.offset, dva.asize).collect();
        for Move { from, to } in parts {
            self.note_obsolete(Dva { offset: from, asize: to.asize, ..dva });
            self.free(to, txg)?;
        }
        Ok(())
    }
}

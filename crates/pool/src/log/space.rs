//! Space for log blocks, set aside ahead of need: what is there, and who asks for more.
//!
//! From:   the sync thread, which fills it (`zil/stash`).
//! To:     whoever writes a log block, or a record early.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use format::Txg;
use format::blkptr::Dva;
use storage::rank::{Rank, Ranked};

/// Bytes set aside at first, and at most.
pub(crate) const FIRST: u64 = 256 << 10;
pub(crate) const MOST: u64 = 64 << 20;
/// Room for one log block, or for several that lie behind one another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) dva: Dva,
    /// Bytes that fit.
    pub(crate) size: u64,
    /// A part of it can be used.
    pub(crate) divisible: bool,
    /// It lies on a log device: no place for data.
    pub(crate) is_log: bool,
    /// Log blocks are multiples of this, others of a sector.
    pub(crate) unit: u64,
    pub(crate) sector: u64,
}

#[derive(Default)]
pub(crate) struct Stash {
    /// The open txg that the pieces belong to.
    pub(crate) txg: Txg,
    pub(crate) pieces: Vec<Piece>,
    /// Bytes of the largest block that somebody waits for; 0: nobody does.
    pub(crate) asked: u64,
    /// Bytes used in this txg.
    pub(crate) spent: u64,
    /// Bytes to have ready when a txg opens.
    pub(crate) target: u64,
    /// How often the sync thread has answered.
    pub(crate) answers: u64,
}

/// The log space of a pool.
#[derive(Default)]
pub(crate) struct LogSpace {
    pub(crate) stash: Mutex<Stash>,
    pub(crate) answered: Condvar,
}

impl LogSpace {
    pub(crate) fn lock(&self) -> Ranked<MutexGuard<'_, Stash>> {
        Ranked::lock(Rank::LogSpace, || {
            self.stash.lock().expect("no code panics while holding the log space")
        })
    }

    /// Room for `size` bytes in `txg`, which the caller holds open: where, and how many bytes it has.
    pub(crate) fn take(&self, txg: Txg, size: u64) -> Option<(Dva, u64)> {
        let mut stash = self.lock();
        if stash.txg != txg {
            return None;
        }
        let index = stash.pieces.iter().position(|piece| piece.size >= size)?;
        let piece = &mut stash.pieces[index];
        let cut = size.next_multiple_of(piece.unit);
        let taken = if piece.divisible && cut < piece.size {
            let taken = (Dva { asize: cut, ..piece.dva }, cut);
            piece.dva.offset += cut;
            piece.dva.asize -= cut;
            piece.size -= cut;
            taken
        } else {
            let piece = stash.pieces.swap_remove(index);
            (piece.dva, piece.size)
        };
        stash.spent += taken.1;
        Some(taken)
    }

    /// Room for exactly `size` bytes of data, allocated as any block's; `None` where there is none at hand, or a part of a
    /// piece cannot be used.
    pub(crate) fn take_for_data(&self, txg: Txg, size: u64) -> Option<Dva> {
        let mut stash = self.lock();
        if stash.txg != txg {
            return None;
        }
        let fits = |piece: &Piece| {
            !piece.is_log && piece.divisible && piece.size >= size.next_multiple_of(piece.sector)
        };
        let index = stash.pieces.iter().position(fits)?;
        let piece = &mut stash.pieces[index];
        let cut = size.next_multiple_of(piece.sector);
        let dva = Dva { asize: cut, ..piece.dva };
        piece.dva.offset += cut;
        piece.dva.asize -= cut;
        piece.size -= cut;
        if piece.size == 0 {
            stash.pieces.swap_remove(index);
        }
        stash.spent += cut;
        Some(dva)
    }

    /// Asks for room for a block of `size` bytes and waits a moment for the answer; says whether there was one, good
    /// or bad. `poke` wakes the sync thread; the caller holds no txg open.
    pub(crate) fn ask(&self, size: u64, poke: impl FnOnce()) -> bool {
        let mut stash = self.lock();
        if stash.asked == 0 {
            // Who asks again while the sync thread is busy wants no more than before.
            stash.target = (stash.target * 2).clamp(FIRST, MOST);
        }
        stash.asked = stash.asked.max(size);
        let answers = stash.answers;
        drop(stash);
        poke();
        let stash = self.lock();
        let pause = Duration::from_millis(100);
        let waits = |stash: &mut Stash| stash.answers == answers;
        let stash = stash.wait(|stash| {
            let waited = self.answered.wait_timeout_while(stash, pause, waits);
            waited.expect("no code panics while holding the log space").0
        });
        stash.answers != answers
    }

    /// No log is written any more: nothing is set aside from the next txg on.
    pub(crate) fn rest(&self) {
        self.lock().target = 0;
    }
}

//! Space for log blocks that is reserved in advance, and requests for more of it.
//!
//! From:   the sync thread, which fills it (`zil/stash`).
//! To:     threads that write log blocks, or records before their txg syncs.

use std::sync::Condvar;
use std::time::Duration;

use format::Txg;
use format::blkptr::Dva;
use storage::rank::{MutexHeld, Rank, RankedMutex};

/// Bytes set aside at first, and at most.
pub(crate) const FIRST: u64 = 256 << 10;
pub(crate) const MOST: u64 = 64 << 20;
/// A piece of space for one log block, or for several consecutive ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) dva: Dva,
    /// Bytes that fit.
    pub(crate) size: u64,
    /// A part of it can be used.
    pub(crate) divisible: bool,
    /// It lies on a log device, where no data may be placed.
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
    /// Bytes of the largest block that a writer waits for; 0: none waits.
    pub(crate) asked: u64,
    /// Bytes used in this txg.
    pub(crate) spent: u64,
    /// Bytes to have ready when a txg opens.
    pub(crate) target: u64,
    /// How often the sync thread has answered.
    pub(crate) answers: u64,
}

/// The log space of a pool.
pub(crate) struct LogSpace {
    pub(crate) stash: RankedMutex<Stash>,
    pub(crate) answered: Condvar,
}

impl Default for LogSpace {
    fn default() -> LogSpace {
        LogSpace { stash: RankedMutex::new(Rank::LogSpace, Stash::default()), answered: Condvar::new() }
    }
}

impl LogSpace {
    pub(crate) fn lock(&self) -> MutexHeld<'_, Stash> {
        self.stash.lock()
    }

    /// Takes space for `size` bytes in `txg`, which the caller holds open. Returns its place and size.
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

    /// Takes space for exactly `size` bytes of data. `None` if no piece is large enough, or if pieces cannot be split.
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

    /// Requests space for a block of `size` bytes and waits a short time. Returns whether the sync thread answered, even
    /// with a refusal. `poke` wakes the sync thread. The caller must not hold a txg open.
    pub(crate) fn ask(&self, size: u64, poke: impl FnOnce()) -> bool {
        let mut stash = self.lock();
        if stash.asked == 0 {
            // A repeated request while the sync thread is busy asks for no more space.
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

    /// No log is in use: reserves no space from the next txg on.
    pub(crate) fn rest(&self) {
        self.lock().target = 0;
    }
}

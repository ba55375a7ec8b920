//! Space for log blocks, set aside ahead of need.
//!
//! The allocator belongs to the sync thread, which may be busy for seconds when somebody wants a file to be safe now.
//! So it hands out some space of the open txg beforehand. What was not used when the txg closes is taken back before
//! anything is written: a space map that says "allocated" always means a block that a chain reaches.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use format::Txg;
use format::blkptr::Dva;
use format::zil;
use storage::allocator::AllocError;
use storage::rank::{Rank, Ranked};
use storage::{ReadError, Shape, WriteError};

use crate::pool::Inner;
use crate::space_maps::Source;
use crate::sync::SyncState;
use crate::{Error, Result};

/// Bytes set aside at first, and at most.
const FIRST: u64 = 256 << 10;
const MOST: u64 = 64 << 20;
/// What is allocated in one piece where pieces can be cut up.
const PIECE: u64 = zil::BLOCK_MAX as u64;
/// The same where a block takes the place it was given whole (raidz).
const WHOLE: u64 = 32 << 10;

/// Room for one log block, or for several that lie behind one another.
#[derive(Clone, Copy, Debug)]
struct Piece {
    dva: Dva,
    /// Bytes that fit.
    size: u64,
    /// A part of it can be used.
    divisible: bool,
    /// It lies on a log device: no place for data.
    is_log: bool,
    /// Log blocks are multiples of this, others of a sector.
    unit: u64,
    sector: u64,
}

#[derive(Default)]
struct Stash {
    /// The open txg that the pieces belong to.
    txg: Txg,
    pieces: Vec<Piece>,
    /// Bytes of the largest block that somebody waits for; 0: nobody does.
    asked: u64,
    /// Bytes used in this txg.
    spent: u64,
    /// Bytes to have ready when a txg opens.
    target: u64,
    /// How often the sync thread has answered.
    answers: u64,
}

/// The log space of a pool.
#[derive(Default)]
pub(crate) struct LogSpace {
    stash: Mutex<Stash>,
    answered: Condvar,
}

impl LogSpace {
    fn lock(&self) -> Ranked<MutexGuard<'_, Stash>> {
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

/// For the sync thread, when txg `closed` was closed: takes back what was not used of it, and sets aside space of the
/// txg that is open now.
pub(crate) fn renew(inner: &Inner, state: &mut SyncState, closed: Txg) {
    let open = closed.next();
    let (unused, want) = {
        let mut stash = inner.log_space.lock();
        let unused = std::mem::take(&mut stash.pieces);
        let owner = std::mem::replace(&mut stash.txg, open);
        assert!(unused.is_empty() || owner == closed, "unused log space belongs to the txg that was open");
        // An idle log costs less and less; a busy one finds twice of what it used.
        let spent = std::mem::take(&mut stash.spent);
        stash.target = if spent == 0 { stash.target / 2 } else { stash.target.max(2 * spent).min(MOST) };
        if stash.target < FIRST {
            stash.target = 0;
        }
        (unused, stash.target.max(stash.asked))
    };
    unused.iter().for_each(|piece| state.allocator.give_back(piece.dva, closed));
    fill(inner, state, open, want);
}

/// For the sync thread, when there is nothing else to do: sets aside more space of the open txg.
pub(crate) fn refill(inner: &Inner, state: &mut SyncState, open: Txg) {
    let want = {
        let mut stash = inner.log_space.lock();
        if stash.txg != open {
            assert!(stash.pieces.is_empty(), "a txg takes its log space with it");
            stash.txg = open;
        }
        stash.target.max(stash.asked)
    };
    fill(inner, state, open, want);
}

fn fill(inner: &Inner, state: &mut SyncState, open: Txg, want: u64) {
    if want == 0 {
        return;
    }
    let asked = inner.log_space.lock().asked;
    let pieces = allocate(inner, state, open, want, asked).unwrap_or_else(|error| {
        // Whoever waits finds no room and waits for a sync instead.
        tracing::debug!(%error, "no space for intent logs");
        Vec::new()
    });
    let mut stash = inner.log_space.lock();
    stash.pieces.extend(pieces);
    stash.asked = 0;
    stash.answers += 1;
    inner.log_space.answered.notify_all();
}

/// Why no space was allocated.
fn error_of(error: AllocError<Error>) -> Error {
    match error {
        AllocError::Source { source, .. } => source,
        AllocError::NoSpace { .. } => WriteError::NoSpace.into(),
        AllocError::Damaged { damage, .. } => ReadError::from(damage).into(),
    }
}

/// Pieces of `want` bytes together, each with room for a block of `asked` bytes.
fn allocate(inner: &Inner, state: &mut SyncState, txg: Txg, want: u64, asked: u64) -> Result<Vec<Piece>> {
    let before = state.mos_on_disk(inner)?;
    let tops = inner.storage.vdevs().tops();
    let mut source = Source { objset: before.as_ref(), tops, maps: &state.table, logs: &state.logs };
    let whole = tops.iter().any(|top| matches!(top.shape, Shape::Raidz { .. }));
    let size = if whole { WHOLE } else { PIECE }.max(asked);
    // What was promised to transactions stays theirs, and part of the reserve of a full pool: what it takes to sync
    // instead.
    let taken = inner.storage.vdevs().largest_asize_of(size);
    let granted = inner.groups.set_aside(want.div_ceil(size) * taken, inner.room().slop() / 2);
    let mut pieces = Vec::new();
    let mut got = 0;
    while got + taken <= granted {
        let dva = match state.allocator.allocate_log(size, txg, &mut source) {
            Ok(dva) => dva,
            Err(AllocError::NoSpace { .. }) => break,
            Err(error) if pieces.is_empty() => {
                return Err(error_of(error));
            }
            Err(_) => break,
        };
        let top = &tops[dva.vdev.0 as usize];
        let divisible = !matches!(top.shape, Shape::Raidz { .. });
        let unit = (zil::BLOCK_MIN as u64).max(1 << top.ashift);
        pieces.push(Piece { dva, size, divisible, is_log: top.is_log, unit, sector: 1 << top.ashift });
        got += taken;
    }
    Ok(pieces)
}

//! Reserving space for log blocks in advance.
//!
//! Only the sync thread allocates, and it may be busy for seconds while a program waits in `fsync`. So it reserves some
//! space of the open txg in advance. When the txg closes, unused space is returned before anything is written. So every log
//! block that a space map contains as allocated is reachable from a chain.

use format::Txg;
use format::zil;
use storage::Shape;
use storage::allocator::AllocError;

use crate::Result;
use crate::log::space::{FIRST, MOST, Piece};
use crate::space_maps::Source;
use crate::state::{Inner, SyncState};

/// Bytes that are allocated in one piece if pieces can be cut up.
const PIECE: u64 = zil::BLOCK_MAX as u64;
/// The same if a block must take a whole piece (raidz).
const WHOLE: u64 = 32 << 10;

/// For the sync thread, when txg `closed` was closed: takes back what was not used of it, and sets aside space of the
/// txg that is open now.
pub(crate) fn renew(inner: &Inner, state: &mut SyncState, closed: Txg) {
    let open = closed.next();
    let (unused, want) = {
        let mut stash = inner.log_space.lock();
        let unused = std::mem::take(&mut stash.pieces);
        let owner = std::mem::replace(&mut stash.txg, open);
        assert!(unused.is_empty() || owner == closed, "unused log space belongs to the txg that was open");
        // The reserve of an idle log shrinks step by step; a busy one gets twice the space that it used.
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
        // Waiting callers find no space and wait for a sync instead.
        tracing::debug!(%error, "no space for intent logs");
        Vec::new()
    });
    let mut stash = inner.log_space.lock();
    stash.pieces.extend(pieces);
    stash.asked = 0;
    stash.answers += 1;
    inner.log_space.answered.notify_all();
}

/// Pieces of `want` bytes together, each with room for a block of `asked` bytes.
fn allocate(inner: &Inner, state: &mut SyncState, txg: Txg, want: u64, asked: u64) -> Result<Vec<Piece>> {
    let before = state.mos_on_disk(inner)?;
    let tops = inner.storage.vdevs().tops();
    let mut source = Source { objset: before.as_ref(), tops, maps: &state.table, logs: &state.logs };
    let whole = tops.iter().any(|top| matches!(top.shape, Shape::Parity { .. }));
    let size = if whole { WHOLE } else { PIECE }.max(asked);
    // It leaves the space promised to transactions, and a part of the reserve, so that a sync is still possible.
    let taken = inner.storage.vdevs().largest_asize_of(size);
    let granted = inner.groups.set_aside(want.div_ceil(size) * taken, inner.room().slop() / 2);
    let mut pieces = Vec::new();
    let mut got = 0;
    while got + taken <= granted {
        let dva = match state.allocator.allocate_log(size, txg, &mut source) {
            Ok(dva) => dva,
            Err(AllocError::NoSpace { .. }) => break,
            Err(error) if pieces.is_empty() => {
                return Err(error.into());
            }
            Err(_) => break,
        };
        let top = &tops[dva.vdev.0 as usize];
        let divisible = !matches!(top.shape, Shape::Parity { .. });
        let unit = (zil::BLOCK_MIN as u64).max(1 << top.ashift);
        pieces.push(Piece { dva, size, divisible, is_log: top.is_log(), unit, sector: 1 << top.ashift });
        got += taken;
    }
    Ok(pieces)
}

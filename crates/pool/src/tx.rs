//! Transaction groups: which txg is open, who holds it, and when it closes.
//!
//! Open, quiescing, syncing: at most one in each. A [`Tx`] holds the open txg. To close it, new holders wait
//! until the present ones are done; then the dirty state is frozen as a whole, the next txg opens, and the
//! sync thread works on the frozen state alone (docs/decisions/0001-txg-switch.md).

#[cfg(test)]
mod tests;
mod waits;

use std::ops::Deref;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use dmu::DirtyBudget;
use dsl::room::Reach;
use format::Txg;
use storage::rank::{MutexHeld, Rank, RankedMutex};
use storage::{Suspension, interrupt};

use crate::options::SYNC_BYTES;
use crate::throttle::Limits;
use crate::{Error, Result};

pub use waits::{Begun, Patience, Wait};

/// A change without space waits for at most this many syncs that may free some, then it is refused.
const SPACE_WAITS: u32 = 4;
/// The same limit while only other changes in flight hold the space. They may use less than they asked for, and each sync
/// lets some waiting changes through.
const SHARED_SPACE_WAITS: u32 = 64;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) open: Txg,
    pub(crate) synced: Txg,
    holds: u64,
    closing: bool,
    /// A sync of the open txg was asked for.
    wanted: bool,
    /// Space for intent logs was asked for.
    poked: bool,
    /// Bytes of space that the transactions in flight may still use.
    promised: u64,
    /// Bytes of the open txg that are set aside for intent logs.
    logs: u64,
    /// The txg that is being written, and since when.
    writing: Option<(Txg, Instant)>,
    /// Bytes of space that the sync under way takes at most, intent logs included.
    syncing: u64,
    /// Bytes that may be allocated, as of the last sync.
    allocatable: u64,
    /// Bytes that will be allocatable after deferred frees and all waiting frees are done.
    settling: u64,
    /// More is freed with each txg.
    freeing: bool,
    /// Number of transactions that wait for free space. Meanwhile no space is reserved for intent logs.
    short: u32,
    /// Changes that wait until their transaction can begin.
    pub(crate) waiting: u32,
    pub(crate) failed: Option<Arc<Error>>,
    pub(crate) stopping: bool,
}

impl State {
    /// Promised bytes of space; `changed` of them belong to changes of the open txg.
    fn spoken_for(&self, changed: u64) -> u64 {
        self.promised.saturating_add(changed).saturating_add(self.logs).saturating_add(self.syncing)
    }

    /// Whether `need` bytes beside `others` might not fit if the free space is in the smallest pieces. A record then takes
    /// up to 1.6 times as much again for its gang headers (ten sectors: 26). The reserve covers this for one transaction.
    /// All transactions in flight must fit even then, and leave half of the reserve to changes that free space.
    fn is_crowded(&self, others: u64, need: &Need) -> bool {
        let pieces = others.saturating_add(need.cost()).saturating_mul(3);
        others > 0 && pieces > self.allocatable.saturating_sub(need.reserve / 2)
    }
}

/// The txg state machine of a pool.
pub(crate) struct Groups {
    state: RankedMutex<State>,
    changed: Condvar,
    /// The budget of the changes of the open txg.
    budget: Arc<DirtyBudget>,
    /// Tx holders sync for themselves when the dirty state reaches the limit: txg borders then depend on the
    /// calls alone, not on timing.
    pub(crate) stepwise: bool,
    pub(crate) limits: Limits,
    suspension: Arc<Suspension>,
    /// Start of the times in `limits`.
    opened: Instant,
}

/// The next task of the sync thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Close the open txg and sync it.
    Sync,
    /// Set aside space for intent logs in the open txg.
    LogSpace(Txg),
    /// The pool stops and nothing is left to do.
    End,
}

/// The planned changes of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    /// Bytes that it may write.
    pub bytes: u64,
    /// Blocks that it writes them to; 0: all of them fit into one.
    pub blocks: u64,
    /// Bytes of each of these blocks.
    pub block_size: u64,
    /// Blocks on disk that it may free.
    pub freed: u64,
    /// Bytes that quotas count for blocks that are on disk already.
    pub cloned: u64,
    /// How much of the reserve it may use, and which limits hold.
    pub reach: Reach,
}

impl Hold {
    /// A change that writes about `bytes` bytes of data.
    #[must_use]
    pub const fn write(bytes: u64) -> Hold {
        Hold { bytes, blocks: 0, block_size: 0, freed: 0, cloned: 0, reach: Reach::Limits }
    }

    /// The data goes into the blocks of `block_size` bytes that hold the bytes `start..end` of an object.
    #[must_use]
    pub const fn in_blocks(self, start: u64, end: u64, block_size: u64) -> Hold {
        let blocks = end.div_ceil(block_size) - start / block_size;
        Hold { blocks, block_size, ..self }
    }

    /// A write of `bytes` bytes of data that was acknowledged to a program.
    #[must_use]
    pub const fn acknowledged(bytes: u64) -> Hold {
        Hold { reach: Reach::Acknowledged, ..Hold::write(bytes) }
    }

    /// A removal or truncation.
    #[must_use]
    pub const fn free() -> Hold {
        Hold { bytes: 0, blocks: 0, block_size: 0, freed: 0, cloned: 0, reach: Reach::Frees }
    }

    /// It adds pointers to blocks that are on disk, for which quotas count `bytes` bytes.
    #[must_use]
    pub const fn cloning(self, bytes: u64) -> Hold {
        Hold { cloned: bytes, ..self }
    }

    /// It frees up to `blocks` blocks that are on disk: a snapshot may list each of them.
    #[must_use]
    pub const fn of_blocks(self, blocks: u64) -> Hold {
        Hold { freed: blocks, ..self }
    }
}

/// Space that a transaction needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Bytes that its data takes at most.
    pub(crate) data: u64,
    /// Maximal bytes for metadata. This is far more than metadata usually takes, so half of the reserve may be used for it.
    pub(crate) metadata: u64,
    /// The part of the pool that the transaction must leave alone.
    pub(crate) reserve: u64,
}

impl Need {
    const fn cost(&self) -> u64 {
        self.data.saturating_add(self.metadata)
    }

    /// Bytes that must be free beside those of other transactions.
    fn free(&self) -> u64 {
        let data = self.data.saturating_add(self.reserve);
        data.max(self.cost().saturating_add(self.reserve / 2))
    }
}

/// A transaction: holds a txg open until it is dropped. Keep it short, and never wait for another transaction meanwhile.
pub struct Tx {
    tx: dmu::Tx,
    groups: Arc<Groups>,
    /// Space promised to it. When it ends, its actual changes count instead.
    cost: u64,
}

impl Deref for Tx {
    type Target = dmu::Tx;

    fn deref(&self) -> &dmu::Tx {
        &self.tx
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let mut state = self.groups.lock();
        assert!(state.holds > 0, "a transaction that ends holds its txg open");
        assert!(state.promised >= self.cost, "a transaction gives back the space that it was promised, once");
        state.holds -= 1;
        state.promised -= self.cost;
        if state.holds == 0 && state.closing {
            self.groups.changed.notify_all();
        }
    }
}

/// Refuses to continue a request that is interrupted.
fn check_interrupt() -> Result<()> {
    if interrupt::is_wanted() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The state of the txgs, held.
pub(crate) type Locked<'a> = MutexHeld<'a, State>;

impl Groups {
    pub(crate) fn new(
        synced: Txg,
        stepwise: bool,
        limits: Limits,
        budget: Arc<DirtyBudget>,
        suspension: Arc<Suspension>,
    ) -> Groups {
        let state = State { open: synced.next(), synced, ..State::default() };
        let (state, changed, opened) = (RankedMutex::new(Rank::Txgs, state), Condvar::new(), Instant::now());
        Groups { state, changed, budget, stepwise, limits, suspension, opened }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.state.lock()
    }

    fn wait<'a>(&self, state: Locked<'a>) -> Locked<'a> {
        state.wait(|state| interrupt::wait(&self.changed, state))
    }

    fn wait_at_most<'a>(&self, state: Locked<'a>, left: Duration) -> Locked<'a> {
        state.wait(|state| {
            self.changed.wait_timeout(state, left).expect("no code panics while holding the txg state").0
        })
    }

    /// Blocks the caller while dirty data exceeds its limit, and delays it above the soft limit. Call it once per change,
    /// before taking any lock: a caller that waits here while holding a lock would block every other writer. The limit
    /// is exceeded by what callers that were let through make dirty afterwards. While I/O is suspended every caller
    /// waits here, or, with `failmode=continue`, none does. A pool that cannot write lets every caller through, and so does
    /// an interrupt of the caller's request: [`Groups::try_begin`] returns the error to them.
    pub(crate) fn wait_for_room(&self, dirty: impl Fn() -> u64) {
        let began = self.opened.elapsed();
        let mut delayed = false;
        let mut state = self.lock();
        while state.failed.is_none() && !interrupt::is_wanted() {
            if self.suspension.refused().is_some() {
                drop(state);
                if !self.suspension.wait_for_resume() {
                    return;
                }
                state = self.lock();
                continue;
            }
            let dirty = dirty();
            let dirty_max = self.limits.dirty_max();
            if self.stepwise {
                drop(state);
                if dirty <= dirty_max / 2 || self.sync().is_err() {
                    return;
                }
                state = self.lock();
                continue;
            }
            if dirty >= dirty_max {
                state = self.wait_for_sync(state);
                continue;
            }
            if dirty > SYNC_BYTES.min(dirty_max / 4) {
                // Early enough that the sync overlaps with further writing.
                self.want(&mut state);
            }
            if std::mem::replace(&mut delayed, true) {
                return;
            }
            let Some(wakeup) = self.limits.go_on_at(began, self.opened.elapsed(), dirty) else { return };
            drop(state);
            std::thread::sleep(wakeup.saturating_sub(self.opened.elapsed()));
            state = self.lock();
        }
    }

    /// Waits until the state changes, usually for a sync.
    fn wait_for_sync<'a>(&self, mut state: Locked<'a>) -> Locked<'a> {
        // A running sync may free enough space. Requesting the next sync now would write a small txg.
        if state.open == state.synced.next() {
            self.want(&mut state);
        }
        self.wait(state)
    }

    fn hold(self: &Arc<Self>, state: &mut State, cost: u64) -> Tx {
        interrupt::note_change();
        state.promised += cost;
        state.holds += 1;
        Tx { tx: dmu::Tx::new(state.open), groups: self.clone(), cost }
    }

    /// As [`Groups::try_begin`], and gives `None` also where the write throttle or a suspension would have it wait.
    pub(crate) fn begin_at_once(
        self: &Arc<Self>,
        need: &Need,
        dirty: impl Fn() -> u64,
    ) -> Result<Option<Tx>> {
        let mut state = self.lock();
        let has_to_wait = || self.suspension.refused().is_some() || dirty() >= self.limits.dirty_max();
        if state.failed.is_none() && has_to_wait() {
            return Ok(None);
        }
        self.join(&mut state, need)
    }

    /// Counts the unused txgs up to `txg` as synced. For an import, before its first txg.
    pub(crate) fn skip_to(&self, txg: Txg) {
        let mut state = self.lock();
        (state.synced, state.open) = (txg, txg.next());
    }

    /// Time since the pool was opened.
    pub(crate) fn uptime(&self) -> Duration {
        self.opened.elapsed()
    }

    /// The limits changed: wakes all waiting transactions.
    pub(crate) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    fn want(&self, state: &mut State) {
        if !state.wanted {
            state.wanted = true;
            self.changed.notify_all();
        }
    }

    /// Asks for a sync of the open txg for the sake of a job, which `queue` puts where [`Groups::close`] takes it from; returns
    /// the txg that it becomes part of.
    pub(crate) fn queue(&self, queue: impl FnOnce(&Locked<'_>)) -> Result<Txg> {
        let mut state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(Error::Stopped(failed.clone()));
        }
        queue(&state);
        self.want(&mut state);
        Ok(state.open)
    }

    /// Refuses if I/O is suspended and callers must not wait: with `failmode=continue`, or after refused writes were
    /// dropped.
    fn check_continue(&self) -> Result<()> {
        if self.suspension.refuses_writers() { Err(Error::Suspended) } else { Ok(()) }
    }

    /// Waits until everything done so far is on disk.
    pub(crate) fn sync(&self) -> Result<()> {
        let target = self.lock().open;
        self.sync_to(target)
    }

    /// As [`Groups::sync_to`], but waits for `patience` at most. The sync itself continues. Returns whether the txg is on
    /// disk.
    pub(crate) fn sync_within(&self, target: Txg, patience: Duration) -> Result<bool> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while state.synced < target {
            if let Some(failed) = &state.failed {
                return Err(Error::Stopped(failed.clone()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if state.open == target {
                self.want(&mut state);
            }
            state = self.wait_at_most(state, left);
        }
        Ok(true)
    }

    /// Waits until `target`, which was open, is on disk. No later txg is closed for it.
    pub(crate) fn sync_to(&self, target: Txg) -> Result<()> {
        let mut state = self.lock();
        while state.synced < target {
            if let Some(failed) = &state.failed {
                return Err(Error::Stopped(failed.clone()));
            }
            self.check_continue()?;
            check_interrupt()?;
            if state.open == target {
                // A closed txg will be synced. Another request would close the next one, too.
                self.want(&mut state);
            }
            state = self.wait(state);
        }
        Ok(())
    }

    /// Joins the open txg to write to an intent log, whose space was set aside before.
    pub(crate) fn begin_log(self: &Arc<Self>) -> Result<Tx> {
        let mut state = self.lock();
        loop {
            if let Some(failed) = &state.failed {
                return Err(Error::Stopped(failed.clone()));
            }
            if !state.closing {
                state.holds += 1;
                return Ok(Tx { tx: dmu::Tx::new(state.open), groups: self.clone(), cost: 0 });
            }
            state = self.wait(state);
        }
    }

    /// A caller needs space for an intent log in the open txg.
    pub(crate) fn poke(&self) {
        self.lock().poked = true;
        self.changed.notify_all();
    }

    /// For the sync thread: waits until it is wanted or `deadline` passes.
    pub(crate) fn wait_for_work(&self, deadline: Instant) -> Work {
        let mut state = self.lock();
        loop {
            if state.wanted {
                return Work::Sync;
            }
            if state.stopping {
                return Work::End;
            }
            if std::mem::take(&mut state.poked) {
                return Work::LogSpace(state.open);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Work::Sync;
            }
            state = self.wait_at_most(state, left);
        }
    }

    /// For the sync thread: closes the open txg, calls `freeze` while no transaction runs, opens the next.
    /// Returns the closed txg.
    pub(crate) fn close<F>(&self, freeze: impl FnOnce(&Locked<'_>) -> F) -> (Txg, F) {
        let mut state = self.lock();
        state.closing = true;
        while state.holds > 0 {
            state = self.wait(state);
        }
        assert_eq!(state.promised, 0, "no space is promised to transactions of a txg that nobody holds open");
        let closed = state.open;
        let frozen = freeze(&state);
        state.wanted = false;
        state.closing = false;
        state.syncing = self.budget.take_space() + std::mem::take(&mut state.logs);
        state.open = closed.next();
        state.writing = Some((closed, Instant::now()));
        self.changed.notify_all();
        (closed, frozen)
    }

    /// For the sync thread: reserves up to `want` bytes of the open txg for intent logs. `reserve` is the part of the pool
    /// that stays untouched. Returns the number of bytes: 0 while a transaction waits for space.
    pub(crate) fn set_aside(&self, want: u64, reserve: u64) -> u64 {
        let mut state = self.lock();
        if state.short > 0 {
            return 0;
        }
        let spoken_for = state.spoken_for(self.budget.space()) + reserve;
        let granted = want.min(state.allocatable.saturating_sub(spoken_for));
        state.logs += granted;
        granted
    }

    /// For the sync thread: `txg` is durable (or there was nothing to write). With `more` the next follows at once,
    /// unless the pool stops or txgs follow from the calls alone.
    pub(crate) fn synced(&self, txg: Txg, allocatable: u64, settling: u64, more: bool) {
        let mut state = self.lock();
        (state.synced, state.writing) = (txg, None);
        state.wanted |= more && !state.stopping && !self.stepwise;
        state.syncing = 0;
        (state.allocatable, state.settling, state.freeing) = (allocatable, settling, more);
        self.changed.notify_all();
    }

    /// For the sync thread: the next txg follows at once, unless the pool stops or txgs follow from the calls alone.
    pub(crate) fn go_on(&self) {
        let mut state = self.lock();
        state.wanted |= !state.stopping && !self.stepwise;
    }

    /// Whether the next txg frees more blocks of destroyed datasets.
    pub(crate) fn is_freeing(&self) -> bool {
        self.lock().freeing
    }

    /// The txg that is being written, and for how long.
    pub(crate) fn writing(&self) -> Option<(Txg, Duration)> {
        let state = self.lock();
        state.writing.filter(|_| state.failed.is_none()).map(|(txg, since)| (txg, since.elapsed()))
    }

    /// The reason why the pool can no longer be written; `None` while the sync thread runs.
    pub(crate) fn failed(&self) -> Option<Arc<Error>> {
        self.lock().failed.clone()
    }

    /// For the sync thread: nothing can be written any more.
    pub(crate) fn fail(&self, error: Arc<Error>) {
        self.lock().failed = Some(error);
        self.changed.notify_all();
    }

    /// Tells the sync thread to end after the present work.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }
}

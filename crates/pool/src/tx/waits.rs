//! Beginning a transaction, and waiting until one can begin.
//!
//! The two are apart, so that a caller can release its locks before it waits: [`Groups::try_begin`] never blocks, and
//! [`Groups::wait_to_begin`] blocks until another try makes sense (docs/decisions/0014-waiting-without-locks.md).

use std::sync::Arc;

use format::Txg;

use super::{Groups, Locked, Need, SHARED_SPACE_WAITS, SPACE_WAITS, State, Tx};
use crate::{Error, Result};

/// The outcome of a try to begin a transaction.
pub enum Begun {
    /// The transaction.
    Tx(Tx),
    /// It cannot begin now. The caller releases its locks, waits for this, and tries again.
    Waits(Wait),
}

/// Something that a change must wait for before it can begin its transaction. The caller holds no locks while it waits.
#[derive(Clone, Copy, Debug)]
pub struct Wait(Cause);

#[derive(Clone, Copy, Debug)]
enum Cause {
    /// A txg closes, or the pool has not enough free space now.
    Begin(Need),
    /// A limit is reached, and less may be counted once `txg` is on disk. One change waits for `most` syncs, while other
    /// changes take the space first.
    Sync { txg: Txg, most: u32 },
}

impl Wait {
    pub(crate) const fn to_begin(need: Need) -> Wait {
        Wait(Cause::Begin(need))
    }

    pub(crate) const fn for_sync(txg: Txg, most: u32) -> Wait {
        Wait(Cause::Sync { txg, most })
    }
}

/// The waits of one change so far. It lives as long as the change, over all its tries, and ends the waiting when
/// another wait cannot help.
#[derive(Default)]
pub struct Patience {
    space: u32,
    limits: u32,
    short: Option<Short>,
}

/// Counts its owner among the transactions that wait for free space.
struct Short(Arc<Groups>);

impl Drop for Short {
    fn drop(&mut self) {
        self.0.lock().short -= 1;
    }
}

impl Patience {
    fn note_short(&mut self, groups: &Arc<Groups>, state: &mut State) {
        if self.short.is_none() {
            state.short += 1;
            self.short = Some(Short(groups.clone()));
        }
    }
}

/// Why a transaction cannot begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// The txg closes.
    Closing,
    /// Too many transactions share the free space.
    Crowded,
    /// There is not enough free space.
    Space,
}

impl Groups {
    fn obstacle(&self, state: &State, need: &Need) -> Result<Option<Obstacle>> {
        if let Some(failed) = &state.failed {
            return Err(Error::Stopped(failed.clone()));
        }
        self.check_continue()?;
        super::check_interrupt()?;
        if state.closing {
            return Ok(Some(Obstacle::Closing));
        }
        let others = state.spoken_for(self.budget.space());
        if state.is_crowded(others, need) {
            return Ok(Some(Obstacle::Crowded));
        }
        let is_short = others.saturating_add(need.free()) > state.allocatable;
        Ok(is_short.then_some(Obstacle::Space))
    }

    /// Joins the open txg, however much is dirty; `None` if that has to wait.
    pub(crate) fn try_begin(self: &Arc<Self>, need: &Need) -> Result<Option<Tx>> {
        self.join(&mut self.lock(), need)
    }

    /// As `try_begin`, for a caller that holds the lock of the state.
    pub(super) fn join(self: &Arc<Self>, state: &mut State, need: &Need) -> Result<Option<Tx>> {
        match self.obstacle(state, need)? {
            None => Ok(Some(self.hold(state, need.cost()))),
            Some(_) => Ok(None),
        }
    }

    /// Waits until [`Groups::try_begin`] may succeed. [`Error::NoSpace`] when no wait can help.
    fn wait_to_begin(self: &Arc<Self>, need: &Need, patience: &mut Patience) -> Result<()> {
        let mut state = self.lock();
        loop {
            match self.obstacle(&state, need)? {
                None => return Ok(()),
                Some(Obstacle::Closing) => state = self.wait(state),
                Some(Obstacle::Crowded) => {
                    patience.note_short(self, &mut state);
                    drop(self.wait_for_sync(state));
                    return Ok(());
                }
                Some(Obstacle::Space) => return self.wait_for_space(state, need, patience),
            }
        }
    }

    fn wait_for_space(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        need: &Need,
        patience: &mut Patience,
    ) -> Result<()> {
        let others = state.spoken_for(self.budget.space());
        let needed = others.saturating_add(need.free());
        // Transactions may use less than they were promised. Freed space becomes usable later.
        let pending = others + state.settling;
        let is_hopeless = needed > state.allocatable + pending;
        let fits_alone = need.free() <= state.allocatable;
        let most = if fits_alone { SHARED_SPACE_WAITS } else { SPACE_WAITS };
        let has_waited_enough = patience.space >= most && !state.freeing;
        if (is_hopeless || has_waited_enough) && (patience.space > 0 || pending == 0) {
            return Err(Error::NoSpace);
        }
        patience.note_short(self, &mut state);
        patience.space = patience.space.saturating_add(1);
        drop(state);
        self.sync()
    }

    /// Waits for `wait`.
    pub(crate) fn wait_for(self: &Arc<Self>, wait: &Wait, patience: &mut Patience) -> Result<()> {
        self.lock().waiting += 1;
        let waited = match &wait.0 {
            Cause::Begin(need) => self.wait_to_begin(need, patience),
            Cause::Sync { most, .. } if patience.limits >= *most => Err(Error::Quota),
            Cause::Sync { txg, .. } => {
                patience.limits += 1;
                self.sync_to(*txg)
            }
        };
        self.lock().waiting -= 1;
        waited
    }

    /// Joins the open txg, however much is dirty. Waits until that is possible: the caller holds no locks.
    #[cfg(test)]
    pub(crate) fn begin(self: &Arc<Self>, need: &Need) -> Result<Tx> {
        let mut patience = Patience::default();
        loop {
            if let Some(tx) = self.try_begin(need)? {
                return Ok(tx);
            }
            self.wait_for(&Wait::to_begin(*need), &mut patience)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use storage::{Suspension, WriteError, interrupt};

    use super::*;
    use crate::Options;
    use crate::throttle::Limits;

    #[test]
    fn an_interrupted_request_begins_no_change_and_waits_for_no_resume() {
        let limits = Limits::of(&Options::default());
        let suspension = Arc::new(Suspension::default());
        suspension.enable();
        let groups = Arc::new(Groups::new(Txg(4), false, limits, Arc::default(), suspension.clone()));
        groups.synced(Txg(4), 1000, 0, false);
        let interrupt = Arc::new(interrupt::Interrupt::default());
        let refusal = || -> std::result::Result<(), WriteError> {
            let source = std::io::ErrorKind::StorageFull.into();
            Err(WriteError::Device { path: "/disk".into(), offset: 0, source })
        };
        std::thread::scope(|scope| {
            scope.spawn(|| suspension.attempt(refusal));
            assert!(suspension.await_suspension(1).is_some());
            let waits = scope.spawn(|| {
                interrupt::serving(&interrupt, || {
                    groups.wait_for_room(|| 0);
                    groups.try_begin(&Need::default()).map(|tx| tx.is_some())
                })
            });
            interrupt.set(interrupt::Wish::Asked);
            assert!(matches!(waits.join().expect("no panic"), Err(Error::Interrupted)));
            suspension.give_up();
        });
    }
}

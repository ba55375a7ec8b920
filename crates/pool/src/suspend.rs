//! Suspension: a pool whose device refuses writes waits for `zpool clear`, or stops.
//!
//! From:   `server`, whose user can repair the cause, and commands that ask for the state.
//! To:     [`storage::Suspension`], where the refused operations wait.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use storage::{FailMode, Refused, Suspension};

use crate::pool::{Inner, Pool};
use crate::{Error, Result};

/// Time limit of one retry of the refused operations.
const RETRY: Duration = Duration::from_secs(20);
/// Interval at which a wait for a sync checks whether I/O is suspended.
const GLANCE: Duration = Duration::from_millis(50);

/// Why a pool takes no changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// `zpool clear` retries the refused writes. Without it, nothing is written until the next import.
    pub can_resume: bool,
    /// `failmode` as the pool property spells it.
    pub failmode: &'static str,
    /// The device's or the pool's reason.
    pub why: String,
}

/// Reports suspensions. It does not keep the pool open.
#[derive(Debug)]
pub struct SuspensionWatch {
    suspension: Arc<Suspension>,
    inner: Weak<Inner>,
    seen: u64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inner({})", self.name())
    }
}

impl Inner {
    pub(crate) fn suspension(&self) -> &Arc<Suspension> {
        self.storage.suspension()
    }

    /// Adds events for the suspensions since the last call.
    pub(crate) fn note_suspensions(&self) {
        let (count, last) = self.suspension().history();
        let Some(refused) = last.filter(|_| self.events.note_suspension(count)) else { return };
        let mut event = self.event("ereport.fs.zfs.io_failure");
        event.insert("pool_state", 0u64);
        event.insert("pool_context", 0u64);
        event.insert("pool_failmode", self.suspension().mode().word());
        event.insert("vdev_path", refused.path.display().to_string().as_str());
        event.insert("why", refused.why.as_str());
        self.events.post(event);
    }
}

impl Pool {
    /// From now on, a refused write suspends the pool as the property `failmode` says. Before this call, a refused write
    /// stops the pool for good. For processes in which some thread can call [`Pool::resume`].
    ///
    /// # Errors
    /// The pool's properties cannot be read.
    pub fn suspend_on_refusal(&self) -> Result<SuspensionWatch> {
        let mode = self.pool_properties()?.into_iter().find(|(name, _)| name == "failmode");
        if let Some((_, crate::props::Value::Number(number))) = mode {
            self.inner.suspension().set_mode(FailMode::from_number(number));
        }
        self.inner.suspension().enable();
        let (suspension, inner) = (self.inner.suspension().clone(), Arc::downgrade(&self.inner));
        Ok(SuspensionWatch { suspension, inner, seen: 0 })
    }

    /// Why the pool takes no changes; `None` if it does.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        let suspension = self.inner.suspension();
        let failmode = suspension.mode().word();
        if let Some(error) = self.inner.groups.failed() {
            return Some(Trouble { can_resume: false, failmode, why: error.to_string() });
        }
        // Refused writes that were dropped are not retried, because the sync thread is about to end.
        let can_resume = !suspension.is_given_up();
        suspension.refused().map(|refused| Trouble { can_resume, failmode, why: refused.why })
    }

    /// The open devices whose paths lead to another file now, each with its present path.
    #[must_use]
    pub fn moved_devices(&self) -> Vec<(PathBuf, PathBuf)> {
        let leaves = self.inner.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        leaves.filter_map(|leaf| Some((leaf.disk.path().to_path_buf(), leaf.disk.moved()?))).collect()
    }

    /// The open devices whose files were deleted, each with the path in `/proc` that still shows its contents. The contents
    /// are lost when this process closes the pool.
    #[must_use]
    pub fn deleted_devices(&self) -> Vec<(PathBuf, PathBuf)> {
        let leaves = self.inner.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        leaves.filter_map(|leaf| Some((leaf.disk.path().to_path_buf(), leaf.disk.deleted()?))).collect()
    }

    /// Whether refused writes wait for [`Pool::resume`].
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.inner.suspension().refused().is_some()
    }

    /// Tries refused writes again.
    ///
    /// # Errors
    /// [`Error::Suspended`] when a device refuses still; [`Error::Stopped`] when no retry can help.
    pub fn resume(&self) -> Result<()> {
        if let Some(error) = self.inner.groups.failed() {
            return Err(Error::Stopped(error));
        }
        let refused = self.inner.suspension().retry(RETRY);
        self.inner.groups.wake();
        match refused.is_some() || self.inner.suspension().is_given_up() {
            true => Err(Error::Suspended),
            false => Ok(()),
        }
    }

    /// Drops refused writes: the pool stops at its last synced txg, and all waiting callers get an error.
    pub fn give_up_writes(&self) {
        self.inner.suspension().give_up();
        self.inner.groups.wake();
    }

    /// As [`Pool::sync`], but does not wait for a pool that is suspended.
    ///
    /// # Errors
    /// [`Error::Suspended`], [`Error::Stopped`].
    pub fn sync_unless_suspended(&self) -> Result<()> {
        self.sync_unless_suspended_within(Duration::MAX).map(|_| ())
    }

    /// As above, but waits for `patience` at most, because a txg cannot close before its transactions have ended. Returns
    /// whether everything is on disk.
    ///
    /// # Errors
    /// As [`Pool::sync_unless_suspended`].
    pub fn sync_unless_suspended_within(&self, patience: Duration) -> Result<bool> {
        if !self.is_syncing() {
            return Ok(true);
        }
        let began = Instant::now();
        let target = self.inner.groups.lock().open;
        while !self.inner.groups.sync_within(target, GLANCE)? {
            self.check_resumed()?;
            if began.elapsed() >= patience {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Refuses to begin a change that would wait for a suspended pool.
    pub(crate) fn check_resumed(&self) -> Result<()> {
        if self.is_suspended() { Err(Error::Suspended) } else { Ok(()) }
    }
}

impl SuspensionWatch {
    /// Blocks until the pool is suspended (again) and adds the event. Returns the cause and whether the process must end
    /// (`failmode=panic`); `None` when the pool is closed.
    pub fn wait(&mut self) -> Option<(Refused, FailMode)> {
        let (refused, mode) = self.suspension.await_suspension(self.seen + 1)?;
        self.seen = self.suspension.history().0;
        let inner = self.inner.upgrade()?;
        inner.note_suspensions();
        // Wakes the writers that wait for the write throttle: with `failmode=continue` they get an error.
        inner.groups.wake();
        Some((refused, mode))
    }
}

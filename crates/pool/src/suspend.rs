//! A pool whose device refuses writes: suspended until `zpool clear`, or given up.
//!
//! From:   `server`, which has somebody who can repair the cause, and commands that ask how the pool is.
//! To:     [`storage::Suspension`], where the refused operations wait.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use storage::{FailMode, Refused, Suspension};

use crate::pool::{Inner, Pool};
use crate::{Error, Result};

/// How long one retry of the refused operations is waited for.
const RETRY: Duration = Duration::from_secs(20);
/// How often a wait for a sync looks whether I/O was suspended.
const GLANCE: Duration = Duration::from_millis(50);

/// Why a pool takes no changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// `zpool clear` has the refused writes tried again. Otherwise nothing is written until the next import.
    pub can_resume: bool,
    /// `failmode` as the pool property spells it.
    pub failmode: &'static str,
    /// The device's or the pool's reason.
    pub why: String,
}

/// Tells of suspensions, and does not keep the pool open.
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

    /// Notes suspensions since this was asked last, as events.
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
    /// From now on the pool is suspended where a device refuses a write, as the property `failmode` says; before, the
    /// pool stops for good. For a process that others can reach to call [`Pool::resume`].
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
        // Writes that were given up are not tried again: the sync thread is about to end.
        let can_resume = !suspension.is_given_up();
        suspension.refused().map(|refused| Trouble { can_resume, failmode, why: refused.why })
    }

    /// The devices that their paths do not lead to any more, each with the place where it is now.
    #[must_use]
    pub fn moved_devices(&self) -> Vec<(PathBuf, PathBuf)> {
        let leaves = self.inner.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        leaves.filter_map(|leaf| Some((leaf.disk.path().to_path_buf(), leaf.disk.moved()?))).collect()
    }

    /// The devices whose files were deleted, each with the place where the system still shows its contents. They are gone
    /// for good when this process lets go of the pool.
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

    /// Has refused writes tried again.
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

    /// Ends the waiting of refused writes: the pool stops at its last synced txg, and everybody who waits gets an error.
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

    /// The same for as long as `patience` at most: a txg cannot close before the transactions in it have ended. Gives
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
    /// Blocks until the pool is suspended (again) and notes the event. Gives the cause and whether the process must end
    /// (`failmode=panic`); `None` when the pool is let go of.
    pub fn wait(&mut self) -> Option<(Refused, FailMode)> {
        let (refused, mode) = self.suspension.await_suspension(self.seen + 1)?;
        self.seen = self.suspension.history().0;
        let inner = self.inner.upgrade()?;
        inner.note_suspensions();
        // Writers that wait for the throttle look again: `failmode=continue` refuses them.
        inner.groups.wake();
        Some((refused, mode))
    }
}

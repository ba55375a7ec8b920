//! The end of a mount's session, after all requests taken from the kernel are served.
//!
//! A pool may need minutes for that. An unmount waits as long as the work shrinks, and gives up only without progress.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zpl::rank::{MutexHeld, RankedMutex};

use crate::progress::Patience;

/// Interval of the checks for progress.
const GLANCE: Duration = Duration::from_millis(50);
/// Why a wait does not fail.
const WHY: &str = "no code panics while holding the end of a session";

/// How a wait for the end of a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It is over.
    Over,
    /// The kernel keeps the connection, because another namespace or process has the mount, too.
    InUse,
    /// The kernel sends no more requests, but earlier ones are not finished and there is no progress.
    Stuck,
}

/// The end of a session, for threads that wait for it.
pub(crate) struct Ended {
    /// The connection, while the session lasts. It must not outlive the session, because the kernel would go on sending
    /// requests.
    connection: RankedMutex<Option<OwnedFd>>,
    changed: Condvar,
}

/// The session is over when this is dropped.
pub(crate) struct AtTheEnd(pub(crate) Arc<Ended>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        self.0.come();
    }
}

impl Ended {
    pub(crate) fn new(connection: OwnedFd) -> Ended {
        Ended { connection: RankedMutex::leaf(Some(connection)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexHeld<'_, Option<OwnedFd>> {
        self.connection.lock()
    }

    /// The session is over.
    pub(crate) fn come(&self) {
        self.lock().take();
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_none()
    }

    /// Calls a function with the connection; `None` when the session is over.
    pub(crate) fn with_connection<T>(&self, act: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.lock().as_ref().map(act)
    }

    pub(crate) fn wait(&self) {
        let mut connection = self.lock();
        while connection.is_some() {
            connection = connection.wait(|connection| self.changed.wait(connection).expect(WHY));
        }
    }

    /// Waits for the end, at most `limit`. Returns whether it came.
    fn within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut connection = self.lock();
        while connection.is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let wait = |connection| self.changed.wait_timeout(connection, left).expect(WHY).0;
            connection = connection.wait(wait);
        }
        true
    }

    /// Whether the kernel sends no more requests: the mount is gone everywhere, or was aborted.
    pub(crate) fn is_cut(&self) -> bool {
        let connection = self.lock();
        let Some(connection) = &*connection else { return true };
        let mut fds = [PollFd::new(connection, PollFlags::empty())];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
            && fds[0].revents().contains(PollFlags::ERR)
    }

    /// Waits for the end, at most `ending`. If the kernel sends no more requests, waits as long as `patience` allows.
    pub(crate) fn worked_off<F: Fn() -> u64>(&self, ending: Duration, mut patience: Patience<F>) -> Waited {
        let began = Instant::now();
        while !self.within(GLANCE) {
            let is_over = patience.is_over();
            if self.is_cut() {
                if is_over {
                    return Waited::Stuck;
                }
            } else if began.elapsed() >= ending {
                return Waited::InUse;
            }
        }
        Waited::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(300);

    /// The two ends of a pipe. The writing end sees when the other end is closed, as a connection does.
    fn connection() -> (OwnedFd, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        (writer.into(), reader)
    }

    #[test]
    fn a_wait_goes_on_while_there_is_progress() {
        let (connection, kernel) = connection();
        let ended = Arc::new(Ended::new(connection));
        drop(kernel);
        let looks = Cell::new(0);
        let moved = || {
            looks.set(looks.get() + 1);
            // Twenty checks take five times the limit for no progress.
            if looks.get() == 20 {
                ended.come();
            }
            looks.get()
        };
        assert_eq!(ended.worked_off(Duration::ZERO, Patience::new(SHORT, moved)), Waited::Over);
        assert!(looks.get() >= 20 && ended.is_over());
    }

    #[test]
    fn a_wait_without_progress_ends_and_so_does_one_for_a_mount_used_elsewhere() {
        let (connection, kernel) = connection();
        let ended = Ended::new(connection);
        assert_eq!(ended.worked_off(SHORT, Patience::new(LONG, || 7)), Waited::InUse);
        drop(kernel);
        assert_eq!(ended.worked_off(LONG, Patience::new(SHORT, || 7)), Waited::Stuck);
        ended.come();
        assert_eq!(ended.worked_off(LONG, Patience::new(LONG, || 7)), Waited::Over);
    }
}

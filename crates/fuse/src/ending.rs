//! The end of a mount's session: it comes when what was taken from the kernel is worked off.
//!
//! A pool may need minutes for that. Whoever unmounts waits as long as it gets less, and gives up only when nothing moves
//! any more.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::progress::Patience;

/// Between two looks at whether something moved.
const GLANCE: Duration = Duration::from_millis(50);

/// How a wait for the end of a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It is over.
    Over,
    /// The kernel keeps the connection: somebody else has the mount, too.
    InUse,
    /// The kernel asks nothing more, but what it asked before is not worked off, and nothing moves.
    Stuck,
}

/// The end of a session, for those who wait for it.
pub(crate) struct Ended {
    /// The connection, as long as the session is not over: it must not outlive it, or the kernel would go on asking.
    connection: Mutex<Option<OwnedFd>>,
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
        Ended { connection: Mutex::new(Some(connection)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.connection.lock().expect("no code panics while holding the end of a session")
    }

    /// The session is over.
    pub(crate) fn come(&self) {
        self.lock().take();
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_none()
    }

    /// Does something with the connection; `None` when the session is over.
    pub(crate) fn with_connection<T>(&self, act: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.lock().as_ref().map(act)
    }

    pub(crate) fn wait(&self) {
        let mut connection = self.lock();
        while connection.is_some() {
            let waited = self.changed.wait(connection);
            connection = waited.expect("no code panics while holding the end of a session");
        }
    }

    /// Waits for it at most `limit`; gives whether it came.
    fn within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut connection = self.lock();
        while connection.is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(connection, left);
            connection = waited.expect("no code panics while holding the end of a session").0;
        }
        true
    }

    /// Whether the kernel asks nothing more: the mount is gone everywhere, or was cut off.
    pub(crate) fn is_cut(&self) -> bool {
        let connection = self.lock();
        let Some(connection) = &*connection else { return true };
        let mut fds = [PollFd::new(connection, PollFlags::empty())];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
            && fds[0].revents().contains(PollFlags::ERR)
    }

    /// Waits for it at most `ending`; where the kernel asks nothing more, as long as `patience` has it.
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

    /// The two ends of a pipe: the one that is written to knows when the other is gone, as a connection does.
    fn connection() -> (OwnedFd, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        (writer.into(), reader)
    }

    #[test]
    fn who_waits_goes_on_while_something_moves() {
        let (connection, kernel) = connection();
        let ended = Arc::new(Ended::new(connection));
        drop(kernel);
        let looks = Cell::new(0);
        let moved = || {
            looks.set(looks.get() + 1);
            // Twenty looks take five times as long as nothing may move.
            if looks.get() == 20 {
                ended.come();
            }
            looks.get()
        };
        assert_eq!(ended.worked_off(Duration::ZERO, Patience::new(SHORT, moved)), Waited::Over);
        assert!(looks.get() >= 20 && ended.is_over());
    }

    #[test]
    fn nothing_that_moves_is_given_up_and_so_is_what_others_use() {
        let (connection, kernel) = connection();
        let ended = Ended::new(connection);
        assert_eq!(ended.worked_off(SHORT, Patience::new(LONG, || 7)), Waited::InUse);
        drop(kernel);
        assert_eq!(ended.worked_off(LONG, Patience::new(SHORT, || 7)), Waited::Stuck);
        ended.come();
        assert_eq!(ended.worked_off(LONG, Patience::new(LONG, || 7)), Waited::Over);
    }
}

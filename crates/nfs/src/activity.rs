//! Since when a connection is idle, for the choice of a connection to end when there are too many.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The state of one connection. `None` while a call is under way.
pub(crate) struct Activity {
    idle_since: Mutex<Option<Instant>>,
}

impl Activity {
    /// A new connection.
    pub(crate) fn new() -> Activity {
        Activity { idle_since: Mutex::new(Some(Instant::now())) }
    }

    fn set(&self, since: Option<Instant>) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// A call begins.
    pub(crate) fn begin(&self) {
        self.set(None);
    }

    /// The call was answered.
    pub(crate) fn end(&self) {
        self.set(Some(Instant::now()));
    }

    /// For how long the connection has been idle; `None` while a call is under way.
    pub(crate) fn idle(&self) -> Option<Duration> {
        self.idle_since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_between_calls() {
        let activity = Activity::new();
        assert!(activity.idle().is_some());
        activity.begin();
        assert_eq!(activity.idle(), None);
        activity.end();
        assert!(activity.idle().is_some());
    }
}

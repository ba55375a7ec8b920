//! Since when a connection is idle, for the choice of a connection to end when there are too many.

use std::time::{Duration, Instant};

use zpl::rank::{MutexHeld, RankedMutex};

/// The calls of one connection.
pub(crate) struct Activity {
    state: RankedMutex<State>,
}

struct State {
    /// Calls under way.
    in_flight: u32,
    /// The time of the last begin or end of a call.
    last: Instant,
}

impl Activity {
    /// A new connection.
    pub(crate) fn new() -> Activity {
        Activity { state: RankedMutex::leaf(State { in_flight: 0, last: Instant::now() }) }
    }

    fn state(&self) -> MutexHeld<'_, State> {
        self.state.lock_after_panics()
    }

    /// A call begins. It ends when the value is dropped.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        let mut state = self.state();
        (state.in_flight, state.last) = (state.in_flight + 1, Instant::now());
        UnderWay(self)
    }

    /// Whether a call is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.state().in_flight > 0
    }

    /// For how long the connection has been idle; `None` while a call is under way.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let state = self.state();
        (state.in_flight == 0).then(|| state.last.elapsed())
    }
}

/// A call under way.
pub(crate) struct UnderWay<'a>(&'a Activity);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.in_flight, state.last) = (state.in_flight - 1, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_between_calls() {
        let activity = Activity::new();
        assert!(activity.idle().is_some());
        let calls = [activity.begin(), activity.begin()];
        assert_eq!(activity.idle(), None);
        let [one, other] = calls;
        drop(one);
        assert!(activity.idle().is_none() && activity.is_busy());
        drop(other);
        assert!(activity.idle().is_some() && !activity.is_busy());
    }
}

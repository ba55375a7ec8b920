//! The limit in time for the writes of a pool that other machines may take.
//!
//! From:   the heartbeats of `pool`: each one that reached a device moves the limit.
//! To:     every request that changes a device. After the limit all of them fail, because another machine may have taken the
//!         pool: its blocks may lie where this process sees free space.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::host::Clock;

/// There is no limit.
const FREE: u64 = u64::MAX;
/// The limit has passed.
const CLOSED: u64 = 0;

/// The limit. Once it has passed, it stays so.
#[derive(Debug)]
pub struct Fence {
    clock: OnceLock<Arc<dyn Clock>>,
    /// Nanoseconds of the monotonic clock, or [`FREE`], or [`CLOSED`].
    until: AtomicU64,
}

impl Default for Fence {
    fn default() -> Fence {
        Fence { clock: OnceLock::new(), until: AtomicU64::new(FREE) }
    }
}

impl Fence {
    /// From now on writes are allowed until `until` of the monotonic clock `clock`. Returns false if the limit before has passed.
    pub fn hold_until(&self, clock: &Arc<dyn Clock>, until: Duration) -> bool {
        self.clock.get_or_init(|| clock.clone());
        self.set(u64::try_from(until.as_nanos()).map_or(FREE - 1, |nanos| nanos.clamp(1, FREE - 1)))
    }

    /// From now on there is no limit. Returns false if the limit before has passed.
    pub fn free(&self) -> bool {
        self.set(FREE)
    }

    fn set(&self, until: u64) -> bool {
        !self.has_passed()
            && self
                .until
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| (now != CLOSED).then_some(until))
                .is_ok()
    }

    /// Whether the limit has passed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        if until == FREE {
            return false;
        }
        let now = self.clock.get().map_or(FREE, |clock| clock.monotonic().as_nanos() as u64);
        if until != CLOSED && now <= until {
            return false;
        }
        // A heartbeat that ends at this moment may have moved the limit.
        until == CLOSED
            || self.until.compare_exchange(until, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
            || self.has_passed()
    }

    /// Refuses a change of a device after the limit.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.has_passed() {
            false => Ok(()),
            true => Err(io::Error::other(
                "no heartbeat reached the pool's devices in time: another machine may have taken the pool",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SteppedClock;

    #[test]
    fn a_limit_that_has_passed_stays_so() {
        let clock: Arc<dyn Clock> = Arc::new(SteppedClock::new(0));
        let fence = Fence::default();
        assert!(fence.check().is_ok(), "there is no limit at first");
        assert!(fence.hold_until(&clock, Duration::from_millis(5)));
        assert!(fence.check().is_ok());
        assert!(fence.hold_until(&clock, Duration::from_millis(8)), "a heartbeat moves it");
        while !fence.has_passed() {}
        assert!(clock.monotonic() > Duration::from_millis(8));
        assert!(!fence.hold_until(&clock, Duration::from_secs(9)) && !fence.free());
        assert!(fence.check().is_err());
    }
}

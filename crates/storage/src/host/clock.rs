//! Time.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A source of time.
pub trait Clock: Send + Sync + Debug {
    /// Wall time since the Unix epoch: seconds and nanoseconds (below 10⁹).
    fn now(&self) -> (u64, u32);

    /// Time since an arbitrary start; never goes back, and continues while the machine sleeps.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Duration,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { start: since_boot() }
    }
}

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl Clock for SystemClock {
    fn now(&self) -> (u64, u32) {
        // The clock from which the kernel takes the times of files: it moves in steps of some milliseconds. A mounted file
        // system gets some times from the kernel and takes others from here. With a finer clock, a file would seem
        // to be read after it was written, or to be made after its first change.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        // A clock set before 1970 reads as 1970.
        u64::try_from(now.tv_sec).map_or((0, 0), |secs| (secs, now.tv_nsec as u32))
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }
}

/// Wall time stands still; each read of the monotonic time advances it by 1 ms, so that waiting loops end.
#[derive(Debug)]
pub struct FixedClock {
    secs: u64,
    nanos: u32,
    asked: AtomicU64,
}

impl FixedClock {
    /// Always `secs` and `nanos` since the Unix epoch.
    #[must_use]
    pub fn new(secs: u64, nanos: u32) -> FixedClock {
        assert!(nanos < 1_000_000_000, "nanoseconds stay below a second");
        FixedClock { secs, nanos, asked: AtomicU64::new(0) }
    }
}

impl Clock for FixedClock {
    fn now(&self) -> (u64, u32) {
        (self.secs, self.nanos)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.asked.fetch_add(1, Ordering::Relaxed))
    }
}

/// Both times move 1 ms per question.
#[derive(Debug)]
pub struct SteppedClock {
    start_secs: u64,
    asked: AtomicU64,
}

impl SteppedClock {
    /// Starts at `start_secs` since the Unix epoch.
    #[must_use]
    pub fn new(start_secs: u64) -> SteppedClock {
        SteppedClock { start_secs, asked: AtomicU64::new(0) }
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> (u64, u32) {
        let passed = self.monotonic();
        (self.start_secs.saturating_add(passed.as_secs()), passed.subsec_nanos())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.asked.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stepped_time_moves_a_millisecond_per_question() {
        let clock = SteppedClock::new(100);
        assert_eq!(clock.now(), (100, 0));
        assert_eq!(clock.monotonic(), Duration::from_millis(1));
        for _ in 0..998 {
            clock.now();
        }
        assert_eq!(clock.now(), (101, 0));
    }

    #[test]
    fn fixed_wall_time_stands_still_while_monotonic_time_moves() {
        let clock = FixedClock::new(7, 9);
        assert_eq!(clock.now(), clock.now());
        assert!(clock.monotonic() < clock.monotonic());
    }

    #[test]
    fn system_time_is_after_2020_and_never_goes_back() {
        let clock = SystemClock::default();
        assert!(clock.now().0 > 1_577_836_800);
        assert!(clock.monotonic() <= clock.monotonic());
    }
}

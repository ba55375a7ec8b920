//! The write throttle: delays writers before the dirty limit would block them.
//!
//! Above `zfs_delay_min_dirty_percent` of `zfs_dirty_data_max`, each transaction is delayed. The delay grows as the dirty
//! bytes approach the limit, so that all writers together produce as much as the disks can write. The delays of concurrent
//! writers are added: ten writers do not get ten times the rate.
//! Source: OpenZFS, zfs(4) "ZFS transaction delay".

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dsl::livelist::Rules;
use storage::rank::RankedMutex;

use crate::options::Options;

/// The longest wait of one transaction.
const DELAY_MAX: Duration = Duration::from_millis(100);

/// Limits of the txg state machine. They may change while the pool is in use.
pub(crate) struct Limits {
    /// Dirty bytes at which writers wait for a sync.
    pub(crate) dirty_max: AtomicU64,
    /// Percent of it from which on they are delayed.
    pub(crate) delay_min_percent: AtomicU64,
    /// Nanoseconds of delay half-way between there and the limit.
    pub(crate) delay_scale: AtomicU64,
    /// Seconds after which changes are synced unasked.
    pub(crate) txg_timeout: AtomicU64,
    /// Blocks of destroyed datasets that one txg frees.
    pub(crate) async_blocks: AtomicU64,
    /// Written blocks in the last part of a livelist from which on the next txg begins a new one.
    pub(crate) livelist_entries: AtomicU64,
    /// Percentage of its space that a clone with a livelist must share with its origin, and more.
    pub(crate) livelist_percent: AtomicU64,
    /// The approximate number of bytes that one txg copies from a vdev that is being removed.
    pub(crate) copied_at_once: AtomicU64,
    /// Bytes that a mapping of a removed vdev has at least that is condensed.
    pub(crate) condense_min_mapping: AtomicU64,
    /// Entries of it that one txg looks at.
    pub(crate) condensed_at_once: AtomicU64,
    /// Nothing is copied of a vdev that is being removed.
    pub(crate) suspends_removal: AtomicBool,
    /// Bytes of an expansion of a raidz vdev after which it waits; 0: it does not.
    pub(crate) reflow_max: AtomicU64,
    /// A scrub follows when all rebuilds have ended.
    pub(crate) scrubs_rebuilt: AtomicBool,
    /// A request to a device that takes this many milliseconds counts as slow.
    pub(crate) slow_io_ms: AtomicU64,
    /// Milliseconds after which an event reports a request that a device does not answer.
    pub(crate) deadman_ms: AtomicU64,
    /// Milliseconds after which an event reports a txg that does not end.
    pub(crate) deadman_sync_ms: AtomicU64,
    /// When the last delayed transaction may go on, since the pool was opened.
    wakeup: RankedMutex<Duration>,
}

impl Limits {
    pub(crate) fn of(options: &Options) -> Limits {
        Limits {
            dirty_max: options.dirty_max.into(),
            delay_min_percent: options.delay_min_dirty_percent.into(),
            delay_scale: options.delay_scale.into(),
            txg_timeout: options.txg_timeout.into(),
            async_blocks: options.async_blocks.into(),
            livelist_entries: options.livelists.entries_max.into(),
            livelist_percent: options.livelists.percent_shared.into(),
            copied_at_once: options.copied_at_once.into(),
            condense_min_mapping: options.condense_min_mapping.into(),
            condensed_at_once: options.condensed_at_once.into(),
            suspends_removal: options.suspends_removal.into(),
            reflow_max: options.reflow_max.into(),
            scrubs_rebuilt: options.scrubs_rebuilt.into(),
            slow_io_ms: options.slow_io_ms.into(),
            deadman_ms: options.deadman_ms.into(),
            deadman_sync_ms: options.deadman_sync_ms.into(),
            wakeup: RankedMutex::default(),
        }
    }

    pub(crate) fn dirty_max(&self) -> u64 {
        self.dirty_max.load(Ordering::Relaxed)
    }

    /// The rules for new parts of livelists, and for dropping them.
    pub(crate) fn livelists(&self) -> Rules {
        Rules {
            entries_max: self.livelist_entries.load(Ordering::Relaxed),
            percent_shared: self.livelist_percent.load(Ordering::Relaxed),
        }
    }

    /// Whether nothing is copied of a vdev that is being removed.
    pub(crate) fn suspends_removal(&self) -> bool {
        self.suspends_removal.load(Ordering::Relaxed)
    }

    pub(crate) fn txg_timeout(&self) -> Duration {
        Duration::from_secs(self.txg_timeout.load(Ordering::Relaxed))
    }

    pub(crate) fn slow_io(&self) -> Duration {
        Duration::from_millis(self.slow_io_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn deadman(&self) -> Duration {
        Duration::from_millis(self.deadman_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn deadman_sync(&self) -> Duration {
        Duration::from_millis(self.deadman_sync_ms.load(Ordering::Relaxed))
    }

    /// Whether transactions are delayed at `dirty` bytes.
    pub(crate) fn delays(&self, dirty: u64) -> bool {
        !self.delay(dirty).is_zero()
    }

    /// The delay of one transaction at `dirty` bytes; zero up to the percentage.
    fn delay(&self, dirty: u64) -> Duration {
        let max = self.dirty_max();
        let percent = self.delay_min_percent.load(Ordering::Relaxed);
        let from = (u128::from(max) * u128::from(percent) / 100) as u64;
        if dirty <= from {
            return Duration::ZERO;
        }
        let left = max.saturating_sub(dirty);
        if left == 0 {
            return DELAY_MAX;
        }
        let scale = u128::from(self.delay_scale.load(Ordering::Relaxed));
        let nanos = scale * u128::from(dirty - from) / u128::from(left);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(DELAY_MAX)
    }

    /// When a transaction that began at `began` may continue, given `dirty` bytes; `None`: at once. All times are measured
    /// from the same start. Time that it has already waited counts.
    pub(crate) fn go_on_at(&self, began: Duration, now: Duration, dirty: u64) -> Option<Duration> {
        let delay = self.delay(dirty);
        if delay.is_zero() || now >= began + delay {
            return None;
        }
        let mut last = self.wakeup.lock();
        let wakeup = (began + delay).max(*last + delay);
        *last = wakeup;
        Some(wakeup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(7);

    fn limits() -> Limits {
        let options = Options {
            dirty_max: 1000,
            delay_min_dirty_percent: 60,
            delay_scale: 500_000,
            ..Options::default()
        };
        Limits::of(&options)
    }

    #[test]
    fn the_delay_grows_from_nothing_at_sixty_percent_to_a_tenth_of_a_second_at_the_limit() {
        let limits = limits();
        assert_eq!(limits.delay(0), Duration::ZERO);
        assert_eq!(limits.delay(600), Duration::ZERO);
        assert_eq!(limits.delay(700), Duration::from_nanos(500_000 * 100 / 300));
        assert_eq!(limits.delay(800), Duration::from_micros(500));
        assert_eq!(limits.delay(900), Duration::from_micros(1500));
        assert_eq!(limits.delay(999), DELAY_MAX);
        assert_eq!(limits.delay(1000), DELAY_MAX);
        assert_eq!(limits.delay(5000), DELAY_MAX);
    }

    #[test]
    fn the_point_of_the_first_delay_moves_with_the_limit() {
        let limits = limits();
        assert!(limits.delay(700) > Duration::ZERO);
        limits.dirty_max.store(2000, Ordering::Relaxed);
        assert_eq!(limits.delay(700), Duration::ZERO);
        assert_eq!(limits.delay(1600), Duration::from_micros(500));
        limits.delay_min_percent.store(90, Ordering::Relaxed);
        assert_eq!(limits.delay(1600), Duration::ZERO);
        limits.delay_min_percent.store(60, Ordering::Relaxed);
        limits.delay_scale.store(1_000_000, Ordering::Relaxed);
        assert_eq!(limits.delay(1600), Duration::from_millis(1));
    }

    #[test]
    fn the_delays_of_writers_at_the_same_time_follow_one_another() {
        let limits = limits();
        let delay = Duration::from_micros(500);
        for n in 1..=10 {
            assert_eq!(limits.go_on_at(NOW, NOW, 800), Some(NOW + delay * n));
        }
        // A wait for a txg in the meantime counts as delay.
        assert_eq!(limits.go_on_at(NOW, NOW + delay, 800), None);
        assert_eq!(limits.go_on_at(NOW, NOW, 600), None);
    }
}

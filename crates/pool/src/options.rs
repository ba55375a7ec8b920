//! The options with which a pool is opened.

use std::sync::Arc;
use std::time::Duration;

use dsl::livelist::Rules;
use format::uberblock::Uberblock;
use storage::host::Host;
use storage::{GzipEngine, SecondLimits};

use crate::apart::Apart;
use crate::found_state::FoundState;

/// Default for [`Options::dirty_max`] on machines with enough memory: a few txgs. A larger limit is slower, because filling
/// fresh memory costs as much time as a fast codec.
const DIRTY_MAX: u64 = 256 << 20;

/// Dirty bytes at which a sync starts by itself. The value is large enough for large writes. It is small enough that
/// compression and writing overlap with new changes, and that the buffers of one txg are reused by the second next.
pub(crate) const SYNC_BYTES: u64 = 64 << 20;

/// The treatment of a pool whose log devices are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingLogs {
    /// It is not opened.
    Refused,
    /// It is opened if they were missing already when it was imported last: no intent log lies there.
    KnownAbsent,
    /// It is opened, and its intent logs are discarded.
    GivenUp,
}

/// How often a pool with `multihost` on says that it is in use, and how long others wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Milliseconds between two heartbeats on a device.
    pub interval_ms: u32,
    /// After so many intervals without a heartbeat nothing is written any more; 0: there is no such limit.
    pub fail_intervals: u16,
    /// An import watches so many intervals if the pool does not say when its holder gives up.
    pub import_intervals: u16,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { interval_ms: 1000, fail_intervals: 10, import_intervals: 20 }
    }
}

impl Pace {
    /// The time between two heartbeats on a device.
    pub(crate) fn interval(self) -> Duration {
        Duration::from_millis(self.interval_ms.into())
    }

    /// The time that may pass without a heartbeat; `None`: any.
    pub(crate) fn limit(self) -> Option<Duration> {
        (self.fail_intervals > 0).then(|| self.interval() * self.fail_intervals.into())
    }
}

/// Limits and behaviour of an open pool.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nothing is ever written.
    pub read_only: bool,
    /// Bytes of records kept in memory.
    pub cache_bytes: u64,
    /// Of the cache devices.
    pub second: SecondLimits,
    /// Bytes of changes collected before writers wait.
    pub dirty_max: u64,
    /// Percent of `dirty_max` from which on writers are delayed.
    pub delay_min_dirty_percent: u64,
    /// Nanoseconds of delay half-way between there and `dirty_max`.
    pub delay_scale: u64,
    /// Threads that compress and checksum; 0: one per core.
    pub workers: usize,
    /// Threads that write; 0: the sync thread itself.
    pub io_threads: usize,
    /// The implementation that compresses with gzip. It overrides the property of datasets
    /// ([`crate::props::names::GZIP_ENGINE`]).
    pub gzip_engine: Option<GzipEngine>,
    /// Seconds after which a sync starts by itself.
    pub txg_timeout: u64,
    /// Blocks of destroyed datasets that one txg frees.
    pub async_blocks: u64,
    /// The rules for new parts of the livelist of a clone, and for dropping it.
    pub livelists: Rules,
    /// Bytes of a vdev that is being removed that one txg copies, about.
    pub copied_at_once: u64,
    /// A mapping of a removed vdev that takes more bytes is condensed when much of it is obsolete.
    pub condense_min_mapping: u64,
    /// For tests: so many entries of a mapping that is condensed are looked at in one txg.
    pub condensed_at_once: u64,
    /// Nothing is copied of a vdev that is being removed.
    pub suspends_removal: bool,
    /// Bytes of an expansion of a raidz vdev after which it waits; 0: it does not.
    pub reflow_max: u64,
    /// A scrub follows when all sequential rebuilds have ended: they look at no checksums.
    pub scrubs_rebuilt: bool,
    /// A request to a device that takes this many milliseconds counts as slow.
    pub slow_io_ms: u64,
    /// Milliseconds after which an event reports a request that a device does not answer.
    pub deadman_ms: u64,
    /// Milliseconds after which an event reports a txg that does not end.
    pub deadman_sync_ms: u64,
    /// The pool was just created: its first event reports a creation instead of an import.
    pub is_new: bool,
    /// Txgs end only because of calls, never because of time: for reproducible images and replayable tests.
    pub stepwise: bool,
    /// Time and randomness.
    pub host: Host,
    /// Import under this name instead of the pool's own.
    pub new_name: Option<String>,
    /// The new name is for this import only: on the disks the pool keeps its own.
    pub temporary: bool,
    /// Prefix shown before mountpoints.
    pub altroot: Option<String>,
    /// The labels of a new pool name neither this machine nor the place of its devices: for reproducible images.
    pub anonymous: bool,
    /// Another process holds the pool and promised to leave this state of it on the disks ([`crate::Lease`]): it is
    /// read without a lock. Goes with `read_only`.
    pub leased: Option<Uberblock>,
    /// Uid of the user. The permissions of `zfs allow -c` are granted to this user for datasets that the user creates. 0:
    /// root, who needs no grants.
    pub user: u32,
    /// An earlier state of the pool, found by [`crate::Pool::find_state`]. All later changes are discarded, intent logs
    /// included.
    pub state: Option<FoundState>,
    /// The pool returns to its checkpoint. All later changes are discarded.
    pub to_checkpoint: bool,
    /// The pool is split off another one: its devices hold a state of that pool ([`crate::Pool::split`]).
    pub split: Option<Arc<Apart>>,
    /// The treatment of a pool whose log devices are missing.
    pub missing_logs: MissingLogs,
    /// Number of this machine; 0: none.
    pub hostid: u32,
    /// Heartbeats of pools with `multihost` on.
    pub multihost: Pace,
    /// Also an import for reading only watches whether another machine holds the pool.
    pub watched: bool,
    /// For tests: blocks of at least this many bytes are written as gangs, even if there is enough contiguous space.
    pub force_ganging: u64,
}

impl Default for Options {
    fn default() -> Options {
        let memory = physical_memory();
        Options {
            read_only: false,
            cache_bytes: (memory / 4).min(4 << 30),
            second: SecondLimits::default(),
            dirty_max: (memory / 10).clamp(64 << 20, DIRTY_MAX),
            delay_min_dirty_percent: 60,
            delay_scale: 500_000,
            workers: 0,
            io_threads: 2,
            gzip_engine: None,
            txg_timeout: 5,
            async_blocks: 100_000,
            livelists: Rules::default(),
            copied_at_once: 64 << 20,
            condense_min_mapping: 128 << 10,
            condensed_at_once: 1 << 16,
            suspends_removal: false,
            reflow_max: 0,
            scrubs_rebuilt: true,
            slow_io_ms: 30_000,
            deadman_ms: 300_000,
            deadman_sync_ms: 600_000,
            is_new: false,
            stepwise: false,
            host: Host::system(),
            new_name: None,
            temporary: false,
            altroot: None,
            anonymous: false,
            leased: None,
            user: rustix::process::geteuid().as_raw(),
            state: None,
            to_checkpoint: false,
            split: None,
            missing_logs: MissingLogs::Refused,
            hostid: storage::host::hostid(),
            multihost: Pace::default(),
            watched: false,
            force_ganging: u64::MAX,
        }
    }
}

impl Options {
    /// Bytes of record buffers that wait for their next use: about one txg's.
    pub(crate) fn free_bytes(&self) -> u64 {
        SYNC_BYTES.min(self.dirty_max / 4)
    }

    /// The options for `storage`, with so many writing threads.
    pub(crate) fn storage(&self, io_threads: usize) -> storage::Options {
        storage::Options {
            cache_bytes: self.cache_bytes,
            free_bytes: self.free_bytes(),
            io_threads,
            workers: self.workers,
            gzip_engine: self.gzip_engine,
            slow_io: std::time::Duration::from_millis(self.slow_io_ms),
            second: self.second,
        }
    }
}

fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(info.mem_unit.into()).max(256 << 20)
}

//! The tunables: module parameters of OpenZFS that have an effect here, under the same names.
//!
//! From:   text: a command line, the environment, a configuration file.
//! To:     [`Options`] of a pool to be opened, and the limits of an open one.
//! docs/manual/tunables.md is this table for readers; a test compares the two.

use std::sync::atomic::Ordering;

use storage::GzipEngine;

use crate::options::Options;
use crate::pool::Pool;
use crate::props::size;
use crate::{Error, Result};

pub use dsl::{TunableKind as Kind, TuneError};

/// A value that changes the behaviour of a pool but not its on-disk format.
#[derive(Debug)]
pub struct Tunable {
    /// As in `/sys/module/zfs/parameters`, if OpenZFS has it.
    pub name: &'static str,
    /// How values are written.
    pub kind: Kind,
    /// Smallest value.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// The default in words.
    pub default: &'static str,
    /// The effect of the tunable.
    pub summary: &'static str,
    get: fn(&Options) -> u64,
    set: fn(&mut Options, u64),
    /// The value in an open pool, and how to change it there.
    live: fn(&Pool) -> u64,
    apply: fn(&Pool, u64),
}

/// The values of `gzip_engine`: nothing for this run, or a choice.
const GZIP_ENGINES: [&str; 4] =
    ["property", GzipEngine::WORDS[0], GzipEngine::WORDS[1], GzipEngine::WORDS[2]];

fn gzip_engine_place(engine: Option<GzipEngine>) -> u64 {
    let word = engine.map_or(GZIP_ENGINES[0], GzipEngine::name);
    GZIP_ENGINES.iter().position(|w| *w == word).expect("every choice has its word") as u64
}

fn gzip_engine_at(place: u64) -> Option<GzipEngine> {
    GZIP_ENGINES.get(usize::try_from(place).ok()?).and_then(|word| GzipEngine::named(word))
}

/// The values of a switch.
const OFF_ON: [&str; 2] = ["0", "1"];

/// All tunables, by name.
pub const ALL: &[Tunable] = &[
    Tunable {
        name: "gzip_engine",
        kind: Kind::Word(&GZIP_ENGINES),
        min: 0,
        max: GZIP_ENGINES.len() as u64 - 1,
        default: "property",
        summary: "the library that compresses gzip; `property`: the one that the dataset's property `org.cenote:gzip_engine` names, else libdeflate",
        get: |options| gzip_engine_place(options.gzip_engine),
        set: |options, value| options.gzip_engine = gzip_engine_at(value),
        live: |pool| gzip_engine_place(pool.inner.storage.deflate().forced()),
        apply: |pool, value| pool.inner.storage.deflate().force(gzip_engine_at(value)),
    },
    Tunable {
        name: "l2arc_rebuild_blocks_min_l2size",
        kind: Kind::Bytes,
        min: 0,
        max: 1 << 50,
        default: "1G",
        summary: "size of a cache device from which on its contents are kept across imports; counts from the next import on",
        get: |options| options.second.log_min,
        set: |options, value| options.second.log_min = value,
        live: |pool| pool.inner.storage.second().limits().log_min,
        apply: |pool, value| pool.inner.storage.second().set_limits(|limits| limits.log_min = value),
    },
    Tunable {
        name: "l2arc_rebuild_enabled",
        kind: Kind::Word(&OFF_ON),
        min: 0,
        max: 1,
        default: "1",
        summary: "whether an import looks for what is on cache devices: 0 or 1; counts from the next import on",
        get: |options| options.second.rebuild.into(),
        set: |options, value| options.second.rebuild = value != 0,
        live: |pool| pool.inner.storage.second().limits().rebuild.into(),
        apply: |pool, value| pool.inner.storage.second().set_limits(|limits| limits.rebuild = value != 0),
    },
    Tunable {
        name: "l2arc_write_max",
        kind: Kind::Bytes,
        min: 1 << 20,
        max: 1 << 40,
        default: "64M",
        summary: "bytes that are written to a cache device at a time, and most that wait for it in memory",
        get: |options| options.second.write_max,
        set: |options, value| options.second.write_max = value,
        live: |pool| pool.inner.storage.second().limits().write_max,
        apply: |pool, value| pool.inner.storage.second().set_limits(|limits| limits.write_max = value),
    },
    Tunable {
        name: "raidz_expand_max_reflow_bytes",
        kind: Kind::Bytes,
        min: 0,
        max: 1 << 62,
        default: "0",
        summary: "pauses a raidz expansion after this many bytes; 0: no pause",
        get: |options| options.reflow_max,
        set: |options, value| options.reflow_max = value,
        live: |pool| pool.inner.groups.limits.reflow_max.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.reflow_max.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_arc_max",
        kind: Kind::Bytes,
        min: 1 << 20,
        max: 1 << 50,
        default: "a quarter of the memory, at most 4G",
        summary: "limit of the cache in memory; above it the least used records are dropped",
        get: |options| options.cache_bytes,
        set: |options, value| options.cache_bytes = value,
        live: |pool| pool.inner.storage.cache().limit(),
        apply: |pool, value| pool.inner.storage.set_cache_limit(value),
    },
    Tunable {
        name: "zfs_async_block_max_blocks",
        kind: Kind::Blocks,
        min: 1,
        max: 1 << 32,
        default: "100000",
        summary: "how many blocks of destroyed datasets one txg frees; reading an indirect block counts as 20",
        get: |options| options.async_blocks,
        set: |options, value| options.async_blocks = value,
        live: |pool| pool.inner.groups.limits.async_blocks.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.async_blocks.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_condense_min_mapping_bytes",
        kind: Kind::Bytes,
        min: 0,
        max: 1 << 40,
        default: "128K",
        summary: "a mapping of a removed vdev that takes more bytes is condensed when a quarter of it is obsolete",
        get: |options| options.condense_min_mapping,
        set: |options, value| options.condense_min_mapping = value,
        live: |pool| pool.inner.groups.limits.condense_min_mapping.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.condense_min_mapping.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_deadman_synctime_ms",
        kind: Kind::Milliseconds,
        min: 1,
        max: 86_400_000,
        default: "600000",
        summary: "time after which an event, the log and zpool status tell of a txg that is not written yet",
        get: |options| options.deadman_sync_ms,
        set: |options, value| options.deadman_sync_ms = value,
        live: |pool| pool.inner.groups.limits.deadman_sync_ms.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.deadman_sync_ms.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_deadman_ziotime_ms",
        kind: Kind::Milliseconds,
        min: 1,
        max: 86_400_000,
        default: "300000",
        summary: "time after which an event and the log tell of a request that a device does not answer",
        get: |options| options.deadman_ms,
        set: |options, value| options.deadman_ms = value,
        live: |pool| pool.inner.groups.limits.deadman_ms.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.deadman_ms.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_delay_min_dirty_percent",
        kind: Kind::Percent,
        min: 0,
        max: 100,
        default: "60",
        summary: "dirty data, in percent of zfs_dirty_data_max, from which on writers are delayed",
        get: |options| options.delay_min_dirty_percent,
        set: |options, value| options.delay_min_dirty_percent = value,
        live: |pool| pool.inner.groups.limits.delay_min_percent.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.delay_min_percent.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_delay_scale",
        kind: Kind::Nanoseconds,
        min: 0,
        max: 1_000_000_000_000,
        default: "500000",
        summary: "delay of a transaction half-way between the first delay and zfs_dirty_data_max",
        get: |options| options.delay_scale,
        set: |options, value| options.delay_scale = value,
        live: |pool| pool.inner.groups.limits.delay_scale.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.delay_scale.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_dirty_data_max",
        kind: Kind::Bytes,
        min: 1 << 20,
        max: 1 << 50,
        default: "a tenth of the memory, 64M to 256M",
        summary: "changes held in memory; at it writers wait until some are on disk",
        get: |options| options.dirty_max,
        set: |options, value| options.dirty_max = value,
        live: |pool| pool.inner.groups.limits.dirty_max(),
        apply: |pool, value| {
            pool.inner.groups.limits.dirty_max.store(value, Ordering::Relaxed);
            pool.inner.groups.wake();
        },
    },
    Tunable {
        name: "zfs_livelist_max_entries",
        kind: Kind::Blocks,
        min: 1,
        max: 1 << 20,
        default: "500000",
        summary: "blocks in the newest part of the livelist of a clone above which the next txg begins a new part",
        get: |options| options.livelists.entries_max,
        set: |options, value| options.livelists.entries_max = value,
        live: |pool| pool.inner.groups.limits.livelist_entries.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.livelist_entries.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_livelist_min_percent_shared",
        kind: Kind::Percent,
        min: 0,
        max: 100,
        default: "75",
        summary: "drops a clone's livelist when it shares at most this percentage with its origin",
        get: |options| options.livelists.percent_shared,
        set: |options, value| options.livelists.percent_shared = value,
        live: |pool| pool.inner.groups.limits.livelist_percent.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.livelist_percent.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_rebuild_scrub_enabled",
        kind: Kind::Word(&OFF_ON),
        min: 0,
        max: 1,
        default: "1",
        summary: "whether a scrub begins by itself when devices were rebuilt sequentially: 0 or 1",
        get: |options| options.scrubs_rebuilt.into(),
        set: |options, value| options.scrubs_rebuilt = value != 0,
        live: |pool| pool.inner.groups.limits.scrubs_rebuilt.load(Ordering::Relaxed).into(),
        apply: |pool, value| pool.inner.groups.limits.scrubs_rebuilt.store(value != 0, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_removal_suspend_progress",
        kind: Kind::Word(&OFF_ON),
        min: 0,
        max: 1,
        default: "0",
        summary: "whether nothing is copied of a vdev that is being removed: 0 or 1",
        get: |options| options.suspends_removal.into(),
        set: |options, value| options.suspends_removal = value != 0,
        live: |pool| pool.inner.groups.limits.suspends_removal.load(Ordering::Relaxed).into(),
        apply: |pool, value| pool.inner.groups.limits.suspends_removal.store(value != 0, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_remove_max_copy_bytes",
        kind: Kind::Bytes,
        min: 64 << 10,
        max: 1 << 40,
        default: "64M",
        summary: "bytes of a vdev that is being removed that one txg copies, about",
        get: |options| options.copied_at_once,
        set: |options, value| options.copied_at_once = value,
        live: |pool| pool.inner.groups.limits.copied_at_once.load(Ordering::Relaxed),
        apply: |pool, value| pool.inner.groups.limits.copied_at_once.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zfs_txg_timeout",
        kind: Kind::Seconds,
        min: 1,
        max: 86_400,
        default: "5",
        summary: "longest time before changes are written to disk; a new value counts from the next txg on",
        get: |options| options.txg_timeout,
        set: |options, value| options.txg_timeout = value,
        live: |pool| pool.inner.groups.limits.txg_timeout().as_secs(),
        apply: |pool, value| pool.inner.groups.limits.txg_timeout.store(value, Ordering::Relaxed),
    },
    Tunable {
        name: "zio_slow_io_ms",
        kind: Kind::Milliseconds,
        min: 1,
        max: 86_400_000,
        default: "30000",
        summary: "a request that takes longer counts as slow in `zpool status -s` and raises an event",
        get: |options| options.slow_io_ms,
        set: |options, value| options.slow_io_ms = value,
        live: |pool| pool.inner.groups.limits.slow_io_ms.load(Ordering::Relaxed),
        apply: |pool, value| {
            pool.inner.groups.limits.slow_io_ms.store(value, Ordering::Relaxed);
            pool.inner.storage.vdevs().set_slow_limit(pool.inner.groups.limits.slow_io());
        },
    },
];

/// The tunable of this name.
///
/// # Errors
/// [`TuneError::Unknown`].
pub fn find(name: &str) -> std::result::Result<&'static Tunable, TuneError> {
    ALL.iter().find(|tunable| tunable.name == name).ok_or_else(|| TuneError::Unknown(name.to_owned()))
}

impl Tunable {
    /// Reads a value.
    ///
    /// # Errors
    /// [`TuneError::NotANumber`], [`TuneError::OutOfRange`].
    pub fn parse(&self, text: &str) -> std::result::Result<u64, TuneError> {
        let Tunable { name, kind, min, max, .. } = *self;
        let parsed = match kind {
            Kind::Bytes => size::parse_size(text).ok(),
            Kind::Word(words) => {
                let place = words.iter().position(|word| *word == text);
                return place.map(|place| place as u64).ok_or(TuneError::NotAWord { name, words });
            }
            _ => text.parse().ok(),
        };
        match parsed {
            None => Err(TuneError::NotANumber { name, kind, text: text.to_owned() }),
            Some(value) if value < min || value > max => Err(TuneError::OutOfRange { name, kind, min, max }),
            Some(value) => Ok(value),
        }
    }

    /// A value as it is written.
    #[must_use]
    pub fn text(&self, value: u64) -> String {
        match self.kind {
            Kind::Word(words) => words.get(value as usize).copied().unwrap_or_default().to_owned(),
            _ => value.to_string(),
        }
    }

    /// A value in the form of a configuration file.
    #[must_use]
    pub fn toml(&self, value: u64) -> String {
        match self.kind {
            Kind::Word(_) => format!("\"{}\"", self.text(value)),
            _ => self.text(value),
        }
    }

    /// From where to where, in the manual.
    #[must_use]
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Word(words) => words.join(", "),
            _ => format!("{}–{}", self.min, self.max),
        }
    }

    /// The value that a pool opened with `options` has.
    #[must_use]
    pub fn of(&self, options: &Options) -> u64 {
        (self.get)(options)
    }

    /// Sets it for pools opened with `options`.
    ///
    /// # Errors
    /// As [`Tunable::parse`].
    pub fn set(&self, options: &mut Options, text: &str) -> std::result::Result<(), TuneError> {
        (self.set)(options, self.parse(text)?);
        Ok(())
    }
}

impl Pool {
    /// How long the pool has been open.
    #[must_use]
    pub fn uptime(&self) -> std::time::Duration {
        self.inner.groups.uptime()
    }

    /// Every tunable with its present value.
    pub fn tunables(&self) -> impl Iterator<Item = (&'static Tunable, u64)> {
        ALL.iter().map(|tunable| (tunable, (tunable.live)(self)))
    }

    /// Changes a tunable until the pool is closed.
    ///
    /// # Errors
    /// [`Error::Tune`].
    pub fn tune(&self, name: &str, text: &str) -> Result<()> {
        let tunable = find(name).map_err(Error::Tune)?;
        let value = tunable.parse(text).map_err(Error::Tune)?;
        (tunable.apply)(self, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_lists_what_the_table_says() {
        let manual = include_str!("../../../docs/manual/tunables.md");
        let rows: Vec<&str> = manual.lines().filter(|line| line.starts_with("| `")).collect();
        let table = |t: &Tunable| {
            format!("| `{}` | {} | {} | {} | {} |", t.name, t.kind.word(), t.default, t.range(), t.summary)
        };
        assert_eq!(rows, ALL.iter().map(table).collect::<Vec<_>>());
        assert!(ALL.is_sorted_by_key(|tunable| tunable.name));
    }

    #[test]
    fn values_reach_the_options_and_bad_ones_do_not() {
        let mut options = Options::default();
        let dirty = find("zfs_dirty_data_max").expect("known");
        dirty.set(&mut options, "64M").expect("good");
        assert_eq!((options.dirty_max, dirty.of(&options)), (64 << 20, 64 << 20));
        for bad in ["", "x", "-1", "1K", "99E"] {
            assert!(dirty.set(&mut options, bad).is_err(), "{bad}");
        }
        assert_eq!(options.dirty_max, 64 << 20);
        assert!(find("zfs_txg_timeout").expect("known").parse("0").is_err());
        assert_eq!(find("zfs_nosuch").expect_err("bad").to_string(), "there is no tunable 'zfs_nosuch'");
    }

    #[test]
    fn the_gzip_engine_is_set_by_a_word() {
        let mut options = Options::default();
        let engine = find("gzip_engine").expect("known");
        for (word, wanted) in [("auto", Some(GzipEngine::Auto)), ("property", None)] {
            engine.set(&mut options, word).expect("good");
            assert_eq!((options.gzip_engine, engine.text(engine.of(&options))), (wanted, word.to_owned()));
        }
        let why = engine.set(&mut options, "1").expect_err("no word").to_string();
        assert_eq!(why, "gzip_engine is one of property, auto, libdeflate, isal");
    }

    #[test]
    fn defaults_are_within_their_limits() {
        for tunable in ALL {
            let value = tunable.of(&Options::default());
            assert_eq!(tunable.parse(&tunable.text(value)), Ok(value), "{}", tunable.name);
        }
    }
}

//! Which engine makes gzip's bytes, record by record.
//!
//! From:   a dataset's setting, what was said for this run, and how the pool is doing.
//! To:     [`crate::write`], which asks for each record of a dataset with `compression=gzip`.
//! docs/decisions/0009-gzip-engines.md.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use codec::Engine;

/// The engine that a dataset asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipEngine {
    /// igzip while writers wait for compression, else libdeflate.
    Auto,
    /// Always this one.
    By(Engine),
}

impl GzipEngine {
    /// The default: ratios like those of zlib, regardless of the load.
    pub const DEFAULT: GzipEngine = GzipEngine::By(Engine::Libdeflate);
    /// The words that users write.
    pub const WORDS: [&'static str; 3] = ["auto", Engine::Libdeflate.name(), Engine::Isal.name()];

    /// The choice of this name.
    #[must_use]
    pub fn named(word: &str) -> Option<GzipEngine> {
        match word {
            "auto" => Some(GzipEngine::Auto),
            _ => Engine::named(word).map(GzipEngine::By),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            GzipEngine::Auto => "auto",
            GzipEngine::By(engine) => engine.name(),
        }
    }
}

/// The choice for a pool, and the number of records of each engine there.
#[derive(Debug, Default)]
pub struct Deflate {
    /// The engine that overrides the datasets' settings in this run: its place in [`GzipEngine::WORDS`] plus one, or 0 if there
    /// is none.
    forced: AtomicU8,
    /// Writers are delayed, because there is more dirty data than the limit for the first delay.
    throttled: AtomicBool,
    /// The disks have all the writes they can take.
    saturated: AtomicBool,
    records: [AtomicU64; Engine::ALL.len()],
}

impl Deflate {
    pub(crate) fn new(forced: Option<GzipEngine>) -> Deflate {
        let deflate = Deflate::default();
        deflate.force(forced);
        deflate
    }

    /// Overrides the gzip engine of all datasets; `None` ends it.
    pub fn force(&self, engine: Option<GzipEngine>) {
        let place = |engine: GzipEngine| GzipEngine::WORDS.iter().position(|word| *word == engine.name());
        let word = engine.and_then(place).map_or(0, |place| place as u8 + 1);
        self.forced.store(word, Ordering::Relaxed);
    }

    /// The engine that [`Deflate::force`] was last given.
    #[must_use]
    pub fn forced(&self) -> Option<GzipEngine> {
        let word = usize::from(self.forced.load(Ordering::Relaxed)).checked_sub(1)?;
        GzipEngine::named(GzipEngine::WORDS[word])
    }

    /// Whether writers are delayed now: `pool` sets it with each transaction, and after each txg.
    pub fn set_throttled(&self, throttled: bool) {
        self.throttled.store(throttled, Ordering::Relaxed);
    }

    /// Whether so many writes are on their way that more would have to wait.
    pub(crate) fn set_saturated(&self, saturated: bool) {
        self.saturated.store(saturated, Ordering::Relaxed);
    }

    /// The engine for the next record of a dataset that asks for `wanted`.
    #[must_use]
    pub fn choose(&self, wanted: GzipEngine) -> Engine {
        match self.forced().unwrap_or(wanted) {
            GzipEngine::By(engine) => engine.or_libdeflate(),
            // Throttled with idle disks: it is the processor that writers wait for.
            GzipEngine::Auto
                if self.throttled.load(Ordering::Relaxed) && !self.saturated.load(Ordering::Relaxed) =>
            {
                Engine::Isal.or_libdeflate()
            }
            GzipEngine::Auto => Engine::Libdeflate,
        }
    }

    pub(crate) fn count(&self, engine: Engine) {
        self.records[engine.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Records that each engine was given since the pool was opened, in the order of [`Engine::ALL`].
    pub fn records(&self) -> impl Iterator<Item = (Engine, u64)> {
        Engine::ALL.into_iter().map(|engine| (engine, self.records[engine.index()].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBDEFLATE: GzipEngine = GzipEngine::By(Engine::Libdeflate);
    const ISAL: GzipEngine = GzipEngine::By(Engine::Isal);

    #[test]
    fn words_and_choices_are_the_same_thing() {
        for word in GzipEngine::WORDS {
            assert_eq!(GzipEngine::named(word).map(GzipEngine::name), Some(word));
        }
        assert_eq!(GzipEngine::named("zlib"), None);
    }

    #[test]
    fn auto_is_igzip_only_while_writers_wait_for_the_processor() {
        let deflate = Deflate::new(None);
        let fast = Engine::Isal.or_libdeflate();
        assert_eq!(deflate.choose(GzipEngine::Auto), Engine::Libdeflate);
        deflate.set_throttled(true);
        assert_eq!(deflate.choose(GzipEngine::Auto), fast);
        assert_eq!(deflate.choose(LIBDEFLATE), Engine::Libdeflate, "a fixed choice knows no load");
        deflate.set_saturated(true);
        assert_eq!(deflate.choose(GzipEngine::Auto), Engine::Libdeflate, "the disks are what is waited for");
        deflate.set_saturated(false);
        deflate.set_throttled(false);
        assert_eq!(deflate.choose(GzipEngine::Auto), Engine::Libdeflate);
        assert_eq!(deflate.choose(ISAL), fast);
    }

    #[test]
    fn the_engine_of_the_run_overrides_that_of_datasets() {
        let deflate = Deflate::new(Some(LIBDEFLATE));
        assert_eq!(deflate.choose(ISAL), Engine::Libdeflate);
        deflate.force(Some(GzipEngine::Auto));
        assert_eq!(deflate.forced(), Some(GzipEngine::Auto));
        assert_eq!(deflate.choose(ISAL), Engine::Libdeflate);
        deflate.force(None);
        assert_eq!((deflate.forced(), deflate.choose(ISAL)), (None, Engine::Isal.or_libdeflate()));
    }
}

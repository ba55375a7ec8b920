//! The savings of deduplication and the size of its table.
//!
//! From:   records of all files, or a sample of them.
//! To:     a [`Dedup`], without any table in a pool: what `zdb -S` does for data that is in one.
//!
//! A record counts by a hash of its bytes (SipHash with a fixed key, 64 bits: of a billion different records, three
//! hundredths of a pair are taken for equal). The *exact* pass reads everything. Its memory is bounded: only hashes
//! below a limit are kept, and when there are too many the limit is halved and half of them are forgotten. Which records
//! stay depends on their contents alone, so copies stay or go together and the quotient of all records to different ones is
//! kept: with 4 million hashes its error is below a tenth of a per cent.
//!
//! A *sample* of records cannot say how much repeats: copies that it did not draw are not seen. Of files with the
//! same size and the same sampled pieces, it can say that they are likely the same. So without the pass the answer is such
//! whole files only, a lower bound, and says so.
//!
//! The ratio is that of the property `dedupratio`: of the space that references take, compressed, to that of blocks. Memory is what
//! `zpool status -D` calls "in core": the blocks of the two stores of a table. How many blocks a store has follows from its
//! entries: a leaf that is full is split by one more bit of the checksum, which is as good as chance.
//!
//! Source: docs/format/04-zap.md §3; 14-dedup-and-cloning.md §2.4.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use serde::{Deserialize, Serialize};

/// Bytes of a block of a store.
const STORE_BLOCK: f64 = 4096.0;
/// Entries that fit into a leaf of a store: 158 pieces of 24 bytes, five for each (one for the entry, two for its key, two for its value).
const LEAF_ENTRIES: u32 = 31;
/// log2 of the pointers to leaves that fit into the first block of a store, and into each other block.
const POINTERS_SHIFT: u32 = 8;
const POINTERS_IN_BLOCK: f64 = 512.0;
/// Hashes that are kept.
const HASHES_MAX: usize = 4 << 20;
/// Below this ratio deduplication costs more than it saves.
const WORTHWHILE: f64 = 1.5;

/// What deduplication would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dedup {
    /// Everything was read; else the ratio is of what could be read, or a lower bound from files that are likely the same.
    pub exact: bool,
    /// Bytes of a record.
    pub recordsize: u64,
    /// Records over different records, by their bytes.
    pub ratio: f64,
    /// Different records.
    pub entries: f64,
    /// Memory for the table.
    pub memory_bytes: f64,
    /// Whether to use it, in words.
    pub verdict: String,
}

/// Counts records.
pub(crate) struct Counter {
    /// Hash → bytes of the record as it is stored, and how many there are.
    different: HashMap<u64, (u32, u32)>,
    /// Hashes up to this one are kept.
    limit: u64,
    kept_max: usize,
}

impl Counter {
    pub(crate) fn new() -> Counter {
        Counter::with_memory(HASHES_MAX)
    }

    fn with_memory(kept_max: usize) -> Counter {
        Counter { different: HashMap::new(), limit: u64::MAX, kept_max }
    }

    /// Counts a record, which takes `stored` bytes. Zeros are no record: they are holes.
    pub(crate) fn add(&mut self, record: &[u8], stored: impl FnOnce() -> u32) {
        if codec::is_zero(record) {
            return;
        }
        self.add_hash(hash(record), stored);
    }

    pub(crate) fn add_hash(&mut self, hash: u64, stored: impl FnOnce() -> u32) {
        if hash > self.limit {
            return;
        }
        let count = &mut self.different.entry(hash).or_insert_with(|| (stored(), 0)).1;
        *count = count.saturating_add(1);
        while self.different.len() > self.kept_max {
            self.limit /= 2;
            let limit = self.limit;
            self.different.retain(|hash, _| *hash <= limit);
        }
    }

    /// The result for records of `recordsize`; `exact` if all there are were counted.
    pub(crate) fn result(&self, recordsize: u64, exact: bool) -> Dedup {
        let share = (self.limit as f64 + 1.0) / (u64::MAX as f64 + 1.0);
        let unique: f64 = self.different.values().map(|(len, _)| f64::from(*len)).sum();
        let all: f64 = self.different.values().map(|(len, count)| f64::from(*len) * f64::from(*count)).sum();
        let counted = if exact { Counted::All } else { Counted::Readable };
        let repeated = self.different.values().filter(|(_, count)| *count > 1).count();
        let once = self.different.len() - repeated;
        told(
            counted,
            recordsize,
            all / unique.max(1.0),
            [once, repeated].map(|entries| entries as f64 / share),
        )
    }
}

/// The answer without reading everything: bytes of all files, of those that are likely copies of others, and the
/// number of records.
pub(crate) fn lower_bound(recordsize: u64, bytes: f64, copies: f64, records: f64) -> Dedup {
    let ratio = bytes / (bytes - copies).max(1.0);
    told(Counted::Files, recordsize, ratio.max(1.0), [records / ratio.max(1.0), 0.0])
}

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    All,
    /// What could be read, but there is more.
    Readable,
    /// Whole files.
    Files,
}

/// How probable it is that of so many entries more than a leaf holds have the same first bits, where `mean` have them on average.
fn overflows(mean: f64) -> f64 {
    // The terms of a Poisson distribution, by their logarithms: the first ones may be too small for a number.
    let (mut term, mut sum) = (-mean, 0.0);
    for count in 0..=LEAF_ENTRIES {
        if count > 0 {
            term += mean.ln() - f64::from(count).ln();
        }
        sum += term.exp();
    }
    (1.0 - sum).max(0.0)
}

/// Bytes of the blocks of a store with so many entries.
fn store_bytes(entries: f64) -> f64 {
    if entries < 1.0 {
        return 0.0;
    }
    // Each leaf that is split is one leaf more.
    let (mut leaves, mut shift) = (1.0, 0);
    while shift < 60 {
        let nodes = f64::from(shift).exp2();
        let split = nodes * overflows(entries / nodes);
        if split < 0.5 {
            break;
        }
        leaves += split;
        shift += 1;
    }
    let pointers = if shift > POINTERS_SHIFT { f64::from(shift).exp2() / POINTERS_IN_BLOCK } else { 0.0 };
    (1.0 + leaves + pointers) * STORE_BLOCK
}

/// `by_class`: different records that are there once, and those that are there more often.
fn told(counted: Counted, recordsize: u64, ratio: f64, by_class: [f64; 2]) -> Dedup {
    let ratio = ratio.max(1.0);
    let entries = by_class.into_iter().sum();
    let memory_bytes = by_class.into_iter().map(store_bytes).sum();
    let memory = pool::props::number::nice_bytes(memory_bytes as u64);
    let mut verdict = match (counted, ratio >= WORTHWHILE) {
        (Counted::All | Counted::Readable, true) => format!(
            "{ratio:.2}x less by dedup, for a table of {memory} that should stay in memory: worth a thought if there is as much to spare"
        ),
        (Counted::All | Counted::Readable, false) => {
            format!("not worth it: {ratio:.2}x for a table of {memory} in memory")
        }
        (Counted::Files, true) => format!(
            "whole files that are likely the same make {ratio:.2}x; its table would want {memory} of memory (--dedup reads everything and tells exactly)"
        ),
        (Counted::Files, false) => format!(
            "nothing seen that speaks for it ({ratio:.2}x by whole files); its table would want {memory} of memory (--dedup reads everything and tells exactly)"
        ),
    };
    if counted == Counted::Readable {
        verdict += "; this is of what could be read, which is not all";
    }
    Dedup { exact: counted == Counted::All, recordsize, ratio, entries, memory_bytes, verdict }
}

/// The hash that records are told apart by.
pub(crate) fn hash(record: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(record);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Vec<u8> {
        number.to_le_bytes().repeat(64)
    }

    #[test]
    fn known_copies_are_counted_exactly_and_zeros_not_at_all() {
        let mut counter = Counter::new();
        for number in 1..=1000 {
            (0..number % 5 + 1).for_each(|_| counter.add(&record(number), || 512));
        }
        counter.add(&[0; 512], || 512);
        let found = counter.result(512, true);
        assert!((found.ratio - 3.0).abs() < 1e-9 && found.entries == 1000.0, "{found:?}");
        // 200 and 800 entries, about 22 in each leaf, and the first block of each store.
        assert!((180_000.0..230_000.0).contains(&found.memory_bytes), "{found:?}");
    }

    #[test]
    fn with_little_memory_the_estimate_stays_within_a_few_per_cent() {
        let mut counter = Counter::with_memory(4096);
        for number in 1..=200_000 {
            (0..number % 3 + 1).for_each(|_| counter.add(&record(number), || 512));
        }
        let found = counter.result(512, true);
        assert!((found.ratio / 2.0 - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.entries / 200_000.0 - 1.0).abs() < 0.06, "{found:?}");
        assert!(counter.different.len() <= 4096);
    }

    #[test]
    fn without_reading_everything_it_is_a_lower_bound_and_says_so() {
        let bound = lower_bound(128 << 10, 4e9, 2e9, 30_000.0);
        assert!(!bound.exact && (bound.ratio - 2.0).abs() < 1e-9 && bound.verdict.contains("likely"));
        assert!(lower_bound(128 << 10, 4e9, 0.0, 30_000.0).verdict.contains("--dedup"));
    }
}

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
//! `zpool status -D` calls "in core": the blocks of the two stores of a table (`pool::Forecast`). A block that is written again in a later
//! txg has an entry in one store first and then in the other, and the space of the first one stays. So the records are split into txgs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use format::blkptr::{Block, Dva};
use format::{Checksum, Compression, ObjectType, Txg, VdevId};
use pool::{Figures, Forecast};
use serde::{Deserialize, Serialize};

/// Records that are kept.
const KEPT_MAX: usize = 1 << 20;
/// Entries that a txg touches until they are stored.
const TOUCHED_MAX: u32 = 1 << 16;
/// Entries of a forecast that knows their number only.
const RANDOM_MAX: f64 = 65536.0;
/// Below this ratio deduplication costs more than it saves.
const WORTHWHILE: f64 = 1.5;
/// Some time of our days, in seconds since 1970: how many bytes it takes matters.
const CHANGED: u64 = 1_800_000_001;
/// The first txg.
const FIRST_TXG: u32 = 5;
/// After so many txgs, the entries of a log begin to go into the stores.
const LOG_TXGS: u32 = 8;

/// The effect that deduplication would have.
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
    /// The table on the disks, with its copies.
    #[serde(default)]
    pub disk_bytes: f64,
    /// Memory for the table on a pool with the feature `fast_dedup`, when its logs are in it.
    #[serde(default)]
    pub fast_memory_bytes: f64,
    /// The same on the disks.
    #[serde(default)]
    pub fast_disk_bytes: f64,
    /// Whether to use it, in words.
    pub verdict: String,
}

/// A record as a dataset with `dedup` stores it.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    /// Bytes that datasets count for it, and those that it takes.
    pub(crate) used: u32,
    pub(crate) asize: u32,
    /// The first word of its checksum.
    pub(crate) word: u64,
    pub(crate) lsize: u32,
    pub(crate) psize: u32,
    pub(crate) compression: Compression,
}

impl Stored {
    /// A record of which only a hash is known.
    pub(crate) fn plain(hash: u64, len: u32) -> Stored {
        Stored { used: len, asize: len, word: hash, lsize: len, psize: len, compression: Compression::Off }
    }

    /// Its block in an empty pool of one device.
    fn block(&self, offset: u64, birth: u32) -> Block {
        let dva = Dva { vdev: VdevId(0), asize: self.asize.into(), offset: offset & !511, gang: false };
        let mut mixed = self.word;
        let mut word = || {
            mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            mixed
        };
        // A file that is shorter than a sector has a block of one.
        let whole = |bytes: u32| u64::from(bytes).next_multiple_of(SECTOR).max(SECTOR);
        Block {
            dvas: [dva, Dva::default(), Dva::default()],
            lsize: whole(self.lsize),
            psize: whole(self.psize),
            compression: self.compression,
            checksum: Checksum([self.word, word(), word(), word()]),
            dedup: true,
            ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(birth.into()))
        }
    }
}

/// The smallest unit of the size of a block.
const SECTOR: u64 = 512;

/// A different record, and when it is written.
struct Different {
    stored: Stored,
    offset: u64,
    count: u32,
    /// The txg that writes it first, and how many times.
    first: u32,
    in_first: u32,
    /// The later txg in which it is there twice for the first time.
    again: Option<u32>,
    last: u32,
}

/// Counts records.
pub(crate) struct Counter {
    different: HashMap<u64, Different>,
    /// Hashes up to this one are kept.
    limit: u64,
    kept_max: usize,
    /// Bytes of a txg.
    txg_bytes: u64,
    txg: u32,
    /// Bytes of records so far, and up to the present txg.
    bytes: u64,
    bytes_before: u64,
    /// Kept records that the present txg touches.
    touched: u32,
}

impl Counter {
    /// `txg_bytes`: the bytes that one txg writes.
    pub(crate) fn new(txg_bytes: u64) -> Counter {
        Counter::with_memory(KEPT_MAX, txg_bytes)
    }

    fn with_memory(kept_max: usize, txg_bytes: u64) -> Counter {
        Counter {
            different: HashMap::new(),
            limit: u64::MAX,
            kept_max,
            txg_bytes,
            txg: FIRST_TXG,
            bytes: 0,
            bytes_before: 0,
            touched: 0,
        }
    }

    /// Counts a record. Zeros are no record: they are holes.
    pub(crate) fn add(&mut self, record: &[u8], stored: impl FnOnce() -> Stored) {
        if codec::is_zero(record) {
            return;
        }
        self.add_hash(hash(record), record.len() as u64, stored);
    }

    pub(crate) fn add_hash(&mut self, hash: u64, len: u64, stored: impl FnOnce() -> Stored) {
        let touched = f64::from(self.touched) / self.share();
        if self.bytes - self.bytes_before >= self.txg_bytes || touched >= f64::from(TOUCHED_MAX) {
            (self.txg, self.bytes_before, self.touched) = (self.txg.saturating_add(1), self.bytes, 0);
        }
        let (txg, offset) = (self.txg, self.bytes);
        self.bytes += len;
        if hash > self.limit {
            return;
        }
        let known = self.different.entry(hash).or_insert_with(|| Different {
            stored: stored(),
            offset,
            count: 0,
            first: txg,
            in_first: 0,
            again: None,
            last: 0,
        });
        self.touched += u32::from(known.last != txg);
        known.last = txg;
        known.count = known.count.saturating_add(1);
        if known.first == txg {
            known.in_first = known.count;
        } else if known.in_first == 1 && known.again.is_none() {
            known.again = Some(txg);
        }
        while self.different.len() > self.kept_max {
            self.limit /= 2;
            let limit = self.limit;
            self.different.retain(|hash, _| *hash <= limit);
        }
    }

    /// Which part of the different records is kept.
    fn share(&self) -> f64 {
        (self.limit as f64 + 1.0) / (u64::MAX as f64 + 1.0)
    }

    /// The tables, without and with logs.
    fn tables(&self, ashift: u32) -> [Figures; 2] {
        let mut steps: Vec<(u32, u32, &Different)> = Vec::with_capacity(self.different.len());
        [(false, 1), (true, LOG_TXGS)].map(|(logs, txgs)| {
            let of = |txg: u32| (txg - FIRST_TXG) / txgs;
            steps.clear();
            // A record of zeros may be a hole, which no table has.
            for one in self.different.values().filter(|one| one.stored.psize > 0) {
                let again = one.again.filter(|again| of(*again) > of(one.first));
                steps.extend(again.map(|_| (of(one.first), 1, one)));
                steps.push((of(again.unwrap_or(one.first)), one.count, one));
            }
            // In the order in which a txg stores them.
            steps.sort_by_key(|(txg, refs, one)| (*txg, one.stored.word, *refs));
            let mut table = Forecast::new(logs);
            for (_, refs, one) in &steps {
                table.store(&one.stored.block(one.offset, one.first), (*refs).into(), CHANGED);
            }
            table.figures(self.share(), ashift)
        })
    }

    /// The result for records of `recordsize` and sectors of `1 << ashift` bytes; `exact` if all there are were counted.
    pub(crate) fn result(&self, recordsize: u64, ashift: u32, exact: bool) -> Dedup {
        let unique: f64 = self.different.values().map(|one| f64::from(one.stored.used)).sum();
        let all = self.different.values().map(|one| f64::from(one.stored.used) * f64::from(one.count));
        let counted = if exact { Counted::All } else { Counted::Readable };
        let entries = self.different.len() as f64 / self.share();
        told(counted, recordsize, all.sum::<f64>() / unique.max(1.0), entries, self.tables(ashift))
    }
}

/// The answer without reading everything: bytes of all files, of those that are likely copies of others, and the
/// number of records.
pub(crate) fn lower_bound(recordsize: u64, ashift: u32, bytes: f64, copies: f64, records: f64) -> Dedup {
    let ratio = (bytes / (bytes - copies).max(1.0)).max(1.0);
    let entries = records / ratio;
    told(Counted::Files, recordsize, ratio, entries, random_tables(entries, recordsize, ashift))
}

/// Tables of so many different records, without and with logs.
fn random_tables(entries: f64, recordsize: u64, ashift: u32) -> [Figures; 2] {
    let share = (RANDOM_MAX / entries.max(1.0)).log2().floor().exp2().min(1.0);
    [false, true].map(|logs| {
        let mut table = Forecast::new(logs);
        for number in 0..(entries * share) as u64 {
            let stored = Stored::plain(hash(&number.to_le_bytes()), recordsize as u32);
            table.store(&stored.block(number * recordsize, FIRST_TXG), 1, CHANGED);
        }
        table.figures(share, ashift)
    })
}

/// The way in which records were counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    All,
    /// Everything that could be read, but there is more.
    Readable,
    /// Whole files.
    Files,
}

/// `tables`: without and with logs.
fn told(counted: Counted, recordsize: u64, ratio: f64, entries: f64, tables: [Figures; 2]) -> Dedup {
    let ratio = ratio.max(1.0);
    let [memory_bytes, fast_memory_bytes] = tables.map(|table| table.in_core as f64);
    let [disk_bytes, fast_disk_bytes] = tables.map(|table| table.on_disk as f64);
    let memory = pool::props::number::nice_bytes(memory_bytes as u64);
    let mut verdict = match (counted, ratio >= WORTHWHILE) {
        (Counted::All | Counted::Readable, true) => {
            format!("{ratio:.2}x less space with dedup; its table takes {memory} of memory all the time")
        }
        (Counted::All | Counted::Readable, false) => {
            format!("not worth it: {ratio:.2}x, and its table takes {memory} of memory")
        }
        (Counted::Files, true) => format!(
            "files that are likely equal make {ratio:.2}x; its table would take {memory} of memory. To know exactly: --dedup, which reads everything"
        ),
        (Counted::Files, false) => format!(
            "not worth it, as far as equal files tell ({ratio:.2}x); its table would take {memory} of memory. To know exactly: --dedup, which reads everything"
        ),
    };
    if counted == Counted::Readable {
        verdict += "; some data could not be read and is not counted";
    }
    Dedup {
        exact: counted == Counted::All,
        recordsize,
        ratio,
        entries,
        memory_bytes,
        disk_bytes,
        fast_memory_bytes,
        fast_disk_bytes,
        verdict,
    }
}

/// The hash by which records are compared.
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
        let mut counter = Counter::new(1 << 30);
        for number in 1..=1000 {
            (0..number % 5 + 1)
                .for_each(|_| counter.add(&record(number), || Stored::plain(hash(&record(number)), 512)));
        }
        counter.add(&[0; 512], || unreachable!());
        let found = counter.result(512, 9, true);
        assert!((found.ratio - 3.0).abs() < 1e-9 && found.entries == 1000.0, "{found:?}");
        // 200 and 800 entries, about 27 in each leaf, and the first block of each store.
        assert!((140_000.0..200_000.0).contains(&found.memory_bytes), "{found:?}");
    }

    #[test]
    fn with_little_memory_the_estimate_stays_within_a_few_per_cent() {
        let mut counter = Counter::with_memory(4096, 1 << 30);
        for number in 1..=200_000 {
            (0..number % 3 + 1)
                .for_each(|_| counter.add(&record(number), || Stored::plain(hash(&record(number)), 512)));
        }
        let found = counter.result(512, 9, true);
        assert!((found.ratio / 2.0 - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.entries / 200_000.0 - 1.0).abs() < 0.06, "{found:?}");
        assert!(counter.different.len() <= 4096);
    }

    #[test]
    fn without_reading_everything_it_is_a_lower_bound_and_says_so() {
        let bound = lower_bound(128 << 10, 12, 4e9, 2e9, 30_000.0);
        assert!(!bound.exact && (bound.ratio - 2.0).abs() < 1e-9 && bound.verdict.contains("likely"));
        assert!(lower_bound(128 << 10, 12, 4e9, 0.0, 30_000.0).verdict.contains("--dedup"));
    }
}

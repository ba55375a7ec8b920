//! Draws and encodes pieces on all cores until every interval is narrow, the read limit is reached, or the time is over.
//!
//! Pieces are drawn in rounds, each a quarter more than all before. After a round every stratum is told how
//! much its pieces differ, and the next ones go where they narrow the intervals most. The pieces of a round follow from the
//! rounds before it alone, so the same seed draws the same sample, however many threads there are.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use zpl::rank::RankedMutex;

use super::dedup;
use super::encode::{Encoder, Piece};
use super::estimate::estimate;
use super::interval::spreads;
use super::material::Material;
use super::metadata::Metadata;
use super::seen::{Sampled, Seen};
use super::strata::{Draw, Strata};
use crate::configuration::cores;
use crate::{Error, Event, Result, Watch};

/// A sample is large enough when every interval is this narrow, as a part of the ratio.
const PRECISION: f64 = 0.006;
/// Pieces of the first round, and of each other one at least.
const FIRST_ROUND: usize = 48;
const ROUND_MIN: usize = 16;
/// Bytes that one codec works on before the next one does.
const BATCH: u64 = 1 << 20;

/// When the looking ends.
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) until: Instant,
    /// Until then the first piece of each large part is waited for.
    pub(crate) last: Instant,
    /// Bytes of pieces that are kept to measure the disks with.
    pub(crate) kept_bytes: u64,
}

/// The pieces that were looked at.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) seen: Vec<Seen>,
    pub(crate) bytes: u64,
    /// All pieces are drawn and none failed.
    pub(crate) complete: bool,
    /// Pieces that could not be read, and the first reason.
    pub(crate) failed: u64,
    pub(crate) reason: Option<String>,
    /// Some of the data.
    pub(crate) probe: Vec<Vec<u8>>,
    /// Hashes of the records of the first record size, and their bytes.
    pub(crate) hashes: Vec<(u64, u32)>,
}

/// The result of one piece.
enum Found {
    Seen { seen: Seen, kept: Option<Vec<u8>>, hashes: Vec<(u64, u32)> },
    Failed(String),
}

/// Looks at pieces of a material.
pub(crate) struct Look<'a> {
    pub(crate) material: &'a Material,
    pub(crate) encoder: &'a Encoder,
    pub(crate) metadata: &'a Metadata,
    pub(crate) watch: &'a dyn Watch,
}

impl Look<'_> {
    /// Draws and encodes pieces of `strata` on all cores until it is enough.
    pub(crate) fn at(&self, strata: &mut Strata, limits: &Limits) -> Result<Looked> {
        let mut looked = Looked::default();
        let mut drawn_bytes = 0;
        let done_bytes = AtomicU64::new(0);
        let mut room = FIRST_ROUND;
        // Each large part is seen, even where a few long pieces are more than may be read.
        let wanted = |strata: &Strata, drawn_bytes| drawn_bytes < limits.bytes || strata.is_blind();
        while Instant::now() < limits.until && wanted(strata, drawn_bytes) || looked.seen.len() < 2 {
            let mut round = Vec::new();
            while round.len() < room && (wanted(strata, drawn_bytes) || round.len() < 2) {
                let Some(draw) = strata.draw(self.material) else { break };
                round.push((draw, drawn_bytes < limits.kept_bytes));
                drawn_bytes += draw.len;
            }
            if round.is_empty() {
                break;
            }
            // Two pieces at least, however short the time, and the first of each large part, which are drawn first.
            let needed = match looked.seen.len() {
                0 => strata.large().max(2),
                seen => 2usize.saturating_sub(seen),
            };
            let found = self.round(&round, needed, limits, &done_bytes);
            if self.watch.stopped() {
                return Err(Error::Interrupted);
            }
            looked.take(&round, found);
            strata.learn(&spreads(strata, &looked.seen, &self.encoder.settings));
            if self.is_precise(strata, &looked.seen) {
                break;
            }
            room = (looked.seen.len() / 4).max(ROUND_MIN);
        }
        looked.complete =
            looked.seen.len() as u64 == strata.all.iter().map(|stratum| stratum.pieces).sum::<u64>();
        match (&looked.reason, looked.seen.is_empty()) {
            (Some(reason), true) => Err(Error::Unadvised(reason.clone())),
            (None, true) => Err(Error::NoData { path: self.material.subject.clone().into() }),
            _ => Ok(looked),
        }
    }

    /// Encodes the pieces of a round, those after the first `needed` only while there is time; two in any case.
    fn round(
        &self,
        round: &[(Draw, bool)],
        needed: usize,
        limits: &Limits,
        done_bytes: &AtomicU64,
    ) -> Vec<Option<Found>> {
        let next = AtomicUsize::new(0);
        let found: Vec<RankedMutex<Option<Found>>> = round.iter().map(|_| RankedMutex::leaf(None)).collect();
        let total = limits.bytes.min(self.material.bytes);
        // As many as make a batch, and some for every core; those that are needed however short the time, one by one.
        let longest = round.iter().map(|(draw, _)| draw.len).max().unwrap_or(0).max(1);
        let each = round.len().div_ceil(2 * cores() as usize);
        let batch = ((BATCH / longest) as usize).clamp(1, each.max(1));
        let count_from = |first: usize| if first < needed { 1 } else { batch };
        let tell = |index: usize, one: Found| {
            *found[index].lock() = Some(one);
            let len = round[index].0.len;
            let bytes = done_bytes.fetch_add(len, Ordering::Relaxed) + len;
            self.watch.event(Event::Loading { bytes, total });
        };
        let work = || {
            warm_up(self.encoder);
            loop {
                let taken = |first| Some(first + count_from(first));
                let (Ok(first) | Err(first)) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
                let mut pieces = Vec::new();
                for (index, (draw, _)) in round.iter().enumerate().skip(first).take(count_from(first)) {
                    let until = match index {
                        _ if index < 2.min(needed) => None,
                        _ if index < needed => Some(limits.last),
                        _ => Some(limits.until),
                    };
                    if self.watch.stopped() || until.is_some_and(|until| Instant::now() >= until) {
                        break;
                    }
                    match self.read(draw) {
                        Ok(piece) => pieces.push((index, piece)),
                        Err(why) => tell(index, Found::Failed(why)),
                    }
                }
                let (indices, pieces): (Vec<usize>, Vec<Piece>) = pieces.into_iter().unzip();
                let outcomes = self.encoder.encode(&pieces);
                for ((index, piece), outcomes) in indices.iter().zip(pieces).zip(outcomes) {
                    let (draw, keep) = &round[*index];
                    let hashes = self.encoder.hashes(&piece);
                    let seen = Seen { stratum: draw.stratum, outcomes };
                    tell(*index, Found::Seen { seen, kept: keep.then_some(piece.bytes), hashes });
                }
                if first + count_from(first) >= round.len() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            (1..(cores() as usize).min(round.len())).for_each(|_| {
                scope.spawn(work);
            });
            work();
        });
        found.into_iter().map(RankedMutex::into_inner).collect()
    }

    fn read(&self, draw: &Draw) -> std::result::Result<Piece, String> {
        let entry = &self.material.files[draw.file as usize];
        let piece = self.material.read(entry, draw.offset, draw.len as usize);
        piece.map_err(|error| format!("'{}': {error}", self.material.called(entry)))
    }

    fn is_precise(&self, strata: &Strata, seen: &[Seen]) -> bool {
        let settings = self.encoder.settings.iter().enumerate();
        let estimates = settings.map(|(index, setting)| {
            estimate(&Sampled { strata, seen, index, setting, counts: &|_| true }, self.metadata)
        });
        estimates.into_iter().all(|one| one.half_width <= PRECISION * one.ratio)
    }
}

impl Looked {
    /// The note about it.
    pub(crate) fn notes(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        let what = if self.failed == 1 { "piece" } else { "pieces" };
        Some(format!("left out {} {what} that could not be read: {reason}", self.failed))
    }

    fn take(&mut self, round: &[(Draw, bool)], found: Vec<Option<Found>>) {
        for ((draw, _), one) in round.iter().zip(found) {
            match one {
                Some(Found::Seen { seen, kept, hashes }) => {
                    self.bytes += draw.len;
                    self.seen.push(seen);
                    self.hashes.extend(hashes);
                    self.probe.extend(kept);
                }
                Some(Found::Failed(reason)) => {
                    self.failed += 1;
                    self.reason.get_or_insert(reason);
                }
                None => {}
            }
        }
    }
}

/// The codecs' contexts come into being now, not in the first measurement.
fn warm_up(encoder: &Encoder) {
    let bytes: Vec<u8> = (0..16_384u32).map(|n| ((n * n) >> 7) as u8).collect();
    let data = std::iter::once(0..bytes.len()).collect();
    encoder.encode(&[Piece { file_size: bytes.len() as u64, bytes, data }]);
}

impl Encoder {
    /// Hashes of the records of the first record size, zeros left out.
    fn hashes(&self, piece: &Piece) -> Vec<(u64, u32)> {
        let recordsize = self.settings.first().map_or(128 << 10, |setting| setting.recordsize) as usize;
        let records = piece.bytes.chunks(recordsize).filter(|record| !codec::is_zero(record));
        records.map(|record| (dedup::hash(record), record.len() as u32)).collect()
    }
}

//! Draws pieces and encodes them on all cores until that is enough: when every interval is narrow, when all that may be
//! read was read, or when the time is over.

use std::sync::Mutex;
use std::time::Instant;

use super::dedup;
use super::encode::{Encoder, Piece};
use super::estimate::{Seen, estimate};
use super::material::Material;
use super::metadata::Metadata;
use super::strata::Strata;
use crate::plan::cores;
use crate::{Error, Event, Result, Watch};

/// A sample is large enough when every interval is this narrow, as a part of the ratio.
const PRECISION: f64 = 0.006;
/// Pieces that come before that is asked.
const PIECES_MIN: usize = 48;
/// Bytes that are kept to measure the disks with.
const PROBE_BYTES: usize = 16 << 20;

/// When the looking ends.
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) until: Instant,
}

/// What was looked at.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) seen: Vec<Seen>,
    pub(crate) bytes: u64,
    /// Nothing is left to be drawn, and nothing failed.
    pub(crate) complete: bool,
    /// Pieces that could not be read, and the first reason.
    pub(crate) failed: u64,
    pub(crate) reason: Option<String>,
    /// Some of the data.
    pub(crate) probe: Vec<Vec<u8>>,
    /// Hashes of the records of the first record size, and their bytes.
    pub(crate) hashes: Vec<(u64, u32)>,
}

impl Looked {
    /// What is to be said about it.
    pub(crate) fn notes(&self) -> Option<String> {
        self.reason
            .as_ref()
            .map(|reason| format!("{} pieces could not be read and were left out: {reason}", self.failed))
    }
}

/// Draws and encodes pieces on all cores until it is enough.
pub(crate) fn look(
    material: &Material,
    strata: &mut Strata,
    encoder: &Encoder,
    metadata: &Metadata,
    limits: &Limits,
    watch: &dyn Watch,
) -> Result<Looked> {
    /// What the threads share.
    struct Shared<'a> {
        strata: &'a mut Strata,
        looked: Looked,
        over: bool,
        drawn_bytes: u64,
        /// How many pieces there are when it is next asked whether they are enough.
        next_question: usize,
    }
    let looked = Looked::default();
    let shared =
        Mutex::new(Shared { strata, looked, over: false, drawn_bytes: 0, next_question: PIECES_MIN });
    let total = limits.bytes.min(material.bytes);
    let lock = || shared.lock().expect("no code panics while holding the sample");
    let work = || {
        warm_up(encoder);
        loop {
            let draw = {
                let mut shared = lock();
                if shared.over || watch.stopped() {
                    return;
                }
                // A sample of two pieces at least, however short the time.
                let enough = shared.drawn_bytes >= limits.bytes || Instant::now() >= limits.until;
                if enough && shared.looked.seen.len() >= 2 {
                    shared.over = true;
                    return;
                }
                let Some(draw) = shared.strata.draw(material) else {
                    shared.over = true;
                    shared.looked.complete = true;
                    return;
                };
                shared.drawn_bytes += draw.len;
                draw
            };
            let entry = &material.files[draw.file as usize];
            let piece = match material.read(entry, draw.offset, draw.len as usize) {
                Ok(piece) => piece,
                Err(error) => {
                    let looked = &mut lock().looked;
                    looked.failed += 1;
                    looked.reason.get_or_insert_with(|| format!("'{}': {error}", material.called(entry)));
                    continue;
                }
            };
            let outcomes = encoder.encode(&piece);
            let hashes = encoder.hashes(&piece);
            let mut shared = lock();
            let looked = &mut shared.looked;
            looked.bytes += draw.len;
            looked.hashes.extend(hashes);
            looked.seen.push(Seen { stratum: draw.stratum, bytes: draw.len, outcomes });
            if looked.probe.iter().map(Vec::len).sum::<usize>() < PROBE_BYTES {
                looked.probe.push(piece.bytes);
            }
            watch.event(Event::Loading { bytes: looked.bytes, total });
            let count = shared.looked.seen.len();
            if count >= shared.next_question {
                shared.next_question = count + (count / 5).max(16);
                let all = 0..encoder.settings.len();
                let precise = all.map(|index| {
                    let of = (index, encoder.settings[index].recordsize);
                    estimate(shared.strata, &shared.looked.seen, of, metadata, &|_| true)
                });
                if precise.into_iter().all(|one| one.half_width <= PRECISION * one.ratio) {
                    shared.over = true;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (1..cores()).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    if watch.stopped() {
        return Err(Error::Interrupted);
    }
    let mut looked = shared.into_inner().expect("no code panics while holding the sample").looked;
    looked.complete &= looked.failed == 0;
    match (&looked.reason, looked.seen.is_empty()) {
        (Some(reason), true) => Err(Error::Unadvised(reason.clone())),
        (None, true) => Err(Error::NoData { path: material.subject.clone().into() }),
        _ => Ok(looked),
    }
}

/// The codecs' contexts come into being now, not in the first measurement.
fn warm_up(encoder: &Encoder) {
    let bytes: Vec<u8> = (0..16_384u32).map(|n| ((n * n) >> 7) as u8).collect();
    let data = std::iter::once(0..bytes.len()).collect();
    encoder.encode(&Piece { file_size: bytes.len() as u64, bytes, data });
}

impl Encoder {
    /// Hashes of the records of the first record size, zeros left out.
    fn hashes(&self, piece: &Piece) -> Vec<(u64, u32)> {
        let recordsize = self.settings.first().map_or(128 << 10, |setting| setting.recordsize) as usize;
        let records = piece.bytes.chunks(recordsize).filter(|record| !codec::is_zero(record));
        records.map(|record| (dedup::hash(record), record.len() as u32)).collect()
    }
}

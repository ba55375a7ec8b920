//! Samples of pieces, one for each length of pieces.
//!
//! From:   the material and all settings.
//! To:     a [`Group`] for the settings whose records are cut from pieces of the same length.
//!
//! A record is never cut, so a piece is as long as the longest record. But many short pieces show more than a few long
//! ones of the same total length, because data that lies side by side is alike. So long records have a sample of their
//! own. Its part of the bytes that may be read grows with the square root of their length: more bytes, but fewer
//! pieces.

use std::collections::BTreeMap;
use std::time::Instant;

use super::encode::{Encoder, Setting};
use super::estimate::{Estimate, estimate};
use super::look::{Limits, Look, Looked};
use super::material::Material;
use super::metadata::Metadata;
use super::probe::SOURCE;
use super::seen::Sampled;
use super::strata::{Strata, Stratum};
use super::{BYTES_MIN, BYTES_PART, Question, WHOLE_MAX};
use crate::{Result, Watch};

/// Shorter pieces cost more reading time than they are worth.
const PIECE_MIN: u64 = 128 << 10;

/// A sample, and the results of some of the settings on it.
pub(crate) struct Group {
    /// Numbers of the settings.
    pub(crate) numbers: Vec<usize>,
    pub(crate) encoder: Encoder,
    pub(crate) strata: Strata,
    pub(crate) looked: Looked,
}

/// Bytes of the pieces that `recordsize` is looked at in.
pub(crate) fn piece_bytes(recordsize: u64) -> u64 {
    recordsize.max(PIECE_MIN)
}

/// The material, the settings and the time limit.
pub(crate) struct Sampling<'a> {
    pub(crate) material: &'a Material,
    pub(crate) settings: &'a [Setting],
    pub(crate) question: &'a Question,
    pub(crate) metadata: &'a Metadata,
    /// When no more pieces are drawn.
    pub(crate) until: Instant,
    /// When no more of the pieces are drawn that must be seen.
    pub(crate) last: Instant,
    pub(crate) watch: &'a dyn Watch,
}

/// Draws and encodes a sample for each length of pieces. The first group has the first setting.
///
/// # Errors
/// Nothing could be read; the caller stopped it.
pub(crate) fn groups(sampling: &Sampling<'_>) -> Result<Vec<Group>> {
    let Sampling { material, settings, question, metadata, until, last, watch } = *sampling;
    let mut lengths: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, setting) in settings.iter().enumerate() {
        lengths.entry(piece_bytes(setting.recordsize)).or_default().push(number);
    }
    let mut lengths: Vec<(u64, Vec<usize>)> = lengths.into_iter().collect();
    lengths.sort_by_key(|(_, numbers)| numbers[0]);
    let bytes = bytes_max(question, material.bytes);
    let mut read = 0;
    let mut groups: Vec<Group> = Vec::new();
    let mut left = lengths.len() as u32;
    let wants = |piece: u64| (piece as f64).sqrt();
    let mut wanted: f64 = lengths.iter().map(|(piece, _)| wants(*piece)).sum();
    for (piece, numbers) in lengths {
        let share = |bytes: u64| (bytes.saturating_sub(read) as f64 * wants(piece) / wanted) as u64;
        let now = Instant::now();
        let limits = Limits {
            bytes: bytes.map_or(u64::MAX, share),
            until: now + until.saturating_duration_since(now) / left,
            last,
            kept_bytes: if groups.is_empty() && question.target.is_partly_unknown() { SOURCE } else { 0 },
        };
        left -= 1;
        wanted -= wants(piece);
        let own: Vec<Setting> = numbers.iter().map(|number| settings[*number]).collect();
        let mut recordsizes: Vec<u64> = own.iter().map(|setting| setting.recordsize).collect();
        recordsizes.sort_unstable();
        recordsizes.dedup();
        let encoder = Encoder::new(own, question.ashift, question.layout);
        let mut strata = Strata::new(material, piece, &recordsizes, question.seed);
        let looked = Look { material, encoder: &encoder, metadata, watch }.at(&mut strata, &limits)?;
        read += looked.bytes;
        groups.push(Group { numbers, encoder, strata, looked });
    }
    Ok(groups)
}

/// Bytes that may be read; `None`: all.
fn bytes_max(question: &Question, bytes: u64) -> Option<u64> {
    let max = question.bytes_max.unwrap_or(match bytes <= WHOLE_MAX {
        true => u64::MAX,
        false => ((bytes as f64 * BYTES_PART) as u64).max(BYTES_MIN),
    });
    (max < bytes).then_some(max)
}

impl Group {
    /// The estimate of setting `number` for everything in the strata that `counts` names; `None` if it is none of
    /// these.
    pub(crate) fn estimate(
        &self,
        number: usize,
        metadata: &Metadata,
        counts: &dyn Fn(&Stratum) -> bool,
    ) -> Option<Estimate> {
        let index = self.numbers.iter().position(|own| *own == number)?;
        let setting = &self.encoder.settings[index];
        Some(estimate(
            &Sampled { strata: &self.strata, seen: &self.looked.seen, index, setting, counts },
            metadata,
        ))
    }

    /// Some piece of this kind of file was looked at.
    pub(crate) fn saw(&self, kind: &str) -> bool {
        self.looked.seen.iter().any(|piece| self.strata.all[piece.stratum].kind == kind)
    }
}

//! From the pieces that were looked at to everything.
//!
//! For stratum h: N pieces of X bytes together, of which n with x bytes were encoded. A sum Y over the stratum (bytes
//! before or after compression, seconds) is estimated as X · y/x, y being its sum over the n pieces. The totals are
//! sums over strata.
//!
//! The compressratio is R = (L + M)/(P + M), L bytes before and P after compression, M of metadata, which ZFS counts
//! in both. Its error comes from the residuals of the pieces, e = (l − R·p) − x·(l − R·p summed)/(x summed):
//!
//! ```text
//! v_h = (X / (x/n))² · (1 − n/N) · s²(e)/n         variance of L − R·P in stratum h
//! se  = √(Σ v_h) / (P + M)                           standard error of R
//! df  = (Σ v_h)² / Σ (v_h² / (n − 1))                degrees of freedom (Satterthwaite)
//! R ± (t(df) · se + MODEL · R + METADATA · M · (R − 1)/(P + M))        the interval
//! ```
//!
//! A stratum of which a single piece was seen lends the spread of all the others. `MODEL` and `METADATA`
//! stand for what is no matter of chance: what is computed rather than seen, and how well the sizes of metadata are
//! known.

use super::encode::Outcome;
use super::metadata::Metadata;
use super::strata::Strata;

/// Relative error of what is computed, not sampled.
const MODEL: f64 = 0.002;
/// Relative error of the sizes of metadata.
const METADATA: f64 = 0.1;

/// One piece: its stratum, its bytes, its outcome in each configuration.
pub(crate) struct Seen {
    pub(crate) stratum: usize,
    pub(crate) bytes: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

/// What one configuration makes of everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    /// Bytes before compression, metadata left out.
    pub(crate) logical: f64,
    /// Bytes after it, metadata left out.
    pub(crate) physical: f64,
    /// What `used` counts, metadata included.
    pub(crate) used: f64,
    /// Bytes on all disks, metadata included.
    pub(crate) raw: f64,
    /// Records.
    pub(crate) records: f64,
    /// compressratio, and how far off it may be with 95 %.
    pub(crate) ratio: f64,
    pub(crate) half_width: f64,
    /// Processor seconds for all of it.
    pub(crate) compress: f64,
    pub(crate) decompress: f64,
}

/// Estimates configuration `index` over the strata that `counts` names.
pub(crate) fn estimate(
    strata: &Strata,
    seen: &[Seen],
    (index, recordsize): (usize, u64),
    metadata: &Metadata,
    counts: &dyn Fn(usize) -> bool,
) -> Estimate {
    let mut sums = vec![Sums::default(); strata.all.len()];
    for piece in seen.iter().filter(|piece| counts(piece.stratum)) {
        sums[piece.stratum].add(piece.bytes, &piece.outcomes[index]);
    }
    let mut total = Estimate::default();
    let (mut sampled, mut unseen) = (0.0, 0.0);
    for (stratum, sums) in
        strata.all.iter().zip(&sums).enumerate().filter(|(h, _)| counts(*h)).map(|(_, pair)| pair)
    {
        if sums.bytes == 0.0 {
            unseen += stratum.bytes as f64;
            continue;
        }
        sampled += stratum.bytes as f64;
        let scale = stratum.bytes as f64 / sums.bytes;
        total.logical += sums.of.lsize as f64 * scale;
        total.physical += sums.of.psize as f64 * scale;
        total.used += sums.of.used as f64 * scale;
        total.raw += sums.of.raw as f64 * scale;
        total.records += sums.of.records as f64 * scale;
        total.compress += sums.of.compress * scale;
        total.decompress += sums.of.decompress * scale;
    }
    if sampled == 0.0 {
        return total;
    }
    // Strata that there was no time for are taken to be like the others.
    total.scale((sampled + unseen) / sampled);
    let meta = metadata.of(total.records, recordsize);
    total.used += meta.used;
    total.raw += meta.raw;
    let (logical, physical) = (total.logical + meta.psize, total.physical + meta.psize);
    total.ratio = (logical / physical.max(1.0)).max(1.0);
    let of_metadata = METADATA * meta.psize * (total.ratio - 1.0) / physical.max(1.0);
    total.half_width =
        half_width(strata, seen, index, counts, total.ratio, physical) + MODEL * total.ratio + of_metadata;
    total
}

impl Estimate {
    fn scale(&mut self, by: f64) {
        for value in [
            &mut self.logical,
            &mut self.physical,
            &mut self.used,
            &mut self.raw,
            &mut self.records,
            &mut self.compress,
            &mut self.decompress,
        ] {
            *value *= by;
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    pieces: f64,
    bytes: f64,
    of: Outcome,
}

impl Sums {
    fn add(&mut self, bytes: u64, outcome: &Outcome) {
        self.pieces += 1.0;
        self.bytes += bytes as f64;
        let of = &mut self.of;
        of.lsize += outcome.lsize;
        of.psize += outcome.psize;
        of.used += outcome.used;
        of.raw += outcome.raw;
        of.records += outcome.records;
        of.compress += outcome.compress;
        of.decompress += outcome.decompress;
    }
}

fn half_width(
    strata: &Strata,
    seen: &[Seen],
    index: usize,
    counts: &dyn Fn(usize) -> bool,
    ratio: f64,
    physical: f64,
) -> f64 {
    // Of each piece its bytes and l − R·p.
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new(); strata.all.len()];
    for piece in seen.iter().filter(|piece| counts(piece.stratum)) {
        let outcome = &piece.outcomes[index];
        pieces[piece.stratum].push((piece.bytes as f64, outcome.lsize as f64 - ratio * outcome.psize as f64));
    }
    let residuals = |pieces: &[(f64, f64)]| {
        let (bytes, sum) = pieces.iter().fold((0.0, 0.0), |(x, y), piece| (x + piece.0, y + piece.1));
        pieces.iter().map(|(x, y)| (y - x * sum / bytes).powi(2)).sum::<f64>()
    };
    // The spread over all strata, as a part of the bytes, for those that show none.
    let all: Vec<(f64, f64)> = pieces.iter().flatten().copied().collect();
    let count = all.len() as f64;
    if count < 2.0 {
        return if strata.all.iter().map(|stratum| stratum.pieces).sum::<u64>() <= 1 { 0.0 } else { ratio };
    }
    let mean = all.iter().map(|piece| piece.0).sum::<f64>() / count;
    let common = residuals(&all) / (count - 1.0) / mean.powi(2);
    let (mut variance, mut freedom) = (0.0, 0.0);
    for (number, stratum) in strata.all.iter().enumerate().filter(|(number, _)| counts(*number)) {
        let (n, whole) = (pieces[number].len() as f64, stratum.pieces as f64);
        let (spread, degrees) = match pieces[number].len() {
            0 => (common * (stratum.bytes as f64 / whole).powi(2), 1.0),
            1 => (common * pieces[number][0].0.powi(2), 1.0),
            _ => (residuals(&pieces[number]) / (n - 1.0), n - 1.0),
        };
        let drawn = n.max(1.0);
        let mean = match pieces[number].len() {
            0 => stratum.bytes as f64 / whole,
            _ => pieces[number].iter().map(|piece| piece.0).sum::<f64>() / n,
        };
        let v = (stratum.bytes as f64 / mean).powi(2) * (1.0 - n / whole) * spread / drawn;
        variance += v;
        freedom += v * v / degrees;
    }
    if variance <= 0.0 {
        return 0.0;
    }
    student(variance * variance / freedom) * variance.sqrt() / physical.max(1.0)
}

/// The 97.5 % quantile of Student's t with so many degrees of freedom.
///
/// Source: Cornish–Fisher expansion around the normal quantile (Abramowitz and Stegun 26.7.5), exact values below 4.
fn student(degrees: f64) -> f64 {
    const Z: f64 = 1.959_964;
    match degrees {
        d if d < 1.5 => 12.706,
        d if d < 2.5 => 4.303,
        d if d < 3.5 => 3.182,
        d if d < 4.5 => 2.776,
        d => {
            let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
            Z + (z3 + Z) / (4.0 * d)
                + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * d * d)
                + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * d.powi(3))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (degrees, value) in [(1.0, 12.706), (4.0, 2.776), (10.0, 2.228), (30.0, 2.042), (1e6, 1.960)] {
            assert!((student(degrees) - value).abs() < 0.003, "{degrees}: {}", student(degrees));
        }
    }
}

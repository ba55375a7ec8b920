//! From the pieces that were looked at to everything.
//!
//! For stratum h: N pieces of X bytes together, of which n with x bytes were encoded. A sum Y over the stratum (bytes
//! before or after compression, seconds) is estimated as X · y/x, y being its sum over the n pieces. The totals are
//! sums over strata. The bytes are those of whole records: of the last record of a long file a few bytes may be data, but it
//! stands for one record, and not for as many as the data would go into the file.
//!
//! The compressratio is R = (L + M)/(P + M), L bytes before and P after compression, M of metadata, which ZFS counts
//! in both. Its error comes from the residuals of the pieces, e = (l − R·p) − x·(l − R·p summed)/(x summed):
//!
//! ```text
//! s²  = (Σ e² + PRIOR · c²) / (n − 1 + PRIOR)         spread in stratum h
//! v_h = (X / (x/n))² · (1 − n/N) · s²/n              variance of L − R·P in stratum h
//! se  = √(Σ v_h) / (P + M)                           standard error of R
//! df  = (Σ v_h)² / Σ (v_h² / (n − 1 + PRIOR))        degrees of freedom (Satterthwaite)
//! R ± (t(df) · se + MODEL · R + METADATA · M · (R − 1)/(P + M))        the interval
//! ```
//!
//! c is the spread within all strata together: a few pieces that are alike by chance do not make a narrow interval, and a
//! stratum of which a single piece was seen has the spread of the others. One of which none was seen is taken to be like
//! the others together, and differs from them as much as they do from each other. `MODEL` and `METADATA` stand for what is no
//! matter of chance: what is computed rather than seen, and how well the sizes of metadata are known.

use super::encode::{Outcome, Setting};
use super::metadata::Metadata;
use super::strata::{Strata, Stratum};

/// Relative error of what is computed, not sampled.
const MODEL: f64 = 0.002;
/// Relative error of the sizes of metadata.
const METADATA: f64 = 0.1;
/// Pieces that the spread within all strata counts as in each of them.
const PRIOR: f64 = 0.5;

/// One piece: its stratum, its outcome in each configuration.
pub(crate) struct Seen {
    pub(crate) stratum: usize,
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
    /// As of [`Outcome`].
    pub(crate) bare: f64,
    pub(crate) tight: f64,
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
    counts: &dyn Fn(&Stratum) -> bool,
) -> Estimate {
    let mut total = Estimate::default();
    let (mut sampled, mut unseen) = (0.0, 0.0);
    for (stratum, sums) in
        strata.all.iter().zip(&sums(strata, seen, index)).filter(|(stratum, _)| counts(stratum))
    {
        let bytes = stratum.padded(recordsize);
        if sums.padded == 0 {
            unseen += bytes;
            continue;
        }
        sampled += bytes;
        let scale = bytes / sums.padded as f64;
        total.logical += sums.lsize as f64 * scale;
        total.physical += sums.psize as f64 * scale;
        total.used += sums.used as f64 * scale;
        total.raw += sums.raw as f64 * scale;
        total.records += sums.records as f64 * scale;
        total.bare += sums.bare as f64 * scale;
        total.tight += sums.tight as f64 * scale;
        total.compress += sums.compress * scale;
        total.decompress += sums.decompress * scale;
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
    total.half_width = half_width(strata, seen, (index, recordsize), counts, total.ratio, physical)
        + MODEL * total.ratio
        + of_metadata;
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
            &mut self.bare,
            &mut self.tight,
            &mut self.compress,
            &mut self.decompress,
        ] {
            *value *= by;
        }
    }
}

/// Of the pieces of each stratum in one configuration, added up.
fn sums(strata: &Strata, seen: &[Seen], index: usize) -> Vec<Outcome> {
    let mut sums = vec![Outcome::default(); strata.all.len()];
    seen.iter().for_each(|piece| sums[piece.stratum].add(&piece.outcomes[index]));
    sums
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.padded += other.padded;
        self.lsize += other.lsize;
        self.psize += other.psize;
        self.used += other.used;
        self.raw += other.raw;
        self.records += other.records;
        self.bare += other.bare;
        self.tight += other.tight;
        self.compress += other.compress;
        self.decompress += other.decompress;
    }
}

/// Of the pieces of each stratum in one configuration: their bytes and l − R·p.
struct Residuals(Vec<Vec<(f64, f64)>>);

impl Residuals {
    fn new(strata: &Strata, seen: &[Seen], index: usize, ratio: f64) -> Residuals {
        let mut pieces = vec![Vec::new(); strata.all.len()];
        for piece in seen {
            let outcome = &piece.outcomes[index];
            let residual = outcome.lsize as f64 - ratio * outcome.psize as f64;
            pieces[piece.stratum].push((outcome.padded as f64, residual));
        }
        Residuals(pieces)
    }

    /// Sum of the squares of e in a stratum.
    fn squares(&self, stratum: usize) -> f64 {
        let pieces = &self.0[stratum];
        let (bytes, sum) = pieces.iter().fold((0.0, 0.0), |(x, y), piece| (x + piece.0, y + piece.1));
        pieces.iter().map(|(x, y)| (y - x * sum / bytes).powi(2)).sum()
    }

    fn mean_bytes(&self, stratum: usize) -> Option<f64> {
        let pieces = &self.0[stratum];
        (!pieces.is_empty()).then(|| pieces.iter().map(|piece| piece.0).sum::<f64>() / pieces.len() as f64)
    }

    /// Variance of e within strata for each byte squared; between them where none has two pieces.
    fn common(&self) -> Option<f64> {
        let (mut sum, mut degrees) = (0.0, 0.0);
        for (stratum, pieces) in self.0.iter().enumerate().filter(|(_, pieces)| pieces.len() > 1) {
            sum += self.squares(stratum) / self.mean_bytes(stratum)?.powi(2);
            degrees += pieces.len() as f64 - 1.0;
        }
        if degrees > 0.0 {
            return Some(sum / degrees);
        }
        let all = Residuals(vec![self.0.iter().flatten().copied().collect()]);
        let count = all.0[0].len() as f64;
        (count > 1.0).then(|| all.squares(0) / (count - 1.0) / all.mean_bytes(0).unwrap_or(1.0).powi(2))
    }

    /// Variance between the strata that were seen, for each byte squared, and how many they are.
    fn between(&self, strata: &Strata, recordsize: u64, counts: &dyn Fn(&Stratum) -> bool) -> (f64, f64) {
        let (mut sum, mut bytes, mut count) = (0.0, 0.0, 0.0f64);
        let seen = strata.all.iter().zip(&self.0);
        for (stratum, pieces) in seen.filter(|(stratum, pieces)| counts(stratum) && !pieces.is_empty()) {
            let (x, y) = pieces.iter().fold((0.0, 0.0), |(x, y), piece| (x + piece.0, y + piece.1));
            let weight = stratum.padded(recordsize);
            sum += weight * (y / x).powi(2);
            bytes += weight;
            count += 1.0;
        }
        (sum / f64::max(bytes, 1.0) * count / (count - 1.0).max(1.0), count)
    }
}

fn half_width(
    strata: &Strata,
    seen: &[Seen],
    (index, recordsize): (usize, u64),
    counts: &dyn Fn(&Stratum) -> bool,
    ratio: f64,
    physical: f64,
) -> f64 {
    let residuals = Residuals::new(strata, seen, index, ratio);
    let counted = || strata.all.iter().enumerate().filter(|(_, stratum)| counts(stratum));
    let Some(common) = residuals.common() else {
        return if counted().map(|(_, stratum)| stratum.population).sum::<f64>() <= 1.0 {
            0.0
        } else {
            ratio
        };
    };
    let (between, strata_seen) = residuals.between(strata, recordsize, counts);
    let (mut variance, mut freedom, mut unseen, mut bytes) = (0.0, 0.0, 0.0, 0.0);
    for (number, stratum) in counted() {
        let padded = stratum.padded(recordsize);
        bytes += padded;
        let (n, whole) = (residuals.0[number].len() as f64, stratum.population);
        let Some(mean) = residuals.mean_bytes(number) else {
            unseen += padded;
            let v = padded.powi(2) * (between + common);
            variance += v;
            freedom += v * v / (strata_seen - 1.0).max(1.0);
            continue;
        };
        let degrees = n - 1.0 + PRIOR;
        let spread = (residuals.squares(number) + PRIOR * common * mean * mean) / degrees;
        let v = (padded / mean).powi(2) * (1.0 - n / whole) * spread / n;
        variance += v;
        freedom += v * v / degrees.max(1.0);
    }
    if variance <= 0.0 {
        return 0.0;
    }
    let half = student(variance * variance / freedom) * variance.sqrt() / physical.max(1.0);
    // A single stratum says nothing about the others.
    if strata_seen < 2.0 { half.max(ratio * unseen / f64::max(bytes, 1.0)) } else { half }
}

/// How much the pieces of each stratum differ for each byte, in the configuration where they differ most; `None` where
/// fewer than two were seen.
pub(crate) fn spreads(strata: &Strata, seen: &[Seen], settings: &[Setting]) -> Vec<Option<f64>> {
    let mut most = vec![None; strata.all.len()];
    for (index, setting) in settings.iter().enumerate() {
        let (mut logical, mut physical) = (0.0, 0.0);
        let sums = sums(strata, seen, index);
        for (stratum, sums) in strata.all.iter().zip(&sums).filter(|(_, sums)| sums.padded > 0) {
            let scale = stratum.padded(setting.recordsize) / sums.padded as f64;
            logical += sums.lsize as f64 * scale;
            physical += sums.psize as f64 * scale;
        }
        let residuals = Residuals::new(strata, seen, index, logical / f64::max(physical, 1.0));
        for (stratum, most) in most.iter_mut().enumerate().filter(|(h, _)| residuals.0[*h].len() > 1) {
            let n = residuals.0[stratum].len() as f64;
            let mean = residuals.mean_bytes(stratum).unwrap_or(1.0);
            let spread = (residuals.squares(stratum) / (n - 1.0)).sqrt() / mean;
            *most = Some(f64::max(most.unwrap_or(0.0), spread));
        }
    }
    most
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
    use std::time::{Duration, Instant};

    use format::compression::CompressionSetting;

    use super::super::encode::Encoder;
    use super::super::layout::Layout;
    use super::super::material::Material;
    use super::super::survey::Survey;
    use super::*;
    use crate::watch::Deaf;

    #[test]
    fn of_a_long_file_the_short_end_alone_does_not_stand_for_thousands_of_records() {
        let (piece, len) = (128 << 10, (64 << 17) + 100);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("long"), b"much the same\n".repeat(len as usize / 14 + 1)).unwrap();
        std::fs::File::options().write(true).open(dir.path().join("long")).unwrap().set_len(len).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let mut material = Material::new();
        material.add_path(dir.path(), &Survey { until, seed: 1, unpack: false, watch: &Deaf }).unwrap();
        let recordsizes = [16 << 10, 128 << 10];
        let settings =
            recordsizes.map(|recordsize| Setting { compression: CompressionSetting::LZ4, recordsize });
        let strata = Strata::new(&material, piece, &recordsizes, 1);
        let encoder = Encoder::new(settings.to_vec(), 12, Layout::Stripe);
        let end = material.read(&material.files[0], len - 100, 100).unwrap();
        let seen = [Seen { stratum: 0, outcomes: encoder.encode(&end) }];
        let metadata = Metadata {
            files: 1.0,
            folders: 1.0,
            long_files: recordsizes.map(|size| (size, 1.0)).to_vec(),
            ashift: 12,
            layout: Layout::Stripe,
        };
        for (index, recordsize) in recordsizes.into_iter().enumerate() {
            let of = estimate(&strata, &seen, (index, recordsize), &metadata, &|_| true);
            let records = len.div_ceil(recordsize) as f64;
            assert_eq!((of.records, of.logical), (records, records * recordsize as f64));
            assert!(of.ratio - of.half_width <= 1.0 && of.used < len as f64, "{of:?}");
        }
    }

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (degrees, value) in [(1.0, 12.706), (4.0, 2.776), (10.0, 2.228), (30.0, 2.042), (1e6, 1.960)] {
            assert!((student(degrees) - value).abs() < 0.003, "{degrees}: {}", student(degrees));
        }
    }
}

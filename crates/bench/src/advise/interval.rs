//! The error of a ratio from a sample.
//!
//! From:   the pieces that were looked at, of each stratum.
//! To:     [`super::estimate`]: intervals that hold the truth 95 times of 100; [`super::look`], which draws where they are wide.
//!
//! L, P, M, N, X, n and x are those of [`super::estimate`]. The error of R = (L + M)/(P + M) comes from the residuals of the
//! pieces, e = (l − R·p) − x·(l − R·p summed)/(x summed):
//!
//! ```text
//! s²  = (Σ e² + PRIOR · c²) / (n − 1 + PRIOR)                spread in stratum h
//! v_h = (X / (x/n))² · (1 − n/N) · s²/n                     variance of L − R·P in stratum h
//! se  = √(Σ v_h) / (P + M)                                  standard error of R
//! df  = (Σ v_h)² / (Σ u_h² / (n − 1) + (Σ w_h)² / d)        degrees of freedom (Satterthwaite)
//! R ± (t(df) · se + MODEL · R + METADATA · M · (R − 1)/(P + M))        the interval
//! ```
//!
//! c is the spread that all strata have in common: a few pieces that are alike by chance do not make a narrow interval, and a
//! stratum of which a single piece was seen has the spread of the others. It is estimated from the D pieces that are not the
//! first of their stratum. It is also estimated from how much all seen pieces differ from each other, which counts as
//! `MIXED` more of them: from one or two pieces nobody can tell how much kinds differ within themselves, but hardly do they
//! more than from each other.
//!
//! ```text
//! c² = max((Σ e² of all strata + MIXED · s² of all as one stratum) / d, (R · SHRINKS)² / (pieces seen + 1)),  d = D + MIXED
//! ```
//!
//! The second is for what no piece may have shown (and nothing where nothing is compressed): that the next one shrinks, by an
//! eighth at least, since with less it is stored as it is. Of v_h the part u_h comes from the stratum's own pieces, w_h from c,
//! which is one and the same guess for all of them.
//!
//! A stratum of which no piece was seen is assumed to be like the average of the others. It is assumed to differ from
//! them as much as they differ from each other. `MODEL` and `METADATA` stand for errors that are not chance: those of computed
//! values, and those of the sizes of metadata.

use format::Compression;

use super::encode::Setting;
use super::seen::{Sampled, Seen, sums};
use super::strata::{Strata, Stratum};

/// Relative error of computed values, which are not sampled.
const MODEL: f64 = 0.002;
/// Relative error of the sizes of metadata.
const METADATA: f64 = 0.1;
/// Pieces that the spread within all strata counts as in each of them.
const PRIOR: f64 = 0.5;
/// Pieces that the spread of all of them together counts as where that within strata is estimated.
const MIXED: f64 = 2.0;
/// The least part of a record that compression saves: with less it is stored as it is.
const SHRINKS: f64 = 0.125;

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

    /// The spread that all strata have in common; `None` where fewer than two pieces were seen.
    fn common(&self) -> Option<Common> {
        let (mut sum, mut degrees) = (0.0, MIXED);
        for (stratum, pieces) in self.0.iter().enumerate().filter(|(_, pieces)| pieces.len() > 1) {
            sum += self.squares(stratum) / self.mean_bytes(stratum)?.powi(2);
            degrees += pieces.len() as f64 - 1.0;
        }
        let all = Residuals(vec![self.0.iter().flatten().copied().collect()]);
        let count = all.0[0].len() as f64;
        if count < 2.0 {
            return None;
        }
        let mixed = all.squares(0) / (count - 1.0) / all.mean_bytes(0)?.powi(2);
        Some(Common { variance: (sum + MIXED * mixed) / degrees, degrees })
    }

    /// The least variance, for each byte squared, of a property that no piece has shown.
    fn unshown(&self, ratio: f64) -> f64 {
        let pieces = self.0.iter().map(Vec::len).sum::<usize>() as f64;
        (SHRINKS * ratio).powi(2) / (pieces + 1.0)
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

/// The ratio whose interval is asked for.
pub(crate) struct Ratio {
    /// R.
    pub(crate) value: f64,
    /// P + M.
    pub(crate) physical: f64,
    /// M.
    pub(crate) metadata: f64,
}

/// Variance of e within strata, for each byte squared, and how many pieces tell of it.
struct Common {
    variance: f64,
    degrees: f64,
}

/// The error of the setting's ratio over the requested strata.
pub(crate) fn half_width(sampled: &Sampled<'_>, ratio: &Ratio) -> f64 {
    let Ratio { value, physical, metadata } = *ratio;
    let by_chance = by_chance(sampled, value, physical);
    by_chance + MODEL * value + METADATA * metadata * (value - 1.0) / physical
}

/// The part of it that is a matter of which pieces were drawn.
fn by_chance(sampled: &Sampled<'_>, ratio: f64, physical: f64) -> f64 {
    let Sampled { strata, seen, index, setting, counts } = *sampled;
    let recordsize = setting.recordsize;
    let residuals = Residuals::new(strata, seen, index, ratio);
    let counted = || strata.all.iter().enumerate().filter(|(_, stratum)| counts(stratum));
    let Some(Common { variance: mut common, degrees: of_common }) = residuals.common() else {
        return if counted().map(|(_, stratum)| stratum.population).sum::<f64>() <= 1.0 {
            0.0
        } else {
            ratio
        };
    };
    if setting.compression.algorithm != Compression::Off {
        common = common.max(residuals.unshown(ratio));
    }
    let (between, strata_seen) = residuals.between(strata, recordsize, counts);
    let (mut variance, mut freedom, mut unseen, mut bytes) = (0.0, 0.0, 0.0, 0.0);
    // The variance that comes from the common spread: that spread is too narrow everywhere, or nowhere.
    let mut guessed = 0.0;
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
        let scale = (padded / mean).powi(2) * (1.0 - n / whole) / (n * (n - 1.0 + PRIOR));
        let own = scale * residuals.squares(number);
        let from_common = scale * PRIOR * common * mean * mean;
        variance += own + from_common;
        guessed += from_common;
        freedom += own * own / (n - 1.0).max(1.0);
    }
    freedom += guessed * guessed / of_common;
    if variance <= 0.0 {
        return 0.0;
    }
    let half = student(variance * variance / freedom) * variance.sqrt() / physical;
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
    use storage::host::SeededEntropy;

    use super::super::encode::Outcome;
    use super::super::estimate::estimate;
    use super::super::layout::Layout;
    use super::super::material::Material;
    use super::super::metadata::Metadata;
    use super::super::strata::Draw;
    use super::super::survey::Survey;
    use super::*;
    use crate::watch::Deaf;

    const PIECE: u64 = 128 << 10;

    /// Eight kinds, a file of five pieces each.
    fn kinds(dir: &std::path::Path) -> Material {
        for kind in 0..8 {
            std::fs::write(dir.join(format!("file.kind{kind}")), vec![7; 5 * PIECE as usize]).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(3600);
        let mut material = Material::new();
        material.add_path(dir, &Survey { until, seed: 1, unpack: false, watch: &Deaf }).unwrap();
        material
    }

    /// `count` pieces as they are drawn, of which each is compressed to the part that `part` says.
    fn draw(
        material: &Material,
        seed: u64,
        count: usize,
        part: &dyn Fn(&Draw) -> f64,
    ) -> (Strata, Vec<Seen>) {
        let mut strata = Strata::new(material, PIECE, &[PIECE], seed);
        let seen = std::iter::from_fn(|| strata.draw(material)).take(count).map(|draw| {
            let psize = (part(&draw) * draw.len as f64) as u64;
            let outcome =
                Outcome { padded: draw.len, lsize: draw.len, psize, records: 1, ..Outcome::default() };
            Seen { stratum: draw.stratum, outcomes: vec![outcome] }
        });
        let seen = seen.collect();
        (strata, seen)
    }

    /// The sample of all strata, from pieces that were encoded with one setting.
    fn in_all<'a>(strata: &'a Strata, seen: &'a [Seen], setting: &'a Setting) -> Sampled<'a> {
        Sampled { strata, seen, index: 0, setting, counts: &|_| true }
    }

    fn in_records_of_a_piece(compression: CompressionSetting) -> (Setting, Metadata) {
        let setting = Setting { compression, recordsize: PIECE };
        let long_files = vec![(PIECE, 8.0)];
        let (files, folders, short_folders) = (8.0, 1.0, 0.0);
        let layout = Layout::Stripe;
        (setting, Metadata { files, folders, short_folders, long_files, ashift: 12, layout })
    }

    /// Kinds that differ, some of them also within themselves: with one piece more than there are kinds, that one was all that
    /// told how much, and every second interval was too narrow.
    #[test]
    fn intervals_hold_however_few_pieces_are_seen() {
        const SEEDS: u64 = 400;
        let dir = tempfile::tempdir().unwrap();
        let material = kinds(dir.path());
        let (setting, metadata) = in_records_of_a_piece(CompressionSetting::LZ4);
        for count in [8, 9, 10, 12, 16, 24, 32] {
            let held = (0..SEEDS).filter(|seed| {
                let random = SeededEntropy::new(*seed);
                let unit = || random.below(1 << 20) as f64 / f64::from(1 << 20);
                let kinds: Vec<(f64, f64)> = (0..8).map(|_| (unit(), 0.4 * unit().powi(4))).collect();
                let noise: Vec<f64> = (0..40).map(|_| unit() - 0.5).collect();
                let part = |draw: &Draw| {
                    let (middle, spread) = kinds[draw.file as usize];
                    let noise = noise[draw.file as usize * 5 + (draw.offset / PIECE) as usize];
                    (0.15 + 0.7 * middle + spread * noise).clamp(0.05, 1.0)
                };
                let of = |count| {
                    let (strata, seen) = draw(&material, *seed, count, &part);
                    estimate(&in_all(&strata, &seen, &setting), &metadata)
                };
                let (some, all) = (of(count), of(40));
                (some.ratio - all.ratio).abs() <= some.half_width
            });
            let held = held.count() as u64;
            assert!(held * 100 >= SEEDS * 95, "{count} pieces: {held} of {SEEDS}");
        }
    }

    #[test]
    fn unseen_compression_is_possible_unless_compression_is_off() {
        let dir = tempfile::tempdir().unwrap();
        let material = kinds(dir.path());
        let half_width = |compression, count| {
            let (setting, metadata) = in_records_of_a_piece(compression);
            let (strata, seen) = draw(&material, 1, count, &|_| 1.0);
            estimate(&in_all(&strata, &seen, &setting), &metadata).half_width
        };
        let (few, most) = (half_width(CompressionSetting::LZ4, 8), half_width(CompressionSetting::LZ4, 32));
        // One of nine that saves an eighth makes 1.4 %.
        assert!(few > 0.014 && most < few / 4.0, "{few} {most}");
        assert_eq!(half_width(CompressionSetting::plain(Compression::Off), 8), MODEL);
        assert_eq!(half_width(CompressionSetting::LZ4, 40), MODEL, "everything was seen");
    }

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (degrees, value) in [(1.0, 12.706), (4.0, 2.776), (10.0, 2.228), (30.0, 2.042), (1e6, 1.960)] {
            assert!((student(degrees) - value).abs() < 0.003, "{degrees}: {}", student(degrees));
        }
    }
}

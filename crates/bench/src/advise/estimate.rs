//! Extrapolating from the sampled pieces to all data.
//!
//! For stratum h: N pieces of X bytes together, of which n with x bytes were encoded. A sum Y over the stratum (bytes
//! before or after compression, seconds) is estimated as X · y/x, y being its sum over the n pieces. The totals are
//! sums over strata. The bytes are those of whole records. Of the last record of a long file, perhaps only a few bytes are
//! data; it still counts as one record, and not as part of one.
//!
//! The compressratio is R = (L + M)/(P + M), L bytes before and P after compression, M of metadata, which ZFS counts in
//! both. [`super::interval`] computes its error.

use super::interval::{Ratio, half_width};
use super::metadata::Metadata;
use super::seen::{Sampled, sums};

/// The estimate of one configuration for everything.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    /// Bytes before compression, metadata left out.
    pub(crate) logical: f64,
    /// Bytes after it, metadata left out.
    pub(crate) physical: f64,
    /// The space that `used` counts, metadata included.
    pub(crate) used: f64,
    /// Bytes on all disks, metadata included.
    pub(crate) raw: f64,
    /// Records.
    pub(crate) records: f64,
    /// As of [`super::encode::Outcome`].
    pub(crate) bare: f64,
    pub(crate) tight: f64,
    /// compressratio, and how far off it may be with 95 %.
    pub(crate) ratio: f64,
    pub(crate) half_width: f64,
    /// Processor seconds for all of it.
    pub(crate) compress: f64,
    pub(crate) decompress: f64,
}

/// Estimates what the setting makes of everything in the strata that are asked about.
pub(crate) fn estimate(sampled: &Sampled<'_>, metadata: &Metadata) -> Estimate {
    let Sampled { strata, seen, index, setting, counts } = *sampled;
    let recordsize = setting.recordsize;
    let mut total = Estimate::default();
    let (mut looked_at, mut unseen) = (0.0, 0.0);
    for (stratum, sums) in
        strata.all.iter().zip(&sums(strata, seen, index)).filter(|(stratum, _)| counts(stratum))
    {
        let bytes = stratum.padded(recordsize);
        if sums.padded == 0 {
            unseen += bytes;
            continue;
        }
        looked_at += bytes;
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
    if looked_at == 0.0 {
        return total;
    }
    // Strata without samples, for lack of time, are assumed to be like the others.
    total.scale((looked_at + unseen) / looked_at);
    let meta = metadata.of(total.records, recordsize);
    total.used += meta.used;
    total.raw += meta.raw;
    let (logical, physical) = (total.logical + meta.psize, total.physical + meta.psize);
    total.ratio = (logical / physical.max(1.0)).max(1.0);
    let ratio = Ratio { value: total.ratio, physical: physical.max(1.0), metadata: meta.psize };
    total.half_width = half_width(sampled, &ratio);
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use format::compression::CompressionSetting;

    use super::super::encode::{Encoder, Setting};
    use super::super::layout::Layout;
    use super::super::material::Material;
    use super::super::seen::Seen;
    use super::super::strata::Strata;
    use super::super::survey::Survey;
    use super::*;
    use crate::watch::Deaf;

    #[test]
    fn the_short_end_of_a_long_file_does_not_represent_thousands_of_records() {
        let (piece, len) = (128 << 10, (64 << 17) + 100);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("long"), b"much the same\n".repeat(len as usize / 14 + 1)).unwrap();
        std::fs::File::options().write(true).open(dir.path().join("long")).unwrap().set_len(len).unwrap();
        let until = Instant::now() + Duration::from_secs(3600);
        let mut material = Material::new();
        material.add_path(dir.path(), &Survey { until, seed: 1, unpack: false, watch: &Deaf }).unwrap();
        let recordsizes = [16 << 10, 128 << 10];
        let settings =
            recordsizes.map(|recordsize| Setting { compression: CompressionSetting::LZ4, recordsize });
        let strata = Strata::new(&material, piece, &recordsizes, 1);
        let encoder = Encoder::new(settings.to_vec(), 12, Layout::Stripe);
        let end = material.read(&material.files[0], len - 100, 100).unwrap();
        let seen = [Seen { stratum: 0, outcomes: encoder.encode(&[end]).remove(0) }];
        let metadata = Metadata {
            files: 1.0,
            folders: 1.0,
            short_folders: 0.0,
            long_files: recordsizes.map(|size| (size, 1.0)).to_vec(),
            ashift: 12,
            layout: Layout::Stripe,
        };
        for (index, recordsize) in recordsizes.into_iter().enumerate() {
            let setting = &settings[index];
            let of = estimate(
                &Sampled { strata: &strata, seen: &seen, index, setting, counts: &|_| true },
                &metadata,
            );
            let records = len.div_ceil(recordsize) as f64;
            assert_eq!((of.records, of.logical), (records, records * recordsize as f64));
            assert!(of.ratio - of.half_width <= 1.0 && of.used < len as f64, "{of:?}");
        }
    }
}

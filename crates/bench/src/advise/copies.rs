//! Copies among all files: found by reading everything, or estimated from a sample.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use super::dedup::{self, Dedup, Stored};
use super::encode::{Encoder, Piece, Setting, records};
use super::group::Group;
use super::material::{FileEntry, Material};
use super::strata::piece_runs;
use super::{COPIES_PART, WHOLE_MAX};
use crate::{Error, Event, Result, Watch};

/// Groups of files of one size that are looked at for copies, and files of each.
const TWIN_GROUPS: usize = 300;
const TWINS: usize = 8;
/// Bytes of a file's beginning and of its end.
const END: u64 = 4096;

/// The effect of deduplication, after reading everything that can be read. Different records are encoded as `setting`
/// says. A txg writes `txg_bytes`.
pub(crate) fn exact_dedup(
    material: &Material,
    encoder: &Encoder,
    setting: Setting,
    txg_bytes: u64,
    watch: &dyn Watch,
) -> Result<Dedup> {
    let Setting { compression, recordsize } = setting;
    let mut counter = dedup::Counter::new(txg_bytes);
    let (mut done, mut failed) = (0, false);
    for entry in material.files.iter().filter(|entry| entry.size > 0) {
        let runs = piece_runs(entry.size, entry.parts.as_deref(), recordsize);
        for record in runs.into_iter().flat_map(|(first, last)| first..=last) {
            if watch.stopped() {
                return Err(Error::Interrupted);
            }
            let offset = record * recordsize;
            let len = recordsize.min(entry.size - offset);
            match material.read(entry, offset, len as usize) {
                Ok(piece) => {
                    let data = std::iter::once(0..piece.bytes.len()).collect();
                    let piece = Piece { file_size: entry.size, bytes: piece.bytes, data };
                    for record in records(&piece, recordsize) {
                        counter.add(&record, || encoder.stored(compression, &record));
                    }
                }
                // It vanished meanwhile, or became shorter.
                Err(_) => failed = true,
            }
            done += len;
            watch.event(Event::Loading { bytes: done, total: material.bytes });
        }
    }
    let all = material.complete() && material.unreadable == 0 && !failed;
    Ok(counter.result(recordsize, encoder.ashift, all))
}

/// The effect of deduplication from the sample: exact if the sample is everything, otherwise a lower bound. Files are
/// compared until `until`.
pub(crate) fn bounded_dedup(
    material: &Material,
    group: &Group,
    until: Instant,
    watch: &dyn Watch,
) -> Result<Dedup> {
    let Group { looked, encoder, .. } = group;
    let recordsize = encoder.settings.first().map_or(128 << 10, |setting| setting.recordsize);
    let mut counter = dedup::Counter::new(u64::MAX);
    for (hash, len) in &looked.hashes {
        counter.add_hash(*hash, (*len).into(), || Stored::plain(*hash, *len));
    }
    let sampled = counter.result(recordsize, encoder.ashift, true);
    if looked.complete && material.complete() && material.unreadable == 0 {
        return Ok(sampled);
    }
    let bytes = material.bytes as f64;
    let copies = likely_copies(material, until, watch)?.max(bytes * (1.0 - 1.0 / sampled.ratio));
    let records = looked.hashes.len() as f64 * bytes / looked.bytes.max(1) as f64;
    Ok(dedup::lower_bound(recordsize, encoder.ashift, bytes, copies, records))
}

/// Bytes of files that have the size, the beginning and the end of another one.
fn likely_copies(material: &Material, until: Instant, watch: &dyn Watch) -> Result<f64> {
    let mut by_size: BTreeMap<(u64, u64), Vec<&FileEntry>> = BTreeMap::new();
    for entry in material.files.iter().filter(|entry| entry.data_bytes() >= END) {
        by_size.entry((entry.data_bytes(), entry.size)).or_default().push(entry);
    }
    let mut groups: Vec<(u64, Vec<&FileEntry>)> = by_size
        .into_iter()
        .filter(|(_, group)| group.len() > 1)
        .map(|((data, _), group)| (data, group))
        .collect();
    groups.sort_by_key(|(data, group)| std::cmp::Reverse(data * group.len() as u64));
    let mut left = match material.bytes > WHOLE_MAX {
        true => (material.bytes as f64 * COPIES_PART) as u64,
        false => u64::MAX,
    };
    let mut copies = 0.0;
    for (data, group) in groups.into_iter().take(TWIN_GROUPS) {
        let mut different = HashSet::new();
        let (mut looked_at, mut alike) = (0.0, 0.0);
        for entry in group.iter().take(TWINS) {
            if watch.stopped() {
                return Err(Error::Interrupted);
            }
            if Instant::now() >= until || left < 2 * END {
                break;
            }
            left = left.saturating_sub(2 * END);
            if let Some(ends) = ends(material, entry) {
                looked_at += 1.0;
                // Many different files have zeros at both ends.
                alike += f64::from(ends.is_some_and(|ends| !different.insert(ends)));
            }
        }
        if looked_at > 0.0 {
            copies += data as f64 * alike * group.len() as f64 / looked_at;
        }
    }
    Ok(copies)
}

/// Hashes of the beginning and the end of a file's data: `Some(None)` if both are zeros, `None` if they cannot be read.
fn ends(material: &Material, entry: &FileEntry) -> Option<Option<(u64, u64)>> {
    let (begin, end) = entry.data_ends()?;
    let read = |at| material.read(entry, at, END as usize).ok().map(|piece| piece.bytes);
    let (first, last) = (read(begin)?, read(end - END)?);
    let are_zeros = codec::is_zero(&first) && codec::is_zero(&last);
    Some((!are_zeros).then(|| (dedup::hash(&first), dedup::hash(&last))))
}

#[cfg(test)]
mod tests {
    use super::super::survey::Survey;
    use super::*;
    use crate::watch::Deaf;
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;
    use std::time::Duration;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn material(folder: &Path) -> Material {
        let mut material = Material::new();
        material.add_path(folder, &Survey { until: later(), seed: 1, unpack: false, watch: &Deaf }).unwrap();
        material
    }

    /// A gigabyte of hole with 64 KiB of `byte` in it.
    fn sparse(path: &Path, byte: u8) {
        let file = std::fs::File::create(path).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[byte; 64 << 10], 1 << 29).unwrap();
    }

    #[test]
    fn only_the_data_of_sparse_files_is_compared_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        sparse(&dir.path().join("a"), 1);
        sparse(&dir.path().join("b"), 2);
        let copies = |until| likely_copies(&material(dir.path()), until, &Deaf).unwrap();
        if material(dir.path()).bytes > 1 << 30 {
            return; // The file system does not tell where its holes are.
        }
        assert_eq!(copies(later()), 0.0, "their holes are alike, they are not");
        sparse(&dir.path().join("c"), 2);
        let found = copies(later());
        assert!((60e3..100e3).contains(&found), "{found}");
        assert_eq!(copies(Instant::now()), 0.0, "the time is over");
    }

    #[test]
    fn files_with_zeros_at_both_ends_are_not_taken_for_copies() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            let mut data = vec![0; 100_000];
            data[50_000..50_001].copy_from_slice(name.as_bytes());
            std::fs::write(dir.path().join(name), data).unwrap();
        }
        assert_eq!(likely_copies(&material(dir.path()), later(), &Deaf).unwrap(), 0.0);
    }

    #[test]
    fn only_what_was_read_whole_is_exact() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), vec![3; 100_000]).unwrap();
        }
        let before = material(dir.path());
        let setting = Setting { compression: format::compression::CompressionSetting::LZ4, recordsize: 4096 };
        let encoder = Encoder::new(vec![setting], 12, super::super::layout::Layout::Stripe);
        assert!(exact_dedup(&before, &encoder, setting, 1 << 30, &Deaf).unwrap().exact);
        std::fs::remove_file(dir.path().join("b")).unwrap();
        let dedup = exact_dedup(&before, &encoder, setting, 1 << 30, &Deaf).unwrap();
        assert!(!dedup.exact && dedup.verdict.contains("could not be read"), "{dedup:?}");
    }
}

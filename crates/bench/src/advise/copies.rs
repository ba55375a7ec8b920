//! Copies among all files: by reading everything, or as far as a sample tells.

use std::collections::{BTreeMap, HashSet};

use super::dedup::{self, Dedup};
use super::group::Group;
use super::material::Material;
use crate::{Error, Event, Result, Watch};

/// Groups of files of one size that are looked at for copies, and files of each.
const TWIN_GROUPS: usize = 300;
const TWINS: usize = 8;

/// What deduplication would do, after reading everything.
pub(crate) fn exact_dedup(material: &Material, recordsize: u64, watch: &dyn Watch) -> Result<Dedup> {
    let mut counter = dedup::Counter::new();
    let mut done = 0;
    for entry in &material.files {
        let mut offset = 0;
        while offset < entry.size {
            if watch.stopped() {
                return Err(Error::Interrupted);
            }
            let len = recordsize.min(entry.size - offset);
            // What vanished meanwhile is no data.
            if let Ok(piece) = material.read(entry, offset, len as usize) {
                counter.add(&piece.bytes);
            }
            offset += len;
            done += len;
            watch.event(Event::Loading { bytes: done, total: material.bytes });
        }
    }
    Ok(counter.result(recordsize))
}

/// The same from what was looked at: exact if that is everything, else what can be said for sure.
pub(crate) fn bounded_dedup(
    material: &Material,
    group: &Group,
    bytes: f64,
    watch: &dyn Watch,
) -> Result<Dedup> {
    let Group { looked, encoder, .. } = group;
    let recordsize = encoder.settings.first().map_or(128 << 10, |setting| setting.recordsize);
    let mut counter = dedup::Counter::new();
    looked.hashes.iter().for_each(|(hash, len)| counter.add_hash(*hash, *len));
    let sampled = counter.result(recordsize);
    if looked.complete && material.complete {
        return Ok(sampled);
    }
    let copies = likely_copies(material, watch)?.max(bytes * (1.0 - 1.0 / sampled.ratio));
    let records = looked.hashes.len() as f64 * bytes / looked.bytes.max(1) as f64;
    Ok(dedup::lower_bound(recordsize, bytes, copies, records))
}

/// Bytes of files that have the size, the beginning and the end of another one.
fn likely_copies(material: &Material, watch: &dyn Watch) -> Result<f64> {
    const END: u64 = 4096;
    let mut by_size: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, file) in material.files.iter().enumerate().filter(|(_, file)| file.size >= END) {
        by_size.entry(file.size).or_default().push(number);
    }
    let mut groups: Vec<(u64, Vec<usize>)> =
        by_size.into_iter().filter(|(_, group)| group.len() > 1).collect();
    groups.sort_by_key(|(size, group)| std::cmp::Reverse(size * group.len() as u64));
    let mut copies = 0.0;
    for (size, group) in groups.into_iter().take(TWIN_GROUPS) {
        if watch.stopped() {
            return Err(Error::Interrupted);
        }
        let mut different = HashSet::new();
        let mut looked_at = 0.0;
        for number in group.iter().take(TWINS) {
            let entry = &material.files[*number];
            let ends = [0, size - END]
                .map(|at| material.read(entry, at, END as usize).map(|piece| dedup::hash(&piece.bytes)));
            if let [Ok(first), Ok(last)] = ends {
                looked_at += 1.0;
                different.insert((first, last));
            }
        }
        if looked_at > 0.0 {
            copies += size as f64 * (looked_at - different.len() as f64) * group.len() as f64 / looked_at;
        }
    }
    Ok(copies)
}

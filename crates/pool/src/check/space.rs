//! What the trees use against what the space maps call allocated.

use std::collections::BTreeMap;

use format::blkptr::{BlockPtr, Dva};
use storage::TopVdev;
use storage::allocator::{MapEntry, Segments, SpaceMapSource};

use super::Finding;
use crate::pool::Inner;
use crate::space_maps::{self, Source};
use crate::{Result, bpobj};

/// Ranges in use, per top-level vdev.
pub(super) struct Claims {
    vdevs: BTreeMap<u32, Segments>,
}

impl Claims {
    pub(super) fn new(tops: &[TopVdev]) -> Claims {
        Claims { vdevs: tops.iter().map(|top| (top.id, Segments::default())).collect() }
    }

    /// `false` when part of the range was claimed before.
    pub(super) fn claim(&mut self, dva: Dva) -> bool {
        match self.vdevs.get_mut(&dva.vdev.0) {
            Some(claimed) => claimed.add(dva.offset, dva.offset + dva.asize).is_ok(),
            None => false,
        }
    }
}

/// Blocks that no tree refers to any more but that are still allocated: frees put off, logs.
pub(super) fn claim_lists(inner: &Inner, claims: &mut Claims, report: &mut dyn FnMut(Finding)) -> Result<()> {
    for key in ["sync_bplist", "free_bpobj"] {
        let Some(list) = inner.mos.directory_object(key)? else { continue };
        bpobj::for_each(&inner.mos, list, &mut |ptr| {
            if let BlockPtr::Block(block) = ptr {
                for dva in inner.storage.extents(block)? {
                    if !claims.claim(dva) {
                        report(Finding::DoubleReference { place: key.into(), dva });
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Compares the claims with the space maps, metaslab by metaslab.
pub(super) fn compare(inner: &Inner, mut claims: Claims, report: &mut dyn FnMut(Finding)) -> Result<()> {
    let (table, logs) = inner.read_space_tables()?;
    let tops = inner.storage.vdevs().tops();
    let mut source = Source { objset: Some(&inner.mos.objset), tops, maps: &table, logs: &logs };
    for (&vdev, (_, maps)) in &table.vdevs {
        let top = &tops[vdev as usize];
        let claimed = claims.vdevs.remove(&vdev).unwrap_or_default();
        for metaslab in 0..maps.len() as u32 {
            let mut allocated = Segments::default();
            let mut wrong = None;
            source.replay(format::VdevId(vdev), metaslab, &mut |entry| {
                let done = match entry {
                    MapEntry::Alloc { offset, len } => allocated.add(offset, offset + len),
                    MapEntry::Free { offset, len } => allocated.remove(offset, offset + len),
                };
                if done.is_err() {
                    wrong.get_or_insert(entry);
                }
            })?;
            if let Some(entry) = wrong {
                let place = format!("space map of metaslab {metaslab} of vdev {vdev}");
                report(Finding::Unreadable { place, why: format!("{entry:?} contradicts what came before") });
            }
            let own =
                table.map(vdev, metaslab).map(|id| space_maps::header(&inner.mos.objset, id)).transpose()?;
            let logged = logs.get(&(vdev, metaslab)).map_or(0, |entries| space_maps::log_delta(entries));
            let stored = (own.map_or(0, |header| header.alloc) + logged) as u64;
            let counted: u64 = allocated.iter().map(|(start, end)| end - start).sum();
            if stored != counted {
                let what = format!("allocated bytes of metaslab {metaslab} of vdev {vdev}");
                report(Finding::Sum { what, stored, counted });
            }
            let start = u64::from(metaslab) << top.metaslab_shift;
            let end = start + (1 << top.metaslab_shift);
            differ(vdev, &allocated, &claimed, start, end, report);
        }
    }
    Ok(())
}

/// Reports ranges of [start, end) that are in one set only.
fn differ(
    vdev: u32,
    allocated: &Segments,
    claimed: &Segments,
    start: u64,
    end: u64,
    report: &mut dyn FnMut(Finding),
) {
    let clip = |set: &Segments| -> Vec<(u64, u64)> {
        let first = set.containing(start);
        let rest = set
            .iter_from(start)
            .take_while(|(s, _)| *s < end)
            .filter(|(s, _)| Some(*s) != first.map(|f| f.0));
        first.into_iter().chain(rest).map(|(s, e)| (s.max(start), e.min(end))).collect()
    };
    let (allocated, claimed) = (clip(allocated), clip(claimed));
    for (only_in, other, leak) in [(&allocated, &claimed, true), (&claimed, &allocated, false)] {
        for (offset, len) in subtract(only_in, other) {
            report(if leak {
                Finding::Leak { vdev, offset, len }
            } else {
                Finding::NotAllocated { vdev, offset, len }
            });
        }
    }
}

/// Parts of `a` that are not in `b`, as (start, length); both ascending and disjoint.
fn subtract(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut next = 0;
    for &(mut start, end) in a {
        while next < b.len() && b[next].1 <= start {
            next += 1;
        }
        let mut i = next;
        while start < end {
            match b.get(i) {
                Some(&(from, to)) if from < end => {
                    if from > start {
                        out.push((start, from - start));
                    }
                    start = start.max(to);
                    i += 1;
                }
                _ => {
                    out.push((start, end - start));
                    break;
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_in_one_set_is_found() {
        let a = [(0, 10), (20, 30), (40, 50)];
        let b = [(5, 25), (42, 44), (46, 60)];
        assert_eq!(subtract(&a, &b), [(0, 5), (25, 5), (40, 2), (44, 2)]);
        assert_eq!(subtract(&b, &a), [(10, 10), (50, 10)]);
        assert_eq!(subtract(&a, &[]), [(0, 10), (20, 10), (40, 10)]);
    }
}

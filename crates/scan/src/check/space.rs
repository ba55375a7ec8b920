//! Comparing the blocks of the trees with the space maps.

use std::collections::BTreeMap;
use std::fmt;

use dsl::list;
use format::VdevId;
use format::blkptr::{BlockPtr, Dva};
use format::space_map::{Kind, Layout};
use storage::allocator::{MapEntry, SpaceMapSource};
use storage::{TopVdev, Trail};

use super::Finding;
use super::sectors::Sectors;
use super::shared::{Reference, Shared};
use dsl::{bpobj, livelist};
use pool::space_maps::{self, Source};
use pool::{Inner, Obsolete, Result, checkpoint, log};

/// Sectors in use, per top-level vdev.
pub(super) struct Claims {
    /// With the bytes of the vdev that can be allocated.
    vdevs: BTreeMap<u32, (u64, Sectors)>,
}

impl Claims {
    pub(super) fn new(tops: &[TopVdev]) -> Claims {
        let none = |top: &TopVdev| (top.id, (top.asize, Sectors::new(top.ashift)));
        Claims { vdevs: tops.iter().map(none).collect() }
    }

    /// `false` when part of the range was claimed before. A copy beyond the end of the vdev cannot be read.
    pub(super) fn claim(&mut self, dva: Dva) -> bool {
        let Some((size, claimed)) = self.vdevs.get_mut(&dva.vdev.0) else { return false };
        claimed.add(dva.offset..dva.offset.saturating_add(dva.asize).min(*size))
    }

    /// Claims all that a block takes, also on the removed vdevs that its pointer leads through.
    pub(super) fn claim_block(
        &mut self,
        trail: Trail,
        place: impl fmt::Display,
        report: &mut dyn FnMut(Finding),
    ) {
        for dva in trail.passed {
            // Ranges claimed twice there are claimed twice where they lead.
            self.claim(dva);
        }
        for dva in trail.places {
            if !self.claim(dva) {
                report(Finding::DoubleReference { place: place.to_string(), dva });
            }
        }
    }
}

/// Blocks that no tree refers to any more but that are still allocated: frees put off, and what a checkpoint keeps.
pub(super) fn claim_lists(
    inner: &Inner,
    (claims, shared): (&mut Claims, &mut Shared),
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    for block in shared.waiting().iter().chain(shared.further_copies()) {
        claims.claim_block(inner.storage().trail(block)?, "dedup table", report);
    }
    for key in ["sync_bplist", "free_bpobj"] {
        let Some(list) = inner.mos().directory_object(key)? else { continue };
        bpobj::for_each(inner.mos(), list, &mut |ptr| {
            if let BlockPtr::Block(block) = ptr
                && shared.refer(block) != Reference::Further
            {
                claims.claim_block(inner.storage().trail(block)?, key, report);
            }
            Ok(())
        })?;
    }
    for list in livelist::queued(inner.mos())? {
        livelist::for_each(inner.mos(), list, &mut |ptr| {
            if let BlockPtr::Block(block) = ptr
                && shared.refer(block) != Reference::Further
            {
                claims.claim_block(inner.storage().trail(block)?, "livelist of a destroyed clone", report);
            }
            Ok(())
        })?;
    }
    claim_kept(inner, claims, report)
}

/// Freed blocks that a checkpoint keeps.
fn claim_kept(inner: &Inner, claims: &mut Claims, report: &mut dyn FnMut(Finding)) -> Result<()> {
    let config = inner.info().config.clone();
    for (vdev, map) in checkpoint::maps_of(inner.mos(), &config)? {
        let shift = inner.storage().vdevs().tops()[vdev as usize].ashift;
        let layout = Layout { start: 0, shift };
        space_maps::for_each_entry(&inner.mos().objset, map, layout, &mut |entry| {
            let dva = Dva { vdev: VdevId(vdev), offset: entry.offset, asize: entry.run, gang: false };
            if entry.kind != Kind::Free || !claims.claim(dva) {
                report(Finding::DoubleReference { place: "what the checkpoint keeps".into(), dva });
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Copies of what is still in use on a vdev that is being removed. All else must be claimed.
pub(super) fn claim_copies(
    inner: &Inner,
    claims: &mut Claims,
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    let Some((vdev, copies)) = inner.copied_so_far()? else { return Ok(()) };
    let top = &inner.storage().vdevs().tops()[vdev as usize];
    let claimed: Vec<(u64, u64)> = claims
        .vdevs
        .get(&vdev)
        .map(|(_, claimed)| claimed.ranges(0..top.asize).collect())
        .unwrap_or_default();
    for (start, end) in claimed {
        for copy in copies.parts(start, end - start) {
            if !claims.claim(copy.to) {
                report(Finding::DoubleReference {
                    place: "what was copied from a vdev".into(),
                    dva: copy.to,
                });
            }
        }
    }
    Ok(())
}

/// Blocks of intent logs, as far as they are allocated, and those that the logs share with files.
pub(super) fn claim_logs(
    inner: &Inner,
    (claims, shared): (&mut Claims, &mut Shared),
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    let synced = inner.info().txg;
    // The walk has reported the parts that are left out.
    for info in list::survey(&inner.view(), &inner.name(), (None, false), &mut |_, _| {})? {
        if info.phys.bp.is_hole() {
            continue;
        }
        // The walk has reported unreadable blocks.
        let opened = inner.objset(info.phys.bp);
        let Ok(objset) = opened else { continue };
        let blocks = log::chain::allocated(inner.storage(), info.id, &objset.zil_header(), synced)?;
        for block in &blocks {
            // The walk has reported the pieces of a lost gang.
            if shared.refer(block) != Reference::Further {
                let place = format!("intent log of '{}'", info.name);
                claims.claim_block(inner.storage().trail(block).unwrap_or_default(), place, report);
            }
        }
    }
    Ok(())
}

/// Compares the claims with the space maps, metaslab by metaslab.
pub(super) fn compare(inner: &Inner, claims: &Claims, report: &mut dyn FnMut(Finding)) -> Result<()> {
    let (table, logs) = inner.read_space_tables()?;
    let tops = inner.storage().vdevs().tops();
    let mut source = Source { objset: Some(&inner.mos().objset), tops, maps: &table, logs: &logs };
    for (&vdev, (_, maps)) in &table.vdevs {
        let top = &tops[vdev as usize];
        let (_, claimed) = &claims.vdevs[&vdev];
        for metaslab in 0..maps.len() as u32 {
            let bytes = top.metaslab(metaslab.into());
            let mut allocated = Sectors::new(top.ashift);
            let mut wrong = None;
            source.replay(format::VdevId(vdev), metaslab, &mut |entry| {
                let (MapEntry::Alloc { offset, len } | MapEntry::Free { offset, len }) = entry;
                let range = offset..offset.saturating_add(len);
                let inside = range.start >= bytes.start && range.end <= bytes.end;
                let done = inside
                    && match entry {
                        MapEntry::Alloc { .. } => allocated.add(range),
                        MapEntry::Free { .. } => allocated.remove(range),
                    };
                if !done {
                    wrong.get_or_insert(entry);
                }
            })?;
            if let Some(entry) = wrong {
                let place = format!("space map of metaslab {metaslab} of vdev {vdev}");
                report(Finding::Unreadable {
                    place,
                    why: format!("{entry:?} contradicts what came before"),
                    of: None,
                });
            }
            let own = table
                .map(vdev, metaslab)
                .map(|id| space_maps::header(&inner.mos().objset, id))
                .transpose()?;
            let logged = logs.get(&(vdev, metaslab)).map_or(0, |entries| space_maps::log_delta(entries));
            let stored = (own.map_or(0, |header| header.alloc) + logged) as u64;
            let counted: u64 = allocated.ranges(bytes.clone()).map(|(start, end)| end - start).sum();
            if stored != counted {
                let what = format!("allocated bytes of metaslab {metaslab} of vdev {vdev}");
                report(Finding::Sum { what, stored, counted });
            }
            let (in_maps, in_use) = (|| allocated.ranges(bytes.clone()), || claimed.ranges(bytes.clone()));
            subtract(in_maps(), in_use(), |offset, len| report(Finding::Leak { vdev, offset, len }));
            subtract(in_use(), in_maps(), |offset, len| report(Finding::NotAllocated { vdev, offset, len }));
        }
    }
    Ok(())
}

/// Compares the obsolete ranges of the mappings of removed vdevs with the ranges that are in use.
pub(super) fn compare_obsolete(
    inner: &Inner,
    claims: &Claims,
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    for Obsolete { vdev, moves, bytes } in inner.obsolete()? {
        let Some((_, claimed)) = claims.vdevs.get(&vdev) else { continue };
        for (each, stored) in moves.iter().zip(bytes) {
            let used: u64 = claimed.ranges(each.from..each.end()).map(|(start, end)| end - start).sum();
            let counted = each.to.asize - used;
            if stored != counted {
                let what = format!("obsolete bytes of the mapping of vdev {vdev} at {:#x}", each.from);
                report(Finding::Sum { what, stored, counted });
            }
        }
    }
    Ok(())
}

/// Calls `each` with (start, length) of the parts of `a` that are not in `b`; both ascending and disjoint.
fn subtract(
    a: impl Iterator<Item = (u64, u64)>,
    b: impl Iterator<Item = (u64, u64)>,
    mut each: impl FnMut(u64, u64),
) {
    let mut b = b.peekable();
    for (mut start, end) in a {
        while start < end {
            while b.next_if(|(_, to)| *to <= start).is_some() {}
            let (from, to) = b.peek().copied().unwrap_or((end, end));
            if from > start {
                each(start, from.min(end) - start);
            }
            start = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_only_one_set_are_found() {
        let only = |a: &[(u64, u64)], b: &[(u64, u64)]| {
            let mut found = Vec::new();
            subtract(a.iter().copied(), b.iter().copied(), |start, len| found.push((start, len)));
            found
        };
        let a = [(0, 10), (20, 30), (40, 50)];
        let b = [(5, 25), (42, 44), (46, 60)];
        assert_eq!(only(&a, &b), [(0, 5), (25, 5), (40, 2), (44, 2)]);
        assert_eq!(only(&b, &a), [(10, 10), (50, 10)]);
        assert_eq!(only(&a, &[]), [(0, 10), (20, 10), (40, 10)]);
        assert_eq!(only(&a, &[(60, 70)]), [(0, 10), (20, 10), (40, 10)]);
    }
}

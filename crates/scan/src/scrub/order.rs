//! The order in which the datasets are visited: OpenZFS's own, so that either side continues the scan of the other.
//!
//! From:   the links between snapshots, heads and clones in the MOS.
//! To:     the queue of the scan on disk.
//! Source: docs/format/11-redundancy.md §6.3.

use dmu::zap;
use dsl::mos::Mos;
use dsl::tree;
use format::dsl_dataset::DslDataset;
use format::scan::{NEXT_IN_QUEUE, Scan};
use format::zap::parse_int_key;
use format::{ByteOrder, ObjectId, ObjectType, Txg};
use pool::scan_state::Progress;
use pool::{Error, Inner, Result};

/// Directory of the snapshot that all file systems begin with.
const ORIGIN: &str = "$ORIGIN";

/// The dataset that is to be visited now: the one at the bookmark, or else the next one in the queue. `None` if nothing is left.
pub(super) fn next(inner: &Inner) -> Result<Option<ObjectId>> {
    inner.while_datasets_stay(|| {
        let queued = {
            let state = inner.scrubber().lock();
            let progress = state.progress.as_ref().ok_or(Error::NotScrubbing)?;
            let at = progress.scan.objset();
            if at != NEXT_IN_QUEUE {
                return Ok(Some(at));
            }
            progress.queue.first_key_value().map(|(id, since)| (*id, *since))
        };
        let Some((id, since)) = queued else { return Ok(None) };
        let phys = inner.mos().dataset(id)?;
        change(inner, |progress| {
            progress.queue.remove(&id);
            progress.scan.bookmark = [id.0, 0, 0, 0];
            progress.scan.current = bounds(&progress.scan, &phys, since);
        });
        Ok(Some(id))
    })
}

/// Births between which the blocks of a dataset are to be visited.
fn bounds(scan: &Scan, phys: &DslDataset, since: Txg) -> [u64; 2] {
    let since = if since.0 == 0 { phys.prev_snap_txg } else { since };
    let until = if phys.is_snapshot() { scan.max_txg.min(phys.creation_txg) } else { scan.max_txg };
    [scan.min_txg.max(since).0, until.0]
}

/// All blocks of a dataset were visited: its descendants come into the queue. `false` if another one took its place meanwhile.
pub(super) fn done(inner: &Inner, owner: ObjectId) -> Result<bool> {
    inner.while_datasets_stay(|| {
        let again = {
            let state = inner.scrubber().lock();
            let scan = state.progress.as_ref().ok_or(Error::NotScrubbing)?.scan;
            if scan.objset() != owner {
                return Ok(false);
            }
            scan.is_again().then_some(Txg(scan.current[1]))
        };
        let queued = match (owner.0, again) {
            (0, _) => first(inner.mos())?,
            (_, Some(since)) => vec![(owner, since)],
            _ => descendants(inner.mos(), owner)?,
        };
        change(inner, |progress| {
            progress.queue.extend(queued);
            progress.scan.set_again(false);
            progress.scan.bookmark = [NEXT_IN_QUEUE.0, 0, 0, 0];
        });
        Ok(true)
    })
}

fn change(inner: &Inner, change: impl FnOnce(&mut Progress)) {
    if let Some(progress) = &mut inner.scrubber().lock().progress {
        progress.is_newer = true;
        change(progress);
    }
}

/// The datasets that come after the MOS.
fn first(mos: &Mos) -> Result<Vec<(ObjectId, Txg)>> {
    if let Some(dir) = tree::child(mos, tree::root_dir(mos)?, ORIGIN)? {
        let origin = mos.dataset(mos.dir(dir)?.head_dataset)?.prev_snap;
        if origin.0 != 0 {
            return Ok(vec![(origin, Txg(0))]);
        }
    }
    // In pools of old versions.
    successors(mos, ObjectId(0), ObjectId(0))
}

/// The datasets that begin with what the dataset `id` holds. Each of them is younger, so that the visit of a damaged chain
/// ends.
fn descendants(mos: &Mos, id: ObjectId) -> Result<Vec<(ObjectId, Txg)>> {
    let phys = mos.dataset(id)?;
    let found = listed_after(mos, id, &phys)?;
    for (after, _) in &found {
        let next = mos.dataset(*after)?;
        if next.prev_snap != id {
            let corrupt = format::Corrupt::new("snapshot before another", next.prev_snap.0);
            return Err(Error::corrupt(*after)(corrupt));
        }
        mos.earlier(&next)?;
    }
    Ok(found)
}

/// The datasets that come after the dataset `id`, as it lists them: none after a head.
fn listed_after(mos: &Mos, id: ObjectId, phys: &DslDataset) -> Result<Vec<(ObjectId, Txg)>> {
    let mut found = Vec::new();
    if phys.next_snap.0 != 0 {
        found.push((phys.next_snap, phys.creation_txg));
    }
    let clones = phys.num_children.saturating_sub(1);
    if clones == 0 {
        return Ok(found);
    }
    let listed = match phys.next_clones.0 {
        0 => Vec::new(),
        _ => zap::entries(&*mos.object(phys.next_clones)?).collect::<dmu::Result<_>>()?,
    };
    if listed.len() as u64 == clones {
        for entry in listed {
            let clone = parse_int_key(&entry.name).map_err(Error::corrupt(phys.next_clones))?;
            found.push((ObjectId(clone), phys.creation_txg));
        }
    } else {
        // Some releases forgot clones in that list.
        let others = successors(mos, id, phys.next_snap)?;
        found.extend(others.into_iter().map(|(clone, _)| (clone, phys.creation_txg)));
    }
    Ok(found)
}

/// The datasets after the snapshot `id`, but not `except`.
fn successors(mos: &Mos, id: ObjectId, except: ObjectId) -> Result<Vec<(ObjectId, Txg)>> {
    let mut found = Vec::new();
    for entry in mos.objset.synced_objects() {
        let (at, dnode) = entry?;
        if dnode.bonus_type != ObjectType::DSL_DATASET || at == except {
            continue;
        }
        // Another object may have the number by now.
        let Ok(phys) = mos.dataset(at) else { continue };
        if phys.prev_snap == id {
            let synced = DslDataset::decode(&dnode.bonus, ByteOrder::Little).map_err(Error::corrupt(at))?;
            found.push((at, synced.prev_snap_txg));
        }
    }
    Ok(found)
}

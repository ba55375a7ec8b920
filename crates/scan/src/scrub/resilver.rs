//! Resilvering: writes missed blocks to devices, from other devices that have them.
//!
//! From:   the lists of missed txgs; the visitor, which meets every block born in these txgs.
//! To:     the devices; at the end, lists without those txgs.
//! Source: docs/format/11-redundancy.md §5, §6.
//!
//! The state on disk has the progress of a resilver from its first block to its end. One that was interrupted continues
//! there, in cenote or in OpenZFS. The lists keep all txgs until the end, so nothing is left out if it has to begin
//! again.

use std::sync::Arc;

use dmu::Objset;
use dsl::walk::Root;
use format::blkptr::Block;
use format::scan::{Scan, ScanFunc, ScanState};
use format::{ObjectId, Txg};
use storage::{Leaf, Missed, Purpose, Storage, Verified};

use super::view::View;

use pool::log::chain::{self, Walk};
use pool::{Error, Inner, Result, Syncing, scan_state};

/// A resilver that has examined less than one part in this many of the pool begins again when a device joins.
const HARDLY_BEGUN: u64 = 10;
/// Txgs after the one in which a device came back that may hold blocks written without it.
const TXGS_UNDER_WAY: usize = 4;

/// The first txg that a device lacks which takes writes, and the one after the last.
pub(super) fn lacking(storage: &Storage) -> Option<(Txg, Txg)> {
    lacked_by(storage, |_| true)
}

/// As [`lacking`], without the devices whose resilver waits.
pub(super) fn lacking_now(inner: &Inner) -> Option<(Txg, Txg)> {
    let deferred = inner.deferred();
    lacked_by(inner.storage(), |leaf| !deferred.contains(&leaf.guid))
}

fn lacked_by(storage: &Storage, is_meant: impl Fn(&Leaf) -> bool) -> Option<(Txg, Txg)> {
    let vdevs = storage.vdevs();
    let written = vdevs.tops().iter().flat_map(storage::TopVdev::written).filter(|leaf| is_meant(leaf));
    let bounds = written.filter_map(|leaf| leaf.health.missing().bounds());
    bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Makes the devices wait that miss blocks which the resilver under way does not visit. `false`: a new resilver must
/// begin.
pub(super) fn defer(syncing: &mut Syncing<'_>, scan: &Scan) -> Result<bool> {
    // A resilver that has hardly begun is not worth waiting for.
    if scan.examined < scan.to_examine / HARDLY_BEGUN {
        return Ok(false);
    }
    let vdevs = syncing.inner.storage().vdevs();
    let written = vdevs.tops().iter().flat_map(storage::TopVdev::written);
    let uncovered = written.filter(|leaf| !super::covers(scan, leaf.health.missing().bounds()));
    let guids: Vec<u64> = uncovered.map(|leaf| leaf.guid).collect();
    syncing.defer_resilver(&guids)
}

/// Begins a resilver on disk.
pub(super) fn begin(syncing: &mut Syncing<'_>) -> Result<Scan> {
    if let Some(old) = scan_state::read(syncing.mos())?.filter(Scan::is_scrubbing) {
        super::end(syncing, old, ScanState::Canceled)?;
    }
    syncing.cancel_rebuilds()?;
    syncing.end_deferring()?;
    syncing.inner.happened("resilver_start", &[]);
    let (first, end) = lacking(syncing.inner.storage()).ok_or(Error::NotScrubbing)?;
    syncing.inner.storage().vdevs().leaves().for_each(|leaf| leaf.health.resilver_begins());
    let mut scan = super::begun(syncing)?;
    scan.func = ScanFunc::Resilver;
    // The birth of a block does not show when it was copied from a removed vdev.
    let all = syncing.inner.lacks_copies()?;
    scan.min_txg = if all { Txg(0) } else { Txg(first.0.saturating_sub(1)) };
    scan.max_txg = end;
    super::keep(syncing, scan)
}

/// Waits until all blocks born before `end` are in the trees on disk, or dropped.
pub(super) fn settle(inner: &Inner, end: Txg) -> Result<()> {
    for _ in 0..TXGS_UNDER_WAY {
        if inner.committed().0.next() >= end {
            break;
        }
        inner.sync()?;
    }
    Ok(())
}

/// The copies of a block that devices miss.
pub(super) fn look_at(storage: &Storage, block: &Block) -> (Verified, Vec<Missed>) {
    match storage.reader().for_purpose(Purpose::Scrub).missed(block) {
        Ok(missed) => (Verified::default(), missed),
        Err(_) => (Verified { lost: true, ..Verified::default() }, Vec::new()),
    }
}

/// Writes blocks in use in `txg` to the devices that missed them; returns the bytes. `None` if it is too late to do so
/// safely.
pub(super) fn write(inner: &Inner, missed: Vec<Missed>, txg: Txg) -> Result<Option<u64>> {
    if missed.is_empty() {
        return Ok(Some(0));
    }
    // The sync thread is the only writer. Up to the second txg after the view, no block of it was reused.
    inner.run(move |syncing| {
        if syncing.txg.0 > txg.0 + 2 {
            return Ok(None);
        }
        write_all(syncing.inner.storage(), missed).map(Some)
    })
}

fn write_all(storage: &Storage, missed: Vec<Missed>) -> Result<u64> {
    let (readers, mut bytes) = (storage.readers(), 0);
    readers.map_ordered(
        storage::Caller::Works,
        missed,
        readers.count() * 2,
        |missed| storage.write_missed(&missed),
        |written| {
            bytes += written?;
            Ok::<(), Error>(())
        },
    )?;
    Ok(bytes)
}

/// Writes blocks of the intent logs in `view` to the devices that missed them. `false` if it is too late to do so safely.
pub(super) fn logs(inner: &Inner, view: &View, end: Txg) -> Result<bool> {
    let roots: Vec<Root> = view.roots.iter().filter(|root| root.owner != ObjectId(0)).cloned().collect();
    let txg = view.txg;
    inner.run(move |syncing| {
        for root in &roots {
            if syncing.txg.0 > txg.0 + 2 {
                return Ok(false);
            }
            log(syncing.inner.storage(), root, end)?;
        }
        Ok(true)
    })
}

fn log(storage: &Arc<Storage>, root: &Root, end: Txg) -> Result<()> {
    if root.ptr.is_hole() {
        return Ok(());
    }
    // The scan has counted unreadable blocks as errors.
    let Ok(objset) = Objset::open(storage.clone(), Arc::default(), root.ptr) else { return Ok(()) };
    let header = objset.zil_header();
    let mut walk = Walk::new(storage, root.owner, &header);
    while let Some(block) = walk.next() {
        // Newer blocks were written to all devices, and may be under way.
        if block.birth >= end {
            break;
        }
        write_all(storage, storage.missed_log(&block)?)?;
        let Some(contents) = walk.open(&block)? else { break };
        let claimed = header.claim_txg.0 != 0;
        let records = contents.outlines().map_while(std::result::Result::ok);
        for data in records.filter_map(|record| chain::data_of(&record, header.claim_txg)) {
            if claimed && let Ok(missed) = storage.reader().missed(&data) {
                write_all(storage, missed)?;
            }
        }
    }
    Ok(())
}

/// The visitor met every block, so the lists are outdated. Blocks that wait to be freed were not visited, so the lists
/// are emptied after these are free. Returns the resilver that begins now for devices that waited.
pub(super) fn finish(inner: &Arc<Inner>) -> Result<Option<Scan>> {
    let deferred = loop {
        while inner.is_freeing() {
            inner.sync()?;
        }
        if let Some(deferred) = inner.run(empty_lists)? {
            break deferred;
        }
    };
    inner.end_replacing()?;
    match deferred && lacking(inner.storage()).is_some() {
        true => inner.run(begin).map(Some),
        false => Ok(None),
    }
}

/// Empties the lists of the txgs that were visited. Returns whether devices waited for this. `None`: blocks wait to be freed.
fn empty_lists(syncing: &mut Syncing<'_>) -> Result<Option<bool>> {
    if syncing.is_freeing() {
        return Ok(None);
    }
    let scan = syncing.inner.scrubber().lock().progress.as_ref().map(|progress| progress.scan);
    let Some(scan) = scan.filter(Scan::is_resilvering) else { return Ok(Some(false)) };
    // The scan has not visited blocks that only a checkpoint reaches.
    if scan.errors == 0 && !syncing.has_checkpoint() && syncing.copy_again()? {
        let written: Vec<_> =
            syncing.inner.storage().vdevs().tops().iter().flat_map(|top| top.written()).collect();
        for leaf in written {
            if syncing.is_deferred(leaf.guid) {
                continue;
            }
            leaf.health.resilvered_below(scan.max_txg);
            if leaf.health.missing().is_empty() {
                syncing.forget_resilver(leaf.guid);
            }
        }
    }
    super::end(syncing, scan, ScanState::Finished)?;
    syncing.end_deferring().map(Some)
}

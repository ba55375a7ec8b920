//! The visitor's thread.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use dsl::walk::{Item, Place, Root, Walk};
use format::blkptr::Block;
use format::scan::{Scan, ScanState};
use format::zap::Value;
use format::{ObjectId, Txg};
use storage::{BadCopy, Missed, Purpose, Verified};

use super::view::View;
use super::{errors, resilver};
use pool::scrubber::{DataError, Order};
use pool::{Error, Inner, Result, Syncing, scan_state};

/// Blocks in the hands of the readers at once, for each of them.
const WINDOW_PER_READER: usize = 16;
/// Bytes of blocks taken before the progress is recorded.
const CHUNK_BYTES: u64 = 8 << 20;
/// Shared blocks that are remembered as verified. Further ones are verified with each reference.
const SHARED_MAX: usize = 4 << 20;
/// Errors that are remembered one by one.
pub(super) const ERRORS_MAX: usize = 10_000;

/// Visits all blocks and records the end of the scan.
pub(super) fn run(inner: &Arc<Inner>, scan: Scan) {
    let ended = Visit { inner, scan, done: BTreeMap::new(), shared: HashSet::new() }.all();
    let ended = ended.and_then(|finished| match finished {
        true if scan.is_resilvering() => resilver::finish(inner),
        true => still_lost(inner).and_then(|lost| {
            let Some(lost) = lost else { return Ok(()) };
            inner.scrub.lock().errors.extend(lost);
            inner.run(finish)
        }),
        false => Ok(()),
    });
    let mut state = inner.scrub.lock();
    state.running = false;
    if let Err(error) = ended {
        tracing::error!(%error, "the scrub stops");
        state.failed = Some(error.to_string());
    }
    inner.scrub.changed.notify_all();
}

/// Known damaged blocks that this scrub did not visit, because its range may not contain them. `None` if it was stopped.
fn still_lost(inner: &Inner) -> Result<Option<BTreeSet<DataError>>> {
    let mut older = errors::read(&inner.mos)?;
    older.retain(|error| !inner.scrub.lock().errors.contains(error));
    look_again(inner, &older, &|| inner.scrub.order() == Order::Go)
}

/// Reads these blocks again; returns those that are still damaged. `None` when `goes_on` returns false.
pub(super) fn look_again(
    inner: &Inner,
    known: &BTreeSet<DataError>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<BTreeSet<DataError>>> {
    let mut lost = BTreeSet::new();
    let mut view = None;
    for error in known {
        // The log may name a snapshot or, for all of them, the head.
        let mut seen = BTreeSet::new();
        loop {
            let Some(sure) = View::sure(inner, view.take(), goes_on)? else { return Ok(None) };
            let sure = view.insert(sure);
            let may_name = |root: &&Root| {
                // If this cannot be determined, the block is read.
                root.owner == error.dataset
                    || errors::head_of(&inner.mos, root.owner).map_or(true, |head| head == error.dataset)
            };
            let mut unseen = sure.roots.iter().filter(|root| !seen.contains(&root.owner));
            let Some(root) = unseen.find(may_name) else { break };
            // A block that an earlier snapshot shares is reported there, unless this snapshot is named.
            let since = if root.owner == error.dataset { Txg(0) } else { root.since };
            let is_lost = is_lost(inner, &Root { since, ..root.clone() }, error);
            if !sure.holds(inner) {
                continue;
            }
            seen.insert(root.owner);
            if is_lost {
                lost.insert(*error);
                break;
            }
        }
    }
    Ok(Some(lost))
}

/// Whether the block that `error` names is in the tree of `root` and cannot be read.
fn is_lost(inner: &Inner, root: &Root, error: &DataError) -> bool {
    Walk::towards(&inner.storage, root, error.target()).any(|item| match item {
        Item::Block(place, block) => {
            place.target() == error.target() && inner.storage.verify_copies(&block).lost
        }
        Item::Unreadable(place, _) => place.target() == error.target(),
        Item::Embedded(..) => false,
    })
}

/// In the sync thread: records the end of the scrub.
fn finish(syncing: &mut Syncing<'_>) -> Result<()> {
    let (mut scan, found) = {
        let state = syncing.inner.scrub.lock();
        (state.scan.expect("a running scrub has a state"), state.errors.clone())
    };
    // Its queue is freed once, by the first thread that ends it.
    let Some(on_disk) = scan_state::read(syncing.mos())?.filter(Scan::is_scrubbing) else {
        return Ok(());
    };
    scan.queue = on_disk.queue;
    super::end(syncing, scan, ScanState::Finished)?;
    let last = syncing.mos().directory(super::LAST_SCRUBBED)?.unwrap_or(0);
    // A scrub with a gap before its range does not extend the verified range.
    if scan.min_txg.0 <= last && scan.max_txg.0 > last {
        let max = Value::from_u64(scan.max_txg.0);
        syncing.mos().set_directory(&syncing.tx, super::LAST_SCRUBBED, &max)?;
    }
    errors::replace(syncing, &found)?;
    // From now on they are read from the log.
    syncing.inner.scrub.lock().errors.clear();
    Ok(())
}

/// A block that was verified.
struct Seen {
    place: Place,
    /// `None`: its place could not be determined.
    block: Option<Block>,
    copies: Verified,
    /// What devices lack of it.
    missed: Vec<Missed>,
}

struct Visit<'a> {
    inner: &'a Arc<Inner>,
    scan: Scan,
    /// Visited datasets, each with the birth up to which its blocks belong to earlier snapshots.
    done: BTreeMap<ObjectId, Txg>,
    /// Verified shared blocks. Further references to them need no visit.
    shared: HashSet<Shared>,
}

/// Where the first copy of a shared block lies, and when it was written.
type Shared = (u32, u64, Txg);

fn shared(block: &Block) -> Shared {
    (block.dvas[0].vdev.0, block.dvas[0].offset, block.physical_birth())
}

impl Visit<'_> {
    /// A valid view; `None` if the scan must end.
    fn view(&self) -> Result<Option<View>> {
        View::sure(self.inner, None, &|| self.inner.scrub.order() == Order::Go)
    }

    /// Visits every dataset. `false` if it was stopped before.
    fn all(&mut self) -> Result<bool> {
        if self.scan.is_resilvering() {
            resilver::settle(self.inner, self.scan.max_txg)?;
        }
        loop {
            let Some(view) = self.view()? else { return Ok(false) };
            let old = |root: &&Root| root.since < self.scan.max_txg;
            let left = |root: &&Root| self.done.get(&root.owner).is_none_or(|since| *since > root.since);
            let Some(root) = view.roots.iter().filter(old).find(left) else {
                if !self.scan.is_resilvering() || resilver::logs(self.inner, &view, self.scan.max_txg)? {
                    return Ok(true);
                }
                continue;
            };
            let owner = root.owner;
            if !self.dataset(owner, view)? {
                return Ok(false);
            }
        }
    }

    /// Visits one dataset.
    fn dataset(&mut self, owner: ObjectId, mut view: View) -> Result<bool> {
        let mut mark: Option<Place> = None;
        let mut since = Txg(0);
        'view: while let Some(root) = view.roots.iter().find(|root| root.owner == owner) {
            since = since.max(root.since);
            let root = Root { since: root.since.max(self.scan.min_txg), ..root.clone() };
            let mut walk = Walk::after(&self.inner.storage, &root, mark.clone());
            loop {
                if self.inner.scrub.order() != Order::Go {
                    return Ok(false);
                }
                let started = Instant::now();
                let (mut chunk, last) = self.verify(&mut walk);
                if !view.holds(self.inner) {
                    match self.view()? {
                        Some(newer) => view = newer,
                        None => return Ok(false),
                    }
                    continue 'view;
                }
                let Some(last) = last else { break 'view };
                let Some(repaired) = self.write(&mut chunk, view.txg)? else {
                    // Their space may be reused before the write, so all are read again.
                    match self.view()? {
                        Some(newer) => view = newer,
                        None => return Ok(false),
                    }
                    continue 'view;
                };
                self.enter(&chunk, repaired);
                mark = Some(last);
                if self.inner.budget.bytes() > 0 {
                    // Other users of the pool are active, so the scan pauses half of the time.
                    std::thread::sleep(started.elapsed());
                }
            }
        }
        self.done.insert(owner, since);
        Ok(true)
    }

    /// Reads the next blocks; returns the results, and the last place if there was one.
    fn verify(&self, walk: &mut Walk<'_>) -> (Vec<Seen>, Option<Place>) {
        let storage = &self.inner.storage;
        let readers = storage.readers();
        let (max, resilvers) = (self.scan.max_txg, self.scan.is_resilvering());
        let chunk_bytes = if resilvers { resilver::CHUNK_BYTES } else { CHUNK_BYTES };
        let (mut bytes, mut last) = (0, None);
        let items = std::iter::from_fn(|| {
            if bytes >= chunk_bytes {
                return None;
            }
            let item = walk.next()?;
            let place = match &item {
                Item::Block(place, block) => {
                    bytes += block.psize;
                    place
                }
                Item::Embedded(place, _) | Item::Unreadable(place, _) => place,
            };
            bytes += 512;
            last = Some(place.clone());
            Some(item)
        });
        let mut chunk = Vec::new();
        let done = readers.map_ordered(
            storage::Caller::Works,
            items,
            readers.count() * WINDOW_PER_READER,
            |item| match item {
                Item::Block(_, block) if block.dedup && self.shared.contains(&shared(&block)) => None,
                Item::Block(place, block) if resilvers && block.physical_birth() < max => {
                    let (copies, missed) = resilver::look_at(storage, &block);
                    Some(Seen { place, block: Some(block), copies, missed })
                }
                Item::Block(place, block) if !resilvers && block.physical_birth() <= max => {
                    let copies = storage.reader().for_purpose(Purpose::Scrub).verify_copies(&block);
                    Some(Seen { place, block: Some(block), copies, missed: Vec::new() })
                }
                Item::Unreadable(place, _) => {
                    let copies = Verified { lost: true, ..Verified::default() };
                    Some(Seen { place, block: None, copies, missed: Vec::new() })
                }
                _ => None,
            },
            |seen| {
                chunk.extend(seen);
                Ok::<(), Error>(())
            },
        );
        done.expect("taking a block into the list does not fail");
        (chunk, last)
    }

    /// Repairs damaged copies, or writes missed ones; returns the bytes. `None` if it is too late to do so safely.
    fn write(&self, chunk: &mut [Seen], txg: Txg) -> Result<Option<u64>> {
        if !self.scan.is_resilvering() {
            return self.repair(chunk, txg);
        }
        let missed = chunk.iter_mut().flat_map(|seen| std::mem::take(&mut seen.missed)).collect();
        resilver::write(self.inner, missed, txg)
    }

    /// Repairs damaged copies that have a good one; returns the bytes. `None` if it is too late to do so safely.
    fn repair(&self, chunk: &mut [Seen], txg: Txg) -> Result<Option<u64>> {
        let mendable = chunk.iter_mut().filter(|seen| !seen.copies.bad.is_empty() && !seen.copies.lost);
        let damaged: Vec<Vec<BadCopy>> = mendable.map(|seen| std::mem::take(&mut seen.copies.bad)).collect();
        if damaged.is_empty() {
            return Ok(Some(0));
        }
        // In the sync thread nobody else writes; up to the second txg after the view nothing of it was given to others.
        self.inner.run(move |syncing| {
            if syncing.txg.0 > txg.0 + 2 {
                return Ok(None);
            }
            let storage = &syncing.inner.storage;
            let repair = |bad: &Vec<BadCopy>| match storage.repair(bad) {
                Ok(bytes) => bytes,
                Err(error) => {
                    tracing::warn!(%error, "a damaged copy could not be written anew");
                    0
                }
            };
            Ok(Some(damaged.iter().map(repair).sum::<u64>()))
        })
    }

    /// Records the progress of a chunk.
    fn enter(&mut self, chunk: &[Seen], repaired: u64) {
        let mut state = self.inner.scrub.lock();
        let (mut examined, mut errors) = (0, 0);
        for seen in chunk {
            if let Some(block) = &seen.block {
                examined += block.copies().map(|dva| dva.asize).sum::<u64>();
                if block.dedup && !seen.copies.lost && self.shared.len() < SHARED_MAX {
                    self.shared.insert(shared(block));
                }
            }
            if seen.copies.lost {
                let is_new =
                    state.errors.len() >= ERRORS_MAX || state.errors.insert(DataError::at(&seen.place));
                errors += u64::from(is_new);
            }
        }
        let scan = state.scan.as_mut().expect("a running scrub has a state");
        scan.examined += examined;
        scan.errors += errors;
        scan.processed += repaired;
    }
}

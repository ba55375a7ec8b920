//! The visitor's thread.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use dsl::walk::{Item, Place, Root, Walk};
use format::blkptr::Block;
use format::scan::{NEXT_IN_QUEUE, Scan, ScanState};
use format::zap::Value;
use format::{ObjectId, Txg};
use storage::{BadCopy, Missed, Purpose, Verified};

use super::length::Length;
use super::view::View;
use super::{errors, order, resilver};
use pool::scrubber::{DataError, Order};
use pool::{Error, Inner, Result, Syncing};

/// Blocks in the hands of the readers at once, for each of them.
const WINDOW_PER_READER: usize = 16;
/// Bytes of blocks after which damaged copies are repaired and missed ones written: about this much is held in memory.
const PART_BYTES: u64 = 32 << 20;
/// Places that are gathered at most, some 300 bytes of memory each.
const PLACES_MAX: usize = 64 << 10;
/// Shared blocks that are remembered as verified. Further ones are verified with each reference.
const SHARED_MAX: usize = 4 << 20;
/// Visits all blocks, and writes the end down.
pub(super) fn run(inner: &Arc<Inner>, scan: Scan) {
    let mut next = Some(scan);
    let mut ended = Ok(());
    while let Some(scan) = next.take() {
        match carry_out(inner, scan) {
            Ok(deferred) => next = deferred,
            Err(error) => ended = Err(error),
        }
    }
    end(inner, ended);
}

/// The thread has nothing more to do.
pub(super) fn end(inner: &Inner, ended: Result<()>) {
    let mut state = inner.scrubber().lock();
    (state.running, state.rebuilding) = (false, false);
    if let Err(error) = ended {
        tracing::error!(%error, "the scrub stops");
        state.failed = Some(error.to_string());
    }
    inner.scrubber().changed.notify_all();
}

/// Carries out one scan; returns the one that begins after it.
fn carry_out(inner: &Arc<Inner>, scan: Scan) -> Result<Option<Scan>> {
    let is_whole = Visit { inner, scan, length: Length::of(&scan), shared: HashSet::new() }.all()?;
    if is_whole && scan.is_resilvering() {
        return resilver::finish(inner);
    }
    if is_whole && let Some(lost) = still_lost(inner)? {
        inner.run(move |syncing| finish(syncing, lost))?;
    }
    Ok(None)
}

/// Blocks lost earlier that this scrub did not come upon: it may have been about others only. `None` if it was told to
/// end.
fn still_lost(inner: &Inner) -> Result<Option<BTreeSet<DataError>>> {
    let found = errors::found(inner.mos())?;
    let mut older = errors::read(inner.mos())?;
    older.retain(|error| !found.contains(error));
    look_again(inner, &older, &|| inner.scrubber().order() == Order::Go)
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
            let Some(sure) = View::sure_of_all(inner, view.take(), goes_on)? else { return Ok(None) };
            let sure = view.insert(sure);
            let may_name = |root: &&Root| {
                // If this cannot be determined, the block is read.
                root.owner == error.dataset
                    || errors::head_of(inner.mos(), root.owner).map_or(true, |head| head == error.dataset)
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
    Walk::towards(inner.storage(), root, error.target()).any(|item| match item {
        Item::Block(place, block) => {
            place.target() == error.target() && inner.storage().verify_copies(&block).lost
        }
        Item::Unreadable(place, _) => place.target() == error.target(),
        Item::Embedded(..) => false,
    })
}

/// Ends the scrub in the sync thread. `lost` are known damaged blocks that the scrub did not meet.
fn finish(syncing: &mut Syncing<'_>, lost: BTreeSet<DataError>) -> Result<()> {
    let scan = syncing.inner.scrubber().lock().progress.as_ref().map(|progress| progress.scan);
    // A scan that was ended before is noted already.
    let Some(scan) = scan.filter(Scan::is_scrubbing) else { return Ok(()) };
    super::end(syncing, scan, ScanState::Finished)?;
    let last = syncing.mos().directory(super::LAST_SCRUBBED)?.unwrap_or(0);
    // A scrub with a gap before its range does not extend the verified range.
    if scan.min_txg.0 <= last && scan.max_txg.0 > last {
        let max = Value::from_u64(scan.max_txg.0);
        syncing.mos().set_directory(&syncing.tx, super::LAST_SCRUBBED, &max)?;
    }
    let mut known = errors::found(syncing.mos())?;
    known.extend(lost);
    errors::replace(syncing, &known)
}

/// A block that was verified.
struct Seen {
    place: Place,
    /// `None`: its place could not be determined.
    block: Option<Block>,
    copies: Verified,
    /// The copies that devices miss.
    missed: Vec<Missed>,
}

/// A block that is to be looked at, and where it hangs. `None`: its place on the vdevs could not be determined.
type Gathered = (Place, Option<Block>);

struct Visit<'a> {
    inner: &'a Arc<Inner>,
    scan: Scan,
    length: Length,
    /// Shared blocks that are in order: another reference needs no visit.
    shared: HashSet<Shared>,
}

/// Where the first copy of a shared block lies, and when it was written.
type Shared = (u32, u64, Txg);

fn shared(block: &Block) -> Shared {
    (block.dvas[0].vdev.0, block.dvas[0].offset, block.physical_birth())
}

/// Where the visit of a dataset is.
struct At {
    owner: ObjectId,
    /// Births between which its blocks are visited.
    bounds: [u64; 2],
    /// Object and block of level 0 that come next.
    next: (ObjectId, u64),
    /// An older view does not fit.
    changed: Txg,
}

impl Visit<'_> {
    /// A view that can be relied on; none if the visit is to end.
    fn view(&self, last: Option<View>) -> Result<Option<View>> {
        View::sure(self.inner, last, &|| self.inner.scrubber().order() == Order::Go)
    }

    /// Visits every dataset. `false` if it was stopped before.
    fn all(&mut self) -> Result<bool> {
        if self.scan.is_resilvering() {
            resilver::settle(self.inner, self.scan.max_txg)?;
        }
        let mut last = None;
        while order::next(self.inner)?.is_some() {
            if !self.dataset(&mut last)? {
                return Ok(false);
            }
        }
        loop {
            let goes_on = || self.inner.scrubber().order() == Order::Go;
            let Some(view) = View::sure_of_all(self.inner, None, &goes_on)? else { return Ok(false) };
            if !self.scan.is_resilvering() || resilver::logs(self.inner, &view, self.scan.max_txg)? {
                return Ok(true);
            }
        }
    }

    /// Where the visit is; `None` if it is in no dataset.
    fn at(&self) -> Option<At> {
        let state = self.inner.scrubber().lock();
        let progress = state.progress.as_ref()?;
        let scan = &progress.scan;
        let [owner, object, _, blkid] = scan.bookmark;
        let bounds = if owner == 0 { [scan.min_txg.0, scan.max_txg.0] } else { scan.current };
        let (owner, next) = (ObjectId(owner), (ObjectId(object), blkid));
        (owner != NEXT_IN_QUEUE).then_some(At { owner, bounds, next, changed: progress.changed })
    }

    /// Visits the dataset at the bookmark, or continues with it. `false` if it was ordered to stop before the end.
    fn dataset(&mut self, last: &mut Option<View>) -> Result<bool> {
        let mut mark: Option<Place> = None;
        while let Some(at) = self.at() {
            let Some(view) = self.view(last.take())? else { return Ok(false) };
            if view.txg < at.changed {
                self.inner.sync()?;
                continue;
            }
            let root = match view.root(at.owner) {
                Ok(root) => root,
                Err(error) if view.holds(self.inner) => return Err(error),
                Err(_) => continue,
            };
            let Some(root) = root else {
                // It is on disk since a later txg, or gone.
                self.inner.sync()?;
                continue;
            };
            let root = Root { since: Txg(at.bounds[0]), ..root };
            let start = mark.clone().or_else(|| Place::before(Arc::new(root.clone()), at.next.0, at.next.1));
            let mut walk = Walk::after(self.inner.storage(), &root, start);
            match self.chunks(&mut walk, &at, &view, &mut mark)? {
                Chunks::Ends => return Ok(false),
                Chunks::All if order::done(self.inner, at.owner)? => {
                    *last = Some(view);
                    return Ok(true);
                }
                // The marks are also valid in the dataset that replaced this one.
                Chunks::All | Chunks::GoesOn => *last = Some(view),
            }
        }
        Ok(true)
    }

    /// Visits blocks as long as the view holds.
    fn chunks(
        &mut self,
        walk: &mut Walk<'_>,
        at: &At,
        view: &View,
        mark: &mut Option<Place>,
    ) -> Result<Chunks> {
        while self.inner.scrubber().order() == Order::Go {
            let started = Instant::now();
            let (blocks, last) = self.gather(walk, at);
            let chunk = match self.sweep(blocks, view)? {
                Swept::All(chunk) => chunk,
                Swept::Ends => return Ok(Chunks::Ends),
                Swept::TooLate => {
                    self.length.too_late();
                    return Ok(Chunks::GoesOn);
                }
            };
            let Some(last) = last else { return Ok(Chunks::All) };
            let lost = chunk.iter().filter(|seen| seen.copies.lost).map(|seen| DataError::at(&seen.place));
            let lost = self.log(lost.collect())?;
            if !self.enter(&chunk, lost, at.owner, &last) {
                return Ok(Chunks::GoesOn);
            }
            *mark = Some(last);
            self.length.adapt(started.elapsed());
        }
        Ok(Chunks::Ends)
    }

    /// Notes lost blocks in the log on disk; returns how many were not in it.
    fn log(&self, lost: BTreeSet<DataError>) -> Result<u64> {
        match lost.is_empty() {
            true => Ok(0),
            false => self.inner.run(move |syncing| errors::add(syncing, &lost)),
        }
    }

    /// The next blocks that are to be looked at, and the last place if there was one.
    fn gather(&self, walk: &mut Walk<'_>, at: &At) -> (Vec<Gathered>, Option<Place>) {
        let resilvers = self.scan.is_resilvering();
        let is_meant = |block: &Block| {
            let birth = block.physical_birth();
            // Of a scrub, blocks of its first txg are no harm.
            birth.0 <= at.bounds[1]
                && (birth < self.scan.max_txg || !resilvers)
                && !(block.dedup && self.shared.contains(&shared(block)))
        };
        let (mut bytes, mut places) = (0, 0);
        let (mut blocks, mut last) = (Vec::new(), None);
        while bytes < self.length.bytes && places < PLACES_MAX {
            let Some(item) = walk.next() else { break };
            places += 1;
            let place = match item {
                Item::Block(place, block) => {
                    if is_meant(&block) {
                        bytes += block.psize;
                        blocks.push((place.clone(), Some(block)));
                    }
                    place
                }
                Item::Embedded(place, _) => place,
                Item::Unreadable(place, _) => {
                    blocks.push((place.clone(), None));
                    place
                }
            };
            last = Some(place);
        }
        (blocks, last)
    }

    /// Reads these blocks in the order of their places on the vdevs, and repairs them or writes the blocks that devices
    /// miss.
    fn sweep(&self, mut blocks: Vec<Gathered>, view: &View) -> Result<Swept> {
        let offset = |(_, block): &Gathered| block.map(|block| (block.dvas[0].vdev.0, block.dvas[0].offset));
        blocks.sort_by_key(offset);
        let mut blocks = blocks.into_iter().peekable();
        let mut chunk = Vec::with_capacity(blocks.len());
        while blocks.peek().is_some() {
            if self.inner.scrubber().order() != Order::Go {
                return Ok(Swept::Ends);
            }
            let mut bytes = 0;
            let part = std::iter::from_fn(|| {
                if bytes >= PART_BYTES {
                    return None;
                }
                let next = blocks.next()?;
                bytes += next.1.map_or(0, |block| block.psize);
                Some(next)
            });
            let mut part = self.verify(part);
            // Otherwise the space of these blocks may be another's by now.
            let written = if view.holds(self.inner) { self.write(&mut part, view.txg)? } else { None };
            let Some(bytes) = written else { return Ok(Swept::TooLate) };
            self.count_repaired(bytes);
            chunk.append(&mut part);
        }
        // Also the end of the tree is true only while the view holds.
        Ok(if view.holds(self.inner) { Swept::All(chunk) } else { Swept::TooLate })
    }

    /// Reads these blocks, several at once.
    fn verify(&self, blocks: impl Iterator<Item = Gathered>) -> Vec<Seen> {
        let storage = self.inner.storage();
        let readers = storage.readers();
        let resilvers = self.scan.is_resilvering();
        let mut part = Vec::new();
        let done = readers.map_ordered(
            storage::Caller::Works,
            blocks,
            readers.count() * WINDOW_PER_READER,
            |(place, block)| {
                let (copies, missed) = match &block {
                    Some(block) if resilvers => resilver::look_at(storage, block),
                    Some(block) => {
                        (storage.reader().for_purpose(Purpose::Scrub).verify_copies(block), Vec::new())
                    }
                    None => (Verified { lost: true, ..Verified::default() }, Vec::new()),
                };
                Seen { place, block, copies, missed }
            },
            |seen| {
                part.push(seen);
                Ok::<(), Error>(())
            },
        );
        done.expect("taking a block into the list does not fail");
        part
    }

    fn count_repaired(&self, bytes: u64) {
        if let Some(progress) = self.inner.scrubber().lock().progress.as_mut().filter(|_| bytes > 0) {
            progress.scan.processed += bytes;
            progress.is_newer = true;
        }
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
            let storage = syncing.inner.storage();
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

    /// Records a finished chunk with its number of lost blocks. `false`: another dataset took the place of the visited
    /// one meanwhile, and may have other blocks before that place.
    fn enter(&mut self, chunk: &[Seen], lost: u64, owner: ObjectId, last: &Place) -> bool {
        let mut state = self.inner.scrubber().lock();
        let Some(progress) = state.progress.as_mut().filter(|progress| progress.scan.objset() == owner)
        else {
            return false;
        };
        for seen in chunk {
            let Some(block) = &seen.block else { continue };
            progress.scan.examined += block.copies().map(|dva| dva.asize).sum::<u64>();
            if block.dedup && !seen.copies.lost && self.shared.len() < SHARED_MAX {
                self.shared.insert(shared(block));
            }
        }
        progress.scan.errors += lost;
        if let Some((object, blkid)) = last.met_before() {
            progress.scan.bookmark = [owner.0, object.0, 0, blkid];
        }
        progress.is_newer = true;
        true
    }
}

/// The result of a chunk.
enum Swept {
    /// All its blocks were looked at.
    All(Vec<Seen>),
    /// It received the order to stop.
    Ends,
    /// The view became too old.
    TooLate,
}

/// Why no more blocks of a view are visited.
enum Chunks {
    /// It received the order to stop.
    Ends,
    /// The view is too old, or the dataset has another's place.
    GoesOn,
    /// All blocks of the dataset were visited.
    All,
}

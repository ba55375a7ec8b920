//! How far a scrub or resilver is, as the pool keeps it on disk (06 §1.5; 11 §6.3, §6.4).
//!
//! From:   `scan`, whose visitor moves on; changes of datasets, which the order of the visit must follow; OpenZFS, which may have left
//!         one in the middle.
//! To:     imports, which judge it and go on with it, here or in OpenZFS.
//!
//! Everything before the bookmark was visited and repaired. A dataset in the queue was not visited yet, but the snapshot that it came
//! from was. So each dataset that is left has exactly one ancestor in the queue, or at the bookmark, or is there itself.

use std::collections::BTreeMap;

use dmu::{Tx, zap};
use format::scan::{NEXT_IN_QUEUE, Scan};
use format::zap::{Value, int_key, parse_int_key};
use format::{ObjectId, Txg};

use crate::mos::{DIRECTORY, Mos};
use crate::{Error, Result};

/// The scan state's key in the object directory.
const KEY: &str = "scan";

/// A scrub or resilver that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The state.
    pub scan: Scan,
    /// Datasets that are to be visited next. Blocks born up to the txg need no visit; 0 means that the dataset's
    /// earlier snapshot decides.
    pub queue: BTreeMap<ObjectId, Txg>,
    /// It is not on disk like this.
    pub is_newer: bool,
    /// When datasets that it knows were last changed: an older view of the pool does not fit it.
    pub changed: Txg,
}

impl Progress {
    /// One whose state is on disk.
    #[must_use]
    pub const fn on_disk(scan: Scan, queue: BTreeMap<ObjectId, Txg>) -> Progress {
        Progress { scan, queue, is_newer: false, changed: Txg(0) }
    }

    fn note_change(&mut self, txg: Txg) {
        (self.is_newer, self.changed) = (true, txg);
    }

    /// `head` has a new snapshot: the blocks that were to be visited in the head are in the snapshot now.
    pub fn snapshotted(&mut self, head: ObjectId, snapshot: ObjectId, txg: Txg) {
        if self.scan.objset() == head {
            self.scan.bookmark[0] = snapshot.0;
            self.note_change(txg);
        }
        if let Some(since) = self.queue.remove(&head) {
            self.queue.insert(snapshot, since);
            self.note_change(txg);
        }
    }

    /// A dataset is gone. If it was a snapshot, the blocks that it shared with the next one are to be visited there.
    pub fn destroyed(&mut self, id: ObjectId, next: Option<ObjectId>, txg: Txg) {
        if self.scan.objset() == id {
            match next {
                Some(next) => {
                    self.scan.bookmark[0] = next.0;
                    self.scan.set_again(true);
                }
                None => self.scan.bookmark = [NEXT_IN_QUEUE.0, 0, 0, 0],
            }
            self.note_change(txg);
        }
        if let Some(since) = self.queue.remove(&id) {
            self.queue.extend(next.map(|next| (next, since)));
            self.note_change(txg);
        }
    }

    /// Two heads of one snapshot exchanged their contents.
    pub fn swapped(&mut self, one: ObjectId, other: ObjectId, txg: Txg) {
        let at = self.scan.objset();
        if at == one || at == other {
            self.scan.bookmark[0] = if at == one { other.0 } else { one.0 };
            self.note_change(txg);
        }
        let (first, second) = (self.queue.remove(&one), self.queue.remove(&other));
        if first.is_some() || second.is_some() {
            self.queue.extend(first.map(|since| (other, since)));
            self.queue.extend(second.map(|since| (one, since)));
            self.note_change(txg);
        }
    }
}

/// The scan state on disk.
///
/// # Errors
/// It cannot be read.
pub fn read(mos: &Mos) -> Result<Option<Scan>> {
    let Some(value) = zap::lookup(&*mos.object(DIRECTORY)?, KEY.as_bytes())? else { return Ok(None) };
    Scan::from_words(&value.to_u64s()).map(Some).map_err(Error::corrupt(DIRECTORY))
}

/// Writes the scan state.
///
/// # Errors
/// The object directory cannot be read.
pub fn write(mos: &Mos, tx: &Tx, scan: &Scan) -> Result<()> {
    mos.set_directory(tx, KEY, &Value::from_u64s(&scan.to_words()))
}

/// The queue of a scan on disk.
fn read_queue(mos: &Mos, scan: &Scan) -> Result<BTreeMap<ObjectId, Txg>> {
    if scan.queue.0 == 0 {
        return Ok(BTreeMap::new());
    }
    let mut queue = BTreeMap::new();
    for entry in zap::entries(&*mos.object(scan.queue)?) {
        let entry = entry?;
        let id = parse_int_key(&entry.name).map_err(Error::corrupt(scan.queue))?;
        // A dataset that is not there cannot be visited.
        mos.dataset(ObjectId(id))?;
        queue.insert(ObjectId(id), Txg(entry.number().unwrap_or(0)));
    }
    Ok(queue)
}

/// Writes the queue of memory to disk.
pub(crate) fn write_queue(mos: &Mos, tx: &Tx, progress: &Progress) -> Result<()> {
    let object = mos.object(progress.scan.queue)?;
    let mut wanted: BTreeMap<Vec<u8>, u64> =
        progress.queue.iter().map(|(id, since)| (int_key(id.0).into_bytes(), since.0)).collect();
    for entry in zap::entries(&object).collect::<Vec<_>>() {
        let entry = entry?;
        match wanted.get(&entry.name) {
            Some(since) if entry.number() == Some(*since) => drop(wanted.remove(&entry.name)),
            Some(_) => {}
            None => drop(zap::remove(&object, tx, &entry.name)?),
        }
    }
    wanted.iter().try_for_each(|(key, since)| zap::update(&object, tx, key, &Value::from_u64(*since)))?;
    Ok(())
}

/// The progress of the scan that is under way on disk. `None`: its place cannot be followed, so it must begin again.
pub(crate) fn followed(mos: &Mos, scan: &Scan) -> Option<Progress> {
    let queue = read_queue(mos, scan).ok()?;
    match scan.objset() {
        ObjectId(0) | NEXT_IN_QUEUE => {}
        dataset => drop(mos.dataset(dataset).ok()?),
    }
    let mut scan = *scan;
    // Here shared blocks are visited where datasets refer to them.
    let after_tables = [1, 0, 0, 0];
    let is_newer = (scan.ddt_class_max, scan.ddt_bookmark) != (0, after_tables);
    (scan.ddt_class_max, scan.ddt_bookmark) = (0, after_tables);
    Some(Progress { is_newer, ..Progress::on_disk(scan, queue) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(objset: u64, queue: &[(u64, u64)]) -> Progress {
        let mut scan = Scan::begin(ObjectId(9), Txg(100), 0, 0);
        scan.bookmark = [objset, 7, 0, 3];
        let queue = queue.iter().map(|(id, since)| (ObjectId(*id), Txg(*since))).collect();
        Progress::on_disk(scan, queue)
    }

    fn shown(progress: &Progress) -> ([u64; 4], Vec<(u64, u64)>, bool) {
        let queue = progress.queue.iter().map(|(id, since)| (id.0, since.0)).collect();
        (progress.scan.bookmark, queue, progress.is_newer)
    }

    #[test]
    fn a_new_snapshot_takes_the_place_of_its_head() {
        let mut progress = at(20, &[(30, 5), (40, 6)]);
        progress.snapshotted(ObjectId(50), ObjectId(51), Txg(1));
        assert!(!progress.is_newer, "a head that was visited stays so");
        progress.snapshotted(ObjectId(20), ObjectId(21), Txg(2));
        progress.snapshotted(ObjectId(30), ObjectId(31), Txg(3));
        assert_eq!(shown(&progress), ([21, 7, 0, 3], vec![(31, 5), (40, 6)], true));
        assert_eq!(progress.changed, Txg(3));
    }

    #[test]
    fn what_a_destroyed_snapshot_shared_is_visited_in_the_next_dataset() {
        let mut progress = at(20, &[(30, 5), (40, 6)]);
        progress.destroyed(ObjectId(20), Some(ObjectId(22)), Txg(1));
        progress.destroyed(ObjectId(30), Some(ObjectId(33)), Txg(1));
        progress.destroyed(ObjectId(40), None, Txg(1));
        assert_eq!(shown(&progress), ([22, 7, 0, 3], vec![(33, 5)], true));
        assert!(progress.scan.is_again());
        progress.destroyed(ObjectId(22), None, Txg(1));
        assert_eq!(progress.scan.bookmark, [NEXT_IN_QUEUE.0, 0, 0, 0]);
    }

    #[test]
    fn heads_that_exchange_what_they_hold_exchange_their_places() {
        let mut progress = at(20, &[(30, 5)]);
        progress.swapped(ObjectId(30), ObjectId(20), Txg(1));
        assert_eq!(shown(&progress), ([30, 7, 0, 3], vec![(20, 5)], true));
        progress.swapped(ObjectId(1), ObjectId(20), Txg(1));
        assert_eq!(shown(&progress), ([30, 7, 0, 3], vec![(1, 5)], true));
    }
}

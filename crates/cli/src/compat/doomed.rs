//! Datasets to destroy together, in an order in which each can be destroyed.
//!
//! From:   names, with their descendants and clones.
//! To:     `zfs destroy -r` and `-R`, `zfs rollback -R`.

use std::collections::{BTreeMap, BTreeSet};

use format::ObjectId;
use pool::props::DatasetKind;
use pool::{DatasetInfo, Pool};

use super::Call;
use super::changing::words;
use super::mounting;
use super::select::dataset_failure;
use crate::messages::{Action, Failure};

/// A file system or volume to destroy, with its snapshots.
pub struct Doomed {
    head: DatasetInfo,
    snapshots: Vec<DatasetInfo>,
}

/// The error for a dataset that can be neither before nor behind the others.
const CIRCLE: &str = "recursive dataset dependency";

/// All descendants of `tops`, all clones of them, and all descendants of these, in the order of destruction: children before
/// parents, clones before their origins, otherwise in reverse order of the listing.
///
/// # Errors
/// A dataset does not exist; or a clone contains its own origin, so that neither can be destroyed first.
pub fn all(pool: &Pool, tops: &[String]) -> Result<Vec<Doomed>, Failure> {
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut wanted: Vec<String> = tops.iter().rev().cloned().collect();
    while let Some(top) = wanted.pop() {
        let list = pool.list(&top, None, true).map_err(|error| dataset_failure(&top, &error))?;
        let (snapshots, heads): (Vec<_>, Vec<_>) = list.into_iter().partition(DatasetInfo::is_snapshot);
        let mut by_dir: BTreeMap<ObjectId, Vec<DatasetInfo>> = BTreeMap::new();
        for snapshot in snapshots {
            by_dir.entry(snapshot.dir_id).or_default().push(snapshot);
        }
        for head in heads {
            if !seen.insert(head.dir_id) {
                continue;
            }
            let snapshots = by_dir.remove(&head.dir_id).unwrap_or_default();
            for snapshot in &snapshots {
                let clones = pool.clones(snapshot);
                wanted.extend(clones.map_err(|error| dataset_failure(&snapshot.name, &error))?);
            }
            all.push(Doomed { head, snapshots });
        }
    }
    in_order(all).map_err(|name| Action::Destroy(&name).failed(CIRCLE))
}

/// All dependents of `top` (a file system, volume or snapshot), without itself: its descendants, its snapshots, their
/// clones, and the dependents of those. In the order of OpenZFS: for a head the children, the snapshots, itself; for a
/// snapshot its clones, itself.
///
/// # Errors
/// The datasets cannot be read.
pub fn dependents(pool: &Pool, top: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: pool::Error| dataset_failure(top, &error);
    let all = pool.list(top.split(['/', '@']).next().unwrap_or(top), None, true).map_err(failed)?;
    let mut tree = Tree { pool, by_name: BTreeMap::new(), by_dir: BTreeMap::new(), seen: BTreeSet::new() };
    for (at, info) in all.iter().enumerate() {
        tree.by_name.insert(&info.name, at);
        let above = if info.is_snapshot() { info.dir_id } else { info.dir.parent };
        let (heads, snapshots) = tree.by_dir.entry(above).or_default();
        if info.is_snapshot() { snapshots.push(at) } else { heads.push(at) }
    }
    let mut found = Vec::new();
    if let Some(at) = tree.by_name.get(top).copied() {
        tree.collect(&all, at, &mut found).map_err(failed)?;
    }
    found.pop();
    Ok(found.into_iter().map(|at| all[at].name.clone()).collect())
}

/// The datasets of a pool, by the dataset that they depend on.
struct Tree<'a> {
    pool: &'a Pool,
    by_name: BTreeMap<&'a str, usize>,
    /// Heads in a directory, and the snapshots of its own.
    by_dir: BTreeMap<ObjectId, (Vec<usize>, Vec<usize>)>,
    seen: BTreeSet<usize>,
}

impl Tree<'_> {
    /// Adds the dependents of a dataset, then itself. Skips datasets that were added before, so circles end.
    fn collect(&mut self, all: &[DatasetInfo], at: usize, found: &mut Vec<usize>) -> pool::Result<()> {
        if !self.seen.insert(at) {
            return Ok(());
        }
        let info = &all[at];
        if info.is_snapshot() {
            for clone in self.pool.clones(info)? {
                if let Some(at) = self.by_name.get(clone.as_str()).copied() {
                    self.collect(all, at, found)?;
                }
            }
        } else {
            let (heads, snapshots) = self.by_dir.get(&info.dir_id).cloned().unwrap_or_default();
            for at in heads.into_iter().rev().chain(snapshots) {
                self.collect(all, at, found)?;
            }
        }
        found.push(at);
        Ok(())
    }
}

/// # Errors
/// The name of one that waits for itself.
fn in_order(all: Vec<Doomed>) -> Result<Vec<Doomed>, String> {
    let dirs: BTreeMap<ObjectId, usize> =
        all.iter().enumerate().map(|(at, doomed)| (doomed.head.dir_id, at)).collect();
    let origins: BTreeMap<ObjectId, usize> = all
        .iter()
        .enumerate()
        .flat_map(|(at, doomed)| doomed.snapshots.iter().map(move |snapshot| (snapshot.id, at)))
        .collect();
    // The datasets that must wait for each one: its parent and its origin.
    let holds_up = |doomed: &Doomed| -> BTreeSet<usize> {
        let above = dirs.get(&doomed.head.dir.parent);
        above.into_iter().chain(origins.get(&doomed.head.dir.origin)).copied().collect()
    };
    let mut waits = vec![0; all.len()];
    all.iter().flat_map(holds_up).for_each(|at| waits[at] += 1);
    let mut ready: BTreeSet<usize> = (0..all.len()).filter(|at| waits[*at] == 0).collect();
    let mut order = Vec::new();
    while let Some(at) = ready.pop_last() {
        order.push(at);
        for other in holds_up(&all[at]) {
            waits[other] -= 1;
            if waits[other] == 0 {
                ready.insert(other);
            }
        }
    }
    if let Some(at) = waits.iter().position(|count| *count > 0) {
        return Err(all[at].head.name.clone());
    }
    let mut all: Vec<Option<Doomed>> = all.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|at| all[at].take()).collect())
}

impl Doomed {
    /// Whether it is the root of a pool, whose snapshots alone can be destroyed.
    fn stays(&self) -> bool {
        !self.head.name.contains('/')
    }

    /// The names of everything that is destroyed with it, itself last.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = (!self.stays()).then_some(self.head.name.as_str());
        self.snapshots.iter().map(|snapshot| snapshot.name.as_str()).chain(own)
    }

    /// Destroys it, after all before it in the order. With `force` it is unmounted even if it is in use.
    ///
    /// # Errors
    /// Why it is still there.
    pub fn destroy(&self, call: &Call, pool: &Pool, force: bool) -> Result<(), Failure> {
        let name = self.head.name.as_str();
        if self.head.kind == DatasetKind::Volume {
            // The snapshots of a volume that stays are to stay, too.
            mounting::letting_go(call, std::slice::from_ref(&self.head.name));
            if !force {
                not_in_use(pool, name).map_err(|error| words(Action::Destroy(name), &error))?;
            }
        }
        let own = self.snapshots.iter().map(|snapshot| snapshot.name.clone());
        // Snapshots whose destruction waited for these clones are gone, too.
        let own: Vec<String> = own.filter(|snapshot| pool.dataset(snapshot).is_ok()).collect();
        if !own.is_empty() {
            let destroy = || mounting::destroy_snapshots(call, pool, &own, false);
            let destroyed = match destroy() {
                // A partial incremental receive is a hidden clone.
                Err(pool::Error::HasClones(_)) if pool.abort_receive(name).unwrap_or(false) => destroy(),
                destroyed => destroyed,
            };
            destroyed.map_err(|error| snapshot_words(&error))?;
        }
        if self.stays() {
            return Ok(());
        }
        mounting::destroying(call, name, force)?;
        let done = pool.destroy_dataset(name).map_err(|error| words(Action::Destroy(name), &error));
        mounting::destroyed(call);
        done
    }
}

/// # Errors
/// [`pool::Error::DatasetBusy`]: the dataset is open.
pub(super) fn not_in_use(pool: &Pool, name: &str) -> pool::Result<()> {
    if !pool.is_used(name)? {
        return Ok(());
    }
    // Changes that are not synced yet keep a dataset open, too.
    pool.sync()?;
    if pool.is_used(name)? { Err(pool::Error::DatasetBusy(name.to_owned())) } else { Ok(()) }
}

/// The words of an error while destroying snapshots.
pub(super) fn snapshot_words(error: &pool::Error) -> Failure {
    match error {
        pool::Error::Held(name) => Failure::refused(format!(
            "cannot destroy snapshot {name}: it's being held. Run 'zfs holds -r {name}' to see holders."
        )),
        pool::Error::HasClones(name) => Action::Destroy(name).failed("snapshot has dependent clones"),
        pool::Error::DatasetBusy(name) => {
            Failure::refused(format!("cannot destroy snapshot {name}: dataset is busy"))
        }
        error => Failure::refused(format!("cannot destroy snapshots: {error}")),
    }
}

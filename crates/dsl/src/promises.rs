//! Space promised to transactions in flight, so that quotas and reservations hold before a sync counts.
//!
//! Every directory above an open dataset has an entry. It contains its limits and its usage as of the last sync, and the
//! bytes that transactions of the open and the syncing txg may add. A transaction is granted if no directory up to the root
//! has reached its limit. As in OpenZFS, its own bytes are not part of this check: the last write may exceed the limit a
//! little, and the next one is refused.
//!
//! Source: docs/format/06-mos-dsl.md §8.3, §8.5.

use std::collections::BTreeMap;

use format::ObjectId;
use storage::rank::{MutexHeld, Rank, RankedMutex};

use crate::mos::Mos;
use crate::room::Reach;
use crate::{Error, Result, tree, values};

/// Limits (0: none) and usage of a directory, and promised bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    parent: ObjectId,
    quota: u64,
    reserved: u64,
    used: u64,
    open: u64,
    syncing: u64,
}

impl Entry {
    fn in_flight(&self) -> u64 {
        self.open.saturating_add(self.syncing)
    }
}

/// Limits and use of a dataset itself, as of the last sync; 0 stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// `refquota` in bytes.
    pub refquota: u64,
    /// `refreservation` in bytes.
    pub refreservation: u64,
    /// Bytes that the dataset refers to.
    pub referenced: u64,
    /// Bytes that no snapshot or clone refers to.
    pub unique: u64,
}

impl Own {
    /// Bytes of the `refreservation` that are kept free.
    pub fn unused(&self) -> u64 {
        self.refreservation.saturating_sub(self.unique)
    }
}

/// Limits and use of a dataset itself.
pub fn own(mos: &Mos, dir: ObjectId, id: ObjectId) -> Result<Own> {
    let phys = mos.dataset(id)?;
    let props = mos.dir(dir)?.props_zap;
    Ok(Own {
        refquota: values::number_here(mos, props, "refquota")?.unwrap_or(0),
        refreservation: values::number_here(mos, props, "refreservation")?.unwrap_or(0),
        referenced: phys.referenced_bytes,
        unique: phys.unique_bytes,
    })
}

/// The answer to a request for space.
#[derive(Debug)]
pub enum Answer {
    /// Granted. The promise counts until the txg is synced.
    Granted,
    /// Try again after a sync, because transactions in flight may use less than promised.
    Later,
    /// [`Error::Quota`] or [`Error::NoSpace`].
    Refused(Error),
}

/// Compares a limit with the used and promised bytes.
fn judge(used: u64, in_flight: u64, limit: u64, error: Error) -> Option<Answer> {
    if used.saturating_add(in_flight) < limit {
        None
    } else if in_flight > 0 {
        Some(Answer::Later)
    } else {
        Some(Answer::Refused(error))
    }
}

/// Bytes charged to the parent when `delta` is added to a directory that has `reserved` bytes reserved.
pub(crate) fn charged_above(reserved: u64, used: u64, delta: u64) -> u64 {
    used.saturating_add(delta).max(reserved) - used.max(reserved)
}

/// The promises of all directories above open datasets.
#[derive(Debug)]
pub struct Promises {
    table: RankedMutex<BTreeMap<ObjectId, Entry>>,
}

impl Default for Promises {
    fn default() -> Promises {
        Promises { table: RankedMutex::new(Rank::Promises, BTreeMap::new()) }
    }
}

impl Promises {
    fn lock(&self) -> MutexHeld<'_, BTreeMap<ObjectId, Entry>> {
        self.table.lock()
    }

    /// Adds entries for `dir` and all directories above it.
    pub fn watch(&self, mos: &Mos, dir: ObjectId) -> Result<()> {
        let mut found = Vec::new();
        for id in tree::chain(mos, dir)? {
            found.push((id, read(mos, id)?));
        }
        let mut table = self.lock();
        for (id, entry) in found {
            table.entry(id).or_insert(entry);
        }
        Ok(())
    }

    /// Asks for `bytes` below `dir`, for a dataset with its `own` limits. `reach` says which limits are valid; `size` is the
    /// size of the pool in bytes. A transaction counts as at least one byte, so that every level is checked. A change at a
    /// limit then waits for the sync that accounts the frees of other changes.
    pub fn ask(&self, dir: ObjectId, own: &Own, bytes: u64, reach: Reach, size: u64) -> Answer {
        let minds_quotas = reach.minds_quotas();
        let mut table = self.lock();
        let mut ways: [(ObjectId, u64); tree::DEPTH_MAX] = [(ObjectId(0), 0); tree::DEPTH_MAX];
        let mut depth = 0;
        let (mut id, mut bytes) = (dir, bytes.max(1));
        while let Some(entry) = table.get(&id) {
            let (mut used, in_flight) = (entry.used, entry.in_flight());
            let mut covered = 0;
            if depth == 0 {
                let unused = own.unused();
                if unused > 0 {
                    used = used.saturating_sub(unused);
                    let above =
                        charged_above(own.refreservation, own.unique, bytes.saturating_add(in_flight));
                    covered = bytes.saturating_sub(above);
                }
                if own.refquota > 0
                    && minds_quotas
                    && let Some(answer) = judge(own.referenced, in_flight, own.refquota, Error::Quota)
                {
                    return answer;
                }
            }
            let is_root = entry.parent.0 == 0;
            if entry.quota > 0
                && minds_quotas
                && (!is_root || entry.quota <= size)
                && let Some(answer) = judge(used, in_flight, entry.quota, Error::Quota)
            {
                return answer;
            }
            if is_root && let Some(answer) = judge(used, in_flight, size, Error::NoSpace) {
                return answer;
            }
            let Some(way) = ways.get_mut(depth) else { break };
            *way = (id, bytes);
            depth += 1;
            let above = charged_above(entry.reserved, used.saturating_add(in_flight), bytes - covered);
            if is_root || above == 0 {
                break;
            }
            (id, bytes) = (entry.parent, above);
        }
        for (id, bytes) in &ways[..depth] {
            let entry = table.get_mut(id).expect("it was there on the way up");
            entry.open = entry.open.saturating_add(*bytes);
        }
        Answer::Granted
    }

    /// Sum of bytes that [`Promises::ask`] would still grant below `dir`. Parameters as there.
    pub fn left(&self, dir: ObjectId, own: &Own, size: u64) -> u64 {
        let table = self.lock();
        let mut least = u64::MAX;
        // Bytes covered by reservations of lower levels, which are charged to the upper levels already.
        let mut covered = 0u64;
        let mut id = dir;
        for depth in 0..tree::DEPTH_MAX {
            let Some(entry) = table.get(&id) else { break };
            let mut spoken_for = entry.used.saturating_add(entry.in_flight());
            if depth == 0 {
                spoken_for = spoken_for.saturating_sub(own.unused());
                if own.refquota > 0 {
                    let referenced = own.referenced.saturating_add(entry.in_flight());
                    least = own.refquota.saturating_sub(referenced);
                }
            }
            let is_root = entry.parent.0 == 0;
            let within = |limit: u64| limit.saturating_sub(spoken_for).saturating_add(covered);
            if entry.quota > 0 && (!is_root || entry.quota <= size) {
                least = least.min(within(entry.quota));
            }
            if is_root {
                return least.min(within(size));
            }
            if depth == 0 {
                covered = own.unused().saturating_sub(entry.in_flight());
            }
            covered = covered.saturating_add(entry.reserved.saturating_sub(spoken_for));
            id = entry.parent;
        }
        least
    }

    /// The open txg was closed.
    pub fn close(&self) {
        for entry in self.lock().values_mut() {
            entry.syncing = std::mem::take(&mut entry.open);
        }
    }

    /// For the end of a sync: drops the promises of the txg, which are accounted now. `dirs` are the directories of open
    /// datasets; other entries are dropped.
    ///
    /// # Errors
    /// A directory could not be read: keeps the last known limits and usage.
    pub fn settle(&self, mos: &Mos, dirs: &[ObjectId]) -> Result<()> {
        let mut fresh = BTreeMap::new();
        let mut read_all = || {
            for &dir in dirs {
                for id in tree::chain(mos, dir)? {
                    if fresh.contains_key(&id) {
                        break;
                    }
                    fresh.insert(id, read(mos, id)?);
                }
            }
            Ok(())
        };
        let done = read_all();
        let mut table = self.lock();
        for entry in table.values_mut() {
            entry.syncing = 0;
        }
        if done.is_ok() {
            for (id, entry) in &mut fresh {
                entry.open = table.get(id).map_or(0, |known| known.open);
            }
            *table = fresh;
        }
        done
    }
}

fn read(mos: &Mos, id: ObjectId) -> Result<Entry> {
    let dir = mos.dir(id)?;
    Ok(Entry {
        parent: dir.parent,
        quota: dir.quota,
        reserved: dir.reserved,
        used: dir.used_bytes,
        open: 0,
        syncing: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ObjectId = ObjectId(1);
    const CHILD: ObjectId = ObjectId(2);

    fn promises(root: Entry, child: Entry) -> Promises {
        let child = Entry { parent: ROOT, ..child };
        let table = [(ROOT, root), (CHILD, child)].into();
        Promises { table: RankedMutex::new(Rank::Promises, table) }
    }

    fn words(answer: &Answer) -> &'static str {
        match answer {
            Answer::Granted => "granted",
            Answer::Later => "later",
            Answer::Refused(Error::Quota) => "quota",
            Answer::Refused(_) => "space",
        }
    }

    fn ask(promises: &Promises, own: &Own, bytes: u64) -> &'static str {
        words(&promises.ask(CHILD, own, bytes, Reach::Limits, 1000))
    }

    #[test]
    fn a_quota_above_counts_what_all_below_have_in_flight() {
        let promises = promises(Entry { quota: 100, used: 60, ..Entry::default() }, Entry::default());
        let none = Own::default();
        assert_eq!(ask(&promises, &none, 30), "granted");
        assert_eq!(ask(&promises, &none, 30), "granted", "the last one may go over");
        assert_eq!(ask(&promises, &none, 1), "later");
        promises.close();
        assert_eq!(ask(&promises, &none, 1), "later", "still on its way to the disk");
        assert_eq!(
            words(&promises.ask(CHILD, &none, 0, Reach::Frees, 1000)),
            "granted",
            "removals are let through"
        );
    }

    #[test]
    fn a_write_is_refused_if_the_limit_is_reached_on_disk() {
        let full = Entry { quota: 100, used: 100, ..Entry::default() };
        assert_eq!(ask(&promises(full, Entry::default()), &Own::default(), 1), "quota");
        let root = Entry { used: 1000, ..Entry::default() };
        assert_eq!(ask(&promises(root, Entry::default()), &Own::default(), 1), "space");
        let own = Own { refquota: 50, referenced: 50, ..Own::default() };
        assert_eq!(ask(&promises(Entry::default(), Entry::default()), &own, 1), "quota");
    }

    #[test]
    fn reserved_space_is_available_when_the_rest_is_full() {
        // The root is full, because the child's reservation is charged to it.
        let root = Entry { used: 1000, ..Entry::default() };
        let reserved = promises(root, Entry { reserved: 100, used: 40, ..Entry::default() });
        assert_eq!(ask(&reserved, &Own::default(), 50), "granted");
        assert_eq!(ask(&reserved, &Own::default(), 50), "space", "10 of these are not covered");
        let own = Own { refreservation: 100, unique: 40, ..Own::default() };
        let reserved = promises(root, Entry { used: 100, ..Entry::default() });
        assert_eq!(ask(&reserved, &own, 60), "granted");
        assert_eq!(ask(&reserved, &own, 1), "space");
    }

    #[test]
    fn a_write_at_the_quota_waits_for_the_sync_of_a_removal() {
        let full = Entry { quota: 100, used: 100, ..Entry::default() };
        let promises = promises(Entry::default(), full);
        let none = Own::default();
        assert_eq!(ask(&promises, &none, 1), "quota");
        assert_eq!(words(&promises.ask(CHILD, &none, 0, Reach::Frees, 1000)), "granted");
        assert_eq!(ask(&promises, &none, 1), "later");
    }

    #[test]
    fn a_request_for_nothing_is_refused_where_any_level_is_full() {
        let full = Entry { quota: 100, used: 100, ..Entry::default() };
        assert_eq!(ask(&promises(full, Entry::default()), &Own::default(), 0), "quota");
        let root = Entry { used: 1000, ..Entry::default() };
        assert_eq!(ask(&promises(root, Entry::default()), &Own::default(), 0), "space");
    }

    #[test]
    fn acknowledged_data_ignores_quotas_but_not_the_size_of_the_pool() {
        let full = Entry { quota: 100, used: 100, ..Entry::default() };
        let none = Own { refquota: 1, referenced: 5, ..Own::default() };
        let acknowledged =
            |promises: &Promises| words(&promises.ask(CHILD, &none, 7, Reach::Acknowledged, 1000));
        assert_eq!(acknowledged(&promises(full, full)), "granted");
        let root = Entry { used: 1000, ..Entry::default() };
        assert_eq!(acknowledged(&promises(root, full)), "space");
    }

    #[test]
    fn available_bytes_end_where_requests_are_refused() {
        let none = Own::default();
        let refquota = Own { refquota: 30, referenced: 10, ..none };
        let reserved = Own { refreservation: 100, unique: 40, ..none };
        for (own, root, child, left) in [
            (none, Entry::default(), Entry::default(), 1000),
            (none, Entry { quota: 100, used: 60, ..Entry::default() }, Entry::default(), 40),
            (none, Entry { used: 990, ..Entry::default() }, Entry { quota: 7, ..Entry::default() }, 7),
            (
                none,
                Entry { used: 990, ..Entry::default() },
                Entry { reserved: 50, used: 20, ..Entry::default() },
                40,
            ),
            (refquota, Entry::default(), Entry { open: 5, ..Entry::default() }, 15),
            (reserved, Entry { used: 1000, ..Entry::default() }, Entry { used: 100, ..Entry::default() }, 60),
        ] {
            let promises = promises(root, child);
            assert_eq!(promises.left(CHILD, &own, 1000), left);
            assert_eq!(ask(&promises, &own, left), "granted");
            assert_ne!(ask(&promises, &own, 1), "granted", "{left} were left");
        }
    }

    #[test]
    fn a_removal_needs_room_only_in_the_pool_itself() {
        let full = Entry { quota: 100, used: 200, ..Entry::default() };
        let promises = promises(full, full);
        assert_eq!(words(&promises.ask(CHILD, &Own::default(), 0, Reach::Frees, 1000)), "granted");
    }
}

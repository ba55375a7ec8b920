//! Incremental replication packages: finds the renames, promotions and destroys at the sender since the last package by the
//! guids of snapshots, so that they can be repeated on the copy.
//!
//! From:   the list of a package, proved; the tree here.
//! To:     a caller that can also move mounts. It gets one kind of change at a time, because names change with it.
//! Source: docs/format/09-send-stream.md §4.

use std::collections::BTreeSet;

use format::dsl_dataset::DEFER_DESTROY;
use format::{Guid, NvList, NvValue, Txg};

use pool::props::{DatasetKind, names};
use pool::{DatasetInfo, Error, Result};

use super::Receiver;

/// Prefix of the last element of a temporary name.
const ASIDE: &str = "recv-";

/// A change that makes the tree more similar to the sender's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Promote a clone.
    Promote(String),
    /// Destroy snapshots of one file system that the sender does not have any more.
    DestroySnapshots(Vec<String>),
    /// A snapshot is called otherwise.
    RenameSnapshot {
        /// `pool/fs@snap`.
        from: String,
        /// Its name after the `@`.
        leaf: String,
    },
    /// Destroy a file system or volume that the sender does not have any more, after all datasets below it.
    Destroy(String),
    /// Rename a file system or volume.
    Rename {
        /// Where it is.
        from: String,
        /// The target name; `None`: not known yet, or in use. Until then it gets a temporary name from [`Replica::aside`].
        to: Option<String>,
    },
}

struct Snapshot {
    leaf: String,
    guid: Guid,
    born: Txg,
    /// The snapshot is destroyed when its last user is gone.
    deferred: bool,
}

/// A file system or volume, here or in the package.
struct Member {
    name: String,
    /// Oldest first.
    snaps: Vec<Snapshot>,
    /// 0: it is no clone.
    origin: Guid,
    /// Guid of the parent's snapshot on which the package is based; 0 if it has none.
    parent_from: Guid,
    /// It is a partial receive.
    unfinished: bool,
}

/// The tree of the sender, from an incremental package.
pub struct Replica {
    from: String,
    members: Vec<Member>,
}

fn last_element(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(_, last)| last)
}

fn is_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

impl Replica {
    /// Reads the list of a package; `None` if it is not incremental, or of one file system only.
    #[must_use]
    pub fn of(list: &NvList) -> Option<Replica> {
        let from = list.get_str("fromsnap")?.to_owned();
        if list.get("not_recursive").is_some() {
            return None;
        }
        let member = |(_, entry): (&[u8], &NvValue)| {
            let NvValue::List(entry) = entry else { return None };
            let snap = |(leaf, guid): (&[u8], &NvValue)| match guid {
                NvValue::Uint64(guid) => Some(Snapshot {
                    leaf: String::from_utf8(leaf.to_vec()).ok()?,
                    guid: Guid(*guid),
                    born: Txg(0),
                    deferred: false,
                }),
                _ => None,
            };
            Some(Member {
                name: entry.get_str("name")?.to_owned(),
                snaps: entry.get_list("snaps")?.iter().filter_map(snap).collect(),
                origin: Guid(entry.get_u64("origin").unwrap_or(0)),
                parent_from: Guid(entry.get_u64("parentfromsnap").unwrap_or(0)),
                unfinished: false,
            })
        };
        let members = list.get_list("fss")?.iter().filter_map(member).collect();
        Some(Replica { from, members })
    }

    /// A temporary name below `top`.
    #[must_use]
    pub fn aside(top: &str, number: u32) -> String {
        format!("{top}/{ASIDE}{}-{number}", std::process::id())
    }

    /// The member and the name that the snapshot has at the sender.
    fn find(&self, guid: Guid) -> Option<(&Member, &str)> {
        let has = |member: &Member| member.snaps.iter().position(|snap| snap.guid == guid);
        self.members.iter().find_map(|member| has(member).map(|at| (member, &*member.snaps[at].leaf)))
    }

    /// The member of the sender's package that `local` corresponds to.
    fn member_of(&self, local: &Member) -> Option<&Member> {
        local.snaps.iter().rev().find_map(|snap| self.find(snap.guid)).map(|(member, _)| member)
    }

    /// Whether `local` has the snapshot on which its streams are based.
    fn has_source(&self, local: &Member) -> bool {
        local.snaps.iter().any(|snap| self.find(snap.guid).is_some_and(|(_, leaf)| leaf == self.from))
    }

    /// The next changes, all of one kind. `locals`: the tree here, parents first. `exact`: the name of the top was given
    /// here and stays.
    fn next(&self, locals: &[Member], exact: bool, force: bool, not: &BTreeSet<Change>) -> Vec<Change> {
        // A tree without the base snapshots of these streams is not changed.
        if !locals.first().is_some_and(|top| self.has_source(top)) {
            return Vec::new();
        }
        let kinds: [&dyn Fn() -> Vec<Change>; 4] = [
            &|| self.promotions(locals),
            &|| self.of_snapshots(locals, force),
            &|| if force { self.doomed(locals) } else { Vec::new() },
            &|| self.moves(locals, exact),
        ];
        let mut kinds = kinds.iter().map(|kind| {
            let mut changes = kind();
            changes.retain(|change| !not.contains(change));
            changes
        });
        kinds.find(|changes| !changes.is_empty()).unwrap_or_default()
    }

    /// A clone that the sender has promoted.
    fn promotions(&self, locals: &[Member]) -> Vec<Change> {
        let born = |guid: Guid| {
            let mut all = locals.iter().flat_map(|local| &local.snaps);
            all.find(|snap| snap.guid == guid).map(|snap| snap.born)
        };
        let is_promoted = |local: &&Member| {
            let Some(sent) = self.member_of(local).filter(|sent| sent.origin != local.origin) else {
                return false;
            };
            let Some(now) = born(local.origin) else { return false };
            sent.origin == Guid(0) || born(sent.origin).is_some_and(|then| then < now)
        };
        locals.iter().find(is_promoted).map(|local| Change::Promote(local.name.clone())).into_iter().collect()
    }

    fn of_snapshots(&self, locals: &[Member], force: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        for local in locals.iter().filter(|local| !local.unfinished) {
            let full = |snap: &Snapshot| format!("{}@{}", local.name, snap.leaf);
            let gone = local.snaps.iter().filter(|snap| !snap.deferred && self.find(snap.guid).is_none());
            let gone: Vec<String> = gone.map(full).collect();
            if force && !gone.is_empty() {
                changes.push(Change::DestroySnapshots(gone));
            }
            for snap in &local.snaps {
                let leaf = self.find(snap.guid).map(|(_, leaf)| leaf).filter(|leaf| *leaf != snap.leaf);
                let made = leaf.map(|leaf| (format!("{}@{leaf}", local.name), leaf.to_owned()));
                if let Some((_, leaf)) =
                    made.filter(|(name, _)| names::check_new(name, DatasetKind::Snapshot).is_ok())
                {
                    changes.push(Change::RenameSnapshot { from: full(snap), leaf });
                }
            }
        }
        changes
    }

    /// Datasets that the sender does not have any more, children before their parents.
    fn doomed(&self, locals: &[Member]) -> Vec<Change> {
        let gone = |local: &Member| !local.unfinished && self.member_of(local).is_none();
        let with_all_below = |local: &&Member| {
            gone(local) && locals.iter().filter(|other| is_below(&other.name, &local.name)).all(gone)
        };
        let doomed = locals.iter().skip(1).rev().filter(with_all_below);
        doomed.map(|local| Change::Destroy(local.name.clone())).collect()
    }

    /// A dataset that has another place at the sender.
    fn moves(&self, locals: &[Member], exact: bool) -> Vec<Change> {
        let mut moves = Vec::new();
        for (at, local) in locals.iter().enumerate() {
            let Some(sent) = self.member_of(local).filter(|_| self.has_source(local)) else { continue };
            let (Some(here), Some(there)) = (last_element(&local.name), last_element(&sent.name)) else {
                continue;
            };
            let parents = (local.parent_from, sent.parent_from);
            let reparented = at > 0 && parents.0 != Guid(0) && parents.1 != Guid(0) && parents.0 != parents.1;
            if !reparented && (here == there || at == 0 && exact) {
                continue;
            }
            let parent = if at == 0 {
                local.name.rsplit_once('/').map(|(parent, _)| parent)
            } else {
                let has = |other: &&Member| other.snaps.iter().any(|snap| snap.guid == sent.parent_from);
                locals.iter().find(has).map(|parent| parent.name.as_str())
            };
            let to = parent.map(|parent| format!("{parent}/{there}"));
            let to = to.filter(|to| names::check_new(to, DatasetKind::Filesystem).is_ok());
            let to =
                to.filter(|to| !locals.iter().any(|other| other.name == *to) && !is_below(to, &local.name));
            if to.is_some() || !here.starts_with(ASIDE) {
                moves.push(Change::Rename { from: local.name.clone(), to });
            }
        }
        // Each rename may change names of others. Renames whose target is free come first.
        moves.sort_by_key(|change| matches!(change, Change::Rename { to: None, .. }));
        moves.truncate(1);
        moves
    }
}

impl Receiver<'_> {
    /// The next changes of the tree at `top`, so that the streams of a package find their base snapshots. `exact`: the name
    /// of the top was given here. Without `force` nothing is destroyed. Changes in `not` are left out.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn changes_for(
        &self,
        replica: &Replica,
        top: &str,
        (exact, force): (bool, bool),
        not: &BTreeSet<Change>,
    ) -> Result<Vec<Change>> {
        let list = match self.pool.list(top, None, true) {
            Err(Error::NoDataset(_)) => return Ok(Vec::new()),
            list => list?,
        };
        Ok(replica.next(&self.locals(&list, &replica.from)?, exact, force, not))
    }

    fn locals(&self, list: &[DatasetInfo], from: &str) -> Result<Vec<Member>> {
        let mut locals: Vec<Member> = Vec::new();
        for info in list {
            if info.is_snapshot() {
                let local = locals.last_mut().expect("snapshots are listed behind their file system");
                local.snaps.push(Snapshot {
                    leaf: info.snapshot_name().unwrap_or_default().to_owned(),
                    guid: info.phys.guid,
                    born: info.phys.creation_txg,
                    deferred: info.phys.flags & DEFER_DESTROY != 0,
                });
                continue;
            }
            let parent = info.name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let source =
                |local: &Member| local.snaps.iter().find(|snap| snap.leaf == from).map(|snap| snap.guid);
            let parent = locals.iter().find(|local| local.name == parent);
            locals.push(Member {
                name: info.name.clone(),
                snaps: Vec::new(),
                origin: self.pool.reading().origin_of(info)?.unwrap_or(Guid(0)),
                parent_from: parent.and_then(source).unwrap_or(Guid(0)),
                unfinished: info.is_unfinished(),
            });
        }
        Ok(locals)
    }

    /// The file system or volume that has the snapshot with this guid, looked for near `name` first.
    ///
    /// # Errors
    /// If the tree cannot be read.
    pub fn nearest_with(&self, guid: Guid, name: &str) -> Result<Option<String>> {
        let mut above = name;
        while let Some((parent, _)) = above.rsplit_once('/') {
            above = parent;
            match self.pool.list(above, None, true) {
                Err(Error::NoDataset(_)) => continue,
                list => {
                    let found = list?.into_iter().find(|info| info.is_snapshot() && info.phys.guid == guid);
                    if let Some(found) = found {
                        return Ok(found.name.split_once('@').map(|(fs, _)| fs.to_owned()));
                    }
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name`, its snapshots as `leaf:guid`, the guid of its origin and of its parent's source.
    fn member(name: &str, snaps: &[(&str, u64)], origin: u64, parent_from: u64) -> Member {
        let snap = |(at, (leaf, guid)): (usize, &(&str, u64))| Snapshot {
            leaf: (*leaf).to_owned(),
            guid: Guid(*guid),
            born: Txg(100 + at as u64),
            deferred: false,
        };
        Member {
            name: name.to_owned(),
            snaps: snaps.iter().enumerate().map(snap).collect(),
            origin: Guid(origin),
            parent_from: Guid(parent_from),
            unfinished: false,
        }
    }

    fn replica(members: Vec<Member>) -> Replica {
        Replica { from: "2".into(), members }
    }

    fn rename(from: &str, to: Option<&str>) -> Vec<Change> {
        vec![Change::Rename { from: from.into(), to: to.map(str::to_owned) }]
    }

    #[test]
    fn names_that_were_exchanged_are_exchanged_by_way_of_a_third() {
        let sent = replica(vec![
            member("s", &[("2", 1), ("3", 2)], 0, 0),
            member("s/b", &[("2", 11), ("3", 12)], 0, 1),
            member("s/a", &[("2", 21), ("3", 22)], 0, 1),
        ]);
        let here = |a: &str, b: &str| {
            [member("t/d", &[("2", 1)], 0, 0), member(a, &[("2", 11)], 0, 1), member(b, &[("2", 21)], 0, 1)]
        };
        let none = BTreeSet::new();
        assert_eq!(sent.next(&here("t/d/a", "t/d/b"), true, false, &none), rename("t/d/a", None));
        let aside = Replica::aside("t/d", 0);
        assert_eq!(sent.next(&here(&aside, "t/d/b"), true, false, &none), rename("t/d/b", Some("t/d/a")));
        assert_eq!(sent.next(&here(&aside, "t/d/a"), true, false, &none), rename(&aside, Some("t/d/b")));
        assert_eq!(sent.next(&here("t/d/b", "t/d/a"), true, false, &none), []);
    }

    #[test]
    fn only_the_top_keeps_the_name_it_was_given() {
        let sent = replica(vec![member("s/new", &[("2", 1)], 0, 9), member("s/new/y", &[("2", 2)], 0, 1)]);
        let here = [member("t/old", &[("2", 1)], 0, 0), member("t/old/x", &[("2", 2)], 0, 1)];
        let none = BTreeSet::new();
        assert_eq!(sent.next(&here, true, false, &none), rename("t/old/x", Some("t/old/y")));
        assert_eq!(sent.next(&here, false, false, &none), rename("t/old", Some("t/new")));
        // A failed change is not repeated.
        let tried = BTreeSet::from_iter(rename("t/old/x", Some("t/old/y")));
        assert_eq!(sent.next(&here, true, false, &tried), []);
    }

    #[test]
    fn datasets_missing_at_the_sender_are_destroyed_only_by_force_and_children_first() {
        let sent = replica(vec![member("s", &[("2", 1), ("3", 2)], 0, 0)]);
        let mut here = [
            member("t", &[("1", 7), ("2", 1)], 0, 0),
            member("t/x", &[("2", 3)], 0, 1),
            member("t/x/y", &[], 0, 3),
            member("t/z", &[], 0, 1),
        ];
        here[3].unfinished = true;
        let none = BTreeSet::new();
        assert_eq!(sent.next(&here, true, false, &none), []);
        let snapshots = |name: &str| Change::DestroySnapshots(vec![name.to_owned()]);
        let first = sent.next(&here, true, true, &none);
        assert_eq!(first, [snapshots("t@1"), snapshots("t/x@2")]);
        here[0].snaps.remove(0);
        here[1].snaps.clear();
        let then = sent.next(&here, true, true, &none);
        assert_eq!(then, [Change::Destroy("t/x/y".into()), Change::Destroy("t/x".into())]);
    }

    #[test]
    fn a_tree_without_the_base_snapshots_is_not_changed() {
        let sent = replica(vec![member("s", &[("2", 1), ("3", 2)], 0, 0)]);
        let here = [member("t", &[("2", 5)], 0, 0), member("t/x", &[("2", 6)], 0, 5)];
        assert_eq!(sent.next(&here, true, true, &BTreeSet::new()), []);
        assert_eq!(sent.next(&[], true, true, &BTreeSet::new()), []);
    }

    #[test]
    fn a_clone_that_was_promoted_is_promoted_before_anything_else() {
        let sent = replica(vec![
            member("s", &[("2", 1)], 0, 0),
            member("s/c", &[("1", 10), ("2", 12)], 0, 1),
            member("s/o", &[("2", 11)], 10, 1),
        ]);
        let here = [
            member("t", &[("2", 1)], 0, 0),
            member("t/o", &[("1", 10), ("2", 11)], 0, 1),
            member("t/c", &[("2", 12)], 10, 1),
        ];
        assert_eq!(sent.next(&here, true, true, &BTreeSet::new()), [Change::Promote("t/c".into())]);
    }
}

//! The changes of a file system since a snapshot, object by object.
//!
//! From:   object numbers in the dnode blocks that were written since, from `stream`.
//! To:     [`Difference`]s in the order of those numbers, for `zfs diff`.
//!
//! Names are looked up in both states. A bounded cache keeps the names of directories, so that a directory is not searched
//! once for each of its entries.

use std::collections::HashMap;

use dmu::{Touched, zap};
use format::zap::int_key;
use format::znode::{S_IFDIR, S_IFMT, Time, pflags};
use format::{ObjectId, ObjectType};

use crate::{Error, Filesystem, Result};

/// Names of directories kept in memory, in bytes, for each of the two states.
const NAMES_MAX: usize = 32 << 20;
/// The memory that a name takes besides its bytes.
const NAME_COST: usize = 96;
/// Maximal depth of directories; a deeper path is a circle.
const DEPTH_MAX: usize = 1 << 12;

/// Stands for the path of a file that has no name any more but is still open.
const DELETED: &[u8] = b"(on_delete_queue)";
/// The name that is shown for a directory of extended attributes.
const XATTR_DIR: &[u8] = b"<xattrdir>";

/// How an object changed. Paths begin with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Contents or attributes changed; `links` is the change of the number of names.
    Modified {
        /// One of its names.
        path: Vec<u8>,
        /// Change of the number of names of a file.
        links: i64,
    },
    /// It was not there before.
    Added(Vec<u8>),
    /// It is no longer there.
    Removed(Vec<u8>),
    /// It has another name.
    Renamed {
        /// Old path.
        from: Vec<u8>,
        /// New path.
        to: Vec<u8>,
    },
}

/// A change, and the object it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The kind of the change.
    pub change: Change,
    /// `st_mode`.
    pub mode: u64,
    /// Last change of anything.
    pub ctime: Time,
}

/// An object in one of the states.
#[derive(Debug)]
struct Seen {
    generation: u64,
    mode: u64,
    links: u64,
    ctime: Time,
    path: Vec<u8>,
    deleted: bool,
}

/// One of the two states, with names that were looked up.
struct State<'a> {
    fs: &'a Filesystem,
    names: HashMap<ObjectId, HashMap<ObjectId, Vec<u8>>>,
    kept: usize,
}

/// Calls `tell` for each difference between two states of a file system. `touched` are the objects that may have changed.
///
/// # Errors
/// Something cannot be read; or `tell` fails.
pub fn diff<E: From<Error>>(
    from: &Filesystem,
    to: &Filesystem,
    touched: impl Iterator<Item = pool::Result<Touched>>,
    mut tell: impl FnMut(Difference) -> Result<(), E>,
) -> Result<(), E> {
    let mut old = State::new(from);
    let mut new = State::new(to);
    for item in touched {
        match item.map_err(Error::from)? {
            Touched::Object(id) => {
                let found = (old.look(id)?, new.look(id)?);
                compare(found).into_iter().try_for_each(&mut tell)?;
            }
            Touched::Free { first, count } => {
                let end = first.saturating_add(count);
                for entry in from.inner.objset.synced_objects_from(ObjectId(first)) {
                    let (id, _) = entry.map_err(Error::from)?;
                    if id.0 >= end {
                        break;
                    }
                    if let Some(seen) = old.look(id)?.filter(|seen| !seen.deleted) {
                        tell(seen.told(Change::Removed(seen.path.clone())))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn compare(found: (Option<Seen>, Option<Seen>)) -> Vec<Difference> {
    let (old, new) = match found {
        (None, None) => return Vec::new(),
        (None, Some(new)) => return vec![new.told(Change::Added(new.path.clone()))],
        (Some(old), None) => return vec![old.told(Change::Removed(old.path.clone()))],
        (Some(old), Some(new)) => (old, new),
    };
    if old.generation != new.generation || old.mode & S_IFMT != new.mode & S_IFMT {
        // The number was reused for another object.
        return vec![old.told(Change::Removed(old.path.clone())), new.told(Change::Added(new.path.clone()))];
    }
    if old.ctime == new.ctime {
        return Vec::new();
    }
    let counted = old.mode & S_IFMT != S_IFDIR && old.links != 0 && new.links != 0;
    let links = if counted { new.links as i64 - old.links as i64 } else { 0 };
    let change = match (links, old.path == new.path) {
        (1.., _) => Change::Modified { path: old.path, links },
        (..0, _) => Change::Modified { path: new.path.clone(), links },
        (0, true) => Change::Modified { path: old.path, links },
        (0, false) => Change::Renamed { from: old.path, to: new.path.clone() },
    };
    vec![Difference { change, mode: new.mode, ctime: new.ctime }]
}

impl Seen {
    fn told(&self, change: Change) -> Difference {
        Difference { change, mode: self.mode, ctime: self.ctime }
    }
}

impl<'a> State<'a> {
    fn new(fs: &'a Filesystem) -> State<'a> {
        State { fs, names: HashMap::new(), kept: 0 }
    }

    /// The object `id`; `None` if there is none, or it is no file or directory.
    fn look(&mut self, id: ObjectId) -> Result<Option<Seen>> {
        let inner = &self.fs.inner;
        let object = match inner.objset.object(id) {
            Ok(object) => object,
            Err(dmu::Error::NoObject(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !object.with_bonus(|kind, _| matches!(kind, ObjectType::SA | ObjectType::ZNODE)) {
            return Ok(None);
        }
        let znode = inner.attributes.load(&object)?;
        let queue = inner.objset.object(inner.unlinked)?;
        let deleted = zap::lookup(&queue, int_key(id.0).as_bytes())?.is_some();
        let path = if deleted { DELETED.to_vec() } else { self.path_of(id)? };
        Ok(Some(Seen {
            generation: znode.generation,
            mode: znode.mode,
            links: znode.links,
            ctime: znode.ctime,
            path,
            deleted,
        }))
    }

    /// A path to the object from the root.
    fn path_of(&mut self, id: ObjectId) -> Result<Vec<u8>> {
        if id == self.fs.root() {
            return Ok(b"/".to_vec());
        }
        let mut parts = Vec::new();
        let mut at = id;
        while at != self.fs.root() {
            if parts.len() == DEPTH_MAX {
                return Err(Error::Loop);
            }
            let (_, znode) = self.fs.node(at)?;
            let is_dir = znode.mode & S_IFMT == S_IFDIR;
            let name = match is_dir && znode.flags & pflags::XATTR != 0 {
                true => Some(XATTR_DIR.to_vec()),
                false => self.name_in(znode.parent, at)?,
            };
            // The stored parent may have no name of the object any more, if it had several names.
            parts.push(name.unwrap_or_else(|| format!("???<object#{}>", at.0).into_bytes()));
            at = znode.parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Ok(path)
    }

    /// The name of `id` in the directory `dir`.
    fn name_in(&mut self, dir: ObjectId, id: ObjectId) -> Result<Option<Vec<u8>>> {
        if let Some(names) = self.names.get(&dir) {
            return Ok(names.get(&id).cloned());
        }
        let (mut names, mut bytes) = (HashMap::new(), 0);
        let mut found = None;
        for entry in self.fs.entries(dir)? {
            let entry = entry?;
            if entry.id == id && found.is_none() {
                found = Some(entry.name.clone());
            }
            bytes += entry.name.len() + NAME_COST;
            if bytes <= NAMES_MAX {
                names.entry(entry.id).or_insert(entry.name);
            } else if found.is_some() {
                // Too large to be kept.
                return Ok(found);
            }
        }
        if bytes <= NAMES_MAX {
            if self.kept + bytes > NAMES_MAX {
                self.names.clear();
                self.kept = 0;
            }
            self.kept += bytes;
            self.names.insert(dir, names);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::znode::S_IFREG;

    fn seen(generation: u64, path: &str, links: u64, secs: i64) -> Seen {
        let (mode, ctime) = (S_IFREG | 0o644, Time { secs, nanos: 0 });
        Seen { generation, mode, links, ctime, path: path.into(), deleted: false }
    }

    fn changes(old: Option<Seen>, new: Option<Seen>) -> Vec<Change> {
        compare((old, new)).into_iter().map(|difference| difference.change).collect()
    }

    #[test]
    fn changes_are_found_by_generation_times_and_names() {
        let path = |path: &str| path.as_bytes().to_vec();
        let old = || Some(seen(4, "/a", 1, 10));
        assert!(changes(None, None).is_empty());
        assert!(changes(old(), old()).is_empty());
        assert_eq!(changes(None, old()), [Change::Added(path("/a"))]);
        assert_eq!(changes(old(), None), [Change::Removed(path("/a"))]);
        let modified = |links| Change::Modified { path: path("/a"), links };
        assert_eq!(changes(old(), Some(seen(4, "/a", 1, 11))), [modified(0)]);
        assert_eq!(changes(old(), Some(seen(4, "/b", 2, 11))), [modified(1)]);
        assert_eq!(changes(Some(seen(4, "/b", 2, 9)), old()), [modified(-1)]);
        let renamed = Change::Renamed { from: path("/a"), to: path("/b") };
        assert_eq!(changes(old(), Some(seen(4, "/b", 1, 11))), [renamed]);
        let reused = [Change::Removed(path("/a")), Change::Added(path("/b"))];
        assert_eq!(changes(old(), Some(seen(5, "/b", 1, 10))), reused);
    }
}

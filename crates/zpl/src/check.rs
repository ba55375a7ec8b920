//! Checks that the objects of a file system are consistent with each other.
//!
//! From:   an open file system; changes not yet on disk are synced first.
//! To:     `cenote check` and tests, as a list of problems.
//! Source: docs/format/07-zpl-sa.md §4, §5, §7, §8.
//!
//! Linear in the number of objects, with 24 bytes of memory for each.

use std::collections::{BTreeMap, HashSet};

use dmu::{Special, zap};
use format::objset::{FLAG_PROJECT_QUOTA, FLAG_USER_ACCOUNTING, FLAG_USEROBJ_ACCOUNTING};
use format::owner::owner_ids;
use format::zap::parse_int_key;
use format::znode::{Dirent, Znode, pflags};
use format::{ObjectId, ObjectType, dnode};

use crate::dir::is_one_name;
use crate::owner::OBJECTS;
use crate::stat::is_kind;
use crate::volume::{DATA, PROPERTIES, Volume};
use crate::{Error, FileKind, Filesystem, Result};

/// An inconsistency.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// An object or directory could not be read.
    #[error("object {object} cannot be read: {source}")]
    Unreadable {
        /// The object.
        object: ObjectId,
        /// Why.
        source: Error,
    },
    /// An entry names an object that does not exist.
    #[error("directory {dir}: '{}' names object {object}, which does not exist", String::from_utf8_lossy(.name))]
    Dangling {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Vec<u8>,
        /// The missing object.
        object: ObjectId,
    },
    /// An entry has another type than its object.
    #[error("directory {dir}: '{}' has type {found} by its entry, {expected} by itself", String::from_utf8_lossy(.name))]
    EntryType {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Vec<u8>,
        /// Type in the entry.
        found: u8,
        /// Type by the mode.
        expected: u8,
    },
    /// An entry has a name that no file can have, so that the directory cannot be listed.
    #[error("directory {dir} has the name '{}', which no file can have", .name.escape_ascii())]
    EntryName {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Vec<u8>,
    },
    /// A stored number differs from the counted one.
    #[error("object {object}: {what} is {found}, should be {expected}")]
    Count {
        /// The object.
        object: ObjectId,
        /// Which number.
        what: &'static str,
        /// As stored.
        found: u64,
        /// As counted.
        expected: u64,
    },
    /// A volume has an object of a type that volumes do not have.
    #[error("object {object} is none of a volume's objects")]
    Stray {
        /// The object.
        object: ObjectId,
    },
    /// No name leads to the object from the root.
    #[error("object {object} has links but no name leads to it")]
    Orphan {
        /// The object.
        object: ObjectId,
    },
    /// An object without names is not in the unlinked set.
    #[error("object {object} has no links and is not in the unlinked set")]
    Leaked {
        /// The object.
        object: ObjectId,
    },
    /// The unlinked set names an object that is in use.
    #[error("object {object} has names and is in the unlinked set")]
    WronglyUnlinked {
        /// The object.
        object: ObjectId,
    },
    /// The space accounting differs from the sum over the objects.
    #[error("accounting by {by}: '{key}' is {found}, should be {expected}")]
    Account {
        /// "user", "group" or "project".
        by: &'static str,
        /// Key in the accounting ZAP.
        key: String,
        /// As stored.
        found: u64,
        /// As summed.
        expected: u64,
    },
}

impl Problem {
    /// The object that the problem is about.
    #[must_use]
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Problem::Dangling { dir: object, .. }
            | Problem::EntryType { dir: object, .. }
            | Problem::EntryName { dir: object, .. }
            | Problem::Unreadable { object, .. }
            | Problem::Count { object, .. } => Some(*object),
            // No name leads to these.
            Problem::Stray { .. }
            | Problem::Orphan { .. }
            | Problem::Leaked { .. }
            | Problem::WronglyUnlinked { .. }
            | Problem::Account { .. } => None,
        }
    }
}

/// The counts of what the check looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Objects of all kinds, those without attributes included.
    pub objects: u64,
    /// Directories, those of extended attributes not counted.
    pub directories: u64,
    /// Everything else with a name.
    pub files: u64,
    /// Problems reported.
    pub problems: u64,
}

/// The facts that the check remembers of an object.
struct Seen {
    /// Number, and in the top bits: [`XATTR`], [`REACHED`], [`LOST`], the type.
    packed: u64,
    parent: u64,
    links: u32,
    names: u32,
}

const KIND_SHIFT: u32 = 60;
const XATTR: u64 = 1 << 59;
const REACHED: u64 = 1 << 58;
/// The directories above it do not lead to the root.
const LOST: u64 = 1 << 57;
const NUMBER: u64 = (1 << 48) - 1;

impl Seen {
    fn id(&self) -> ObjectId {
        ObjectId(self.packed & NUMBER)
    }

    fn kind(&self) -> u8 {
        (self.packed >> KIND_SHIFT) as u8
    }

    fn is_dir(&self) -> bool {
        self.kind() == 4
    }
}

/// Space and number of the objects of one owner.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    objects: u64,
}

struct Check<'a> {
    fs: &'a Filesystem,
    seen: Vec<Seen>,
    /// (directory, its owner) of extended attributes.
    xattr_dirs: Vec<(ObjectId, ObjectId)>,
    /// By kind of owner (user, group, project) and number.
    accounts: BTreeMap<(usize, u64), Sum>,
    report: &'a mut dyn FnMut(Problem),
    summary: Summary,
}

/// Checks names, links, sizes of directories, the unlinked set and the space accounting; every problem goes to
/// `report`.
///
/// # Errors
/// If the whole check fails: the sync fails, or the dnodes cannot be read.
pub fn check_filesystem(fs: &Filesystem, report: &mut dyn FnMut(Problem)) -> Result<Summary> {
    if fs.dataset().check_writable().is_ok() {
        // This is needed even if nothing is dirty, because a sync may be running.
        fs.dataset().sync()?;
    }
    let mut check = Check {
        fs,
        seen: Vec::new(),
        xattr_dirs: Vec::new(),
        accounts: BTreeMap::new(),
        report,
        summary: Summary::default(),
    };
    check.objects();
    for i in 0..check.seen.len() {
        if check.seen[i].is_dir() {
            check.directory(i);
        }
    }
    check.xattr_owners();
    check.links()?;
    check.accounting()?;
    Ok(check.summary)
}

impl Check<'_> {
    fn problem(&mut self, problem: Problem) {
        self.summary.problems += 1;
        (self.report)(problem);
    }

    fn count(&mut self, object: ObjectId, what: &'static str, found: u64, expected: u64) {
        if found != expected {
            self.problem(Problem::Count { object, what, found, expected });
        }
    }

    fn index(&self, id: ObjectId) -> Option<usize> {
        self.seen.binary_search_by_key(&id, Seen::id).ok()
    }

    fn znode(&mut self, id: ObjectId) -> Option<Znode> {
        let load = || {
            let object = self.fs.inner.objset.object(id)?;
            self.fs.inner.attributes.load(&object)
        };
        match load() {
            Ok(znode) => Some(znode),
            Err(source) => {
                self.problem(Problem::Unreadable { object: id, source });
                None
            }
        }
    }

    /// Reads all objects: their types and their space.
    fn objects(&mut self) {
        let fs = self.fs;
        let flags = fs.inner.objset.synced_root().0.flags;
        for item in fs.inner.objset.synced_objects() {
            let (id, dnode) = match item {
                Ok(item) => item,
                Err(error) => {
                    self.problem(Problem::Unreadable { object: ObjectId(0), source: error.into() });
                    continue;
                }
            };
            self.summary.objects += 1;
            if let Some(owners) = owner_ids(dnode.bonus_type, &dnode.bonus) {
                for (by, owner) in owners.into_iter().enumerate() {
                    if by == 2 && flags & FLAG_PROJECT_QUOTA == 0 {
                        continue;
                    }
                    let sum = self.accounts.entry((by, owner)).or_default();
                    if dnode.flags & dnode::FLAG_USERUSED_ACCOUNTED != 0 {
                        sum.bytes = sum.bytes.wrapping_add(dnode.used_bytes()).wrapping_add(512);
                    }
                    if flags & FLAG_USEROBJ_ACCOUNTING != 0
                        && dnode.flags & dnode::FLAG_USEROBJUSED_ACCOUNTED != 0
                    {
                        sum.objects += 1;
                    }
                }
            }
            if !matches!(dnode.bonus_type, ObjectType::SA | ObjectType::ZNODE) {
                continue;
            }
            let Some(znode) = self.znode(id) else { continue };
            if let Some(dir) = znode.xattr.filter(|dir| dir.0 != 0) {
                self.xattr_dirs.push((dir, id));
            }
            let hidden = if znode.flags & pflags::XATTR != 0 { XATTR } else { 0 };
            if hidden == 0 {
                let is_dir = is_kind(&znode, FileKind::Directory);
                *(if is_dir { &mut self.summary.directories } else { &mut self.summary.files }) += 1;
            }
            self.seen.push(Seen {
                packed: Dirent::new(znode.mode, ObjectId(id.0 & NUMBER)).encode() | hidden,
                parent: znode.parent.0,
                links: znode.links.min(u32::MAX.into()) as u32,
                names: 0,
            });
        }
    }

    /// One directory against its entries.
    fn directory(&mut self, at: usize) {
        let dir = self.seen[at].id();
        let fs = self.fs;
        let object = match fs.directory(dir) {
            Ok(object) => object,
            Err(source) => return self.problem(Problem::Unreadable { object: dir, source }),
        };
        let (mut entries, mut subdirs) = (0u64, 0u64);
        for entry in zap::entries(&object) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.problem(Problem::Unreadable { object: dir, source: error.into() });
                    continue;
                }
            };
            entries += 1;
            if !is_one_name(&entry.name) {
                self.problem(Problem::EntryName { dir, name: entry.name.clone() });
            }
            let dirent = match Dirent::decode(entry.number().unwrap_or(0)) {
                Ok(dirent) => dirent,
                Err(source) => {
                    let source = Error::damaged(dir)(source);
                    self.problem(Problem::Unreadable { object: dir, source });
                    continue;
                }
            };
            let Some(child) = self.index(dirent.object) else {
                self.problem(Problem::Dangling { dir, name: entry.name, object: dirent.object });
                continue;
            };
            self.seen[child].names = self.seen[child].names.saturating_add(1);
            let parent = self.seen[child].parent;
            let kind = self.seen[child].kind();
            // Entries made before version 2 have no type, also after an upgrade.
            if dirent.kind != kind && dirent.kind != 0 {
                self.problem(Problem::EntryType {
                    dir,
                    name: entry.name,
                    found: dirent.kind,
                    expected: kind,
                });
            }
            subdirs += u64::from(kind == 4);
            // The stored parent of a file may be stale: it is the directory of its latest name, which may be removed.
            if kind == 4 {
                self.count(dirent.object, "parent", parent, dir.0);
            }
        }
        let Some(znode) = self.znode(dir) else { return };
        self.count(dir, "size of the directory", znode.size, entries + 2);
        if znode.links != 0 {
            self.count(dir, "links of the directory", znode.links, subdirs + 2);
        }
    }

    /// The parent of a directory of extended attributes is its owner.
    fn xattr_owners(&mut self) {
        for (dir, owner) in std::mem::take(&mut self.xattr_dirs) {
            let Some(at) = self.index(dir) else {
                let name = b"(extended attributes)".to_vec();
                self.problem(Problem::Dangling { dir: owner, name, object: dir });
                continue;
            };
            self.seen[at].names = self.seen[at].names.saturating_add(1);
            let parent = self.seen[at].parent;
            self.count(dir, "parent", parent, owner.0);
        }
    }

    /// Every object has as many names as its link count, and all of them are below the root.
    fn links(&mut self) -> Result<()> {
        let mut unlinked = HashSet::new();
        let set = self.fs.inner.objset.object(self.fs.inner.unlinked)?;
        for entry in zap::entries(&set) {
            unlinked.insert(ObjectId(parse_int_key(&entry?.name).map_err(Error::damaged(set.id()))?));
        }
        let root = self.fs.root();
        if let Some(at) = self.index(root) {
            self.seen[at].packed |= REACHED;
            let parent = self.seen[at].parent;
            self.count(root, "parent", parent, root.0);
        }
        for at in 0..self.seen.len() {
            let id = self.seen[at].id();
            let Seen { links, names, .. } = self.seen[at];
            let waits = unlinked.contains(&id);
            if id == root {
                continue;
            }
            if waits && links > 0 {
                self.problem(Problem::WronglyUnlinked { object: id });
            } else if links == 0 && names == 0 && !waits && !self.below_unlinked(at, &unlinked) {
                self.problem(Problem::Leaked { object: id });
            } else if links > 0 && names == 0 {
                self.problem(Problem::Orphan { object: id });
            } else if self.seen[at].is_dir() && names > 1 {
                self.count(id, "names of the directory", names.into(), 1);
            } else if !self.seen[at].is_dir() {
                self.count(id, "links", links.into(), names.into());
            }
            if self.seen[at].is_dir() && names > 0 && !self.reaches_root(at) {
                self.problem(Problem::Orphan { object: id });
            }
        }
        Ok(())
    }

    /// Whether its owner waits to be freed.
    fn below_unlinked(&self, at: usize, unlinked: &HashSet<ObjectId>) -> bool {
        unlinked.contains(&ObjectId(self.seen[at].parent))
    }

    /// Whether the directories above lead to the root; marks those on the way.
    fn reaches_root(&mut self, at: usize) -> bool {
        let mut way = Vec::new();
        let mut here = at;
        let reached = loop {
            let seen = &mut self.seen[here];
            if seen.packed & REACHED != 0 {
                break true;
            }
            if seen.packed & LOST != 0 {
                break false;
            }
            // The object is lost if its parents do not lead to the root, or form a circle.
            seen.packed |= LOST;
            way.push(here);
            let above = ObjectId(seen.parent);
            match self.index(above) {
                None => break false,
                // The owner of an extended attribute may be a file; its names are counted elsewhere.
                Some(above) if !self.seen[above].is_dir() => break true,
                Some(above) => here = above,
            }
        };
        if reached {
            for at in way {
                self.seen[at].packed = self.seen[at].packed & !LOST | REACHED;
            }
        }
        reached
    }

    /// The accounting ZAPs against the sums.
    fn accounting(&mut self) -> Result<()> {
        let flags = self.fs.inner.objset.synced_root().0.flags;
        if flags & FLAG_USER_ACCOUNTING == 0 {
            return Ok(());
        }
        let mut sums = BTreeMap::new();
        for ((by, owner), sum) in std::mem::take(&mut self.accounts) {
            sums.insert((by, format!("{owner:x}")), sum.bytes);
            sums.insert((by, format!("obj-{owner:x}")), sum.objects);
        }
        // An entry that reaches zero is removed.
        sums.retain(|_, sum| *sum != 0);
        for (i, (special, by)) in Special::ALL.into_iter().zip(["user", "group", "project"]).enumerate() {
            if i == 2 && flags & FLAG_PROJECT_QUOTA == 0 {
                continue;
            }
            let Some(object) = self.fs.inner.objset.special(special) else { continue };
            for entry in zap::entries(&object) {
                let entry = entry?;
                let key = String::from_utf8_lossy(&entry.name).into_owned();
                // OpenZFS counts objects of a file system that was never mounted, but does not rely on the counts yet.
                if flags & FLAG_USEROBJ_ACCOUNTING == 0 && key.starts_with(OBJECTS) {
                    continue;
                }
                let (found, expected) =
                    (entry.number().unwrap_or(0), sums.remove(&(i, key.clone())).unwrap_or(0));
                if found != expected {
                    self.problem(Problem::Account { by, key, found, expected });
                }
            }
        }
        for ((i, key), expected) in sums {
            self.problem(Problem::Account { by: ["user", "group", "project"][i], key, found: 0, expected });
        }
        Ok(())
    }
}

/// Looks for objects that volumes do not have. Returns the number of objects.
///
/// # Errors
/// The pool cannot be synced, or the objects cannot be listed.
pub fn check_volume(volume: &Volume, report: &mut dyn FnMut(Problem)) -> Result<u64> {
    let dataset = volume.dataset();
    if dataset.check_writable().is_ok() {
        dataset.sync()?;
    }
    let mut count = 0;
    for found in dataset.objset().synced_objects() {
        let (object, dnode) = found?;
        count += 1;
        let is_known = match object {
            DATA => dnode.object_type == ObjectType::ZVOL,
            PROPERTIES => dnode.object_type == ObjectType::ZVOL_PROP,
            _ => false,
        };
        if !is_known {
            report(Problem::Stray { object });
        }
    }
    Ok(count)
}

//! Differences between two states of a file system, for the notices to caches when one state replaces the other.

use std::collections::{HashMap, HashSet};

use crate::{FileKind, Filesystem, ObjectId, Result, Stat};

/// Cached facts that became wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Objects that are gone or replaced by others with the same number.
    pub gone: HashSet<ObjectId>,
    /// Objects whose contents may differ.
    pub changed: Vec<ObjectId>,
    /// Regular files whose cached size and times are wrong, with the new size.
    pub resized: Vec<(ObjectId, u64)>,
    /// Names whose object changed: the directory and the name.
    pub names: Vec<(ObjectId, Vec<u8>)>,
}

/// Differences of the objects `known` between two states of a file system. `is_kept`: whether a name stays valid although
/// its object may differ. `resized_max`: set if the cache keeps sizes and times of regular files by itself. It can receive
/// at most this many new sizes; further files count as replaced.
///
/// # Errors
/// A directory cannot be read.
pub fn difference(
    (old, next): (&Filesystem, &Filesystem),
    known: &[ObjectId],
    is_kept: impl Fn(ObjectId, &[u8]) -> bool,
    resized_max: Option<usize>,
) -> Result<Difference> {
    let mut found = Difference::default();
    let mut dirs = Vec::new();
    for &id in known {
        let (before, after) = (old.stat(id).ok(), next.stat(id).ok());
        let is_same = is_same_file(before.as_ref(), after.as_ref()) || id == old.root();
        let resized =
            before.as_ref().filter(|stat| resized_max.is_some() && has_other_size(stat, after.as_ref()));
        if !is_same || resized.is_some() && resized_max.is_some_and(|max| found.resized.len() >= max) {
            found.gone.insert(id);
        } else if let Some(resized) = resized {
            found.resized.push((id, resized.size));
        } else if before != after || before.as_ref().is_none_or(|stat| stat.kind != FileKind::Directory) {
            found.changed.push(id);
        }
        if let Some(stat) = before.filter(|stat| is_same && stat.kind == FileKind::Directory) {
            dirs.push((id, after.is_some_and(|after| has_same_names(&stat, &after))));
        }
    }
    for (dir, is_same) in dirs {
        let names = match is_same {
            true if found.gone.is_empty() => continue,
            true => names_of(next, dir, |_, id| found.gone.contains(&id))?,
            false => changed_names(old, next, dir, &found.gone)?,
        };
        found.names.extend(names.into_iter().filter(|name| !is_kept(dir, name)).map(|name| (dir, name)));
    }
    Ok(found)
}

/// Whether an object is the same file or directory in both states.
fn is_same_file(before: Option<&Stat>, after: Option<&Stat>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    (before.generation, before.kind) == (after.generation, after.kind)
}

/// Whether it is a regular file with another size or other times.
fn has_other_size(before: &Stat, after: Option<&Stat>) -> bool {
    let kept = |stat: &Stat| (stat.size, stat.mtime, stat.ctime);
    before.kind == FileKind::Regular && after.is_some_and(|after| kept(before) != kept(after))
}

/// Whether the entries of a directory are unchanged. A change would have changed its times.
fn has_same_names(before: &Stat, after: &Stat) -> bool {
    (before.mtime, before.ctime, before.size) == (after.mtime, after.ctime, after.size)
}

/// Names in a directory whose object differs in `next` or is gone.
fn changed_names(
    old: &Filesystem,
    next: &Filesystem,
    dir: ObjectId,
    gone: &HashSet<ObjectId>,
) -> Result<Vec<Vec<u8>>> {
    let mut after: HashMap<Vec<u8>, ObjectId> = HashMap::new();
    each_name(next, dir, |name, id| {
        after.insert(name, id);
    })?;
    let mut changed = Vec::new();
    each_name(old, dir, |name, id| {
        if after.remove(&name) != Some(id) || gone.contains(&id) {
            changed.push(name);
        }
    })?;
    // A cache may also know that a name does not exist.
    changed.extend(after.into_keys());
    Ok(changed)
}

/// The names in a directory that are `wanted`.
///
/// # Errors
/// The directory cannot be read.
pub fn names_of(
    fs: &Filesystem,
    dir: ObjectId,
    wanted: impl Fn(&[u8], ObjectId) -> bool,
) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    each_name(fs, dir, |name, id| {
        if wanted(&name, id) {
            names.push(name);
        }
    })?;
    Ok(names)
}

fn each_name(fs: &Filesystem, dir: ObjectId, mut found: impl FnMut(Vec<u8>, ObjectId)) -> Result<()> {
    let mut cookie = 0;
    loop {
        let entries = fs.readdir(dir, cookie)?;
        let Some(last) = entries.last() else { return Ok(()) };
        cookie = last.cookie;
        for entry in entries {
            if !matches!(entry.name.as_slice(), b"." | b"..") {
                found(entry.name, entry.id);
            }
        }
    }
}

//! The tree of directories and their names.
//!
//! Source: docs/format/06-mos-dsl.md §4, §5.

use std::collections::BTreeSet;

use dmu::zap;
use format::ObjectId;
use format::dsl_dir::DslDir;

use crate::mos::Mos;
use crate::props::names;
use crate::view::View;
use crate::{Error, Result};

/// Deepest nesting of datasets followed.
pub const DEPTH_MAX: usize = 64;

/// The root directory.
pub fn root_dir(mos: &Mos) -> Result<ObjectId> {
    mos.need("root_dataset")
}

/// The directory that the MOS itself is charged to.
pub fn mos_dir(mos: &Mos) -> Result<Option<ObjectId>> {
    let Some(root) = mos.directory_object("root_dataset")? else { return Ok(None) };
    child(mos, root, "$MOS")
}

/// The directory called `name` below `dir`.
pub fn child(mos: &Mos, dir: ObjectId, name: &str) -> Result<Option<ObjectId>> {
    let children = mos.object(mos.dir(dir)?.child_dir_zap)?;
    Ok(zap::lookup_u64(&children, name.as_bytes())?.map(ObjectId))
}

/// Names and directories below `dir`, by name; the special ones left out.
pub fn children(mos: &Mos, dir: ObjectId) -> Result<Vec<(String, ObjectId)>> {
    let zap_id = mos.dir(dir)?.child_dir_zap;
    let mut found = Vec::new();
    for entry in zap::entries(&*mos.object(zap_id)?) {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if let Some(id) = entry.number().filter(|_| !name.starts_with(['$', '%'])) {
            found.push((name, ObjectId(id)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The directory of the file system or volume `name`.
pub fn dir_of(mos: &Mos, pool: &str, name: &str) -> Result<ObjectId> {
    let missing = || Error::NoDataset(name.to_owned());
    let mut parts = name.split('/');
    if parts.next() != Some(pool) {
        return Err(missing());
    }
    let mut dir = root_dir(mos)?;
    for part in parts {
        if part.starts_with(['$', '%']) {
            return Err(missing());
        }
        dir = child(mos, dir, part)?.ok_or_else(missing)?;
    }
    Ok(dir)
}

/// The snapshot `name` (`pool/fs@snap`).
pub fn snapshot(mos: &Mos, pool: &str, name: &str) -> Result<ObjectId> {
    let missing = || Error::NoDataset(name.to_owned());
    let (fs, leaf) = name.split_once('@').ok_or_else(missing)?;
    let head = mos.dir(dir_of(mos, pool, fs)?)?.head_dataset;
    let names = mos.object(mos.dataset(head)?.snapnames_zap)?;
    zap::lookup_u64(&names, leaf.as_bytes())?.map(ObjectId).ok_or_else(missing)
}

/// A directory and all above it, the root last.
pub fn chain(mos: &Mos, dir: ObjectId) -> Result<Vec<ObjectId>> {
    upward(mos, dir).map(|step| step.map(|(id, _)| id)).collect()
}

/// As [`chain`], as an iterator with the decoded directories. Invalid parents give an error.
pub fn upward(mos: &Mos, dir: ObjectId) -> impl Iterator<Item = Result<(ObjectId, DslDir)>> {
    let (mut next, mut left) = (dir, DEPTH_MAX);
    std::iter::from_fn(move || {
        let id = std::mem::take(&mut next);
        if id.0 == 0 {
            return None;
        }
        let Some(fewer) = left.checked_sub(1) else { return Some(Err(tangled(dir))) };
        left = fewer;
        let step = mos.dir(id).map(|dir| (id, dir));
        if let Ok((_, dir)) = &step {
            next = dir.parent;
        }
        Some(step)
    })
}

/// Full name of a directory, from its ancestors' child maps.
pub fn name_of(view: &View<'_>, dir: ObjectId) -> Result<String> {
    let mut parts = Vec::new();
    for id in chain(view.mos, dir)?.windows(2) {
        parts.push(name_in(view.mos, id[1], id[0])?);
    }
    parts.push(view.pool.clone());
    parts.reverse();
    Ok(parts.join("/"))
}

/// The name of the directory `id` in `parent`. It may be a special one.
fn name_in(mos: &Mos, parent: ObjectId, id: ObjectId) -> Result<String> {
    for entry in zap::entries(&*mos.object(mos.dir(parent)?.child_dir_zap)?) {
        let entry = entry?;
        if entry.number() == Some(id.0) {
            return Ok(String::from_utf8_lossy(&entry.name).into_owned());
        }
    }
    Err(Error::corrupt(parent)(format::Corrupt::new("child map", id.0)))
}

/// The full name of `leaf` below `parent`.
///
/// # Errors
/// [`Error::BadName`]: it is not of the form that a user could have given.
pub fn full_name(parent: &str, delimiter: char, leaf: &[u8]) -> Result<String> {
    let full = format!("{parent}{delimiter}{}", String::from_utf8_lossy(leaf));
    // A name that is no UTF-8 contains a replacement character now, which is invalid in names.
    match names::check(&full) {
        Ok(_) => Ok(full),
        Err(why) => Err(Error::BadName { name: full, why }),
    }
}

/// Refuses a directory that was visited before, or that lies deeper than `level` levels can be: its parents are
/// damaged.
pub fn check_place(seen: &mut BTreeSet<ObjectId>, dir: ObjectId, level: usize) -> Result<()> {
    if seen.insert(dir) && level < DEPTH_MAX { Ok(()) } else { Err(tangled(dir)) }
}

/// Circular directories, or directories that are nested too deep.
pub fn tangled(dir: ObjectId) -> Error {
    Error::corrupt(dir)(format::Corrupt::new("dataset nesting", DEPTH_MAX as u64))
}

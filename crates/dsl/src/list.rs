//! Listing datasets: all below one, or the unfinished ones.
//!
//! Source: docs/format/06-mos-dsl.md §4–§6.

use std::collections::BTreeSet;

use dmu::zap;
use format::{ObjectId, dsl_dataset};

use crate::error::all_or_first_error;
use crate::info::{DatasetInfo, describe};
use crate::mos::Mos;
use crate::partial::resume;
use crate::tree::{check_place, dir_of, full_name, root_dir};
use crate::view::View;
use crate::{Error, Result};

/// A dataset and all below it, parents first, children by name; `depth` levels, all if `None`. Snapshots follow
/// their dataset in the order of their creation, if asked for.
///
/// # Errors
/// One of them cannot be read, or has an invalid name.
pub fn list(view: &View<'_>, top: &str, depth: Option<usize>, snapshots: bool) -> Result<Vec<DatasetInfo>> {
    all_or_first_error(|report| survey(view, top, (depth, snapshots), &mut |_, error| report(error)))
}

/// As [`list`], for callers that only show the list. Leaves out datasets that cannot be read, have invalid names or were
/// listed before, with all datasets below them. Calls `report` with the name of each.
///
/// # Errors
/// The top itself cannot be read.
pub fn survey(
    view: &View<'_>,
    top: &str,
    (depth, snapshots): (Option<usize>, bool),
    report: &mut dyn FnMut(String, Error),
) -> Result<Vec<DatasetInfo>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mos = view.mos;
    let dir = dir_of(mos, &view.pool, top)?;
    let mut queue = vec![(top.to_owned(), dir, 0)];
    while let Some((name, dir_id, level)) = queue.pop() {
        let entered = check_place(&mut seen, dir_id, level).and_then(|()| {
            let dir = mos.dir(dir_id)?;
            Ok((dir, describe(view, name.clone(), dir_id, dir, dir.head_dataset)?))
        });
        let (dir, head) = match entered {
            Ok(entered) => entered,
            Err(error) if level == 0 => return Err(error),
            Err(error) => {
                report(name, error);
                continue;
            }
        };
        let names = head.phys.snapnames_zap;
        found.push(head);
        if depth.is_some_and(|depth| level >= depth) {
            continue;
        }
        // Snapshots count as one level below their dataset.
        if snapshots {
            let mut snaps = Vec::new();
            for (full, id) in members(mos, names, &name, '@', report) {
                match describe(view, full.clone(), dir_id, dir, id) {
                    Ok(snap) => snaps.push(snap),
                    Err(error) => report(full, error),
                }
            }
            snaps.sort_by_key(|snap| snap.phys.creation_txg);
            found.extend(snaps);
        }
        let below = members(mos, dir.child_dir_zap, &name, '/', report).into_iter().rev();
        queue.extend(below.map(|(full, id)| (full, id, level + 1)));
    }
    Ok(found)
}

/// Full names and objects in the ZAP of snapshots (`delimiter` `@`) or of child directories (`/`) of `parent`, by name,
/// without the special directories. Calls `report` for unreadable entries and invalid names.
fn members(
    mos: &Mos,
    map: ObjectId,
    parent: &str,
    delimiter: char,
    report: &mut dyn FnMut(String, Error),
) -> Vec<(String, ObjectId)> {
    let mut found = Vec::new();
    let object = match mos.object(map) {
        Ok(object) => object,
        Err(error) => {
            report(parent.to_owned(), error);
            return found;
        }
    };
    for entry in zap::entries(&object) {
        match entry {
            Ok(entry) => {
                let Some(id) = entry.number() else { continue };
                if delimiter == '/' && matches!(entry.name.first(), Some(b'$' | b'%')) {
                    continue;
                }
                match full_name(parent, delimiter, &entry.name) {
                    Ok(full) => found.push((full, ObjectId(id))),
                    Err(error) => report(parent.to_owned(), error),
                }
            }
            Err(error) => report(parent.to_owned(), error.into()),
        }
    }
    found.sort_unstable();
    found
}

/// Heads of interrupted receives and destroys. Receives that can be resumed are left out.
pub fn unfinished(view: &View<'_>) -> Result<Vec<(String, ObjectId)>> {
    let mos = view.mos;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut queue = vec![(view.pool.clone(), root_dir(mos)?, 0)];
    while let Some((name, dir_id, level)) = queue.pop() {
        check_place(&mut seen, dir_id, level)?;
        let dir = mos.dir(dir_id)?;
        for entry in zap::entries(&*mos.object(dir.child_dir_zap)?) {
            let entry = entry?;
            let child = String::from_utf8_lossy(&entry.name).into_owned();
            if let Some(id) = entry.number().filter(|_| !child.starts_with('$')) {
                queue.push((format!("{name}/{child}"), ObjectId(id), level + 1));
            }
        }
        if dir.head_dataset.0 != 0 && is_unfinished(mos, dir.head_dataset)? {
            found.push((name, dir_id));
        }
    }
    Ok(found)
}

fn is_unfinished(mos: &Mos, head: ObjectId) -> Result<bool> {
    if mos.dataset(head)?.flags & dsl_dataset::INCONSISTENT == 0 {
        return Ok(false);
    }
    let object = mos.object(head)?;
    let zapified = object.object_type() == format::ObjectType::ZAP_METADATA;
    Ok(!zapified || zap::lookup(&object, resume::TOGUID.as_bytes())?.is_none())
}

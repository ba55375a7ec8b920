//! The datasets below a dataset that is copied completely.
//!
//! From:   the datasets of a pool and their mountpoints.
//! To:     which folder of a file system shows which other file system, as if all were mounted.

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::props::{DatasetKind, Value, dataset};
use pool::{DatasetInfo, Pool};
use zpl::FileKind;

use super::shown::{Numbered, Shown};
use crate::files::pools::Pools;
use crate::messages::Failure;
use crate::open::Intent;
use crate::place::PoolPath;

/// File systems that are read, by the names of their datasets.
pub type Opened = BTreeMap<String, Numbered>;

/// The file system of a place that is read, with its number. The same dataset gives the same number.
pub fn opened(place: &PoolPath, pools: &Pools, read: &mut Opened) -> Result<Numbered, Failure> {
    let name = place.dataset_name();
    if let Some(known) = read.get(&name) {
        return Ok(known.clone());
    }
    let opened = (read.len() as u64 + 1, pools.filesystem(place, Intent::Files)?);
    read.insert(name, opened.clone());
    Ok(opened)
}

/// The datasets that are shown below `place`: the descendants of its dataset; with a snapshot, their snapshots of that
/// name. Lines about descendants that cannot be copied go to `left`.
pub fn below(
    place: &PoolPath,
    pools: &Pools,
    read: &mut Opened,
    left: &mut Vec<String>,
) -> Result<Arc<Shown>, Failure> {
    let pool = pools.pool(place);
    let failed =
        |error| Failure::refused(format!("cannot read the datasets below '{}': {error}", place.dataset));
    let mut shown = Shown::default();
    let mut wanted: Vec<(Vec<u8>, DatasetInfo)> = Vec::new();
    let all = pool.list(&place.dataset, None, false).map_err(failed)?;
    let Some((top, descendants)) = all.split_first() else { return Ok(Arc::default()) };
    let point = mountpoint(pool, top).map_err(failed)?;
    for info in descendants {
        let path = path_below(
            &info.name[top.name.len()..],
            point.as_deref(),
            mountpoint(pool, info).map_err(failed)?,
        );
        if is_below(&path, &place.path) {
            wanted.push((path, info.clone()));
        }
    }
    // A file system may be shown inside another: that one comes first.
    wanted.sort_by(|(one, _), (other, _)| names(one).count().cmp(&names(other).count()).then(one.cmp(other)));
    let root = opened(place, pools, read)?;
    for (path, info) in wanted {
        let name = info.name.clone();
        let place =
            PoolPath { dataset: info.name.clone(), snapshot: place.snapshot.clone(), path: b"/".to_vec() };
        let done = can_be_shown(&info, &place, pool).and_then(|()| {
            let child = opened(&place, pools, read).map_err(|error| words(&error))?;
            enter(&mut shown, &root, &path, child)
        });
        match done {
            Ok(Beneath::Nothing) => {}
            Ok(Beneath::Files) => left.push(format!(
                "files in the folder that '{name}' is mounted on were not copied: the dataset takes their place"
            )),
            Err(why) => left.push(not_copied(&name, &why)),
        }
    }
    Ok(Arc::new(shown))
}

/// The line about a dataset that was not copied. Messages of other modules name it, too: here it is named once.
fn not_copied(name: &str, why: &str) -> String {
    let why = why.strip_prefix(&format!("cannot open '{name}': ")).unwrap_or(why);
    let why = why.replacen(&format!("'{name}' is"), "it is", 1);
    format!("'{name}' was not copied: {why}")
}

fn words(error: &Failure) -> String {
    match error {
        Failure::Refused(lines) => lines.first().cloned().unwrap_or_default(),
        _ => "it cannot be opened".to_owned(),
    }
}

/// Says why a dataset cannot be shown.
fn can_be_shown(info: &DatasetInfo, place: &PoolPath, pool: &Pool) -> Result<(), String> {
    if info.kind == DatasetKind::Volume {
        return Err("it is a volume and has no files".to_owned());
    }
    match &place.snapshot {
        Some(snapshot) if pool.dataset(&place.dataset_name()).is_err() => {
            Err(format!("it has no snapshot '@{snapshot}'"))
        }
        _ => Ok(()),
    }
}

/// Whether a dataset hides files of the folder in whose place it is shown.
enum Beneath {
    Nothing,
    /// Files of the folder that it is mounted on.
    Files,
}

/// Shows `child` at the path below `root`.
fn enter(shown: &mut Shown, root: &Numbered, path: &[u8], child: Numbered) -> Result<Beneath, String> {
    let (mut number, mut fs) = root.clone();
    let mut dir = fs.root();
    let mut rest = names(path).peekable();
    while let Some(name) = rest.next() {
        let last = rest.peek().is_none();
        if let Some((other, inside)) = shown.added_as((number, dir), name) {
            (number, fs) = (*other, inside.clone());
            dir = fs.root();
            continue;
        }
        match fs.lookup(dir, name).map_err(|error| error.to_string())? {
            None if last => {
                shown.add((number, dir), name, child);
                return Ok(Beneath::Nothing);
            }
            Some((id, FileKind::Directory)) => dir = id,
            _ => {
                return Err(
                    "the folder that it is mounted on is not there; name the dataset itself".to_owned()
                );
            }
        }
        if let Some((other, inside)) = shown.over(number, dir) {
            (number, fs) = (*other, inside.clone());
            dir = fs.root();
        } else if last {
            shown.show_over((number, dir), child);
            let hidden = fs.entries(dir).map_err(|error| error.to_string())?.next().is_some();
            return Ok(if hidden { Beneath::Files } else { Beneath::Nothing });
        }
    }
    Err("another dataset is mounted on the same folder; name the dataset itself".to_owned())
}

/// The mountpoint in effect, if it is a path.
fn mountpoint(pool: &Pool, info: &DatasetInfo) -> pool::Result<Option<String>> {
    let property = dataset::parse("mountpoint").expect("the table of properties has it");
    Ok(match pool.property(info, property)? {
        Some((Value::Text(path), _)) if path.starts_with('/') => Some(path.trim_end_matches('/').to_owned()),
        _ => None,
    })
}

/// The path of a dataset below another one: by their mountpoints, else by its name.
fn path_below(name: &str, top: Option<&str>, own: Option<String>) -> Vec<u8> {
    let by_point = top.zip(own.as_deref()).and_then(|(top, own)| own.strip_prefix(top));
    by_point.filter(|path| path.starts_with('/')).unwrap_or(name).as_bytes().to_vec()
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// Whether `path` lies in the folder `top` or below it.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    let mut path = names(path);
    names(top).all(|name| path.next() == Some(name)) && path.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_that_is_not_copied_is_named_once() {
        let why = "cannot open 't/a': 't/a' is encrypted, and its key is not loaded";
        assert_eq!(
            not_copied("t/a", why),
            "'t/a' was not copied: it is encrypted, and its key is not loaded"
        );
        assert_eq!(not_copied("t/a", "it is a volume"), "'t/a' was not copied: it is a volume");
    }

    #[test]
    fn a_dataset_lies_where_its_mountpoint_does_or_else_where_its_name_does() {
        let path = |name, top, own: Option<&str>| path_below(name, top, own.map(str::to_owned));
        assert_eq!(path("/a/b", Some("/tank"), Some("/tank/x")), b"/x");
        assert_eq!(path("/home", Some("/tank"), Some("/home")), b"/home");
        assert_eq!(path("/a", Some("/tank"), Some("/tank2/a")), b"/a");
        assert_eq!(path("/a", None, None), b"/a");
        assert!(is_below(b"/a/b", b"/") && is_below(b"/a/b", b"/a/") && is_below(b"/a/b", b"/./a"));
        assert!(!is_below(b"/a", b"/a") && !is_below(b"/ab", b"/a") && !is_below(b"/a", b"/a/b"));
    }
}

//! `cenote rm`, `cenote mkdir`, `cenote mv`.

use std::collections::HashSet;

use format::ObjectId;
use serde_json::{Value, json};
use zpl::{Error, FileKind, Filesystem, NewNode, Replace};

use super::{Mkdir, Mv, Rm};
use crate::around::Surroundings;
use crate::files::pools::{Kernel, Pools, refused};
use crate::files::walk::Unread;
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::Console;
use crate::place::PoolPath;
use crate::stop::Stop;

/// Makes the JSON for a place where something was changed.
type Told<'a> = Option<&'a dyn Fn(&PoolPath) -> Value>;

/// Opens the pools of `places` for writing, calls `each` for every place, and writes everything. Then it prints the
/// JSON that `told` makes of each place where `each` changed something.
fn change<'a>(
    places: impl IntoIterator<Item = &'a PoolPath> + Clone,
    around: &Surroundings,
    console: &mut Console,
    told: Told<'_>,
    mut each: impl FnMut(&'a PoolPath, &Filesystem, &Kernel) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let pools = Pools::open(places.clone().into_iter().map(|place| (place, Intent::Write)), around)?;
    let mut ended = Ok(());
    let mut changed = Vec::new();
    for place in places {
        let kernel = pools.kernel(place);
        match pools.filesystem(place, Intent::Write).and_then(|fs| each(place, &fs, &kernel)) {
            Ok(is_changed) => changed.extend(told.filter(|_| is_changed).map(|told| told(place).to_string())),
            Err(failure) => {
                if let Err(failure) = console.complain(failure) {
                    ended = Err(failure);
                    break;
                }
            }
        }
    }
    pools.finish().and(ended)?;
    changed.iter().try_for_each(|line| console.line(line))
}

/// Carries out `rm`. Returns the exit status when it was stopped.
///
/// # Errors
/// A pool cannot be opened, or not be written.
pub fn rm(rm: &Rm, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    let stop = around.stop()?;
    let told = |place: &PoolPath| json!({ "removed": place.to_string() });
    change(&rm.places, around, console, rm.json.then_some(&told), |place, fs, kernel| {
        let failed = |error| refused("remove", place, error);
        let (dir, name) = match fs.resolve_parent(&place.path) {
            Ok(found) => found,
            Err(Error::NotFound | Error::NotDir) if rm.force => return Ok(false),
            Err(Error::Invalid) => {
                return Err(failed(Error::Invalid).hint("name something inside the dataset"));
            }
            Err(error) => return Err(failed(error)),
        };
        match fs.lookup(dir, name).map_err(failed)? {
            None if rm.force => Ok(false),
            None => Err(failed(Error::NotFound)),
            Some((id, FileKind::Directory)) if rm.recursive => {
                let top = Folder { parent: dir, name: name.to_vec(), id };
                let removed = remove_tree(fs, kernel, top, &stop);
                removed.map(|()| !stop.asked()).map_err(|error| refused("remove", place, error))
            }
            Some((_, FileKind::Directory)) => {
                Err(Failure::refused(format!("'{place}' is a folder: remove folders with -r")))
            }
            Some((id, _)) => {
                fs.unlink(dir, name).map_err(failed)?;
                kernel.entry(dir, name);
                kernel.node(id);
                Ok(true)
            }
        }
    })?;
    Ok(if stop.asked() { stop.status() } else { 0 })
}

/// Names of a folder that are removed before it is read again.
const BATCH: usize = 4096;

/// A folder, and where its name is.
#[derive(Clone)]
struct Folder {
    parent: ObjectId,
    name: Vec<u8>,
    id: ObjectId,
}

/// Removes a folder with all it holds, children first, until it is time to stop.
fn remove_tree(fs: &Filesystem, kernel: &Kernel, top: Folder, stop: &Stop) -> Result<(), Unread> {
    // The folders of `todo`. In a damaged or hostile pool, a folder may contain itself.
    let mut open = HashSet::from([top.id]);
    let mut todo = vec![top];
    while let Some(Folder { parent, name, id }) = todo.last().cloned() {
        let depth = todo.len();
        let mut batch = Vec::new();
        for entry in fs.entries(id)?.take(BATCH) {
            batch.push(entry?);
        }
        for entry in batch {
            if stop.asked() {
                return Ok(());
            }
            match entry.kind {
                FileKind::Directory if !open.insert(entry.id) => return Err(Unread::Twice),
                FileKind::Directory => todo.push(Folder { parent: id, name: entry.name, id: entry.id }),
                _ => {
                    fs.unlink(id, &entry.name)?;
                    kernel.entry(id, &entry.name);
                }
            }
        }
        if todo.len() == depth {
            match fs.rmdir(parent, &name) {
                Ok(()) => {
                    kernel.entry(parent, &name);
                    open.remove(&id);
                    todo.pop();
                }
                // More than one batch was in it.
                Err(Error::NotEmpty) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Carries out `mkdir`.
///
/// # Errors
/// As [`rm`].
pub fn mkdir(mkdir: &Mkdir, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let mut new = NewNode::new(FileKind::Directory, 0o777 & !around.umask());
    new.uid = rustix::process::geteuid().as_raw();
    new.gid = rustix::process::getegid().as_raw();
    let told = |place: &PoolPath| json!({ "created": place.to_string() });
    change(&mkdir.places, around, console, mkdir.json.then_some(&told), |place, fs, kernel| {
        let failed = |error| refused("create", place, error);
        if !mkdir.parents {
            let (dir, name) = match fs.resolve_parent(&place.path) {
                // The root of a dataset is always there.
                Err(Error::Invalid) => return Err(failed(Error::Exists)),
                found => found.map_err(failed)?,
            };
            fs.create(dir, name, &new).map_err(failed)?;
            kernel.entry(dir, name);
            return Ok(true);
        }
        let mut is_made = false;
        let mut dir = fs.root();
        let mut prefix = Vec::new();
        for name in place.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            prefix.push(b'/');
            prefix.extend_from_slice(name);
            dir = match fs.lookup(dir, name).map_err(failed)? {
                Some((id, FileKind::Directory)) => id,
                Some((_, FileKind::Symlink)) => fs.resolve(&prefix, true).map_err(failed)?,
                Some(_) => return Err(failed(Error::NotDir)),
                None => {
                    let made = fs.create(dir, name, &new).map_err(failed)?;
                    kernel.entry(dir, name);
                    is_made = true;
                    made
                }
            };
        }
        match fs.stat(dir).map_err(failed)?.kind {
            FileKind::Directory => Ok(is_made),
            _ => Err(failed(Error::NotDir)),
        }
    })
}

/// Carries out `mv`.
///
/// # Errors
/// As [`rm`].
pub fn mv(mv: &Mv, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let to = &mv.destination;
    if let Some(other) = mv.sources.iter().find(|place| place.dataset_name() != to.dataset_name()) {
        let line = format!("cannot move '{other}' to '{to}': they are in different datasets");
        return Err(Failure::refused(line).hint("copy with 'cenote cp -rp', then remove with 'cenote rm -r'"));
    }
    let told = |from: &PoolPath| json!({ "moved": from.to_string(), "to": to.to_string() });
    change(&mv.sources, around, console, mv.json.then_some(&told), |from, fs, kernel| {
        let failed = |error: Error| Failure::refused(format!("cannot move '{from}' to '{to}': {error}"));
        let (dir, name) = fs.resolve_parent(&from.path).map_err(failed)?;
        let into = match fs.resolve(&to.path, true) {
            Ok(id) => (fs.stat(id).map_err(failed)?.kind == FileKind::Directory).then_some(id),
            Err(Error::NotFound) => None,
            Err(error) => return Err(failed(error)),
        };
        let (new_dir, new_name) = match into {
            Some(id) => (id, name),
            None if mv.sources.len() > 1 => return Err(failed(Error::NotDir)),
            None => fs.resolve_parent(&to.path).map_err(failed)?,
        };
        fs.rename(dir, name, new_dir, new_name, Replace::Allowed).map_err(failed)?;
        kernel.entry(dir, name);
        kernel.entry(new_dir, new_name);
        Ok(true)
    })
}

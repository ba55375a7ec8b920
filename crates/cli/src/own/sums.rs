//! The space that folders and files take: the walk that `cenote du` and `cenote usage` share.
//!
//! From:   walks through datasets or snapshots, in which a folder comes after its contents.
//! To:     a sum for each file and each folder. Memory grows with the depth of the tree and the number of files with several
//!         names.

use std::collections::{HashMap, HashSet};

use pool::props::DatasetKind;
use zpl::{FileKind, Filesystem};

use crate::files::pools::{Pools, refused};
use crate::files::walk::{Order, Walk};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, quoted};
use crate::place::PoolPath;

/// Bytes of a block as `stat` counts them.
pub const BLOCK: u64 = 512;

/// The space of a file, or of a folder with everything in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Lengths of the regular files, in bytes.
    pub size: u64,
    /// Bytes in the pool.
    pub disk: u64,
    /// Number of entries that are no folders.
    pub files: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.size += other.size;
        self.disk += other.disk;
        self.files += other.files;
    }

    /// Length over space in the pool. Where one of them is nothing there is no ratio: an empty folder has none.
    pub fn ratio(&self) -> Option<f64> {
        (self.disk > 0 && self.size > 0).then(|| self.size as f64 / self.disk as f64)
    }
}

/// A file or folder and its space.
#[derive(Debug)]
pub struct Line {
    /// The place that the user named, and the path below it.
    pub path: Vec<u8>,
    /// Levels below the place that the user named.
    pub depth: usize,
    pub is_dir: bool,
    pub sum: Sum,
}

/// Calls `found` for each file and each folder of `place`, a folder after its contents. If `place` is a whole dataset, the
/// datasets below it are included, as if each were a folder of the one above, except with `alone`. If it is a snapshot,
/// their snapshots of the same name are included; a dataset without one did not exist at that time. For files and folders
/// that cannot be read, this prints an error and leaves them out.
///
/// # Errors
/// Those of `found`; `place` itself cannot be opened.
pub fn of_place(
    (place, pools): (&PoolPath, &Pools),
    alone: bool,
    console: &mut Console,
    mut found: impl FnMut(&mut Console, Line) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let top = pools.filesystem(place, Intent::Files)?;
    let below = if alone { Vec::new() } else { datasets_below(place, pools)? };
    let names = below.iter().map(|(place, _)| place.dataset.clone()).collect();
    let mut tree = Tree { sums: HashMap::new(), names };
    for (place, depth) in below {
        match pools.filesystem(&place, Intent::Files) {
            Ok(fs) => tree.add((&place, depth), &fs, console, &mut found)?,
            Err(error) => {
                console.complain(error)?;
                tree.leave(&place, Sum::default());
            }
        }
    }
    tree.add((place, 0), &top, console, &mut found)
}

/// The sums of the datasets below those whose turn is still to come, by the names of the latter.
struct Tree {
    sums: HashMap<String, Sum>,
    /// All datasets below the place that the user named.
    names: HashSet<String>,
}

impl Tree {
    /// Adds up a dataset that is `depth` levels below the place that the user named. All below it were added up before.
    fn add(
        &mut self,
        (place, depth): (&PoolPath, usize),
        fs: &Filesystem,
        console: &mut Console,
        found: &mut impl FnMut(&mut Console, Line) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let below = self.sums.get(&place.dataset).copied().unwrap_or_default();
        let mut own = Sum::default();
        let (names, top) = (&self.names, place.to_string());
        // The empty folder that a dataset is mounted on has the line of that dataset.
        let is_mounted_on = |line: &Line| {
            let path = line.path.strip_prefix(top.as_bytes()).and_then(|path| std::str::from_utf8(path).ok());
            let name = |path: &str| format!("{}/{}", place.dataset, path.trim_start_matches('/'));
            line.is_dir && line.sum.files == 0 && path.is_some_and(|path| names.contains(&name(path)))
        };
        let walk = fs.resolve(&place.path, false).and_then(|id| Walk::new(fs, id, true, Order::Backward));
        match walk {
            Ok(walk) => add_up(place, fs, walk, console, |console, mut line| {
                if line.depth == 0 {
                    own = line.sum;
                    line.sum.add(below);
                }
                if is_mounted_on(&line) {
                    return Ok(());
                }
                line.depth += depth;
                found(console, line)
            })?,
            Err(error) => console.complain(refused("read", place, error))?,
        }
        self.leave(place, own);
        Ok(())
    }

    /// Adds the sum of a dataset, with everything below it, to the sum of the dataset above.
    fn leave(&mut self, place: &PoolPath, own: Sum) {
        let mut whole = self.sums.remove(&place.dataset).unwrap_or_default();
        whole.add(own);
        if let Some((parent, _)) = place.dataset.rsplit_once('/') {
            self.sums.entry(parent.to_owned()).or_default().add(whole);
        }
    }
}

/// The file systems below a place that is a whole dataset, with the number of levels from there. Each comes before its
/// parent.
fn datasets_below(place: &PoolPath, pools: &Pools) -> Result<Vec<(PoolPath, usize)>, Failure> {
    if place.path.iter().any(|byte| !b"/.".contains(byte)) {
        return Ok(Vec::new());
    }
    let pool = pools.pool(place);
    let all = pool.list(&place.dataset, None, false).map_err(|error| {
        Failure::refused(format!("cannot read the datasets below '{}': {error}", place.dataset))
    })?;
    let levels = |name: &str| name.matches('/').count();
    let mut datasets = Vec::new();
    for info in all.into_iter().skip(1).filter(|info| info.kind != DatasetKind::Volume) {
        let depth = levels(&info.name) - levels(&place.dataset);
        let inner = PoolPath { dataset: info.name, snapshot: place.snapshot.clone(), path: b"/".to_vec() };
        if inner.snapshot.is_none() || pool.dataset(&inner.dataset_name()).is_ok() {
            datasets.push((inner, depth));
        }
    }
    datasets.reverse();
    Ok(datasets)
}

/// Calls `found` for each file and each folder of `walk`, a folder after its contents. A file with several names counts once.
/// For an entry that cannot be read, it prints an error and leaves the entry out.
///
/// # Errors
/// Those of `found`; the walk ends at the first.
fn add_up(
    place: &PoolPath,
    fs: &Filesystem,
    walk: Walk,
    console: &mut Console,
    mut found: impl FnMut(&mut Console, Line) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let top = place.to_string().into_bytes();
    let below = |path: &[u8]| match path {
        b"." => top.clone(),
        path => [&top[..], if top.ends_with(b"/") { b"" } else { b"/" }, path].concat(),
    };
    // For each depth, the sum of the entries whose folder the walk has not reached yet.
    let mut sums = vec![Sum::default()];
    let mut counted = HashSet::new();
    for step in walk {
        let read = step.and_then(|step| match fs.stat(step.id) {
            Ok(stat) => Ok((step, stat)),
            Err(error) => Err((step.path, error.into())),
        });
        let (step, stat) = match read {
            Ok(read) => read,
            Err((path, error)) => {
                let shown = quoted(&below(&path));
                console.complain(Failure::refused(format!("cannot read '{shown}': {error}")))?;
                continue;
            }
        };
        let is_dir = stat.kind == FileKind::Directory;
        if !is_dir && stat.nlink > 1 && !counted.insert(stat.id) {
            continue;
        }
        // The size of a folder is the number of its entries, not a number of bytes.
        let size = if stat.kind == FileKind::Regular { stat.size } else { 0 };
        let mut sum = Sum { size, disk: stat.blocks * BLOCK, files: u64::from(!is_dir) };
        if is_dir {
            // If a folder cannot be read, its contents are added to the folder above it.
            sums.drain((step.depth + 1).min(sums.len())..).for_each(|inside| sum.add(inside));
        }
        sums.resize(sums.len().max(step.depth + 1), Sum::default());
        sums[step.depth].add(sum);
        found(console, Line { path: below(&step.path), depth: step.depth, is_dir, sum })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bytes_in_the_pool_there_is_no_ratio() {
        assert_eq!(Sum::default().ratio(), None);
        assert_eq!(Sum { size: 0, disk: 512, files: 0 }.ratio(), None);
        assert_eq!(Sum { size: 300, disk: 100, files: 1 }.ratio(), Some(3.0));
    }
}

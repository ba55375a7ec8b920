//! Moved or deleted device files of a served pool.
//!
//! From:   the files that the pool's server has open, as the system shows them.
//! To:     paths by which this process opens the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pool::known::KnownPool;
use server::Figures;

/// The folder in which the system shows the open files of processes.
const OPEN_FILES: &str = "/proc";

/// Below [`OPEN_FILES`] of the server that holds a pool: what may be its devices, each once. A device that is where the list of
/// pools has it is named by that path: the server of a pool that is only read has no lock by which it could be told.
pub fn held_open(known: &KnownPool) -> Option<Vec<PathBuf>> {
    if !crate::connect::is_used() {
        return None;
    }
    let server = crate::connect::connect(&known.name).ok()??;
    if server.guid != known.guid.0 {
        return None;
    }
    let identity =
        |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let in_place: BTreeMap<_, &PathBuf> =
        known.devices.iter().filter_map(|path| Some((identity(path)?, path))).collect();
    let mut seen = BTreeSet::new();
    let entries = std::fs::read_dir(format!("{OPEN_FILES}/{}/fd", server.pid)).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_device = |path: &PathBuf| {
        let Ok(metadata) = std::fs::metadata(path) else { return false };
        let kind = metadata.file_type();
        (kind.is_file() || kind.is_block_device()) && seen.insert((metadata.dev(), metadata.ino()))
    };
    let named = |path: PathBuf| match identity(&path).and_then(|file| in_place.get(&file)) {
        Some(known) => known.to_path_buf(),
        None => path,
    };
    Some(paths.filter(is_device).map(named).collect())
}

/// Facts from the server of an imported pool, even if the pool cannot be read from here.
pub fn figures_of(name: &str, known: Option<&KnownPool>) -> Option<Figures> {
    if !crate::connect::is_used() {
        return None;
    }
    let client = crate::connect::connect(name).ok()??;
    let is_own = known.is_some_and(|known| known.guid.0 == client.guid);
    is_own.then(|| client.figures().ok()).flatten()
}

/// Whether a device is not where it was, and only its server has it.
pub fn is_gone(device: &Path) -> bool {
    device.starts_with(OPEN_FILES)
}

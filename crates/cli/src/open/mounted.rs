//! The mounts of this user, with the present names of their datasets.
//!
//! From:   the kernel's list of mounts, and the servers, which know of renames.
//! To:     commands that show or change mounts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use server::mountinfo::Mounted;

use super::pool_of;
use crate::around::Surroundings;

/// The mounts of this user, with the present names of their datasets.
pub fn mounted(around: &Surroundings) -> Vec<Mounted> {
    let mut all = kernel_mounts();
    let pools: BTreeSet<String> = all.iter().map(|mount| pool_of(&mount.dataset).to_owned()).collect();
    let now: BTreeMap<PathBuf, String> = pools.iter().flat_map(|pool| names_now(pool, around)).collect();
    for mount in &mut all {
        if let Some(name) = now.get(&mount.point).filter(|name| pool_of(name) == pool_of(&mount.dataset)) {
            mount.dataset.clone_from(name);
        }
    }
    all
}

/// What the servers of these pools have mounted, in the order in which it was mounted.
pub fn mounted_by(pools: &[String], around: &Surroundings) -> Vec<Mounted> {
    let now: BTreeMap<PathBuf, String> = pools.iter().flat_map(|pool| names_now(pool, around)).collect();
    let named = |mount: Mounted| Some(Mounted { dataset: now.get(&mount.point)?.clone(), ..mount });
    kernel_mounts().into_iter().filter_map(named).collect()
}

/// The dataset that `path` lies in, by the name that it has now.
///
/// # Errors
/// `path` cannot be looked at.
pub fn dataset_of(path: &Path, around: &Surroundings) -> std::io::Result<Option<Mounted>> {
    let Some(mut mount) = server::mountinfo::dataset_of(path)? else { return Ok(None) };
    let now = names_now(pool_of(&mount.dataset), around);
    if let Some((_, name)) = now.into_iter().find(|(point, _)| *point == mount.point) {
        mount.dataset = name;
    }
    Ok(Some(mount))
}

/// What the server of a pool has mounted where: the kernel keeps the name that a file system was mounted under.
fn names_now(pool: &str, around: &Surroundings) -> Vec<(PathBuf, String)> {
    let own = match around.live().filter(|live| live.name() == pool) {
        Some(live) => live.mounts(),
        None => {
            let client = crate::connect::connect(pool).ok().flatten();
            client.and_then(|client| client.status().ok()).map_or_else(Vec::new, |status| status.mounts)
        }
    };
    own.into_iter().map(|(name, point)| (point, name)).collect()
}

/// The mounts of this user, from the kernel's list.
pub fn kernel_mounts() -> Vec<Mounted> {
    let user = rustix::process::geteuid().as_raw();
    let mut all = server::mountinfo::mounted().unwrap_or_default();
    all.retain(|mount| mount.user == Some(user));
    all
}

//! The mounts of this user, with the present names of their datasets.
//!
//! From:   the kernel's list of mounts, and the servers, which know of renames and of file systems that they show within
//!         other mounts.
//! To:     commands that show or change mounts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use server::Live;
use server::messages::Status;
use server::mountinfo::Mounted;

use super::pool_of;
use crate::around::Surroundings;

/// The mount option of a read-only mount.
const READ_ONLY: &str = "ro";

/// The mounts of a server.
#[derive(Default)]
pub struct Served {
    /// The names that the datasets have now: the kernel keeps those that they were mounted under.
    names: BTreeMap<PathBuf, String>,
    /// Those that are shown within other mounts; with each, whether it may be read alone.
    within: BTreeMap<PathBuf, bool>,
}

impl Served {
    /// The mounts of the pool that this process serves.
    pub fn of_live(live: &Live) -> Served {
        let names = live.mounts().into_iter().map(|(name, point)| (point, name)).collect();
        Served { names, within: live.shown_within().into_iter().collect() }
    }

    /// Those of another server.
    pub fn of_status(status: Status) -> Served {
        let names = status.mounts.into_iter().map(|(name, point)| (point, name)).collect();
        Served { names, within: status.within.into_iter().collect() }
    }

    /// Those of several servers.
    fn of_all(pools: impl IntoIterator<Item = impl AsRef<str>>, around: &Surroundings) -> Served {
        let mut all = Served::default();
        for pool in pools {
            let Served { names, within } = now(pool.as_ref(), around);
            all.names.extend(names);
            all.within.extend(within);
        }
        all
    }

    /// The file system that is shown at `point`, within the mount `base`.
    fn shown(&self, point: &Path, base: &Mounted) -> Option<Mounted> {
        let read_only = *self.within.get(point)?;
        let dataset = self.names.get(point)?.clone();
        let others = base.denied.iter().copied().filter(|word| *word != READ_ONLY);
        let denied = read_only.then_some(READ_ONLY).into_iter().chain(others).collect();
        Some(Mounted { dataset, point: point.to_owned(), user: base.user, denied })
    }

    /// Adds, to the mounts that the kernel has, those that are shown within them.
    pub fn with_shown(&self, kernel: Vec<Mounted>) -> Vec<Mounted> {
        let base_of = |point: &Path| {
            let above = kernel.iter().filter(|mount| point.starts_with(&mount.point));
            above.max_by_key(|mount| mount.point.as_os_str().len())
        };
        let shown: Vec<Mounted> =
            self.within.keys().filter_map(|point| self.shown(point, base_of(point)?)).collect();
        kernel.into_iter().chain(shown).collect()
    }

    /// A mount by the name that its dataset has now, if it is this server's.
    pub fn named(&self, mount: Mounted) -> Option<Mounted> {
        Some(Mounted { dataset: self.names.get(&mount.point)?.clone(), ..mount })
    }
}

/// The mounts of this user, with the present names of their datasets.
pub fn mounted(around: &Surroundings) -> Vec<Mounted> {
    let kernel = kernel_mounts();
    let pools: BTreeSet<String> = kernel.iter().map(|mount| pool_of(&mount.dataset).to_owned()).collect();
    let now = Served::of_all(pools, around);
    let mut all = now.with_shown(kernel);
    for mount in &mut all {
        if let Some(name) =
            now.names.get(&mount.point).filter(|name| pool_of(name) == pool_of(&mount.dataset))
        {
            mount.dataset.clone_from(name);
        }
    }
    all
}

/// The mounts of the servers of these pools, in the order in which they were made.
pub fn mounted_by(pools: &[String], around: &Surroundings) -> Vec<Mounted> {
    let now = Served::of_all(pools, around);
    now.with_shown(kernel_mounts()).into_iter().filter_map(|mount| now.named(mount)).collect()
}

/// The dataset that `path` lies in, by the name that it has now.
///
/// # Errors
/// `path` cannot be looked at.
pub fn dataset_of(path: &Path, around: &Surroundings) -> std::io::Result<Option<Mounted>> {
    let full = std::fs::canonicalize(path)?;
    let Some(mut mount) = server::mountinfo::dataset_of(&full)? else { return Ok(None) };
    let now = now(pool_of(&mount.dataset), around);
    let inner = full.ancestors().take_while(|above| *above != mount.point);
    if let Some(shown) = inner.into_iter().find_map(|above| now.shown(above, &mount)) {
        return Ok(Some(shown));
    }
    if let Some(name) = now.names.get(&mount.point) {
        mount.dataset.clone_from(name);
    }
    Ok(Some(mount))
}

/// The present mounts of the server of a pool.
fn now(pool: &str, around: &Surroundings) -> Served {
    if let Some(live) = around.live().filter(|live| live.name() == pool) {
        return Served::of_live(live);
    }
    let client = crate::connect::connect(pool).ok().flatten();
    client.and_then(|client| client.status().ok()).map(Served::of_status).unwrap_or_default()
}

/// The mounts of this user, as the kernel lists them.
fn kernel_mounts() -> Vec<Mounted> {
    let user = rustix::process::geteuid().as_raw();
    let mut all = server::mountinfo::mounted().unwrap_or_default();
    all.retain(|mount| mount.user == Some(user));
    all
}

/// The mounts that the kernel lists, and those of `now` within them, by the names that `now` has.
pub fn mounts_of(now: &Served) -> Vec<Mounted> {
    now.with_shown(kernel_mounts()).into_iter().filter_map(|mount| now.named(mount)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(dataset: &str, point: &str, denied: &[&'static str]) -> Mounted {
        Mounted { dataset: dataset.into(), point: point.into(), user: Some(7), denied: denied.to_vec() }
    }

    #[test]
    fn file_systems_shown_within_a_mount_are_listed_as_mounts_with_their_options() {
        let names = [("/t", "tank"), ("/t/a", "tank/new"), ("/t/a/b", "tank/new/b"), ("/gone/x", "tank/x")];
        let now = Served {
            names: names.iter().map(|(point, name)| (PathBuf::from(point), (*name).into())).collect(),
            within: [("/t/a", false), ("/t/a/b", true), ("/gone/x", false)]
                .map(|(point, ro)| (PathBuf::from(point), ro))
                .into(),
        };
        let base = mount("tank", "/t", &["ro", "nosuid"]);
        let all = now.with_shown(vec![base.clone(), mount("dozer", "/d", &[])]);
        let wanted = [
            base,
            mount("dozer", "/d", &[]),
            mount("tank/new", "/t/a", &["nosuid"]),
            mount("tank/new/b", "/t/a/b", &["ro", "nosuid"]),
        ];
        assert_eq!(all, wanted);
        assert_eq!(now.named(all[1].clone()), None);
    }
}

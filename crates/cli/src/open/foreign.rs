//! Pools that other users of this machine have imported, and those that this user uses without importing them. Such a pool must
//! not be reported as missing.
//!
//! From:   the kernel's list of mounts and the folder of the sockets for visitors, which everybody may read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pool::props::names;
use server::{Runtime, visitors};

use super::not_open::how_to_reach;
use super::{NotOpen, pool_of};
use crate::connect;
use crate::front_ends::MOUNTER;
use crate::messages::{Action, Failure, reason};
use crate::out::Console;

/// A pool of another user.
#[derive(Clone, Copy)]
struct Foreign {
    user: u32,
    /// Its server answers other users who look at it.
    is_shared: bool,
}

/// The pools of which other users have mounted file systems or which root shares, with the user of each.
fn all() -> BTreeMap<String, Foreign> {
    let user = rustix::process::geteuid().as_raw();
    let mounts = server::mountinfo::mounted().unwrap_or_default();
    let foreign = mounts.into_iter().filter_map(|mount| {
        let owner = mount.user.filter(|owner| *owner != user)?;
        let name = pool_of(&mount.dataset).to_owned();
        // Anybody can give a mount any name.
        let found = Foreign { user: owner, is_shared: false };
        names::check_pool(&name, false).is_ok().then_some((name, found))
    });
    let mut all: BTreeMap<String, Foreign> = foreign.collect();
    if user != 0 {
        all.extend(visitors::shared().into_iter().map(|name| (name, Foreign { user: 0, is_shared: true })));
    }
    all
}

/// The failure of not finding the pool `name` among those of this user.
pub fn missing(name: &str) -> NotOpen {
    match all().get(name) {
        Some(&Foreign { user, is_shared }) => NotOpen::Foreign { name: name.to_owned(), user, is_shared },
        None => match unlisted(name) {
            Some(device) => NotOpen::Unlisted { name: name.to_owned(), device },
            None => NotOpen::Missing(name.to_owned()),
        },
    }
}

/// A device of the pool `name`, if a server of this user holds the pool and the list of imported pools lacks it: the server was
/// started by a command with `-d`.
fn unlisted(name: &str) -> Option<PathBuf> {
    if !connect::is_used() {
        return None;
    }
    let server = server::client::connect(&Runtime::of_user(), name, MOUNTER).ok()??;
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid)).ok()?;
    let paths = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_absolute() && path.exists()).collect();
    paths.sort();
    paths.dedup();
    let mut pools = pool::discover(&paths).into_iter();
    pools.find(|found| found.config.pool_guid.0 == server.guid)?.devices.into_values().next()
}

/// The pools of which servers of this user have a socket, by name.
fn served() -> Vec<String> {
    let entries = std::fs::read_dir(Runtime::of_user().folder()).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned());
    entries.filter_map(name).collect()
}

/// As [`missing`], for commands that are about pools.
pub fn no_such_pool(name: &str) -> Failure {
    match missing(name) {
        NotOpen::Missing(name) => Action::Open(&name).failed(reason::NO_SUCH_POOL),
        other => other.into(),
    }
}

/// Tells people which pools of other users are mounted, where this user has none.
pub fn remark(console: &mut Console) {
    for (name, Foreign { user, is_shared }) in all() {
        let why = NotOpen::Foreign { name: name.clone(), user, is_shared };
        console.explain(&format!("cenote: {}: {why}", Action::Open(&name)));
    }
    for name in served() {
        if let Some(device) = unlisted(&name) {
            console.explain(&format!("cenote: {}", how_to_reach(&name, &device)));
        }
    }
}

//! Pools that other users of this machine have imported. Such a pool must not be reported as missing.
//!
//! From:   the kernel's list of mounts and the folder of the sockets for visitors, which everybody may read.

use std::collections::BTreeMap;

use pool::props::names;
use server::visitors;

use super::{NotOpen, pool_of};
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
        None => NotOpen::Missing(name.to_owned()),
    }
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
}

//! Pools that other users of this machine have mounted. Their servers answer only their own users, but such a pool is not
//! missing, and nobody is told so.
//!
//! From:   the kernel's list of mounts, which everybody may read.

use std::collections::BTreeMap;

use pool::props::names;

use super::{NotOpen, pool_of};
use crate::messages::{Action, Failure, reason};
use crate::out::Console;

/// The pools of which other users have mounted file systems, with the user of each.
fn all() -> BTreeMap<String, u32> {
    let user = rustix::process::geteuid().as_raw();
    let mounts = server::mountinfo::mounted().unwrap_or_default();
    let foreign = mounts.into_iter().filter_map(|mount| {
        let owner = mount.user.filter(|owner| *owner != user)?;
        let name = pool_of(&mount.dataset).to_owned();
        // Anybody can give a mount any name.
        names::check_pool(&name, false).is_ok().then_some((name, owner))
    });
    foreign.collect()
}

/// The failure of not finding the pool `name` among those of this user.
pub fn missing(name: &str) -> NotOpen {
    match all().get(name) {
        Some(user) => NotOpen::Foreign { name: name.to_owned(), user: *user },
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

/// Says which pools of other users are mounted, where this user has none.
pub fn remark(console: &mut Console) {
    for (name, user) in all() {
        let why = NotOpen::Foreign { name: name.clone(), user };
        console.remark(&format!("cenote: {}: {why}", Action::Open(&name)));
    }
}

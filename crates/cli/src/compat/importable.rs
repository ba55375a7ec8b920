//! The list of pools that could be imported.

use format::config::PoolState;
use pool::{Found, Pool};

use super::view::{self, Naming, State, VdevView};
use crate::messages::{Failure, plain};
use crate::open;
use crate::out::Console;

/// Lists what could be imported.
pub(super) fn list(console: &mut Console, pools: &[Found]) -> Result<(), Failure> {
    for (i, found) in pools.iter().enumerate() {
        if i > 0 {
            console.line("")?;
        }
        let mut found = found.clone();
        if found.config.has_removed() {
            // If they cannot be read, they are shown as missing, as other devices of the pool may be.
            let removed = Pool::removed_vdevs(&found).unwrap_or_default();
            found.tops.extend(removed.into_iter().map(|vdev| (vdev.id, vdev)));
        }
        let tree = view::found_tree(&found, Naming::default());
        let worst = tree.iter().map(|vdev| vdev.state).max().unwrap_or(State::Unavail);
        let state = if worst > State::Degraded { State::Unavail } else { worst };
        console.line(&format!("  pool: {}", found.config.name))?;
        console.line(&format!("    id: {}", found.config.pool_guid.0))?;
        let mark = if found.config.state == PoolState::Destroyed { " (DESTROYED)" } else { "" };
        console.line(&format!(" state: {}{mark}", state.word()))?;
        advice(console, &found, state)?;
        console.line("config:\n")?;
        let width =
            tree.iter().map(|vdev| width(vdev, 2)).max().unwrap_or(0).max(found.config.name.len()).max(10);
        console.line(&format!("\t{:width$}  {}", found.config.name, state.word()))?;
        let mut tree = tree;
        tree.sort_by_key(|vdev| vdev.class);
        let mut last = view::Class::Normal;
        for vdev in &tree {
            if vdev.class != last {
                console.line(&format!("\t{}", vdev.class.heading()))?;
                last = vdev.class;
            }
            print_vdev(console, vdev, 2, width)?;
        }
    }
    Ok(())
}

/// What is wrong with the pool, and what to do.
fn advice(console: &mut Console, found: &Found, state: State) -> Result<(), Failure> {
    if let Some(error) = open::held(found) {
        console.line(&format!("status: {error}."))?;
        return console.line("action: The pool cannot be imported as long as that process uses it.");
    }
    if found.has_heartbeats
        && let Err(error) = Pool::watch(found, &pool::Options::default())
    {
        return advice_on_others(console, &error);
    }
    match state {
        State::Online => {
            console.line("action: The pool can be imported using its name or numeric identifier.")
        }
        State::Degraded => {
            console.line("status: One or more devices are missing from the system.")?;
            console.line("action: The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may be compromised if imported.")?;
            console.line("   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q")
        }
        _ => {
            console.line("status: One or more devices are missing from the system.")?;
            console
                .line("action: The pool cannot be imported. Attach the missing\n\tdevices and try again.")?;
            console.line("   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-3C")
        }
    }
}

/// A pool with `multihost` on that cannot be imported, and what to do.
fn advice_on_others(console: &mut Console, error: &pool::Error) -> Result<(), Failure> {
    match error {
        pool::Error::ActiveElsewhere { host, hostid } => {
            console.line("status: The pool is currently imported by another system.")?;
            let from = plain(host);
            console.line(&format!("action: The pool must be exported from {from} (hostid={hostid:x})\n\tbefore it can be safely imported."))?;
        }
        pool::Error::NoHostId => {
            console.line("status: The pool has the multihost property on.  It cannot\n\tbe safely imported when the system hostid is not set.")?;
            console.line("action: Set a unique system hostid with the zgenhostid(8) command.")?;
        }
        other => {
            console.line(&format!("status: {}.", plain(other)))?;
            console.line("action: The pool cannot be imported.")?;
        }
    }
    console.line("   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-EY")
}

/// The name of a vdev in the list: where it was, if it is not there.
fn shown(vdev: &VdevView) -> &str {
    vdev.path.as_deref().unwrap_or(&vdev.name)
}

fn width(vdev: &VdevView, indent: usize) -> usize {
    let own = indent + shown(vdev).len();
    vdev.children.iter().map(|child| width(child, indent + 2)).max().unwrap_or(0).max(own)
}

fn print_vdev(console: &mut Console, vdev: &VdevView, indent: usize, full: usize) -> Result<(), Failure> {
    let name = format!("{}{}", " ".repeat(indent), shown(vdev));
    let note = if vdev.state == State::Unavail && vdev.is_leaf() { "  cannot open" } else { "" };
    console.line(&format!("\t{name:full$}  {}{note}", vdev.state.word()))?;
    vdev.children.iter().try_for_each(|child| print_vdev(console, child, indent + 2, full))
}

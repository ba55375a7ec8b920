//! `zfs receive` of an incremental package of a tree: what was renamed, promoted and (with `-F`) destroyed at the sender.

use std::collections::BTreeSet;

use pool::Pool;
use server::Kind;
use stream::{Receiver, Replica, TreeChange};

use super::changing::words;
use super::mounting::{self, Moved};
use super::zfs_receive_options::Options;
use crate::command::Typed;
use crate::messages::{Action, Failure};
use crate::out::Console;

/// Maximal number of rounds; more mean a circle of changes.
const ROUNDS_MAX: u32 = 100_000;

/// A tree that is received.
pub struct Tree<'a> {
    /// How it is at the sender.
    pub replica: &'a Replica,
    /// Its top here.
    pub top: &'a str,
    /// The top has its name from the command line.
    pub exact: bool,
}

/// Makes a tree equal to the sender's, as far as possible. Returns the reasons of failed changes.
///
/// # Errors
/// The tree cannot be read, or standard output is gone.
pub fn follow(
    pool: &Pool,
    call: &Typed<Options>,
    console: &mut Console,
    tree: &Tree<'_>,
) -> Result<Vec<Failure>, Failure> {
    let Tree { replica, top, exact } = *tree;
    let _turn = call.turn()?;
    let how = (exact, call.options.force);
    let mut tried: BTreeSet<TreeChange> = BTreeSet::new();
    let (mut failures, mut progress) = (Vec::new(), false);
    for round in 0..ROUNDS_MAX {
        let changes = Receiver::new(pool)
            .changes_for(replica, top, how, &tried)
            .map_err(|error| Failure::refused(format!("cannot receive: {error}")))?;
        if changes.is_empty() {
            if !progress || failures.is_empty() {
                break;
            }
            // The obstacle may be gone now.
            (progress, failures) = (false, Vec::new());
            tried.clear();
            continue;
        }
        for change in changes {
            let is_aside = matches!(change, TreeChange::Rename { to: None, .. });
            match carry_out(pool, call, console, &change, &Replica::aside(top, round)) {
                Ok(()) => progress |= !is_aside,
                Err(failure) => {
                    failures.push(failure);
                    tried.insert(change);
                }
            }
        }
    }
    Ok(failures)
}

fn carry_out(
    pool: &Pool,
    call: &Typed<Options>,
    console: &mut Console,
    change: &TreeChange,
    aside: &str,
) -> Result<(), Failure> {
    let mut say = |line: String| if call.options.verbose { console.line(&line) } else { Ok(()) };
    match change {
        TreeChange::Promote(name) => {
            say(format!("promoting {name}"))?;
            mounting::promote(call, pool, name).map_err(|error| words(Action::Promote(name), &error))
        }
        TreeChange::DestroySnapshots(names) => {
            names.iter().try_for_each(|name| say(format!("attempting destroy {name}")))?;
            // Snapshots with holds or clones go with the last of these.
            mounting::destroy_snapshots(call, pool, names, true)
                .map_err(|error| words(Action::Destroy(&names[0]), &error))
        }
        TreeChange::RenameSnapshot { from, leaf } => {
            say(format!("attempting rename {from} to {leaf}"))?;
            let from = std::slice::from_ref(from);
            mounting::rename_snapshots(call, pool, from, leaf)
                .map_err(|error| words(Action::Rename(&from[0]), &error))
        }
        TreeChange::Destroy(name) => {
            say(format!("attempting destroy {name}"))?;
            mounting::destroying(call, name, false)?;
            pool.destroy_dataset(name).map_err(|error| words(Action::Destroy(name), &error))
        }
        TreeChange::Rename { from, to } => {
            let to = to.as_deref().unwrap_or(aside);
            say(format!("attempting rename {from} to {to}"))?;
            let rename =
                || pool.rename_dataset(from, to).map_err(|error| words(Action::Rename(from), &error));
            let renamed = |name: &str| match name.strip_prefix(from.as_str()) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
                _ => name.to_owned(),
            };
            let force = call.options.unmount;
            mounting::moving(call, console, Moved { top: from, kind: Kind::Name, force }, renamed, rename)
        }
    }
}

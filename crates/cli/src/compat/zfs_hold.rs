//! `zfs hold`, and with the same code `zfs release`.

use pool::Pool;
use pool::props::names;

use super::Call;
use super::changing::session;
use super::mounting;
use super::select::dataset_failure;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::Console;

/// `zfs hold`.
pub static COMMAND: Command = Command {
    name: "hold",
    about: "keeps snapshots from being destroyed",
    syntax: &["hold [-r] TAG SNAPSHOT…"],
    examples: &["zfs hold keep tank/home@monday", "zfs hold -r keep tank@monday"],
    options: &[flag("r", "also those of the same name below")],
    targets: Targets::AllButFirst,
    run: Run::Here(|call, console| change(call, console, read(&call.args))),
    ..Command::ZFS
};

/// The options of the commands for holds of snapshots.
#[derive(Clone, Copy)]
pub struct Options {
    /// Also the snapshots of the same name below.
    pub recursive: bool,
    /// A hold is taken off, not put on.
    pub release: bool,
}

fn read(args: &Parsed) -> Options {
    Options { recursive: args.has("r"), release: false }
}

/// Runs `zfs hold` and `zfs release`.
///
/// # Errors
/// The arguments are wrong, or snapshots cannot be held or released. Each of them has a message of its own.
pub fn change(call: &Call, console: &mut Console, how: Options) -> Result<(), Failure> {
    let args = &call.args;
    let (tag, snapshots) = match args.operands.split_first() {
        None | Some((_, [])) => return Err(Failure::usage("")),
        Some((tag, snapshots)) => (tag.as_str(), snapshots),
    };
    if !how.release && tag.starts_with('.') {
        return Err(Failure::usage("tag may not start with '.'"));
    }
    for name in snapshots {
        if let Err(failure) = change_one(call, name, tag, how) {
            console.complain(failure)?;
        }
    }
    Ok(())
}

fn change_one(call: &Call, name: &str, tag: &str, how: Options) -> Result<(), Failure> {
    let Options { recursive, release } = how;
    let doing = if release { "release hold from" } else { "hold" };
    let cannot = |why: &str| Failure::refused(format!("cannot {doing} snapshot '{name}': {why}"));
    if !name.contains('@') {
        return Err(Failure::refused(format!("'{name}' is not a snapshot")));
    }
    names::check(name).map_err(|error| cannot(&error.to_string()))?;
    if tag.len() >= names::NAME_MAX {
        return Err(cannot("tag too long"));
    }
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let done = pool.dataset(name).map_err(|error| dataset_failure(name, &error)).and_then(|_| {
        let all = with_those_below(pool, name, recursive);
        if release {
            // A snapshot whose destruction waits for this release is destroyed with it.
            mounting::letting_go(call, &all);
        }
        let done = if release { pool.release(&all, tag) } else { pool.hold(&all, tag) };
        done.map_err(|error| match &error {
            pool::Error::Exists(_) => cannot("tag already exists on this dataset"),
            pool::Error::NoHold(_) => cannot("no such tag on this dataset"),
            pool::Error::OldPool => Failure::refused(format!("cannot hold: {error}")),
            error => cannot(&error.to_string()),
        })
    });
    session.finish().and(done)
}

/// The snapshot `name`, and if `recursive` those of its name below.
pub(super) fn with_those_below(pool: &Pool, name: &str, recursive: bool) -> Vec<String> {
    let (fs, leaf) = name.split_once('@').expect("a snapshot");
    let below = if recursive { pool.list(fs, None, false).unwrap_or_default() } else { Vec::new() };
    let named = below.into_iter().skip(1).map(|info| format!("{}@{leaf}", info.name));
    let named = named.filter(|name| pool.dataset(name).is_ok());
    std::iter::once(name.to_owned()).chain(named).collect()
}

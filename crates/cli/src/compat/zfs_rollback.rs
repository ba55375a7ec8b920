//! `zfs rollback`.

use super::Call;
use super::changing::{session, words};
use super::mounting;
use super::select::dataset_failure;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session};
use crate::out::Console;
use pool::DatasetInfo;
use pool::props::{DatasetKind, names};

/// `zfs rollback`.
pub static COMMAND: Command = Command {
    name: "rollback",
    about: "takes a file system back to a snapshot",
    syntax: &["rollback [-Rfr] SNAPSHOT"],
    examples: &["zfs rollback tank/home@monday", "zfs rollback -r tank/home@monday"],
    options: &[
        flag("R", "destroys newer snapshots and bookmarks with all their clones"),
        flag("f", "unmounts clones by force (with -R)"),
        flag("r", "destroys newer snapshots and bookmarks"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs rollback`.
struct Options {
    clones: bool,
    force: bool,
    newer: bool,
}

fn read(args: &Parsed) -> Options {
    Options { clones: args.has("R"), force: args.has("f"), newer: args.has("r") }
}

/// Runs `zfs rollback`.
///
/// # Errors
/// The arguments are wrong, or the file system cannot be rolled back.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let name = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing dataset argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if !name.contains('@') {
        return Err(Action::Open(name).failed(reason::NO_DELIMITER));
    }
    names::check(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let done = rollback_in(&session, call, console, name);
    session.finish().and(done)
}

fn rollback_in(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    name: &str,
) -> Result<(), Failure> {
    let clones_too = call.options.clones;
    let newer_too = clones_too || call.options.newer;
    let (pool, action) = (session.pool(), Action::RollBack(name));
    let target = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let words = |error: pool::Error| words(action, &error);
    let fs = name.split('@').next().unwrap_or(name);
    let is_newer = |info: &DatasetInfo| info.phys.creation_txg > target.phys.creation_txg;
    let own = pool.list(fs, Some(1), true).map_err(words)?.into_iter();
    let newer: Vec<DatasetInfo> =
        own.filter(|info| info.dir_id == target.dir_id && info.is_snapshot() && is_newer(info)).collect();
    let marks: Vec<DatasetInfo> = pool.bookmarks(fs).map_err(words)?.into_iter().filter(is_newer).collect();
    if !(newer.is_empty() && marks.is_empty() || newer_too) {
        let failure = action
            .failed("more recent snapshots or bookmarks exist")
            .hint("use '-r' to force deletion of the following snapshots and bookmarks:");
        return Err(newer.into_iter().chain(marks).fold(failure, |failure, info| failure.hint(info.name)));
    }
    let mut clones = Vec::new();
    for info in &newer {
        clones.extend(pool.clones(info).map_err(words)?);
    }
    if !clones.is_empty() && !clones_too {
        let failure = action
            .failed("clones of previous snapshots exist")
            .hint("use '-R' to force deletion of the following clones and dependents:");
        let mut all: Vec<String> = Vec::new();
        for info in &newer {
            let more = super::doomed::dependents(pool, &info.name)?;
            all.extend(more.into_iter().filter(|name| !all.contains(name)).collect::<Vec<_>>());
        }
        return Err(all.into_iter().fold(failure, Failure::hint));
    }
    let doomed: Vec<String> = newer.iter().map(|info| info.name.clone()).collect();
    let mut newer = Some(newer);
    let is_volume = pool.dataset(fs).map_err(words)?.kind == DatasetKind::Volume;
    let roll = || {
        if is_volume {
            // Nothing goes for a rollback that will be refused.
            super::doomed::not_in_use(pool, fs).map_err(words)?;
        }
        for doomed in super::doomed::all(pool, &clones)? {
            doomed.destroy(call, pool, call.options.force)?;
        }
        let newer = newer.take().into_iter().flatten().rev().map(|info| info.name);
        // Snapshots whose destruction waited for these clones are gone, too.
        let newer: Vec<String> = newer.filter(|name| pool.dataset(name).is_ok()).collect();
        if !newer.is_empty() {
            mounting::destroy_snapshots(call, pool, &newer, false).map_err(words)?;
        }
        let marks: Vec<String> = marks.iter().map(|info| info.name.clone()).collect();
        if !marks.is_empty() {
            pool.destroy_bookmarks(&marks).map_err(words)?;
        }
        pool.rollback(name).map_err(words)
    };
    let next = pool.open(name).map_err(words)?;
    mounting::exchanging(call, console, mounting::Contents { of: fs.to_owned(), next, doomed }, roll)
}

//! `zfs rename`.

use super::Call;
use super::changing::{is_missing, session, words};
use super::dataset_values::{self};
use super::mounting;
use super::parents::create_parents;
use super::select::dataset_failure;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session, pool_of};
use crate::out::Console;
use pool::props::DatasetKind;
use pool::props::names::{self, NameError};
use server::Kind;

/// `zfs rename`.
pub static COMMAND: Command = Command {
    name: "rename",
    about: "gives a dataset or snapshot another name",
    syntax: &[
        "rename [-f] DATASET DATASET",
        "rename -p [-f] FILESYSTEM|VOLUME FILESYSTEM|VOLUME",
        "rename -u [-f] FILESYSTEM FILESYSTEM",
        "rename -r SNAPSHOT SNAPSHOT",
    ],
    examples: &[
        "zfs rename tank/old tank/new",
        "zfs rename -p tank/home tank/archive/2026/home",
        "zfs rename -r tank@monday tank@week48",
    ],
    options: &[
        flag("f", "unmounts by force"),
        flag("p", "makes the datasets above the new name"),
        flag("r", "renames the snapshots of everything below, too"),
        flag("u", "leaves it mounted where it is"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs rename`.
struct Options {
    force: bool,
    parents: bool,
    recursive: bool,
    in_place: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        force: args.has("f"),
        parents: args.has("p"),
        recursive: args.has("r"),
        in_place: args.has("u"),
    }
}

/// Runs `zfs rename`.
///
/// # Errors
/// The arguments are wrong, or the dataset cannot be renamed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let (from, to) = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing source dataset argument")),
        [_] => return Err(Failure::usage("missing target dataset argument")),
        [from, to] => (from.as_str(), to.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let Options { parents, recursive, in_place, .. } = call.options;
    for (is_given, one, other) in
        [(parents && recursive, "p", "r"), (in_place && parents, "u", "p"), (in_place && recursive, "u", "r")]
    {
        if is_given {
            return Err(Failure::usage(format!("-{one} and -{other} options are mutually exclusive")));
        }
    }
    if call.options.recursive && !from.contains('@') {
        return Err(Failure::usage("source dataset for recursive rename must be a snapshot"));
    }
    if from.contains('#') {
        return Err(Action::Open(from).failed(NameError::BookmarkUnexpected));
    }
    // Only file systems and volumes have parents and mounts.
    let checked = match call.options.in_place || call.options.parents {
        true => names::check_kind(from, DatasetKind::Filesystem),
        false => names::check(from).map(drop),
    };
    checked.map_err(|error| Action::Open(from).failed(error))?;
    let session = session(call, from, Intent::Write).map_err(|error| error.dataset(from))?;
    let done = rename_in(&session, call, console, from, to);
    session.finish().and(done)
}

fn rename_in(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    from: &str,
    to: &str,
) -> Result<(), Failure> {
    let (pool, action) = (session.pool(), Action::Rename(from));
    let info = pool.dataset(from).map_err(|error| dataset_failure(from, &error))?;
    if from == to {
        return Ok(());
    }
    if info.is_snapshot() {
        return rename_snapshot(session, call, from, to, call.options.recursive);
    }
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let target = Action::RenameTo(to);
    names::check_new(to, DatasetKind::Filesystem).map_err(|error| target.failed(error))?;
    let Some((parent, _)) = to.rsplit_once('/') else {
        return Err(Action::Create(to).failed(reason::MISSING_DATASET_NAME));
    };
    if pool_of(from) != pool_of(to) {
        return Err(target.failed(reason::CROSSES_POOLS));
    }
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        return Err(target.failed(reason::NO_DESCENDANT));
    }
    if !from.contains('/') {
        return Err(action.failed("operation does not apply to pools"));
    }
    if pool.dataset(to).is_ok() {
        return Err(action.failed(reason::ALREADY_EXISTS));
    }
    match pool.dataset(parent) {
        Ok(above) if above.kind != DatasetKind::Filesystem => {
            return Err(Action::Create(to).failed(reason::NOT_A_FILESYSTEM));
        }
        Ok(_) => {}
        Err(error) if is_missing(&error) && call.options.parents => {
            let enabled = dataset_values::enabled_in(pool);
            let made = create_parents(pool, parent, &enabled, action)?;
            made.iter().try_for_each(|made| mounting::created(call, console, made))?;
        }
        Err(error) if is_missing(&error) => return Err(Action::Create(to).failed(reason::PARENT_MISSING)),
        Err(error) => return Err(words(action, &error)),
    }
    // The deepest descendant must have a name that is not too long.
    let longer = to.len().saturating_sub(from.len());
    let list = pool.list(from, None, true).map_err(|error| words(action, &error))?;
    if list.iter().any(|info| info.name.len() + longer >= names::NAME_MAX) {
        return Err(action.failed(NameError::TooLong));
    }
    let renamed = |name: &str| match name.strip_prefix(from) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
        _ => name.to_owned(),
    };
    let rename = || pool.rename_dataset(from, to).map_err(|error| words(action, &error));
    if call.options.in_place {
        rename()?;
        if let Some(live) = call.live() {
            live.rename(renamed);
        }
        // The children may inherit another value now.
        return mounting::refresh(call, console, None);
    }
    let moved = mounting::Moved { top: from, kind: Kind::Name, force: call.options.force };
    mounting::moving(call, console, moved, renamed, rename)
}

/// `zfs rename` of the snapshot `from`, with those of its name below it if `recursive`.
///
/// # Errors
/// Why the old name stays.
fn rename_snapshot(
    session: &Session,
    call: &Typed<Options>,
    from: &str,
    to: &str,
    recursive: bool,
) -> Result<(), Failure> {
    let (pool, action) = (session.pool(), Action::Rename(from));
    pool.dataset(from).map_err(|error| dataset_failure(from, &error))?;
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let (fs, old) = from.split_once('@').expect("a snapshot");
    let leaf = match to.split_once('@') {
        Some((other, _)) if !other.is_empty() && other != fs => {
            return Err(Action::RenameTo(to).failed("snapshots must be part of same dataset"));
        }
        Some((_, leaf)) => leaf,
        None => to,
    };
    let full = format!("{fs}@{leaf}");
    names::check_new(&full, DatasetKind::Snapshot).map_err(|error| Action::RenameTo(&full).failed(error))?;
    let mut all = vec![from.to_owned()];
    if recursive {
        let below = pool.list(fs, None, false).map_err(|error| words(action, &error))?;
        let named = below.into_iter().skip(1).map(|info| format!("{}@{old}", info.name));
        all.extend(named.filter(|name| pool.dataset(name).is_ok()));
    }
    mounting::rename_snapshots(call, pool, &all, leaf).map_err(|error| words(action, &error))
}

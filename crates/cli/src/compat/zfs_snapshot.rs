//! `zfs snapshot`, `rollback`, `clone`, `promote`, and `zfs rename` of snapshots.

use std::collections::BTreeMap;

use pool::props::dataset as props;
use pool::props::names;
use pool::props::{DatasetKind, PropertyError, Value};
use pool::{DatasetInfo, Pool};

use super::Call;
use super::changing::{is_missing, session, words};
use super::dataset_values;
use super::mounting;
use super::no_effect;
use super::owner_quota;
use super::parents::create_parents;
use super::select::dataset_failure;
use crate::args::Assignments;
use crate::args::{flag, property};
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, Session, open_for, pool_of};
use crate::out::Console;

/// `zfs snapshot`.
pub static COMMAND: Command = Command {
    name: "snapshot",
    alias: Some("snap"),
    about: "keeps the present state of datasets under a name",
    syntax: &["snapshot [-r] [-o USERPROPERTY=VALUE]… FILESYSTEM|VOLUME@SNAP…"],
    options: &[
        flag("r", "also of everything below, at the same moment"),
        property("o", "sets a user property; may be repeated"),
    ],
    targets: Targets::All,
    run: Run::Here(snapshot),
    ..Command::ZFS
};

/// What `zfs snapshot` says when it cannot say it of one snapshot; the blank is OpenZFS's.
const CREATE_SNAPSHOTS: &str = "cannot create snapshots :";
/// The last line of a refusal of `zfs snapshot` with `-r` or several names.
const NONE_CREATED: &str = "no snapshots were created";
const NOT_FOR_SNAPSHOTS: &str = "this property can not be modified for snapshots";
const NO_DELIMITER: &str = "missing '@' delimiter in snapshot name";

/// Runs `zfs snapshot`.
///
/// # Errors
/// Usage, or why there are no new snapshots: those of one pool are taken all or none.
pub fn snapshot(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let own = Assignments::collect(args.values("o"), |word| props::parse(word).map(|p| p.name))?;
    if args.operands.is_empty() {
        return Err(Failure::usage("missing snapshot argument"));
    }
    let mut by_pool: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in &args.operands {
        if !name.contains('@') {
            return Err(Failure::usage(""));
        }
        names::check_new(name, DatasetKind::Snapshot)
            .map_err(|error| Action::CreateSnapshot(name).failed(error))?;
        by_pool.entry(pool_of(name)).or_default().push(name);
    }
    let local = snapshot_properties(&own)?;
    if by_pool.len() > 1 {
        // All are taken or none, which two pools cannot promise. OpenZFS answers so, too.
        return Err(several_of_one());
    }
    for (pool, wanted) in by_pool {
        let session = match session(call, pool, Intent::Write) {
            Ok(session) => session,
            Err(NotOpen::Missing(_)) => return Err(missing(console, wanted[0])),
            Err(error) => return Err(error.into()),
        };
        if let Some(live) = call.live() {
            live.write_back();
        }
        let done = snapshot_in(&session, console, &wanted, args.has("r"), &local);
        session.finish().and(done)?;
    }
    Ok(())
}

fn several_of_one() -> Failure {
    Failure::refused(format!("{CREATE_SNAPSHOTS} multiple snapshots of same fs not allowed"))
        .hint(NONE_CREATED)
}

/// The dataset of a snapshot to be is not there: said, and the usage shown.
fn missing(console: &mut Console, snapshot: &str) -> Failure {
    let fs = snapshot.split('@').next().unwrap_or(snapshot);
    console.remark(&format!("{}: {}", Action::Open(fs), reason::DATASET_MISSING));
    Failure::usage("")
}

/// Only user properties go with a new snapshot.
fn snapshot_properties(own: &Assignments) -> Result<Vec<(String, Value)>, Failure> {
    own.iter()
        .map(|(name, text)| {
            if props::parse(name).is_some() {
                return Err(Failure::refused(format!("{CREATE_SNAPSHOTS} {NOT_FOR_SNAPSHOTS}")));
            }
            names::check_user_property(name, text)
                .map_err(|error: PropertyError| Failure::refused(format!("{CREATE_SNAPSHOTS} {error}")))?;
            Ok((name.to_owned(), Value::Text(text.to_owned())))
        })
        .collect()
}

fn snapshot_in(
    session: &Session,
    console: &mut Console,
    wanted: &[&str],
    recursive: bool,
    local: &[(String, Value)],
) -> Result<(), Failure> {
    let pool = session.pool();
    let several = recursive || wanted.len() > 1;
    let mut all = Vec::new();
    for name in wanted {
        let (fs, leaf) = name.split_once('@').expect("checked by the caller");
        match pool.list(fs, if recursive { None } else { Some(0) }, false) {
            Ok(list) => all.extend(list.into_iter().map(|info| format!("{}@{leaf}", info.name))),
            Err(error) if is_missing(&error) => return Err(missing(console, name)),
            Err(error) => return Err(dataset_failure(fs, &error)),
        }
    }
    if pool.read_only().is_some() {
        return Err(Failure::refused(format!("{CREATE_SNAPSHOTS} {}", reason::POOL_READ_ONLY)));
    }
    all.sort_unstable();
    // A snapshot that was named twice is taken once.
    all.dedup();
    let heads: Vec<_> = all.iter().map(|name| name.split('@').next()).collect();
    if heads.windows(2).any(|two| two[0] == two[1]) {
        return Err(several_of_one());
    }
    pool.snapshot(&all, local).map_err(|error| {
        let failure = match &error {
            pool::Error::Exists(name) => Action::CreateSnapshot(name).failed(reason::ALREADY_EXISTS),
            pool::Error::NameTooLong(name) => Action::CreateSnapshot(name).failed(&error),
            error if error.is_no_space() => {
                Failure::refused(format!("{CREATE_SNAPSHOTS} {}", reason::OUT_OF_SPACE))
            }
            error => Failure::refused(format!("{CREATE_SNAPSHOTS} {error}")),
        };
        if several { failure.hint(NONE_CREATED) } else { failure }
    })
}

/// A snapshot given as an operand, or why it is none.
fn snapshot_operand(pool: &Pool, name: &str) -> Result<DatasetInfo, Failure> {
    pool.dataset(name).map_err(|error| dataset_failure(name, &error))
}

/// Runs `zfs rollback`.
///
/// # Errors
/// Usage, or why the file system stays as it is.
pub fn rollback(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let name = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing dataset argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if !name.contains('@') {
        return Err(Action::Open(name).failed(NO_DELIMITER));
    }
    names::check(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let done = rollback_in(&session, call, console, name);
    session.finish().and(done)
}

fn rollback_in(session: &Session, call: &Call, console: &mut Console, name: &str) -> Result<(), Failure> {
    let clones_too = call.args.has("R");
    let newer_too = clones_too || call.args.has("r");
    let (pool, action) = (session.pool(), Action::RollBack(name));
    let target = snapshot_operand(pool, name)?;
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
    let roll = || {
        for doomed in super::doomed::all(pool, &clones)? {
            doomed.destroy(call, pool)?;
        }
        let newer = newer.take().into_iter().flatten().rev().map(|info| info.name);
        // Those whose destruction waited for clones went with these.
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

/// Runs `zfs clone`.
///
/// # Errors
/// Usage, or why there is no clone; then nothing was changed.
pub fn clone(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let own = Assignments::collect(args.values("o"), |word| props::parse(word).map(|p| p.name))?;
    let (origin, name) = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing source dataset argument")),
        [_] => return Err(Failure::usage("missing target dataset argument")),
        [origin, name] => (origin.as_str(), name.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if !origin.contains('@') {
        return Err(Action::Open(origin).failed(NO_DELIMITER));
    }
    names::check(origin).map_err(|error| Action::Open(origin).failed(error))?;
    let action = Action::Create(name);
    names::check_new(name, DatasetKind::Filesystem).map_err(|error| action.failed(error))?;
    if pool_of(origin) != pool_of(name) {
        // OpenZFS looks for the pool first, and only then whether it is the same.
        return Err(match open_for(name, call.around, Intent::Read) {
            Err(NotOpen::Missing(pool)) => action.failed(format!("{} '{pool}'", reason::NO_SUCH_POOL)),
            _ => action.failed("source and target pools differ"),
        });
    }
    let session = session(call, origin, Intent::Write).map_err(|error| error.dataset(origin))?;
    let done = clone_in(&session, call, console, origin, name, &own);
    if done.is_ok() {
        no_effect::warn(console, own.iter());
    }
    session.finish().and(done)
}

fn clone_in(
    session: &Session,
    call: &Call,
    console: &mut Console,
    origin: &str,
    name: &str,
    own: &Assignments,
) -> Result<(), Failure> {
    let (pool, action) = (session.pool(), Action::Create(name));
    let words = |error: pool::Error| words(action, &error);
    let source = snapshot_operand(pool, origin)?;
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let Some((parent, _)) = name.rsplit_once('/') else {
        return Err(action.failed(reason::MISSING_DATASET_NAME));
    };
    let enabled = dataset_values::enabled_in(pool);
    let mut topmost = None;
    let above = match pool.dataset(parent) {
        Ok(above) if above.kind != DatasetKind::Filesystem => {
            return Err(action.failed(reason::NOT_A_FILESYSTEM));
        }
        Ok(above) => above,
        Err(error) if is_missing(&error) && call.args.has("p") => {
            topmost = create_parents(pool, parent, &enabled).map_err(words)?;
            pool.dataset(parent).map_err(words)?
        }
        Err(error) if is_missing(&error) => return Err(action.failed(reason::PARENT_MISSING)),
        Err(error) => return Err(words(error)),
    };
    match pool.dataset(name) {
        Ok(_) if call.args.has("p") => return Ok(()),
        Ok(_) => return Err(action.failed(reason::ALREADY_EXISTS)),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(words(error)),
    }
    let given: Vec<(&str, &str)> = own.iter().collect();
    let made = dataset_values::creation(&given, Some((pool, &above)), &enabled)
        .map_err(|error| action.failed(error))?;
    pool.clone_snapshot(&source.name, name, made.local).map_err(words)?;
    owner_quota::apply(pool, name, &made.quotas).map_err(|error| action.failed(error))?;
    mounting::created(call, console, topmost.as_deref().unwrap_or(name))
}

/// Runs `zfs promote`.
///
/// # Errors
/// Usage, or why nothing was changed.
pub fn promote(call: &Call) -> Result<(), Failure> {
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing clone filesystem argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    names::check_kind(name, DatasetKind::Filesystem).map_err(|error| Action::Open(name).failed(error))?;
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let done = promote_in(&session, call, name);
    session.finish().and(done)
}

fn promote_in(session: &Session, call: &Call, name: &str) -> Result<(), Failure> {
    let (pool, action) = (session.pool(), Action::Promote(name));
    snapshot_operand(pool, name)?;
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    mounting::promote(call, pool, name).map_err(|error| match &error {
        pool::Error::NotAClone(_) => action.failed("not a cloned filesystem"),
        error => words(action, error),
    })
}

/// `zfs rename` of the snapshot `from`, with those of its name below it if `recursive`.
///
/// # Errors
/// Why the old name stays.
pub fn rename(session: &Session, call: &Call, from: &str, to: &str, recursive: bool) -> Result<(), Failure> {
    let (pool, action) = (session.pool(), Action::Rename(from));
    snapshot_operand(pool, from)?;
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

//! `zfs snapshot`.

use pool::props::dataset as props;
use pool::props::names;
use pool::props::{DatasetKind, PropertyError, Value};

use super::Call;
use super::changing::{is_missing, session};
use super::select::dataset_failure;
use crate::args::Assignments;
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, Session, pool_of};
use crate::out::Console;

/// `zfs snapshot`.
pub static COMMAND: Command = Command {
    name: "snapshot",
    alias: Some("snap"),
    about: "keeps the present state of datasets under a name",
    syntax: &["snapshot [-r] [-o USERPROPERTY=VALUE]… FILESYSTEM|VOLUME@SNAP…"],
    examples: &["zfs snapshot tank/home@monday", "zfs snapshot -r tank@monday"],
    options: &[
        flag("r", "also of everything below, at the same moment"),
        property("o", "sets a user property; may be repeated"),
    ],
    targets: Targets::Of(targets),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs snapshot`.
struct Options {
    recursive: bool,
    properties: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options { recursive: args.has("r"), properties: args.texts("o") }
}

/// The message of `zfs snapshot` when it cannot blame one snapshot; the blank is OpenZFS's.
const CREATE_SNAPSHOTS: &str = "cannot create snapshots :";
/// The last line of a refusal of `zfs snapshot` with `-r` or several names.
const NONE_CREATED: &str = "no snapshots were created";
const NOT_FOR_SNAPSHOTS: &str = "this property can not be modified for snapshots";

/// The snapshots to be, which are in one pool. The servers of several pools would each take their own.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    check(&call.typed(read))?;
    Ok(call.args.operands.clone())
}

/// Checks a command line; returns the user properties that go with each snapshot.
fn check(call: &Typed<Options>) -> Result<Vec<(String, Value)>, Failure> {
    let own = Assignments::collect(call.options.properties.iter().map(String::as_str), |word| {
        props::parse(word).map(|p| p.name)
    })?;
    let wanted = &call.args.operands;
    if wanted.is_empty() {
        return Err(Failure::usage("missing snapshot argument"));
    }
    for name in wanted {
        if !name.contains('@') {
            return Err(Failure::usage(""));
        }
        names::check_new(name, DatasetKind::Snapshot)
            .map_err(|error| Action::CreateSnapshot(name).failed(error))?;
    }
    let local = snapshot_properties(&own)?;
    if wanted.iter().any(|name| pool_of(name) != pool_of(&wanted[0])) {
        // All are taken or none, which two pools cannot promise. OpenZFS answers so, too.
        return Err(several_of_one());
    }
    Ok(local)
}

/// Runs `zfs snapshot`.
///
/// # Errors
/// The arguments are wrong, or a snapshot cannot be taken. Then none is taken.
fn run(call: &Call, _: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let local = check(call)?;
    let wanted: Vec<&str> = call.args.operands.iter().map(String::as_str).collect();
    let session = match session(call, pool_of(wanted[0]), Intent::Write) {
        Ok(session) => session,
        Err(NotOpen::Missing(_)) => return Err(missing(wanted[0])),
        Err(error) => return Err(error.into()),
    };
    if let Some(live) = call.live() {
        live.write_back();
    }
    let done = snapshot_in(&session, &wanted, call.options.recursive, &local);
    session.finish().and(done)
}

fn several_of_one() -> Failure {
    Failure::refused(format!("{CREATE_SNAPSHOTS} multiple snapshots of same fs not allowed"))
        .hint(NONE_CREATED)
}

/// The dataset of a snapshot to be is not there: the usage is shown, too.
fn missing(snapshot: &str) -> Failure {
    let fs = snapshot.split('@').next().unwrap_or(snapshot);
    Failure::usage(format!("{}: {}", Action::Open(fs), reason::DATASET_MISSING))
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
            Err(error) if is_missing(&error) => return Err(missing(name)),
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

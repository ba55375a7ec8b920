//! `zfs clone`.

use super::Call;
use super::changing::{is_missing, session, words};
use super::dataset_values;
use super::mounting;
use super::no_effect;
use super::owner_quota;
use super::parents::create_parents;
use super::select::dataset_failure;
use crate::args::Assignments;
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, Session, open_for, pool_of};
use crate::out::Console;
use pool::props::DatasetKind;
use pool::props::dataset as props;
use pool::props::names;

/// Why a clone has no encryption of its own.
const INHERITED: &str = "Encryption properties must inherit from origin dataset.";

/// `zfs clone`.
pub static COMMAND: Command = Command {
    name: "clone",
    about: "makes a dataset that begins as a snapshot",
    syntax: &["clone [-pu] [-o PROPERTY=VALUE]… SNAPSHOT FILESYSTEM|VOLUME"],
    examples: &[
        "zfs clone tank/home@monday tank/trial",
        "zfs clone -p -o mountpoint=/mnt/trial tank/home@monday tank/tests/trial",
    ],
    options: &[
        flag("p", "makes the datasets above it, too"),
        flag("u", "does not mount it"),
        property("o", "sets a property; may be repeated"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs clone`.
struct Options {
    parents: bool,
    unmounted: bool,
    properties: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options { parents: args.has("p"), unmounted: args.has("u"), properties: args.texts("o") }
}

/// Runs `zfs clone`.
///
/// # Errors
/// The arguments are wrong, or the clone cannot be made. Then nothing was changed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let own = Assignments::collect(call.options.properties.iter().map(String::as_str), |word| {
        props::parse(word).map(|p| p.name)
    })?;
    let (origin, name) = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing source dataset argument")),
        [_] => return Err(Failure::usage("missing target dataset argument")),
        [origin, name] => (origin.as_str(), name.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if !origin.contains('@') {
        return Err(Action::Open(origin).failed(reason::NO_DELIMITER));
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
    let done = clone_in(&session, call, console, &New { origin, name, own: &own });
    if done.is_ok() {
        no_effect::warn(console, own.iter());
    }
    session.finish().and(done)
}

/// A clone to be.
struct New<'a> {
    /// The snapshot that it begins as.
    origin: &'a str,
    name: &'a str,
    /// Properties that are set.
    own: &'a Assignments,
}

fn clone_in(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    new: &New,
) -> Result<(), Failure> {
    let New { origin, name, own } = *new;
    let (pool, action) = (session.pool(), Action::Create(name));
    let words = |error: pool::Error| words(action, &error);
    let source = pool.dataset(origin).map_err(|error| dataset_failure(origin, &error))?;
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
        Err(error) if is_missing(&error) && call.options.parents => {
            topmost = create_parents(pool, parent, &enabled, action)?;
            pool.dataset(parent).map_err(words)?
        }
        Err(error) if is_missing(&error) => return Err(action.failed(reason::PARENT_MISSING)),
        Err(error) => return Err(words(error)),
    };
    match pool.dataset(name) {
        Ok(_) if call.options.parents => return Ok(()),
        Ok(_) => return Err(action.failed(reason::ALREADY_EXISTS)),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(words(error)),
    }
    let given: Vec<(&str, &str)> = own.iter().collect();
    let head = pool.dataset(origin.split('@').next().unwrap_or(origin)).map_err(words)?;
    let is_volume = head.kind == DatasetKind::Volume;
    if is_volume {
        let local = dataset_values::local_values(&given, head.kind, &enabled);
        let (local, key_words) = local.map_err(|error| action.failed(error))?;
        if key_words.ask_for_something() {
            return Err(action.failed(INHERITED));
        }
        pool.clone_snapshot(&source.name, name, local).map_err(words)?;
    } else {
        let made = dataset_values::creation(&given, Some((pool, &above)), &enabled)
            .map_err(|error| action.failed(error))?;
        if made.key_words.ask_for_something() {
            return Err(action.failed(INHERITED));
        }
        pool.clone_snapshot(&source.name, name, made.local).map_err(words)?;
        owner_quota::apply(pool, name, &made.quotas).map_err(|error| action.failed(error))?;
    }
    if call.options.unmounted || is_volume && topmost.is_none() {
        return Ok(());
    }
    mounting::created(call, console, topmost.as_deref().unwrap_or(name))
}

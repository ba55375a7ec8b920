//! `zfs bookmark`, and `zfs destroy` of bookmarks.

use format::features;
use pool::FeatureState;
use pool::props::DatasetKind;
use pool::props::names;

use super::Call;
use super::changing::{is_missing, session};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session, pool_of};
use crate::out::Console;

/// `zfs bookmark`.
pub static COMMAND: Command = Command {
    name: "bookmark",
    about: "remembers when a snapshot was taken",
    syntax: &["bookmark [-r] SNAPSHOT|BOOKMARK BOOKMARK"],
    examples: &["zfs bookmark tank/home@monday tank/home#monday"],
    options: &[flag("r", "also of everything below")],
    targets: Targets::Of(targets),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs bookmark`.
struct Options {
    recursive: bool,
}

fn read(args: &Parsed) -> Options {
    Options { recursive: args.has("r") }
}

/// The operand that names a file system: one of the two may leave out what the other names.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let mut operands = call.args.operands.iter();
    Ok(operands.find(|word| !word.starts_with(['@', '#'])).into_iter().cloned().collect())
}

/// Runs `zfs bookmark`.
///
/// # Errors
/// The arguments are wrong, or the bookmark cannot be made.
fn run(call: &Call, _: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let (source, name) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing source argument")),
        [_] => return Err(Failure::usage("missing bookmark argument")),
        [source, name] => (source.as_str(), name.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let Some(at) = source.find(['@', '#']) else {
        return Err(Failure::usage(format!("invalid source name '{source}': must contain a '@' or '#'")));
    };
    let Some(hash) = name.find('#') else {
        return Err(Failure::usage(format!("invalid bookmark name '{name}': must contain a '#'")));
    };
    // Either may leave out the file system that the other names.
    let (source, name) = match (at, hash) {
        (0, 0) => {
            return Err(Failure::usage(format!(
                "invalid source or bookmark name '{source}': neither names a dataset"
            )));
        }
        (0, hash) => (format!("{}{source}", &name[..hash]), name.to_owned()),
        (at, 0) => (source.to_owned(), format!("{}{name}", &source[..at])),
        _ => (source.to_owned(), name.to_owned()),
    };
    let cannot = |why: &str| Failure::refused(format!("cannot create bookmark '{name}': {why}"));
    names::check(&source).map_err(|error| Action::Open(&source).failed(error))?;
    names::check_new(&name, DatasetKind::Bookmark).map_err(|error| cannot(&error.to_string()))?;
    let session = session(call, &source, Intent::Write).map_err(|error| error.dataset(&source))?;
    let done = match session.pool().dataset(&source) {
        Err(error) if is_missing(&error) => {
            Err(Failure::usage(format!("{}: {}", Action::Open(&source), reason::DATASET_MISSING)))
        }
        Err(error) => Err(Action::Open(&source).failed(error)),
        Ok(_) if pool_of(&source) != pool_of(&name) => Err(cannot("bookmark is in a different pool")),
        Ok(_) => bookmark_all(&session, &source, &name, call.options.recursive),
    };
    session.finish().and(done)
}

fn bookmark_all(session: &Session, source: &str, name: &str, recursive: bool) -> Result<(), Failure> {
    let pool = session.pool();
    if let Some(failure) = session.refusal(Action::Create(name)) {
        return Err(failure);
    }
    let words = |name: &str, error: &pool::Error| {
        let cannot = |why: &str| Failure::refused(format!("cannot create bookmark '{name}': {why}"));
        match error {
            pool::Error::Exists(_) => cannot("bookmark exists"),
            pool::Error::NotAncestor(_) => cannot("source is not an ancestor of the new bookmark's dataset"),
            error if is_missing(error) => cannot(reason::DATASET_MISSING),
            error if error.is_no_space() => cannot(reason::OUT_OF_SPACE),
            error => cannot(&error.to_string()),
        }
    };
    if pool.info().feature(&features::BOOKMARKS) == FeatureState::Disabled {
        let line = format!("cannot create bookmark '{name}': bookmark feature not enabled");
        return Err(Failure::refused(line));
    }
    pool.bookmark(source, name).map_err(|error| words(name, &error))?;
    let Some((fs, leaf)) = source.split_once('@').filter(|_| recursive) else { return Ok(()) };
    let (top, mark) = name.split_once('#').expect("checked by the caller");
    for below in pool.list(fs, None, false).map_err(|error| words(name, &error))?.into_iter().skip(1) {
        let snapshot = format!("{}@{leaf}", below.name);
        let name = format!("{top}{}#{mark}", &below.name[fs.len()..]);
        if pool.dataset(&snapshot).is_ok() {
            pool.bookmark(&snapshot, &name).map_err(|error| words(&name, &error))?;
        }
    }
    Ok(())
}

/// `zfs destroy` of the bookmark `name`.
///
/// # Errors
/// Why it is still there.
pub fn destroy(call: &Call, name: &str) -> Result<(), Failure> {
    names::check(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let missing = || Failure::refused(format!("bookmark '{name}' does not exist."));
    let done = match session.pool().dataset(name) {
        Ok(_) => match session.refusal(Action::Destroy(name)) {
            Some(failure) => Err(failure),
            None => session
                .pool()
                .destroy_bookmarks(&[name.to_owned()])
                .map_err(|error| Failure::refused(format!("cannot destroy bookmark '{name}': {error}"))),
        },
        Err(error) if is_missing(&error) => Err(missing()),
        Err(error) => Err(Action::Open(name).failed(error)),
    };
    session.finish().and(done)
}

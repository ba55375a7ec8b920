//! `zfs promote`.

use super::Call;
use super::changing::{session, words};
use super::mounting;
use super::select::dataset_failure;
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{Intent, Session};
use pool::props::DatasetKind;
use pool::props::names;

/// `zfs promote`.
pub static COMMAND: Command = Command {
    name: "promote",
    about: "swaps a clone with the dataset it was made from",
    syntax: &["promote CLONE"],
    examples: &["zfs promote tank/trial"],
    targets: Targets::First,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZFS
};

/// Runs `zfs promote`.
///
/// # Errors
/// The arguments are wrong, or the file system cannot be promoted. Then nothing was changed.
fn run(call: &Call) -> Result<(), Failure> {
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
    pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    mounting::promote(call, pool, name).map_err(|error| match &error {
        pool::Error::NotAClone(_) => action.failed("not a cloned filesystem"),
        error => words(action, error),
    })
}

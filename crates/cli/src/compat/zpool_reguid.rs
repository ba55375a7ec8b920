//! `zpool reguid`.

use super::Call;
use crate::args::{Parsed, value};
use crate::command::{Command, Run, Targets};
use crate::messages::{Failure, reason};
use crate::open::{self, Intent, NotOpen};
use crate::state;
use format::Guid;

/// `zpool reguid`.
pub static COMMAND: Command = Command {
    name: "reguid",
    about: "gives a pool a new guid",
    syntax: &["reguid [-g GUID] POOL"],
    examples: &["zpool reguid tank"],
    options: &[value("g", "this one")],
    targets: Targets::First,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool reguid`.
struct Options {
    guid: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options { guid: args.text("g") }
}

/// Runs `zpool reguid`.
///
/// # Errors
/// The arguments are wrong, the pool is missing or cannot be written, or the guid is in use.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    let wanted = match call.options.guid.as_deref() {
        None => None,
        Some(text) => {
            let guid = text.parse().map_err(|_| Failure::usage(format!("invalid GUID: {text}")))?;
            Some(Guid(guid))
        }
    };
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [name] => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    let session = open::open_pool(name, call.around, Intent::Write)?;
    let failed = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot reguid '{name}': {why}"));
    if session.pool().read_only().is_some() {
        return Err(failed(&reason::POOL_READ_ONLY));
    }
    let all = state::known().read().map_err(NotOpen::from)?;
    if wanted.is_some_and(|guid| all.iter().any(|pool| pool.guid == guid)) {
        return Err(failed(&pool::Error::GuidTaken));
    }
    session.command(&call.line);
    let old = session.pool().guid();
    let new = session.pool().set_guid(wanted).map_err(|error| failed(&error))?;
    state::known()
        .update(|pools| {
            if let Some(pool) = pools.iter_mut().find(|pool| pool.guid == old) {
                pool.guid = new;
            }
        })
        .map_err(NotOpen::from)?;
    session.finish()?;
    Ok(())
}

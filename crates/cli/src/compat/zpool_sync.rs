//! `zpool sync`.

use super::Call;
use super::pools_named::pools_named;
use crate::args::flag;
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{self, Intent, Sessions};
use crate::out::Console;

/// `zpool sync`.
pub static COMMAND: Command = Command {
    name: "sync",
    about: "writes everything to disk now",
    syntax: &["sync [-f] [POOL]…"],
    examples: &["zpool sync tank"],
    options: &[flag("f", "no difference here: every change of the configuration is written at once").idle()],
    targets: Targets::Of(targets),
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The pools named, or all.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(match call.args.operands.as_slice() {
        [] => open::names(call.around)?,
        names => names.to_vec(),
    })
}

/// Runs `zpool sync`. Without a server, nothing waits to be written between commands; the sync only frees the space that
/// one more txg makes free.
///
/// # Errors
/// Pools are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let names = pools_named(call, console)?;
    let mut sessions = Sessions::new(call.around, Intent::Write, &call.line);
    for name in &names {
        let session = sessions.of(name)?;
        if session.pool().read_only().is_none() {
            session.pool().sync_unless_suspended().map_err(|error| Action::Sync(name).failed(error))?;
        }
    }
    sessions.finish()
}

//! `zpool checkpoint`.

use super::Call;
use super::zpool_devices::opened;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;

/// `zpool checkpoint`.
pub static COMMAND: Command = Command {
    name: "checkpoint",
    about: "keeps the state of a whole pool, to return to it",
    syntax: &["checkpoint [-d [-w]] POOL"],
    examples: &["zpool checkpoint tank", "zpool checkpoint -d -w tank"],
    options: &[flag("d|discard", "gives it up"), flag("w|wait", "waits until what only it kept is free")],
    targets: Targets::First,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool checkpoint`.
struct Options {
    discard: bool,
    wait: bool,
}

fn read(args: &Parsed) -> Options {
    Options { discard: args.has("d"), wait: args.has("w") }
}

/// Runs `zpool checkpoint`.
///
/// # Errors
/// The arguments are wrong, the pool is missing or cannot be written, or it already has a checkpoint, or has none.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    let Options { discard, wait } = call.options;
    if wait && !discard {
        return Err(Failure::usage("--wait only valid when --discard also specified"));
    }
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool argument")),
        [name] => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    let done = if discard { "discard checkpoint in" } else { "checkpoint" };
    let failed = |why: &str| Failure::refused(format!("cannot {done} '{name}': {why}"));
    let session = opened(call, name, &failed)?;
    let pool = session.pool();
    if discard { pool.discard_checkpoint() } else { pool.checkpoint() }
        .map_err(|error| failed(&error.to_string()))?;
    // Without a server nothing continues after the command.
    let wait = discard && (wait || call.live().is_none());
    while wait && pool.checkpointed().is_some() {
        pool.sync().map_err(|error| failed(&error.to_string()))?;
    }
    session.finish()?;
    Ok(())
}

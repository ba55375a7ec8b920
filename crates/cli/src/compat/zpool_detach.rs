//! `zpool detach`.

use super::Call;
use super::zpool_attach::{Change, negative};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use crate::out::Console;

/// `zpool detach`.
pub static COMMAND: Command = Command {
    name: "detach",
    about: "takes a device out of a mirror",
    syntax: &["detach POOL DEVICE"],
    examples: &["zpool detach tank /dev/sdb"],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// Runs `zpool detach`.
///
/// # Errors
/// The arguments are wrong, or the device is missing or the pool needs it.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let (pool, name) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing <pool> argument")),
        [_] => return Err(Failure::usage("missing <device> specification")),
        [pool, name] => (pool, name),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let change = Change { call, pool, name, deed: format!("detach {name}") };
    negative(console, change.detach())
}

//! `zpool offline`.

use super::Call;
use super::zpool_devices::{Words, each};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;

/// `zpool offline`.
pub static COMMAND: Command = Command {
    name: "offline",
    about: "takes devices out of service",
    syntax: &["offline [--power]|[-ft] POOL DEVICE…"],
    examples: &["zpool offline tank /dev/sdb", "zpool offline -t tank /dev/sdb"],
    options: &[
        flag("f", "as if they were faulty"),
        flag("t", "until the next import"),
        flag("power", "switches slots off"),
    ],
    targets: Targets::First,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool offline`.
struct Options {
    fault: bool,
    temporary: bool,
    power: bool,
}

fn read(args: &Parsed) -> Options {
    Options { fault: args.has("f"), temporary: args.has("t"), power: args.has("power") }
}

/// Runs `zpool offline`.
///
/// # Errors
/// The arguments are wrong, or the device is missing or the pool needs it.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    if call.options.power {
        return Err(Failure::refused("cenote: not supported yet: zpool offline --power"));
    }
    let Options { fault, temporary, .. } = call.options;
    let words = Words { verb: if fault { "fault" } else { "offline" }, not_found: None };
    each(call, &words, |session, found| match fault {
        true => session.pool().fault(found.guid, temporary),
        false => session.pool().offline(found.guid, temporary),
    })
}

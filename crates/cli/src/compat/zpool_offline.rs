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
/// Usage; a device that is not there or that the pool cannot do without.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    for (option, is_given) in [("f", call.options.fault), ("power", call.options.power)] {
        if is_given {
            return Err(Failure::refused(format!("cenote: not supported yet: zpool offline -{option}")));
        }
    }
    let words = Words { verb: "offline", not_found: None };
    each(call, &words, |session, found| session.pool().offline(found.guid, call.options.temporary))
}

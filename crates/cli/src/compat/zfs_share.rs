//! `zfs share`.

use super::Call;
use super::not_shared::not_shared;
use super::sharing;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run};
use crate::messages::Failure;
use crate::out::Console;

/// `zfs share`.
pub static COMMAND: Command = Command {
    name: "share",
    about: "shares file systems whose property sharenfs says so",
    syntax: &["share [-l] -a [nfs]|FILESYSTEM"],
    examples: &["zfs share tank/home", "zfs share -a"],
    options: &[flag("a", "all of them"), flag("l", "loads keys first").idle()],
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs share`.
struct Options {
    all: bool,
}

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a") }
}

/// Runs `zfs share`.
///
/// # Errors
/// Usage, or why something is not shared.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let name = sharing::operand(call, call.options.all)?;
    let Some(live) = call.live() else { return sharing::elsewhere(call, name, console) };
    let Some(name) = name else {
        for (dataset, error) in live.share_all() {
            console.complain(not_shared(&dataset, &error))?;
        }
        return Ok(());
    };
    live.share(name).map_err(|error| not_shared(name, &error))
}

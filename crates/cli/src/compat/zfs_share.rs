//! `zfs share`.

use super::Call;
use super::not_shared::not_shared;
use super::sharing::{self, Named, Options};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run};
use crate::messages::Failure;
use crate::out::Console;

/// `zfs share`.
pub static COMMAND: Command = Command {
    name: "share",
    about: "shares file systems whose properties sharenfs and sharesmb say so",
    syntax: &["share [-l] -a [nfs|smb]|FILESYSTEM"],
    examples: &["zfs share tank/home", "zfs share -a"],
    options: &[flag("a", "all of them"), flag("l", "loads keys first").idle()],
    run: Run::Here(run),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a") }
}

/// Runs `zfs share`.
///
/// # Errors
/// The arguments are wrong, or a file system cannot be shared.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let named = sharing::operand(call)?;
    let Some(live) = call.live() else { return sharing::elsewhere(call, &named, console) };
    match named {
        Named::One(name) => live.share(name).map_err(|error| not_shared(name, &error)),
        Named::All(protocol) => live
            .share_all(protocol)
            .iter()
            .try_for_each(|(dataset, error)| console.complain(not_shared(dataset, error))),
    }
}

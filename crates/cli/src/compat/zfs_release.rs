//! `zfs release`.

use super::Call;
use super::zfs_hold::{self, Change};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use crate::out::Console;

/// `zfs release`.
pub static COMMAND: Command = Command {
    name: "release",
    about: "takes a hold off",
    syntax: &["release [-r] TAG SNAPSHOT…"],
    options: &[flag("r", "also from snapshots of the same name below")],
    targets: Targets::AllButFirst,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs release`.
struct Options {
    recursive: bool,
}

fn read(args: &Parsed) -> Options {
    Options { recursive: args.has("r") }
}

fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let Options { recursive } = read(&call.args);
    zfs_hold::change(call, console, Change { recursive, release: true })
}

//! `zfs release`.

use super::zfs_hold::{self, Options};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};

/// `zfs release`.
pub static COMMAND: Command = Command {
    name: "release",
    about: "takes a hold off",
    syntax: &["release [-r] TAG SNAPSHOT…"],
    examples: &["zfs release keep tank/home@monday", "zfs release -r keep tank@monday"],
    options: &[flag("r", "also from snapshots of the same name below")],
    targets: Targets::AllButFirst,
    run: Run::Here(|call, console| zfs_hold::change(call, console, read(&call.args))),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options { recursive: args.has("r"), release: true }
}

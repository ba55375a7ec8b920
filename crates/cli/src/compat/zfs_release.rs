//! `zfs release`.

use super::zfs_hold;
use crate::args::flag;
use crate::command::{Command, Run, Targets};

/// `zfs release`.
pub static COMMAND: Command = Command {
    name: "release",
    about: "takes a hold off",
    syntax: &["release [-r] TAG SNAPSHOT…"],
    options: &[flag("r", "also from snapshots of the same name below")],
    targets: Targets::AllButFirst,
    run: Run::Here(|call, console| zfs_hold::change(call, console, true)),
    ..Command::ZFS
};

//! `zfs inherit`.

use super::zfs_change;
use crate::args::flag;
use crate::command::{Command, Run, Targets};

/// `zfs inherit`.
pub static COMMAND: Command = Command {
    name: "inherit",
    about: "lets a property be what it is above",
    syntax: &["inherit [-rS] PROPERTY FILESYSTEM|VOLUME|SNAPSHOT…"],
    options: &[
        flag("r", "also everywhere below"),
        flag("S", "goes back to the received value, if there is one"),
    ],
    targets: Targets::AllButFirst,
    run: Run::Here(zfs_change::inherit),
    ..Command::ZFS
};

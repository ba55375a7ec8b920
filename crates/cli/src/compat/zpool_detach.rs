//! `zpool detach`.

use super::zpool_attach;
use crate::command::{Command, Run, Targets};

/// `zpool detach`.
pub static COMMAND: Command = Command {
    name: "detach",
    about: "takes a device out of a mirror",
    syntax: &["detach POOL DEVICE"],
    targets: Targets::First,
    run: Run::Here(zpool_attach::detach),
    ..Command::ZPOOL
};

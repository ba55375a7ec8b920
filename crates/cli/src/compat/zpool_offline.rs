//! `zpool offline`.

use super::zpool_devices;
use crate::args::flag;
use crate::command::{Command, Run, Targets};

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
    run: Run::Here(|call, _| zpool_devices::run(call)),
    ..Command::ZPOOL
};

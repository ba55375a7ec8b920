//! `zpool online`.

use super::zpool_devices;
use crate::args::flag;
use crate::command::{Command, Run, Targets};

/// `zpool online`.
pub static COMMAND: Command = Command {
    name: "online",
    about: "takes devices into service",
    syntax: &["online [--power] [-e] POOL DEVICE…"],
    options: &[flag("e", "uses all of their space"), flag("power", "switches slots on")],
    targets: Targets::First,
    run: Run::Here(|call, _| zpool_devices::run(call)),
    ..Command::ZPOOL
};

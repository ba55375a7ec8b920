//! `zpool set`.

use super::zpool_props;
use crate::command::{Command, Run, Targets};

/// `zpool set`.
pub static COMMAND: Command = Command {
    name: "set",
    about: "sets a property",
    syntax: &["set PROPERTY=VALUE POOL", "set VDEVPROPERTY=VALUE POOL VDEV"],
    targets: Targets::Second,
    run: Run::Here(|call, _| zpool_props::set(call)),
    ..Command::ZPOOL
};

//! `zpool reguid`.

use super::zpool_misc;
use crate::args::value;
use crate::command::{Command, Run, Targets};

/// `zpool reguid`.
pub static COMMAND: Command = Command {
    name: "reguid",
    about: "gives a pool a new guid",
    syntax: &["reguid [-g GUID] POOL"],
    options: &[value("g", "this one")],
    targets: Targets::First,
    run: Run::Here(|call, _| zpool_misc::reguid(call)),
    ..Command::ZPOOL
};

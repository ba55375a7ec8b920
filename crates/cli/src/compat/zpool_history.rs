//! `zpool history`.

use super::zpool_misc;
use crate::args::flag;
use crate::command::{Command, Run};

/// `zpool history`.
pub static COMMAND: Command = Command {
    name: "history",
    about: "shows the commands that changed pools",
    syntax: &["history [-il] [POOL]…"],
    options: &[flag("i", "with internal events"), flag("l", "with user and host")],
    run: Run::Here(zpool_misc::history),
    ..Command::ZPOOL
};

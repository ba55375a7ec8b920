//! `zpool reopen`.

use super::zpool_misc;
use crate::args::flag;
use crate::command::{Command, Run};

/// `zpool reopen`.
pub static COMMAND: Command = Command {
    name: "reopen",
    about: "opens all devices anew",
    syntax: &["reopen [-n] [POOL]"],
    options: &[flag("n", "does not begin a scrub anew")],
    run: Run::Here(zpool_misc::reopen),
    ..Command::ZPOOL
};

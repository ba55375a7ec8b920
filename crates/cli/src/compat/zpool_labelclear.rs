//! `zpool labelclear`.

use super::zpool_misc;
use crate::args::flag;
use crate::command::{Command, Run};

/// `zpool labelclear`.
pub static COMMAND: Command = Command {
    name: "labelclear",
    about: "erases the labels of a device",
    syntax: &["labelclear [-f] DEVICE"],
    options: &[flag("f", "also of an exported or foreign pool")],
    run: Run::Here(zpool_misc::labelclear),
    ..Command::ZPOOL
};

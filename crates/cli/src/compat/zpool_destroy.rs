//! `zpool destroy`.

use super::zpool_import;
use crate::args::flag;
use crate::command::{Command, Run};

/// `zpool destroy`.
pub static COMMAND: Command = Command {
    name: "destroy",
    about: "destroys a pool",
    syntax: &["destroy [-f] POOL"],
    options: &[flag("f", "unmounts by force")],
    run: Run::Here(|call, _| zpool_import::destroy(call)),
    ..Command::ZPOOL
};

//! `zpool export`.

use super::zpool_import;
use crate::args::flag;
use crate::command::{Command, Run};

/// `zpool export`.
pub static COMMAND: Command = Command {
    name: "export",
    about: "lets pools go",
    syntax: &["export [-af] POOL…"],
    options: &[flag("a", "all of them"), flag("f", "even while programs use them")],
    run: Run::Here(zpool_import::export),
    ..Command::ZPOOL
};

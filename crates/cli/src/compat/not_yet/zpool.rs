//! Subcommands of `zpool` that are not supported yet.

use crate::args::value;
use crate::command::{Command, Run};

/// `zpool ddtprune`.
pub static DDTPRUNE: Command = Command {
    name: "ddtprune",
    about: "takes old entries out of the deduplication table",
    syntax: &["ddtprune -d DAYS|-p PERCENT POOL"],
    options: &[value("d", "older than so many days"), value("p", "so many percent")],
    run: Run::Missing(Some(
        "pools whose deduplication tables can be pruned (feature fast_dedup) are only read",
    )),
    ..Command::ZPOOL
};

//! Subcommands of `zpool` that are not there yet.

use crate::args::{flag, property, value};
use crate::command::{Command, Run};

/// `zpool split`.
pub static SPLIT: Command = Command {
    name: "split",
    about: "makes a pool of one side of all mirrors",
    syntax: &["split [-gLlnP] [-o PROPERTY=VALUE]… [-R ROOT] POOL NEWPOOL [DEVICE]…"],
    options: &[
        flag("g", "vdevs by their guids"),
        flag("L", "where symbolic links lead"),
        flag("l", "loads keys first"),
        flag("n", "splits nothing, only shows the layout"),
        flag("P", "whole paths"),
        property("o", "sets a property of the new pool"),
        value("R", "imports the new pool below this folder"),
    ],
    run: Run::Missing(Some("attach and detach change a mirror; the sides stay in one pool")),
    ..Command::ZPOOL
};

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

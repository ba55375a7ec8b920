//! `zfs clone`.

use super::zfs_snapshot;
use crate::args::{flag, property};
use crate::command::{Command, Run, Targets};

/// `zfs clone`.
pub static COMMAND: Command = Command {
    name: "clone",
    about: "makes a dataset that begins as a snapshot",
    syntax: &["clone [-pu] [-o PROPERTY=VALUE]… SNAPSHOT FILESYSTEM|VOLUME"],
    options: &[
        flag("p", "makes the datasets above it, too"),
        flag("u", "does not mount it"),
        property("o", "sets a property; may be repeated"),
    ],
    targets: Targets::First,
    run: Run::Here(zfs_snapshot::clone),
    ..Command::ZFS
};

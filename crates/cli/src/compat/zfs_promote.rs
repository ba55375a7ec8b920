//! `zfs promote`.

use super::zfs_snapshot;
use crate::command::{Command, Run, Targets};

/// `zfs promote`.
pub static COMMAND: Command = Command {
    name: "promote",
    about: "swaps a clone with the dataset it was made from",
    syntax: &["promote CLONE"],
    targets: Targets::First,
    run: Run::Here(|call, _| zfs_snapshot::promote(call)),
    ..Command::ZFS
};

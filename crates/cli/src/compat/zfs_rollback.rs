//! `zfs rollback`.

use super::zfs_snapshot;
use crate::args::flag;
use crate::command::{Command, Run, Targets};

/// `zfs rollback`.
pub static COMMAND: Command = Command {
    name: "rollback",
    about: "takes a file system back to a snapshot",
    syntax: &["rollback [-Rfr] SNAPSHOT"],
    options: &[
        flag("R", "destroys newer snapshots and bookmarks with all their clones"),
        flag("f", "unmounts clones by force (with -R)"),
        flag("r", "destroys newer snapshots and bookmarks"),
    ],
    targets: Targets::First,
    run: Run::Here(zfs_snapshot::rollback),
    ..Command::ZFS
};

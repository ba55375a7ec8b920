//! `zfs rename`.

use super::zfs_change;
use crate::args::flag;
use crate::command::{Command, Run, Targets};

/// `zfs rename`.
pub static COMMAND: Command = Command {
    name: "rename",
    about: "gives a dataset or snapshot another name",
    syntax: &[
        "rename [-f] DATASET DATASET",
        "rename -p [-f] FILESYSTEM|VOLUME FILESYSTEM|VOLUME",
        "rename -u [-f] FILESYSTEM FILESYSTEM",
        "rename -r SNAPSHOT SNAPSHOT",
    ],
    options: &[
        flag("f", "unmounts by force"),
        flag("p", "makes the datasets above the new name"),
        flag("r", "renames the snapshots of everything below, too"),
        flag("u", "leaves it mounted where it is"),
    ],
    targets: Targets::First,
    run: Run::Here(zfs_change::rename),
    ..Command::ZFS
};

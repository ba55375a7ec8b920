//! `zfs holds`.

use super::zfs_hold;
use crate::args::flag;
use crate::command::{Command, Run, Subjects, Visitors};

/// `zfs holds`.
pub static COMMAND: Command = Command {
    name: "holds",
    about: "lists holds",
    syntax: &["holds [-rHp] SNAPSHOT…"],
    options: &[
        flag("r", "also of snapshots of the same name below"),
        flag("H", "no headings, tabs between fields"),
        flag("p", "times in seconds"),
    ],
    visitors: Some(Visitors { operands: Subjects::Datasets, options: &["r", "H", "p"] }),
    run: Run::Here(zfs_hold::show),
    ..Command::ZFS
};

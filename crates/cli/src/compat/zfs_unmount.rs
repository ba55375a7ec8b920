//! `zfs unmount`.

use super::zfs_mount;
use crate::args::flag;
use crate::command::{Command, Run};

/// `zfs unmount`.
pub static COMMAND: Command = Command {
    name: "unmount",
    alias: Some("umount"),
    about: "unmounts file systems",
    syntax: &["unmount [-fu] -a|FILESYSTEM|MOUNTPOINT"],
    options: &[
        flag("a", "all of them"),
        flag("f", "even while programs use them"),
        flag("u", "unloads keys, too"),
    ],
    run: Run::Here(zfs_mount::unmount),
    ..Command::ZFS
};

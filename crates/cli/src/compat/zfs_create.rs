//! `zfs create`.

use super::zfs_change;
use crate::args::{flag, property, value};
use crate::command::{Command, Run, Targets};

/// `zfs create`.
pub static COMMAND: Command = Command {
    name: "create",
    about: "makes a file system or a volume",
    syntax: &[
        "create [-Pnpuv] [-o PROPERTY=VALUE]… FILESYSTEM",
        "create [-Pnpsv] [-b BLOCKSIZE] [-o PROPERTY=VALUE]… -V SIZE VOLUME",
    ],
    options: &[
        flag("P", "prints what is made in a form for programs"),
        flag("n", "makes nothing, only shows what would be made"),
        flag("p", "makes the datasets above it, too, and is content if it exists"),
        flag("u", "does not mount it"),
        flag("v", "says what is made"),
        flag("s", "reserves no space for the volume"),
        value("b", "block size of the volume"),
        property("o", "sets a property; may be repeated"),
        value("V", "makes a volume of this size"),
    ],
    targets: Targets::First,
    run: Run::Here(zfs_change::create),
    ..Command::ZFS
};

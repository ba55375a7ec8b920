//! Subcommands of `zfs` that are not supported yet.

use crate::args::{flag, value};
use crate::command::{Command, Run};

/// Why nothing is handed to containers.
const NO_MODULE: &str =
    "there is no kernel module to tell of it; in a container, cenote uses pools itself: cenote help docker";

/// `zfs program`.
pub static PROGRAM: Command = Command {
    name: "program",
    about: "runs a channel program",
    syntax: &["program [-jn] [-t INSTRUCTIONS] [-m BYTES] POOL SCRIPT [ARGUMENT]…"],
    options: &[
        flag("j", "the result as JSON"),
        flag("n", "changes nothing"),
        value("t", "most instructions"),
        value("m", "most memory"),
    ],
    run: Run::Missing(Some(
        "there is no Lua here; a shell does such work: zfs list -Hro name tank | xargs -n 1 zfs set atime=off",
    )),
    ..Command::ZFS
};

/// `zfs zone`.
pub static ZONE: Command = Command {
    name: "zone",
    about: "hands a file system to a user namespace",
    syntax: &["zone NAMESPACE FILESYSTEM"],
    run: Run::Missing(Some(NO_MODULE)),
    ..Command::ZFS
};

/// `zfs unzone`.
pub static UNZONE: Command = Command {
    name: "unzone",
    about: "takes a file system back from a user namespace",
    syntax: &["unzone NAMESPACE FILESYSTEM"],
    run: Run::Missing(Some(NO_MODULE)),
    ..Command::ZFS
};

/// `zfs jail`.
pub static JAIL: Command = Command {
    name: "jail",
    about: "hands a file system to a jail",
    syntax: &["jail JAIL FILESYSTEM"],
    run: Run::Missing(Some(NO_MODULE)),
    ..Command::ZFS
};

/// `zfs unjail`.
pub static UNJAIL: Command = Command {
    name: "unjail",
    about: "takes a file system back from a jail",
    syntax: &["unjail JAIL FILESYSTEM"],
    run: Run::Missing(Some(NO_MODULE)),
    ..Command::ZFS
};

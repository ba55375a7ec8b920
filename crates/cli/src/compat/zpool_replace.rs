//! `zpool replace`.

use super::zpool_attach::{self, Options};
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets};

/// `zpool replace`.
pub static COMMAND: Command = Command {
    name: "replace",
    about: "puts a device in place of another",
    syntax: &["replace [-fsw] [-o PROPERTY=VALUE] POOL DEVICE [NEWDEVICE]"],
    examples: &["zpool replace tank /dev/sdb /dev/sdc", "zpool replace -w tank /srv/b.img /srv/c.img"],
    options: &[
        flag("f", "uses a device that seems to be in use"),
        flag("s", "rebuilds in the order of the device"),
        flag("w", "waits for the end"),
        property("o", "sets ashift"),
    ],
    targets: Targets::First,
    run: Run::Here(|call, console| zpool_attach::join(call, &read(&call.args), console, true)),
    ..Command::ZPOOL
};

fn read(args: &Parsed) -> Options {
    Options {
        force: args.has("f"),
        sequential: args.has("s"),
        wait: args.has("w"),
        properties: args.texts("o"),
    }
}

//! `zfs unallow`.

use super::zfs_allow::{self, Back, Options};
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets};

/// `zfs unallow`.
pub static COMMAND: Command = Command {
    name: "unallow",
    about: "takes permissions back",
    syntax: &[
        "unallow [-dglru] WHO[,WHO]… [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
        "unallow [-dlr] -e [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
        "unallow [-r] -c [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
        "unallow [-r] -s @SET [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
    ],
    examples: &["zfs unallow alice tank/home/alice", "zfs unallow -r alice create tank/home"],
    options: &[
        flag("d", "below only"),
        flag("g", "the names are groups"),
        flag("l", "here only"),
        flag("r", "also of everything below"),
        flag("u", "the names are users"),
        flag("e", "from everyone"),
        flag("c", "from the user who creates a child dataset"),
        property("s", "of a set"),
    ],
    targets: Targets::Last,
    run: Run::Here(|call, console| zfs_allow::carry_out(call, console, &read(&call.args))),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options {
        below: args.has("d"),
        groups: args.has("g"),
        here: args.has("l"),
        users: args.has("u"),
        everyone: args.has("e"),
        create: args.has("c"),
        set: args.text("s"),
        json: false,
        back: Some(Back { recursive: args.has("r") }),
    }
}

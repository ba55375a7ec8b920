//! `zpool initialize`.

use pool::Treatment;

use super::treating::{self, Options};
use crate::args::{Parsed, every_pool, flag};
use crate::command::{Beside, Command, Run, Targets};

/// `zpool initialize`.
pub static COMMAND: Command = Command {
    name: "initialize",
    about: "writes to all free space",
    syntax: &["initialize [-c|-s|-u] [-w] -a|POOL [DEVICE]…"],
    examples: &["zpool initialize tank", "zpool initialize -w tank /dev/sda"],
    options: &[
        every_pool("a", "in all pools"),
        flag("c", "cancels it"),
        flag("s", "suspends it"),
        flag("u", "forgets it"),
        flag("w", "waits for the end"),
        flag("z", "with zeros"),
    ],
    targets: Targets::Of(|call| treating::targets(call, read(&call.args).all)),
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| treating::run(call, console, &read(&call.args))),
    ..Command::ZPOOL
};

fn read(args: &Parsed) -> Options {
    Options {
        what: Treatment::Initialize,
        all: args.has("a"),
        actions: args.in_order(["c", "s", "u"]),
        wait: args.has("w"),
        zeros: args.has("z"),
        secure: false,
        rate: None,
    }
}

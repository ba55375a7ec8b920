//! `zpool trim`.

use pool::Treatment;

use super::treating::{self, Options};
use crate::args::{Parsed, every_pool, flag, value};
use crate::command::{Beside, Command, Run, Targets};

/// `zpool trim`.
pub static COMMAND: Command = Command {
    name: "trim",
    about: "tells devices what is free",
    syntax: &["trim [-dw] [-r RATE] [-c|-s] -a|POOL [DEVICE]…"],
    examples: &["zpool trim tank", "zpool trim -w -r 100M tank /dev/sda"],
    options: &[
        every_pool("a", "in all pools"),
        flag("d", "so that it cannot be read any more"),
        flag("w", "waits for the end"),
        flag("c", "cancels it"),
        flag("s", "suspends it"),
        value("r", "at most so many bytes a second"),
    ],
    targets: Targets::Of(|call| treating::targets(call, read(&call.args).all)),
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| treating::run(call, console, &read(&call.args))),
    ..Command::ZPOOL
};

fn read(args: &Parsed) -> Options {
    Options {
        what: Treatment::Trim,
        all: args.has("a"),
        actions: args.in_order(["c", "s"]),
        wait: args.has("w"),
        zeros: false,
        secure: args.has("d"),
        rate: args.text("r"),
    }
}

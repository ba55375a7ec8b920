//! `zfs projectspace`.

use super::zfs_userspace::{self, Options};
use pool::props::dataset::Owner;

use crate::args::{Parsed, flag, property};
use crate::command::{Beside, Command, Run};

/// `zfs projectspace`.
pub static COMMAND: Command = Command {
    name: "projectspace",
    about: "shows space and quotas of projects",
    syntax: &[
        "projectspace [-Hp] [-j [--json-int]] [-o FIELD[,…]] [-s FIELD]… [-S FIELD]… FILESYSTEM|SNAPSHOT|PATH",
    ],
    examples: &["zfs projectspace tank/home"],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        property("o", "these fields"),
        property("s", "sorted by this field"),
        property("S", "sorted by this field, the largest first"),
        flag("j|json", "prints JSON"),
        flag("json-int", "numbers without quotes in JSON"),
    ],
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| zfs_userspace::run(call, &read(&call.args), console, Owner::Project)),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        numeric: false,
        exact: args.has("p"),
        json: args.has("j"),
        json_int: args.has("json-int"),
        fields: args.text("o"),
        ascending: args.texts("s"),
        descending: args.texts("S"),
        types: Vec::new(),
    }
}

//! `zfs groupspace`.

use super::zfs_userspace::{self, Options};
use pool::props::dataset::Owner;

use crate::args::{Parsed, flag, property, value};
use crate::command::{Beside, Command, Run};

/// `zfs groupspace`.
pub static COMMAND: Command = Command {
    name: "groupspace",
    about: "shows space and quotas of groups",
    syntax: &[
        "groupspace [-Hinp] [-j [--json-int]] [-o FIELD[,…]] [-s FIELD]… [-S FIELD]… [-t TYPE[,…]] FILESYSTEM|SNAPSHOT|PATH",
    ],
    examples: &["zfs groupspace tank/home", "zfs groupspace -Hp -o name,used tank/home"],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("i", "translates identities of other systems").idle(),
        flag("n", "numbers instead of names"),
        flag("p", "exact numbers"),
        property("o", "these fields"),
        property("s", "sorted by this field"),
        property("S", "sorted by this field, the largest first"),
        value("t", "only these types of owners"),
        flag("j|json", "prints JSON"),
        flag("json-int", "numbers without quotes in JSON"),
    ],
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| zfs_userspace::run(call, &read(&call.args), console, Owner::Group)),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        numeric: args.has("n"),
        exact: args.has("p"),
        json: args.has("j"),
        json_int: args.has("json-int"),
        fields: args.text("o"),
        ascending: args.texts("s"),
        descending: args.texts("S"),
        types: args.texts("t"),
    }
}

//! `zpool condense`.

use super::Call;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run};
use crate::messages::Failure;
use crate::out::Console;

/// `zpool condense`.
pub static COMMAND: Command = Command {
    name: "condense",
    about: "condenses what the pool keeps of itself",
    syntax: &["condense POOL", "condense --types"],
    examples: &["zpool condense tank", "zpool condense --types"],
    options: &[flag("types", "lists what can be condensed")],
    run: Run::Here(run),
    ..Command::ZPOOL
};

struct Options {
    /// Only shows what can be condensed.
    types: bool,
}

fn read(args: &Parsed) -> Options {
    Options { types: args.has("types") }
}

fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    match read(&call.args) {
        Options { types: true } => console.line("log_spacemap"),
        Options { types: false } => Err(call.command.missing(None)),
    }
}

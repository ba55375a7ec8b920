//! `zfs version` and `zpool version`.

use super::Call;
use crate::args::{Choice, Parsed, flag};
use crate::command::{Command, Run};
use crate::json;
use crate::messages::Failure;
use crate::out::Console;

/// `zfs version`.
pub static ZFS: Command = of(Command::ZFS, &["zfs version", "zfs version -j"]);
/// `zpool version`.
pub static ZPOOL: Command = of(Command::ZPOOL, &["zpool version", "zpool version -j"]);

const OPTIONS: &[Choice] = &[flag("j|json", "as JSON")];

const fn of(program: Command, examples: &'static [&'static str]) -> Command {
    Command {
        name: "version",
        about: "shows the versions of the program and of the engine",
        syntax: &["version [-j]"],
        examples,
        options: OPTIONS,
        run: Run::Here(run),
        ..program
    }
}

/// The OpenZFS release whose behaviour is kept, as `version` prints it.
const USERLAND: &str = concat!("zfs-2.4.0-cenote-", env!("CARGO_PKG_VERSION"));
/// The version of the running engine, for scripts.
const KERNEL: &str = "zfs-kmod-2.4.0-1";

struct Options {
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options { json: args.has("j") }
}

fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    if read(&call.args).json {
        return console.line(&json::versions(&call.command.called(), USERLAND, KERNEL).to_string());
    }
    print(console)
}

/// Prints both versions.
///
/// # Errors
/// As [`Console::line`].
pub fn print(console: &mut Console) -> Result<(), Failure> {
    console.line(USERLAND)?;
    console.line(KERNEL)
}

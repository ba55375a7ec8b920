//! `zfs unload-key`.

use super::Call;
use super::key_loading::{self, Deed, Scope};
use crate::args::{Parsed, every_pool, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use crate::out::Console;

/// `zfs unload-key`.
pub static COMMAND: Command = Command {
    name: "unload-key",
    about: "unloads keys",
    syntax: &["unload-key [-r] -a|FILESYSTEM|VOLUME"],
    examples: &["zfs unload-key tank/secret", "zfs unload-key -a"],
    options: &[every_pool("a", "of all"), flag("r", "also below")],
    targets: Targets::Of(|call| key_loading::targets(call, read(&call.args).all)),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs unload-key`.
struct Options {
    all: bool,
    below: bool,
}

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a"), below: args.has("r") }
}

/// Runs `zfs unload-key`.
///
/// # Errors
/// The arguments are wrong, or keys cannot be unloaded. The error names their datasets.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let scope = Scope { all: call.options.all, below: call.options.below };
    key_loading::run(call, console, scope, Deed::Unload)
}

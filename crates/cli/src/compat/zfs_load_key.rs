//! `zfs load-key`.

use super::Call;
use super::key_loading::{self, Deed, Scope};
use crate::args::{Parsed, every_pool, flag, value};
use crate::command::{Beside, Command, Run, Targets};
use crate::messages::Failure;
use crate::out::Console;

/// `zfs load-key`.
pub static COMMAND: Command = Command {
    name: "load-key",
    about: "loads keys of encrypted datasets",
    syntax: &["load-key [-nr] [-L KEYLOCATION] -a|FILESYSTEM|VOLUME"],
    examples: &[
        "zfs load-key tank/secret",
        "zfs load-key -L file:///root/key tank/secret",
        "zfs load-key -a",
    ],
    options: &[
        every_pool("a", "of all"),
        flag("n", "only checks them"),
        flag("r", "also below"),
        value("L", "from there"),
    ],
    targets: Targets::Of(|call| key_loading::targets(call, read(&call.args).all)),
    // A user may take long to type a key, so no lock is held meanwhile.
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs load-key`.
struct Options {
    all: bool,
    dry_run: bool,
    below: bool,
    location: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a"), dry_run: args.has("n"), below: args.has("r"), location: args.text("L") }
}

/// Runs `zfs load-key`.
///
/// # Errors
/// The arguments are wrong, or keys cannot be loaded. The error names their datasets.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let options = &call.options;
    let location = options.location.as_deref();
    let many = options.all || options.below;
    if many && location.is_some_and(|location| location != "prompt") {
        return Err(Failure::usage("alternate keylocation may only be 'prompt' with -r or -a"));
    }
    let deed = if options.dry_run { Deed::Verify(location) } else { Deed::Load(location) };
    key_loading::run(call, console, Scope { all: options.all, below: options.below }, deed)
}

//! `zpool prefetch`.

use super::Call;
use crate::args::{Parsed, value};
use crate::command::{Command, Run};
use crate::messages::{Action, Failure};
use crate::open::{self, Intent};
use crate::suggest;

/// `zpool prefetch`.
pub static COMMAND: Command = Command {
    name: "prefetch",
    about: "reads tables of the pool into memory",
    syntax: &["prefetch [-t TYPE] POOL"],
    examples: &["zpool prefetch -t ddt tank"],
    options: &[value("t", "which: ddt or brt")],
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool prefetch`.
struct Options {
    kind: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options { kind: args.text("t") }
}

/// What can be prefetched: tables of deduplicated and of cloned blocks.
const KINDS: [&str; 2] = ["ddt", "brt"];

/// Runs `zpool prefetch`. It does not prefetch tables of cloned blocks, because they are not looked up on disk.
///
/// # Errors
/// The arguments are wrong, or a pool is missing.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    if let Some(kind) = call.options.kind.as_deref().filter(|kind| !KINDS.contains(kind)) {
        let line = format!("invalid prefetch type '{kind}'");
        return Err(Failure::usage(suggest::with_nearest(line, kind, KINDS.into_iter())));
    }
    let [name] = call.args.operands.as_slice() else {
        let words =
            if call.args.operands.is_empty() { "missing pool name argument" } else { "too many arguments" };
        return Err(Failure::usage(words));
    };
    let session = open::open_pool(name, call.around, Intent::Read)?;
    if call.options.kind.as_deref() != Some("brt") {
        session.pool().prefetch_dedup().map_err(|error| Action::Open(name).failed(error))?;
    }
    session.finish()
}

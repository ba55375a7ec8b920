//! `zpool resilver`.

use super::Call;
use super::zpool_devices::{opened, waits};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use scan::Scans as _;

/// `zpool resilver`.
pub static COMMAND: Command = Command {
    name: "resilver",
    about: "begins a resilver anew",
    syntax: &["resilver POOL…"],
    examples: &["zpool resilver tank"],
    targets: Targets::All,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// Runs `zpool resilver`.
///
/// # Errors
/// The arguments are wrong, or the pool is missing or cannot be written.
fn run(call: &Call) -> Result<(), Failure> {
    if call.args.operands.is_empty() {
        return Err(Failure::usage("missing pool name argument"));
    }
    for name in &call.args.operands {
        let failed = |why: &str| Failure::refused(format!("cannot restart resilver {name}: {why}"));
        let session = opened(call, name, &failed)?;
        session.pool().resilver().map_err(|error| failed(&error.to_string()))?;
        waits(call, &session)?;
        session.finish()?;
    }
    Ok(())
}

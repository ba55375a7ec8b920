//! `zpool reopen`.

use super::Call;
use super::pools_named::pools_named;
use crate::args::flag;
use crate::command::{Command, Run};
use crate::messages::{Failure, reason};
use crate::open::{self, Intent};
use crate::out::Console;
use format::config::VdevKind;
use pool::labels;
use std::path::Path;
use storage::host::{Access, FileDisk};

/// `zpool reopen`.
pub static COMMAND: Command = Command {
    name: "reopen",
    about: "opens all devices anew",
    syntax: &["reopen [-n] [POOL]"],
    examples: &["zpool reopen tank"],
    options: &[flag("n", "does not begin a scrub anew").idle()],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// Runs `zpool reopen`: opens every device again. Devices that are missing, or that no longer belong to the pool, are
/// reported; the pool continues with the open ones.
///
/// # Errors
/// The arguments are wrong, or pools or devices are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    for name in pools_named(call, console)? {
        let session = open::open_pool(&name, call.around, Intent::Read)?;
        let config = session.pool().info().config;
        let is_own = |path: &Path, guid: u64| {
            let disk = FileDisk::open(path, Access::Peek).ok()?;
            let newest = labels::read(&disk).pool_configs().max_by_key(|config| config.txg)?.clone();
            Some(
                newest.pool_guid == config.pool_guid
                    && newest.label.is_some_and(|label| label.guid.0 == guid),
            )
        };
        let mut devices = config.tree.leaves().filter(|leaf| leaf.kind != VdevKind::DistributedSpare);
        let gone = devices.find(|leaf| {
            let path = session.devices.get(&leaf.guid.0).filter(|path| !open::is_gone(path));
            path.and_then(|path| is_own(path, leaf.guid.0)) != Some(true)
        });
        let path = gone.and_then(|leaf| leaf.path.clone());
        session.finish()?;
        if gone.is_some() {
            let at = String::from_utf8_lossy(&path.unwrap_or_default()).into_owned();
            let failure = Failure::refused(format!("cannot reopen '{name}': {}", reason::DEVICE_UNAVAILABLE));
            console.complain(failure.hint(at))?;
        }
    }
    Ok(())
}

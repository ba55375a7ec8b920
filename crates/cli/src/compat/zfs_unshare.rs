//! `zfs unshare`.

use std::sync::Arc;

use server::Live;

use super::Call;
use super::select::dataset_failure;
use super::sharing::{self, Named, Options};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run};
use crate::messages::{Action, Failure};
use crate::out::Console;

/// `zfs unshare`.
pub static COMMAND: Command = Command {
    name: "unshare",
    about: "ends sharing, until file systems are shared again or their pool is imported",
    syntax: &["unshare -a [nfs|smb]|FILESYSTEM|MOUNTPOINT"],
    examples: &["zfs unshare tank/home", "zfs unshare -a"],
    options: &[flag("a", "of all")],
    run: Run::Here(run),
    ..Command::ZFS
};

const HOW_ELSE: &str = "use exports(5) or smb.conf(5) to unshare this filesystem";

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a") }
}

/// Runs `zfs unshare`.
///
/// # Errors
/// The arguments are wrong, or the file system is not shared.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let named = sharing::operand(call)?;
    let Some(live) = call.live() else { return sharing::elsewhere(call, &named, console) };
    let name = match named {
        Named::One(name) => at_mountpoint(live, name)?,
        Named::All(protocol) => {
            live.unshare_all(protocol);
            return Ok(());
        }
    };
    let pool = live.pool().map_err(|closed| Action::Open(live.name()).failed(closed))?;
    pool.dataset(&name).map_err(|error| dataset_failure(&name, &error))?;
    drop(pool);
    match live.unshare(&name) {
        Err(_) if live.is_share_off(&name) => {
            Err(Failure::refused(format!("cannot unshare '{name}': legacy share")).hint(HOW_ELSE))
        }
        ended => ended.map_err(|error| Failure::refused(format!("cannot unshare '{name}': {error}"))),
    }
}

/// The dataset that is mounted at a path; or the name itself.
fn at_mountpoint(live: &Arc<Live>, name: &str) -> Result<String, Failure> {
    if !name.starts_with('/') {
        return Ok(name.to_owned());
    }
    let found = live.mounts().into_iter().find(|(_, point)| point.as_os_str() == name);
    found.map(|(dataset, _)| dataset).ok_or_else(|| {
        Failure::refused(format!("cannot unshare '{name}': path is not a mountpoint of this pool"))
    })
}

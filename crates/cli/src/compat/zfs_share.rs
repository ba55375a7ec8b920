//! `zfs share` and `zfs unshare`: file systems that the pool's server serves over NFS.

use std::sync::Arc;

use server::Live;

use super::Call;
use super::mounting::without_server;
use super::not_shared::not_shared;
use super::select::dataset_failure;
use super::zfs_mount::take_turns;
use crate::args::flag;
use crate::command::{Command, Run};
use crate::messages::{Action, Failure};
use crate::open::{self, pool_of};
use crate::out::Console;
use crate::{client, connect};

/// `zfs share`.
pub static SHARE: Command = Command {
    name: "share",
    about: "shares file systems whose property sharenfs says so",
    syntax: &["share [-l] -a [nfs]|FILESYSTEM"],
    examples: &["zfs share tank/home", "zfs share -a"],
    options: &[flag("a", "all of them"), flag("l", "loads keys first").idle()],
    run: Run::Here(share),
    ..Command::ZFS
};

/// `zfs unshare`.
pub static UNSHARE: Command = Command {
    name: "unshare",
    about: "ends sharing, until file systems are shared again or their pool is imported",
    syntax: &["unshare -a [nfs]|FILESYSTEM|MOUNTPOINT"],
    examples: &["zfs unshare tank/home", "zfs unshare -a"],
    options: &[flag("a", "of all")],
    run: Run::Here(unshare),
    ..Command::ZFS
};

const HOW_ELSE: &str = "use exports(5) or smb.conf(5) to unshare this filesystem";

/// The file system of a command line; `None` with `-a`.
fn operand<'a>(call: &'a Call) -> Result<Option<&'a str>, Failure> {
    match (call.args.operands.as_slice(), call.args.has("a")) {
        ([], true) => Ok(None),
        ([protocol], true) if protocol == "nfs" => Ok(None),
        ([protocol], true) if protocol == "smb" => Err(Failure::refused("not supported yet: smb")
            .hint("Samba shares a mounted file system: docs/manual/nfs.md")),
        ([_, ..], true) | ([_, _, ..], false) => Err(Failure::usage("too many arguments")),
        ([], false) => Err(Failure::usage("missing filesystem argument")),
        ([name], false) => Ok(Some(name)),
    }
}

/// Runs `zfs share`.
///
/// # Errors
/// Usage, or why something is not shared.
fn share(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let name = operand(call)?;
    let Some(live) = call.live() else { return elsewhere(call, name, console) };
    let Some(name) = name else {
        for (dataset, error) in live.share_all() {
            console.complain(not_shared(&dataset, &error))?;
        }
        return Ok(());
    };
    live.share(name).map_err(|error| not_shared(name, &error))
}

/// Runs `zfs unshare`.
///
/// # Errors
/// Usage, or that it is not shared.
fn unshare(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let name = operand(call)?;
    let Some(live) = call.live() else { return elsewhere(call, name, console) };
    let Some(name) = name else {
        for exported in live.shares() {
            // Another command may have been quicker.
            let _ = live.unshare(&exported.dataset);
        }
        return Ok(());
    };
    let name = at_mountpoint(live, name)?;
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

/// Has the servers of the pools do it.
fn elsewhere(call: &Call, name: Option<&str>, console: &mut Console) -> Result<(), Failure> {
    if !connect::is_used() {
        return Err(without_server(call));
    }
    let pools = match name {
        Some(path) if path.starts_with('/') => {
            open::usable(call.around)?.into_iter().map(|pool| pool.name).collect()
        }
        Some(name) => vec![pool_of(name).to_owned()],
        None => open::usable(call.around)?.into_iter().map(|pool| pool.name).collect::<Vec<_>>(),
    };
    console.flush()?;
    for pool in &pools {
        if client::server_of(pool, call.around)?.is_some() {
            take_turns(call, vec![(pool.clone(), call.args.operands.clone())])?;
        } else if let Some(name) = name.filter(|name| !name.starts_with('/')) {
            open::find(pool, call.around).map_err(|error| error.dataset(name))?;
            return Err(Failure::refused(format!("cannot share '{name}': pool '{pool}' has no server"))
                .hint("'zpool import' or 'zfs mount' starts it"));
        }
    }
    Ok(())
}

//! What `zfs share` and `zfs unshare` have in common: file systems that the servers of pools serve over NFS.

use super::Call;
use super::mounting::without_server;
use super::zfs_mount::take_turns;
use crate::messages::Failure;
use crate::open::{self, pool_of};
use crate::out::Console;
use crate::{client, connect};

/// The file system of a command line; `None` for all.
pub(super) fn operand<'a>(call: &'a Call, all: bool) -> Result<Option<&'a str>, Failure> {
    match (call.args.operands.as_slice(), all) {
        ([], true) => Ok(None),
        ([protocol], true) if protocol == "nfs" => Ok(None),
        ([protocol], true) if protocol == "smb" => Err(Failure::refused("not supported yet: smb")
            .hint("Samba shares a mounted file system: docs/manual/nfs.md")),
        ([_, ..], true) | ([_, _, ..], false) => Err(Failure::usage("too many arguments")),
        ([], false) => Err(Failure::usage("missing filesystem argument")),
        ([name], false) => Ok(Some(name)),
    }
}

/// Has the servers of the pools do it.
pub(super) fn elsewhere(call: &Call, name: Option<&str>, console: &mut Console) -> Result<(), Failure> {
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

//! The common part of `zfs share` and `zfs unshare`: file systems that the servers of pools, or those of the system,
//! share.

use server::Protocol;

use super::Call;
use super::mounting::without_server;
use super::zfs_mount::take_turns;
use crate::command::Typed;
use crate::messages::Failure;
use crate::open::{self, pool_of};
use crate::out::Console;
use crate::{client, connect};

/// The options of both.
pub(super) struct Options {
    /// All file systems.
    pub(super) all: bool,
}

/// The subject of a command line.
pub(super) enum Named<'a> {
    /// One file system.
    One(&'a str),
    /// All, for clients of this protocol or of each.
    All(Option<Protocol>),
}

/// The operand of a command line.
pub(super) fn operand<'a>(call: &'a Typed<'_, Options>) -> Result<Named<'a>, Failure> {
    match (call.args.operands.as_slice(), call.options.all) {
        ([], true) => Ok(Named::All(None)),
        ([protocol], true) if protocol == "nfs" => Ok(Named::All(Some(Protocol::Nfs))),
        ([protocol], true) if protocol == "smb" => Ok(Named::All(Some(Protocol::Smb))),
        ([_, ..], true) | ([_, _, ..], false) => Err(Failure::usage("too many arguments")),
        ([], false) => Err(Failure::usage("missing filesystem argument")),
        ([name], false) => Ok(Named::One(name)),
    }
}

/// Lets the servers of the pools share or unshare.
pub(super) fn elsewhere(call: &Call, named: &Named<'_>, console: &mut Console) -> Result<(), Failure> {
    let name = match named {
        Named::One(name) => Some(*name),
        Named::All(_) => None,
    };
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

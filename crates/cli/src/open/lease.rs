//! A state of a pool that its server keeps on the disks for this process.

use std::path::PathBuf;

use format::uberblock::Uberblock;
use pool::{Found, Pool};
use server::messages::Fresh;
use server::{Client, Runtime};
use storage::host::{Access, FileDisk, OpenError};

use super::{Intent, NotOpen};
use crate::front_ends::MOUNTER;

/// Whether a process holds one of the devices. A copy of a device has the name and guid of the server's pool, but no process
/// holds it.
pub fn is_held(found: &Found) -> bool {
    held(found).is_some()
}

/// Which device a process holds, and which process.
pub fn held(found: &Found) -> Option<OpenError> {
    let refusal = |path: &PathBuf| FileDisk::open(path, Access::ReadOnly).err();
    found.devices.values().filter_map(refusal).find(|error| matches!(error, OpenError::InUse { .. }))
}

/// The state of a pool that its server, if it has one, leaves on the disks as long as the connection lives. Without an
/// intent it is the one that was synced last: nothing is written for it.
pub(super) fn lease(
    name: &str,
    found: &Found,
    intent: Option<Intent>,
) -> Result<Option<(Client, Uberblock)>, NotOpen> {
    let Some(client) = connected(name, found)?.filter(|_| is_held(found)) else { return Ok(None) };
    let fresh = match intent {
        None => Fresh::Last,
        Some(Intent::Read) => Fresh::Soon,
        Some(Intent::Files) => Fresh::Files,
        Some(Intent::Survey | Intent::Write) => Fresh::Synced,
    };
    let uberblock =
        client.lease(fresh).map_err(|source| NotOpen::Server { name: name.to_owned(), source })?;
    Ok(Some((client, uberblock)))
}

/// A connection to the server of a pool that was found, if it has one.
pub(super) fn connected(name: &str, found: &Found) -> Result<Option<Client>, NotOpen> {
    if !crate::connect::is_used() {
        return Ok(None);
    }
    let devices = || found.devices.values().cloned().collect();
    let client = server::client::connect_anywhere(&Runtime::of_user(), name, MOUNTER, devices);
    let client = client.map_err(|source| NotOpen::Server { name: name.to_owned(), source })?;
    Ok(client.filter(|client| client.guid == found.config.pool_guid.0))
}

/// Records the keys that the server of a pool has loaded, for `keystatus`. It uses a connection of its own, because a
/// connection with a lease answers nothing else.
pub(super) fn note_keys(pool: &Pool, name: &str, found: &Found) {
    if pool.has_encrypted()
        && let Ok(Some(client)) = connected(name, found)
        && let Ok(status) = client.status()
    {
        pool.note_loaded_keys(&status.keys);
    }
}

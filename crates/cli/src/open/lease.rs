//! A state of a pool that its server keeps on the disks for this process.

use std::path::PathBuf;

use format::uberblock::Uberblock;
use pool::Found;
use server::messages::Fresh;
use server::{Client, Runtime};
use storage::host::{Access, FileDisk, OpenError};

use super::{Intent, NotOpen};

/// Whether somebody holds one of the devices. A copy of what a server holds has its pool's name and guid, but is nobody's.
pub fn is_held(found: &Found) -> bool {
    let in_use =
        |path: &PathBuf| matches!(FileDisk::open(path, Access::ReadOnly), Err(OpenError::InUse { .. }));
    found.devices.values().any(in_use)
}

/// The state of a pool that its server, if it has one, leaves on the disks as long as the connection lives. Without an
/// intent it is the one that was synced last: nothing is written for it.
pub(super) fn lease(
    name: &str,
    found: &Found,
    intent: Option<Intent>,
) -> Result<Option<(Client, Uberblock)>, NotOpen> {
    if !crate::connect::is_used() {
        return Ok(None);
    }
    let failed = |source| NotOpen::Server { name: name.to_owned(), source };
    let devices = || found.devices.values().cloned().collect();
    match server::client::connect_anywhere(&Runtime::of_user(), name, devices).map_err(failed)? {
        Some(client) if client.guid == found.config.pool_guid.0 && is_held(found) => {
            let fresh = match intent {
                None => Fresh::Last,
                Some(Intent::Read) => Fresh::Soon,
                Some(Intent::Files) => Fresh::Files,
                Some(Intent::Survey | Intent::Write) => Fresh::Synced,
            };
            let uberblock = client.lease(fresh).map_err(failed)?;
            Ok(Some((client, uberblock)))
        }
        _ => Ok(None),
    }
}

//! Connections to the servers of pools.

use pool::known::KnownPool;
use server::{Client, ClientError, Runtime};

use crate::front_ends::MOUNTER;
use crate::state;

/// Whether pools are held by servers: not with `CENOTE_SERVER=off`, where each command opens and exports its pool.
#[must_use]
pub fn is_used() -> bool {
    std::env::var_os("CENOTE_SERVER").is_none_or(|value| value != "off")
}

/// Connects to the server of the pool `name`, whichever login of this user started it: a server whose socket is in another
/// runtime folder is found by its lock on the devices of the imported pool of that name.
///
/// # Errors
/// The socket belongs to something that cannot be used, or the socket of the server is gone.
pub fn connect(name: &str) -> Result<Option<Client>, ClientError> {
    let devices = || {
        let known = state::known().read().unwrap_or_default();
        known.into_iter().find(|pool| pool.name == name).map_or_else(Vec::new, |pool| pool.devices)
    };
    server::client::connect_anywhere(&Runtime::of_user(), name, MOUNTER, devices)
}

/// As [`connect`], to the server of a pool that the list of imported pools has: the list is not read again. Where no server
/// runs this finds no socket and no lock on the pool's devices, and asks no server.
///
/// # Errors
/// As [`connect`].
pub fn connect_to(known: &KnownPool) -> Result<Option<Client>, ClientError> {
    server::client::connect_anywhere(&Runtime::of_user(), &known.name, MOUNTER, || known.devices.clone())
}

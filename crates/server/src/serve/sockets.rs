//! The names and sockets of a server.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use front::Mounter;

use crate::Runtime;
use crate::client::connect;
use crate::error::ServeError;
use crate::runtime::{FRESH, NameLock};

/// Time for a server that no longer listens to release its name.
const LEAVING: Duration = Duration::from_secs(3);

/// Only the user of the server may connect.
pub(super) const OWN_MODE: u32 = 0o600;
/// Every user of the machine may connect.
pub(super) const VISITORS_MODE: u32 = 0o666;

/// Waits a moment for the name of a server that is just ending.
pub(super) fn hold_name(
    runtime: &Runtime,
    name: &str,
    mounter: &dyn Mounter,
) -> Result<NameLock, ServeError> {
    let until = Instant::now() + LEAVING;
    loop {
        let held = runtime.hold(name);
        let held =
            held.map_err(|source| ServeError::System { path: runtime.folder().to_path_buf(), source })?;
        if let Ok(Some(other)) = connect(runtime, name, mounter) {
            return Err(ServeError::Taken(Some(other.pid)));
        }
        match held {
            // A socket without a listener belongs to a dead server.
            Some(held) => return Ok(held),
            None if Instant::now() >= until => return Err(ServeError::Taken(None)),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Listens at `path`, and replaces the socket of a dead server.
pub(super) fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(FRESH);
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
    // At every moment, clients find the old socket or a listening one.
    fs::rename(&fresh, path)?;
    Ok(listener)
}

//! The names and sockets of a server.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Runtime;
use crate::client::connect;
use crate::error::ServeError;
use crate::runtime::FRESH;

/// How long a server that does not listen any more may keep its name.
const LEAVING: Duration = Duration::from_secs(3);

/// Only the user of the server may connect.
pub(super) const OWN_MODE: u32 = 0o600;
/// Every user of the machine may connect.
pub(super) const VISITORS_MODE: u32 = 0o666;

/// Waits at most a moment for the name of a server that is just going away.
pub(super) fn hold_name(runtime: &Runtime, name: &str) -> Result<OwnedFd, ServeError> {
    let until = Instant::now() + LEAVING;
    loop {
        let held = runtime.hold(name);
        let held =
            held.map_err(|source| ServeError::System { path: runtime.folder().to_path_buf(), source })?;
        if let Ok(Some(other)) = connect(runtime, name) {
            return Err(ServeError::Taken(Some(other.pid)));
        }
        match held {
            // A socket that nobody listens on is of a server that died.
            Some(held) => return Ok(held),
            None if Instant::now() >= until => return Err(ServeError::Taken(None)),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Listens at `path`, in place of what a dead server left there.
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
    // Clients find the old socket or one that is listened to.
    fs::rename(&fresh, path)?;
    Ok(listener)
}

//! The list of imported pools that this user's commands remember, and its place.

use std::path::{Path, PathBuf};

use pool::known::Known;

/// The file of known pools of this user.
pub fn known() -> Known {
    Known::new(state_folder())
}

/// Where this user's state is kept.
pub fn state_folder() -> PathBuf {
    match std::env::var_os("CENOTE_STATE_DIR").filter(|dir| !dir.is_empty()) {
        Some(folder) => absolute(Path::new(&folder)),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/cenote"),
        None => {
            let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
            let state =
                std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            state.unwrap_or_else(|| home().join(".local/state")).join("cenote")
        }
    }
}

/// `path` with nothing relative in it, for the file of known pools.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

//! The runtime directory: sockets of the servers, and mounts of users who own no better place.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where sockets are. Only its owner may enter it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    folder: PathBuf,
}

impl Runtime {
    /// Sockets in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: PathBuf) -> Runtime {
        Runtime { folder }
    }

    /// That of this user: `$CENOTE_RUN_DIR`, else `/run/cenote` as root, else `$XDG_RUNTIME_DIR/cenote`, else a
    /// folder of their own in `/tmp`.
    #[must_use]
    pub fn of_user() -> Runtime {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let user = rustix::process::geteuid();
        Runtime::new(match (set("CENOTE_RUN_DIR"), set("XDG_RUNTIME_DIR")) {
            (Some(folder), _) => folder,
            (None, _) if user.is_root() => PathBuf::from("/run/cenote"),
            (None, Some(folder)) => folder.join("cenote"),
            (None, None) => std::env::temp_dir().join(format!("cenote-{}", user.as_raw())),
        })
    }

    /// The socket of the server of `pool`.
    #[must_use]
    pub fn socket(&self, pool: &str) -> PathBuf {
        self.folder.join(format!("{pool}.sock"))
    }

    /// Below this a user without rights elsewhere has their mounts.
    #[must_use]
    pub fn mounts(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made, or is not this user's alone.
    pub fn create(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let metadata = fs::metadata(&self.folder)?;
        let own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
        if own { Ok(()) } else { Err(io::Error::other("this folder could be written by somebody else")) }
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().join("run"));
        runtime.create().unwrap();
        assert_eq!(fs::metadata(runtime.folder()).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(runtime.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(runtime.create().is_err());
        assert!(runtime.socket("tank").ends_with("run/tank.sock"));
    }
}

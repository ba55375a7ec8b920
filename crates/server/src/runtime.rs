//! The runtime directory: sockets of the servers, and mounts of users who have no other place.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pool::private;
use pool::props::names;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, retry_on_intr};

/// Parent of the login folders, each named by the user's uid.
const LOGINS: &str = "/run/user";
/// Suffix of a socket's name while it is being made.
pub(crate) const FRESH: &str = ".new";

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

    /// That of this user: `$CENOTE_RUN_DIR`, else `/run/cenote` as root, else `$XDG_RUNTIME_DIR/cenote`, else `cenote` in
    /// the folder of their logins (`/run/user/ID`, where a session without that variable finds it, too), else a folder of
    /// their own in `/tmp`.
    #[must_use]
    pub fn of_user() -> Runtime {
        let set = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let user = rustix::process::geteuid();
        let of_session = set("XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
        let of_session = of_session.or_else(|| of_logins(Path::new(LOGINS), user.as_raw()));
        Runtime::new(match (set("CENOTE_RUN_DIR"), of_session) {
            (Some(folder), _) => std::path::absolute(&folder).unwrap_or(folder),
            (None, _) if user.is_root() => PathBuf::from("/run/cenote"),
            (None, Some(folder)) => folder.join("cenote"),
            (None, None) => std::env::temp_dir().join(format!("cenote-{}", user.as_raw())),
        })
    }

    /// The socket of the server of `pool`.
    ///
    /// # Errors
    /// No pool can have that name.
    pub fn socket(&self, pool: &str) -> io::Result<PathBuf> {
        self.file(pool, "sock")
    }

    /// A file of the folder that is named after `pool`. The name is checked, so that the file is in the folder.
    fn file(&self, pool: &str, extension: &str) -> io::Result<PathBuf> {
        names::check_pool(pool, false)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why.to_string()))?;
        Ok(self.folder.join(format!("{pool}.{extension}")))
    }

    /// Reserves the name `pool` for one server, until the returned value is dropped or the process ends. `None` if another
    /// server has it.
    ///
    /// # Errors
    /// The file that is locked cannot be made, or no pool can have that name.
    pub(crate) fn hold(&self, pool: &str) -> io::Result<Option<OwnedFd>> {
        let path = self.file(pool, "lock")?;
        let file = private::file(&path, OFlags::RDWR)?;
        match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Folder for mounts of a user who has no rights elsewhere.
    #[must_use]
    pub fn mounts(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Place for `dataset` if its mount point lies in another mount of the user.
    #[must_use]
    pub fn within(&self, dataset: &str) -> PathBuf {
        // No name has a `%` in it.
        self.folder.join("within").join(dataset.replace('/', "%"))
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made, or is not this user's alone.
    pub fn create(&self) -> io::Result<()> {
        // In a public folder such as /tmp, another user may have made it first.
        if fs::symlink_metadata(&self.folder).is_ok_and(|found| found.is_symlink()) {
            return Err(io::Error::other("it is a symbolic link"));
        }
        private::folder(&self.folder)
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The folder that a user's logins share, if it is theirs alone.
fn of_logins(all: &Path, user: u32) -> Option<PathBuf> {
    let folder = all.join(user.to_string());
    let found = fs::symlink_metadata(&folder).ok()?;
    (found.is_dir() && found.uid() == user && found.mode() & 0o777 == 0o700).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_may_enter_is_closed_and_one_that_all_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().join("run"));
        runtime.create().unwrap();
        let mode = || fs::metadata(runtime.folder()).unwrap().mode() & 0o777;
        assert_eq!(mode(), 0o700);
        for open in [0o755, 0o710] {
            fs::set_permissions(runtime.folder(), fs::Permissions::from_mode(open)).unwrap();
            runtime.create().unwrap();
            assert_eq!(mode(), 0o700, "{open:o}");
        }
        fs::set_permissions(runtime.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(runtime.create().is_err());
        assert!(runtime.socket("tank").unwrap().ends_with("run/tank.sock"));
    }

    #[test]
    fn the_folder_of_logins_is_used_only_if_it_is_the_users_own() {
        let all = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let folder = all.path().join(user.to_string());
        assert_eq!(of_logins(all.path(), user), None);
        private::folder(&folder).unwrap();
        assert_eq!(of_logins(all.path(), user), Some(folder.clone()));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of_logins(all.path(), user), None);
        fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink(all.path(), &folder).unwrap();
        assert_eq!(of_logins(all.path(), user), None);
    }

    #[test]
    fn a_name_that_no_pool_can_have_is_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().join("run"));
        runtime.create().unwrap();
        for name in ["../x", "..", "a/b", "/x", "", "a\0b", "a\x1b[2J"] {
            assert_eq!(runtime.socket(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
            assert_eq!(runtime.hold(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(runtime.folder()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_a_lock_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().join("run"));
        runtime.create().unwrap();
        let victim = folder.path().join("victim");
        std::os::unix::fs::symlink(&victim, runtime.folder().join("tank.lock")).unwrap();
        assert!(runtime.hold("tank").is_err());
        assert!(!victim.exists());
    }

    #[test]
    fn a_name_is_held_by_one_server() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().to_path_buf());
        let held = runtime.hold("tank").unwrap();
        assert!(held.is_some() && runtime.hold("tank").unwrap().is_none());
        assert!(runtime.hold("dozer").unwrap().is_some());
        drop(held);
        assert!(runtime.hold("tank").unwrap().is_some());
    }

    #[test]
    fn a_link_or_the_folder_of_another_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let real = Runtime::new(folder.path().join("real"));
        real.create().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(real.folder(), &link).unwrap();
        assert!(Runtime::new(link).create().unwrap_err().to_string().contains("symbolic link"));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(real.folder(), Some(65534), None).unwrap();
            assert_eq!(real.create().unwrap_err().to_string(), "it belongs to user 65534");
        }
    }
}

//! The runtime directory: sockets of the servers, and mounts of users who have no other place.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pool::private;
use pool::props::names;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::{Errno, retry_on_intr};

/// Parent of the login folders, each named by the user's uid.
const LOGINS: &str = "/run/user";
/// Folders in the runtime directory that servers make.
const FOLDERS: [&str; 3] = ["mnt", "within", "nbd"];
/// How often the folder is made anew when other servers remove it meanwhile.
const ENTER_TRIES: usize = 1000;
/// So deep no mount points are nested.
const DEPTH_MAX: usize = 64;
/// Suffix of a socket's name while it is being made.
pub(crate) const FRESH: &str = ".new";

/// Where sockets are. Only its owner may enter it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    folder: PathBuf,
    /// cenote chose its place, so it is removed when the last server has ended.
    is_ours: bool,
}

impl Runtime {
    /// Sockets in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: PathBuf) -> Runtime {
        Runtime { folder, is_ours: false }
    }

    /// That of this user: `$CENOTE_RUN_DIR`, else `/run/cenote` as root, else `$XDG_RUNTIME_DIR/cenote`. Without these it
    /// is `cenote` in `/run/user/ID`, the folder of the user's logins; a session without that variable finds it there, too.
    /// The last choice is a folder of the user's own in `/tmp`.
    #[must_use]
    pub fn of_user() -> Runtime {
        let set = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let user = rustix::process::geteuid();
        let of_session = set("XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
        let of_session = of_session.or_else(|| of_logins(Path::new(LOGINS), user.as_raw()));
        let (folder, is_ours) = match (set("CENOTE_RUN_DIR"), of_session) {
            (Some(folder), _) => (std::path::absolute(&folder).unwrap_or(folder), false),
            // systemd makes it, too.
            (None, _) if user.is_root() => (PathBuf::from("/run/cenote"), false),
            (None, Some(folder)) => (folder.join("cenote"), true),
            (None, None) => (std::env::temp_dir().join(format!("cenote-{}", user.as_raw())), true),
        };
        Runtime { folder, is_ours }
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
    /// The lock file cannot be made, or no pool can have that name.
    pub(crate) fn hold(&self, pool: &str) -> io::Result<Option<NameLock>> {
        let path = self.file(pool, "lock")?;
        loop {
            let file = private::file(&path, OFlags::RDWR)?;
            match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            // The holder before may have removed the file after it was opened here. A lock on a removed file excludes no other process.
            if is_at(&file, &path)? {
                return Ok(Some(NameLock { path, _file: file }));
            }
        }
    }

    /// Makes the folder, and keeps it there until the returned value is dropped or the process ends.
    ///
    /// # Errors
    /// As [`Runtime::create`].
    pub(crate) fn enter(&self) -> io::Result<InUse> {
        let mut tries = 0;
        loop {
            match self.create() {
                // A server that ended removed it between two steps of this. Should its parent be missing, that is said.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < ENTER_TRIES => {
                    tries += 1;
                    continue;
                }
                made => made?,
            }
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = match retry_on_intr(|| open(&self.folder, flags, Mode::empty())) {
                Err(Errno::NOENT) => continue,
                opened => opened?,
            };
            retry_on_intr(|| flock(&folder, FlockOperation::LockShared))?;
            // A server that ended may have removed the folder before it was locked here.
            if is_at(&folder, &self.folder)? {
                return Ok(InUse { runtime: self.clone(), folder });
            }
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
    /// The folder cannot be made, or other users may use it, too.
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

/// The name of a pool, held for one server. The file that is locked is removed at the end.
#[derive(Debug)]
pub(crate) struct NameLock {
    path: PathBuf,
    _file: OwnedFd,
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // A file that stays is harmless. The lock is released after this, so no file of another server is removed.
        let _ = fs::remove_file(&self.path);
    }
}

/// The runtime directory while a server uses it: a shared lock on the folder.
#[derive(Debug)]
pub(crate) struct InUse {
    runtime: Runtime,
    folder: OwnedFd,
}

impl Drop for InUse {
    /// Removes the empty folders in the runtime directory, and that itself where cenote chose its place, unless another server
    /// uses it.
    fn drop(&mut self) {
        let exclusive = || flock(&self.folder, FlockOperation::NonBlockingLockExclusive);
        if retry_on_intr(exclusive).is_err() || !is_at(&self.folder, &self.runtime.folder).unwrap_or(false) {
            return;
        }
        for name in FOLDERS {
            remove_empty(&self.runtime.folder.join(name), 0);
        }
        if self.runtime.is_ours {
            // It stays while there is anything in it.
            let _ = fs::remove_dir(&self.runtime.folder);
        }
    }
}

/// Removes `folder` and the folders in it, as far as they are empty. A folder that something is mounted on stays, and is not
/// entered.
fn remove_empty(folder: &Path, depth: usize) {
    let removed = fs::remove_dir(folder);
    let is_full = removed.is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty);
    if !is_full || depth > DEPTH_MAX {
        return;
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_folder).for_each(|entry| remove_empty(&entry.path(), depth + 1));
    let _ = fs::remove_dir(folder);
}

/// Whether the open file or folder is the one at `path`.
fn is_at(opened: &OwnedFd, path: &Path) -> io::Result<bool> {
    let own = fstat(opened)?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.st_dev, own.st_ino)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The folder that a user's logins share, if only the user can write to it.
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

    #[test]
    fn the_folder_of_servers_is_removed_with_the_last_server_and_not_before() {
        let place = tempfile::tempdir().unwrap();
        let runtime = Runtime { folder: place.path().join("run"), is_ours: true };
        let (one, two) = (runtime.enter().unwrap(), runtime.enter().unwrap());
        let name = runtime.hold("tank").unwrap();
        assert!(runtime.folder().join("tank.lock").exists());
        fs::create_dir_all(runtime.mounts().join("srv/data")).unwrap();
        drop(name);
        assert!(!runtime.folder().join("tank.lock").exists());
        drop(one);
        assert!(runtime.mounts().join("srv/data").exists(), "another server may mount there");
        drop(two);
        assert!(!runtime.folder().exists());
        // A folder with something in it stays, and so does one that the user chose.
        let again = runtime.enter().unwrap();
        fs::write(runtime.folder().join("note"), "mine").unwrap();
        drop(again);
        assert!(runtime.folder().join("note").exists());
        let chosen = Runtime::new(place.path().join("chosen"));
        drop(chosen.enter().unwrap());
        assert!(chosen.folder().exists());
    }

    #[test]
    fn servers_that_come_and_go_at_the_same_time_never_hold_one_name_twice() {
        let place = tempfile::tempdir().unwrap();
        let runtime = Runtime { folder: place.path().join("run"), is_ours: true };
        let holders = std::sync::atomic::AtomicUsize::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let in_use = runtime.enter().unwrap();
                        if let Some(held) = runtime.hold("tank").unwrap() {
                            assert_eq!(holders.fetch_add(1, order), 0);
                            assert!(runtime.folder().join("tank.lock").exists());
                            holders.fetch_sub(1, order);
                            drop(held);
                        }
                        drop(in_use);
                    }
                });
            }
        });
        assert!(!runtime.folder().exists() || fs::read_dir(runtime.folder()).unwrap().count() == 0);
    }
}

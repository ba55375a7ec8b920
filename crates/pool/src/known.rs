//! The file of known pools: the imported pools and the last known paths of their devices.
//!
//! From:   `cli`, which imports and exports without a process that stays.
//! To:     a packed list of names and values (XDR, as `zpool.cache` is) in the state directory.
//!
//! Writers hold a lock on a file beside it and replace the whole file at once, so readers see the old list or
//! the new one, never half of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use format::Guid;
use format::config::{PoolConfig, VdevKind};
use format::nvlist::{NvList, NvValue};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::private;
use crate::props::names;

pub use cachefile::check as check_cachefile;

mod cachefile;

/// The list itself.
const FILE: &str = "pools.cache";
/// Locked for changes.
const LOCK: &str = "pools.lock";
/// Folder of the lock files with which a process reserves the name of a pool.
const CLAIMS: &str = "claims";
/// Number of letters of a pool's name that the name of such a file contains. With more, the file name could be too long.
const CLAIM_LETTERS: usize = 60;
/// No list is longer, in bytes.
const SIZE_MAX: u64 = 16 << 20;

/// A pool that is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPool {
    /// The name it was imported under.
    pub name: String,
    /// Its guid.
    pub guid: Guid,
    /// Where its devices were last seen.
    pub devices: Vec<PathBuf>,
    /// Prefix shown before mountpoints.
    pub altroot: Option<String>,
    /// It was imported read-only.
    pub read_only: bool,
    /// Its name is temporary: the labels have another name (`zpool import -t`).
    pub temporary: bool,
    /// It was imported without its log devices (`zpool import -m`).
    pub without_logs: bool,
    /// The property `cachefile` as given, if it was.
    pub cachefile: Option<String>,
}

/// Why the file of known pools could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// The system refused.
    #[error("'{}': {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file has not the form that cenote writes.
    #[error("'{}' is damaged ({what}); remove it and import the pools again", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        what: String,
    },
    /// Another program wrote this cache file, so it is not overwritten.
    #[error("'{}' is no list of pools that cenote wrote", .0.display())]
    Foreign(PathBuf),
    /// Another process keeps the lock of a cache file.
    #[error("'{}' is being changed by another process", .0.display())]
    Locked(PathBuf),
    /// A cache file has an entry for another pool of this name.
    #[error("'{}' lists another pool called '{name}'", .path.display())]
    Listed {
        /// The cache file.
        path: PathBuf,
        /// The name of both pools.
        name: String,
    },
    /// Its name is that of another pool, or it is known under another name.
    #[error("pool '{0}' is imported already, or another one of its name")]
    Taken(String),
}

/// A locked file that exists only while it is locked. It reserves the name of a pool, or the right to change a cache file.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The file is removed while it is locked. A process that waits for the lock sees that the file is gone and makes a
        // new one.
        let _ = fs::remove_file(&self.path);
    }
}

impl Claim {
    /// Makes and locks the file at `path`; `None` when another process has the lock.
    fn take(path: PathBuf) -> Result<Option<Claim>, KnownError> {
        loop {
            let lock = locked(&path, FlockOperation::NonBlockingLockExclusive).map_err(Known::io(&path))?;
            let Some(lock) = lock else { return Ok(None) };
            // The previous holder may have removed the file after it was opened here. A lock on a removed file excludes no
            // other process.
            let mine = rustix::fs::fstat(&lock).map_err(|errno| Known::io(&path)(errno.into()))?;
            match fs::metadata(&path) {
                Ok(there) if (there.dev(), there.ino()) == (mine.st_dev, mine.st_ino) => {
                    return Ok(Some(Claim { path, _lock: lock }));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(KnownError::Io { path, source }),
            }
        }
    }
}

/// Opens and locks the file at `path`, and makes it if it does not exist. `None` if another process has the lock and waiting
/// is not allowed.
fn locked(path: &Path, operation: FlockOperation) -> io::Result<Option<OwnedFd>> {
    let file = private::file(path, OFlags::RDWR)?;
    match retry_on_intr(|| rustix::fs::flock(&file, operation)) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The state directory with the file of known pools.
#[derive(Clone, Debug)]
pub struct Known {
    folder: PathBuf,
}

impl Known {
    /// The list in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: PathBuf) -> Known {
        Known { folder }
    }

    fn io(path: &Path) -> impl Fn(io::Error) -> KnownError + '_ {
        |source| KnownError::Io { path: path.to_path_buf(), source }
    }

    /// The pools that are imported, by name.
    ///
    /// # Errors
    /// The file cannot be read or is damaged. A missing file is no error.
    pub fn read(&self) -> Result<Vec<KnownPool>, KnownError> {
        let path = self.folder.join(FILE);
        let raw = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > SIZE_MAX => {
                return Err(KnownError::Damaged { path, what: format!("it has {} bytes", metadata.len()) });
            }
            Ok(_) => fs::read(&path).map_err(Self::io(&path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(KnownError::Io { path, source }),
        };
        decode(&raw).map_err(|what| KnownError::Damaged { path, what })
    }

    /// Changes the list under its lock.
    ///
    /// # Errors
    /// It cannot be read, locked or written; then nothing is changed.
    pub fn update<T>(&self, change: impl FnOnce(&mut Vec<KnownPool>) -> T) -> Result<T, KnownError> {
        private::folder(&self.folder).map_err(Self::io(&self.folder))?;
        let lock_path = self.folder.join(LOCK);
        let _lock = locked(&lock_path, FlockOperation::LockExclusive).map_err(Self::io(&lock_path))?;
        let mut pools = self.read()?;
        let before = pools.clone();
        let result = change(&mut pools);
        if pools != before {
            pools.sort_by(|a, b| a.name.cmp(&b.name));
            // If a cache file cannot be written, a pool that is new to it is refused. Other changes still succeed.
            let mut changes = cachefile::Changes::lock(&before, &pools);
            changes.check_new()?;
            replace(&self.folder.join(FILE), &encode(&pools), Readers::Owner)?;
            changes.write();
        }
        Ok(result)
    }

    /// Reserves the name `name` for a pool that is about to be created or imported, before its devices are written. `None`
    /// if another process has reserved it.
    ///
    /// # Errors
    /// The claim cannot be written down.
    pub fn claim(&self, name: &str) -> Result<Option<Claim>, KnownError> {
        let folder = self.folder.join(CLAIMS);
        private::folder(&self.folder).map_err(Self::io(&self.folder))?;
        private::folder(&folder).map_err(Self::io(&folder))?;
        // A name on a disk may contain any bytes. Names with the same beginning share one reservation.
        let letters: String = name.replace(['/', '\0'], "%").chars().take(CLAIM_LETTERS).collect();
        Claim::take(folder.join(format!("{letters}.lock")))
    }

    /// Adds a pool, or replaces its entry.
    ///
    /// # Errors
    /// [`KnownError::Taken`]; as [`Known::update`].
    pub fn enter(&self, pool: KnownPool) -> Result<(), KnownError> {
        let name = pool.name.clone();
        let entered = self.update(|pools| {
            let is_another = |other: &KnownPool| (other.name == pool.name) != (other.guid == pool.guid);
            if pools.iter().any(is_another) {
                return false;
            }
            pools.retain(|other| other.guid != pool.guid);
            pools.push(pool);
            true
        })?;
        if entered { Ok(()) } else { Err(KnownError::Taken(name)) }
    }

    /// Forgets a pool.
    ///
    /// # Errors
    /// As [`Known::update`].
    pub fn forget(&self, guid: Guid) -> Result<(), KnownError> {
        self.update(|pools| pools.retain(|pool| pool.guid != guid))
    }
}

/// Makes a new empty file beside `path`. It never opens an existing file or follows a link, because other users may write to
/// the folder.
fn fresh(path: &Path) -> Result<(PathBuf, File), KnownError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".cenote-{}", std::process::id()));
    let fresh = path.with_file_name(name);
    let make = || File::options().write(true).create_new(true).open(&fresh);
    let file = make().or_else(|error| match error.kind() {
        // A process with the same pid was killed at this point and left its file.
        io::ErrorKind::AlreadyExists => fs::remove_file(&fresh).and_then(|()| make()),
        _ => Err(error),
    });
    let file = file.map_err(Known::io(&fresh))?;
    Ok((fresh, file))
}

/// The users that may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// Only its owner.
    Owner,
    /// Those that the umask leaves.
    Umask,
}

/// Writes a new file beside the old one and renames it over the old one.
fn replace(path: &Path, bytes: &[u8], readers: Readers) -> Result<(), KnownError> {
    let (fresh, mut file) = fresh(path)?;
    let closed = match readers {
        Readers::Owner => file.set_permissions(fs::Permissions::from_mode(0o600)),
        Readers::Umask => Ok(()),
    };
    let written = closed
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&fresh, path));
    written.map_err(|source| {
        // It is ours, and of no use.
        let _ = fs::remove_file(&fresh);
        KnownError::Io { path: path.to_path_buf(), source }
    })
}

/// The devices that a cache file names: one of OpenZFS (`zpool.cache`), or a list of known pools.
///
/// # Errors
/// It cannot be read, or is neither.
pub fn cached_devices(path: &Path) -> Result<Vec<PathBuf>, KnownError> {
    let io = Known::io(path);
    let metadata = fs::metadata(path).map_err(&io)?;
    let damaged = |what: String| KnownError::Damaged { path: path.to_path_buf(), what };
    if metadata.len() > SIZE_MAX {
        return Err(damaged(format!("it has {} bytes", metadata.len())));
    }
    let list =
        NvList::decode(&fs::read(path).map_err(&io)?).map_err(|corrupt| damaged(corrupt.to_string()))?;
    let mut found = Vec::new();
    for (_, value) in list.iter() {
        let NvValue::List(entry) = value else { continue };
        if let Some(NvValue::StringArray(devices)) = entry.get("devices") {
            found.extend(devices.iter().map(|path| PathBuf::from(OsString::from_vec(path.clone()))));
        } else if let Ok(config) = PoolConfig::from_nvlist(entry) {
            let devices = config.tree.leaves().filter(|leaf| leaf.kind != VdevKind::DistributedSpare);
            let paths = devices.filter_map(|leaf| leaf.path.clone());
            found.extend(paths.map(|path| PathBuf::from(OsString::from_vec(path))));
        }
    }
    Ok(found)
}

fn encode(pools: &[KnownPool]) -> Vec<u8> {
    let mut list = NvList::new();
    for pool in pools {
        let mut entry = NvList::new();
        entry.insert("pool_guid", pool.guid.0);
        let devices = pool.devices.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        entry.insert("devices", NvValue::StringArray(devices));
        if let Some(altroot) = &pool.altroot {
            entry.insert("altroot", altroot.as_str());
        }
        if let Some(cachefile) = &pool.cachefile {
            entry.insert("cachefile", cachefile.as_str());
        }
        if pool.without_logs {
            entry.insert("without_logs", 1u64);
        }
        if pool.temporary {
            entry.insert("temporary", 1u64);
        }
        if pool.read_only {
            entry.insert("readonly", 1u64);
        }
        list.insert(&pool.name, entry);
    }
    list.to_xdr()
}

fn decode(raw: &[u8]) -> Result<Vec<KnownPool>, String> {
    let list = NvList::decode(raw).map_err(|corrupt| corrupt.to_string())?;
    list.iter()
        .map(|(name, value)| {
            let name = String::from_utf8_lossy(name).into_owned();
            names::check_pool(&name, false)
                .map_err(|why| format!("pool '{}': {why}", name.escape_debug()))?;
            let lacks = |what: &str| format!("pool '{name}' lacks {what}");
            let NvValue::List(entry) = value else { return Err(lacks("its list")) };
            let guid = entry.get_u64("pool_guid").filter(|&guid| guid != 0).ok_or_else(|| lacks("a guid"))?;
            let Some(NvValue::StringArray(devices)) = entry.get("devices") else {
                return Err(lacks("devices"));
            };
            Ok(KnownPool {
                guid: Guid(guid),
                devices: devices.iter().map(|path| OsString::from_vec(path.clone()).into()).collect(),
                altroot: entry.get_str("altroot").map(str::to_owned),
                cachefile: entry.get_str("cachefile").map(str::to_owned),
                temporary: entry.get_u64("temporary").unwrap_or(0) != 0,
                without_logs: entry.get_u64("without_logs").unwrap_or(0) != 0,
                read_only: entry.get_u64("readonly").unwrap_or(0) != 0,
                name,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, guid: u64) -> KnownPool {
        KnownPool {
            name: name.into(),
            guid: Guid(guid),
            devices: vec!["/v/a".into(), "/v/b".into()],
            altroot: None,
            temporary: false,
            without_logs: false,
            read_only: false,
            cachefile: None,
        }
    }

    #[test]
    fn pools_are_known_until_they_are_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known::new(folder.path().join("state"));
        assert_eq!(known.read().expect("no file"), []);
        let mut tank = pool("tank", 7);
        tank.altroot = Some("/mnt".into());
        tank.cachefile = Some("none".into());
        tank.read_only = true;
        tank.temporary = true;
        known.enter(tank.clone()).expect("written");
        known.enter(pool("a", 8)).expect("written");
        assert_eq!(known.read().expect("read"), [pool("a", 8), tank]);
        let file = folder.path().join("state").join(FILE);
        assert_eq!(cached_devices(&file).expect("a cache file too").len(), 4);
        known.forget(Guid(7)).expect("written");
        assert_eq!(known.read().expect("read"), [pool("a", 8)]);
    }

    #[test]
    fn a_name_is_that_of_one_pool_and_a_pool_has_one_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known::new(folder.path().to_path_buf());
        known.enter(pool("tank", 7)).expect("written");
        for other in [pool("tank", 8), pool("other", 7)] {
            assert!(matches!(known.enter(other), Err(KnownError::Taken(_))));
        }
        let moved = KnownPool { devices: vec!["/v/c".into()], ..pool("tank", 7) };
        known.enter(moved.clone()).expect("it is the same");
        assert_eq!(known.read().expect("read"), [moved]);
    }

    #[test]
    fn one_process_at_a_time_reserves_a_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known::new(folder.path().to_path_buf());
        for name in ["tank", "../a/b", "..", &"x".repeat(300)] {
            let claim = known.claim(name).expect("claimed");
            assert!(claim.is_some() && known.claim("other").expect("claimed").is_some());
            assert!(known.claim(name).expect("asked").is_none(), "{name}");
            drop(claim);
            assert!(known.claim(name).expect("asked").is_some(), "{name}");
        }
        assert_eq!(fs::read_dir(folder.path().join(CLAIMS)).expect("there").count(), 0);
        // A process that opens the file at the moment when a reservation ends gets a valid lock.
        let (held, most) = (std::sync::Mutex::new((0, 0)), 4);
        std::thread::scope(|scope| {
            for _ in 0..most {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Some(claim) = known.claim("tank").expect("asked") else { continue };
                        let mut count = held.lock().expect("whole");
                        *count = (count.0 + 1, count.1.max(count.0 + 1));
                        drop(count);
                        std::thread::yield_now();
                        held.lock().expect("whole").0 -= 1;
                        drop(claim);
                    }
                });
            }
        });
        assert_eq!(held.into_inner().expect("whole"), (0, 1));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known::new(folder.path().to_path_buf());
        known.enter(pool("tank", 7)).expect("written");
        let path = folder.path().join(FILE);
        let good = fs::read(&path).expect("there");
        for cut in 0..good.len() {
            fs::write(&path, &good[..cut]).expect("written");
            assert!(known.read().is_err(), "{cut}");
        }
        fs::write(&path, b"text").expect("written");
        assert!(known.enter(pool("a", 8)).is_err());
        assert_eq!(fs::read(&path).expect("there"), b"text");
    }
}

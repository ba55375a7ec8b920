//! Files that the property `cachefile` names: each lists the imported pools that name it, for `zpool import -c`.
//!
//! From:   the list of known pools, before and after a change.
//! To:     files of the same form. Entries of pools that are not known here stay. A file that another program wrote
//!         (`zpool.cache` of OpenZFS) is not changed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Claim, Known, KnownError, KnownPool, Readers, SIZE_MAX, decode, encode, replace};

/// Suffix of a cache file's name in the name of its lock file.
const LOCK_SUFFIX: &str = ".cenote-lock";
/// How long to wait for another process that changes a cache file: a change takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two tries to lock a cache file.
const PAUSE: Duration = Duration::from_millis(2);

/// The file that a pool names.
fn named(pool: &KnownPool) -> Option<&Path> {
    pool.cachefile.as_deref().map(Path::new).filter(|path| path.is_absolute())
}

/// The pools that the file lists. An absent file lists none.
fn read(path: &Path) -> Result<Vec<KnownPool>, KnownError> {
    let failed = |source| KnownError::Io { path: path.to_path_buf(), source };
    let raw = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
        Ok(metadata) if !metadata.is_file() || metadata.len() > SIZE_MAX => None,
        Ok(_) => Some(fs::read(path).map_err(failed)?),
    };
    raw.and_then(|raw| decode(&raw).ok()).ok_or_else(|| KnownError::Foreign(path.to_path_buf()))
}

/// Locks the cache file at `path` for changes by processes of any state directory. The lock is a separate file beside it,
/// because each change replaces the cache file.
fn lock(path: &Path) -> Result<Claim, KnownError> {
    let name = path.file_name().unwrap_or_default();
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(LOCK_SUFFIX);
    let beside = path.with_file_name(beside);
    let until = Instant::now() + PATIENCE;
    loop {
        match Claim::take(beside.clone()) {
            Ok(Some(claim)) => return Ok(claim),
            Ok(None) => {}
            // Another user holds it.
            Err(_) if is_of_another_user(&beside) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= until {
            return Err(KnownError::Locked(path.to_path_buf()));
        }
        std::thread::sleep(PAUSE);
    }
}

fn is_of_another_user(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.uid() != user)
}

/// Whether pools can be listed in the file at `path`.
///
/// # Errors
/// Its folder is missing or not writable, or another program wrote the file.
pub fn check(path: &Path) -> Result<(), KnownError> {
    let _turn = lock(path)?;
    check_locked(path)
}

fn check_locked(path: &Path) -> Result<(), KnownError> {
    read(path)?;
    let (fresh, _) = super::fresh(path)?;
    fs::remove_file(&fresh).map_err(Known::io(&fresh))
}

/// The cache files that a change of the list concerns, each with its lock or the reason why it could not be locked.
pub(super) struct Changes<'a> {
    before: &'a [KnownPool],
    after: &'a [KnownPool],
    files: Vec<(PathBuf, Result<Claim, KnownError>)>,
}

impl<'a> Changes<'a> {
    /// Locks each file whose list changes, in the order of their paths, so that two processes that lock several files cannot
    /// deadlock.
    pub(super) fn lock(before: &'a [KnownPool], after: &'a [KnownPool]) -> Changes<'a> {
        let mut files: Vec<PathBuf> =
            before.iter().chain(after).filter_map(named).map(Path::to_path_buf).collect();
        files.sort();
        files.dedup();
        files.retain(|file| listed_in(file, before) != listed_in(file, after));
        let locked = |file: PathBuf| {
            let turn = lock(&file);
            (file, turn)
        };
        Changes { before, after, files: files.into_iter().map(locked).collect() }
    }

    /// Whether the files can list the pools that name them from now on.
    ///
    /// # Errors
    /// As [`check`], for the first file that fails; also if the file lists another pool of the same name.
    pub(super) fn check_new(&mut self) -> Result<(), KnownError> {
        let is_new = |pool: &&KnownPool| {
            !self.before.iter().any(|old| old.guid == pool.guid && named(old) == named(pool))
        };
        for pool in self.after.iter().filter(is_new) {
            let Some(path) = named(pool) else { continue };
            if let Some(at) = self.files.iter().position(|(file, turn)| file == path && turn.is_err()) {
                return self.files.swap_remove(at).1.map(drop);
            }
            check_locked(path)?;
            if self.others_in(path)?.iter().any(|other| other.name == pool.name) {
                return Err(KnownError::Listed { path: path.to_path_buf(), name: pool.name.clone() });
            }
        }
        Ok(())
    }

    /// The pools in a file that this list does not have. They belong to other state directories.
    fn others_in(&self, file: &Path) -> Result<Vec<KnownPool>, KnownError> {
        let mut listed = read(file)?;
        let is_known =
            |pool: &KnownPool| self.before.iter().chain(self.after).any(|known| known.guid == pool.guid);
        listed.retain(|pool| !is_known(pool));
        Ok(listed)
    }

    /// Writes the files. A failure is only logged, because the list was changed already.
    pub(super) fn write(self) {
        for (file, turn) in &self.files {
            let written = turn.as_ref().map_err(ToString::to_string);
            let written = written.and_then(|_| self.write_one(file).map_err(|error| error.to_string()));
            if let Err(error) = written {
                tracing::warn!(file = %file.display(), error, "the pools in a cache file are not those that are imported");
            }
        }
    }

    fn write_one(&self, file: &Path) -> Result<(), KnownError> {
        let mut listed = self.others_in(file)?;
        listed.extend(listed_in(file, self.after));
        if !listed.is_empty() {
            return replace(file, &encode(&listed), Readers::Umask);
        }
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Known::io(file)(error)),
            _ => Ok(()),
        }
    }
}

/// Those of `pools` that name a file.
fn listed_in(file: &Path, pools: &[KnownPool]) -> Vec<KnownPool> {
    pools.iter().filter(|pool| named(pool) == Some(file)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Guid;

    fn pool(name: &str, guid: u64, cachefile: Option<&Path>) -> KnownPool {
        KnownPool {
            name: name.into(),
            guid: Guid(guid),
            devices: vec![format!("/v/{name}").into()],
            altroot: None,
            temporary: false,
            without_logs: false,
            read_only: false,
            cachefile: cachefile.map(|path| path.display().to_string()),
        }
    }

    #[test]
    fn a_file_lists_the_pools_that_name_it_and_is_removed_with_the_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (Known::new(folder.path().join("one")), Known::new(folder.path().join("other")));
        let file = folder.path().join("pools");
        let (a, b) = (pool("a", 7, Some(&file)), pool("b", 8, Some(&file)));
        one.enter(pool("c", 9, Some(Path::new("none")))).expect("written");
        assert!(!file.exists());
        one.enter(a.clone()).expect("written");
        other.enter(b.clone()).expect("written");
        assert_eq!(read(&file).expect("read"), [a.clone(), b.clone()]);
        assert_eq!(super::super::cached_devices(&file).expect("read").len(), 2);
        one.enter(KnownPool { cachefile: None, ..a }).expect("written");
        assert_eq!(read(&file).expect("read"), [b]);
        other.forget(Guid(8)).expect("written");
        assert!(!file.exists());
    }

    #[test]
    fn state_directories_that_share_a_file_lose_no_entries_of_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pools");
        let states: Vec<Known> =
            ["one", "other", "third"].map(|name| Known::new(folder.path().join(name))).into();
        let rounds = 40;
        std::thread::scope(|scope| {
            for (at, state) in states.iter().enumerate() {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let guid = (at * rounds + round + 1) as u64;
                        state.enter(pool(&format!("p{guid}"), guid, Some(file))).expect("written");
                        if round % 2 == 1 {
                            state.forget(Guid(guid)).expect("written");
                        }
                    }
                });
            }
        });
        let mut listed = read(&file).expect("read");
        listed.sort_by_key(|pool| pool.guid.0);
        let mut wanted: Vec<KnownPool> =
            states.iter().flat_map(|state| state.read().expect("read")).collect();
        wanted.sort_by_key(|pool| pool.guid.0);
        assert_eq!(wanted.len(), 3 * rounds / 2);
        assert_eq!(listed, wanted);
        // No lock stays behind.
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1 + states.len());
    }

    #[test]
    fn a_pool_does_not_replace_one_of_the_same_name_of_another_state_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (Known::new(folder.path().join("one")), Known::new(folder.path().join("other")));
        let file = folder.path().join("pools");
        let first = pool("tank", 7, Some(&file));
        one.enter(first.clone()).expect("written");
        let refused = other.enter(pool("tank", 8, Some(&file))).expect_err("the name is taken there");
        assert_eq!(refused.to_string(), format!("'{}' lists another pool called 'tank'", file.display()));
        assert_eq!((read(&file).expect("read"), other.read().expect("read")), (vec![first], Vec::new()));
    }

    #[test]
    fn a_file_of_another_program_is_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known::new(folder.path().join("state"));
        let file = folder.path().join("zpool.cache");
        fs::write(&file, b"not ours").expect("written");
        assert!(matches!(check(&file), Err(KnownError::Foreign(_))));
        assert!(known.enter(pool("a", 7, Some(&file))).is_err());
        assert_eq!(fs::read(&file).expect("there"), b"not ours");
        assert_eq!(known.read().expect("read"), []);
        assert!(matches!(check(&folder.path().join("no/file")), Err(KnownError::Io { .. })));
        check(&folder.path().join("new")).expect("it can be written");
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn a_damaged_file_blocks_no_pool_and_files_beside_it_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = Known::new(folder.path().join("state"));
        let file = folder.path().join("pools");
        let (victim, beside) = (folder.path().join("victim"), folder.path().join("pools.new"));
        fs::write(&victim, b"kept").expect("written");
        std::os::unix::fs::symlink(&victim, &beside).expect("made");
        let (a, b) = (pool("a", 7, Some(&file)), pool("b", 8, Some(&file)));
        known.enter(a.clone()).expect("written");
        known.enter(b).expect("written");
        assert_eq!(read(&file).expect("read").len(), 2);
        assert!(fs::read(&victim).expect("there") == b"kept" && beside.is_symlink());
        fs::write(&file, b"somebody's").expect("written");
        known.forget(Guid(7)).expect("one of two goes");
        assert_eq!(known.read().expect("read").len(), 1);
        known.forget(Guid(8)).expect("the other one, too");
        assert_eq!(fs::read(&file).expect("there"), b"somebody's");
        assert!(known.enter(a).is_err(), "new to it");
        assert_eq!(known.read().expect("read"), []);
    }
}

//! Files that the property `cachefile` names: each lists the imported pools that name it, for `zpool import -c`.
//!
//! From:   the list of known pools, before and after a change.
//! To:     files of the same form. Entries of pools that are not known here stay, and a file that somebody else wrote
//!         (`zpool.cache` of OpenZFS) is left alone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Known, KnownError, KnownPool, Readers, SIZE_MAX, decode, encode, replace};

/// The file that a pool names.
fn named(pool: &KnownPool) -> Option<&Path> {
    pool.cachefile.as_deref().map(Path::new).filter(|path| path.is_absolute())
}

/// What the file lists; nothing where there is none.
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

/// Whether pools can be listed in the file at `path`.
///
/// # Errors
/// Its folder is not there or not to be written to; somebody else wrote the file.
pub fn check(path: &Path) -> Result<(), KnownError> {
    read(path)?;
    let (fresh, _) = super::fresh(path)?;
    fs::remove_file(&fresh).map_err(Known::io(&fresh))
}

/// Whether the files can list the pools that name them from now on.
///
/// # Errors
/// As [`check`], of the first that cannot.
pub(super) fn check_new(before: &[KnownPool], after: &[KnownPool]) -> Result<(), KnownError> {
    let is_new =
        |pool: &&KnownPool| !before.iter().any(|old| old.guid == pool.guid && named(old) == named(pool));
    after.iter().filter(is_new).filter_map(named).try_for_each(check)
}

/// Writes every file of which the list has changed. One that cannot be written is told of in the log: what its pools went
/// through has happened.
pub(super) fn rewrite(before: &[KnownPool], after: &[KnownPool]) {
    let files: BTreeSet<PathBuf> =
        before.iter().chain(after).filter_map(named).map(Path::to_path_buf).collect();
    for file in files {
        if let Err(error) = rewrite_one(&file, before, after) {
            tracing::warn!(file = %file.display(), %error, "the pools in a cache file are not those that are imported");
        }
    }
}

fn rewrite_one(file: &Path, before: &[KnownPool], after: &[KnownPool]) -> Result<(), KnownError> {
    let of = |pools: &[KnownPool]| -> Vec<KnownPool> {
        pools.iter().filter(|pool| named(pool) == Some(file)).cloned().collect()
    };
    let ours = of(after);
    if ours == of(before) {
        return Ok(());
    }
    let mut listed = read(file)?;
    let is_known = |pool: &KnownPool| before.iter().chain(after).any(|known| known.guid == pool.guid);
    listed.retain(|pool| !is_known(pool));
    listed.extend(ours);
    if !listed.is_empty() {
        return replace(file, &encode(&listed), Readers::Umask);
    }
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Known::io(file)(error)),
        _ => Ok(()),
    }
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
            read_only: false,
            cachefile: cachefile.map(|path| path.display().to_string()),
        }
    }

    #[test]
    fn a_file_lists_the_pools_that_name_it_and_goes_with_the_last() {
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
    fn what_somebody_else_wrote_stays() {
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
    fn a_file_that_turned_bad_keeps_no_pool_and_nothing_beside_it_is_touched() {
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

//! Files that the property `cachefile` names: each lists the imported pools that name it, for `zpool import -c`.
//!
//! From:   the list of known pools, before and after a change.
//! To:     files of the same form. Entries of pools that are not known here stay, and a file that somebody else wrote
//!         (`zpool.cache` of OpenZFS) is left alone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Known, KnownError, KnownPool, SIZE_MAX, decode, encode, replace};

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
    let fresh = super::fresh(path);
    fs::File::create(&fresh).and_then(|_| fs::remove_file(&fresh)).map_err(Known::io(&fresh))
}

/// Writes every file of which the list has changed.
pub(super) fn rewrite(before: &[KnownPool], after: &[KnownPool]) -> Result<(), KnownError> {
    let files: BTreeSet<PathBuf> =
        before.iter().chain(after).filter_map(named).map(Path::to_path_buf).collect();
    for file in files {
        let of = |pools: &[KnownPool]| -> Vec<KnownPool> {
            pools.iter().filter(|pool| named(pool) == Some(file.as_path())).cloned().collect()
        };
        let ours = of(after);
        if ours == of(before) {
            continue;
        }
        // Where nothing of ours is left, that the file cannot be read keeps no pool from being exported.
        let mut listed = match read(&file) {
            Ok(listed) => listed,
            Err(_) if ours.is_empty() => continue,
            Err(error) => return Err(error),
        };
        let is_known = |pool: &KnownPool| before.iter().chain(after).any(|known| known.guid == pool.guid);
        listed.retain(|pool| !is_known(pool));
        listed.extend(ours);
        match listed.is_empty() {
            true => match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Known::io(&file)(error)),
                _ => {}
            },
            false => replace(&file, &encode(&listed))?,
        }
    }
    Ok(())
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
}

//! Folders and files that only one user may open, with any umask.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fchmod, fstat, open};
use rustix::io::{Errno, retry_on_intr};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;
/// Everybody may write.
const WORLD_WRITES: u32 = 0o002;

/// Makes `folder` so that only this user may enter it. One that exists gets that mode.
///
/// # Errors
/// It cannot be made, belongs to another user, or is writable for everybody, so that any user could have written
/// its contents.
pub fn folder(folder: &Path) -> io::Result<()> {
    let make = || fs::DirBuilder::new().mode(FOLDER_MODE).create(folder);
    let made = make().or_else(|error| match (error.kind(), folder.parent()) {
        (io::ErrorKind::NotFound, Some(parent)) => fs::create_dir_all(parent).and_then(|()| make()),
        _ => Err(error),
    });
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let opened = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mode = mode_if_ours(&opened)?;
    if mode == FOLDER_MODE {
        return Ok(());
    }
    if mode & WORLD_WRITES != 0 {
        return Err(io::Error::other(format!("its mode is {mode:o}: everybody may write there (chmod 700)")));
    }
    // This path leads to the folder that was opened, even if `folder` was replaced meanwhile.
    let opened = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    Ok(rustix::fs::chmod(opened, Mode::from_raw_mode(FOLDER_MODE))?)
}

/// Opens a file that only this user may open, and makes it if it is not there. A symbolic link is not followed.
///
/// # Errors
/// It cannot be opened or made, is a symbolic link, or belongs to another user.
pub fn file(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = match retry_on_intr(|| open(path, flags, Mode::from_raw_mode(FILE_MODE))) {
        Err(Errno::LOOP) => return Err(io::Error::other("it is a symbolic link")),
        opened => opened?,
    };
    if mode_if_ours(&opened)? != FILE_MODE {
        fchmod(&opened, Mode::from_raw_mode(FILE_MODE))?;
    }
    Ok(opened)
}

fn mode_if_ours(opened: &OwnedFd) -> io::Result<u32> {
    let found = fstat(opened)?;
    match found.st_uid == rustix::process::geteuid().as_raw() {
        true => Ok(found.st_mode & PERMISSIONS),
        false => Err(io::Error::other(format!("it belongs to user {}", found.st_uid))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & PERMISSIONS
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn folders_and_files_are_for_one_user_only() {
        let bed = tempfile::tempdir().unwrap();
        let state = bed.path().join("above/state");
        folder(&state).unwrap();
        assert_eq!(mode(&state), FOLDER_MODE);
        for old in [0o755, 0o775, 0o500] {
            set_mode(&state, old);
            folder(&state).unwrap();
            assert_eq!(mode(&state), FOLDER_MODE, "{old:o}");
        }
        set_mode(&state, 0o1777);
        assert!(folder(&state).unwrap_err().to_string().contains("everybody may write"));
        let path = bed.path().join("file");
        file(&path, OFlags::RDWR).unwrap();
        assert_eq!(mode(&path), FILE_MODE);
        set_mode(&path, 0o644);
        file(&path, OFlags::RDWR).unwrap();
        assert_eq!(mode(&path), FILE_MODE);
    }

    #[test]
    fn links_and_files_of_another_user_are_refused() {
        let bed = tempfile::tempdir().unwrap();
        let (victim, link) = (bed.path().join("victim"), bed.path().join("link"));
        fs::write(&victim, "kept").unwrap();
        set_mode(&victim, 0o644);
        symlink(&victim, &link).unwrap();
        assert_eq!(file(&link, OFlags::RDWR).unwrap_err().to_string(), "it is a symbolic link");
        assert_eq!(mode(&victim), 0o644);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&victim, Some(65534), None).unwrap();
            assert_eq!(file(&victim, OFlags::RDWR).unwrap_err().to_string(), "it belongs to user 65534");
            std::os::unix::fs::chown(bed.path(), Some(65534), None).unwrap();
            assert_eq!(folder(bed.path()).unwrap_err().to_string(), "it belongs to user 65534");
        }
    }
}

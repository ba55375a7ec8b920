//! Places in the file tree by descriptor. A path is resolved once, and its target is checked before use.
//!
//! A user who may write to a folder above a mount point can replace that folder between a check and its use. A descriptor
//! keeps referring to the folder that was opened.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use front::{FOLDER, MountError, MountOptions, apart};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_remount};

use crate::attach::{HELPER, flags};
use crate::device::Device;

/// Time for a mount to show that its server is dead.
const ANSWERING: Duration = Duration::from_secs(1);

/// The root of the mount of `device` at `point`. Call this in [`apart::ask`].
pub(crate) fn root_of(device: Device, point: &Path) -> io::Result<OwnedFd> {
    let root = open(point, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    match Device::of(&root)? == device {
        true => Ok(root),
        false => Err(Errno::INVAL.into()),
    }
}

/// Changes the options of the mount of `device` at `point`.
pub(crate) fn remount(device: Device, point: &Path, options: &MountOptions) -> io::Result<()> {
    let (point, flags) = (point.to_owned(), flags(options));
    apart::ask(move || Ok(mount_remount(link_to(&root_of(device, &point)?), flags, c"")?))
}

/// Makes the kernel write back the dirty pages of the mount of `device` at `point`.
pub(crate) fn write_back(device: Device, point: &Path) -> io::Result<()> {
    let point = point.to_owned();
    apart::ask(move || {
        let root = root_of(device, &point)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::syncfs(openat(root, ".", flags, Mode::empty())?)?)
    })
}

/// Makes the kernel write back the dirty pages of all file systems, including detached mounts, because a lazy unmount writes
/// nothing back. Waits at most `limit`, because another file system may hang.
pub(crate) fn write_back_all(limit: Duration) -> io::Result<()> {
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("cenote-sync".into()).spawn(move || {
        let all = apart::ask(|| {
            rustix::fs::sync();
            Ok(())
        });
        // The caller may have stopped waiting.
        let _ = done.send(all);
    })?;
    waits.recv_timeout(limit).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Whether the connection of the mount of `device` at `point` is aborted.
pub(crate) fn answers_nobody(device: Device, point: &Path) -> bool {
    // The kernel never caches `statfs`, so this always asks the server.
    let point = point.to_owned();
    let full = apart::ask(move || Ok(rustix::fs::fstatvfs(root_of(device, &point)?)?));
    full.is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Detaches the mount of `device` at `point`, even if it is in use.
pub(crate) fn detach(device: Device, point: &Path) -> Result<(), MountError> {
    let at = point.to_owned();
    let done = apart::ask(move || {
        let root = root_of(device, &at)?;
        Ok(rustix::mount::unmount(link_to(&root), UnmountFlags::DETACH)?)
    });
    match done {
        // By now the root is closed, because of which the kernel might refuse the helper.
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            unmount(device, point, UnmountFlags::DETACH)
        }
        done => done.map_err(|error| failed(point, error)),
    }
}

/// Unmounts exactly the mount of `device` at `point`, even if the folders above it are replaced meanwhile.
pub(crate) fn unmount(device: Device, point: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let at = point.to_owned();
    apart::ask(move || Ok(unmount_there(device, &at, flags))).map_err(|error| failed(point, error))?
}

fn unmount_there(device: Device, point: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let (parent, name) = parent_of(device, point).map_err(|error| failed(point, error))?;
    let at = link_to(&parent).join(&name);
    match rustix::mount::unmount(&at, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(point.to_owned())),
        Err(Errno::PERM) => with_helper(&parent, &name, point, flags),
        Err(errno) => Err(failed(point, errno.into())),
    }
}

fn failed(point: &Path, error: io::Error) -> MountError {
    MountError::Unmount { point: point.to_owned(), reason: error.to_string() }
}

/// A path that leads to what this thread opened, for this thread and its children.
fn link_to(fd: &OwnedFd) -> PathBuf {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd()).into()
}

/// The folder with the mount point of `device`, and its name there. A mount point can be neither renamed nor removed, so the
/// name stays valid in that folder.
fn parent_of(device: Device, point: &Path) -> io::Result<(OwnedFd, OsString)> {
    let (Some(parent), Some(name)) = (point.parent(), point.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = open(parent, FOLDER, Mode::empty())?;
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let there = statx(&parent, name, flags, StatxFlags::TYPE)?;
    match Device::from(&there) == device {
        true => Ok((parent, name.to_owned())),
        false => Err(Errno::INVAL.into()),
    }
}

fn with_helper(
    parent: &OwnedFd,
    name: &OsString,
    point: &Path,
    flags: UnmountFlags,
) -> Result<(), MountError> {
    let mut helper = Command::new(HELPER);
    helper.current_dir(link_to(parent)).arg("-u");
    if !flags.is_empty() {
        helper.arg("-z");
    }
    let out = helper.arg("--").arg(name).output().map_err(|error| failed(point, error))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if said.contains("busy") {
        Err(MountError::Busy(point.to_owned()))
    } else {
        Err(failed(point, io::Error::other(said)))
    }
}

/// Unmounts the mount `id` (of `/proc/self/mountinfo`) at `point` if its server is dead. Returns whether it was. Other
/// mounts at `point` stay.
///
/// # Errors
/// [`MountError::Unmount`].
pub fn detach_dead(point: &Path, id: u64) -> Result<bool, MountError> {
    let Ok(root) = apart::open_path(point, FOLDER | OFlags::NOFOLLOW) else { return Ok(false) };
    let is_it = mount_id(&root).is_ok_and(|there| there == id);
    let device = Device::of(&root).map_err(|error| failed(point, error))?;
    if !is_it || !is_dead(root) {
        return Ok(false);
    }
    detach(device, point).map(|()| true)
}

/// Whether the server of a mount is dead: then every access fails at once. A living server may take any time to answer or be
/// stopped, so this does not wait for it.
fn is_dead(root: OwnedFd) -> bool {
    // Aborted before or during the question, because a process needs time to end.
    let cut = |errno| matches!(errno, Errno::NOTCONN | Errno::CONNABORTED);
    let (answer, answered) = std::sync::mpsc::channel();
    let asking = std::thread::Builder::new().name("cenote-ask".into()).spawn(move || {
        // The first question may be answered from the kernel's cache; `statfs` never is.
        let dead = rustix::fs::fstat(&root).is_err_and(cut) || rustix::fs::fstatvfs(&root).is_err_and(cut);
        drop(root);
        // The caller may have stopped waiting.
        let _ = answer.send(dead);
    });
    asking.is_ok() && answered.recv_timeout(ANSWERING).unwrap_or(false)
}

/// The number of the mount that a descriptor lies in.
fn mount_id(fd: &OwnedFd) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

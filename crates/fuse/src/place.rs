//! Places in the file tree by descriptor. A path is resolved once, and its target is checked before use.
//!
//! A user who may write to a folder above a mount point can replace that folder between a check and its use. A descriptor
//! keeps referring to the folder that was opened.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use front::{FOLDER, MountError, MountOptions, link_to};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_remount};

use crate::attach::{HELPER, flags};
use crate::device::Device;

/// Time for a mount to show that its server is dead.
const ANSWERING: Duration = Duration::from_secs(1);

/// The root of the mount of `device` at `point`.
pub(crate) fn root_of(device: Device, point: &Path) -> io::Result<OwnedFd> {
    let root = open(point, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    match Device::of(&root)? == device {
        true => Ok(root),
        false => Err(Errno::INVAL.into()),
    }
}

/// Changes the options of the mount of `device` at `point`.
pub(crate) fn remount(device: Device, point: &Path, options: &MountOptions) -> io::Result<()> {
    let root = root_of(device, point)?;
    Ok(mount_remount(link_to(root.as_fd()), flags(options), c"")?)
}

/// Makes the kernel write back the dirty pages of the mount of `device` at `point`.
pub(crate) fn write_back(device: Device, point: &Path) -> io::Result<()> {
    let root = root_of(device, point)?;
    let root = openat(root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::syncfs(root)?)
}

/// Makes the kernel write back the dirty pages of all file systems, including detached mounts, because a lazy unmount writes
/// nothing back. Waits at most `limit`, because another file system may hang.
pub(crate) fn write_back_all(limit: Duration) -> io::Result<()> {
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("cenote-sync".into()).spawn(move || {
        rustix::fs::sync();
        // Nobody may be waiting any more.
        let _ = done.send(());
    })?;
    waits.recv_timeout(limit).map_err(|_| io::ErrorKind::TimedOut.into())
}

/// Whether the connection of the mount of `device` at `point` is aborted.
pub(crate) fn answers_nobody(device: Device, point: &Path) -> bool {
    // The kernel never caches `statfs`, so this always asks the server.
    let full = root_of(device, point).and_then(|root| Ok(rustix::fs::fstatvfs(root)?));
    full.is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Detaches the mount of `device` at `point`, even if it is in use.
pub(crate) fn detach(device: Device, point: &Path) -> Result<(), MountError> {
    let failed =
        |error: io::Error| MountError::Unmount { point: point.to_owned(), reason: error.to_string() };
    let root = root_of(device, point).map_err(failed)?;
    match rustix::mount::unmount(link_to(root.as_fd()), UnmountFlags::DETACH) {
        // A descriptor of a detached mount is harmless, but because of it the kernel may refuse the helper.
        Err(Errno::PERM) => drop(root),
        done => return done.map_err(|errno| failed(errno.into())),
    }
    unmount(device, point, UnmountFlags::DETACH)
}

/// Unmounts exactly the mount of `device` at `point`, even if the folders above it are replaced meanwhile.
pub(crate) fn unmount(device: Device, point: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    let failed = |reason: String| MountError::Unmount { point: point.to_owned(), reason };
    let found = parent_of(device, point).map_err(|error| failed(error.to_string()))?;
    let (parent, name) = found;
    let at = link_to(parent.as_fd()).join(&name);
    match rustix::mount::unmount(&at, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(point.to_owned())),
        Err(Errno::PERM) => with_helper(&parent, &name, point, flags),
        Err(errno) => Err(failed(io::Error::from(errno).to_string())),
    }
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
    let failed = |reason: String| MountError::Unmount { point: point.to_owned(), reason };
    let mut helper = Command::new(HELPER);
    helper.current_dir(link_to(parent.as_fd())).arg("-u");
    if !flags.is_empty() {
        helper.arg("-z");
    }
    let out = helper.arg("--").arg(name).output().map_err(|error| failed(error.to_string()))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if said.contains("busy") { Err(MountError::Busy(point.to_owned())) } else { Err(failed(said)) }
}

/// Unmounts the mount `id` (of `/proc/self/mountinfo`) at `point` if its server is dead. Returns whether it was. Other
/// mounts at `point` stay.
///
/// # Errors
/// [`MountError::Unmount`].
pub fn detach_dead(point: &Path, id: u64) -> Result<bool, MountError> {
    let Ok(root) = open(point, FOLDER | OFlags::NOFOLLOW, Mode::empty()) else { return Ok(false) };
    let is_it = mount_id(&root).is_ok_and(|there| there == id);
    let failed =
        |error: io::Error| MountError::Unmount { point: point.to_owned(), reason: error.to_string() };
    let device = Device::of(&root).map_err(failed)?;
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
        // Nobody may be waiting any more.
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

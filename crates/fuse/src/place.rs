//! Places in the file tree by descriptor: a path is resolved once, and what it leads to is checked before it is used.
//!
//! Whoever may write a folder above a mount point can move that folder away and put another one in its place between a
//! check and its use. A descriptor stays with what it was opened on.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_remount};

use crate::attach::{HELPER, flags};
use crate::device::Device;
use crate::error::MountError;
use crate::options::MountOptions;
use crate::point::{FOLDER, link_to};

/// How long a mount may take to show that nobody is behind it.
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

/// Has the kernel hand over what it holds back of the mount of `device` at `point`.
pub(crate) fn write_back(device: Device, point: &Path) -> io::Result<()> {
    let root = root_of(device, point)?;
    let root = openat(root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::syncfs(root)?)
}

/// Has the kernel hand over what it holds back of all file systems, which includes mounts that no path leads to: a lazy
/// unmount writes nothing back. Waits at most `limit`, because another file system may take for ever.
pub(crate) fn write_back_all(limit: Duration) -> io::Result<()> {
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("cenote-sync".into()).spawn(move || {
        rustix::fs::sync();
        // Nobody may be waiting any more.
        let _ = done.send(());
    })?;
    waits.recv_timeout(limit).map_err(|_| io::ErrorKind::TimedOut.into())
}

/// Whether the connection behind the mount of `device` at `point` is cut.
pub(crate) fn answers_nobody(device: Device, point: &Path) -> bool {
    // How full it is, the kernel never knows by itself.
    let full = root_of(device, point).and_then(|root| Ok(rustix::fs::fstatvfs(root)?));
    full.is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Takes the mount of `device` at `point` out of sight, used or not.
pub(crate) fn detach(device: Device, point: &Path) -> Result<(), MountError> {
    let failed =
        |error: io::Error| MountError::Unmount { point: point.to_owned(), reason: error.to_string() };
    let root = root_of(device, point).map_err(failed)?;
    match rustix::mount::unmount(link_to(root.as_fd()), UnmountFlags::DETACH) {
        // A descriptor on what is detached does no harm, but the kernel may take it for a reason to refuse the helper.
        Err(Errno::PERM) => drop(root),
        done => return done.map_err(|errno| failed(errno.into())),
    }
    unmount(device, point, UnmountFlags::DETACH)
}

/// Takes the mount of `device` at `point` down: nothing else is, whatever becomes of the folders above it meanwhile.
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

/// The folder in which the mount of `device` stands, and its name there. A mount point is neither renamed nor removed,
/// so the name goes on meaning this mount in that folder.
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

/// Takes down the mount `id` (of `/proc/self/mountinfo`) at `point` if the process behind it is gone; gives whether it
/// was. What else is at `point` by now stays.
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

/// Whether the process behind a mount is gone: every access fails, and does so at once. A process that lives may take any
/// time to answer, or be stopped, and is not waited for.
fn is_dead(root: OwnedFd) -> bool {
    // Cut off before it was asked, or while it was: a process takes its time to end.
    let cut = |errno| matches!(errno, Errno::NOTCONN | Errno::CONNABORTED);
    let (answer, answered) = std::sync::mpsc::channel();
    let asking = std::thread::Builder::new().name("cenote-ask".into()).spawn(move || {
        // What is asked first may still be known to the kernel; how full it is, it never knows.
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

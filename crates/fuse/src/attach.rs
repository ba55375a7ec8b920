//! The kernel's side of a mount: it is made, found again, and nothing else is ever taken for it.
//!
//! From:   a directory and [`MountOptions`].
//! To:     a descriptor of `/dev/fuse` that speaks for the new mount. Closing it unmounts nothing.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::options::{Atime, MountOptions};

/// How a mount's file system is called; `/proc/mounts` shows it behind `fuse.`.
const SUBTYPE: &str = "zfs";
/// The setuid program through which users without root mount and unmount.
pub(crate) const HELPER: &str = "fusermount3";

/// The number of a mounted file system, as `st_dev` has it: no two that are mounted share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    major: u32,
    minor: u32,
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// What is at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The mount.
    Here,
    /// Something else that was mounted over it.
    Covered,
    /// The mount is gone from this mount namespace.
    Gone,
}

impl Device {
    /// That of what is mounted at `point`; no request goes to the file system for it.
    pub(crate) fn at(point: &Path) -> io::Result<Device> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(CWD, point, flags, StatxFlags::TYPE)?;
        Ok(Device { major: found.stx_dev_major, minor: found.stx_dev_minor })
    }

    /// What became of the mount of this file system at `point`.
    pub(crate) fn place(self, point: &Path) -> io::Result<Place> {
        if Device::at(point).is_ok_and(|there| there == self) {
            return Ok(Place::Here);
        }
        let number = self.to_string();
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let listed = table.lines().any(|line| line.split(' ').nth(2) == Some(number.as_str()));
        Ok(if listed { Place::Covered } else { Place::Gone })
    }

    /// Ends the connection, whoever uses the mount and wherever it is; what is asked of it from now on fails.
    ///
    /// # Errors
    /// The control file system of FUSE is not mounted, or the mount is somebody else's.
    pub(crate) fn abort(self) -> io::Result<()> {
        fs::write(format!("/sys/fs/fuse/connections/{}/abort", self.minor), "1")
    }

    /// Requests that are under way: in the kernel's queues, or taken from there and not answered.
    ///
    /// # Errors
    /// As [`Device::abort`].
    pub(crate) fn waiting(self) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/sys/fs/fuse/connections/{}/waiting", self.minor))?;
        text.trim().parse().map_err(io::Error::other)
    }
}

/// Mounts on the directory `point`: as root directly, otherwise through [`HELPER`].
///
/// # Errors
/// What the kernel or the helper said.
pub(crate) fn attach(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    match directly(point, options) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) => {
            with_helper(point, options)
        }
        done => done,
    }
}

fn directly(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},subtype={SUBTYPE},default_permissions",
        device.as_raw_fd(),
        fs::metadata(point)?.mode(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = std::ffi::CString::new(data).map_err(|_| io::ErrorKind::InvalidInput)?;
    rustix::mount::mount(options.source.as_str(), point, "fuse", flags(options), data.as_c_str())?;
    Ok(device.into())
}

/// What the kernel decides of the options.
pub(crate) fn flags(options: &MountOptions) -> MountFlags {
    let flag = |on: bool, flag: MountFlags| if on { flag } else { MountFlags::empty() };
    flag(options.read_only, MountFlags::RDONLY)
        | flag(!options.exec, MountFlags::NOEXEC)
        | flag(!options.setuid, MountFlags::NOSUID)
        | flag(!options.devices, MountFlags::NODEV)
        // Who keeps the times is we; the flag only says so. Without either, a remount leaves it as it was.
        | if options.atime == Atime::Off { MountFlags::NOATIME } else { MountFlags::RELATIME }
        // The kernel asks for an fsync after each write.
        | flag(options.synchronous, MountFlags::SYNCHRONOUS)
}

/// The helper mounts, and sends the descriptor over the socket that is its standard input.
fn with_helper(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    // Without root nothing can be remounted: what the kernel shows of access times would not stay true.
    let mut list = format!("fsname={source},subtype={SUBTYPE},default_permissions");
    for (on, word) in [
        (options.read_only, ",ro"),
        (!options.exec, ",noexec"),
        (!options.setuid, ",nosuid"),
        (!options.devices, ",nodev"),
        (options.synchronous, ",sync"),
        (options.allow_other, ",allow_other"),
    ] {
        list.push_str(if on { word } else { "" });
    }
    let (ours, theirs) = UnixStream::pair()?;
    let mut helper = Command::new(HELPER);
    helper.args(["-o", &list, "--"]).arg(point).env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs));
    let said = helper.output().map_err(|error| io::Error::new(error.kind(), format!("{HELPER}: {error}")))?;
    if !said.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&said.stderr).trim().to_owned()));
    }
    // It has ended: what it sent is there, or never comes.
    ours.set_nonblocking(true)?;
    receive(&ours).inspect_err(|_| {
        // A mount that nobody can serve is of no use to anyone.
        let _ = Command::new(HELPER).args(["-u", "-z", "-q", "--"]).arg(point).status();
    })
}

fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let sent = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    sent.ok_or_else(|| io::Error::other(format!("{HELPER} sent no descriptor")))
}

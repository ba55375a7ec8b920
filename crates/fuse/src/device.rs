//! The device number of a mounted file system, which identifies a mount.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use front::apart;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where the control file system of FUSE usually is.
const CONTROL: &str = "/sys/fs/fuse/connections";

/// The device number of a mounted file system (`st_dev`). It is unique among mounted file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    major: u32,
    minor: u32,
}

impl From<&Statx> for Device {
    fn from(found: &Statx) -> Device {
        Device { major: found.stx_dev_major, minor: found.stx_dev_minor }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// What is at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The mount that is expected there.
    Here,
    /// Another mount that covers it.
    Covered,
    /// The mount is gone from this mount namespace.
    Gone,
}

impl Device {
    /// Major and minor number.
    pub(crate) fn number(self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Device number of the file system at `point`. Sends no request to that file system.
    pub(crate) fn at(point: &Path) -> io::Result<Device> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
        let point = point.to_owned();
        apart::ask(move || Ok(Device::from(&statx(CWD, point, flags, StatxFlags::TYPE)?)))
    }

    /// Device number of an open descriptor of any kind.
    pub(crate) fn of(fd: &impl AsFd) -> io::Result<Device> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        Ok(Device::from(&statx(fd, "", flags, StatxFlags::TYPE)?))
    }

    /// The device of the file that a link of `/proc` leads to, and the number of the file there.
    pub(crate) fn with_number(link: &Path) -> io::Result<(Device, u64)> {
        let found = statx(CWD, link, AtFlags::NO_AUTOMOUNT, StatxFlags::INO)?;
        Ok((Device::from(&found), found.stx_ino))
    }

    /// State of the mount of this file system at `point`.
    pub(crate) fn place(self, point: &Path) -> io::Result<Place> {
        if Device::at(point).is_ok_and(|there| there == self) {
            return Ok(Place::Here);
        }
        Ok(if self.points("self", u64::MAX)?.is_empty() { Place::Gone } else { Place::Covered })
    }

    /// Mount points of this file system in the namespace of a process (its pid, or `self`), in the kernel's spelling. Reads
    /// at most `most` bytes of its list of mounts.
    pub(crate) fn points(self, process: &str, most: u64) -> io::Result<Vec<String>> {
        let mut text = Vec::new();
        File::open(format!("/proc/{process}/mountinfo"))?.take(most).read_to_end(&mut text)?;
        let device = self.to_string();
        let point = |line: &[u8]| {
            let mut words = line.split(|byte| *byte == b' ');
            (words.nth(2)? == device.as_bytes()).then_some(())?;
            words.nth(1).map(|point| String::from_utf8_lossy(point).into_owned())
        };
        Ok(text.split(|byte| *byte == b'\n').filter_map(point).collect())
    }

    /// Aborts the connection, even if the mount is in use. All later requests fail.
    ///
    /// # Errors
    /// The control file system of FUSE is not mounted and this process may not mount it, or the mount belongs to
    /// another user.
    pub(crate) fn abort(self) -> io::Result<()> {
        match fs::write(format!("{CONTROL}/{}/abort", self.minor), "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.abort_unseen(),
            done => done,
        }
    }

    /// As [`Device::abort`], through a detached mount of the control file system.
    fn abort_unseen(self) -> io::Result<()> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let control = fsmount(&context, flags, MountAttrFlags::empty())?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&control, format!("{}/abort", self.minor), flags, Mode::empty())?;
        Ok(rustix::io::write(&file, b"1").map(drop)?)
    }

    /// Number of unanswered requests: in the kernel's queues, or being served.
    ///
    /// # Errors
    /// As [`Device::abort`].
    pub(crate) fn waiting(self) -> io::Result<u64> {
        let text = fs::read_to_string(format!("{CONTROL}/{}/waiting", self.minor))?;
        text.trim().parse().map_err(io::Error::other)
    }
}

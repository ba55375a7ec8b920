//! The kernel's side of a mount: making it, and finding exactly this mount again.
//!
//! From:   a directory and [`MountOptions`].
//! To:     a descriptor of `/dev/fuse` that speaks for the new mount. Closing it unmounts nothing.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use front::{MountOptions, MountPoint, Unavailable, apart, link_to};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use zpl::session::Atime;

use crate::device::Device;

/// Type name of the file system; `/proc/mounts` shows it after `fuse.`.
const SUBTYPE: &str = "zfs";
/// The setuid program through which users without root mount and unmount.
pub(crate) const HELPER: &str = "fusermount3";

/// Whether this user can mount at all: the device is there, and without root the [`HELPER`], too.
///
/// # Errors
/// [`Unavailable`] says what is missing.
pub fn check_available() -> Result<(), Unavailable> {
    File::options().read(true).write(true).open("/dev/fuse").map_err(Unavailable::Device)?;
    let is_root = rustix::process::geteuid().is_root();
    if is_root || is_in_path(HELPER) { Ok(()) } else { Err(Unavailable::Helper) }
}

/// Whether a program of this name is in a folder of `PATH`.
fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Mounts on the directory `point`: as root directly, otherwise through [`HELPER`]. Returns the connection and the device
/// number of the mount.
///
/// # Errors
/// The error of the kernel or the helper.
pub(crate) fn attach(point: &MountPoint, options: &MountOptions) -> io::Result<(OwnedFd, Device)> {
    match directly(point, options) {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            let connection = with_helper(point, options)?;
            Ok((connection, Device::at(point.path())?))
        }
        done => done,
    }
}

/// Mounts a detached file system again while programs have files of it open. The kernel finds it by its connection, so both
/// mounts share one cache.
///
/// # Errors
/// This process may not mount, or the kernel (before 5.15) would make another file system of it.
pub(crate) fn attach_again(
    connection: &OwnedFd,
    is: Device,
    point: &MountPoint,
    options: &MountOptions,
) -> io::Result<()> {
    let words = words(connection, point, options)?;
    let mount = unseen(&fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?, words, options)?;
    if Device::of(&mount)? != is {
        return Err(io::Error::other("the kernel made another file system of it"));
    }
    show(&mount, point)
}

/// Puts a mount in its place.
fn show(mount: &OwnedFd, point: &MountPoint) -> io::Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", point, "", both)?)
}

/// Mount data for a mount over `connection`.
fn words(
    connection: &impl AsRawFd,
    point: &MountPoint,
    options: &MountOptions,
) -> io::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("source", options.source.clone()),
        ("fd", connection.as_raw_fd().to_string()),
        ("rootmode", format!("{:o}", mode_of(point)?)),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
        ("subtype", SUBTYPE.to_owned()),
    ])
}

fn mode_of(point: &MountPoint) -> io::Result<u32> {
    let link = point.link();
    apart::ask(move || Ok(fs::metadata(link)?.mode()))
}

/// The same that has no value.
fn switches(options: &MountOptions) -> impl Iterator<Item = &'static str> {
    let switches = [
        (true, "default_permissions"),
        (options.allow_other, "allow_other"),
        (options.read_only, "ro"),
        // The kernel asks for an fsync after each write.
        (options.synchronous, "sync"),
    ];
    switches.into_iter().filter_map(|(on, word)| on.then_some(word))
}

/// A mount that is in no folder yet.
fn unseen(
    context: &OwnedFd,
    words: Vec<(&'static str, String)>,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    for (key, value) in words {
        fsconfig_set_string(context, key, value)?;
    }
    for word in switches(options) {
        fsconfig_set_flag(context, word)?;
    }
    fsconfig_create(context)?;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(options))?)
}

fn directly(point: &MountPoint, options: &MountOptions) -> io::Result<(OwnedFd, Device)> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut words = words(&device, point, options)?;
    let context = match fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => context,
        // A kernel before 5.2, or a container that forbids the call.
        Err(Errno::NOSYS) => {
            let (_, source) = words.remove(0);
            let list: Vec<String> = words.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let list = list
                .into_iter()
                .chain(switches(options).map(str::to_owned))
                .filter(|word| word != "ro" && word != "sync");
            return by_path(point, options, &source, &list.collect::<Vec<_>>().join(","))
                .map(|is| (device.into(), is));
        }
        Err(errno) => return Err(errno.into()),
    };
    let mount = unseen(&context, words, options)?;
    let is = Device::of(&mount)?;
    show(&mount, point)?;
    Ok((device.into(), is))
}

/// Mounts with the one call that every kernel has. The path leads to the directory that was opened.
fn by_path(point: &MountPoint, options: &MountOptions, source: &str, list: &str) -> io::Result<Device> {
    let list = std::ffi::CString::new(list).map_err(|_| io::ErrorKind::InvalidInput)?;
    rustix::mount::mount(source, point.link(), "fuse", flags(options), list.as_c_str())?;
    Device::at(point.path())
}

/// [`flags`] as they are said of a new mount.
fn attributes(options: &MountOptions) -> MountAttrFlags {
    let flags = flags(options);
    [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .fold(MountAttrFlags::empty(), |all, (_, attribute)| all | attribute)
}

/// The mount flags for the options that the kernel enforces.
pub(crate) fn flags(options: &MountOptions) -> MountFlags {
    let flag = |on: bool, flag: MountFlags| if on { flag } else { MountFlags::empty() };
    flag(options.read_only, MountFlags::RDONLY)
        | flag(!options.exec, MountFlags::NOEXEC)
        | flag(!options.setuid, MountFlags::NOSUID)
        | flag(!options.devices, MountFlags::NODEV)
        // The server keeps the times; the flag only shows it. Without either flag, a remount leaves it unchanged.
        | if options.atime == Atime::Off { MountFlags::NOATIME } else { MountFlags::RELATIME }
        // The kernel asks for an fsync after each write.
        | flag(options.synchronous, MountFlags::SYNCHRONOUS)
}

/// The helper mounts, and sends the descriptor over the socket that is its standard input.
fn with_helper(point: &MountPoint, options: &MountOptions) -> io::Result<OwnedFd> {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    // Users other than root cannot remount, so an option about access times shown by the kernel could become wrong.
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
    let (place, path) = (point.link(), point.path().to_owned());
    Ok(apart::open(move || Ok((through_helper(&list, &place, &path)?, ())))?.0)
}

/// Runs the helper in the directory that the link `place` leads to. `path` is that directory, for removing the mount again.
fn through_helper(list: &str, place: &Path, path: &Path) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    // `place` leads there for this process alone, and the helper gets a copy of this thread's descriptors.
    let folder = rustix::fs::open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut helper = Command::new(HELPER);
    helper.args(["-o", list, "--", "."]).current_dir(link_to(folder.as_fd()));
    helper.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs));
    let said = helper.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), Unavailable::Helper),
        kind => io::Error::new(kind, format!("{HELPER}: {error}")),
    })?;
    if !said.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&said.stderr).trim().to_owned()));
    }
    // The helper has ended, so no later message can come.
    ours.set_nonblocking(true)?;
    apart::receive(&ours).inspect_err(|_| {
        // The mount cannot be served, so it is removed.
        let _ = Command::new(HELPER).args(["-u", "-z", "-q", "--"]).arg(path).status();
    })
}

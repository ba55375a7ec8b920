//! Setting sizes in the kernel: for open files whose contents were replaced.
//!
//! With `FUSE_WRITEBACK_CACHE`, the kernel ignores the server's size and times of a regular file that it knows. It takes a
//! size only from the answer to a truncation. So this process truncates the file through the mount. The message of that
//! truncation is recognised by its thread; it changes nothing here, and its answer contains the new size. The status change
//! time is then that of the replacement, until the kernel drops the file.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use front::apart;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use zpl::{Filesystem, ObjectId, Stat};

use crate::attributes::to_system;
use crate::device::Device;
use crate::place;
use crate::refresh::Asking;
use crate::shared::Shared;

/// A truncation fails once when pages are dropped that were written in the meantime.
const TRIES: usize = 2;

/// A file whose new size is given to the kernel.
struct Resized {
    id: ObjectId,
    /// The inode number that programs see.
    shown: u64,
    /// The size that the kernel has.
    size: u64,
}

/// Sets the sizes of `resized`, for which [`crate::refresh::Refresh::begin`] was called, in the kernel. Each comes with the size
/// that the kernel has. Returns the files for which it failed. Do not call it from a thread that serves requests.
pub(crate) fn tell(
    shared: &Shared,
    fs: &Filesystem,
    place: (Device, &Path),
    resized: &[(ObjectId, u64)],
) -> HashSet<ObjectId> {
    let mut failed = HashSet::new();
    for &(id, size) in resized {
        let file = Resized { id, shown: shared.kernel.shown(id).0, size };
        if let Err(error) = tell_size(fs, place, file, shared.refresh.asking()) {
            tracing::debug!(object = id.0, %error, "programs lose a file whose contents were exchanged");
            failed.insert(id);
        } else {
            shared.refresh.end(id);
        }
    }
    failed
}

fn tell_size(
    fs: &Filesystem,
    (device, point): (Device, &Path),
    file: Resized,
    asking: Asking,
) -> io::Result<()> {
    let stat = fs.stat(file.id).map_err(io::Error::other)?;
    let path = fs.path_of(file.id).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
    let point = point.to_owned();
    apart::ask(move || {
        asking.is_this_thread();
        truncate((device, &point), &path, &file, &stat)
    })
}

/// Truncates the file at `path` of the mount to its new size.
fn truncate(
    (device, point): (Device, &Path),
    path: &[u8],
    &Resized { shown, size, .. }: &Resized,
    stat: &Stat,
) -> io::Result<()> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let root = place::root_of(device, point)?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = File::from(openat2(root, OsStr::from_bytes(path), flags, Mode::empty(), beneath)?);
    if found.metadata()?.ino() != shown || Device::of(&found)? != device {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::options().write(true).open(format!("/proc/thread-self/fd/{}", found.as_raw_fd()))?;
    let mut told = Err(io::ErrorKind::Other.into());
    for _ in 0..TRIES {
        told = file.set_len(size);
        if told.is_ok() {
            break;
        }
    }
    told?;
    file.set_times(FileTimes::new().set_modified(to_system(stat.mtime)))?;
    match file.metadata()?.len() == stat.size {
        true => Ok(()),
        false => Err(io::Error::other("the kernel keeps another size")),
    }
}

//! Locks on a range of a file that belong to an open file, not to a process.
//!
//! From:   `file_disk`, for a partition in a file.
//! Source: fcntl(2), "Open file description locks".

#![allow(unsafe_code, reason = "STYLE.md: device calls are one of the two places for it")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks `len` bytes from `start`, for this open file alone or together with other readers. Returns `false` if another
/// open file has a lock there.
///
/// # Errors
/// The file system has no such locks; the range is none.
pub(super) fn lock(file: &File, start: u64, len: u64, exclusive: bool) -> io::Result<bool> {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    match set(file, start, len, kind) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes this open file's lock off `len` bytes from `start`.
///
/// # Errors
/// The file system has no such locks.
pub(super) fn unlock(file: &File, start: u64, len: u64) -> io::Result<()> {
    set(file, start, len, libc::F_UNLCK)
}

fn set(file: &File, start: u64, len: u64, kind: libc::c_int) -> io::Result<()> {
    let bound = |number: u64| i64::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bound(start)?,
        l_len: bound(len)?,
        // The kernel demands zero.
        l_pid: 0,
    };
    loop {
        // SAFETY: the descriptor is open as long as `file` lives, and the kernel only reads `lock`, which outlives the call.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

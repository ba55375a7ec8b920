//! Where a server's log goes: standard error in the foreground, else a file in the state directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Mutex;

use pool::private;
use rustix::fs::OFlags;

/// A log longer than this, in bytes, is put aside when a server starts.
const LENGTH_MAX: u64 = 8 << 20;

/// Logs to standard error.
pub fn to_stderr() {
    // That somebody set a subscriber before is no trouble: they get the log.
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).try_init();
}

/// Logs to the end of `path`, which is made. Gives the file, for what else is said.
///
/// # Errors
/// It cannot be opened.
pub fn to_file(path: &Path) -> io::Result<File> {
    // The folder of logs, and before it the state directory that it lies in.
    let mut folders: Vec<&Path> = path.ancestors().skip(1).take(2).collect();
    folders.reverse();
    folders.into_iter().try_for_each(private::folder)?;
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.len() > LENGTH_MAX) {
        fs::rename(path, path.with_extension("log.old"))?;
    }
    let file = File::from(private::file(path, OFlags::WRONLY | OFlags::APPEND)?);
    let writer = Mutex::new(file.try_clone()?);
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).try_init();
    Ok(file)
}

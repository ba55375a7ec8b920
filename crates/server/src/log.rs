//! The server's log: standard error in the foreground, otherwise a file in the state directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use pool::private;
use rustix::fs::OFlags;
use zpl::rank::{MutexHeld, Rank, RankedMutex};

/// A starting server renames a log longer than this, in bytes.
const LENGTH_MAX: u64 = 8 << 20;

/// Logs to standard error.
pub fn to_stderr() {
    // If a subscriber was set before, it gets the log.
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).try_init();
}

/// Appends the log to `path`, and makes the file if necessary. Returns the file for other output.
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
    // The library requires the lock of the standard library.
    let writer = std::sync::Mutex::new(Lines(file.try_clone()?));
    let _ = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).try_init();
    Ok(file)
}

/// Lines that were not written into the log.
#[derive(Debug)]
struct Missing {
    why: String,
    lines: u64,
}

static MISSING: RankedMutex<Option<Missing>> = RankedMutex::new(Rank::LogLines, None);

fn missing() -> MutexHeld<'static, Option<Missing>> {
    MISSING.lock()
}

/// Why lines are missing in the log; `None` if the last one was written.
pub(crate) fn trouble() -> Option<String> {
    missing().as_ref().map(|missing| missing.why.clone())
}

/// A log that drops lines when its disk is full and never returns an error. The subscriber would print an error to standard
/// error, which is the same file, and panic.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut missing = missing();
        let before = missing.as_ref().map(|missing| missing.lines);
        let gap = before.map(|lines| match lines {
            1 => "(1 line is missing here)\n".to_owned(),
            _ => format!("({lines} lines are missing here)\n"),
        });
        let written = gap.map_or(Ok(()), |gap| self.0.write_all(gap.as_bytes()));
        *missing = match written.and_then(|()| self.0.write_all(line)) {
            Ok(()) => None,
            Err(error) => Some(Missing { why: error.to_string(), lines: before.unwrap_or(0) + 1 }),
        };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full at first.
    struct Full(bool, Vec<u8>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 { Err(io::ErrorKind::StorageFull.into()) } else { self.1.write(bytes) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn dropped_lines_are_counted_and_logging_never_fails() {
        let mut log = Lines(Full(true, Vec::new()));
        for _ in 0..3 {
            log.write_all(b"lost\n").unwrap();
        }
        assert!(trouble().is_some());
        log.0.0 = false;
        log.write_all(b"kept\n").unwrap();
        assert_eq!(trouble(), None);
        assert_eq!(log.0.1, b"(3 lines are missing here)\nkept\n");
    }
}

//! The holder of a file's advisory lock.
//!
//! From:   /proc/locks, /proc/PID/fd, /proc/PID/comm: a hint for a message, never a base for a decision.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::partitions;

/// The process that holds a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Its command name, when it can be seen.
    pub command: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.command {
            Some(command) => write!(f, "process {} ({command})", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// The holder of a `flock` lock on the file that `metadata` describes, if the system shows it.
pub(super) fn of_file(metadata: &fs::Metadata) -> Option<Holder> {
    all_of(metadata).into_iter().next()
}

/// All processes that have a `flock` lock on the file that `metadata` describes, as far as the system shows them.
pub(super) fn all_of(metadata: &fs::Metadata) -> Vec<Holder> {
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let device = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    // Some file systems show another device number in stat(2): there, look at the open files.
    let is_held = |lock: &Flock| {
        lock.inode == metadata.ino() && (lock.device == device || has_open(lock.pid, metadata))
    };
    let mut pids: Vec<u32> =
        table.lines().filter_map(parse_flock).filter(is_held).map(|lock| lock.pid).collect();
    pids.dedup();
    let holder = |pid: u32| {
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        Holder { pid, command: command.map(|name| name.trim_end().to_owned()) }
    };
    pids.into_iter().map(holder).collect()
}

/// All processes that have a lock on the disk at `path`, as far as the system shows them.
#[must_use]
pub fn holders_of(path: &Path) -> Vec<Holder> {
    fs::metadata(partitions::backing_file(path)).map_or_else(|_| Vec::new(), |metadata| all_of(&metadata))
}

struct Flock {
    pid: u32,
    device: (u32, u32),
    inode: u64,
}

/// Reads `1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF`; `None` for other kinds and for waiters (`->`).
fn parse_flock(line: &str) -> Option<Flock> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok().filter(|pid| *pid != 0)?;
    let mut place = words.next()?.split(':');
    let major = u32::from_str_radix(place.next()?, 16).ok()?;
    let minor = u32::from_str_radix(place.next()?, 16).ok()?;
    Some(Flock { pid, device: (major, minor), inode: place.next()?.parse().ok()? })
}

fn has_open(pid: u32, metadata: &fs::Metadata) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files
        .flatten()
        .filter_map(|file| fs::metadata(file.path()).ok())
        .any(|open| (open.dev(), open.ino()) == (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flock_lines_of_proc_locks_are_parsed_and_other_lines_are_skipped() {
        let lock = parse_flock("17: FLOCK  ADVISORY  WRITE 4711 fd:1a:131 0 EOF").unwrap();
        assert_eq!((lock.pid, lock.device, lock.inode), (4711, (0xfd, 0x1a), 131));
        for other in [
            "",
            "1: POSIX  ADVISORY  WRITE 4711 fd:01:131 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 0 fd:01:131 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4711 fd:01",
        ] {
            assert!(parse_flock(other).is_none(), "{other}");
        }
    }
}

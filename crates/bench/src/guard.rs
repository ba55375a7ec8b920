//! Cleaning up after a killed process, by a second process that outlives it.
//!
//! From:   a folder that must not stay, perhaps with a file system on it, and the programs that run there.
//! To:     a shell that waits for the end of its standard input, which comes with the end of this process, however that
//!         comes about. It does not find files that were removed in good order by then.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Each line it reads is the group of processes that is to end; an empty one: none. `$1`: the folder, `$2`: what removes it.
const SCRIPT: &str = "\
trap '' HUP INT TERM
group=
while read -r line; do group=$line; done
[ -z \"$group\" ] || kill -s KILL -- \"-$group\"
case $2 in
  mount) umount -l -- \"$1\" || fusermount3 -u -z -- \"$1\"; rmdir -- \"$1\" ;;
  files) rm -rf -- \"$1\" ;;
esac";

/// The state of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// A mount point, with nothing below the mount.
    Mount,
    /// A folder with files.
    Files,
}

/// Removes a folder when it is dropped or this process ends, if it is still there then.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    /// When this pipe is closed, the child begins to clean up.
    line: Option<ChildStdin>,
}

impl Guard {
    /// Begins to guard a folder of this program.
    ///
    /// # Errors
    /// No shell can be started.
    pub(crate) fn over(folder: &Path, left: Left) -> io::Result<Guard> {
        let what = match left {
            Left::Mount => "mount",
            Left::Files => "files",
        };
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "cenote-bench-guard"]).arg(folder).arg(what).current_dir("/");
        // The process has a group of its own, so that a signal to the others does not end it.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
        let line = child.stdin.take();
        Ok(Guard { child, line })
    }

    /// These processes are to end, too; `None`: they ended.
    ///
    /// # Errors
    /// The guard is gone.
    pub(crate) fn group(&mut self, group: Option<u32>) -> io::Result<()> {
        let text = group.map_or(String::new(), |group| group.to_string());
        self.line.as_mut().map_or(Ok(()), |line| writeln!(line, "{text}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.line.take());
        // Only the end of the process matters. A file that it does not find is gone already.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_removes_its_folder_and_ends_its_programs() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("left");
        std::fs::create_dir_all(at.join("a")).unwrap();
        std::fs::write(at.join("a/b"), "c").unwrap();
        let mut program = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
        let mut guard = Guard::over(&at, Left::Files).unwrap();
        guard.group(None).unwrap();
        guard.group(Some(program.id())).unwrap();
        drop(guard);
        assert!(!at.exists());
        assert!(!program.wait().unwrap().success());
    }

    #[test]
    fn a_removed_folder_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        drop(Guard::over(&dir.path().join("none"), Left::Mount).unwrap());
        drop(Guard::over(&dir.path().join("none"), Left::Files).unwrap());
        assert!(dir.path().exists());
    }
}

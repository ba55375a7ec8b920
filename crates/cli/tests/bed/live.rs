//! Pools that servers hold, mounted below a bed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Bed, Done, wait_until};

/// A bed whose pools are mounted below it. All mounts are removed when it is dropped, also when the test fails.
pub struct Live {
    pub bed: Bed,
}

impl Live {
    /// `None` where nothing can be mounted.
    pub fn new() -> Option<Live> {
        if cfg!(not(feature = "mount")) {
            eprintln!("skipped: built without FUSE");
            return None;
        }
        if let Err(error) = fs::File::options().read(true).write(true).open("/dev/fuse") {
            eprintln!("skipped: /dev/fuse: {error}");
            return None;
        }
        Some(Live { bed: Bed::new() })
    }

    /// With the pool `tank` of so many MiB, mounted on `mnt`.
    pub fn with_tank(mebibytes: u64) -> Option<Live> {
        let live = Live::new()?;
        fs::File::create(live.path("tank.img")).expect("made").set_len(mebibytes << 20).expect("long");
        let (image, point) = (live.text("tank.img"), live.text("mnt"));
        live.run(&["zpool", "create", "-m", &point, "tank", &image]).good();
        Some(live)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.bed.path(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.bed.command(words);
        command.env_remove("CENOTE_SERVER");
        command
    }

    pub fn run(&self, words: &[&str]) -> Done {
        self.command(words).output().expect("the program starts").into()
    }

    pub fn get(&self, property: &str, dataset: &str) -> String {
        self.run(&["zfs", "get", "-Hpo", "value", property, dataset]).good().trim().to_owned()
    }

    pub fn import(&self) -> Done {
        self.run(&["zpool", "import", "-d", &self.text("tank.img"), "tank"])
    }

    /// The server that was started last for a pool of this bed.
    pub fn server(&self) -> u32 {
        self.servers().into_iter().max().expect("a server runs")
    }

    /// All servers that were started with a folder of this bed for their sockets, also those of other users.
    fn servers(&self) -> Vec<u32> {
        let top = self.path("").display().to_string();
        let is_here = |variable: &[u8]| {
            let value = ["CENOTE_RUN_DIR=", "XDG_RUNTIME_DIR="].iter().find_map(|name| {
                variable.strip_prefix(name.as_bytes()).and_then(|value| std::str::from_utf8(value).ok())
            });
            value.is_some_and(|value| value.starts_with(&top))
        };
        let processes = fs::read_dir("/proc").expect("there").filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let serves = words.split(|byte| *byte == 0).any(|word| word == b"serve");
            let ours = environ.split(|byte| *byte == 0).any(is_here);
            (serves && ours).then_some(pid)
        });
        processes.collect()
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.server().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill starts").success());
        wait_until(&format!("the server goes on after {signal}"), || !is_running(&pid));
    }

    /// Mounts below the bed.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let folder = self.path("");
        let text = fs::read_to_string("/proc/self/mounts").expect("there");
        let points = text.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        points.filter(|point| point.starts_with(&folder)).collect()
    }

    #[track_caller]
    pub fn expect_sound(&self) {
        self.bed.expect_sound("tank");
    }
}

/// Whether a process still has its files and locks: its first thread may have ended long before the last one.
pub fn is_running(pid: &str) -> bool {
    let has_ended = |stat: &str| {
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z ") || rest.starts_with(" X "))
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    states.any(|stat| !has_ended(&stat))
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.run(&["zpool", "export", "-af"]);
        // A test that failed in the middle leaves servers that no socket leads to.
        for pid in self.servers() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        for point in self.mounts().into_iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(point).stderr(Stdio::null()).status();
        }
        if std::thread::panicking() {
            for entry in fs::read_dir(self.path("state/log")).into_iter().flatten().flatten() {
                eprintln!("{}", fs::read_to_string(entry.path()).unwrap_or_default());
            }
        }
    }
}

pub fn write(path: &Path, bytes: &[u8]) {
    let mut file = fs::File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.write_all(bytes).and_then(|()| file.sync_all()).expect("written");
}

/// Bytes that no compression makes smaller and no metadata holds.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..count / 8).flat_map(|_| next()).collect()
}

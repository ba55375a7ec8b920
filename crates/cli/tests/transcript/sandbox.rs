//! A small system in which a transcript is replayed, with a root folder, processes and mounts that nothing else sees.
//!
//! The recordings were made as root in a machine that was thrown away; they use absolute paths (`/v`, `/run`, `/tank`)
//! and mount. Here all that is a tmpfs in a mount namespace, seen through `chroot`, with the host's programs read-only.
//! Its first process ends when the test does, however that ends; with it go the servers, the mounts and the files.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest any command may take.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The most output that is kept of one stream, in bytes.
const OUTPUT_MAX: u64 = 16 << 20;

/// A running sandbox.
#[derive(Debug)]
pub struct Sandbox {
    /// Its first process, as the host calls it.
    first: String,
    keeper: Child,
    /// Closed, the first process ends.
    _alive: Option<ChildStdin>,
    _folder: tempfile::TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct Done {
    pub out: String,
    pub err: String,
    pub status: i32,
}

/// Why nothing can be replayed here; `None` where it can.
pub fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    if cfg!(not(feature = "mount")) {
        return Some("built without FUSE".to_owned());
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    let done = Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).output();
    match done {
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

impl Sandbox {
    /// Starts one with these programs on its path, each under its name.
    ///
    /// # Errors
    /// The error of the machine.
    pub fn new(programs: &[(&str, &Path)]) -> Result<Sandbox, String> {
        let failed = |error: std::io::Error| format!("no sandbox: {error}");
        let folder = tempfile::tempdir().map_err(failed)?;
        let pairs: Vec<String> =
            programs.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
        let mut keeper = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "bash",
                "-c",
                include_str!("furnish.sh"),
                "-",
            ])
            .arg(folder.path())
            .arg(pairs.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().ok_or("no pipe")?).read_line(&mut line).map_err(failed)?;
        let first =
            line.trim().strip_prefix("ready ").ok_or("the sandbox could not be furnished")?.to_owned();
        Ok(Sandbox { first, _alive: keeper.stdin.take(), keeper, _folder: folder })
    }

    /// A path of the sandbox as seen from outside.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.first))
    }

    /// Runs a shell command in it.
    ///
    /// # Errors
    /// When it cannot be started or does not end.
    pub fn run(&self, command: &str) -> Result<Done, String> {
        let child = Command::new("nsenter")
            .args(["-t", &self.first, "-m", "-p", "-r", "-w", "bash", "-c", command])
            .env_clear()
            .envs([
                ("PATH", "/opt:/usr/sbin:/usr/bin:/sbin:/bin"),
                ("HOME", "/run"),
                ("LC_ALL", "C"),
                ("TZ", "UTC"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start bash: {e}"))?;
        let (out, err, status) = wait(child)?;
        Ok(Done { out, err, status })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // It ends its first process, which ends all others: their pid namespace goes.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Waits for a command and all it prints, but not forever.
fn wait(mut child: Child) -> Result<(String, String, i32), String> {
    fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stream) = stream {
                // A stream that breaks is shown as far as it was read.
                let _ = stream.take(OUTPUT_MAX).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                // The command leads a process group of its own: end all of it, by its number.
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return Err(format!("did not end within {} s", PATIENCE.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = |handle: thread::JoinHandle<String>| handle.join().map_err(|_| "reader failed".to_owned());
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok((text(out)?, text(err)?, code))
}

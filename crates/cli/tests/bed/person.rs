//! An ordinary user of the machine, for tests that run as root.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Done;
use super::live::Live;

/// An ordinary user, with a home and the program.
pub struct Person {
    pub home: PathBuf,
    pub program: PathBuf,
}

impl Person {
    /// `None` where a process cannot become another user.
    pub fn new(live: &Live) -> Option<Person> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become somebody else");
            return None;
        }
        let (home, program) = (live.path("home"), live.path("cenote"));
        fs::create_dir(&home).expect("made");
        fs::set_permissions(live.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("given away");
        // The program must be where everybody may run it.
        super::copy_program(&program);
        Some(Person { home, program })
    }

    /// Runs another program as this person.
    pub fn does(&self, words: &[&str]) -> Done {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words);
        command.current_dir(&self.home).stdin(Stdio::null()).env("HOME", &self.home).env("TZ", "UTC");
        command.env("CENOTE_STATE_DIR", self.home.join("state")).env("XDG_RUNTIME_DIR", &self.home);
        command.env_remove("CENOTE_RUN_DIR").env_remove("CENOTE_SERVER").env("LC_ALL", "C");
        command.output().expect("it starts").into()
    }

    /// Whether another program succeeds when this user runs it.
    pub fn can(&self, words: &[&str]) -> bool {
        self.does(words).status == 0
    }

    /// Runs the program as this person.
    pub fn run(&self, words: &[&str]) -> Done {
        self.does(&[&[self.program.to_str().expect("UTF-8")], words].concat())
    }

    /// Runs a shell script in a folder; `cenote` is the program.
    pub fn sh(&self, folder: &str, script: &str) -> Done {
        let script =
            format!("cenote() {{ {} \"$@\"; }}; cd {folder} && {{ {script}\n}}", self.program.display());
        self.does(&["sh", "-c", &script])
    }

    /// An image for a pool of theirs.
    pub fn image(&self, mebibytes: u64) -> String {
        let image = self.home.join("tank.img");
        fs::File::create(&image).expect("made").set_len(mebibytes << 20).expect("long");
        std::os::unix::fs::chown(&image, Some(65534), Some(65534)).expect("given away");
        image.display().to_string()
    }

    /// Does `test` with their pool `mine` mounted; exports the pool whatever comes of it, and checks the image.
    pub fn with_pool(&self, live: &Live, made: &Done, test: impl FnOnce()) {
        if helper_refuses(made) {
            // The pool is there, and has a server.
            self.run(&["zpool", "export", "mine"]).good();
            return;
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        let exported = self.run(&["zpool", "export", "mine"]);
        if let Err(panic) = ended {
            let log = self.home.join("state/log/mine.log");
            eprintln!("{}", fs::read_to_string(log).unwrap_or_default());
            std::panic::resume_unwind(panic);
        }
        exported.good();
        live.bed.expect_sound_image("mine", &self.home.join("tank.img").display().to_string());
    }
}

/// Whether nothing was mounted because `fusermount3` may not mount here, or is not here. That is a reason to leave a test
/// out, and is said. What the program alone got wrong is none.
pub fn helper_refuses(done: &Done) -> bool {
    let is_missing = done.err.contains("fusermount3 is not installed");
    if is_missing {
        let is_here = Command::new("fusermount3").arg("-V").output().is_ok();
        assert!(!is_here, "fusermount3 is installed: {}", done.err);
    }
    let refuses = is_missing || done.err.contains("fusermount3: ");
    if refuses {
        eprintln!("skipped: {}", done.err);
    }
    refuses
}

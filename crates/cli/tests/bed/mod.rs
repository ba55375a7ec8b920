//! A folder with pools in it, and the program that was built.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod craft;
pub mod images;
pub mod live;
pub mod person;
pub mod streams;
#[path = "../../../front/tests/waits/mod.rs"]
mod waits;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub use waits::{PATIENCE, wait_until};

/// Gives a program that runs `command`, or stands for it, the same folder and variables.
pub fn in_place_of(command: &Command, program: &mut Command) {
    if let Some(folder) = command.get_current_dir() {
        program.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => program.env(name, value),
            None => program.env_remove(name),
        };
    }
}

pub struct Bed {
    folder: tempfile::TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct Done {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Done {
            status: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Done {
    /// Checks that the command succeeded and wrote nothing to standard error; gives its output.
    #[track_caller]
    pub fn good(self) -> String {
        assert!(self.status == 0 && self.err.is_empty(), "{self:?}");
        self.out
    }

    /// It failed with this line.
    #[track_caller]
    pub fn refused(self, line: &str) {
        assert!(self.status == 1 && self.err.lines().next() == Some(line), "{self:?}\nwanted: {line}");
    }

    /// One JSON object per line.
    #[track_caller]
    pub fn objects(self) -> Vec<Value> {
        self.good().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Puts a copy of the program where every user may start it. Another process makes it: a child that another test starts
/// just now would keep the copy open for writing, and then it could not be started.
pub fn copy_program(to: &Path) {
    let done = Command::new("cp").arg(env!("CARGO_BIN_EXE_cenote")).arg(to).status();
    assert!(done.expect("cp is here").success());
}

/// Lets programs that tests start be ended by SIGINT, also where a shell started the tests in the background: it has the
/// signal ignored, and children inherit that. A signal that has a handler is not ignored in children. The handler here does
/// what the system does without one.
fn take_interrupts() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, always)
            .expect("a handler");
    });
}

impl Bed {
    /// The values of properties of a pool, one a line: `zpool get`.
    pub fn pool_values(&self, what: &[&str]) -> String {
        let mut line = vec!["zpool", "get", "-Hp", "-o", "value"];
        line.extend(what);
        self.run(&line).good()
    }

    pub fn new() -> Bed {
        take_interrupts();
        Bed { folder: tempfile::tempdir().expect("a folder") }
    }

    /// A bed with the pool `tank` of so many MiB in `tank.img`, and `tank/fs` in it.
    pub fn with_tank(mebibytes: u64, properties: &[&str]) -> Bed {
        let bed = Bed::new();
        std::fs::File::create(bed.path("tank.img")).expect("made").set_len(mebibytes << 20).expect("long");
        let image = bed.path("tank.img").display().to_string();
        bed.run(&["zpool", "create", "tank", &image]).good();
        let mut line = vec!["zfs", "create"];
        properties.iter().for_each(|property| line.extend(["-o", *property]));
        line.push("tank/fs");
        bed.run(&line).good();
        bed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(words).current_dir(self.folder.path()).stdin(Stdio::null());
        command
            .env("CENOTE_STATE_DIR", self.path("state"))
            .env("ZFS_HOSTID", "0")
            .env_remove("SOURCE_DATE_EPOCH")
            .env("TZ", "UTC");
        // One command, one open, unless a test says otherwise.
        command.env("CENOTE_SERVER", "off").env("CENOTE_RUN_DIR", self.path("run"));
        command
    }

    pub fn run(&self, words: &[&str]) -> Done {
        self.command(words).output().expect("the program starts").into()
    }

    pub fn list(&self, place: &str) -> Vec<Value> {
        self.run(&["ls", "-R", "--json", "--sha256", place]).objects()
    }

    /// `cenote check` and, where it is, real OpenZFS find nothing wrong with the pool in `NAME.img`.
    #[track_caller]
    pub fn expect_sound(&self, pool: &str) {
        self.expect_sound_image(pool, &format!("{pool}.img"));
    }

    /// As [`Bed::expect_sound`], of a pool in another image.
    #[track_caller]
    pub fn expect_sound_image(&self, pool: &str, image: &str) {
        let done = self.run(&["check", image]);
        assert!(done.status == 0 && done.out.contains(": clean"), "{done:?}");
        let oracle = root().join("oracle/zdb-check");
        let output = Command::new(oracle).arg(pool).arg(self.path(image)).output().expect("it starts");
        let required = std::env::var("CENOTE_ORACLE").is_ok_and(|value| value == "required");
        if output.status.code() == Some(2) && !required {
            eprintln!("oracle: zdb is not here, skipped (oracle/install brings it)");
            return;
        }
        assert!(output.status.success(), "{:?}", Done::from(output));
    }

    /// Everything below a local folder, as `oracle/manifest` describes it.
    pub fn manifest(&self, folder: &str) -> Vec<Value> {
        let output = Command::new(root().join("oracle/manifest")).arg(self.path(folder)).output();
        Done::from(output.expect("python3 is here")).objects()
    }
}

/// Compares two lists of files except the named fields; sizes of folders count their entries in a pool.
#[track_caller]
pub fn expect_same(one: &[Value], other: &[Value], but: &[&str]) {
    let clean = |list: &[Value]| -> Vec<Value> {
        let strip = |entry: &Value| {
            let mut entry = entry.clone();
            let is_dir = entry["type"] == "dir";
            let fields = entry.as_object_mut().expect("an object");
            fields.retain(|key, _| !(but.contains(&key.as_str()) || is_dir && key == "size"));
            entry
        };
        list.iter().map(strip).collect()
    };
    let (one, other) = (clean(one), clean(other));
    for (a, b) in one.iter().zip(&other) {
        assert_eq!(a, b);
    }
    assert_eq!(one.len(), other.len());
}

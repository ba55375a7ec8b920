//! Other users of the machine query a pool of root: what they see, what is refused, and what hostile users cannot do.

mod bed;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use bed::Done;
use bed::live::{Live, noise, write};

/// A pool of root that other users may look at; `None` where that cannot be.
struct Shared {
    live: Live,
}

impl Shared {
    fn new() -> Option<Shared> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become another user");
            return None;
        }
        let shared = Shared { live: Live::new()? };
        fs::set_permissions(shared.live.path(""), fs::Permissions::from_mode(0o755)).expect("set");
        bed::copy_program(&shared.live.path("cenote"));
        fs::File::create(shared.live.path("tank.img")).expect("made").set_len(64 << 20).expect("long");
        let (image, point) = (shared.live.text("tank.img"), shared.live.text("mnt"));
        shared.root(&["zpool", "create", "-m", &point, "tank", &image]).good();
        Some(shared)
    }

    /// A command of root, whose servers let others look.
    fn root(&self, words: &[&str]) -> Done {
        let mut command = self.live.command(words);
        command.env("CENOTE_VISITORS_DIR", self.live.path("visitors"));
        command.output().expect("it starts").into()
    }

    /// A command of another user.
    fn command(&self, words: &[&str]) -> Command {
        let home = self.live.path("home");
        fs::create_dir_all(&home).expect("made");
        std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("given away");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(self.live.path("cenote"));
        command.args(words).current_dir("/").stdin(Stdio::null()).env("HOME", &home);
        command.env("CENOTE_STATE_DIR", home.join("state")).env("CENOTE_RUN_DIR", home.join("run"));
        command.env("CENOTE_VISITORS_DIR", self.live.path("visitors")).env("TZ", "UTC");
        command
    }

    fn visitor(&self, words: &[&str]) -> Done {
        self.command(words).output().expect("setpriv is here").into()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.live.path("visitors/tank.sock")).expect("the server listens");
        stream.set_read_timeout(Some(bed::PATIENCE)).expect("set");
        stream
    }

    /// Sends bytes as they are, and nothing after them if that is the `end`. Returns the answer as text.
    fn send(&self, bytes: &[u8], end: bool) -> String {
        let mut stream = self.connect();
        // A server that refused already may have closed the connection.
        let _ = stream.write_all(bytes);
        if end {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(answer.get(4..).unwrap_or_default()).into_owned()
    }

    /// Sends a question that a program of cenote would not send.
    fn ask(&self, question: &str) -> String {
        let length = u32::try_from(question.len()).expect("short").to_le_bytes();
        self.send(&[&length, question.as_bytes()].concat(), false)
    }
}

fn question(program: &str, words: &[&str]) -> String {
    serde_json::json!({ "protocol": 1, "program": program, "words": words, "posix": false }).to_string()
}

#[test]
fn another_user_sees_what_root_sees_and_changes_nothing() {
    let Some(shared) = Shared::new() else { return };
    shared.root(&["zfs", "create", "-o", "com.example:note=kept", "tank/fs"]).good();
    shared.root(&["zfs", "snapshot", "tank/fs@snap"]).good();
    shared.root(&["zfs", "hold", "keep", "tank/fs@snap"]).good();
    for words in [
        &["zfs", "list"][..],
        &["zfs", "list", "-t", "all", "-o", "name,used,mounted", "tank"],
        &["zfs", "get", "-H", "all", "tank/fs"],
        &["zfs", "holds", "tank/fs@snap"],
        &["zpool", "list", "-v"],
        &["zpool", "status", "-v", "tank"],
        &["zpool", "get", "size,health", "tank"],
        &["zfs", "upgrade"],
        &["zpool", "upgrade"],
    ] {
        // A txg that ends between the two changes figures.
        bed::wait_until(&format!("{words:?} shows something else"), || {
            shared.visitor(words).good() == shared.root(words).good()
        });
    }
    // The mounts of other tests come and go meanwhile.
    let here = shared.live.text("mnt");
    let own = |list: String| list.lines().filter(|line| line.contains(&here)).collect::<Vec<_>>().join("\n");
    let seen = own(shared.visitor(&["zfs", "mount"]).good());
    assert_eq!(seen, own(shared.root(&["zfs", "mount"]).good()));
    assert_eq!(seen.lines().count(), 2, "{seen}");
    let point = shared.live.text("mnt/fs");
    assert_eq!(shared.visitor(&["zfs", "list", "-Ho", "name", &point]).good(), "tank/fs\n");
    assert!(shared.visitor(&["zpool", "iostat", "-H", "tank"]).good().starts_with("tank\t"));
    let missing = shared.visitor(&["zfs", "list", "-Ho", "name", "tank", "tank/no"]);
    assert_eq!((missing.status, missing.out.as_str()), (1, "tank\n"));
    assert_eq!(missing.err, "cannot open 'tank/no': dataset does not exist\n");

    let why = "the pool belongs to user 0, and other users can only run 'zfs get|holds|list' and 'zpool \
               get|iostat|list|status' on it";
    for words in [
        &["zfs", "set", "atime=off", "tank"][..],
        &["zfs", "create", "tank/mine"],
        &["zfs", "destroy", "tank/fs"],
        &["zpool", "export", "tank"],
        &["zpool", "history", "tank"],
        &["cat", "tank:/file"],
    ] {
        shared.visitor(words).refused(&format!("cannot open 'tank': {why}"));
    }
    let refused = "is not possible on a pool of another user";
    shared
        .visitor(&["zpool", "status", "-c", "upath"])
        .refused(&format!("cenote: zpool status: the option '-c' {refused}"));
    shared.visitor(&["zpool", "iostat", "1"]).refused(&format!(
        "cenote: zpool iostat: an interval without a count, or for more than 15 s in all, {refused}"
    ));
    // Figures since the import, and of a fraction of a second.
    let rounds = shared.visitor(&["zpool", "iostat", "-H", "tank", "0.3", "2"]).good();
    assert_eq!(rounds.lines().filter(|line| line.starts_with("tank\t")).count(), 2, "{rounds}");
    let round = shared.visitor(&["zpool", "iostat", "-Hy", "0.3", "1"]).good();
    assert_eq!(round.lines().filter(|line| line.starts_with("tank\t")).count(), 1, "{round}");
    assert_eq!(shared.visitor(&["zfs", "mount", "-a"]).status, 0, "the visitor has no pools to mount");
    assert_ne!(shared.visitor(&["zpool", "upgrade", "tank"]).status, 0);
    shared.root(&["zpool", "export", "tank"]).good();
    assert_eq!(fs::read_dir(shared.live.path("visitors")).expect("there").count(), 0);
    // Pools of other tests of the same machine may be mounted.
    assert!(shared.visitor(&["zfs", "list"]).err.starts_with("no datasets available\n"));
    shared.live.expect_sound();
}

#[test]
fn a_visitor_sees_damage_but_not_the_names_of_files() {
    let Some(shared) = Shared::new() else { return };
    let bytes = noise(600_000);
    write(&shared.live.path("mnt/secret"), &bytes);
    shared.root(&["zpool", "export", "-f", "tank"]).good();
    let image = shared.live.path("tank.img");
    let mut raw = fs::read(&image).expect("readable");
    let at =
        raw.windows(512).position(|part| part == &bytes[300_032..300_544]).expect("it is stored as it is");
    raw[at] ^= 1;
    fs::write(&image, raw).expect("written");
    shared.root(&["zpool", "import", "-d", &image.display().to_string(), "tank"]).good();
    shared.root(&["zpool", "scrub", "-w", "tank"]).good();
    let all = shared.root(&["zpool", "status", "-v", "tank"]).good();
    assert!(all.contains("mnt/secret"), "{all}");
    let seen = shared.visitor(&["zpool", "status", "-v", "tank"]);
    assert!(seen.status == 0 && !seen.out.contains("secret") && !seen.out.contains("errors:"), "{seen:?}");
    assert_eq!(seen.err, "errors: List of errors unavailable: permission denied\n");
    let count = shared.visitor(&["zpool", "status", "tank"]).good();
    assert!(count.contains("errors: 1 data errors, use '-v' for a list"), "{count}");
    shared.root(&["zpool", "export", "-f", "tank"]).good();
}

#[test]
fn the_server_judges_every_question_whatever_program_asks() {
    let Some(shared) = Shared::new() else { return };
    for (program, words) in [
        ("zfs", &["destroy", "-r", "tank"][..]),
        ("zfs", &["set", "atime=off", "tank"]),
        ("zpool", &["export", "tank"]),
        ("zpool", &["history", "tank"]),
        ("zpool", &["status", "-c", "../../bin/sh"]),
        ("zfs", &["list", "/root"]),
        ("zfs", &["get", "userused@0", "tank"]),
        ("cenote", &["cat", "tank:/file"]),
        ("mount.zfs", &["tank", "/mnt"]),
        ("zfs", &[]),
        ("zfs", &["tank", "/mnt", "-o", "rw"]),
    ] {
        let answer = shared.ask(&question(program, words));
        assert!(answer.starts_with("{\"Refused\":"), "{program} {words:?}: {answer}");
    }
    let other = question("zfs", &["list"]).replace("\"protocol\":1", "\"protocol\":2");
    assert!(shared.ask(&other).contains("speaks another protocol"));
    assert!(shared.ask(&question("zfs", &["list", "tank"])).starts_with("{\"Done\":{\"status\":0,"));
    // 1200 columns of 8000 letters are more than one answer may have.
    shared.root(&["zfs", "set", &format!("com.example:long={}", "x".repeat(8000)), "tank"]).good();
    let columns = vec!["com.example:long"; 1200].join(",");
    let answer = shared.ask(&question("zfs", &["list", "-Ho", &columns]));
    assert!(answer.contains("the answer is longer than 8 MiB: ask for less of it"), "{answer:.200}");
    shared.root(&["zpool", "export", "tank"]).good();
    shared.live.expect_sound();
}

#[test]
fn hostile_visitors_are_refused_and_delay_no_other_user() {
    let Some(shared) = Shared::new() else { return };
    let long = (64u32 << 10) + 1;
    for bytes in [
        &b"garbage that is no message at all"[..],
        &[0xff; 4096],
        &long.to_le_bytes(),
        b"\x02\0\0\0[]",
        b"\x04\0\0\0\xff\xfe\xfd\xfc",
        b"",
    ] {
        assert_eq!(shared.send(bytes, true), "", "{bytes:?}");
    }
    let nested = "[".repeat(60_000);
    assert_eq!(shared.ask(&nested), "");
    // Silent connections of one user use up only the questions that this user may ask.
    let mut silent: Vec<UnixStream> = (0..64).map(|_| shared.connect()).collect();
    let mut turned_away = 0;
    for stream in &mut silent[4..] {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server closes it");
        turned_away += usize::from(answer.ends_with(b"\"Busy\""));
    }
    assert_eq!(turned_away, 60);
    // The visitor is another user than the silent ones, who are root here.
    assert_eq!(shared.visitor(&["zfs", "list", "-Ho", "name"]).good(), "tank\n");
    // One letter at a time does not keep a connection open: the whole question has five seconds.
    let mut slow = &silent[0];
    slow.write_all(&1000u32.to_le_bytes()).expect("sent");
    while slow.write_all(b" ").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(silent);
    // Root's own commands go on, and the server ends without waiting for visitors.
    let waiting: Vec<UnixStream> = (0..4).map(|_| shared.connect()).collect();
    write(&shared.live.path("mnt/file"), b"written meanwhile");
    shared.root(&["zfs", "create", "tank/fs"]).good();
    shared.root(&["zpool", "export", "tank"]).good();
    drop(waiting);
    shared.live.expect_sound();
}

#[test]
fn a_server_can_be_configured_to_refuse_other_users() {
    let Some(shared) = Shared::new() else { return };
    shared.root(&["zpool", "export", "tank"]).good();
    let config = shared.live.path("config/cenote");
    fs::create_dir_all(&config).expect("made");
    fs::write(config.join("config.toml"), "[server]\nvisitors = false\n").expect("written");
    let mut import = shared.live.command(&["zpool", "import", "-d", &shared.live.text("tank.img"), "tank"]);
    import.env("CENOTE_VISITORS_DIR", shared.live.path("visitors"));
    import.env("XDG_CONFIG_HOME", shared.live.path("config"));
    Done::from(import.output().expect("it starts")).good();
    assert_eq!(fs::read_dir(shared.live.path("visitors")).expect("there").count(), 0);
    shared.visitor(&["zfs", "list", "tank"]).refused(
        "cannot open 'tank': the pool belongs to user 0, and only that user's commands reach its server",
    );
}

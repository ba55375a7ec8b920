//! A pool whose device hangs: commands answer from memory, and the pool continues when the device does. The device is an
//! image in the file system of another pool, whose server is stopped. Another test has a server that speaks a foreign
//! protocol.

mod bed;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bed::live::{Live, noise};
use bed::{PATIENCE, wait_until};

/// The pool `tank` in an image that lies in a pool of another bed.
struct Hanging {
    live: Live,
    below: Live,
    /// The server of the pool below.
    pid: String,
}

impl Hanging {
    fn new() -> Option<Hanging> {
        let below = Live::with_tank(256)?;
        let live = Live::new()?;
        let image = below.path("mnt/tank.img");
        fs::File::create(&image).expect("made").set_len(128 << 20).expect("long");
        let pid = below.server().to_string();
        let (image, point) = (image.display().to_string(), live.text("mnt"));
        live.run(&["zpool", "create", "-m", &point, "tank", &image]).good();
        live.run(&["tune", "tank", "zio_slow_io_ms=100"]).good();
        live.run(&["tune", "tank", "zfs_deadman_ziotime_ms=200"]).good();
        Some(Hanging { live, below, pid })
    }

    fn tell(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid]).status().expect("kill starts").success());
    }

    /// The output of a command that must not wait for the device.
    fn answer(&self, words: &[&str]) -> String {
        let mut command = self.live.command(words);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let until = Instant::now() + PATIENCE;
        while child.try_wait().expect("it is ours").is_none() {
            if Instant::now() > until {
                self.tell("-CONT");
                child.kill().expect("it runs");
                panic!("{words:?} hangs with the device");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bed::Done::from(child.wait_with_output().expect("it ended")).good()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.pid]).status();
        let _ = self.live.run(&["zpool", "export", "-f", "tank"]);
    }
}

#[test]
fn commands_answer_while_a_device_hangs_and_nothing_is_lost() {
    let Some(hanging) = Hanging::new() else { return };
    let live = &hanging.live;
    fs::write(live.path("source"), noise(3_000_000)).expect("written");
    live.run(&["zfs", "create", "tank/home"]).good();
    let before = hanging.answer(&["zpool", "status", "-s", "tank"]);
    assert!(before.contains("READ WRITE CKSUM  SLOW"), "{before}");

    hanging.tell("-STOP");
    assert_eq!(hanging.answer(&["zpool", "list", "-Ho", "name"]), "tank\n", "the device is idle");
    let words = [format!("if={}", live.text("source")), format!("of={}", live.text("mnt/new"))];
    let mut dd = Command::new("dd").args(words).args(["bs=1M", "conv=fsync"]).stderr(Stdio::null()).spawn();
    let dd = dd.as_mut().expect("dd starts");
    let until = Instant::now() + PATIENCE;
    let status = loop {
        let status = hanging.answer(&["zpool", "status", "tank"]);
        if status.contains("does not answer: a ") {
            break status;
        }
        assert!(Instant::now() < until, "{status}");
    };
    assert!(status.contains("mnt/tank.img") && status.contains(" state: ONLINE"), "{status}");
    assert!(status.contains("errors: List of errors unavailable: a device does not answer"), "{status}");
    assert_eq!(hanging.answer(&["zpool", "list", "-Ho", "name,size,health"]), "tank\t112M\tONLINE\n");
    assert_eq!(hanging.answer(&["zpool", "get", "-Ho", "value", "size", "tank"]), "112M\n");
    assert_eq!(hanging.answer(&["zfs", "list", "-Ho", "name"]), "tank\ntank/home\n");
    let until = Instant::now() + PATIENCE;
    while !hanging.answer(&["zpool", "events", "-H"]).contains("\tereport.fs.zfs.deadman\n") {
        assert!(Instant::now() < until, "there is no event");
    }
    assert!(!hanging.answer(&["zpool", "status", "-x"]).contains("healthy"));
    assert_eq!(dd.try_wait().expect("it runs"), None, "nothing is acknowledged");

    hanging.tell("-CONT");
    assert!(dd.wait().expect("it ends").success());
    let run = |words: &[&str]| live.run(words);
    run(&["zpool", "sync", "tank"]).good();
    assert!(run(&["zpool", "events", "-H"]).good().contains("\tereport.fs.zfs.delay\n"));
    assert_eq!(fs::read(live.path("mnt/new")).expect("readable"), noise(3_000_000));
    let status = run(&["zpool", "status", "-sp", "tank"]).good();
    let slow = status.lines().find(|line| line.contains("tank.img")).expect("it has a line");
    assert!(slow.split_whitespace().last() != Some("0"), "{status}");
    run(&["zpool", "export", "tank"]).good();
    let image = hanging.below.path("mnt/tank.img").display().to_string();
    let checked = run(&["check", &image]);
    assert!(checked.status == 0 && checked.out.contains(": clean"), "{checked:?}");
}

#[test]
fn a_program_that_reads_from_a_device_that_hangs_can_be_ended() {
    let Some(hanging) = Hanging::new() else { return };
    let live = &hanging.live;
    fs::create_dir(live.path("mnt/folder")).expect("made");
    for number in 0..500 {
        fs::write(live.path("mnt/folder").join(format!("file{number}")), "text").expect("written");
    }
    let image = hanging.below.path("mnt/tank.img").display().to_string();
    live.run(&["zpool", "export", "tank"]).good();
    live.run(&["zpool", "import", "-d", &image, "tank"]).good();
    // The kernel's cache of the image would answer in place of the device.
    let forget = Command::new("dd")
        .args([&format!("if={image}"), "iflag=nocache", "count=0"])
        .stderr(Stdio::null())
        .status();
    assert!(forget.expect("dd starts").success());
    hanging.tell("-STOP");
    let mut ls = Command::new("ls");
    let ls = ls.arg("-l").arg(live.path("mnt/folder")).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut ls = ls.expect("ls starts");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(ls.try_wait().expect("it is ours"), None, "it waits for the device");
    let pid = ls.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    wait_until("it cannot be ended", || ls.try_wait().expect("it is ours").is_some());
    hanging.tell("-CONT");
    assert_eq!(fs::read_dir(live.path("mnt/folder")).expect("readable").count(), 500);
    live.run(&["zpool", "export", "-f", "tank"]).good();
}

#[test]
fn a_hanging_txg_is_reported_and_other_pools_continue() {
    let Some(hanging) = Hanging::new() else { return };
    let live = &hanging.live;
    live.run(&["tune", "tank", "zfs_deadman_synctime_ms=300"]).good();
    let (image, point) = (live.text("other.img"), live.text("other"));
    fs::File::create(&image).expect("made").set_len(64 << 20).expect("long");
    live.run(&["zpool", "create", "-m", &point, "other", &image]).good();
    fs::write(live.path("source"), noise(3_000_000)).expect("written");
    hanging.tell("-STOP");
    let words = [format!("if={}", live.text("source")), format!("of={}", live.text("mnt/new"))];
    let mut dd = Command::new("dd").args(words).args(["bs=1M", "conv=fsync"]).stderr(Stdio::null()).spawn();
    let dd = dd.as_mut().expect("dd starts");
    let until = Instant::now() + PATIENCE;
    let is_slow = |line: &str| line.ends_with("\tereport.fs.zfs.deadman");
    while !hanging.answer(&["zpool", "events", "-Hv", "tank"]).contains("sync_time") {
        assert!(Instant::now() < until, "there is no event of the txg");
    }
    assert!(hanging.answer(&["zpool", "events", "-H", "tank"]).lines().any(is_slow));

    let began = Instant::now();
    for words in [
        &["zfs", "create", "other/x"][..],
        &["zfs", "snapshot", "-r", "other@s"],
        &["zfs", "set", "compression=off", "other"],
        &["zfs", "list", "-r", "other"],
        &["zpool", "sync", "other"],
        &["zpool", "status", "other"],
        &["zpool", "scrub", "-w", "other"],
        &["zfs", "destroy", "-r", "other/x"],
        &["zpool", "export", "other"],
        &["zpool", "import", "-d", &image, "other"],
    ] {
        hanging.answer(words);
    }
    assert!(began.elapsed() < PATIENCE, "commands on a pool wait for the device of another one");
    fs::write(live.path("other/file"), "written").expect("others write");
    hanging.tell("-CONT");
    assert!(dd.wait().expect("it ends").success());
    live.run(&["zpool", "export", "-f", "other"]).good();
}

#[test]
fn a_pool_whose_server_speaks_another_protocol_is_told_apart_from_one_that_lost_its_devices() {
    let Some(live) = Live::with_tank(128) else { return };
    live.signal("-TERM");
    let listener = std::os::unix::net::UnixListener::bind(live.path("run/tank.sock")).expect("bound");
    let (ended, path) = (Arc::new(AtomicBool::new(false)), live.path("run/tank.sock"));
    let ends = ended.clone();
    let other = std::thread::spawn(move || {
        // A command may ask it more than once.
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            if ends.load(Ordering::Acquire) {
                break;
            }
            let hello = br#"{"Hello":{"protocol":99,"build":"9.9","guid":1,"pid":4711}}"#;
            stream.write_all(&(hello.len() as u32).to_le_bytes()).expect("sent");
            stream.write_all(hello).expect("sent");
            let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
        }
    });
    let status = live.run(&["zpool", "status", "tank"]);
    ended.store(true, Ordering::Release);
    drop(std::os::unix::net::UnixStream::connect(&path).expect("it listens"));
    other.join().expect("it ends");
    fs::remove_file(path).expect("gone");
    for word in ["speaks another protocol", "kill 4711", "zpool import -a"] {
        assert!(status.out.contains(word), "{status:?}");
    }
    assert!(!status.out.contains("Attach"), "{status:?}");
    live.expect_sound();
}

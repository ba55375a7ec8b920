//! A pool whose image lies on a file system that fills up: it is suspended until there is space again.

mod bed;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bed::live::{Live, is_running, write};
use bed::{Done, PATIENCE, wait_until};

/// Bytes of the file system below the image, at first.
const SMALL: &str = "size=40m";
const LARGE: &str = "size=400m";

/// A pool `brim` of 300 MiB in an image for which there are 40. `None` where nothing can be mounted.
struct Full {
    live: Live,
}

impl Full {
    fn new() -> Option<Full> {
        let live = Live::new()?;
        fs::create_dir(live.path("small")).expect("made");
        let full = Full { live };
        if !full.mount(&["-t", "tmpfs", "-o", SMALL, "tmpfs"]) {
            eprintln!("skipped: no tmpfs can be mounted");
            return None;
        }
        let (image, point) = (full.live.text("small/brim.img"), full.live.text("mnt"));
        fs::File::create(&image).expect("made").set_len(300 << 20).expect("long");
        full.live.run(&["zpool", "create", "-m", &point, "brim", &image]).good();
        write(&full.live.path("mnt/safe"), &random(1, 200_000));
        Some(full)
    }

    fn mount(&self, words: &[&str]) -> bool {
        let point = self.live.path("small");
        Command::new("mount").args(words).arg(point).status().expect("mount starts").success()
    }

    fn make_room(&self) {
        assert!(self.mount(&["-o", &format!("remount,{LARGE}")]));
    }

    /// A program that writes more than fits, and waits until it is durable.
    fn fill(&self) -> Child {
        fs::write(self.live.path("source"), random(2, 80 << 20)).expect("written");
        let words = [format!("if={}", self.live.text("source")), format!("of={}", self.live.text("mnt/big"))];
        let mut dd = Command::new("dd");
        dd.args(words).args(["bs=1M", "conv=fsync"]).stderr(Stdio::null());
        dd.spawn().expect("dd starts")
    }

    fn health(&self) -> String {
        self.live.run(&["zpool", "list", "-Ho", "health", "brim"]).good().trim().to_owned()
    }

    fn wait_until_suspended(&self) {
        wait_until("it is not suspended", || self.health() == "SUSPENDED");
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = self.live.run(&["zpool", "export", "-f", "brim"]);
        let _ = Command::new("umount").arg("-l").arg(self.live.path("small")).status();
    }
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u32
    };
    (0..len / 4 + 1).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).expect("readable") == fs::read(other).expect("readable")
}

#[test]
fn a_full_file_system_below_the_image_suspends_the_pool_until_there_is_space_again() {
    let Some(full) = Full::new() else { return };
    let run = |words: &[&str]| full.live.run(words);
    let mut dd = full.fill();
    full.wait_until_suspended();
    let status = run(&["zpool", "status", "brim"]).good();
    for line in [
        " state: SUSPENDED",
        "status: One or more devices are faulted in response to IO failures.",
        "action: Make sure the affected devices are connected, then run 'zpool clear'.",
        "   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-HC",
        "errors: List of errors unavailable: pool I/O is currently suspended",
    ] {
        assert!(status.lines().any(|found| found == line), "{line}\n{status}");
    }
    assert!(status.contains("No space left on device"), "{status}");
    assert!(!run(&["zpool", "status", "-x"]).good().contains("healthy"));
    assert!(run(&["zpool", "events", "-H"]).good().contains("\tereport.fs.zfs.io_failure\n"));
    assert_eq!(run(&["zpool", "get", "-Ho", "value", "health", "brim"]).good(), "SUSPENDED\n");
    run(&["zfs", "create", "brim/x"]).refused("cannot create 'brim/x': pool I/O is currently suspended");
    run(&["zfs", "unmount", "brim"]).refused("cannot unmount 'brim': pool I/O is currently suspended");
    run(&["zpool", "scrub", "brim"]).refused("cannot scrub brim: pool I/O is currently suspended");
    run(&["zpool", "clear", "brim"]).refused("cannot clear errors for brim: pool I/O is currently suspended");
    let export = run(&["zpool", "export", "brim"]);
    let said = "cannot export 'brim': pool I/O is currently suspended (";
    assert!(export.status == 1 && export.err.starts_with(said), "{export:?}");
    assert!(run(&["zfs", "list", "-H", "brim"]).good().starts_with("brim\t"));
    assert_eq!(fs::read(full.live.path("mnt/safe")).expect("readable"), random(1, 200_000));
    assert_eq!(dd.try_wait().expect("it runs"), None, "the writer waits");

    full.make_room();
    run(&["zpool", "clear", "brim"]).good();
    assert!(dd.wait().expect("it ends").success());
    assert_eq!(full.health(), "ONLINE");
    assert!(same(&full.live.path("source"), &full.live.path("mnt/big")));
    run(&["zfs", "create", "brim/x"]).good();
    run(&["zpool", "export", "brim"]).good();
    let checked = run(&["check", &full.live.text("small/brim.img")]);
    assert!(checked.status == 0 && checked.out.contains(": clean"), "{checked:?}");
}

#[test]
fn a_scrub_is_refused_while_another_command_waits_for_a_suspended_pool() {
    let Some(full) = Full::new() else { return };
    let mut file = fs::File::create(full.live.path("small/other")).expect("made");
    while file.write_all(&[1; 4096]).is_ok() {}
    let mut create = full.live.command(&["zfs", "create", "brim/x"]).spawn().expect("it starts");
    full.wait_until_suspended();
    let mut scrub = full.live.command(&["zpool", "scrub", "brim"]);
    let mut scrub = scrub.stderr(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + PATIENCE;
    while scrub.try_wait().expect("it is ours").is_none() {
        if Instant::now() > until {
            scrub.kill().expect("it runs");
            panic!("it waits behind the other command");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let done = Done::from(scrub.wait_with_output().expect("it ended"));
    assert!(done.status == 1 && done.err.starts_with("cannot open 'brim': pool I/O is currently suspended"));
    drop(file);
    fs::remove_file(full.live.path("small/other")).expect("removed");
    full.live.run(&["zpool", "clear", "brim"]).good();
    assert!(create.wait().expect("it ends").success());
    full.live.run(&["zfs", "list", "brim/x"]).good();
}

#[test]
fn a_suspended_pool_that_is_given_up_is_as_of_its_last_sync_and_its_intent_log() {
    let Some(full) = Full::new() else { return };
    let mut dd = full.fill();
    full.wait_until_suspended();
    let ended = full.live.run(&["zpool", "export", "-f", "brim"]);
    let said =
        "cannot export 'brim': the server ended without exporting the pool. Changes after transaction group ";
    assert!(ended.status == 1 && ended.err.starts_with(said), "{ended:?}");
    assert!(!dd.wait().expect("it ends").success(), "what was not written is not acknowledged");
    full.make_room();
    let image = full.live.text("small/brim.img");
    let _ = full.live.run(&["zpool", "export", "brim"]);
    full.live.run(&["zpool", "import", "-d", &image, "brim"]).good();
    assert_eq!(full.health(), "ONLINE");
    assert_eq!(fs::read(full.live.path("mnt/safe")).expect("readable"), random(1, 200_000));
}

#[test]
fn failmode_continue_gives_new_writes_an_error_and_reads_go_on() {
    let Some(full) = Full::new() else { return };
    full.live.run(&["zpool", "set", "failmode=continue", "brim"]).good();
    let mut dd = full.fill();
    full.wait_until_suspended();
    assert!(!dd.wait().expect("it ends").success());
    let status = full.live.run(&["zpool", "status", "brim"]).good();
    assert!(status.contains("msg/ZFS-8000-JQ\n"), "{status}");
    assert!(fs::create_dir(full.live.path("mnt/new")).is_err());
    assert_eq!(fs::read(full.live.path("mnt/safe")).expect("readable"), random(1, 200_000));
    full.make_room();
    full.live.run(&["zpool", "clear", "brim"]).good();
    fs::create_dir(full.live.path("mnt/new")).expect("it goes on");
}

#[test]
fn failmode_panic_ends_the_server_at_the_first_refusal() {
    let Some(full) = Full::new() else { return };
    full.live.run(&["zpool", "set", "failmode=panic", "brim"]).good();
    let mut dd = full.fill();
    assert!(!dd.wait().expect("it ends").success());
    // The server may still be writing why it ends.
    let log = || fs::read_to_string(full.live.path("state/log/brim.log")).expect("a log");
    wait_until("the log does not say why", || log().contains("failmode=panic: the server ends"));
}

#[test]
fn programs_that_wait_for_a_suspended_pool_can_be_ended_and_what_they_asked_for_is_not_done() {
    let Some(full) = Full::new() else { return };
    let mut dd = full.fill();
    full.wait_until_suspended();
    // More than a mount has threads: some wait in its queue.
    let made = |number: u32| full.live.path("mnt").join(format!("made{number}"));
    let start = |number: u32| Command::new("mkdir").arg(made(number)).spawn().expect("mkdir starts");
    let mut waiting: Vec<Child> = (0..24).map(start).collect();
    // It makes a folder safe.
    waiting.push(Command::new("sync").arg(full.live.path("mnt")).spawn().expect("sync starts"));
    std::thread::sleep(Duration::from_millis(500));
    for (number, child) in waiting.iter_mut().enumerate() {
        assert_eq!(child.try_wait().expect("it is ours"), None, "{number} waits for the pool");
        let signal = if number % 2 == 0 { "-INT" } else { "-KILL" };
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill starts").success());
    }
    for mut child in waiting {
        wait_until("it cannot be ended", || child.try_wait().expect("it is ours").is_some());
    }
    full.make_room();
    full.live.run(&["zpool", "clear", "brim"]).good();
    assert!(dd.wait().expect("it ends").success());
    assert!((0..24).all(|number| !made(number).exists()), "an interrupted change is not carried out later");
    fs::create_dir(made(0)).expect("others go on");
}

#[test]
fn a_program_that_handles_its_signal_gets_eintr_from_a_suspended_pool() {
    if Command::new("perl").arg("-v").output().is_err() {
        return eprintln!("skipped: there is no perl");
    }
    let Some(full) = Full::new() else { return };
    let mut dd = full.fill();
    full.wait_until_suspended();
    let script = r#"$| = 1; $SIG{INT} = sub { print "handled\n" }; print "ready\n"; mkdir $ARGV[0] or print "refused: $!\n""#;
    let mut perl = Command::new("perl");
    perl.args(["-e", script, &full.live.text("mnt/new")]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut perl = perl.spawn().expect("perl starts");
    let pid = perl.id().to_string();
    let mut said = BufReader::new(perl.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("perl speaks");
    assert_eq!(line, "ready\n");
    // From here on it sleeps in one place only: in the call that waits for the pool.
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    wait_until("it does not wait for the pool", || stat().contains(") S "));
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    line.clear();
    std::io::Read::read_to_string(&mut said, &mut line).expect("perl speaks");
    let done = Done::from(perl.wait_with_output().expect("it ends"));
    assert_eq!(line, "handled\nrefused: Interrupted system call\n", "{done:?}");
    full.make_room();
    full.live.run(&["zpool", "clear", "brim"]).good();
    assert!(dd.wait().expect("it ends").success());
    assert!(!full.live.path("mnt/new").exists());
}

#[test]
fn every_command_answers_at_once_on_a_suspended_pool_and_its_server_ends() {
    let Some(full) = Full::new() else { return };
    full.live.run(&["zfs", "create", "brim/fs"]).good();
    full.live.run(&["zfs", "snapshot", "brim@before"]).good();
    let mut dd = full.fill();
    full.wait_until_suspended();
    let within = |words: &[&str]| {
        let mut command = full.live.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let until = Instant::now() + PATIENCE;
        while child.try_wait().expect("it is ours").is_none() {
            if Instant::now() > until {
                child.kill().expect("it runs");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Done::from(child.wait_with_output().expect("it ended")))
    };
    let image = full.live.text("small/brim.img");
    let mut wrong = Vec::new();
    for line in CHANGES {
        let line = line.replace("IMAGE", &image);
        let words: Vec<&str> = line.split(' ').collect();
        match within(&words) {
            Some(done) if done.status != 0 && done.err.contains("pool I/O is currently suspended") => {}
            other => wrong.push(format!("{line}: {other:?}")),
        }
    }
    for line in LOOKS {
        match within(&line.split(' ').collect::<Vec<_>>()) {
            Some(done) if done.status == 0 => {}
            other => wrong.push(format!("{line}: {other:?}")),
        }
    }
    // Unsupported commands are refused as on any pool.
    for line in ["zpool initialize brim", "zpool trim brim", "zpool checkpoint brim", "zpool add brim IMAGE"]
    {
        match within(&line.replace("IMAGE", &image).split(' ').collect::<Vec<_>>()) {
            Some(done) if done.status != 0 => {}
            other => wrong.push(format!("{line}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The first signal has the writes tried again, the second one gives them up.
    let pid = full.live.server().to_string();
    let until = Instant::now() + PATIENCE;
    while is_running(&pid) {
        assert!(Instant::now() < until, "SIGTERM does not end the server");
        let _ = Command::new("kill").arg(&pid).stderr(Stdio::null()).status();
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(!dd.wait().expect("it ends").success());
}

/// Commands that change a pool.
const CHANGES: [&str; 21] = [
    "zpool scrub brim",
    "zpool set comment=x brim",
    "zpool sync brim",
    "zpool reguid brim",
    "zpool clear brim",
    "zpool export brim",
    "zpool destroy brim",
    "zfs set atime=off brim",
    "zfs inherit atime brim",
    "zfs create brim/new",
    "zfs snapshot brim@x",
    "zfs hold tag brim@before",
    "zfs rollback brim@before",
    "zfs clone brim@before brim/clone",
    "zfs bookmark brim@before brim#mark",
    "zfs rename brim/fs brim/gs",
    "zfs destroy brim@before",
    "zfs destroy brim/fs",
    "zfs promote brim/fs",
    "zfs unmount brim/fs",
    "zfs allow everyone create brim",
];

/// Commands that only look at it.
const LOOKS: [&str; 10] = [
    "zpool status brim",
    "zpool upgrade brim",
    "zpool list brim",
    "zpool get all brim",
    "zpool iostat brim",
    "zpool events brim",
    "zpool history brim",
    "zfs list -r -t all brim",
    "zfs get all brim/fs",
    "zfs mount",
];

//! `cenote bench` with faults: each gives one clear line, the measured figures are kept, and nothing is left behind.

mod bed;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bed::live::Live;
use bed::{Bed, Done};
use serde_json::Value;

fn bed_with_text() -> Bed {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("tmp")).expect("made");
    let line = |n: u32| format!("{n} the same line again and again {}\n", n * 7919 % 1000);
    std::fs::write(bed.path("text"), (0..100_000).map(line).collect::<String>()).expect("written");
    bed
}

fn bench(bed: &Bed, line: &str) -> Command {
    let words: Vec<&str> = std::iter::once("bench").chain(line.split_whitespace()).collect();
    let mut command = bed.command(&words);
    command.env("TMPDIR", bed.path("tmp"));
    command
}

fn said(bed: &Bed, line: &str) -> Done {
    bench(bed, line).output().expect("it starts").into()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("there").next().is_none()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("written")).expect("JSON")
}

/// A file system of its own, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where this user may not mount, or the system has no such file system.
    fn new(at: PathBuf, words: &[&str]) -> Option<Mounted> {
        std::fs::create_dir_all(&at).expect("made");
        let mut command = Command::new("mount");
        let done = command.args(words).arg(&at).stderr(Stdio::null()).status();
        if done.is_ok_and(|status| status.success()) {
            return Some(Mounted(at));
        }
        eprintln!("skipped: cannot mount {words:?}");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn every_failed_measurement_is_one_line() {
    let bed = bed_with_text();
    std::fs::write(bed.path("empty"), "").expect("written");
    std::fs::create_dir(bed.path("folder")).expect("made");
    let here = bed.path("");
    let here = here.display();
    let none = "No such file or directory";
    let cases = [
        ("empty", "nothing to measure: 'empty' holds no data".to_owned()),
        ("folder", "nothing to measure: 'folder' holds no data".to_owned()),
        ("/dev/null", "nothing to measure: '/dev/null' holds no data".to_owned()),
        ("none", format!("cannot read 'none': {none}")),
        ("--dir none text", format!("cannot make a temporary pool in 'none': {none}")),
        ("--dir text text", "cannot make a temporary pool in 'text': Not a directory".to_owned()),
        ("--against none text", format!("cannot measure in 'none': {none}")),
        ("--against text text", "cannot measure in 'text': Not a directory".to_owned()),
        ("--report none/r.html text", format!("cannot write 'none/r.html': {none}")),
        ("--json none/r.json text", format!("cannot write 'none/r.json': {none}")),
        ("--trace folder text", "cannot write 'folder': Is a directory".to_owned()),
        ("--resume none/r text", format!("cannot go on from 'none/r': {none}")),
        ("--experiment none", format!("cannot read 'none': {none}")),
        (
            "--pool none text",
            "cannot open 'none': no such pool (an exported one: cenote -d FILE bench --pool none …)"
                .to_owned(),
        ),
        ("--dirty-max 0 text", "cannot measure with a dirty limit of 0B: it must be at least 1M".to_owned()),
        (
            "--disk-write 200 text",
            "cannot measure with a disk that writes 200 B/s: it must be at least 1 MB/s".to_owned(),
        ),
        (
            "--disk-write 200M --against tmp text",
            "--disk-write and --disk-read need a temporary pool, and do not work with 'tmp'".to_owned(),
        ),
        ("--experiment /dev/zero", "cannot read '/dev/zero': it is longer than 16M".to_owned()),
        ("--total 0 text", "nothing to measure: no byte to write is given".to_owned()),
        (
            "--recordsize 3K text",
            "cannot measure recordsize=3K: 'recordsize' must be power of 2 from 512B to 16M".to_owned(),
        ),
        ("--command= text", "nothing to measure: no command for a step is given".to_owned()),
    ];
    for (line, wanted) in cases {
        let done = said(&bed, line);
        let line_alone = done.err.lines().count() == 1 && done.out.is_empty();
        assert!(done.status == 1 && line_alone, "{line}: {done:?}");
        assert_eq!(done.err.trim_end(), wanted, "{line} in {here}");
        assert!(is_empty(&bed.path("tmp")), "{line}");
    }
    for wrong in ["--threads 0 text", "--repeat 0 text", "--pair lz4 text", "--no-such-option text"] {
        let done = said(&bed, wrong);
        assert!(
            done.status == 2 && done.err.starts_with("error: ") && done.out.is_empty(),
            "{wrong}: {done:?}"
        );
    }
}

#[test]
fn a_disk_that_gets_full_costs_only_what_came_after() {
    let bed = bed_with_text();
    if Live::new().is_none() {
        return;
    }
    let Some(small) = Mounted::new(bed.path("small"), &["-t", "tmpfs", "-o", "size=100M", "none"]) else {
        return;
    };
    let noise: Vec<u8> =
        (0..3_000_000u64).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    let noise: Vec<u8> = noise.chunks(8).flat_map(|word| [word[5], word[6], 0, 0]).collect();
    std::fs::write(bed.path("halves"), noise).expect("written");
    // The programs of the first measurement leave 1 MiB free beside its pool, which is a third of what the second needs.
    let fill = "fill: head -c $(( $(stat -f -c %a*%S SMALL) - 1048576 )) /dev/zero > SMALL/fill";
    let fill = fill.replace("SMALL", &small.0.display().to_string());
    let words =
        ["bench", "--compression", "gzip-9,off", "--dir", "small", "--json", "r.json", "--report", "r.html"];
    let words = [&words[..], &["--csv", "r.csv", "--command", &fill, "halves"]].concat();
    let mut command = bed.command(&words);
    let done = Done::from(command.env("TMPDIR", bed.path("tmp")).output().expect("it starts"));
    let (status, cores) = (done.status, std::thread::available_parallelism().expect("known"));
    assert!(status == 1 && done.out.contains("\ngzip-9 "), "{done:?}");
    assert_eq!(
        done.err,
        format!("no space left in 'small' (off, recordsize 128K, threads {cores})\n"),
        "{done:?}"
    );
    let report = json(&bed.path("r.json"));
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(1), "{report}");
    let why = report["unfinished"].as_str().expect("it says so");
    assert!(why.starts_with("1 of 2 configurations were measured, then: no space left in"), "{why}");
    let page = std::fs::read_to_string(bed.path("r.html")).expect("written");
    assert!(page.contains("this is not everything: 1 of 2"));
    assert_eq!(std::fs::read_to_string(bed.path("r.csv")).expect("written").lines().count(), 2);
    let left: Vec<_> =
        std::fs::read_dir(&small.0).expect("there").map(|e| e.expect("read").file_name()).collect();
    assert_eq!(left, ["fill"]);
    assert!(is_empty(&bed.path("tmp")));
}

#[test]
fn a_signal_at_any_time_ends_it_soon_and_leaves_nothing() {
    for (millis, signal, status) in
        [(20, "-INT", 130), (150, "-TERM", 143), (400, "-INT", 130), (900, "-TERM", 143), (2000, "-INT", 130)]
    {
        let bed = bed_with_text();
        let line = "--compression off,lz4 --network 2M --against tmp --json r.json text";
        let mut command = bench(&bed, line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(millis));
        let (id, asked) = (child.id().to_string(), Instant::now());
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill starts").success());
        let output = child.wait_with_output().expect("it ends");
        let took = asked.elapsed();
        let by_default = output.status.signal().is_some();
        let done = Done::from(output);
        // Before the signal handlers are installed, the signal itself ends the process.
        assert!(by_default || done.status == status, "{millis} ms: {done:?}");
        assert!(took < bed::PATIENCE, "{millis} ms: {took:?}");
        assert!(is_empty(&bed.path("tmp")), "{millis} ms");
    }
}

#[test]
fn the_same_work_is_done_on_another_file_system() {
    let bed = bed_with_text();
    let image = bed.path("image");
    std::fs::File::create(&image).expect("made").set_len(24 << 20).expect("long");
    let mut mkfs = Command::new("mkfs.ext4");
    if !mkfs.arg("-q").arg(&image).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no mkfs.ext4");
        return;
    }
    let words = ["-o", "loop", &image.display().to_string()];
    let Some(other) = Mounted::new(bed.path("other"), &words) else { return };
    let out = said(&bed, "--compression lz4 --against other --json r.json text").good();
    assert!(out.lines().any(|line| line.starts_with("ext4 on /dev/loop")), "{out}");
    let runs = &json(&bed.path("r.json"))["runs"];
    assert!(runs[1]["verified"] == true && runs[1]["allocated_bytes"].as_u64() > Some(3_900_000), "{runs}");
    let names = || std::fs::read_dir(&other.0).expect("there").map(|e| e.expect("read").file_name());
    assert!(names().eq(["lost+found"]));
    // Too little room there is found before anything is measured.
    let done = said(&bed, "--compression lz4 --total 40M --against other text");
    assert!(
        done.status == 1 && done.out.is_empty() && done.err.starts_with("not enough space in 'other': "),
        "{done:?}"
    );
    assert!(names().eq(["lost+found"]) && is_empty(&bed.path("tmp")));
}

/// A cold read takes from the device what lies there, a warm one does not; what is written was read before.
#[test]
fn cold_reads_come_from_the_device_and_warm_ones_do_not() {
    let bed = bed_with_text();
    let out = said(&bed, "--compression off,lz4 --json r.json --data fastq:16M").good();
    let report = json(&bed.path("r.json"));
    if !["ext4", "xfs", "btrfs"].iter().any(|name| report["machine"]["backing"].to_string().contains(name)) {
        eprintln!("skipped: temporary files are on no device: {}", report["machine"]["backing"]);
        return;
    }
    assert!(report["machine"]["source_in_memory"] == true, "{out}");
    for run in report["runs"].as_array().expect("runs") {
        let bytes = |name: &str| run[name].as_u64();
        let (stored, cold) = (bytes("allocated_bytes"), bytes("cold_device_bytes"));
        assert!(cold > stored.map(|bytes| bytes / 10 * 9), "{run}");
        assert!(bytes("warm_device_bytes").is_none_or(|warm| Some(warm * 10) < cold), "{run}");
    }
}

/// An experiment file cannot request a disk that the command line refuses.
#[test]
fn a_pool_of_the_user_is_not_held_to_an_experiments_disk() {
    let bed = bed_with_text();
    std::fs::File::create(bed.path("disk")).expect("made").set_len(256 << 20).expect("long");
    let disk = bed.path("disk").display().to_string();
    Done::from(
        bed.command(&["zpool", "create", "-O", "mountpoint=none", "tank", &disk])
            .output()
            .expect("it starts"),
    )
    .good();
    std::fs::write(bed.path("e.toml"), "disk_write = '200M'").expect("written");
    let done = said(&bed, "--experiment e.toml --pool tank text");
    assert!(done.status == 1 && done.out.is_empty(), "{done:?}");
    assert_eq!(
        done.err,
        "--disk-write and --disk-read need a temporary pool, and do not work with the pool 'tank'\n"
    );
}

#[test]
fn results_are_kept_although_the_reader_of_the_table_is_gone() {
    let bed = bed_with_text();
    let mut command = bench(&bed, "--compression off --report r.html --json r.json text");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    drop(child.stdout.take());
    child.wait().expect("it ends");
    assert_eq!(json(&bed.path("r.json"))["runs"].as_array().map(Vec::len), Some(1));
    assert!(bed.path("r.html").exists());
}

#[test]
fn a_result_that_cannot_be_written_costs_no_other() {
    let bed = bed_with_text();
    let done = said(&bed, "--compression off --report /dev/full --json r.json --csv /dev/full text");
    let full = "cannot write '/dev/full': No space left on device\n";
    assert!(done.status == 1 && done.out.contains("\noff "), "{done:?}");
    assert_eq!(done.err, full.repeat(2));
    assert_eq!(json(&bed.path("r.json"))["runs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn results_among_the_files_are_no_part_of_them() {
    let bed = bed_with_text();
    std::fs::create_dir(bed.path("data")).expect("made");
    std::fs::rename(bed.path("text"), bed.path("data/text")).expect("moved");
    let line = "--compression off --resume data/j --report data/r.html --json data/r.json data";
    said(&bed, line).good();
    let first = json(&bed.path("data/r.json"));
    let again = said(&bed, line);
    assert_eq!(again.status, 0, "{again:?}");
    let second = json(&bed.path("data/r.json"));
    assert_eq!(first["runs"], second["runs"], "nothing is measured again");
    assert_eq!(second["machine"]["source_files"], 1);
    assert!(again.err.contains("'data/r.html' is for results of this measurement: left out"), "{again:?}");
    assert_eq!(std::fs::read_dir(bed.path("data")).expect("there").count(), 4);
}

/// The throttled disk is slow; the cache of records is not behind it.
#[test]
fn a_warm_read_comes_from_the_cache_of_the_pool() {
    let bed = bed_with_text();
    said(&bed, "--compression off,gzip-1 --recordsize 16K --disk-read 1M --json r.json --data source:2M")
        .good();
    for run in json(&bed.path("r.json"))["runs"].as_array().expect("runs") {
        let seconds = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name}: {run}"));
        // The time that the disk needs for the bytes of the records, whatever machine this is: metadata may be in the cache.
        let disk = 0.8 * run["allocated_bytes"].as_f64().expect("known") / 1e6;
        assert!(seconds("read_seconds") > disk && seconds("warm_read_seconds") < disk, "{run}");
    }
}

/// Holes are no work, in a pool or elsewhere.
#[test]
fn a_file_of_a_terabyte_of_holes_is_measured_in_a_moment() {
    let bed = bed_with_text();
    let file = std::fs::OpenOptions::new().append(true).open(bed.path("text")).expect("opened");
    let bytes = file.metadata().expect("there").len();
    if file.set_len(1 << 40).is_err() {
        eprintln!("skipped: no file can be so long here");
        return;
    }
    let began = Instant::now();
    let out = said(&bed, "--compression lz4 --streams --against tmp --json r.json text");
    assert_eq!(out.status, 0, "{out:?}");
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    for run in json(&bed.path("r.json"))["runs"].as_array().expect("runs") {
        let logical = run["logical_bytes"].as_u64();
        assert!(run["verified"] == true && logical < Some(bytes + (1 << 20)), "{run}");
    }
}

/// More than are measured before a signal comes, however busy the machine is.
const MANY: &str = "off,lz4,zle,lzjb,gzip-1,gzip-2,gzip-3,gzip-4,gzip-5,gzip-6,gzip-7,gzip-8";

/// Starts a slow measurement as `words` say, and does `then` with the number of its process once the first of the
/// configurations is measured.
fn after_the_first(bed: &Bed, words: &[&str], compressions: &str, then: impl FnOnce(u32)) -> Done {
    let line = format!("--compression {compressions} --network 4M --resume j --json r.json text");
    let measuring = bench(bed, &line);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(measuring.get_program()).args(measuring.get_args());
    bed::in_place_of(&measuring, &mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let lines = || std::fs::read_to_string(bed.path("j")).map_or(0, |journal| journal.lines().count());
    bed::wait_until("the first configuration is not measured", || lines() >= 2);
    then(child.id());
    child.wait_with_output().expect("it ends").into()
}

fn hang_up(pid: u32) {
    assert!(Command::new("kill").args(["-HUP", &pid.to_string()]).status().expect("it starts").success());
}

/// The results measured until the signal came are kept: most often one configuration.
#[track_caller]
fn expect_a_part(bed: &Bed) {
    let report = json(&bed.path("r.json"));
    let (runs, all) = (report["runs"].as_array().map_or(0, Vec::len), MANY.split(',').count());
    assert!((1..all).contains(&runs), "{report}");
    let unfinished = format!("{runs} of {all} configurations were measured, then: interrupted");
    assert_eq!(report["unfinished"], unfinished);
    assert!(is_empty(&bed.path("tmp")));
}

/// Both the kernel and the shell say that a terminal is closed.
#[test]
fn a_measurement_that_is_hung_up_on_keeps_what_is_done() {
    let bed = bed_with_text();
    let done = after_the_first(&bed, &["env", "--default-signal=HUP"], MANY, |pid| {
        (0..2).for_each(|_| hang_up(pid))
    });
    assert!(done.status == 129 && done.out.contains("\noff "), "{done:?}");
    expect_a_part(&bed);
}

#[test]
fn a_closed_terminal_ends_a_measurement_which_keeps_what_is_done() {
    // It leads a session with a terminal, which a signal to its parent closes.
    let script = "
import os, pty, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGUSR1, lambda *_: os.close(terminal))
try:
    while os.read(terminal, 4096): pass
except OSError: pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let bed = bed_with_text();
    let close = |pid: u32| {
        assert!(
            Command::new("kill").args(["-USR1", &pid.to_string()]).status().expect("it starts").success()
        );
    };
    let done = after_the_first(&bed, &["python3", "-c", script], MANY, close);
    assert_eq!(done.status, 129, "{done:?}");
    expect_a_part(&bed);
}

#[test]
fn commands_started_by_nohup_continue() {
    let bed = bed_with_text();
    let done = after_the_first(&bed, &["nohup"], "off,lz4", hang_up);
    assert!(done.status == 0 && done.out.contains("\nlz4 "), "{done:?}");
}

#[test]
fn a_pool_that_is_in_use_is_refused_with_the_way_to_measure_in_it() {
    let Some(live) = Live::with_tank(256) else { return };
    std::fs::write(live.path("text"), "the same line\n".repeat(10_000)).expect("written");
    let text = live.path("text").display().to_string();
    let words = ["bench", "--compression", "lz4", "--recordsize", "128K", "--threads", "1", "--pool", "tank"];
    let line: Vec<&str> = words.iter().copied().chain([text.as_str()]).collect();
    let refused = live.run(&line);
    assert_eq!((refused.status, refused.out.as_str()), (1, ""));
    let said: Vec<&str> = refused.err.lines().collect();
    assert_eq!(said[0], "cannot measure in 'tank': another process, its server perhaps, holds it");
    let way = said[1].strip_prefix("first 'zpool export tank', then 'cenote ").expect("the way");
    let device =
        way.strip_prefix("-d ").and_then(|rest| rest.split_once(" bench --pool tank")).expect("it").0;
    live.run(&["zpool", "export", "tank"]).good();
    let missing = live.run(&line);
    assert!(missing.err.contains("no such pool (an exported one: cenote -d FILE bench"), "{missing:?}");
    let device = device.trim_matches('\'');
    live.run(&[&["-d", device][..], &line[..]].concat()).good();
    live.expect_sound();
}

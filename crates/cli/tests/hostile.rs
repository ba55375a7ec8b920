//! Hostile pools: whatever they contain, a command ends, uses little memory, writes nothing outside its target, and sends no
//! control sequences to the terminal.
//!
//! `crates/sim/src/forge/sample.rs` makes the pools. All their checksums are right.

mod bed;

use std::path::Path;
use std::time::{Duration, Instant};

use bed::{Bed, Done};

/// Memory that a command may use, in KiB of addresses: 4 GiB, and what the allocator reserves for the threads of each core.
fn memory_kib() -> u64 {
    (4 << 20) + (std::thread::available_parallelism().map_or(1, usize::from) as u64) * (128 << 10)
}

/// Seconds that a command may take, on a machine that is busy with other tests.
const SECONDS_MAX: u64 = 240;

/// Runs a command with limits of time and memory.
fn run(bed: &Bed, words: &[&str]) -> Done {
    let script = format!("ulimit -v {}; exec timeout -s KILL {SECONDS_MAX} \"$@\"", memory_kib());
    let program = bed.command(words);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &script, "sh"]).arg(program.get_program()).args(program.get_args());
    bed::in_place_of(&program, limited.stdin(std::process::Stdio::null()));
    let began = Instant::now();
    let done: Done = limited.output().expect("sh is here").into();
    assert!(began.elapsed() < Duration::from_secs(SECONDS_MAX), "{words:?} does not end");
    assert!((0..=3).contains(&done.status), "{words:?}: {done:?}");
    assert!(!done.err.contains("panicked") && !done.err.contains("memory allocation"), "{words:?}: {done:?}");
    done
}

/// The files that must not change: a folder beside those that commands write to.
fn victims(bed: &Bed) -> Vec<String> {
    fn list(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("there") {
            let path = entry.expect("there").path();
            let data = std::fs::symlink_metadata(&path).expect("there");
            let content = if data.is_file() { std::fs::read(&path).expect("read") } else { Vec::new() };
            found.push(format!("{} {:?} {content:?}", path.display(), data.permissions()));
            if data.is_dir() {
                list(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    list(&bed.path("victim"), &mut found);
    found.sort();
    found
}

fn plant_victims(bed: &Bed) {
    std::fs::create_dir_all(bed.path("victim/x.d")).expect("made");
    for name in ["a file there", "x", "x.sock", "x.lock", "x.log"] {
        std::fs::write(bed.path("victim").join(name), name).expect("written");
    }
    // Where a pool called `../../x` would lead out of the folders for sockets and logs.
    for (name, to) in [("x.sock", "x.sock"), ("x.lock", "x.lock"), ("x.log", "x.log")] {
        std::os::unix::fs::symlink(bed.path("victim").join(to), bed.path(name)).expect("linked");
    }
}

#[test]
fn every_crafted_pool_is_read_within_limits_and_changes_nothing_outside() {
    let bed = Bed::new();
    plant_victims(&bed);
    let before = victims(&bed);
    let source = sim::forge::sample();
    for (name, patches) in sim::forge::crafted(&source) {
        std::fs::write(bed.path("t.img"), sim::forge::apply(source.image(), &patches)).expect("written");
        run(&bed, &["check", "t.img"]);
        let lines: [&[&str]; 11] = [
            &["zpool", "import", "-d", "t.img"],
            &["-d", "t.img", "zpool", "status"],
            &["-d", "t.img", "zpool", "history", "-il"],
            &["-d", "t.img", "zfs", "list", "-t", "all", "-r"],
            &["-d", "t.img", "zfs", "get", "all"],
            &["-d", "t.img", "ls", "-l", "tank/fs:/d"],
            &["-d", "t.img", "ls", "-R", "tank/fs:/"],
            &["-d", "t.img", "tree", "tank/fs:/"],
            &["-d", "t.img", "du", "tank/fs:/"],
            &["-d", "t.img", "stat", "tank/fs:/big"],
            &["-d", "t.img", "zfs", "userspace", "tank/fs"],
        ];
        for words in lines {
            run(&bed, words);
        }
        let imported = run(&bed, &["zpool", "import", "-o", "readonly=on", "-d", "t.img", "-a"]);
        if imported.status == 0 {
            run(&bed, &["zpool", "export", "-a"]);
        }
        assert_eq!(victims(&bed), before, "{name}");
        assert!(!bed.path("run/../../x.sock").exists() || bed.path("x.sock").is_symlink(), "{name}");
    }
}

#[test]
fn a_pool_whose_name_is_a_path_is_refused_until_it_gets_another() {
    let bed = Bed::new();
    plant_victims(&bed);
    let source = sim::forge::sample();
    let crafted = sim::forge::crafted(&source);
    let (_, patches) = crafted.iter().find(|(name, _)| *name == "pool-name-path").expect("crafted");
    std::fs::write(bed.path("t.img"), sim::forge::apply(source.image(), patches)).expect("written");
    let before = victims(&bed);
    run(&bed, &["zpool", "import", "-d", "t.img", "../../x"])
        .refused("cannot import '../../x': invalid character '/' in pool name");
    run(&bed, &["-d", "t.img", "serve", "../../x"])
        .refused("cannot open '../../x': invalid character '/' in pool name");
    assert_eq!(victims(&bed), before);
    assert!(!bed.path("state/claims").exists());
    let guid = run(&bed, &["zpool", "import", "-d", "t.img"]).good();
    let guid = guid.lines().find_map(|line| line.trim().strip_prefix("id: ")).expect("listed").to_owned();
    run(&bed, &["zpool", "import", "-d", "t.img", &guid, "good"]).good();
    assert_eq!(run(&bed, &["zpool", "list", "-H", "-o", "name"]).good(), "good\n");
    assert_eq!(victims(&bed), before);
}

#[test]
fn a_dataset_with_an_invalid_name_is_reported_and_left_out_of_lists() {
    let bed = Bed::new();
    let source = sim::forge::sample();
    let crafted = sim::forge::crafted(&source);
    let (_, patches) = crafted.iter().find(|(name, _)| *name == "dataset-name-bytes").expect("crafted");
    std::fs::write(bed.path("t.img"), sim::forge::apply(source.image(), patches)).expect("written");
    let done = run(&bed, &["-d", "t.img", "zfs", "list", "-H", "-o", "name", "-t", "all", "-r", "tank"]);
    assert_eq!(done.out, "tank\ntank/fs\ntank/fs@one\ntank/fs@two\ntank/fs#mark\n");
    assert_eq!(done.status, 1, "{done:?}");
    assert!(done.err.contains("invalid character"), "{done:?}");
}

//! The memory of a server stays below the bound that docs/performance.md gives.

mod bed;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use bed::live::{Live, noise};

const MIB: u64 = 1 << 20;
const CACHE: u64 = 32 * MIB;
const DIRTY: u64 = 32 * MIB;
/// The program, its libraries and what the allocator holds beyond the bytes in use.
const BASE: u64 = 96 * MIB;
/// Written blocks of one device that are kept until its next flush.
const UNFLUSHED: u64 = 128 * MIB;
/// A request of the kernel, and the compressed bytes of a record.
const THREAD: u64 = 2 * MIB;
const FILE_SYSTEMS: u64 = 12;
const FILE_MAX: u64 = 6 * MIB;

/// A number of `/proc/PID/status`.
fn status_of(server: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{server}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel tells it");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Writes, reads, truncates and syncs one file in no order, as fsx does.
fn disturb(file: &fs::File, seed: u64, changes: u64) {
    let data = noise(256 << 10);
    let mut read = vec![0; data.len()];
    let mut x = seed;
    let mut next = |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    };
    for _ in 0..changes {
        let (offset, len) = (next(FILE_MAX), 1 + next(data.len() as u64) as usize);
        match next(8) {
            0..=3 => file.write_all_at(&data[..len], offset).expect("written"),
            4 | 5 => {
                file.read_at(&mut read[..len], offset).expect("read");
            }
            6 => file.set_len(offset).expect("cut"),
            _ => file.sync_data().expect("durable"),
        }
    }
}

#[test]
fn a_server_of_a_small_pool_stays_below_the_documented_bound() {
    let Some(live) = Live::new() else { return };
    fs::File::create(live.path("tank.img")).expect("made").set_len(1 << 30).expect("long");
    let run = |words: &[&str]| {
        let mut command: Command = live.command(words);
        let limits = [("CENOTE_ZFS_ARC_MAX", CACHE), ("CENOTE_ZFS_DIRTY_DATA_MAX", DIRTY)];
        command.envs(limits.map(|(name, bytes)| (name, bytes.to_string())));
        bed::Done::from(command.output().expect("the program starts")).good();
    };
    run(&["zpool", "create", "-m", &live.text("mnt"), "tank", &live.text("tank.img")]);
    for number in 0..FILE_SYSTEMS {
        run(&["zfs", "create", &format!("tank/fs{number}")]);
    }
    std::thread::scope(|scope| {
        for number in 0..FILE_SYSTEMS {
            let path = live.path(&format!("mnt/fs{number}/file"));
            let file = fs::File::options().read(true).write(true).create_new(true).open(path);
            scope.spawn(move || disturb(&file.expect("made"), number, 150));
        }
    });
    let server = live.server();
    let peak = status_of(server, "VmHWM") << 10;
    let threads = status_of(server, "Threads");
    let bound = BASE + CACHE + DIRTY + DIRTY / 4 + UNFLUSHED + threads * THREAD;
    eprintln!("peak {} MiB, bound {} MiB, {threads} threads", peak / MIB, bound / MIB);
    assert!(peak <= bound, "{} MiB in use, {} MiB allowed, {threads} threads", peak / MIB, bound / MIB);
}

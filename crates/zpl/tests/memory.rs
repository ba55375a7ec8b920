//! Memory stays within the limits that were asked for: dirty limit + cache limit + 200 MiB, whatever is written.
//!
//! The peak (`VmHWM`) is counted for a process, so each story runs in a child process: this test program, called again.

mod support;

use std::process::Command;

use format::ObjectId;
use pool::{CreateSpec, Options, Pool};
use support::{disk, new_filesystem};
use zpl::{FileKind, Filesystem, NewNode};

/// As in the program itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MIB: u64 = 1 << 20;
const DIRTY_MAX: u64 = 64 * MIB;
const CACHE: u64 = 32 * MIB;
const LIMIT: u64 = DIRTY_MAX + CACHE + 200 * MIB;
const RECORD: usize = 128 << 10;

/// Runs the ignored test `story` in a child; `amount` is how much of it. Returns the child's peak in bytes.
fn peak_of(story: &str, amount: u64) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", story, "--ignored", "--nocapture", "--test-threads=1"])
        .env("CENOTE_TEST_AMOUNT", amount.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line =
        text.lines().find_map(|line| line.split("peak KiB: ").nth(1)).expect("the child tells its peak");
    line.trim().parse::<u64>().unwrap() << 10
}

fn amount() -> u64 {
    std::env::var("CENOTE_TEST_AMOUNT").expect("run by another test").parse().unwrap()
}

fn print_peak() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\npeak KiB: {}", peak.trim().trim_end_matches("kB"));
}

fn options() -> Options {
    // As on a small machine: each thread has some of its own.
    Options { cache_bytes: CACHE, dirty_max: DIRTY_MAX, workers: 4, io_threads: 4, ..Options::default() }
}

/// Creates a pool of `size` bytes, lets `write` fill it, imports it again for `read`.
fn with_pool(size: u64, write: impl FnOnce(&Filesystem), read: impl FnOnce(&Filesystem)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    let options = options();
    let spec = CreateSpec {
        ashift: Some(12),
        ..CreateSpec::new(
            "tank",
            vec![disk(&path, true)],
            new_filesystem(&options.host, 0, 0),
            zpl::initialiser(),
        )
    };
    let pool = Pool::create(spec, options.clone()).unwrap();
    write(&Filesystem::open(pool.open("tank").unwrap()).unwrap());
    pool.export().unwrap();
    let pool = Pool::import_disks(vec![disk(&path, true)], options).unwrap();
    read(&Filesystem::open(pool.open("tank").unwrap()).unwrap());
    pool.export().unwrap();
}

fn create(fs: &Filesystem, dir: ObjectId, name: &str, kind: FileKind) -> ObjectId {
    let new = NewNode::new(kind, 0o755);
    fs.create(dir, name.as_bytes(), &new).unwrap()
}

/// Bytes that do not compress and tell where they belong.
fn fill(record: u64, bytes: &mut [u8]) {
    let mut x = record.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
}

#[test]
#[ignore = "the child of another test"]
fn child_writes_and_reads_a_large_file() {
    let records = amount() / RECORD as u64;
    let write = |fs: &Filesystem| {
        let id = create(fs, fs.root(), "large", FileKind::Regular);
        for record in 0..records {
            let mut bytes = fs.record_buffer(RECORD);
            fill(record, &mut bytes);
            fs.write_record(id, record * RECORD as u64, bytes).unwrap();
        }
    };
    let read = |fs: &Filesystem| {
        let (id, _) = fs.lookup(fs.root(), b"large").unwrap().unwrap();
        let mut expected = vec![0; RECORD];
        for (record, piece) in fs.read_records(id).unwrap().enumerate() {
            fill(record as u64, &mut expected);
            assert_eq!(piece.unwrap().data(), Some(&expected[..]), "record {record}");
        }
        // And as a mount would read it.
        let mut part = vec![0; RECORD];
        for record in 0..records {
            assert_eq!(fs.read(id, record * RECORD as u64, &mut part).unwrap(), RECORD);
        }
        fill(records - 1, &mut expected);
        assert_eq!(part, expected);
    };
    with_pool(amount() * 5 / 4 + 512 * MIB, write, read);
    print_peak();
}

#[test]
#[ignore = "the child of another test"]
fn child_writes_and_reads_many_small_files() {
    let count = amount();
    let write = |fs: &Filesystem| {
        for number in 0..count {
            let dir = format!("dir{}", number / 1000);
            let dir = match fs.lookup(fs.root(), dir.as_bytes()).unwrap() {
                Some((id, _)) => id,
                None => create(fs, fs.root(), &dir, FileKind::Directory),
            };
            let id = create(fs, dir, &format!("file{number}"), FileKind::Regular);
            let mut bytes = vec![0; 800];
            fill(number, &mut bytes);
            fs.write_record(id, 0, bytes).unwrap();
        }
    };
    let read = |fs: &Filesystem| {
        for number in 0..count {
            let (dir, _) = fs.lookup(fs.root(), format!("dir{}", number / 1000).as_bytes()).unwrap().unwrap();
            let (id, _) = fs.lookup(dir, format!("file{number}").as_bytes()).unwrap().unwrap();
            let mut expected = vec![0; 800];
            fill(number, &mut expected);
            assert_eq!(fs.read_all(id, 4096).unwrap(), expected, "file {number}");
        }
    };
    with_pool(count * 8192 + 512 * MIB, write, read);
    print_peak();
}

fn check(story: &str, amount: u64) {
    let peak = peak_of(story, amount);
    println!("{story}: {amount} took {} MiB of {} MiB", peak / MIB, LIMIT / MIB);
    assert!(peak <= LIMIT, "{} MiB", peak / MIB);
}

#[test]
fn a_file_larger_than_all_limits_is_written_and_read_within_them() {
    check("child_writes_and_reads_a_large_file", 600 * MIB);
}

#[test]
fn many_small_files_are_written_and_read_within_the_limits() {
    check("child_writes_and_reads_many_small_files", 50_000);
}

#[test]
#[ignore = "two minutes on a busy machine, 4 GB of disk"]
fn large_amounts_stay_within_the_same_limits() {
    check("child_writes_and_reads_a_large_file", 3 << 30);
    check("child_writes_and_reads_many_small_files", 200_000);
}

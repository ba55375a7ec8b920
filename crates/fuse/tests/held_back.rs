//! Data that programs wrote and that is still in the kernel's page cache: forced unmounts keep it and commands see it,
//! however slow the pool is.

mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use format::ObjectId;
use fuse::MountOptions;
use support::{Bed, usable};

/// The place of piece `n`. The pages do not touch, so the kernel sends them one by one.
fn place(n: u64) -> u64 {
    n * 12_345
}

/// A file whose pieces say their numbers, in a pool where each change waits a tenth of a second, after the one before.
fn written_slowly(bed: &Bed, pieces: u64) -> File {
    let file = File::create(bed.at().join("f")).unwrap();
    for (name, value) in [
        ("zfs_txg_timeout", "3600"),
        ("zfs_delay_min_dirty_percent", "0"),
        ("zfs_delay_scale", "1000000000000"),
    ] {
        bed.pool().tune(name, value).unwrap();
    }
    for n in 0..pieces {
        file.write_all_at(&(n + 1).to_le_bytes(), place(n)).unwrap();
    }
    file
}

/// The pieces that are not there.
fn lost(pieces: u64, read: impl Fn(&mut [u8], u64) -> bool) -> Vec<u64> {
    let kept = |n: &u64| {
        let mut piece = [0; 8];
        read(&mut piece, place(*n)) && u64::from_le_bytes(piece) == *n + 1
    };
    (0..pieces).filter(|n| !kept(n)).collect()
}

#[test]
fn data_written_before_a_forced_unmount_is_kept_by_a_slow_pool() {
    if !usable() {
        return;
    }
    const PIECES: u64 = 150;
    let mut bed = Bed::new(256 << 20, &[]);
    let mut file = written_slowly(&bed, PIECES);
    bed.mounted().unmount(true).unwrap();
    assert!(file.write_all(b"lost").and_then(|()| file.sync_all()).is_err());
    drop(file);
    bed.pool().tune("zfs_delay_scale", "0").unwrap();
    bed.close();
    bed.check();
    bed.open();
    let file = File::open(bed.at().join("f")).unwrap();
    assert_eq!(lost(PIECES, |piece, at| file.read_exact_at(piece, at).is_ok()), [0; 0]);
    drop(file);
    bed.finish();
}

#[test]
fn a_command_finds_all_that_was_written_before_it_however_slow_the_pool() {
    if !usable() {
        return;
    }
    const PIECES: u64 = 60;
    let bed = Bed::new(256 << 20, &[]);
    let file = written_slowly(&bed, PIECES);
    let id = ObjectId(file.metadata().unwrap().ino());
    let held = bed.mounted().held();
    bed.mounted().write_back().unwrap();
    assert!(bed.mounted().settle(held, Instant::now()));
    assert_eq!(lost(PIECES, |piece, at| bed.fs().read(id, at, piece).is_ok()), [0; 0]);
    bed.pool().tune("zfs_delay_scale", "0").unwrap();
    drop(file);
    bed.finish();
}

#[test]
fn long_writes_wait_for_a_permit_in_the_buffers_they_came_in() {
    if !usable() {
        return;
    }
    const FILES: u64 = 6;
    const PIECE: u64 = 1 << 20;
    const PIECES: u64 = 4;
    // One permit.
    let bed = Bed::with(256 << 20, &[], MountOptions { threads: 3, ..MountOptions::default() });
    for (name, value) in [("zfs_delay_min_dirty_percent", "0"), ("zfs_delay_scale", "100000000000")] {
        bed.pool().tune(name, value).unwrap();
    }
    let word = |file: u64, at: u64| (file << 56 | at).to_le_bytes();
    let bytes = |file: u64, n: u64| -> Vec<u8> {
        (0..PIECE).step_by(8).flat_map(|at| word(file, n * PIECE + at)).collect()
    };
    let path = |file: u64| bed.at().join(format!("f{file}"));
    std::thread::scope(|scope| {
        for number in 0..FILES {
            let file = File::create(path(number)).unwrap();
            scope.spawn(move || {
                for n in 0..PIECES {
                    file.write_all_at(&bytes(number, n), n * PIECE).unwrap();
                }
                file.sync_all().unwrap();
            });
        }
    });
    let (kept, copied) = bed.mounted().queued();
    assert!(kept >= 4 * PIECE && copied == 0, "{kept} bytes were kept, {copied} copied");
    bed.pool().tune("zfs_delay_scale", "0").unwrap();
    for number in 0..FILES {
        let id = ObjectId(std::fs::metadata(path(number)).unwrap().ino());
        for n in 0..PIECES {
            let mut stored = vec![0; PIECE as usize];
            assert!(bed.fs().read(id, n * PIECE, &mut stored).is_ok());
            assert!(stored == bytes(number, n), "file {number}, piece {n}");
        }
    }
    bed.finish();
}

#[test]
fn writes_behind_slow_readers_on_all_threads_are_waited_for() {
    if !usable() {
        return;
    }
    const PIECES: u64 = 40;
    const READERS: u64 = 12;
    const PART: u64 = 8 << 20;
    let mut bed = Bed::with(512 << 20, &[], MountOptions { threads: 4, ..MountOptions::default() });
    let big = bed.at().join("big");
    let file = File::create(&big).unwrap();
    for n in 0..READERS {
        file.write_all_at(&vec![n as u8 + 1; 4096], n * PART).unwrap();
    }
    drop(file);
    bed.remount();
    let file = File::create(bed.at().join("f")).unwrap();
    let id = ObjectId(file.metadata().unwrap().ino());
    let big = File::open(&big).unwrap();
    // This must happen before the readers start, because the kernel sends a message before a write, and no thread would be
    // free to answer it.
    for n in 0..PIECES {
        file.write_all_at(&(n + 1).to_le_bytes(), place(n)).unwrap();
    }
    bed.gate().shut();
    let (gate, mounted) = (bed.gate().clone(), bed.mounted());
    std::thread::scope(|scope| {
        for n in 0..READERS {
            let big = &big;
            scope.spawn(move || {
                let mut piece = [0; 16];
                big.read_exact_at(&mut piece, n * PART).unwrap();
                assert_eq!(piece, [n as u8 + 1; 16]);
            });
        }
        scope.spawn(move || {
            // Longer than a mount has to be idle to be taken for one that holds nothing back.
            std::thread::sleep(Duration::from_millis(2500));
            gate.open();
        });
        // Until the readers have all threads.
        std::thread::sleep(Duration::from_millis(300));
        let held = mounted.held();
        let since = Instant::now();
        scope.spawn(move || mounted.write_back());
        std::thread::sleep(Duration::from_millis(200));
        assert!(mounted.settle(held, since));
        assert_eq!(lost(PIECES, |piece, at| bed.fs().read(id, at, piece).is_ok()), [0; 0]);
    });
    drop((file, big));
    bed.finish();
}

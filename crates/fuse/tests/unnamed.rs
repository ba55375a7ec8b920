//! `open(dir, O_TMPFILE)`: files without a name, which may get one. The tables of `posix.rs` have the answers for each kind
//! of directory and each user.

mod support;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use fuse::MountOptions;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use support::waits::wait_until;
use support::{Bed, usable};

fn unnamed(dir: &Path, flags: OFlags) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    rustix::fs::open(dir, flags, Mode::from_raw_mode(0o640)).map(File::from)
}

fn name(file: &File, path: &Path) -> Result<()> {
    let held = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, held, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Waits until the unlinked set is empty, because the kernel reports at any later time that it forgot a file.
fn expect_none_left(bed: &Bed) {
    wait_until("files without a name are left", || bed.fs().unlinked_count().unwrap() == 0);
}

#[test]
fn an_unnamed_file_is_read_and_written_and_leaves_nothing_when_it_is_closed() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[("compression", 2)]);
    bed.pool().sync().unwrap();
    let used = || bed.fs().space().unwrap();
    let before = used();
    let file = unnamed(&bed.at(), OFlags::empty()).unwrap();
    let data: Vec<u8> = (0..20u32 << 20).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    // No other file gets its number, not even after syncs.
    for round in 0..3 {
        bed.pool().sync().unwrap();
        let other = bed.at().join(format!("new {round}"));
        std::fs::write(&other, b"x").unwrap();
        assert_ne!(std::fs::metadata(&other).unwrap().ino(), file.metadata().unwrap().ino());
        std::fs::remove_file(&other).unwrap();
    }
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    // Opened once more by way of the first descriptor, and read from disk.
    let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let mut found = vec![0; data.len()];
    again.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data);
    let stat = again.metadata().unwrap();
    assert_eq!((stat.nlink(), stat.mode() & 0o7777, stat.len()), (0, 0o640, 20 << 20));
    assert_eq!(std::fs::read_dir(bed.at()).unwrap().count(), 0);
    // The other removed files are freed when the kernel forgets them.
    wait_until("removed files are left", || bed.fs().unlinked_count().unwrap() <= 1);
    assert_eq!(bed.fs().unlinked_count().unwrap(), 1);
    assert!(used().referenced > before.referenced + (20 << 20));
    drop(file);
    assert_eq!(again.metadata().unwrap().nlink(), 0);
    drop(again);
    expect_none_left(&bed);
    bed.pool().sync().unwrap();
    bed.pool().sync().unwrap();
    assert_eq!(used().objects, before.objects);
    assert!(used().referenced < before.referenced + (1 << 20), "its space came back");
    bed.finish();
}

#[test]
fn a_name_makes_an_unnamed_file_a_file_like_any_other() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    let at = |name: &str| bed.at().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    std::fs::write(at("taken"), b"by another").unwrap();
    assert!(std::fs::metadata(at("one")).is_err(), "and the kernel remembers that");
    let file = unnamed(&at("dir"), OFlags::empty()).unwrap();
    file.write_all_at(&[1; 200_000], 0).unwrap();
    assert_eq!(name(&file, &at("taken")).unwrap_err(), Errno::EXIST);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    name(&file, &at("one")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    // Once more by its name, and by the descriptor alone, as those who may look everywhere can.
    std::fs::hard_link(at("one"), at("dir/two")).unwrap();
    if rustix::process::geteuid().is_root() {
        rustix::fs::linkat(&file, "", CWD, at("three"), AtFlags::EMPTY_PATH).unwrap();
    } else {
        name(&file, &at("three")).unwrap();
    }
    assert_eq!(file.metadata().unwrap().nlink(), 3);
    file.write_all_at(b"more", 200_000).unwrap();
    file.sync_all().unwrap();
    drop(file);
    for path in ["one", "dir/two", "three"] {
        let stat = std::fs::metadata(at(path)).unwrap();
        assert_eq!((stat.len(), stat.nlink()), (200_004, 3), "{path}");
    }
    let replaced = unnamed(&bed.at(), OFlags::empty()).unwrap();
    replaced.write_all_at(b"new", 0).unwrap();
    name(&replaced, &at("dir/.new")).unwrap();
    std::fs::rename(at("dir/.new"), at("taken")).unwrap();
    std::fs::remove_file(at("taken")).unwrap();
    // A file that lost its last name cannot get another one.
    assert_eq!((replaced.metadata().unwrap().nlink(), name(&replaced, &at("no"))), (0, Err(Errno::NOENT)));
    drop(replaced);
    bed.remount();
    assert_eq!(
        std::fs::read(bed.at().join("dir/two")).unwrap()[199_990..],
        *b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01more"
    );
    assert_eq!(bed.fs().unlinked_count().unwrap(), 0);
    bed.finish();
}

#[test]
fn an_unnamed_file_is_refused_where_nothing_may_be_written_and_may_be_kept_without_a_name() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let file = unnamed(&bed.at(), OFlags::EXCL).unwrap();
    assert_eq!(name(&file, &bed.at().join("a")), Err(Errno::NOENT));
    drop(file);
    // The kernel reports at any later time that a file was closed; until then the file system cannot become read-only.
    expect_none_left(&bed);
    let options = |read_only| MountOptions { source: "tank/fs".into(), read_only, ..MountOptions::default() };
    wait_until("it stays busy", || match bed.mounted().set_options(&options(true)) {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error, fuse::MountError::Busy(_)), "{error}");
            false
        }
    });
    assert_eq!(unnamed(&bed.at(), OFlags::empty()).unwrap_err(), Errno::ROFS);
    bed.mounted().set_options(&options(false)).unwrap();
    // The dataset alone: the kernel does not know.
    let set = |value| {
        let value = Some(pool::props::Value::Number(value));
        bed.pool().set_properties("tank/fs", vec![("readonly".into(), value)]).unwrap();
    };
    set(1);
    assert_eq!(unnamed(&bed.at(), OFlags::empty()).unwrap_err(), Errno::ROFS);
    set(0);
    drop(unnamed(&bed.at(), OFlags::empty()).unwrap());
    bed.finish();
}

#[test]
fn open_unlinked_files_are_freed_by_a_forced_unmount() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(64 << 20, &[]);
    let file = unnamed(&bed.at(), OFlags::empty()).unwrap();
    file.write_all_at(&[5; 100_000], 0).unwrap();
    bed.mounted().unmount(true).unwrap();
    assert!(file.sync_all().is_err());
    drop(file);
    bed.close();
    bed.check();
    bed.open();
    assert_eq!(bed.fs().unlinked_count().unwrap(), 0);
    bed.finish();
}

#[test]
fn many_unnamed_files_are_made_and_named_at_once() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    let at = bed.at();
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let at = &at;
            scope.spawn(move || {
                for n in 0..25u8 {
                    let file = unnamed(at, OFlags::empty()).unwrap();
                    file.write_all_at(&[thread, n], 0).unwrap();
                    if n % 5 != 0 {
                        name(&file, &at.join(format!("{thread} {n}"))).unwrap();
                    }
                }
            });
        }
    });
    expect_none_left(&bed);
    let mut count = 0;
    for entry in std::fs::read_dir(&at).unwrap() {
        let path = entry.unwrap().path();
        let said: Vec<String> = std::fs::read(&path).unwrap().iter().map(u8::to_string).collect();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), said.join(" "));
        count += 1;
    }
    assert_eq!(count, 6 * 20);
    bed.finish();
}

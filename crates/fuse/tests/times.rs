//! The times that programs see: access times as the properties say, and times of birth.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuse::{Atime, MountOptions};
use rustix::fs::OFlags;
use support::{Bed, shell, usable};

/// Access time, change time of the contents, change time, in nanoseconds.
fn times(path: &Path) -> [i64; 3] {
    let data = path.symlink_metadata().unwrap();
    [
        data.atime() * 1_000_000_000 + data.atime_nsec(),
        data.mtime() * 1_000_000_000 + data.mtime_nsec(),
        data.ctime() * 1_000_000_000 + data.ctime_nsec(),
    ]
}

/// Whether `access` changes the access time of `path`; other times stay.
fn leaves_time(path: &Path, access: impl FnOnce()) -> bool {
    let before = times(path);
    // Longer than the steps of the kernel's clock.
    std::thread::sleep(Duration::from_millis(20));
    access();
    let after = times(path);
    assert_eq!(before[1..], after[1..], "{path:?}");
    before[0] != after[0]
}

fn read(path: &Path) {
    assert!(!fs::read(path).unwrap().is_empty());
}

/// A mount with `properties`, with a file `f` whose contents the kernel has in its cache.
fn with_file(properties: &[(&str, u64)]) -> Bed {
    let bed = Bed::new(64 << 20, properties);
    fs::write(bed.at().join("f"), b"text").unwrap();
    bed
}

#[test]
fn with_relatime_the_first_read_after_a_change_leaves_its_time_also_from_the_cache() {
    if !usable() {
        return;
    }
    let bed = with_file(&[("relatime", 1)]);
    let file = bed.at().join("f");
    assert!(leaves_time(&file, || read(&file)));
    assert!(!leaves_time(&file, || read(&file)));
    fs::write(&file, b"changed").unwrap();
    assert!(leaves_time(&file, || read(&file)));
    assert!(!leaves_time(&file, || read(&file)));
    bed.finish();
}

#[test]
fn without_relatime_each_way_of_reading_leaves_its_time() {
    if !usable() {
        return;
    }
    let bed = with_file(&[("relatime", 0)]);
    let file = bed.at().join("f");
    read(&file);
    assert!(leaves_time(&file, || read(&file)), "from the cache");
    let map =
        "python3 -c 'import mmap; f = open(\"f\", \"rb\"); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[0]'";
    assert!(leaves_time(&file, || assert_eq!(shell(&bed.at(), map), "")), "through a mapping");
    fs::write(bed.at().join("run"), b"#!/bin/sh\n").unwrap();
    shell(&bed.at(), "chmod 755 run; ./run");
    let run = bed.at().join("run");
    assert!(leaves_time(&run, || assert_eq!(shell(&bed.at(), "./run"), "")), "run as a program");
    let quiet = OFlags::NOATIME.bits() as i32;
    let direct = OFlags::DIRECT.bits() as i32;
    for flags in [quiet, quiet | direct] {
        let open = fs::OpenOptions::new().read(true).custom_flags(flags).open(&file).unwrap();
        assert!(!leaves_time(&file, || assert_eq!(std::io::read_to_string(&open).unwrap(), "text")));
    }
    assert!(!leaves_time(&file, || drop(File::options().append(true).open(&file).unwrap())), "only written");
    std::os::unix::fs::symlink("f", bed.at().join("l")).unwrap();
    let link = bed.at().join("l");
    assert!(leaves_time(&link, || assert_eq!(fs::read_link(&link).unwrap(), Path::new("f"))));
    fs::create_dir(bed.at().join("d")).unwrap();
    let dir = bed.at().join("d");
    assert!(leaves_time(&dir, || assert_eq!(fs::read_dir(&dir).unwrap().count(), 0)));
    bed.finish();
}

#[test]
fn without_access_times_no_access_changes_one() {
    if !usable() {
        return;
    }
    let quiet = MountOptions { atime: Atime::Off, ..MountOptions::default() };
    for (bed, why) in [
        (Bed::new(64 << 20, &[("atime", 0), ("relatime", 0)]), "property"),
        (Bed::with(64 << 20, &[("relatime", 0)], quiet), "mount"),
    ] {
        let (file, dir) = (bed.at().join("f"), bed.at().join("d"));
        fs::write(&file, b"text").unwrap();
        fs::create_dir(&dir).unwrap();
        assert!(!leaves_time(&file, || read(&file)), "{why}");
        assert!(!leaves_time(&dir, || assert_eq!(fs::read_dir(&dir).unwrap().count(), 0)), "{why}");
        bed.finish();
    }
}

#[test]
fn a_mount_that_becomes_read_only_keeps_the_times_as_they_are() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bed = with_file(&[("relatime", 0)]);
    let file = bed.at().join("f");
    bed.mounted().set_options(&MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
    assert!(!leaves_time(&file, || read(&file)));
    bed.finish();
}

#[test]
fn a_file_was_born_when_it_was_made() {
    if !usable() {
        return;
    }
    let mut bed = with_file(&[]);
    let file = bed.at().join("f");
    let Ok(born) = fs::metadata(&file).unwrap().created() else {
        eprintln!("skipped: this kernel's FUSE has no times of birth (Linux 6.6 and later have them)");
        return;
    };
    let age = SystemTime::now().duration_since(born).unwrap();
    assert!(age < Duration::from_secs(600), "{age:?}");
    fs::write(&file, b"more").unwrap();
    bed.remount();
    let data = fs::metadata(&file).unwrap();
    assert_eq!(data.created().unwrap(), born);
    assert_eq!(data.len(), 4);
    assert!(
        fs::metadata(bed.at()).unwrap().created().unwrap() <= born,
        "the root is as old as the file system"
    );
    assert!(fs::metadata(bed.at().join(".zfs/snapshot")).unwrap().created().is_ok());
    bed.finish();
}

//! Snapshots that come and go, and more of them than may be open.

use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::support::waits::wait_until;
use crate::support::{Bed, Chance, Ends, shell, usable};
use crate::{Snapshots, errno, names};

#[test]
fn snapshots_come_and_go_at_once() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let list = bed.at().join(".zfs/snapshot");
    fs::write(bed.at().join("a"), b"1").unwrap();
    assert_eq!(errno(fs::metadata(bed.within("one"))), Errno::NOENT);
    bed.take("one");
    assert_eq!(fs::read(bed.within("one").join("a")).unwrap(), b"1");
    fs::write(bed.at().join("a"), b"2").unwrap();
    bed.take("two");
    assert_eq!(names(&list), ["one", "two"]);
    assert_eq!(fs::read(bed.within("two").join("a")).unwrap(), b"2");
    // Two change their names.
    bed.rename("one", "three");
    bed.rename("two", "one");
    assert_eq!(names(&list), ["one", "three"]);
    assert_eq!(fs::read(bed.within("one").join("a")).unwrap(), b"2");
    assert_eq!(fs::read(bed.within("three").join("a")).unwrap(), b"1");
    assert_eq!(errno(fs::read(bed.within("two").join("a"))), Errno::NOENT);
    // A snapshot that only the kernel's cache refers to can be destroyed, and another one can get its name.
    bed.destroyed("three");
    assert_eq!(names(&list), ["one"]);
    assert_eq!(errno(fs::read(bed.within("three").join("a"))), Errno::NOENT);
    fs::write(bed.at().join("a"), b"3").unwrap();
    bed.take("three");
    assert_eq!(fs::read(bed.within("three").join("a")).unwrap(), b"3");
    bed.finish();
}

#[test]
fn many_snapshots_are_listed_but_not_opened() {
    if !usable() {
        return;
    }
    const COUNT: usize = 200;
    let bed = Bed::new(256 << 20, &[]);
    let mut wanted = Vec::new();
    for i in 0..COUNT {
        fs::write(bed.at().join("number"), i.to_string()).unwrap();
        let leaf = format!("a snapshot with a name that is long enough for a leaf of its own {i:03}");
        bed.take(&leaf);
        wanted.push(leaf);
    }
    let list = bed.at().join(".zfs/snapshot");
    assert_eq!(names(&list), wanted);
    assert_eq!(shell(&list, "ls -U | wc -l"), format!("{COUNT}\n"));
    bed.expect_open(0);
    assert_eq!(shell(&list, "ls -l | wc -l"), format!("{}\n", COUNT + 1));
    assert!(bed.mounted().open_snapshots() <= 8, "{}", bed.mounted().open_snapshots());
    for (i, leaf) in wanted.iter().enumerate() {
        assert_eq!(fs::read_to_string(bed.within(leaf).join("number")).unwrap(), i.to_string());
    }
    // Meanwhile the kernel forgets nodes, at times of its own choice.
    wait_until("too many are open", || bed.mounted().open_snapshots() <= 40);
    // A listing continues at its place while other snapshots are destroyed.
    let mut rest = fs::read_dir(&list).unwrap();
    let first = rest.next().unwrap().unwrap().file_name().into_string().unwrap();
    bed.destroyed(&first);
    assert_eq!(rest.count(), COUNT - 1);
    bed.finish();
}

#[test]
fn snapshots_that_the_kernel_drops_are_closed() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    fs::write(bed.at().join("a"), b"1").unwrap();
    bed.take("s");
    let held = File::open(bed.within("s").join("a")).unwrap();
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    assert_eq!(bed.mounted().open_snapshots(), 1);
    drop(held);
    wait_until("it stays open", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        bed.mounted().open_snapshots() == 0
    });
    // The kernel was not notified, and nothing prevents the change.
    bed.pool().destroy_snapshots(&["tank/fs@s".into()], false).unwrap();
    bed.finish();
}

#[test]
fn many_threads_read_while_snapshots_come_and_go() {
    if !usable() {
        return;
    }
    let bed = Bed::new(256 << 20, &[]);
    fs::write(bed.at().join("f"), vec![7; 300_000]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        for seed in 0..3 {
            let (bed, stop) = (&bed, &stop);
            scope.spawn(move || {
                let mut chance = Chance(seed);
                while !stop.load(Ordering::Acquire) {
                    let path = bed.within(&format!("s{}", chance.below(4)));
                    match fs::read(path.join("f")) {
                        Ok(data) => assert!(data.len() == 300_000 && data.iter().all(|byte| *byte == 7)),
                        Err(error) => {
                            let errno = Errno::from_raw_os_error(error.raw_os_error().unwrap());
                            assert!([Errno::NOENT, Errno::STALE].contains(&errno), "{errno:?}");
                        }
                    }
                    let _ = fs::read_dir(path).map(Iterator::count);
                }
            });
        }
        let mut chance = Chance(99);
        for round in 0..60 {
            let leaf = format!("s{}", chance.below(4));
            if bed.pool().dataset(&format!("tank/fs@{leaf}")).is_err() {
                bed.take(&leaf);
            } else if round % 5 == 0 {
                let other = format!("s{}", chance.below(4));
                if bed.pool().dataset(&format!("tank/fs@{other}")).is_err() {
                    bed.rename(&leaf, &other);
                }
            } else {
                match bed.destroy(&leaf) {
                    Ok(()) | Err(pool::Error::DatasetBusy(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        drop(ends);
    });
    bed.finish();
}

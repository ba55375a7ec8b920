//! What programs do with a mounted file system; each test is one scenario.

mod space;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use fuse::{Atime, MountError, MountOptions};
use support::waits::{PATIENCE, wait_until};
use support::{Bed, Chance, Ends, difference, digest, reference, shell, usable};
use zpl::session::Notice;

#[test]
fn the_mount_table_shows_a_mount_with_its_dataset_and_options() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(64 << 20, &[]);
    let line = |bed: &Bed| {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let at = bed.at().display().to_string();
        mounts.lines().find(|line| line.split(' ').nth(1) == Some(&at)).map(str::to_owned)
    };
    let shown = line(&bed).unwrap();
    assert!(shown.starts_with("tank/fs ") && shown.contains(" fuse.zfs rw,"), "{shown}");
    assert!(bed.mounted().is_alive());
    std::fs::write(bed.at().join("a"), b"before").unwrap();
    let read_only = MountOptions { source: "tank/fs".into(), read_only: true, ..MountOptions::default() };
    bed.mounted().set_options(&read_only).unwrap();
    let refused = std::fs::write(bed.at().join("a"), b"after").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
    assert_eq!(std::fs::read(bed.at().join("a")).unwrap(), b"before");
    bed.mounted().set_options(&MountOptions { read_only: false, ..read_only }).unwrap();
    std::fs::write(bed.at().join("a"), b"after").unwrap();
    bed.remount();
    assert_eq!(std::fs::read(bed.at().join("a")).unwrap(), b"after");
    let at = bed.at();
    let bed = bed.finish();
    assert_eq!((line(&bed), std::fs::read_dir(at).unwrap().count()), (None, 0));
}

#[test]
fn a_busy_mount_is_left_alone_unless_forced() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(64 << 20, &[]);
    let mut file = File::create(bed.at().join("open")).unwrap();
    file.write_all(b"kept").unwrap();
    assert!(matches!(bed.mounted().unmount(false), Err(MountError::Busy(_))));
    assert!(bed.mounted().is_alive());
    bed.mounted().unmount(true).unwrap();
    assert!(!bed.mounted().is_alive());
    assert!(file.write_all(b"lost").and_then(|()| file.sync_all()).is_err());
    drop(file);
    bed.close();
    bed.check();
    bed.open();
    assert_eq!(std::fs::read(bed.at().join("open")).unwrap(), b"kept");
    bed.finish();
}

#[test]
fn a_removed_file_lives_as_long_as_somebody_has_it_open() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    let path = bed.at().join("f");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&vec![1; 300_000]).unwrap();
    std::fs::remove_file(&path).unwrap();
    // No other file gets its number, not even after syncs.
    for round in 0..3 {
        bed.pool().sync().unwrap();
        std::fs::write(bed.at().join(format!("new {round}")), b"x").unwrap();
    }
    file.write_all(b"more").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert_eq!((content.len(), file.metadata().unwrap().nlink()), (300_004, 0));
    assert!(std::fs::metadata(&path).is_err());
    let objects = || bed.fs().space().unwrap().objects;
    bed.pool().sync().unwrap();
    let before = objects();
    drop(file);
    // The kernel reports this at a time of its own choice.
    wait_until("the file is not freed", || {
        bed.pool().sync().unwrap();
        objects() < before
    });
    assert_eq!(objects(), before - 1, "the file is freed with its last handle");
    let inside = bed.at().join("dir");
    std::fs::create_dir(&inside).unwrap();
    let said = shell(
        &inside,
        "rmdir ../dir && stat -c %h . && touch a; ls; cd .. && mkdir dir && touch dir/b && ls dir",
    );
    assert!(said.starts_with("0\nb\ntouch: cannot touch 'a'"), "{said}");
    bed.finish();
}

#[test]
fn shared_mappings_are_written_and_seen() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    let script = r#"
import mmap, os, sys
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 20)
one, other = mmap.mmap(fd, 1 << 20), mmap.mmap(fd, 1 << 20)
for i in range(0, 1 << 20, 4099):
    one[i] = i % 251
assert all(other[i] == i % 251 for i in range(0, 1 << 20, 4099))
assert os.pread(fd, 1, 4099) == bytes([4099 % 251])
os.pwrite(fd, b"written", 12345)
assert other[12345:12352] == b"written"
one.flush()
os.fsync(fd)
"#;
    let said = shell(&bed.at(), &format!("python3 - <<'EOF'\n{script}\nEOF"));
    assert_eq!(said, "");
    bed.remount();
    let content = std::fs::read(bed.at().join("m")).unwrap();
    assert_eq!(content.len(), 1 << 20);
    assert_eq!(&content[12345..12352], b"written");
    for i in (0..1 << 20).step_by(4099).filter(|i| !(12345..12352).contains(i)) {
        assert_eq!(usize::from(content[i]), i % 251, "byte {i}");
    }
    bed.finish();
}

#[test]
fn seek_data_finds_data_of_files_that_are_still_open() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    let path = bed.at().join("f");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"data", 1 << 20).unwrap();
    // `cp` asks for data and holes before it reads.
    let other = File::open(&path).unwrap();
    let seek = |from| rustix::fs::seek(&other, from).map_err(|errno| errno.raw_os_error());
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4));
    assert_eq!(shell(&bed.at(), "cp --sparse=always f g && cmp f g && stat -c %s g"), "1048580\n");
    file.write_all_at(b"more", 2 << 20).unwrap();
    assert_eq!(seek(rustix::fs::SeekFrom::Data((1 << 20) + (128 << 10))), Ok(2 << 20));
    drop((file, other));
    bed.finish();
}

#[test]
fn many_threads_write_at_once() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(1 << 30, &[]);
    let at = bed.at();
    std::fs::write(at.join("shared"), b"").unwrap();
    std::thread::scope(|scope| {
        for number in 0..64u64 {
            let at = &at;
            scope.spawn(move || {
                let mut chance = Chance(number);
                let dir = at.join(format!("d{number}"));
                std::fs::create_dir(&dir).unwrap();
                for file in 0..10 {
                    let len = chance.below(300_000) as usize;
                    std::fs::write(dir.join(format!("f{file}")), chance.bytes(len)).unwrap();
                }
                let shared = OpenOptions::new().write(true).open(at.join("shared")).unwrap();
                shared.write_all_at(&[number as u8; 10_000], number * 10_000).unwrap();
                let mut log = OpenOptions::new().create(true).append(true).open(at.join("log")).unwrap();
                for _ in 0..20 {
                    log.write_all(format!("{number:02}\n").as_bytes()).unwrap();
                }
                if number % 16 == 0 {
                    shared.sync_all().unwrap();
                }
            });
        }
    });
    bed.remount();
    for number in 0..64u64 {
        let mut chance = Chance(number);
        for file in 0..10 {
            let len = chance.below(300_000) as usize;
            let content = std::fs::read(at.join(format!("d{number}/f{file}"))).unwrap();
            assert_eq!(digest(&content), digest(&chance.bytes(len)), "d{number}/f{file}");
        }
    }
    let shared = std::fs::read(at.join("shared")).unwrap();
    assert!(shared.chunks(10_000).enumerate().all(|(n, part)| part.iter().all(|byte| *byte == n as u8)));
    let log = std::fs::read_to_string(at.join("log")).unwrap();
    assert_eq!(log.lines().count(), 64 * 20);
    assert!((0..64).all(|n| log.lines().filter(|line| *line == format!("{n:02}")).count() == 20));
    bed.finish();
}

#[test]
fn others_are_served_while_all_writers_wait_for_the_pool() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(1 << 30, &[]);
    let at = bed.at();
    for number in 0..20 {
        std::fs::write(at.join(format!("seen-{number}")), b"here").unwrap();
    }
    bed.remount();
    let files: Vec<_> =
        (0..20).map(|number| File::create(at.join(format!("new-{number}"))).unwrap()).collect();
    // The first caller that needs a sync waits for this, and then every change waits.
    let tx = bed.fs().dataset().begin(pool::Hold::write(0)).unwrap();
    std::thread::scope(|scope| {
        let write = |(number, mut file): (u64, File)| {
            scope.spawn(move || {
                file.write_all(&Chance(number).bytes(4 << 20)).unwrap();
                file.sync_all().unwrap();
            })
        };
        let writers: Vec<_> = (0..).zip(files).map(write).collect();
        let (tell, told) = std::sync::mpsc::channel();
        let at = &at;
        scope.spawn(move || {
            // More than once: the first may come before the writers.
            for number in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                let path = at.join(format!("seen-{number}"));
                tell.send(std::fs::metadata(path).unwrap().len()).unwrap();
            }
        });
        let served = (0..20).map_while(|_| told.recv_timeout(PATIENCE).ok()).count();
        assert!(!writers.iter().any(std::thread::ScopedJoinHandle::is_finished), "writers wait");
        drop(tx);
        assert_eq!(served, 20, "lookups that were answered");
    });
    for number in 0..20 {
        let content = std::fs::read(at.join(format!("new-{number}"))).unwrap();
        assert_eq!(digest(&content), digest(&Chance(number).bytes(4 << 20)), "new-{number}");
    }
    bed.finish();
}

#[test]
fn times_that_were_seen_are_there_after_a_remount() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(256 << 20, &[]);
    let at = bed.at();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let at = &at;
            scope.spawn(move || {
                for n in 0..40 {
                    let mut file = File::create(at.join(format!("{writer}-{n}"))).unwrap();
                    file.write_all(&vec![n as u8; 100 + n * 997]).unwrap();
                    if n % 8 == 0 {
                        file.sync_all().unwrap();
                        file.write_all(b"more").unwrap();
                    }
                }
            });
        }
    });
    let times = |at: &std::path::Path| -> Vec<_> {
        let names = (0..8).flat_map(|writer| (0..40).map(move |n| format!("{writer}-{n}")));
        names
            .map(|name| {
                let found = std::fs::metadata(at.join(&name)).unwrap();
                (name, (found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()))
            })
            .collect()
    };
    let seen = times(&at);
    bed.remount();
    assert_eq!(times(&at), seen);
    bed.finish();
}

#[test]
fn a_listing_is_whole_while_entries_come_and_go() {
    if !usable() {
        return;
    }
    let bed = Bed::new(256 << 20, &[]);
    let dir = bed.at().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let stays = |n: u32| format!("stays, with a name of some length, {n:05}");
    for n in 0..3000 {
        File::create(dir.join(stays(n))).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&done);
        scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Acquire) {
                File::create(dir.join(format!("goes {n}"))).unwrap();
                if n >= 50 {
                    std::fs::remove_file(dir.join(format!("goes {}", n - 50))).unwrap();
                }
                n += 1;
            }
        });
        for _ in 0..5 {
            let names: Vec<_> = std::fs::read_dir(&dir)
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            let unique: BTreeSet<_> = names.iter().collect();
            let missing = (0..3000).filter(|n| !unique.contains(&stays(*n))).count();
            let twice = names.iter().filter(|name| name.starts_with("stays")).count() - 3000;
            assert_eq!((missing, twice), (0, 0));
        }
        drop(ends);
    });
    assert_eq!(shell(&bed.at(), "rm -r dir && ls"), "");
    bed.finish();
}

#[test]
fn posix_acls_are_kept_inherited_and_obeyed() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    if Command::new("setfacl").arg("--version").output().is_err() {
        eprintln!("skipped: setfacl is not here");
        return;
    }
    for in_folders in [false, true] {
        let mut properties = vec![("acltype", 1)];
        properties.extend(in_folders.then_some(("xattr", 1)));
        let mut bed = Bed::new(64 << 20, &properties);
        let theirs = reference();
        let script = r#"
            umask 027
            as() { setpriv --reuid="$1" --regid="$1" --clear-groups bash -c "$2" 2>&1 | sed 's/^bash: line [0-9]*: //'; }
            mkdir d; setfacl -m u:1001:rwx,g:1002:r-x,m::rwx d; setfacl -d -m u:1001:rw-,g:1002:r--,o::- d
            echo text > d/f; mkdir d/sub; ln -s f d/l; touch d/sub/deep; mknod d/p p
            getfacl -p d d/f d/sub d/sub/deep d/p; stat -c '%A %n' d d/f d/sub d/sub/deep
            as 1001 'echo more >> d/f && echo can write'; as 1002 'cat d/f; echo no >> d/f'; as 1003 'cat d/f'
            chmod 640 d/f; getfacl -p d/f; as 1001 'echo no >> d/f'
            setfacl -b d/f; getfacl -p d/f; setfacl -k d; touch d/plain; getfacl -p d d/plain; stat -c %A d/plain
            setfacl -m u:1003:rw d/plain; chmod 600 d/plain; as 1003 'cat d/plain'; getfacl -p d/plain
            # Setgid goes when somebody outside the group changes the mode this way.
            touch s; mkdir t; chown 1001:2002 s t
            for groups in --clear-groups --groups=2003,2002; do
                chmod 2755 s t
                setpriv --reuid=1001 --regid=1001 $groups setfacl -m u:1003:rw s t; stat -c '%A %n' s t
            done
            chmod 2755 s; setfacl -m u:1004:rw s; stat -c '%A %n' s
        "#;
        let (ours, theirs) = (shell(&bed.at(), script), shell(theirs.path(), script));
        assert!(theirs.contains("can write"), "{theirs}");
        assert_eq!(ours, theirs, "in folders: {in_folders}");
        let before = shell(&bed.at(), "getfacl -R -p .");
        bed.remount();
        assert_eq!(shell(&bed.at(), "getfacl -R -p ."), before);
        bed.finish();
    }
    let mut bed = Bed::new(64 << 20, &[]);
    let acl = "touch f; chmod 600 f; setfacl -m u:1001:rw f; stat -c %a f";
    let said = shell(&bed.at(), acl);
    assert!(said.contains("Operation not supported"), "acltype=off: {said}");
    // The kernel uses ACLs from the next mount on. Before, an ACL would only widen the mode.
    bed.set("acltype", 1);
    let said = shell(&bed.at(), acl);
    assert!(said.contains("Operation not supported") && said.contains("600\n"), "{said}");
    bed.remount();
    assert_eq!(shell(&bed.at(), acl), "660\n");
    // Turned off, ACLs have no effect, and no user loses access by that.
    bed.set("acltype", 0);
    std::fs::create_dir(bed.at().join("open")).unwrap();
    let as_other = "setpriv --reuid=1003 --regid=1003 --clear-groups ls open && echo may look";
    let said = shell(&bed.at(), &format!("chmod 755 open; {as_other}"));
    assert_eq!(said, "may look\n");
    bed.finish();
}

#[test]
fn with_sync_always_what_write_returned_for_has_left_the_page_cache() {
    if !usable() {
        return;
    }
    for (sync, at_once) in [(0, false), (1, true)] {
        let mut bed = Bed::new(64 << 20, &[("sync", sync)]);
        let mut file = File::create(bed.at().join("f")).unwrap();
        file.write_all(b"acknowledged").unwrap();
        let id = bed.fs().resolve(b"/f", false).unwrap();
        let there = bed.fs().read_all(id, 100).unwrap() == b"acknowledged";
        assert!(there || !at_once);
        drop(file);
        bed.remount();
        // Turned on for a mount that is there, where this user may change one.
        if rustix::process::geteuid().is_root() {
            bed.set("sync", 1);
            let options = MountOptions { synchronous: true, ..MountOptions::default() };
            bed.mounted().set_options(&options).unwrap();
            let mut file = File::create(bed.at().join("g")).unwrap();
            file.write_all(b"too").unwrap();
            let id = bed.fs().resolve(b"/g", false).unwrap();
            assert_eq!(bed.fs().read_all(id, 100).unwrap(), b"too");
        }
        bed.finish();
    }
}

#[test]
fn a_file_is_opened_by_its_handle_after_the_kernel_forgot_it() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    std::fs::create_dir(bed.at().join("d")).unwrap();
    std::fs::write(bed.at().join("d/f"), "found").unwrap();
    let script = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
handle, mount = Handle(128, 0), ctypes.c_int()
if libc.name_to_handle_at(-100, b"d/f", ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
    raise OSError(ctypes.get_errno(), "name_to_handle_at")
open("/proc/sys/vm/drop_caches", "w").write("2")
top = os.open(".", os.O_RDONLY)
fd = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
print(os.read(fd, 100).decode() if fd >= 0 else os.strerror(ctypes.get_errno()))
"#;
    let said = shell(&bed.at(), &format!("python3 - <<'EOF'\n{script}\nEOF"));
    assert_eq!(said.trim(), "found");
    bed.finish();
}

#[test]
fn access_times_are_kept_as_the_dataset_says() {
    if !usable() {
        return;
    }
    let read_later = |properties: &[(&str, u64)], options: MountOptions| {
        let mut bed = Bed::with(64 << 20, properties, options);
        let path = bed.at().join("f");
        std::fs::write(&path, b"text").unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let times = std::fs::FileTimes::new().set_accessed(long_ago);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        bed.remount();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        let kept = std::fs::metadata(&path).unwrap().atime() != 1_000_000;
        bed.remount();
        assert_eq!(std::fs::metadata(&path).unwrap().atime() != 1_000_000, kept, "as it was before");
        bed.finish();
        kept
    };
    assert!(read_later(&[], MountOptions::default()));
    assert!(!read_later(&[("atime", 0)], MountOptions::default()));
    assert!(!read_later(&[], MountOptions { atime: Atime::Off, ..MountOptions::default() }));
}

#[test]
fn changes_that_bypass_the_mount_are_seen_after_a_notice() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    std::fs::write(bed.at().join("f"), b"old").unwrap();
    assert_eq!(std::fs::read(bed.at().join("f")).unwrap(), b"old");
    assert!(std::fs::metadata(bed.at().join("g")).is_err());
    let (id, _) = fs.lookup(root, b"f").unwrap().unwrap();
    fs.write(id, 0, b"changed").unwrap();
    bed.tell(&[Notice::Node(id)]);
    fs.link(id, root, b"g").unwrap();
    bed.tell(&[Notice::Name(root, b"g"), Notice::Node(root), Notice::Node(id)]);
    assert_eq!(std::fs::metadata(bed.at().join("g")).unwrap().nlink(), 2);
    assert_eq!(std::fs::read_dir(bed.at()).unwrap().count(), 2);
    drop(fs);
    bed.finish();
}

#[test]
fn a_tree_is_copied_in_and_out_unchanged() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(256 << 20, &[]);
    let theirs = reference();
    let make = r#"
        mkdir -p t/a/b/c t/empty; for i in $(seq 200); do head -c $((i * 97)) /dev/urandom > t/a/f$i; done
        for i in $(seq 50); do ln t/a/f$i t/a/b/l$i; ln -s ../f$i t/a/b/s$i; done
        setfattr -n user.test -v "some value" t/a/f1 2>/dev/null; mkfifo t/a/p; chmod 4711 t/a/f2; touch -d @12345.678 t/a/f3
        truncate -s 10M t/a/sparse; echo end >> t/a/sparse
        tar --xattrs --sparse -cf t.tar t && tar --xattrs --sparse -tf t.tar | wc -l
    "#;
    assert_eq!(shell(theirs.path(), make), "307\n");
    std::fs::copy(theirs.path().join("t.tar"), bed.at().join("t.tar")).unwrap();
    assert_eq!(shell(&bed.at(), "tar --xattrs -xf t.tar"), "");
    assert_eq!(difference(&bed.at().join("t"), &theirs.path().join("t")), None);
    bed.remount();
    assert_eq!(difference(&bed.at().join("t"), &theirs.path().join("t")), None);
    let at = bed.at().display().to_string();
    assert_eq!(
        shell(theirs.path(), &format!("mkdir back && cp -a {at}/t back/t && diff -r t back/t --exclude=p")),
        ""
    );
    assert_eq!(difference(&theirs.path().join("back/t"), &theirs.path().join("t")), None);
    bed.finish();
}

//! `.zfs`: snapshots, seen through the mount of their file system.

mod many;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use support::waits::wait_until;
use support::{Bed, Chance, difference, reference, shell, usable};

/// The inode numbers of `.zfs`, `.zfs/shares` and `.zfs/snapshot` on Linux.
const NUMBERS: [u64; 3] = [0xffff_ffff_ffff, 0xffff_ffff_fffe, 0xffff_ffff_fffd];

trait Snapshots {
    fn take(&self, leaf: &str);
    fn within(&self, leaf: &str) -> PathBuf;
    fn let_go(&self, leaf: &str);
    fn destroy(&self, leaf: &str) -> pool::Result<()>;
    fn destroyed(&self, leaf: &str);
    fn rename(&self, from: &str, to: &str);
    fn expect_open(&self, count: usize);
}

impl Snapshots for Bed {
    /// As the server takes one.
    fn take(&self, leaf: &str) {
        let held = self.mounted().held();
        self.mounted().write_back().unwrap();
        assert!(self.mounted().settle(held, Instant::now()));
        self.pool().snapshot(&[format!("tank/fs@{leaf}")], &[]).unwrap();
    }

    fn within(&self, leaf: &str) -> PathBuf {
        self.at().join(".zfs/snapshot").join(leaf)
    }

    fn let_go(&self, leaf: &str) {
        let info = self.pool().dataset(&format!("tank/fs@{leaf}")).unwrap();
        let key = pool::SnapshotKey { id: info.id, guid: info.phys.guid };
        self.mounted().let_go_of_snapshot(key, leaf.as_bytes());
    }

    /// As the server destroys one.
    fn destroy(&self, leaf: &str) -> pool::Result<()> {
        self.let_go(leaf);
        self.pool().destroy_snapshots(&[format!("tank/fs@{leaf}")], false)
    }

    /// A process that another test is just starting has our open files until it becomes its program, and then the snapshot is
    /// still in use.
    fn destroyed(&self, leaf: &str) {
        wait_until("it stays in use", || match self.destroy(leaf) {
            Ok(()) => true,
            Err(pool::Error::DatasetBusy(_)) => false,
            Err(error) => panic!("{error}"),
        });
    }

    fn rename(&self, from: &str, to: &str) {
        self.pool().rename_snapshots(&[format!("tank/fs@{from}")], to).unwrap();
        self.mounted().renamed_snapshot(from.as_bytes());
    }

    /// The kernel forgets nodes at times of its own choice.
    fn expect_open(&self, count: usize) {
        wait_until("another number of snapshots is open", || self.mounted().open_snapshots() == count);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_raw_os_error(result.unwrap_err().raw_os_error().unwrap())
}

/// A bit of everything.
fn fill(at: &Path) {
    let mut chance = Chance(11);
    for (name, len) in [("empty", 0), ("small", 700), ("block", 128 << 10), ("large", 3_000_001)] {
        fs::write(at.join(name), chance.bytes(len)).unwrap();
    }
    fs::create_dir_all(at.join("d/e/f")).unwrap();
    for i in 0..300 {
        fs::write(at.join(format!("d/e/{i}")), format!("file {i}")).unwrap();
    }
    fs::hard_link(at.join("small"), at.join("d/small too")).unwrap();
    std::os::unix::fs::symlink("../small", at.join("d/link")).unwrap();
    fs::set_permissions(at.join("d/e/7"), fs::Permissions::from_mode(0o4711)).unwrap();
    let sparse = File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 5 << 20).unwrap();
    xattr::set(at.join("small"), "user.note", b"kept").unwrap();
    xattr::set(at.join("d"), "user.long", &[b'x'; 3000]).unwrap();
}

#[test]
fn a_snapshot_is_read_while_the_head_changes() {
    if !usable() {
        return;
    }
    let bed = Bed::new(512 << 20, &[]);
    let copy = reference();
    fill(&bed.at());
    fill(copy.path());
    bed.take("s");
    let within = bed.within("s");
    assert_eq!(difference(&within, copy.path()), None);
    // Changes files that were looked at before, and files that were not.
    fs::write(bed.at().join("small"), b"other").unwrap();
    fs::remove_dir_all(bed.at().join("d/e")).unwrap();
    fs::write(bed.at().join("block"), b"").unwrap();
    fs::write(bed.at().join("new"), b"new").unwrap();
    xattr::remove(bed.at().join("small"), "user.note").unwrap();
    bed.mounted().write_back().unwrap();
    bed.pool().sync().unwrap();
    assert_eq!(difference(&within, copy.path()), None);
    assert_eq!(fs::read(bed.at().join("small")).unwrap(), b"other");
    let reference = reference();
    let said = shell(
        &bed.at(),
        &format!(
            "diff -r --no-dereference .zfs/snapshot/s {0} && tar -C .zfs/snapshot/s -cf - . | tar -xf - -C {1} && \
             diff -r --no-dereference {1} {0} && find .zfs/snapshot/s | wc -l && cp -a .zfs/snapshot/s {1}/again && \
             stat -c %h {1}/again/small; (cd .zfs/snapshot/s/d/e/f && /bin/pwd)",
            copy.path().display(),
            reference.path().display()
        ),
    );
    let pwd = within.join("d/e/f");
    assert_eq!(said, format!("311\n2\n{}\n", pwd.display()), "{said}");
    // Holes are seen, and where the file ends.
    let mut sparse = File::open(within.join("sparse")).unwrap();
    assert!(rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Data(0)).unwrap() > 4 << 20);
    assert_eq!(rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Hole(0)).unwrap(), 0);
    let mut end = String::new();
    sparse.seek(SeekFrom::Start(5 << 20)).unwrap();
    sparse.read_to_string(&mut end).unwrap();
    assert_eq!(end, "end");
    // A copy from the snapshot into the head, in any way that the kernel chooses.
    let (from, to) =
        (File::open(within.join("large")).unwrap(), File::create(bed.at().join("back")).unwrap());
    let mut left = 3_000_001;
    while left > 0 {
        left -= rustix::fs::copy_file_range(&from, None, &to, None, left).unwrap();
    }
    assert_eq!(fs::read(bed.at().join("back")).unwrap(), fs::read(copy.path().join("large")).unwrap());
    assert_eq!(rustix::fs::statvfs(&within).unwrap().f_bsize, 128 << 10);
    drop((from, to, sparse));
    bed.finish();
}

#[test]
fn the_folder_zfs_is_shown_as_snapdir_says() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let (at, folder) = (bed.at(), bed.at().join(".zfs"));
    fs::write(at.join("a"), b"a").unwrap();
    bed.take("s");
    let set = |value| {
        bed.set("snapdir", value);
        bed.mounted().look_at_properties();
    };
    assert_eq!(names(&at), ["a"]);
    assert_eq!(names(&folder), ["shares", "snapshot"]);
    assert_eq!(names(&folder.join("shares")), [""; 0]);
    assert_eq!(names(&folder.join("snapshot")), ["s"]);
    for (path, number) in [".zfs", ".zfs/shares", ".zfs/snapshot"].iter().zip(NUMBERS) {
        let data = fs::metadata(at.join(path)).unwrap();
        assert_eq!((data.ino(), data.mode(), data.uid(), data.gid()), (number, 0o40777, 0, 0), "{path}");
        assert_eq!(data.dev(), fs::metadata(&at).unwrap().dev());
    }
    assert_eq!(fs::metadata(folder.join("snapshot")).unwrap().nlink(), 3);
    set(1);
    assert_eq!(names(&at), [".zfs", "a"]);
    assert_eq!(shell(&at, "ls -a; ls -a .zfs"), ".\n..\n.zfs\na\n.\n..\nshares\nsnapshot\n");
    assert_eq!(names(&folder.join("snapshot/s")), ["a"], "a snapshot shows none of its own");
    assert!(!folder.join("snapshot/s/.zfs").exists());
    set(2);
    assert_eq!(names(&at), ["a"]);
    assert_eq!(errno(fs::metadata(&folder)), Errno::NOENT);
    assert_eq!(errno(fs::metadata(folder.join("snapshot/s/a"))), Errno::NOENT);
    set(0);
    assert_eq!(names(&at), ["a"]);
    assert_eq!(fs::read(folder.join("snapshot/s/a")).unwrap(), b"a");
    // One entry at a time, with what is made up in the middle.
    set(1);
    for i in 0..50 {
        fs::write(at.join(format!("many {i}")), b"").unwrap();
    }
    assert_eq!(names(&at).len(), 52);
    bed.finish();
}

#[test]
fn the_same_object_has_another_number_in_each_snapshot() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    fs::write(bed.at().join("a"), b"first").unwrap();
    fs::hard_link(bed.at().join("a"), bed.at().join("b")).unwrap();
    bed.take("one");
    fs::write(bed.at().join("a"), b"second").unwrap();
    bed.take("two");
    fs::write(bed.at().join("a"), b"third").unwrap();
    let tops = [bed.at(), bed.within("one"), bed.within("two")];
    let number = |path: PathBuf| fs::metadata(path).unwrap().ino();
    let files: BTreeSet<u64> = tops.iter().map(|top| number(top.join("a"))).collect();
    let roots: BTreeSet<u64> = tops.iter().map(|top| number(top.clone())).collect();
    assert_eq!((files.len(), roots.len()), (3, 3));
    for (top, text) in tops.iter().zip(["third", "first", "second"]) {
        assert_eq!(number(top.join("a")), number(top.join("b")));
        assert_eq!(fs::metadata(top.join("a")).unwrap().nlink(), 2);
        assert_eq!(fs::read_to_string(top.join("b")).unwrap(), text);
        assert_eq!(number(top.join("a")) & 0xffff_ffff_ffff, number(bed.at().join("a")));
    }
    // tar takes the same (device, number) for the same file.
    let said = shell(
        &bed.at(),
        "tar -cf - a b .zfs/snapshot/one .zfs/snapshot/two | tar -tvf - | grep -c 'link to'",
    );
    assert_eq!(said, "3\n");
    // The inode numbers stay when a snapshot is opened again.
    let before = number(bed.within("one").join("a"));
    bed.let_go("one");
    bed.let_go("two");
    bed.expect_open(0);
    assert_eq!(number(bed.within("one").join("a")), before);
    bed.finish();
}

#[test]
fn nothing_in_a_snapshot_can_be_changed() {
    if !usable() {
        return;
    }
    for atime in [1, 0] {
        nothing_can_be_changed_with(atime);
    }
}

/// Where access times are kept, the kernel asks before it opens a file, and in other mounts it does not.
fn nothing_can_be_changed_with(atime: u64) {
    let bed = Bed::new(64 << 20, &[("atime", atime)]);
    fs::write(bed.at().join("f"), b"contents").unwrap();
    fs::create_dir(bed.at().join("d")).unwrap();
    xattr::set(bed.at().join("f"), "user.a", b"1").unwrap();
    bed.take("s");
    let top = bed.within("s");
    let (file, dir, new) = (top.join("f"), top.join("d"), top.join("new"));
    let before = fs::metadata(&file).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let refused: Vec<(&str, rustix::io::Result<()>)> = vec![
        ("create", rustix::fs::open(&new, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).map(drop)),
        ("tmpfile", rustix::fs::open(&top, OFlags::TMPFILE | OFlags::RDWR, Mode::RWXU).map(drop)),
        ("truncating", rustix::fs::open(&file, OFlags::TRUNC | OFlags::WRONLY, Mode::RWXU).map(drop)),
        ("mkdir", rustix::fs::mkdir(&new, Mode::RWXU)),
        ("symlink", rustix::fs::symlink("f", &new)),
        ("mknod", rustix::fs::mknodat(CWD, &new, rustix::fs::FileType::Fifo, Mode::RWXU, 0)),
        ("link", rustix::fs::link(&file, &new)),
        ("rename", rustix::fs::rename(&file, &new)),
        ("exchange", rustix::fs::renameat_with(CWD, &file, CWD, &dir, RenameFlags::EXCHANGE)),
        ("unlink", rustix::fs::unlink(&file)),
        ("rmdir", rustix::fs::rmdir(&dir)),
        ("chmod", rustix::fs::chmod(&file, Mode::RUSR)),
        ("chown", rustix::fs::chown(&file, None, Some(rustix::fs::Gid::from_raw(7)))),
        ("utimes", rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty())),
        ("setxattr", rustix::fs::setxattr(&file, "user.b", b"2", rustix::fs::XattrFlags::empty())),
        ("removexattr", rustix::fs::removexattr(&file, "user.a")),
        ("chmod of the root", rustix::fs::chmod(&top, Mode::RUSR)),
    ];
    for (what, result) in refused {
        assert_eq!(result, Err(Errno::ROFS), "{what}");
    }
    let opened = fs::OpenOptions::new().read(true).write(true).open(&file);
    if atime == 0 {
        writes_are_refused(&bed, &file, &opened.unwrap());
    } else {
        for flags in
            [OFlags::RDWR, OFlags::WRONLY, OFlags::WRONLY | OFlags::APPEND, OFlags::WRONLY | OFlags::DIRECT]
        {
            assert_eq!(rustix::fs::open(&file, flags, Mode::RWXU).map(drop), Err(Errno::ROFS), "{flags:?}");
        }
    }
    assert_eq!(
        shell(&bed.at(), "cat f > .zfs/snapshot/s/f; echo x >> .zfs/snapshot/s/f; cat .zfs/snapshot/s/f")
            .matches("Read-only file system")
            .count(),
        2
    );
    let after = fs::metadata(&file).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"contents");
    for of in [MetadataExt::mtime, MetadataExt::ctime, MetadataExt::atime] {
        assert_eq!(of(&after), of(&before));
    }
    assert_eq!((after.len(), after.mode()), (before.len(), before.mode()));
    // Programs see no capabilities that do not exist.
    assert_eq!(xattr::get(&file, "security.capability").unwrap(), None);
    assert_eq!(xattr::list(&file).unwrap().collect::<Vec<_>>(), ["user.a"]);
    // Between the two file systems nothing moves.
    assert_eq!(rustix::fs::link(&file, bed.at().join("x")), Err(Errno::XDEV));
    assert_eq!(rustix::fs::rename(&file, bed.at().join("x")), Err(Errno::XDEV));
    assert_eq!(rustix::fs::rename(bed.at().join("f"), &new), Err(Errno::XDEV));
    bed.finish();
}

/// The kernel opens the snapshot's file without a message to the server; every later change is refused.
fn writes_are_refused(bed: &Bed, file: &Path, mut open: &File) {
    for len in [1, 100_000] {
        assert_eq!(errno(open.write(&vec![b'!'; len])), Errno::ROFS);
        assert_eq!(errno(open.write_at(&vec![b'!'; len], 1 << 20)), Errno::ROFS);
    }
    let appending = fs::OpenOptions::new().append(true).open(file).unwrap();
    assert_eq!(errno((&appending).write(b"!")), Errno::ROFS);
    assert_eq!(rustix::fs::ftruncate(open, 3), Err(Errno::ROFS));
    assert_eq!(rustix::fs::fallocate(open, FallocateFlags::empty(), 0, 1 << 20), Err(Errno::ROFS));
    let direct = fs::OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(file);
    assert_eq!(errno(direct.unwrap().write_at(&[0; 4096], 0)), Errno::ROFS);
    let head = File::open(bed.at().join("f")).unwrap();
    assert!(rustix::fs::copy_file_range(&head, None, open, None, 3).is_err());
}

#[test]
fn writes_to_a_mapping_of_a_snapshot_are_dropped() {
    if !usable() {
        return;
    }
    // Where the kernel asks before it opens a file, such a mapping cannot be made.
    let bed = Bed::new(64 << 20, &[("atime", 0)]);
    fs::write(bed.at().join("f"), vec![b'a'; 10_000]).unwrap();
    bed.take("s");
    let script = "python3 - <<'E'\nimport mmap, os\nf = os.open('.zfs/snapshot/s/f', os.O_RDWR)\n\
                  m = mmap.mmap(f, 10000)\nm[5] = 0x21\ntry:\n  m.flush()\nexcept OSError as e:\n  print(e.strerror)\nE\n";
    let said = shell(&bed.at(), script);
    assert!(said.contains("rror") || said.contains("Read-only"), "{said}");
    wait_until("still there", || fs::read(bed.within("s").join("f")).unwrap()[5] == b'a');
    bed.finish();
}

#[test]
fn the_folders_of_zfs_cannot_be_changed() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    bed.take("s");
    let control = bed.at().join(".zfs");
    let snapshots = control.join("snapshot");
    fs::create_dir(bed.at().join("d")).unwrap();
    for (what, result, wanted) in [
        ("take", rustix::fs::mkdir(snapshots.join("t"), Mode::RWXU), Errno::ACCESS),
        ("destroy", rustix::fs::rmdir(snapshots.join("s")), Errno::ACCESS),
        ("rename", rustix::fs::rename(snapshots.join("s"), snapshots.join("t")), Errno::ACCESS),
        ("move in", rustix::fs::rename(bed.at().join("d"), snapshots.join("t")), Errno::XDEV),
        ("mkdir", rustix::fs::mkdir(control.join("t"), Mode::RWXU), Errno::PERM),
        ("rmdir", rustix::fs::rmdir(&snapshots), Errno::PERM),
        ("symlink", rustix::fs::symlink("a", snapshots.join("t")), Errno::PERM),
        ("chmod", rustix::fs::chmod(&snapshots, Mode::RWXU), Errno::PERM),
        (
            "setxattr",
            rustix::fs::setxattr(&control, "user.a", b"", rustix::fs::XattrFlags::empty()),
            Errno::OPNOTSUPP,
        ),
    ] {
        assert_eq!(result, Err(wanted), "{what}");
    }
    for dir in [&control, &snapshots, &control.join("shares")] {
        assert_eq!(errno(File::create(dir.join("t"))), Errno::ACCESS);
        assert_eq!(xattr::list(dir).unwrap().count(), 0);
        assert!(rustix::fs::statvfs(dir).unwrap().f_blocks > 0);
    }
    assert_eq!(names(&snapshots), ["s"]);
    bed.finish();
}

#[test]
fn a_snapshot_in_use_is_not_destroyed() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    fs::create_dir(bed.at().join("d")).unwrap();
    fs::write(bed.at().join("d/a"), b"kept").unwrap();
    bed.take("s");
    let is_busy = || matches!(bed.destroy("s"), Err(pool::Error::DatasetBusy(_)));
    let mut file = File::open(bed.within("s").join("d/a")).unwrap();
    assert!(is_busy());
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), fs::read(bed.within("s").join("d/a")).unwrap()), ("kept", b"kept".to_vec()));
    drop(file);
    for place in ["s", "s/d"] {
        let mut standing = Command::new("sleep").arg("60").current_dir(bed.within(place)).spawn().unwrap();
        assert!(is_busy(), "{place}");
        // A program with its working directory in the snapshot still sees its path.
        let there = fs::read_link(format!("/proc/{}/cwd", standing.id())).unwrap();
        assert_eq!(there, bed.within(place));
        standing.kill().unwrap();
        standing.wait().unwrap();
    }
    // Since then, no program opened the snapshot. Now one opens it and closes it again.
    bed.take("t");
    let file = File::open(bed.within("t").join("d/a")).unwrap();
    assert!(matches!(bed.destroy("t"), Err(pool::Error::DatasetBusy(_))));
    drop(file);
    bed.destroyed("t");
    assert_eq!(names(&bed.within("s").join("d")), ["a"]);
    bed.destroyed("s");
    bed.expect_open(0);
    assert_eq!(errno(fs::metadata(bed.within("s"))), Errno::NOENT);
    bed.finish();
}

#[test]
fn a_handle_opens_a_snapshot_that_was_closed() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    fs::create_dir(bed.at().join("d")).unwrap();
    fs::write(bed.at().join("d/f"), "found").unwrap();
    bed.take("s");
    bed.take("t");
    let python = |what: &str| {
        let script = r#"
import ctypes, os, pickle, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
names, mount = ["s/d/f", "s/d", "s", "t/d/f"], ctypes.c_int()
def get(name):
    handle = Handle(128, 0)
    name = (".zfs/snapshot/" + name).encode()
    if libc.name_to_handle_at(-100, name, ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return bytes(handle)
def show(raw):
    fd = libc.open_by_handle_at(top, ctypes.byref(Handle.from_buffer_copy(raw)), os.O_RDONLY)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    if os.path.isdir("/proc/self/fd/%d" % fd):
        return " ".join(os.listdir(fd)) + " in " + os.readlink("/proc/self/fd/%d" % fd)[len(os.getcwd()):]
    return os.read(fd, 100).decode()
"#;
        shell(&bed.at(), &format!("python3 - <<'EOF'\n{script}\n{what}\nEOF"))
    };
    let kept = bed.image().with_file_name("handles");
    let said = python(&format!("pickle.dump([get(name) for name in names], open({kept:?}, 'wb'))"));
    assert_eq!(said, "");
    let show = |order: &str| {
        bed.let_go("s");
        bed.expect_open(1);
        python(&format!(
            "top = os.open('.', os.O_RDONLY)\nhandles = pickle.load(open({kept:?}, 'rb'))\n\
             for i in {order}: print(show(handles[i]))"
        ))
    };
    let (file, dir, root) = ("found\n", "f in /.zfs/snapshot/s/d\n", "d in /.zfs/snapshot/s\n");
    assert_eq!(show("[0, 1, 2]"), [file, dir, root].concat());
    assert_eq!(show("[1]"), dir);
    assert_eq!(show("[2, 0]"), [root, file].concat());
    // A destroyed snapshot is not found again, even if a new one has its number.
    for leaf in ["s", "t"] {
        bed.destroyed(leaf);
    }
    bed.take("s");
    let said = python(&format!(
        "top = os.open('.', os.O_RDONLY)\nfor raw in pickle.load(open({kept:?}, 'rb')): print(show(raw))"
    ));
    assert_eq!(said, "Stale file handle\n".repeat(4));
    bed.finish();
}

#[test]
fn rights_are_those_of_the_snapshot() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    // acltype=posix
    let bed = Bed::new(64 << 20, &[("acltype", 1)]);
    let said = shell(
        &bed.at(),
        "mkdir closed open && echo secret > closed/f && echo known > open/f && chmod 700 closed && \
         setfacl -m u:1234:r-x closed && chmod 600 open/f",
    );
    assert_eq!(said, "");
    bed.take("s");
    shell(&bed.at(), "setfacl -b closed; chmod 755 closed; chmod 644 open/f");
    let as_user = |uid: u32, path: &str| {
        let said = shell(
            &bed.at(),
            &format!("setpriv --reuid {uid} --regid {uid} --clear-groups cat .zfs/snapshot/s/{path}"),
        );
        said.lines().next().unwrap().to_owned()
    };
    assert_eq!(as_user(1234, "closed/f"), "secret");
    assert!(as_user(1235, "closed/f").ends_with("Permission denied"));
    assert!(as_user(1234, "open/f").ends_with("Permission denied"));
    assert!(shell(&bed.at(), "getfacl -c .zfs/snapshot/s/closed").contains("user:1234:r-x"));
    // The root directory of a snapshot has the permissions it had when the snapshot was made.
    fs::set_permissions(bed.at(), fs::Permissions::from_mode(0o700)).unwrap();
    bed.take("closed");
    fs::set_permissions(bed.at(), fs::Permissions::from_mode(0o777)).unwrap();
    let said = shell(&bed.at(), "setpriv --reuid 1235 --regid 1235 --clear-groups ls .zfs/snapshot/closed");
    assert!(said.contains("Permission denied"), "{said}");
    bed.finish();
}

#[test]
fn a_damaged_snapshot_is_an_error_of_its_own() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(64 << 20, &[]);
    for (leaf, text) in [("bad", "1"), ("good", "2"), ("newest", "3")] {
        fs::write(bed.at().join("a"), text).unwrap();
        bed.take(leaf);
    }
    fs::write(bed.at().join("a"), "4").unwrap();
    let root = bed.pool().dataset("tank/fs@bad").unwrap().phys.bp;
    bed.close();
    let format::BlockPtr::Block(block) = root else { panic!("a root on disk") };
    let disk = fs::OpenOptions::new().write(true).open(bed.image()).unwrap();
    for dva in block.dvas.iter().filter(|dva| dva.asize > 0) {
        // Behind the labels and what is kept for booting.
        disk.write_all_at(&vec![0xa5; dva.asize as usize], dva.offset + (4 << 20)).unwrap();
    }
    drop(disk);
    bed.open();
    assert_eq!(names(&bed.at().join(".zfs/snapshot")), ["bad", "good", "newest"]);
    for path in ["", "a"] {
        assert_eq!(errno(fs::metadata(bed.within("bad").join(path))), Errno::IO);
    }
    for (leaf, text) in [("good", "2"), ("newest", "3")] {
        assert_eq!(fs::read_to_string(bed.within(leaf).join("a")).unwrap(), text);
    }
    assert_eq!(fs::read_to_string(bed.at().join("a")).unwrap(), "4");
    bed.close();
}

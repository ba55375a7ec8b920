//! Every call on every kind of file, here and on a file system of the kernel's own: the same answers, and the same
//! tree afterwards.

mod support;

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fuse::MountOptions;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
    Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use support::{Bed, difference, reference, tree, usable};

/// Names that a tree of all kinds of files has, and names that it does not have.
const NAMES: [&str; 23] = [
    "file",
    "empty",
    "other",
    "other name",
    "dir",
    "full",
    "full/inside",
    "full/sub",
    "full/new",
    "to_file",
    "to_dir",
    "dangling",
    "loop",
    "fifo",
    "socket",
    "device",
    "disk",
    "missing",
    "file/below",
    "missing/below",
    "dir/.",
    ".",
    "LONG",
];

fn path(base: &Path, name: &str) -> PathBuf {
    match name {
        "LONG" => base.join("x".repeat(256)),
        name => base.join(name),
    }
}

/// Makes the tree; what is there is removed.
fn prepare(base: &Path) {
    if base.exists() {
        std::fs::remove_dir_all(base).unwrap();
    }
    std::fs::create_dir(base).unwrap();
    let at = |name: &str| base.join(name);
    std::fs::write(at("file"), b"0123456789").unwrap();
    std::fs::write(at("empty"), b"").unwrap();
    std::fs::write(at("other"), vec![7; 5000]).unwrap();
    std::fs::hard_link(at("other"), at("other name")).unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/inside"), b"in").unwrap();
    std::fs::create_dir(at("full/sub")).unwrap();
    for (name, target) in [("to_file", "file"), ("to_dir", "full"), ("dangling", "nowhere"), ("loop", "loop")]
    {
        std::os::unix::fs::symlink(target, at(name)).unwrap();
    }
    for (name, kind) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), 0).unwrap();
    }
    // Device numbers without a driver; only root may make such nodes.
    if rustix::process::geteuid().is_root() {
        for (name, kind) in [("device", FileType::CharacterDevice), ("disk", FileType::BlockDevice)] {
            let number = rustix::fs::makedev(0, 7);
            rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o600), number).unwrap();
        }
    }
}

/// Where devices are opened as little as on the file system at `theirs`.
fn bed_like(theirs: &Path) -> Bed {
    let flags = rustix::fs::statvfs(theirs).unwrap().f_flag;
    let like_mount = MountOptions::default();
    let devices = like_mount.devices && !flags.contains(rustix::fs::StatVfsMountFlags::NODEV);
    Bed::with(256 << 20, &[], MountOptions { source: "tank/fs".into(), devices, ..like_mount })
}

type OnOne = Box<dyn Fn(&Path) -> Result<String>>;
type OnTwo = Box<dyn Fn(&Path, &Path) -> Result<String>>;
type Call = (String, OnOne);

fn done<T>(result: Result<T>) -> Result<String> {
    result.map(|_| String::new())
}

fn open(path: &Path, flags: OFlags) -> Result<rustix::fd::OwnedFd> {
    rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::from_raw_mode(0o666))
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// Adds a call to a list, with words for what it does.
type Add<'a> = &'a mut dyn FnMut(&str, OnOne);

/// Calls on one path.
fn calls_on(name: &'static str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut add = |what: &str, call: OnOne| {
        calls.push((format!("{what} {name}"), Box::new(move |base: &Path| call(&path(base, name)))));
    };
    for group in [openings, names, looks, xattrs, ranges, limits, handles, strange_paths] {
        group(&mut add);
    }
    calls
}

/// Opening it in each way.
fn openings(add: Add<'_>) {
    let flags = [
        ("read", OFlags::RDONLY),
        ("write", OFlags::WRONLY),
        ("both", OFlags::RDWR),
        ("create", OFlags::RDWR | OFlags::CREATE),
        ("exclusive", OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL),
        ("truncate", OFlags::WRONLY | OFlags::TRUNC),
        ("create, truncate", OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC),
        ("directory", OFlags::RDONLY | OFlags::DIRECTORY),
        ("no link", OFlags::RDONLY | OFlags::NOFOLLOW),
        ("append", OFlags::WRONLY | OFlags::APPEND),
        ("have it without a name", OFlags::RDWR | OFlags::TMPFILE),
        ("only write it without a name", OFlags::WRONLY | OFlags::TMPFILE | OFlags::EXCL),
        ("only read it without a name", OFlags::RDONLY | OFlags::TMPFILE),
    ];
    for (word, flags) in flags {
        add(&format!("open to {word}"), Box::new(move |path| done(open(path, flags))));
    }
}

/// Making, removing and changing the node.
fn names(add: Add<'_>) {
    add("mkdir", Box::new(|path| done(rustix::fs::mkdir(path, Mode::from_raw_mode(0o2751)))));
    add("rmdir", Box::new(|path| done(rustix::fs::rmdir(path))));
    add("unlink", Box::new(|path| done(rustix::fs::unlink(path))));
    add("symlink", Box::new(|path| done(rustix::fs::symlink("target", path))));
    for kind in [FileType::Fifo, FileType::RegularFile, FileType::Socket] {
        let make =
            move |path: &Path| done(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o604), 0));
        add(&format!("mknod {kind:?}"), Box::new(make));
    }
    for size in [0, 5, 4096, 1 << 21] {
        let cut = move |path: &Path| {
            rustix::fs::ftruncate(open(path, OFlags::WRONLY)?, size)?;
            Ok(String::new())
        };
        add(&format!("truncate to {size}"), Box::new(cut));
    }
    for mode in [0, 0o4755, 0o2644, 0o1777] {
        let chmod = move |path: &Path| done(rustix::fs::chmod(path, Mode::from_raw_mode(mode)));
        add(&format!("chmod {mode:o}"), Box::new(chmod));
    }
    for flags in [AtFlags::empty(), AtFlags::SYMLINK_NOFOLLOW] {
        let (uid, gid) = (Uid::from_raw(12), Gid::from_raw(34));
        let chown = move |path: &Path| {
            rustix::fs::chmod(path, Mode::from_raw_mode(0o6755)).ok();
            done(rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags))
        };
        add(&format!("chown {flags:?}"), Box::new(chown));
        let touch = move |path: &Path| {
            let time = |tv_sec| Timespec { tv_sec, tv_nsec: 987_654_321 };
            let times = Timestamps { last_access: time(-5), last_modification: time(1_000_000_007) };
            rustix::fs::utimensat(CWD, path, &times, flags)?;
            let stat = rustix::fs::statat(CWD, path, flags)?;
            Ok(format!("{} {} {} {}", stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec))
        };
        add(&format!("utimens {flags:?}"), Box::new(touch));
    }
}

/// Reading what it says about itself.
fn looks(add: Add<'_>) {
    add("readlink", Box::new(|path| rustix::fs::readlink(path, Vec::new()).map(|t| format!("{t:?}"))));
    let list = |path: &Path| {
        let dir = rustix::fs::Dir::read_from(open(path, OFlags::RDONLY)?)?;
        let mut names = dir.map(|e| e.map(|e| format!("{:?}", e.file_name()))).collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names.join(" "))
    };
    add("readdir", Box::new(list));
    let stat = |path: &Path| {
        let stat = rustix::fs::stat(path)?;
        let size =
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { 0 } else { stat.st_size };
        Ok(format!("{:o} {} {size}", stat.st_mode, stat.st_nlink))
    };
    add("stat", Box::new(stat));
    add("access", Box::new(|path| done(rustix::fs::access(path, rustix::fs::Access::EXEC_OK))));
}

/// Its extended attributes.
fn xattrs(add: Add<'_>) {
    let long: &'static str = Box::leak(format!("user.{}", "n".repeat(251)).into_boxed_str());
    for name in ["user.a", "trusted.b", "security.c", "nonsense", "user.", long] {
        let set = move |path: &Path| {
            done(rustix::fs::setxattr(path, c(name).as_c_str(), b"value", XattrFlags::empty()))
        };
        add(&format!("setxattr {name}"), Box::new(set));
        let both = move |path: &Path| {
            rustix::fs::setxattr(path, c(name).as_c_str(), b"value", XattrFlags::CREATE)?;
            let again = rustix::fs::setxattr(path, c(name).as_c_str(), b"", XattrFlags::CREATE);
            let mut buf = [0; 3];
            let short = rustix::fs::getxattr(path, c(name).as_c_str(), &mut buf[..]);
            rustix::fs::setxattr(path, c(name).as_c_str(), b"vw", XattrFlags::REPLACE)?;
            let len = rustix::fs::getxattr(path, c(name).as_c_str(), &mut buf[..])?;
            let mut names = [0; 100];
            let names_len = rustix::fs::listxattr(path, &mut names[..])?;
            rustix::fs::removexattr(path, c(name).as_c_str())?;
            let gone = rustix::fs::removexattr(path, c(name).as_c_str());
            let names = String::from_utf8_lossy(&names[..names_len]).into_owned();
            // Other attributes (security labels) are not compared.
            let listed = names.split('\0').any(|listed| listed == name);
            Ok(format!("{again:?} {short:?} {:?} {listed} {gone:?}", &buf[..len]))
        };
        add(&format!("xattrs {name}"), Box::new(both));
        let replace = move |path: &Path| {
            done(rustix::fs::setxattr(path, c(name).as_c_str(), b"v", XattrFlags::REPLACE))
        };
        add(&format!("replace xattr {name}"), Box::new(replace));
    }
}

/// Space, holes, and contents by place.
fn ranges(add: Add<'_>) {
    add(
        "fallocate",
        Box::new(|path| {
            done(rustix::fs::fallocate(open(path, OFlags::WRONLY)?, FallocateFlags::empty(), 3, 100_000))
        }),
    );
    add(
        "fallocate and keep the size",
        Box::new(|path| {
            done(rustix::fs::fallocate(open(path, OFlags::WRONLY)?, FallocateFlags::KEEP_SIZE, 3, 100_000))
        }),
    );
    add(
        "punch",
        Box::new(|path| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            done(rustix::fs::fallocate(open(path, OFlags::WRONLY)?, flags, 3, 4))
        }),
    );
    for (what, from) in [
        ("data behind the end", SeekFrom::Data(5001)),
        ("hole behind the end", SeekFrom::Hole(5001)),
        ("data", SeekFrom::Data(0)),
        ("hole", SeekFrom::Hole(0)),
    ] {
        let seek =
            move |path: &Path| rustix::fs::seek(open(path, OFlags::RDONLY)?, from).map(|at| at.to_string());
        add(&format!("seek {what}"), Box::new(seek));
    }
    let write = |path: &Path| {
        let file = open(path, OFlags::RDWR)?;
        rustix::io::pwrite(&file, b"abc", 6)?;
        let mut buf = [0; 20];
        let len = rustix::io::pread(&file, &mut buf[..], 0)?;
        rustix::fs::fsync(&file)?;
        Ok(format!("{:?}", &buf[..len]))
    };
    add("write", Box::new(write));
}

/// Operations that are not allowed, or go too far.
fn limits(add: Add<'_>) {
    let misuse = |path: &Path| {
        // Each in the way it was not opened for; reading what is open as a directory.
        let (to_read, to_write) = (open(path, OFlags::RDONLY)?, open(path, OFlags::WRONLY));
        let mut buf = [0; 5];
        let wrong = rustix::io::pwrite(&to_read, b"abc", 0);
        let cut = rustix::fs::ftruncate(&to_read, 3);
        let read = rustix::io::pread(&to_read, &mut buf[..], 2);
        let other = to_write.as_ref().map(|file| rustix::io::pread(file, &mut [0; 5][..], 0)).err();
        Ok(format!("{wrong:?} {cut:?} {read:?} {buf:?} {other:?}"))
    };
    add("misuse", Box::new(misuse));
    let far = |path: &Path| {
        let file = open(path, OFlags::RDWR)?;
        let too_far = rustix::io::pwrite(&file, b"abc", i64::MAX as u64 - 1);
        let too_long = rustix::fs::ftruncate(&file, 1 << 63);
        let seek = [SeekFrom::Start(3), SeekFrom::End(-1), SeekFrom::End(-1_000_000), SeekFrom::Current(-3)]
            .map(|to| rustix::fs::seek(&file, to));
        Ok(format!("{too_far:?} {too_long:?} {seek:?}"))
    };
    add("go too far in", Box::new(far));
    let empty = |path: &Path| {
        let file = open(path, OFlags::RDWR)?;
        let written = rustix::io::pwrite(&file, b"", 100_000)?;
        let read = rustix::io::pread(&file, &mut [0; 5][..], 100_000)?;
        Ok(format!("{written} {read} {}", rustix::fs::fstat(&file)?.st_size))
    };
    add("write nothing to", Box::new(empty));
}

/// Open files in themselves, and locks.
fn handles(add: Add<'_>) {
    let statfs = |path: &Path| rustix::fs::statvfs(path).map(|found| found.f_namemax.to_string());
    add("statvfs", Box::new(statfs));
    let handle = |path: &Path| {
        let file = open(path, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&file)?;
        Ok(format!("{:o} {:?}", stat.st_mode, rustix::fs::fchmod(&file, Mode::RWXU)))
    };
    add("open as a place", Box::new(handle));
    for (word, operation) in [
        ("shared", rustix::fs::FlockOperation::NonBlockingLockShared),
        ("alone", rustix::fs::FlockOperation::NonBlockingLockExclusive),
    ] {
        let lock = move |path: &Path| {
            let (one, other) = (open(path, OFlags::RDONLY)?, open(path, OFlags::RDONLY)?);
            rustix::fs::flock(&one, operation)?;
            let twice = rustix::fs::flock(&other, operation);
            let alone = rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive);
            Ok(format!("{twice:?} {alone:?}"))
        };
        add(&format!("lock {word}"), Box::new(lock));
    }
}

/// Paths with a slash behind, appending, and files without a name.
fn strange_paths(add: Add<'_>) {
    let slash = |path: &Path| {
        let path = PathBuf::from(format!("{}/", path.display()));
        Ok(format!(
            "{:?} {:?} {:?} {:?}",
            rustix::fs::stat(&path).map(|found| found.st_mode),
            rustix::fs::readlink(&path, Vec::new()),
            rustix::fs::unlink(&path),
            open(&path, OFlags::RDWR | OFlags::CREATE).err(),
        ))
    };
    add("with a slash behind it,", Box::new(slash));
    let append = |path: &Path| {
        let file = open(path, OFlags::RDWR | OFlags::APPEND)?;
        rustix::io::write(&file, b"abc")?;
        rustix::io::write(&file, b"def")?;
        Ok(rustix::fs::fstat(&file)?.st_size.to_string())
    };
    add("append", Box::new(append));
    for (word, flags) in [("", OFlags::empty()), (" that stays so", OFlags::EXCL)] {
        let unnamed = move |path: &Path| {
            let file = open(path, OFlags::RDWR | OFlags::TMPFILE | flags)?;
            rustix::io::pwrite(&file, b"abc", 6)?;
            let before = rustix::fs::fstat(&file)?;
            let held = format!("/proc/self/fd/{}", file.as_raw_fd());
            let link = |to: &str| {
                rustix::fs::linkat(CWD, held.as_str(), CWD, path.join(to), AtFlags::SYMLINK_FOLLOW)
            };
            let links = [link("named"), link("named"), link("again")];
            let after = rustix::fs::fstat(&file)?;
            let mut buf = [0; 20];
            let len = rustix::io::pread(&file, &mut buf[..], 0)?;
            Ok(format!(
                "{:o} {} {} {links:?} {} {:?}",
                before.st_mode,
                before.st_nlink,
                before.st_size,
                after.st_nlink,
                &buf[..len]
            ))
        };
        add(&format!("a file without a name{word} in"), Box::new(unnamed));
    }
}

/// Calls on two paths.
fn calls_between(one: &'static str, other: &'static str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut add = |what: &str, call: OnTwo| {
        let call = move |base: &Path| call(&path(base, one), &path(base, other));
        calls.push((format!("{what} {one} to {other}"), Box::new(call)));
    };
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    for flags in [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE, both] {
        let rename = move |a: &Path, b: &Path| done(rustix::fs::renameat_with(CWD, a, CWD, b, flags));
        add(&format!("rename {flags:?}"), Box::new(rename));
    }
    add("link", Box::new(|a, b| done(rustix::fs::linkat(CWD, a, CWD, b, AtFlags::empty()))));
    let follow = AtFlags::SYMLINK_FOLLOW;
    add("link what is meant by", Box::new(move |a, b| done(rustix::fs::linkat(CWD, a, CWD, b, follow))));
    let copy = |a: &Path, b: &Path| {
        let (from, to) = (open(a, OFlags::RDONLY)?, open(b, OFlags::WRONLY)?);
        rustix::fs::copy_file_range(&from, Some(&mut 2), &to, Some(&mut 1), 6)
            .map(|copied| copied.to_string())
    };
    add("copy a range of", Box::new(copy));
    calls
}

/// Where the answers may differ, and why.
fn may_differ(call: &str) -> bool {
    // The kernel itself answers for directories, and differently for FUSE.
    call.starts_with("seek")
        && ["dir", "full", "full/sub", "to_dir", "."].iter().any(|dir| call.ends_with(dir))
}

fn compare(calls: Vec<Call>, ours: &Path, theirs: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut fresh = false;
    for (what, call) in calls {
        if !fresh {
            prepare(ours);
            prepare(theirs);
        }
        let (our, their) = (call(ours), call(theirs));
        // A failed call must change nothing; the comparison after the next successful call shows this.
        fresh = our.is_err() && their.is_err();
        if our != their && !may_differ(&what) {
            wrong.push(format!("{what}: {our:?}, not {their:?}"));
        } else if !fresh && let Some(difference) = difference(ours, theirs) {
            wrong.push(format!("{what}: {our:?}, then {difference}"));
        }
    }
    if fresh && let Some(difference) = difference(ours, theirs) {
        wrong.push(format!("calls that failed: {difference}"));
    }
    wrong
}

#[test]
fn every_call_on_every_kind_of_file_answers_as_linux_does() {
    if !usable() {
        return;
    }
    let theirs = reference();
    let bed = bed_like(theirs.path());
    let (ours, theirs) = (bed.at().join("t"), theirs.path().join("t"));
    let mut wrong = Vec::new();
    for name in NAMES {
        wrong.extend(compare(calls_on(name), &ours, &theirs));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    bed.finish();
}

#[test]
fn every_call_on_two_kinds_of_files_answers_as_linux_does() {
    if !usable() {
        return;
    }
    let theirs = reference();
    let bed = bed_like(theirs.path());
    let (ours, theirs) = (bed.at().join("t"), theirs.path().join("t"));
    let mut wrong = Vec::new();
    for one in NAMES {
        for other in NAMES {
            wrong.extend(compare(calls_between(one, other), &ours, &theirs));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    bed.finish();
}

#[test]
fn users_may_do_what_linux_lets_them_do() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    let theirs = reference();
    std::fs::set_permissions(theirs.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // As root, as an owner, as a member of the group, as another user.
    let script = r#"
        umask 022
        as() { setpriv --reuid="$1" --regid="$2" --clear-groups bash -c "$3" 2>&1 | sed 's/^bash: line [0-9]*: //'; }
        show() { stat -c '%n %a %u:%g %h' "$@" 2>&1; }
        as 1001 2001 'mkdir mine; echo a > mine/f; chmod 6755 mine/f; echo b > mine/g; chmod 2644 mine/g'
        show mine mine/f mine/g
        chmod 777 mine/f; chmod u+s,g+s mine/f; show mine/f
        as 1002 2002 'echo more >> mine/f'; show mine/f
        chmod 6777 mine/f; as 1002 2002 'truncate -s 1 mine/f'; show mine/f
        chmod 6777 mine/f; echo root >> mine/f; show mine/f
        chmod 6755 mine/f; chown 1001:2001 mine/f; show mine/f
        chmod 6644 mine/g; chown 1001:2002 mine/g; show mine/g
        as 1001 2001 'chgrp 2002 mine/f'; as 1002 2002 'chmod 700 mine/f'; as 1002 2002 'rm -f mine/f'; show mine/f
        mkdir shared; chmod 1777 shared
        as 1001 2001 'echo x > shared/x'; as 1002 2002 'rm -f shared/x; mv shared/x shared/y'; show shared/*
        mkdir group; chgrp 2001 group; chmod 2775 group
        as 1001 2001 'touch group/f; mkdir group/d; ln -s f group/l; mkfifo group/p'
        show group/f group/d group/l group/p
        as 1002 2002 'touch group/no'; show group
        as 1001 2001 'umask 077; touch mine/u; mkdir mine/v; mknod mine/w p'; show mine/u mine/v mine/w
        as 1001 2001 'touch -d @5 mine/u'; as 1002 2002 'touch -d @5 mine/u'; stat -c %Y mine/u
        chmod 0 mine/u; as 1001 2001 'cat mine/u'; as 1002 2002 'cat mine/u'; as 1002 2002 'ls mine/v'
        as 1001 2001 'chmod 2777 mine/u'; chgrp 2002 mine/u; as 1001 2001 'chmod 2777 mine/u'; show mine/u
        as 1001 2001 'cp /bin/true mine/t; chmod 4755 mine/t; mine/t && echo runs'
        unnamed='import os, sys; fd = os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o6666); s = os.fstat(fd)
print(oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink); os.write(fd, b"x")
os.link("/proc/self/fd/%d" % fd, sys.argv[2], src_dir_fd=fd)'
        for where in mine shared group; do
            as 1001 2001 "python3 -c '$unnamed' $where $where/unnamed"; as 1002 2002 "python3 -c '$unnamed' $where $where/by_other"
            show $where $where/unnamed $where/by_other
        done
        as 1001 2001 "umask 077; python3 -c '$unnamed' shared mine/from_shared; python3 -c '$unnamed' shared /dev/null"; show mine/from_shared
        as 1002 2002 'ln mine/t shared/t'; as 1001 2001 'ln mine/t shared/t'; show mine/t
    "#;
    let (ours, theirs) = (support::shell(&bed.at(), script), support::shell(theirs.path(), script));
    assert!(theirs.contains("runs"), "{theirs}");
    assert_eq!(ours, theirs);
    bed.finish();
}

#[test]
fn the_root_keeps_a_name_for_snapshots() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let name = bed.at().join(".zfs");
    assert_eq!(rustix::fs::mkdir(&name, Mode::RWXU).unwrap_err(), Errno::EXIST);
    assert_eq!(open(&name, OFlags::CREATE | OFlags::WRONLY).unwrap_err(), Errno::ISDIR);
    std::fs::write(bed.at().join("a"), b"a").unwrap();
    // A file cannot become a folder.
    assert_eq!(rustix::fs::rename(bed.at().join("a"), &name).unwrap_err(), Errno::ISDIR);
    std::fs::create_dir(bed.at().join("b")).unwrap();
    assert_eq!(rustix::fs::rename(bed.at().join("b"), &name).unwrap_err(), Errno::EXIST);
    assert_eq!(rustix::fs::rename(&name, bed.at().join("c")).unwrap_err(), Errno::EXIST);
    assert_eq!(rustix::fs::rmdir(&name).unwrap_err(), Errno::EXIST);
    bed.set("snapdir", 2);
    bed.mounted().look_at_properties();
    assert_eq!(rustix::fs::stat(&name).unwrap_err(), Errno::NOENT);
    assert_eq!(open(&name, OFlags::CREATE | OFlags::WRONLY).unwrap_err(), Errno::EXIST);
    assert_eq!(rustix::fs::mkdir(&name, Mode::RWXU).unwrap_err(), Errno::EXIST);
    assert_eq!(rustix::fs::rename(bed.at().join("a"), &name).unwrap_err(), Errno::EXIST);
    std::fs::create_dir(bed.at().join("d")).unwrap();
    std::fs::create_dir(bed.at().join("d/.zfs")).unwrap();
    assert_eq!(tree(&bed.at()).len(), 4);
    bed.finish();
}

#[test]
fn operations_missing_in_the_kernel_interface_are_refused() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let file = bed.at().join("f");
    std::fs::write(&file, b"0123456789").unwrap();
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        let result = rustix::fs::fallocate(open(&file, OFlags::RDWR).unwrap(), flags, 0, 4096);
        assert_eq!(result.unwrap_err(), Errno::OPNOTSUPP, "{flags:?}");
    }
    let zero = FallocateFlags::ZERO_RANGE;
    rustix::fs::fallocate(open(&file, OFlags::RDWR).unwrap(), zero | FallocateFlags::KEEP_SIZE, 8, 100)
        .unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"01234567\0\0");
    rustix::fs::fallocate(open(&file, OFlags::RDWR).unwrap(), zero, 4, 8).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"0123\0\0\0\0\0\0\0\0");
    assert!(file.as_os_str().as_bytes().len() < 4096);
    bed.finish();
}

//! Permission checks of a session, compared with what the kernel does on a file system of its own: the same calls by the
//! same users on the same tree give the same answers and leave the same modes and owners.
//!
//! The comparison needs root, which alone can act as other users. Without root it prints this and checks nothing.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use format::acl::{PosixAcl, PosixEntry, PosixTag};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use support::Bed;
use zpl::session::permission::Access;
use zpl::session::{
    Caller, Change, Checks, Creation, Name, Opening, Position, Rename, Settings, Target, When,
};
use zpl::{Error, FileKind, Filesystem, NewNode, ObjectId, Session, SetAttr, Time, XattrMode};

const ACCESS_ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// Trees that are made up, each for calls of every user.
const TREES: u64 = 40;
/// Calls on each tree, drawn from all of them.
const CALLS: u64 = 40;

/// The caller: user, first group, others.
const USERS: [(u32, u32, &[u32]); 5] =
    [(0, 0, &[]), (10, 20, &[]), (11, 20, &[30]), (12, 40, &[20]), (13, 50, &[])];

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// A node of the tree: its path, and the attributes that decide who may use it.
#[derive(Clone)]
struct Plan {
    path: &'static str,
    kind: FileKind,
    mode: u32,
    uid: u32,
    gid: u32,
    acl: Option<Vec<u8>>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { path, kind, mode, uid, gid, acl } = self;
        let acl = acl.as_ref().map(|acl| PosixAcl::decode(acl).unwrap());
        write!(f, "\n  {path} ({kind:?}) {mode:04o} of {uid}:{gid}, {acl:?}")
    }
}

fn any_acl(chance: &mut Chance) -> Vec<u8> {
    let mut perm = |tag| PosixEntry { tag, perm: chance.below(8) as u8 };
    let entries = [
        PosixTag::UserObj,
        PosixTag::User(11),
        PosixTag::User(13),
        PosixTag::GroupObj,
        PosixTag::Group(30),
        PosixTag::Group(40),
        PosixTag::Mask,
        PosixTag::Other,
    ];
    PosixAcl::new(entries.map(&mut perm).to_vec()).unwrap().encode()
}

/// A tree with modes and owners by chance. Directories are mostly open, else nothing in them is reached.
fn tree(chance: &mut Chance) -> Vec<Plan> {
    let dirs = [0o755, 0o777, 0o1777, 0o2777, 0o3777, 0o711, 0o733, 0o750, 0o555, 0o700, 0o057];
    let nodes = [
        ("one", FileKind::Directory),
        ("two", FileKind::Directory),
        ("one/file", FileKind::Regular),
        ("one/sub", FileKind::Directory),
        ("one/fifo", FileKind::Fifo),
        ("two/taken", FileKind::Regular),
    ];
    let mut plan = Vec::new();
    for (path, kind) in nodes {
        let is_dir = kind == FileKind::Directory;
        let any = chance.below(0o1000) as u32 | chance.of(&[0, 0, 0o4000, 0o2000, 0o6000]);
        let mode = if is_dir { chance.of(&dirs) } else { any };
        let acl = (kind != FileKind::Fifo && chance.below(3) == 0).then(|| any_acl(chance));
        let (uid, gid) = (chance.of(&[0, 10, 10, 11, 12]), chance.of(&[0, 20, 20, 30, 40]));
        plan.push(Plan { path, kind, mode, uid, gid, acl });
    }
    plan
}

/// A call on the tree.
#[derive(Clone, Copy, Debug)]
enum Call {
    Look(&'static str),
    List(&'static str),
    May(&'static str, u32),
    Open(&'static str, bool, bool),
    Quiet(&'static str),
    Overwrite(&'static str),
    Make(&'static str, FileKind, u32),
    Unlink(&'static str),
    Rmdir(&'static str),
    Move(&'static str, &'static str, Rename),
    Link(&'static str, &'static str),
    Chmod(&'static str, u32),
    Chown(&'static str, Option<u32>, Option<u32>),
    Truncate(&'static str),
    Times(&'static str, Option<i64>, Option<i64>),
    Read(&'static str, &'static str),
    Set(&'static str, &'static str),
    Remove(&'static str, &'static str),
}

fn calls() -> Vec<Call> {
    let mut calls =
        vec![Call::Look("one/file"), Call::Look("one/missing"), Call::List("one"), Call::List("one/sub")];
    for path in ["one/file", "one/sub", "one/fifo"] {
        calls.extend((1..8).map(|bits| Call::May(path, bits)));
        calls.extend([0o640, 0o4755, 0o2755, 0o2640, 0o1777].map(|mode| Call::Chmod(path, mode)));
        for ids in
            [(None, Some(20)), (None, Some(30)), (Some(11), None), (Some(10), Some(20)), (Some(0), Some(0))]
        {
            calls.push(Call::Chown(path, ids.0, ids.1));
        }
        for times in [(None, None), (Some(7), Some(8)), (None, Some(9))] {
            calls.push(Call::Times(path, times.0, times.1));
        }
        for name in ["user.a", "trusted.a", "security.a", ACCESS_ACL, DEFAULT_ACL] {
            calls.extend([Call::Read(path, name), Call::Set(path, name), Call::Remove(path, name)]);
        }
    }
    for (reads, writes) in [(true, false), (false, true), (true, true)] {
        calls.push(Call::Open("one/file", reads, writes));
    }
    calls.extend([Call::Quiet("one/file"), Call::Overwrite("one/file"), Call::Truncate("one/file")]);
    for (kind, mode) in [
        (FileKind::Regular, 0o644),
        (FileKind::Regular, 0o2775),
        (FileKind::Regular, 0o6711),
        (FileKind::Directory, 0o755),
        (FileKind::Fifo, 0o600),
        (FileKind::Symlink, 0o777),
        (FileKind::CharDevice, 0o600),
    ] {
        calls.extend([Call::Make("one/new", kind, mode), Call::Make("two/taken", kind, mode)]);
    }
    calls.extend([Call::Unlink("one/file"), Call::Unlink("one/sub"), Call::Unlink("one/missing")]);
    calls.extend([Call::Rmdir("one/sub"), Call::Rmdir("one/file")]);
    for how in [Rename::Replace, Rename::Refuse] {
        for from in ["one/file", "one/sub", "one/missing"] {
            calls.extend([Call::Move(from, "two/new", how), Call::Move(from, "two/taken", how)]);
            calls.push(Call::Move(from, "one/new", how));
        }
    }
    calls.extend(["one/file", "one/sub"].map(|from| Call::Move(from, "two/taken", Rename::Exchange)));
    calls.extend([Call::Link("one/file", "two/new"), Call::Link("one/file", "two/taken")]);
    calls
}

/// The tree after a call: mode and owners of each node.
type Left = BTreeMap<String, (u32, u32, u32)>;

/// The tree in a folder of this machine.
struct Theirs(PathBuf);

fn value_of(name: &str) -> Vec<u8> {
    let plain = [(PosixTag::UserObj, 7), (PosixTag::GroupObj, 5), (PosixTag::Other, 5)];
    match name {
        ACCESS_ACL | DEFAULT_ACL => {
            PosixAcl::new(plain.map(|(tag, perm)| PosixEntry { tag, perm }).to_vec()).unwrap().encode()
        }
        _ => b"value".to_vec(),
    }
}

impl Theirs {
    fn make(base: &Path, plan: &[Plan]) -> Theirs {
        if base.exists() {
            std::fs::remove_dir_all(base).unwrap();
        }
        std::fs::create_dir(base).unwrap();
        for node in plan {
            let path = base.join(node.path);
            match node.kind {
                FileKind::Directory => std::fs::create_dir(&path).unwrap(),
                FileKind::Fifo => {
                    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from(0o600), 0).unwrap()
                }
                _ => std::fs::write(&path, b"0123456789").unwrap(),
            }
            chown(&path, Some(node.uid), Some(node.gid)).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(node.mode)).unwrap();
            if let Some(acl) = &node.acl {
                rustix::fs::setxattr(&path, ACCESS_ACL, acl, XattrFlags::empty()).unwrap();
            }
        }
        Theirs(base.to_owned())
    }

    /// Does the call as `user`, on a thread of its own: the kernel keeps these ids for each thread.
    fn call(&self, (uid, gid, groups): (u32, u32, &'static [u32]), call: Call) -> Result<(), Errno> {
        let base = self.0.clone();
        let act = move || {
            let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            rustix::thread::set_thread_groups(&groups).unwrap();
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            Theirs::act(&base, call)
        };
        std::thread::spawn(act).join().unwrap()
    }

    fn act(base: &Path, call: Call) -> Result<(), Errno> {
        let at = |path: &str| base.join(path);
        let open = |path: &str, flags: OFlags| {
            rustix::fs::open(at(path), flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        };
        match call {
            Call::Look(path) => rustix::fs::lstat(at(path)).map(drop),
            Call::List(path) => open(path, OFlags::RDONLY | OFlags::DIRECTORY).map(drop),
            Call::May(path, bits) => {
                let bits = rustix::fs::Access::from_bits_retain(bits as _);
                rustix::fs::accessat(CWD, at(path), bits, AtFlags::EACCESS)
            }
            Call::Open(path, reads, writes) => {
                let flags = match (reads, writes) {
                    (true, true) => OFlags::RDWR,
                    (false, true) => OFlags::WRONLY,
                    _ => OFlags::RDONLY,
                };
                open(path, flags).map(drop)
            }
            Call::Quiet(path) => open(path, OFlags::RDONLY | OFlags::NOATIME).map(drop),
            Call::Overwrite(path) => {
                let file = open(path, OFlags::WRONLY)?;
                rustix::io::write(&file, b"x").map(drop)
            }
            Call::Make(path, kind, mode) => Theirs::make_one(&at(path), kind, Mode::from(mode)),
            Call::Unlink(path) => rustix::fs::unlink(at(path)),
            Call::Rmdir(path) => rustix::fs::rmdir(at(path)),
            Call::Move(from, to, how) => {
                let flags = match how {
                    Rename::Replace => RenameFlags::empty(),
                    Rename::Refuse => RenameFlags::NOREPLACE,
                    Rename::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)
            }
            Call::Link(from, to) => rustix::fs::link(at(from), at(to)),
            Call::Chmod(path, mode) => rustix::fs::chmod(at(path), Mode::from(mode)),
            Call::Chown(path, uid, gid) => {
                rustix::fs::chown(at(path), uid.map(Uid::from_raw), gid.map(Gid::from_raw))
            }
            Call::Truncate(path) => {
                // As `truncate`, which `rustix` lacks: permission is asked for when it is opened.
                let file = open(path, OFlags::WRONLY)?;
                rustix::fs::ftruncate(&file, 3)
            }
            Call::Times(path, atime, mtime) => {
                let time = |secs: Option<i64>| match secs {
                    Some(tv_sec) => Timespec { tv_sec, tv_nsec: 0 },
                    None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
                };
                let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::empty())
            }
            Call::Read(path, name) => rustix::fs::getxattr(at(path), name, &mut [0; 256]).map(drop),
            Call::Set(path, name) => {
                rustix::fs::setxattr(at(path), name, &value_of(name), XattrFlags::empty())
            }
            Call::Remove(path, name) => rustix::fs::removexattr(at(path), name),
        }
    }

    fn make_one(path: &Path, kind: FileKind, mode: Mode) -> Result<(), Errno> {
        let node = |kind, number| rustix::fs::mknodat(CWD, path, kind, mode, number);
        match kind {
            FileKind::Directory => rustix::fs::mkdir(path, mode),
            FileKind::Symlink => rustix::fs::symlink("target", path),
            FileKind::Fifo => node(FileType::Fifo, 0),
            FileKind::CharDevice => node(FileType::CharacterDevice, rustix::fs::makedev(0, 7)),
            _ => node(FileType::RegularFile, 0),
        }
    }

    fn left(&self) -> Left {
        let mut left = Left::new();
        for dir in ["one", "two", "one/sub", "two/new", "one/new", "two/taken"] {
            let Ok(entries) = std::fs::read_dir(self.0.join(dir)) else { continue };
            for entry in entries.map(Result::unwrap) {
                let stat = entry.path().symlink_metadata().unwrap();
                let name = format!("{dir}/{}", entry.file_name().to_str().unwrap());
                left.insert(name, (stat.mode(), stat.uid(), stat.gid()));
            }
        }
        left
    }
}

/// The tree in a pool, reached through a session that checks.
struct Ours<'a> {
    fs: &'a Filesystem,
    session: &'a Session,
    top: ObjectId,
}

impl<'a> Ours<'a> {
    fn make(fs: &'a Filesystem, session: &'a Session, name: &str, plan: &[Plan]) -> Ours<'a> {
        let new = NewNode::new(FileKind::Directory, 0o755);
        let top = fs.create(fs.root(), name.as_bytes(), &new).unwrap();
        for node in plan {
            let (dir, name) = match node.path.split_once('/') {
                Some((dir, name)) => (fs.lookup(top, dir.as_bytes()).unwrap().unwrap().0, name),
                None => (top, node.path),
            };
            let new = NewNode { uid: node.uid, gid: node.gid, ..NewNode::new(node.kind, node.mode) };
            let id = fs.create(dir, name.as_bytes(), &new).unwrap();
            if node.kind == FileKind::Regular {
                fs.write(id, 0, b"0123456789").unwrap();
            }
            if let Some(acl) = &node.acl {
                fs.xattr_set(id, ACCESS_ACL.as_bytes(), acl, XattrMode::Either).unwrap();
            }
            // Writing and ACLs leave the mode as it is planned, as on the other side.
            let special = node.mode & 0o7000 | fs.stat(id).unwrap().mode & 0o777;
            if fs.stat(id).unwrap().mode != special {
                fs.setattr(id, &SetAttr { mode: Some(special), ..SetAttr::default() }).unwrap();
            }
        }
        Ours { fs, session, top }
    }

    /// The directory of `path`, looked up as the caller, and the last name.
    fn parent(&self, by: &Caller, path: &'static str) -> Result<Name<'static>, Error> {
        let Some((dir, name)) = path.split_once('/') else {
            return Ok(Name { dir: self.top, name: path.as_bytes() });
        };
        let dir = self.entry(by, Name { dir: self.top, name: dir.as_bytes() })?;
        Ok(Name { dir, name: name.as_bytes() })
    }

    fn entry(&self, by: &Caller, at: Name<'_>) -> Result<ObjectId, Error> {
        match self.session.lookup(by, at.dir, at.name)? {
            Some(Target::Object(id)) => Ok(id),
            _ => Err(Error::NotFound),
        }
    }

    fn find(&self, by: &Caller, path: &'static str) -> Result<ObjectId, Error> {
        self.entry(by, self.parent(by, path)?)
    }

    fn call(&self, by: &Caller, call: Call) -> Result<(), Error> {
        let session = self.session;
        let reading = Opening { reads: true, writes: false, appends: false, is_quiet: false };
        let writing = Opening { reads: false, writes: true, ..reading };
        let set = |path, change: Change| session.set_attributes(by, self.find(by, path)?, &change);
        match call {
            Call::Look(path) => self.find(by, path).map(drop),
            Call::List(path) => session.list(by, self.find(by, path)?, 0).map(drop),
            Call::May(path, bits) => session.demand(by, self.find(by, path)?, Access::of_bits(bits)),
            Call::Open(path, reads, writes) => {
                session.open(by, self.find(by, path)?, Opening { reads, writes, ..reading }).map(drop)
            }
            Call::Quiet(path) => {
                session.open(by, self.find(by, path)?, Opening { is_quiet: true, ..reading }).map(drop)
            }
            Call::Overwrite(path) => {
                let file = self.find(by, path)?;
                session.open(by, file, writing)?;
                session.write(by, Position { file, offset: 0 }, b"x")
            }
            Call::Make(path, kind, mode) => {
                let Name { dir, name } = self.parent(by, path)?;
                let (name, rdev) = (name.to_vec(), rustix::fs::makedev(0, 7) as u32);
                let wanted = Creation { dir, name, kind, mode, umask: 0, rdev };
                match kind {
                    FileKind::Symlink => session.symlink(by, &wanted, b"target").map(drop),
                    _ => session.create(by, &wanted).map(drop),
                }
            }
            Call::Unlink(path) => self.parent(by, path).and_then(|at| session.unlink(by, at.dir, at.name)),
            Call::Rmdir(path) => self.parent(by, path).and_then(|at| session.rmdir(by, at.dir, at.name)),
            Call::Move(from, to, how) => {
                session.rename(by, self.parent(by, from)?, self.parent(by, to)?, how)
            }
            Call::Link(from, to) => {
                let (id, to) = (self.find(by, from)?, self.parent(by, to)?);
                session.link(by, id, to.dir, to.name)
            }
            Call::Chmod(path, mode) => set(path, Change { mode: Some(mode), ..Change::default() }),
            Call::Chown(path, uid, gid) => set(path, Change { uid, gid, ..Change::default() }),
            Call::Truncate(path) => {
                session.open(by, self.find(by, path)?, writing)?;
                set(path, Change { size: Some(3), ..Change::default() })
            }
            Call::Times(path, atime, mtime) => {
                let time = |secs: Option<i64>| {
                    Some(secs.map_or(When::Now, |secs| When::At(Time { secs, nanos: 0 })))
                };
                set(path, Change { atime: time(atime), mtime: time(mtime), ..Change::default() })
            }
            Call::Read(path, name) => session.xattr(by, self.find(by, path)?, name.as_bytes()).map(drop),
            Call::Set(path, name) => {
                let value = value_of(name);
                session.set_xattr(by, self.find(by, path)?, (name.as_bytes(), &value), XattrMode::Either)
            }
            Call::Remove(path, name) => session.remove_xattr(by, self.find(by, path)?, name.as_bytes()),
        }
    }

    fn left(&self) -> Left {
        let mut left = Left::new();
        for dir in ["one", "two", "one/sub", "two/new", "one/new", "two/taken"] {
            let by = Caller::root();
            let Ok(id) = self.find(&by, dir) else { continue };
            let Ok(entries) = self.fs.entries(id) else { continue };
            for entry in entries.map(Result::unwrap) {
                if matches!(entry.name.as_slice(), b"." | b"..") {
                    continue;
                }
                let stat = self.fs.stat(entry.id).unwrap();
                let name = format!("{dir}/{}", String::from_utf8(entry.name).unwrap());
                left.insert(name, (stat.mode | stat.kind.mode() as u32, stat.uid, stat.gid));
            }
        }
        left
    }
}

/// Whether the folder is on a file system that keeps everything that the comparison is about.
fn is_complete(folder: &Path) -> bool {
    let file = folder.join("probe");
    std::fs::write(&file, b"").unwrap();
    let acl = any_acl(&mut Chance(1));
    let set = |name, value: &[u8]| rustix::fs::setxattr(&file, name, value, XattrFlags::empty()).is_ok();
    let device = rustix::fs::mknodat(
        CWD,
        folder.join("device"),
        FileType::CharacterDevice,
        Mode::from(0o600),
        rustix::fs::makedev(0, 7),
    );
    set("user.a", b"1")
        && set("trusted.a", b"1")
        && set("security.a", b"1")
        && set(ACCESS_ACL, &acl)
        && device.is_ok()
}

/// Linux may refuse a link to a file of another user, by a setting of its own and not by POSIX.
fn is_hardened(call: Call) -> bool {
    matches!(call, Call::Link(..))
        && std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|set| set.trim() != "0")
}

#[test]
fn a_session_answers_every_user_as_the_kernel_does() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not compared with the kernel: only root acts as other users");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    if !is_complete(folder.path()) {
        eprintln!(
            "not compared with the kernel: the file system of temporary files lacks ACLs, xattrs or devices"
        );
        return;
    }
    rustix::process::umask(Mode::empty());
    let bed = Bed::new(31, &[("acltype", 1)], 0, 0);
    let session = Session::new(bed.fs().clone(), Checks::Here, &Settings::default(), (0, 0));
    let (calls, base) = (calls(), folder.path().join("tree"));
    let (mut chance, mut granted, mut refused) = (Chance(7), 0, 0);
    for number in 0..TREES {
        let plan = tree(&mut chance);
        for turn in 0..CALLS {
            let (call, user) = (chance.of(&calls), chance.of(&USERS));
            if is_hardened(call) && user.0 != 0 {
                continue;
            }
            let ours = Ours::make(bed.fs(), &session, &format!("{number}-{turn}"), &plan);
            let theirs = Theirs::make(&base, &plan);
            assert_eq!(ours.left(), theirs.left(), "the trees differ before any call: {plan:?}");
            let by = Caller::new(user.0, user.1, user.2);
            let wanted = theirs.call(user, call).map_err(Errno::raw_os_error);
            let found = ours.call(&by, call).map_err(|error| error.errno());
            let said = format!("{call:?} by {user:?}, tree {number}: {plan:?}");
            assert_eq!(found, wanted, "{said}");
            assert_eq!(ours.left(), theirs.left(), "{said}");
            granted += u64::from(wanted.is_ok());
            refused += u64::from(matches!(wanted, Err(1 | 13)));
        }
    }
    assert!(
        granted > TREES * CALLS / 5 && refused > TREES * CALLS / 5,
        "{granted} granted, {refused} refused"
    );
}

//! The guarantees of a session to front ends, tested without one: handles, name spaces, notices, `.zfs`, and who checks
//! permissions.

mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};

use support::Bed;
use zpl::session::{
    Atime, Cache, Caller, Change, Checks, Cover, Creation, Folder, Meaning, Notice, Opening, Position,
    SNAPSHOT, Settings, Target,
};
use zpl::{CONTROL, Error, FileKind, NewNode, ObjectId, Session, XattrMode};

const READING: Opening = Opening { reads: true, writes: false, appends: false, is_quiet: false };

fn alice() -> Caller {
    Caller::new(1000, 100, &[])
}

fn bob() -> Caller {
    Caller::new(1001, 100, &[])
}

fn session(bed: &Bed, checks: Checks) -> Session {
    Session::new(bed.fs().clone(), checks, &Settings::default(), (0, 0))
}

fn creation(dir: ObjectId, name: &str, mode: u32) -> Creation {
    Creation { dir, name: name.into(), kind: FileKind::Regular, mode, umask: 0o022, rdev: 0 }
}

/// A session that checks, with a root directory that everybody may write.
fn open_to_all(bed: &Bed) -> Session {
    let session = session(bed, Checks::Here);
    let change = Change { mode: Some(0o1777), ..Change::default() };
    session.set_attributes(&Caller::root(), session.root(), &change).unwrap();
    session
}

/// A cache that remembers its notices.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Cache for Told {
    fn forget(&self, notice: Notice<'_>) {
        self.0.lock().unwrap().push(format!("{notice:?}"));
    }
}

#[test]
fn a_file_that_is_held_outlives_its_name() {
    let bed = Bed::new(41, &[], 0, 0);
    let session = open_to_all(&bed);
    let (by, root) = (alice(), session.root());
    let file = session.create(&by, &creation(root, "f", 0o666)).unwrap();
    let held = session.hold(file).unwrap();
    assert_eq!((held.stat.uid, held.stat.gid, held.stat.mode), (1000, 100, 0o644));
    session.write(&by, Position { file, offset: 0 }, b"kept").unwrap();
    session.unlink(&by, root, b"f").unwrap();
    assert_eq!(session.lookup(&by, root, b"f").unwrap(), None);
    let mut data = [0; 9];
    assert_eq!(session.read(&by, Position { file, offset: 0 }, &mut data).unwrap(), 4);
    assert_eq!(&data[..4], b"kept");
    assert!(session.release(file, 1), "nobody holds it any more");
    assert!(matches!(session.stat(file), Err(Error::NotFound)));
    let unnamed = session.create_unnamed(&by, &creation(root, "", 0o600)).unwrap().stat.id;
    session.link(&by, unnamed, root, b"named").unwrap();
    session.release_all();
    assert_eq!(session.lookup(&by, root, b"named").unwrap(), Some(Target::Object(unnamed)));
}

#[test]
fn only_a_session_that_checks_refuses() {
    let bed = Bed::new(42, &[], 0, 0);
    let here = open_to_all(&bed);
    let file = here.create(&alice(), &creation(here.root(), "f", 0o600)).unwrap();
    let (at, mut data) = (Position { file, offset: 0 }, [0; 1]);
    assert!(matches!(here.open(&bob(), file, READING), Err(Error::Denied)));
    assert!(matches!(here.read(&bob(), at, &mut data), Err(Error::Denied)));
    assert!(matches!(here.records(&bob(), file), Err(Error::Denied)));
    assert!(matches!(here.unlink(&bob(), here.root(), b"f"), Err(Error::NotPermitted)), "sticky");
    assert!(here.resolve(&bob(), b"/f", false).is_ok());
    for checks in [Checks::Kernel, Checks::Holder] {
        let session = session(&bed, checks);
        assert!(session.open(&bob(), file, READING).is_ok());
        assert_eq!(session.read(&bob(), at, &mut data).unwrap(), 0);
    }
    let nothing = Settings { read_only: true, atime: Atime::Off, ..Settings::default() };
    let frozen = Session::new(bed.fs().clone(), Checks::Holder, &nothing, (0, 0));
    assert!(matches!(frozen.unlink(&Caller::root(), frozen.root(), b"f"), Err(Error::ReadOnly(_))));
    assert!(frozen.refuses_writes(file) && !here.refuses_writes(file));
}

#[test]
fn a_write_by_another_user_drops_set_ids_and_notifies_caches() {
    let bed = Bed::new(43, &[], 0, 0);
    let session = open_to_all(&bed);
    let told = Arc::new(Told::default());
    session.set_cache(told.clone());
    let root = session.root();
    let file = session.create(&alice(), &creation(root, "program", 0o6777)).unwrap();
    session.write(&Caller::root(), Position { file, offset: 0 }, b"by root").unwrap();
    assert_eq!(session.stat(file).unwrap().mode, 0o6755, "root's writes leave them");
    assert!(told.0.lock().unwrap().is_empty());
    session.write(&alice(), Position { file, offset: 0 }, b"by alice").unwrap();
    assert_eq!(session.stat(file).unwrap().mode, 0o755);
    session.cover(Path::new("program"), Cover::Tree).unwrap_err();
    assert_eq!(*told.0.lock().unwrap(), [format!("{:?}", Notice::Attributes(file))]);
}

#[test]
fn name_spaces_of_xattrs_have_their_users() {
    let bed = Bed::new(44, &[], 0, 0);
    let session = open_to_all(&bed);
    let (by, root) = (alice(), Caller::root());
    let file = session.create(&by, &creation(session.root(), "f", 0o644)).unwrap();
    let set =
        |by: &Caller, name: &str| session.set_xattr(by, file, (name.as_bytes(), b"value"), XattrMode::Either);
    set(&by, "user.a").unwrap();
    set(&root, "trusted.a").unwrap();
    set(&root, "security.a").unwrap();
    assert!(matches!(set(&by, "trusted.a"), Err(Error::NotPermitted)));
    assert!(matches!(set(&by, "other.a"), Err(Error::Unsupported(_))));
    assert!(matches!(set(&by, "user."), Err(Error::Invalid)));
    assert!(matches!(set(&by, "system.posix_acl_access"), Err(Error::Unsupported(_))), "acltype=off");
    let names = |by: &Caller| {
        let list = session.xattr_names(by, file).unwrap();
        let mut names: Vec<String> =
            list.split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.retain(|name| !name.is_empty());
        names.sort();
        names
    };
    assert_eq!(names(&by), ["security.a", "user.a"]);
    assert_eq!(names(&root), ["security.a", "trusted.a", "user.a"]);
    assert!(matches!(session.xattr(&by, file, b"trusted.a"), Err(Error::NoXattr)));
    assert_eq!(session.xattr(&by, file, b"user.a").unwrap(), b"value");
}

#[test]
fn snapshots_are_below_zfs_and_read_only() {
    // snapdir=visible
    let bed = Bed::new(45, &[("snapdir", 1)], 0, 0);
    let session = open_to_all(&bed);
    let (by, root) = (alice(), session.root());
    session.create(&by, &creation(root, "f", 0o644)).unwrap();
    bed.pool().snapshot(&["tank/fs@one".to_owned()], &[]).unwrap();
    let entries = session.list(&by, root, 0).unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(names, [b".".as_slice(), b"..", CONTROL, b"f"]);
    assert_eq!(
        session.find_in_control(Folder::Control, SNAPSHOT).unwrap(),
        Meaning::Folder(Folder::Snapshots)
    );
    assert!(matches!(session.find_in_control(Folder::Control, b"none"), Err(Error::NotFound)));
    let listed = session.list_control(Folder::Snapshots, 0).unwrap();
    assert_eq!(listed.last().unwrap().name, b"one");
    assert_eq!(session.folder_stat(Folder::Snapshots).unwrap().size, 3);
    let fs = session.fs().unwrap();
    let key = fs.snapshot_named(b"one").unwrap().unwrap();
    let within = session.of_snapshot(fs.open_snapshot(key, b"one").unwrap());
    let Some(Target::Object(file)) = within.lookup(&by, within.root(), b"f").unwrap() else {
        panic!("the snapshot has the file");
    };
    assert!(matches!(within.write(&by, Position { file, offset: 0 }, b"x"), Err(Error::ReadOnly(_))));
    assert!(matches!(within.unlink(&by, within.root(), b"f"), Err(Error::ReadOnly(_))));
}

#[test]
fn names_that_no_file_can_have_are_found_by_the_check() {
    let bed = Bed::new(71, &[], 0, 0);
    let fs = bed.fs();
    let file = fs.create(fs.root(), b"file", &NewNode::new(FileKind::Regular, 0o644)).unwrap();
    let root = fs.dataset().objset().object(fs.root()).unwrap();
    let entry = format::znode::Dirent::new(0o100_644, file).encode();
    let names: [&[u8]; 3] = [b"..", b"../x", b"/tmp/y"];
    let tx = fs.dataset().begin(pool::Hold::write(1 << 20)).unwrap();
    for name in names {
        dmu::zap::insert(&root, &tx, name, &format::zap::Value::from_u64(entry)).unwrap();
    }
    drop(tx);
    let mut found = Vec::new();
    zpl::check::check_filesystem(fs, &mut |problem| found.push(problem.to_string())).unwrap();
    for name in names {
        let text = format!("'{}', which no file can have", name.escape_ascii());
        assert!(found.iter().any(|problem| problem.contains(&text)), "{text}: {found:#?}");
    }
}

//! The promises of this crate to its callers, one story each.

mod support;

use format::acl::{PosixAcl, PosixEntry, PosixTag};
use storage::host::{Entropy, SeededEntropy};
use support::Bed;
use zpl::{Error, FileKind, NewNode, Reach, Replace, SetAttr, Time, Times, XattrMode};

fn file() -> NewNode {
    NewNode::new(FileKind::Regular, 0o644)
}

fn directory() -> NewNode {
    NewNode::new(FileKind::Directory, 0o755)
}

#[test]
fn a_small_file_has_one_block_and_a_large_one_records() {
    let bed = Bed::new(1, &[], 0, 0);
    let (fs, root) = (bed.fs(), bed.fs().root());
    let block = |id| fs.stat(id).unwrap().block_size;
    let id = fs.create(root, b"a", &file()).unwrap();
    assert_eq!(block(id), 512);
    fs.write(id, 0, &vec![1; 100_000]).unwrap();
    assert_eq!(block(id), 100_352);
    fs.write(id, 100_000, &vec![1; 1000]).unwrap();
    assert_eq!(block(id), 101_376);
    fs.write(id, 101_000, &vec![1; 100_000]).unwrap();
    assert_eq!(block(id), 128 << 10);
    fs.truncate(id, 10).unwrap();
    assert_eq!(block(id), 128 << 10);
    let id = fs.create(root, b"b", &file()).unwrap();
    fs.truncate(id, 1 << 30).unwrap();
    assert_eq!((block(id), fs.data_runs(id).unwrap()), (128 << 10, vec![]));
    fs.write(id, 500 << 20, b"x").unwrap();
    assert_eq!(fs.data_runs(id).unwrap(), [(500 << 20, 128 << 10)]);
    let id = fs.create_with(root, b"c", &file(), vec![7; 1000]).unwrap();
    assert_eq!((block(id), fs.read_all(id, 5000).unwrap()), (1024, vec![7; 1000]));
}

#[test]
fn an_open_file_lives_until_it_is_closed() {
    let bed = Bed::new(2, &[], 0, 0);
    let (fs, root) = (bed.fs(), bed.fs().root());
    let id = fs.create_with(root, b"a", &file(), b"still here".to_vec()).unwrap();
    fs.open_handle(id).unwrap();
    fs.open_handle(id).unwrap();
    fs.unlink(root, b"a").unwrap();
    assert_eq!(fs.read_all(id, 100).unwrap(), b"still here");
    bed.expect_sound();
    fs.close_handle(id).unwrap();
    assert_eq!(fs.stat(id).unwrap().nlink, 0);
    fs.close_handle(id).unwrap();
    assert!(matches!(fs.stat(id), Err(Error::NotFound)));
    assert!(matches!(fs.open_handle(id), Err(Error::NotFound)));
    bed.expect_sound();
}

#[test]
fn files_open_at_a_crash_are_freed_later() {
    let mut bed = Bed::new(3, &[], 0, 0);
    let fs = bed.fs().clone();
    let root = fs.root();
    let id = fs.create_with(root, b"a", &file(), vec![1; 5000]).unwrap();
    fs.xattr_set(id, b"user.x", &vec![2; 40_000], XattrMode::Either).unwrap();
    let dir = fs.create(root, b"d", &directory()).unwrap();
    fs.open_handle(id).unwrap();
    fs.open_handle(dir).unwrap();
    fs.rmdir(root, b"d").unwrap();
    assert!(matches!(fs.create(dir, b"too late", &file()), Err(Error::NotFound)));
    let other = fs.create(root, b"b", &file()).unwrap();
    fs.rename(root, b"b", root, b"a", Replace::Allowed).unwrap();
    fs.dataset().sync().unwrap();
    drop(fs);
    bed.crash();
    bed.reopen();
    let fs = bed.fs();
    assert_eq!(fs.stat(id).unwrap().nlink, 0);
    assert_eq!(fs.drain_unlinked().unwrap(), 2);
    assert_eq!(fs.drain_unlinked().unwrap(), 0);
    assert_eq!(fs.lookup(root, b"a").unwrap(), Some((other, FileKind::Regular)));
    bed.expect_sound();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn a_file_of_many_blocks_is_freed_in_steps() {
    let mut bed = Bed::new(4, &[("recordsize", 512), ("compression", 2)], 0, 0);
    let fs = bed.fs().clone();
    let id = fs.create(fs.root(), b"a", &file()).unwrap();
    fs.write(id, 0, &vec![5; 10 << 20]).unwrap();
    fs.write(id, 1 << 50, b"far away").unwrap();
    fs.dataset().sync().unwrap();
    fs.unlink(fs.root(), b"a").unwrap();
    assert!(matches!(fs.stat(id), Err(Error::NotFound)));
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn case_and_encoding_of_names_matter_as_the_dataset_says() {
    let bed = Bed::new(5, &[], 1, 0x10);
    let (fs, root) = (bed.fs(), bed.fs().root());
    let id = fs.create(root, "Résumé".as_bytes(), &file()).unwrap();
    let found = |name: &str| fs.lookup(root, name.as_bytes()).unwrap().map(|(id, _)| id);
    assert_eq!(found("RE\u{301}SUME\u{301}"), Some(id));
    assert!(matches!(fs.create(root, "résumé".as_bytes(), &file()), Err(Error::Exists)));
    assert!(matches!(fs.create(root, b"\xff", &file()), Err(Error::NotUtf8)));
    fs.rename(root, "RÉSUMÉ".as_bytes(), root, "rÉsumÉ".as_bytes(), Replace::Allowed).unwrap();
    let names = |dir| fs.entries(dir).unwrap().map(|e| e.unwrap().name).collect::<Vec<_>>();
    assert_eq!(names(root), ["rÉsumÉ".as_bytes()]);
    let sub = fs.create(root, b"Sub", &directory()).unwrap();
    fs.create(sub, b"B", &file()).unwrap();
    fs.rename(root, "résumé".as_bytes(), sub, b"b", Replace::Allowed).unwrap();
    assert_eq!(names(sub), [b"b"]);
    fs.unlink(sub, b"B").unwrap();
    fs.rmdir(root, b"sub").unwrap();
    bed.expect_sound();

    let bed = Bed::new(6, &[], 2, 0);
    let (fs, root) = (bed.fs(), bed.fs().root());
    fs.create(root, b"a", &file()).unwrap();
    fs.create(root, b"A", &file()).unwrap();
    fs.unlink(root, b"a").unwrap();
    assert_eq!(fs.lookup(root, b"a").unwrap(), None);
    bed.expect_sound();
}

#[test]
fn openzfs_finds_nothing_wrong_with_any_kind_of_node() {
    let mut bed = Bed::new(7, &[("xattr", 2)], 0, 0);
    let fs = bed.fs().clone();
    let (root, dice) = (fs.root(), SeededEntropy::new(7));
    let time = |secs| Time { secs, nanos: 5 };
    let times = Times { atime: time(1), mtime: time(-2), ctime: Some(time(3)), crtime: None };
    for (i, kind) in [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice]
        .into_iter()
        .enumerate()
    {
        let new = NewNode { rdev: 0xac8, uid: 7, gid: 8, times: Some(times), ..NewNode::new(kind, 0o600) };
        let id = fs.create(root, format!("node{i}").as_bytes(), &new).unwrap();
        let stat = fs.stat(id).unwrap();
        assert_eq!((stat.mtime, stat.ctime, stat.uid), (time(-2), time(3), 7));
        assert_eq!(stat.rdev, if kind.is_device() { 0xac8 } else { 0 });
    }
    for len in [1, 100, 200, 1000, 4095] {
        let target = vec![b'x'; len];
        let name = format!("link{len}");
        fs.symlink(root, name.as_bytes(), &NewNode::new(FileKind::Symlink, 0o777), &target).unwrap();
    }
    let dir = fs.create(root, b"many", &directory()).unwrap();
    for i in 0..3000 {
        let name = if i % 10 == 0 { format!("{i:060}") } else { format!("{i}") };
        let id = fs.create_with(dir, name.as_bytes(), &file(), vec![1; i % 700]).unwrap();
        if i % 50 == 0 {
            let mut value = vec![0; [10, 200, 3000, 33_000][i / 50 % 4]];
            dice.fill(&mut value);
            fs.xattr_set(id, b"user.one", &value, XattrMode::Create).unwrap();
            fs.xattr_set(id, b"user.two", b"2", XattrMode::Either).unwrap();
            assert_eq!(fs.xattr_get(id, b"user.one").unwrap(), Some(value));
        }
        if i % 100 == 0 {
            fs.xattr_remove(id, b"user.one").unwrap();
        }
    }
    assert_eq!(fs.stat(dir).unwrap().size, 3002);
    let mut seen = 0;
    let mut cookie = 0;
    loop {
        let batch = fs.readdir(dir, cookie).unwrap();
        let Some(last) = batch.iter().take(100).next_back() else { break };
        seen += batch.len().min(100);
        cookie = last.cookie;
    }
    assert_eq!(seen, 3002, "with . and ..");
    for i in (0..3000).filter(|i| i % 10 != 0 && i % 3 == 0) {
        fs.unlink(dir, format!("{i}").as_bytes()).unwrap();
    }
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
    bed.reopen();
    bed.fs().remove_tree(root, b"many").unwrap();
    bed.expect_sound();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn paths_lead_through_links() {
    let bed = Bed::new(8, &[], 0, 0);
    let (fs, root) = (bed.fs(), bed.fs().root());
    let link = NewNode::new(FileKind::Symlink, 0o777);
    let dir = fs.create(root, b"d", &directory()).unwrap();
    let id = fs.create(dir, b"f", &file()).unwrap();
    fs.symlink(root, b"to_d", &link, b"d/../d").unwrap();
    let to_f = fs.symlink(dir, b"to_f", &link, b"/to_d/f").unwrap();
    fs.symlink(root, b"loop", &link, b"loop").unwrap();
    assert_eq!(fs.resolve(b"/", false).unwrap(), root);
    assert_eq!(fs.resolve(b"/to_d/to_f", true).unwrap(), id);
    assert_eq!(fs.resolve(b"to_d/to_f", false).unwrap(), to_f);
    assert_eq!(fs.resolve(b"/to_d/", false).unwrap(), dir);
    assert_eq!(fs.resolve(b"/d/../../d/./f", false).unwrap(), id);
    assert!(matches!(fs.resolve(b"/loop/x", false), Err(Error::Loop)));
    assert!(matches!(fs.resolve(b"/d/f/", false), Err(Error::NotDir)));
    assert!(matches!(fs.resolve(b"/d/g", false), Err(Error::NotFound)));
    assert_eq!(fs.resolve_parent(b"/to_d/new/").unwrap(), (dir, &b"new"[..]));
}

#[test]
fn an_acl_and_the_mode_follow_each_other() {
    for xattr_in_sa in [1, 2] {
        let bed = Bed::new(9, &[("xattr", xattr_in_sa)], 0, 0);
        let fs = bed.fs();
        let id = fs.create(fs.root(), b"a", &file()).unwrap();
        let acl = |perms: [u8; 5]| {
            let tags =
                [PosixTag::UserObj, PosixTag::User(5), PosixTag::GroupObj, PosixTag::Mask, PosixTag::Other];
            let entries = tags.into_iter().zip(perms).map(|(tag, perm)| PosixEntry { tag, perm });
            PosixAcl::new(entries.collect()).unwrap().encode()
        };
        let name = b"system.posix_acl_access";
        fs.xattr_set(id, name, &acl([7, 6, 5, 4, 1]), XattrMode::Either).unwrap();
        assert_eq!(fs.stat(id).unwrap().mode, 0o741);
        fs.setattr(id, &SetAttr { mode: Some(0o620), ..SetAttr::default() }).unwrap();
        assert_eq!(fs.xattr_get(id, name).unwrap(), Some(acl([6, 6, 5, 2, 0])));
        assert!(matches!(fs.xattr_set(id, name, b"no acl", XattrMode::Either), Err(Error::Invalid)));
        bed.expect_sound();
    }
}

#[test]
fn many_threads_leave_a_sound_file_system() {
    let mut bed = Bed::new(10, &[], 0, 0);
    let fs = bed.fs().clone();
    let dirs: Vec<_> =
        (0..3).map(|i| fs.create(fs.root(), format!("d{i}").as_bytes(), &directory()).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (fs, dirs) = (&fs, &dirs);
            scope.spawn(move || {
                let dice = SeededEntropy::new(thread);
                let pick = || dirs[dice.below(3) as usize];
                let name = || format!("n{}", dice.below(12)).into_bytes();
                for i in 0..500 {
                    // Others are at the same names: any answer but damage is right.
                    let done = match dice.below(8) {
                        0 => fs.create(pick(), &name(), &file()).map(drop),
                        1 => fs.create(pick(), &name(), &directory()).map(drop),
                        2 => fs.rename(pick(), &name(), pick(), &name(), Replace::Allowed),
                        3 => fs.unlink(pick(), &name()),
                        4 => fs.rmdir(pick(), &name()),
                        5 => match fs.lookup(pick(), &name()) {
                            Ok(Some((id, FileKind::Regular))) => fs.link(id, pick(), &name()),
                            other => other.map(drop),
                        },
                        6 if i % 100 == 0 => fs.dataset().sync().map_err(Error::from),
                        _ => match fs.lookup(pick(), &name()) {
                            Ok(Some((id, FileKind::Regular))) => fs.write(id, dice.below(9000), &[7; 3000]),
                            other => other.map(drop),
                        },
                    };
                    if let Err(error) = done {
                        assert_ne!(error.errno(), 5, "{error}");
                    }
                }
            });
        }
    });
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&["--quick"]);
}

#[test]
fn a_full_pool_reports_it_and_allows_removals() {
    let mut bed = Bed::sized(80 << 20, 11, &[], 0, 0);
    let fs = bed.fs().clone();
    let (root, dice) = (fs.root(), SeededEntropy::new(11));
    let mut data = vec![0; 1 << 20];
    let mut written: Vec<Vec<u8>> = Vec::new();
    let full = loop {
        dice.fill(&mut data);
        let name = format!("f{}", written.len()).into_bytes();
        let done = fs.create(root, &name, &file()).and_then(|id| fs.write(id, 0, &data));
        written.push(name);
        if let Err(error) = done {
            break error;
        }
        assert!(written.len() < 80, "a pool of 80 MiB takes less");
    };
    assert!(matches!(full, Error::NoSpace | Error::Quota), "{full}");
    assert!(written.len() > 10, "but it takes some");
    for name in written.iter().filter(|name| fs.lookup(root, name).unwrap().is_some()) {
        fs.unlink(root, name).unwrap();
    }
    // Freed space can be used again two txgs later.
    fs.dataset().sync().unwrap();
    let id = fs.create(root, b"again", &file()).unwrap();
    fs.write(id, 0, &data).unwrap();
    assert_eq!(fs.read_all(id, 1 << 20).unwrap(), data);
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&["--quick"]);
}

#[test]
fn a_directory_does_not_move_into_itself() {
    let bed = Bed::new(12, &[], 0, 0);
    let (fs, root) = (bed.fs(), bed.fs().root());
    let a = fs.create(root, b"a", &directory()).unwrap();
    let b = fs.create(a, b"b", &directory()).unwrap();
    let rename = |from, to| fs.rename(root, from, to, b"x", Replace::Allowed);
    assert!(matches!(rename(b"a", b), Err(Error::Invalid)));
    assert!(matches!(rename(b"a", a), Err(Error::Invalid)));
    assert!(matches!(fs.rename(a, b"b", root, b"a", Replace::Allowed), Err(Error::NotEmpty)));
    assert!(matches!(fs.rename(a, b"b", root, b"a", Replace::Refused), Err(Error::Exists)));
    assert!(matches!(fs.rename(a, b".", root, b"c", Replace::Allowed), Err(Error::Invalid)));
    fs.rename(a, b"b", root, b"c", Replace::Refused).unwrap();
    assert_eq!(fs.lookup(b, b"..").unwrap(), Some((root, FileKind::Directory)));
    assert_eq!((fs.stat(a).unwrap().nlink, fs.stat(root).unwrap().nlink), (2, 4));
    bed.expect_sound();
}

#[test]
fn attributes_keep_the_values_that_were_set() {
    let bed = Bed::new(13, &[], 0, 0);
    let fs = bed.fs();
    let id = fs.create_with(fs.root(), b"a", &file(), vec![1; 3000]).unwrap();
    let time = |secs| Some(Time { secs, nanos: 999_999_999 });
    let set = SetAttr {
        mode: Some(0o7654),
        uid: Some(1000),
        gid: Some(u32::MAX - 1),
        size: Some(1000),
        atime: time(1),
        mtime: time(-5),
        ctime: time(3),
        crtime: time(4),
        projid: Some(77),
        flags: None,
    };
    fs.setattr(id, &set).unwrap();
    let stat = fs.stat(id).unwrap();
    assert_eq!((stat.mode, stat.uid, stat.gid, stat.size), (0o7654, 1000, u32::MAX - 1, 1000));
    let times = [stat.atime, stat.mtime, stat.ctime, stat.crtime].map(Some);
    assert_eq!((times, stat.projid), ([time(1), time(-5), time(3), time(4)], 77));
    fs.setattr(id, &SetAttr { flags: Some(format::znode::pflags::IMMUTABLE), ..SetAttr::default() }).unwrap();
    assert!(matches!(fs.write(id, 0, b"x"), Err(Error::NotPermitted)));
    assert!(matches!(fs.unlink(fs.root(), b"a"), Err(Error::NotPermitted)));
    bed.expect_sound();
}

#[test]
fn flags_of_a_node_forbid_what_they_forbid_in_openzfs() {
    use format::znode::pflags;
    use zpl::XattrMode::Either;
    let bed = Bed::new(29, &[], 0, 0);
    let fs = bed.fs();
    let id = fs.create_with(fs.root(), b"a", &file(), vec![1; 3000]).unwrap();
    fs.xattr_set(id, b"user.a", b"1", Either).unwrap();
    let now = Some(Time { secs: 5, nanos: 0 });
    let refused = |done: Result<(), Error>| assert!(matches!(done, Err(Error::NotPermitted)), "{done:?}");
    let flags = |flags| fs.setattr(id, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
    for flag in [pflags::IMMUTABLE, pflags::APPENDONLY] {
        flags(flag);
        refused(fs.setattr(id, &SetAttr { mode: Some(0o777), ..SetAttr::default() }));
        refused(fs.setattr(id, &SetAttr { uid: Some(1), ..SetAttr::default() }));
        refused(fs.setattr(id, &SetAttr { gid: Some(1), ..SetAttr::default() }));
        refused(fs.xattr_set(id, b"user.a", b"2", Either));
        refused(fs.xattr_set(id, b"user.b", b"2", Either));
        refused(fs.xattr_remove(id, b"user.a"));
        refused(fs.write(id, 0, b"x"));
        refused(fs.write(id, 2999, b"xy"));
        refused(fs.write_back(id, 0, b"x", Reach::Limits));
        refused(fs.write_record(id, 0, vec![2; 3000]));
        refused(fs.truncate(id, 2999));
        refused(fs.punch(id, 0, 1000));
        refused(fs.unlink(fs.root(), b"a"));
    }
    // Something is added, by itself or with the rest of its page; the time of that may be said.
    fs.write(id, 3000, &[2; 1000]).unwrap();
    let page: Vec<u8> = [vec![1; 3000], vec![2; 1000], vec![3; 96]].concat();
    fs.write_back(id, 0, &page, Reach::Limits).unwrap();
    fs.setattr(id, &SetAttr { mtime: now, ..SetAttr::default() }).unwrap();
    fs.preallocate(id, 0, 5000, false).unwrap();
    flags(pflags::IMMUTABLE);
    refused(fs.setattr(id, &SetAttr { mtime: now, ..SetAttr::default() }));
    refused(fs.setattr(id, &SetAttr { atime: now, ..SetAttr::default() }));
    refused(fs.write(id, 5000, b"x"));
    flags(0);
    let mut held = vec![0; 6000];
    assert_eq!(fs.read(id, 0, &mut held).unwrap(), 5000);
    assert!(held[..4096] == page[..] && held[4096..5000].iter().all(|byte| *byte == 0));
    assert_eq!(fs.xattr_get(id, b"user.a").unwrap().as_deref(), Some(&b"1"[..]));
    fs.setattr(id, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    fs.unlink(fs.root(), b"a").unwrap();
    bed.expect_sound();
}

#[test]
fn names_that_would_lead_elsewhere_are_damage() {
    let bed = Bed::new(91, &[], 0, 0);
    let fs = bed.fs();
    fs.create(fs.root(), b"good", &NewNode::new(FileKind::Regular, 0o644)).unwrap();
    let dataset = fs.dataset();
    let folder = dataset.objset().object(fs.root()).unwrap();
    let entry = dmu::zap::lookup(&folder, b"good").unwrap().unwrap();
    for name in [&b"../good"[..], b"/good", b"..", b".", b"a/b"] {
        let tx = dataset.begin(pool::Hold::write(1 << 16)).unwrap();
        dmu::zap::insert(&folder, &tx, name, &entry).unwrap();
        drop(tx);
        let read: Result<Vec<_>, _> = fs.entries(fs.root()).unwrap().collect();
        assert!(matches!(read, Err(Error::Damaged { .. })), "{read:?}");
        let tx = dataset.begin(pool::Hold::write(1 << 16)).unwrap();
        dmu::zap::remove(&folder, &tx, name).unwrap();
    }
    assert_eq!(fs.entries(fs.root()).unwrap().count(), 1);
    bed.expect_clean();
}

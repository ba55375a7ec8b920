//! Files that are made without a name (`O_TMPFILE`): one story each.

mod support;

use format::ObjectId;
use format::acl::{PosixAcl, PosixEntry, PosixTag};
use format::znode::pflags;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::host::{Entropy, SeededEntropy};
use support::{Bed, Ends};
use zpl::{Amount, Error, FileKind, Filesystem, NewNode, Owner, Replace, SetAttr, XattrMode};

fn file() -> NewNode {
    NewNode::new(FileKind::Regular, 0o644)
}

fn directory() -> NewNode {
    NewNode::new(FileKind::Directory, 0o755)
}

/// Crashes, checks the pool, replays the log, and frees unlinked objects, as a mount does; returns the number of freed
/// objects.
fn crash_and_return(bed: &mut Bed) -> u64 {
    bed.crash();
    bed.expect_clean_as_left();
    bed.ask_zdb(&["--allow-unclean"]);
    bed.reopen();
    bed.expect_sound();
    let freed = bed.fs().drain_unlinked().unwrap();
    bed.expect_sound();
    bed.expect_clean();
    freed
}

fn content(fs: &Filesystem, path: &str) -> Vec<u8> {
    let id = fs.resolve(path.as_bytes(), false).unwrap_or_else(|error| panic!("{path}: {error}"));
    fs.read_all(id, 64 << 20).unwrap()
}

#[test]
fn an_unnamed_file_is_freed_when_it_is_closed() {
    let mut bed = Bed::new(1, &[], 0, 0);
    let fs = bed.fs().clone();
    let root = fs.root();
    fs.dataset().sync().unwrap();
    let (before, objects) = (fs.stat(root).unwrap(), fs.space().unwrap().objects);
    let id = fs.create_unnamed(root, &NewNode { uid: 1000, gid: 100, umask: 0o27, ..file() }).unwrap();
    fs.write(id, 0, &vec![7; 300_000]).unwrap();
    fs.xattr_set(id, b"user.large", &vec![2; 40_000], XattrMode::Either).unwrap();
    let stat = fs.stat(id).unwrap();
    assert_eq!((stat.nlink, stat.mode, stat.uid, stat.gid, stat.size), (0, 0o640, 1000, 100, 300_000));
    assert_eq!((fs.stat(root).unwrap(), fs.entries(root).unwrap().count()), (before, 0), "nothing to see");
    assert_eq!(fs.unlinked_count().unwrap(), 1);
    fs.dataset().sync().unwrap();
    assert_eq!(fs.usage(Owner::User, Amount::Objects, 1000).unwrap(), 3, "its owner pays");
    assert_eq!(fs.drain_unlinked().unwrap(), 0, "it is open");
    bed.expect_sound();
    fs.open_handle(id).unwrap();
    fs.close_handle(id).unwrap();
    assert_eq!(fs.read_all(id, 1 << 20).unwrap(), vec![7; 300_000]);
    fs.close_handle(id).unwrap();
    assert!(matches!(fs.stat(id), Err(Error::NotFound)));
    assert!(matches!(fs.open_handle(id), Err(Error::NotFound)));
    assert!(matches!(fs.link(id, root, b"late"), Err(Error::NotFound)));
    assert_eq!(fs.unlinked_count().unwrap(), 0);
    fs.dataset().sync().unwrap();
    assert_eq!(fs.usage(Owner::User, Amount::Bytes, 1000).unwrap(), 0);
    assert_eq!(fs.space().unwrap().objects, objects);
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn with_a_name_an_unnamed_file_is_a_file_like_any_other() {
    let bed = Bed::new(2, &[], 0, 0);
    let (fs, root) = (bed.fs(), bed.fs().root());
    let dir = fs.create(root, b"dir", &directory()).unwrap();
    fs.create(root, b"taken", &file()).unwrap();
    let id = fs.create_unnamed(root, &file()).unwrap();
    fs.write(id, 0, b"anonymous").unwrap();
    assert!(matches!(fs.link(id, root, b"taken"), Err(Error::Exists)));
    assert!(matches!(fs.link(id, root, &[b'x'; 256]), Err(Error::NameTooLong)));
    assert_eq!((fs.stat(id).unwrap().nlink, fs.unlinked_count().unwrap()), (0, 1), "it still has no name");
    fs.link(id, dir, b"first").unwrap();
    assert_eq!((fs.stat(id).unwrap().nlink, fs.unlinked_count().unwrap()), (1, 0));
    fs.link(id, root, b"second").unwrap();
    assert_eq!(fs.stat(id).unwrap().nlink, 2);
    bed.expect_sound();
    fs.unlink(dir, b"first").unwrap();
    fs.unlink(root, b"second").unwrap();
    // It had a name and lost it: it gets none any more, open or not.
    assert_eq!((fs.stat(id).unwrap().nlink, fs.unlinked_count().unwrap()), (0, 1));
    assert!(matches!(fs.link(id, root, b"third"), Err(Error::NotFound)));
    bed.expect_sound();
    fs.close_handle(id).unwrap();
    assert!(matches!(fs.stat(id), Err(Error::NotFound)));
    // One that is closed with its name stays.
    let id = fs.create_unnamed(dir, &file()).unwrap();
    fs.link(id, root, b"kept").unwrap();
    fs.close_handle(id).unwrap();
    fs.write(id, 0, b"kept").unwrap();
    assert_eq!(content(fs, "/kept"), b"kept");
    bed.expect_sound();
}

#[test]
fn an_unnamed_file_is_refused_where_a_file_could_not_be_made() {
    let mut bed = Bed::new(3, &[], 0, 0);
    let fs = bed.fs().clone();
    let root = fs.root();
    let plain = fs.create(root, b"plain", &file()).unwrap();
    let gone = fs.create(root, b"gone", &directory()).unwrap();
    fs.open_handle(gone).unwrap();
    fs.rmdir(root, b"gone").unwrap();
    assert!(matches!(fs.create_unnamed(plain, &file()), Err(Error::NotDir)));
    assert!(matches!(fs.create_unnamed(gone, &file()), Err(Error::NotFound)));
    assert!(matches!(fs.create_unnamed(ObjectId(1 << 30), &file()), Err(Error::NotFound)));
    for kind in [FileKind::Directory, FileKind::Symlink, FileKind::Fifo] {
        assert!(matches!(fs.create_unnamed(root, &NewNode::new(kind, 0o755)), Err(Error::Invalid)));
    }
    fs.close_handle(gone).unwrap();
    fs.set_quota(Owner::User, Amount::Objects, 1000, 1).unwrap();
    let by_alice = NewNode { uid: 1000, ..file() };
    let one = fs.create_unnamed(root, &by_alice).unwrap();
    fs.dataset().sync().unwrap();
    assert!(matches!(fs.create_unnamed(root, &by_alice), Err(Error::Quota)));
    fs.close_handle(one).unwrap();
    fs.dataset().sync().unwrap();
    let one = fs.create_unnamed(root, &by_alice).unwrap();
    fs.close_handle(one).unwrap();
    bed.set("tank/fs", "readonly", 1).unwrap();
    assert!(matches!(fs.create_unnamed(root, &file()), Err(Error::ReadOnly(_))));
    bed.set("tank/fs", "readonly", 0).unwrap();
    assert_eq!(fs.unlinked_count().unwrap(), 0);
    bed.expect_sound();
    drop(fs);
    bed.close();
}

#[test]
fn a_full_pool_refuses_an_unnamed_file_and_nothing_is_left() {
    let mut bed = Bed::sized(80 << 20, 4, &[], 0, 0);
    let fs = bed.fs().clone();
    let (root, dice) = (fs.root(), SeededEntropy::new(4));
    let big = fs.create(root, b"big", &file()).unwrap();
    let mut data = vec![0; 1 << 20];
    let mut unnamed: Vec<ObjectId> = Vec::new();
    for at in 0u64.. {
        dice.fill(&mut data);
        if fs.write(big, at << 20, &data).is_err() {
            break;
        }
    }
    let full = loop {
        match fs.create_unnamed(root, &file()) {
            Ok(id) => unnamed.push(id),
            Err(error) => break error,
        }
        assert!(unnamed.len() < 1_000_000);
    };
    assert!(matches!(full, Error::NoSpace | Error::Quota), "{full}");
    assert_eq!(fs.unlinked_count().unwrap(), unnamed.len() as u64);
    unnamed.into_iter().for_each(|id| fs.close_handle(id).unwrap());
    assert_eq!(fs.unlinked_count().unwrap(), 0);
    fs.unlink(root, b"big").unwrap();
    fs.dataset().sync().unwrap();
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&["--quick"]);
}

#[test]
fn an_unnamed_file_inherits_from_its_directory() {
    let mut bed = Bed::new(5, &[("acltype", 1)], 0, 0);
    let fs = bed.fs().clone();
    for (name, in_node) in [(&b"in nodes"[..], 2), (b"in files", 1)] {
        bed.set("tank/fs", "xattr", in_node).unwrap();
        let dir = fs.create(fs.root(), name, &directory()).unwrap();
        use PosixTag::{GroupObj, Mask, Other, User, UserObj};
        let entries = [(UserObj, 7), (User(7), 6), (GroupObj, 5), (Mask, 7), (Other, 4)];
        let entries = entries.map(|(tag, perm)| PosixEntry { tag, perm }).to_vec();
        let default = PosixAcl::new(entries).unwrap().encode();
        fs.xattr_set(dir, b"system.posix_acl_default", &default, XattrMode::Either).unwrap();
        let flags = fs.stat(dir).unwrap().flags | pflags::PROJINHERIT;
        fs.setattr(dir, &SetAttr { projid: Some(9), flags: Some(flags), ..SetAttr::default() }).unwrap();
        let new = NewNode { umask: 0o77, ..NewNode::new(FileKind::Regular, 0o666) };
        let (named, unnamed) = (fs.create(dir, b"f", &new).unwrap(), fs.create_unnamed(dir, &new).unwrap());
        let seen = |id| {
            let (stat, acl) = (fs.stat(id).unwrap(), fs.xattr_get(id, b"system.posix_acl_access").unwrap());
            (stat.mode, stat.projid, stat.flags, acl)
        };
        assert_eq!(seen(unnamed), seen(named));
        assert_eq!((seen(unnamed).0, seen(unnamed).1), (0o664, 9));
        assert!(seen(unnamed).3.is_some());
        // Not where its project would not be counted.
        let other = fs.create(fs.root(), &[name, b", other"].concat(), &directory()).unwrap();
        fs.setattr(other, &SetAttr { projid: Some(3), flags: Some(flags), ..SetAttr::default() }).unwrap();
        assert!(matches!(fs.link(unnamed, other, b"g"), Err(Error::CrossProject)));
        fs.link(unnamed, dir, b"g").unwrap();
        fs.close_handle(unnamed).unwrap();
        assert_eq!(seen(unnamed), seen(named));
    }
    let lost = fs.create_unnamed(fs.lookup(fs.root(), b"in files").unwrap().unwrap().0, &file()).unwrap();
    fs.close_handle(lost).unwrap();
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn unnamed_files_are_freed_after_a_crash() {
    let mut bed = Bed::stepwise(6, &[]);
    let fs = bed.fs().clone();
    fs.fsync(fs.root()).unwrap();
    let id = fs.create_unnamed(fs.root(), &file()).unwrap();
    fs.write(id, 0, &vec![6; 200_000]).unwrap();
    fs.dataset().sync().unwrap();
    let late = fs.create_unnamed(fs.root(), &file()).unwrap();
    // A file without a name is not logged, even by `fsync`, because no program could find it after a crash.
    fs.write(id, 200_000, &vec![6; 200_000]).unwrap();
    fs.write(late, 0, b"late").unwrap();
    fs.setattr(late, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    fs.xattr_set(late, b"user.x", b"y", XattrMode::Either).unwrap();
    fs.truncate(id, 7).unwrap();
    fs.fsync(id).unwrap();
    fs.fsync(late).unwrap();
    let named = fs.create(fs.root(), b"named", &file()).unwrap();
    fs.fsync(named).unwrap();
    drop(fs);
    assert_eq!(crash_and_return(&mut bed), 1, "the one that was on disk");
    assert_eq!(bed.fs().unlinked_count().unwrap(), 0);
    assert_eq!(content(bed.fs(), "/named"), b"");
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn the_first_name_of_an_unnamed_file_is_on_disk_when_link_returns() {
    for synced_before in [false, true] {
        let mut bed = Bed::stepwise(7, &[]);
        let (fs, root) = (bed.fs().clone(), bed.fs().root());
        fs.fsync(root).unwrap();
        let dir = fs.create(root, b"dir", &directory()).unwrap();
        let id = fs.create_unnamed(root, &file()).unwrap();
        fs.write(id, 0, &vec![7; 300_000]).unwrap();
        fs.fsync(id).unwrap();
        if synced_before {
            fs.dataset().sync().unwrap();
        }
        let txg = bed.pool().info().txg;
        fs.link(id, dir, b"published").unwrap();
        assert!(bed.pool().info().txg > txg, "a sync made it so");
        // From here on it is as any other: its log is used.
        let txg = bed.pool().info().txg;
        fs.write(id, 300_000, b"more").unwrap();
        fs.link(id, root, b"again").unwrap();
        fs.rename(dir, b"published", root, b"moved", Replace::Allowed).unwrap();
        fs.fsync(id).unwrap();
        assert_eq!(bed.pool().info().txg, txg, "no sync was needed");
        drop(fs);
        assert_eq!(crash_and_return(&mut bed), 0);
        assert_eq!(bed.fs().stat(id).unwrap().nlink, 2);
        for path in ["/moved", "/again"] {
            let found = content(bed.fs(), path);
            assert_eq!((found.len(), &found[300_000..]), (300_004, &b"more"[..]), "{path}");
        }
        bed.close();
        bed.ask_zdb(&[]);
    }
}

#[test]
fn with_sync_disabled_the_first_name_waits_for_the_next_sync() {
    let mut bed = Bed::stepwise(8, &[("sync", 2)]);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let id = fs.create_unnamed(root, &file()).unwrap();
    fs.dataset().sync().unwrap();
    let txg = bed.pool().info().txg;
    fs.link(id, root, b"a").unwrap();
    fs.fsync(id).unwrap();
    assert_eq!(bed.pool().info().txg, txg);
    // A second `fsync` succeeds, and the log has no record that a replay could not use.
    bed.set("tank/fs", "sync", 0).unwrap();
    let other = fs.create_unnamed(root, &file()).unwrap();
    fs.dataset().sync().unwrap();
    bed.set("tank/fs", "sync", 2).unwrap();
    fs.link(other, root, b"b").unwrap();
    bed.set("tank/fs", "sync", 0).unwrap();
    fs.write(other, 0, b"safe").unwrap();
    fs.rename(root, b"b", root, b"c", Replace::Allowed).unwrap();
    fs.fsync(other).unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/c"), b"safe");
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn with_sync_always_an_unnamed_file_is_made_and_named_in_the_same_way() {
    let mut bed = Bed::stepwise(9, &[("sync", 1)]);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    fs.fsync(root).unwrap();
    let id = fs.create_unnamed(root, &file()).unwrap();
    fs.write(id, 0, b"always").unwrap();
    fs.link(id, root, b"a").unwrap();
    fs.write(id, 0, b"ALWAYS").unwrap();
    let lost = fs.create_unnamed(root, &file()).unwrap();
    fs.write(lost, 0, b"never").unwrap();
    drop(fs);
    assert_eq!(crash_and_return(&mut bed), 0, "the other was on no disk yet");
    assert_eq!(content(bed.fs(), "/a"), b"ALWAYS");
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn the_number_of_an_unnamed_file_is_in_no_log_before_it_is_free_on_disk() {
    let mut bed = Bed::stepwise(10, &[]);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    fs.fsync(root).unwrap();
    let unnamed: Vec<ObjectId> = (0..40).map(|_| fs.create_unnamed(root, &file()).unwrap()).collect();
    fs.dataset().sync().unwrap();
    unnamed.iter().for_each(|&id| fs.close_handle(id).unwrap());
    for n in 0..40 {
        let id = fs.create(root, format!("{n}").as_bytes(), &file()).unwrap();
        assert!(!unnamed.contains(&id));
        fs.fsync(id).unwrap();
    }
    drop(fs);
    assert_eq!(crash_and_return(&mut bed), 40);
    assert_eq!(bed.fs().entries(bed.fs().root()).unwrap().count(), 40);
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn many_threads_make_name_and_close_unnamed_files_while_the_unlinked_set_is_emptied() {
    let mut bed = Bed::new(11, &[("sync", 2)], 0, 0);
    let fs = bed.fs().clone();
    let root = fs.root();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&done);
        let workers: Vec<_> = (0..4u8)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    for n in 0u32..400 {
                        let id = fs.create_unnamed(root, &file()).unwrap();
                        fs.write(id, 0, &n.to_le_bytes()).unwrap();
                        let name = format!("{thread} {n}");
                        if n % 3 != 0 {
                            fs.link(id, root, name.as_bytes()).unwrap();
                        }
                        if n % 3 == 2 {
                            fs.unlink(root, name.as_bytes()).unwrap();
                        }
                        assert_eq!(fs.read_all(id, 100).unwrap(), n.to_le_bytes());
                        fs.close_handle(id).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                // It may free a file that was closed this moment, before the closing thread does; never an open file.
                fs.drain_unlinked().unwrap();
                fs.dataset().sync().unwrap();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(ends);
    });
    assert_eq!((fs.unlinked_count().unwrap(), fs.entries(root).unwrap().count()), (0, 4 * 133));
    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}

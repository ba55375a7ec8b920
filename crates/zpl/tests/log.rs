//! The promise of `fsync`: one story each, with a crash at its end.

mod clones;
mod rollback;
mod support;

use format::acl::{PosixAcl, PosixEntry, PosixTag};
use format::{ObjectId, features};
use pool::FeatureState;
use support::Bed;
use zpl::{
    Amount, Error, FileKind, Filesystem, NewNode, Owner, Reach, Replace, SetAttr, Time, Times, XattrMode,
};

fn file() -> NewNode {
    NewNode::new(FileKind::Regular, 0o644)
}

fn directory() -> NewNode {
    NewNode::new(FileKind::Directory, 0o755)
}

/// A file system whose log is in use, with nothing unsynced.
fn logged(seed: u64) -> Bed {
    let bed = Bed::stepwise(seed, &[]);
    bed.fs().fsync(bed.fs().root()).unwrap();
    bed
}

fn id_of(fs: &Filesystem, path: &str) -> ObjectId {
    fs.resolve(path.as_bytes(), false).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn content(fs: &Filesystem, path: &str) -> Vec<u8> {
    fs.read_all(id_of(fs, path), 64 << 20).unwrap()
}

/// Crashes, looks at what is left, replays, and looks again.
fn crash_and_return(bed: &mut Bed) {
    crash_and_return_by(bed, true);
}

/// `zdb_knows` the records of the log.
fn crash_and_return_by(bed: &mut Bed, zdb_knows: bool) {
    bed.crash();
    bed.expect_clean_as_left();
    if zdb_knows {
        bed.ask_zdb(&["--allow-unclean"]);
    }
    bed.reopen();
    bed.expect_sound();
    bed.expect_clean();
}

/// zdb judges the pool once more, after the replay.
fn end(mut bed: Bed) {
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn fsynced_data_survives_a_crash_and_the_rest_is_lost() {
    let mut bed = logged(1);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let txg = bed.pool().info().txg;
    let id = fs.create(root, b"kept", &file()).unwrap();
    fs.write(id, 0, b"safe").unwrap();
    fs.fsync(id).unwrap();
    fs.write(id, 4, b" and lost").unwrap();
    fs.create(root, b"lost", &file()).unwrap();
    assert_eq!(bed.pool().info().txg, txg, "fsync needs no sync of the pool");
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/kept"), b"safe");
    assert!(bed.fs().resolve(b"/lost", false).is_err());
    end(bed);
}

#[test]
fn a_log_goes_on_after_any_number_of_idle_txgs() {
    let mut bed = logged(12);
    let fs = bed.fs().clone();
    for _ in 0..200 {
        bed.pool().sync().unwrap();
    }
    let id = fs.create_with(fs.root(), b"late", &file(), b"but safe".to_vec()).unwrap();
    fs.fsync(id).unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/late"), b"but safe");
    end(bed);
}

/// One of every operation.
fn work(fs: &Filesystem) {
    let root = fs.root();
    let dir = fs.create(root, b"dir", &directory()).unwrap();
    let a = fs.create_with(dir, b"a", &file(), vec![7; 1000]).unwrap();
    fs.write(a, 500, &vec![8; 300_000]).unwrap();
    fs.link(a, root, b"hard").unwrap();
    fs.symlink(dir, b"soft", &NewNode::new(FileKind::Symlink, 0o777), b"a").unwrap();
    let times = Times {
        atime: Time { secs: 5, nanos: 6 },
        mtime: Time { secs: 7, nanos: 8 },
        ctime: None,
        crtime: None,
    };
    let mut null = NewNode::new(FileKind::CharDevice, 0o666);
    null.rdev = format::znode::rdev::to_user(1, 3);
    null.times = Some(times);
    fs.create(dir, b"null", &null).unwrap();
    for name in [b"gone", b"from"] {
        fs.create_with(root, name, &file(), name.to_vec()).unwrap();
    }
    fs.create_with(root, b"to", &file(), b"replaced".to_vec()).unwrap();
    fs.unlink(root, b"gone").unwrap();
    fs.rename(root, b"from", root, b"to", Replace::Allowed).unwrap();
    let moved = fs.create(root, b"moved", &directory()).unwrap();
    fs.rename(root, b"moved", dir, b"inner", Replace::Allowed).unwrap();
    fs.create(moved, b"empty", &directory()).unwrap();
    fs.rmdir(moved, b"empty").unwrap();
    let cut = fs.create_with(root, b"cut", &file(), vec![1; 100_000]).unwrap();
    fs.truncate(cut, 5000).unwrap();
    fs.truncate(cut, 1 << 20).unwrap();
    fs.punch(cut, 1000, 1000).unwrap();
    let set = SetAttr {
        mode: Some(0o600),
        uid: Some(5),
        gid: Some(6),
        mtime: Some(times.mtime),
        ..SetAttr::default()
    };
    fs.setattr(a, &set).unwrap();
}

fn expect_work(fs: &Filesystem) {
    let mut a = vec![7; 500];
    a.extend(vec![8; 300_000]);
    assert_eq!(content(fs, "/dir/a"), a);
    let stat = fs.stat(id_of(fs, "/hard")).unwrap();
    assert_eq!((stat.nlink, stat.mode, stat.uid, stat.gid, stat.mtime.secs), (2, 0o600, 5, 6, 7));
    assert_eq!(fs.readlink(id_of(fs, "/dir/soft")).unwrap(), b"a");
    let null = fs.stat(id_of(fs, "/dir/null")).unwrap();
    assert_eq!((null.rdev, null.mode, null.mtime.secs), (format::znode::rdev::to_user(1, 3), 0o666, 7));
    assert!(matches!(fs.resolve(b"/gone", false), Err(Error::NotFound)));
    assert!(matches!(fs.resolve(b"/from", false), Err(Error::NotFound)));
    assert_eq!(content(fs, "/to"), b"from");
    assert_eq!(fs.stat(id_of(fs, "/dir/inner")).unwrap().nlink, 2);
    let mut cut = vec![1; 5000];
    cut[1000..2000].fill(0);
    cut.resize(1 << 20, 0);
    assert_eq!(content(fs, "/cut"), cut);
}

#[test]
fn every_operation_is_replayed() {
    let mut bed = logged(2);
    work(bed.fs());
    let txg = bed.pool().info().txg;
    bed.fs().commit_all().unwrap();
    assert_eq!(bed.pool().info().txg, txg);
    bed.crash();
    if let Some(folder) = std::env::var_os("CENOTE_KEEP_IMAGES") {
        // For `oracle/interop`: real OpenZFS replays it, too.
        std::fs::copy(bed.path(), std::path::Path::new(&folder).join("unreplayed.img")).unwrap();
    }
    bed.reopen();
    expect_work(bed.fs());
    end(bed);
}

#[test]
fn sync_always_makes_each_change_safe() {
    let mut bed = Bed::stepwise(3, &[("sync", 1)]);
    bed.fs().fsync(bed.fs().root()).unwrap();
    let txg = bed.pool().info().txg;
    work(bed.fs());
    assert_eq!(bed.pool().info().txg, txg);
    crash_and_return(&mut bed);
    expect_work(bed.fs());
    end(bed);
}

#[test]
fn sync_disabled_makes_nothing_safe() {
    let mut bed = Bed::stepwise(4, &[("sync", 2)]);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let id = fs.create(root, b"a", &file()).unwrap();
    fs.fsync(id).unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    assert!(bed.fs().resolve(b"/a", false).is_err());
    end(bed);
}

#[test]
fn changes_without_a_record_type_are_made_durable_by_a_sync() {
    let mut bed = logged(5);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let id = fs.create(root, b"a", &file()).unwrap();
    fs.xattr_set(id, b"user.k", b"value", XattrMode::Either).unwrap();
    fs.fsync(id).unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    let id = id_of(bed.fs(), "/a");
    assert_eq!(bed.fs().xattr_get(id, b"user.k").unwrap().as_deref(), Some(&b"value"[..]));
    end(bed);
}

/// An ACL that gives user 7 what `perm` says.
fn acl_for_seven(perm: u8) -> Vec<u8> {
    use PosixTag::{GroupObj, Mask, Other, User, UserObj};
    let entries = [(UserObj, 6), (User(7), perm), (GroupObj, 4), (Mask, 7), (Other, 0)];
    PosixAcl::new(entries.map(|(tag, perm)| PosixEntry { tag, perm }).to_vec()).unwrap().encode()
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Sets, replaces and removes extended attributes and ACLs; without a sync, all of it survives.
fn attributes_are_made_safe_by_the_log(mut bed: Bed, in_node: bool) {
    bed.set("tank/fs", "xattr", if in_node { 2 } else { 1 }).unwrap();
    bed.set("tank/fs", "acltype", 1).unwrap();
    bed.fs().fsync(bed.fs().root()).unwrap();
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let dir = fs.create(root, b"dir", &directory()).unwrap();
    bed.pool().sync().unwrap();
    let txg = bed.pool().info().txg;
    let set = |id, name: &[u8], value: &[u8]| fs.xattr_set(id, name, value, XattrMode::Either).unwrap();
    let a = fs.create(root, b"a", &file()).unwrap();
    set(a, b"user.k", b"value");
    set(a, b"user.again", b"first");
    set(a, b"user.again", b"second, and longer");
    set(a, b"user.gone", b"x");
    fs.xattr_remove(a, b"user.gone").unwrap();
    // Larger than what a node keeps in itself.
    set(a, b"user.big", &[9; 50_000]);
    set(a, ACCESS, &acl_for_seven(5));
    fs.setattr(a, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    set(dir, DEFAULT, &acl_for_seven(6));
    let heir = fs.create(dir, b"heir", &NewNode::new(FileKind::Regular, 0o666)).unwrap();
    let plain = fs.create(root, b"plain", &file()).unwrap();
    set(plain, ACCESS, &acl_for_seven(1));
    // An ACL that says no more than a mode becomes one.
    let trivial = [(PosixTag::UserObj, 7), (PosixTag::GroupObj, 5), (PosixTag::Other, 1)];
    let trivial = trivial.map(|(tag, perm)| PosixEntry { tag, perm }).to_vec();
    set(plain, ACCESS, &PosixAcl::new(trivial).unwrap().encode());
    for id in [a, dir, heir, plain] {
        fs.fsync(id).unwrap();
    }
    assert_eq!(bed.pool().info().txg, txg, "no sync was needed");
    // Changes that no `fsync` asked for are there completely or not at all.
    set(a, b"user.late", b"perhaps");
    let seen = |fs: &Filesystem, id| {
        let mut names = fs.xattr_list(id).unwrap();
        names.sort();
        let get = |name: &Vec<u8>| fs.xattr_get(id, name).unwrap();
        let all: Vec<_> =
            names.iter().filter(|name| *name != b"user.late").map(|n| (n.clone(), get(n))).collect();
        (fs.stat(id).unwrap().mode, all)
    };
    let before: Vec<_> = [a, dir, heir, plain].into_iter().map(|id| seen(&fs, id)).collect();
    assert_eq!((before[0].1.len(), before[2].1.len(), before[3].0), (4, 1, 0o751));
    drop(fs);
    // zdb 2.1 stops at TX_SETSAXATTR, which OpenZFS has since 2.2.
    crash_and_return_by(&mut bed, !in_node);
    for (path, before) in ["/a", "/dir", "/dir/heir", "/plain"].into_iter().zip(before) {
        assert_eq!(seen(bed.fs(), id_of(bed.fs(), path)), before, "{path}");
    }
    let late = bed.fs().xattr_get(id_of(bed.fs(), "/a"), b"user.late").unwrap();
    assert!(late.is_none_or(|value| value == b"perhaps"));
    end(bed);
}

#[test]
fn extended_attributes_in_files_are_replayed() {
    attributes_are_made_safe_by_the_log(logged(50), false);
}

#[test]
fn extended_attributes_in_nodes_are_replayed_where_the_feature_is() {
    let bed = Bed::stepwise(51, &[]);
    bed.pool().enable_features(vec![&features::ZILSAXATTR]).unwrap();
    attributes_are_made_safe_by_the_log(bed, true);
}

#[test]
fn a_log_that_may_hold_records_of_attributes_marks_its_dataset_while_it_exists() {
    let mut bed = Bed::stepwise(52, &[]);
    bed.pool().enable_features(vec![&features::ZILSAXATTR]).unwrap();
    let state = |bed: &Bed| bed.pool().info().feature(&features::ZILSAXATTR);
    bed.fs().fsync(bed.fs().root()).unwrap();
    assert_eq!(state(&bed), FeatureState::Active);
    bed.close();
    bed.reopen();
    assert_eq!(state(&bed), FeatureState::Enabled);
    end(bed);
}

/// Bytes that nothing makes smaller.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(next).collect()
}

/// Bytes written to the disk so far.
fn written(bed: &Bed) -> u64 {
    let tops = bed.pool().storage().vdevs().tops();
    tops.iter().flat_map(storage::TopVdev::leaves).map(|leaf| leaf.meter.stats().write_bytes).sum()
}

#[test]
fn large_writes_are_written_once() {
    let mut bed = logged(60);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let id = fs.create(root, b"large", &file()).unwrap();
    bed.pool().sync().unwrap();
    let before = written(&bed);
    let data = noise(1, 4 << 20);
    fs.write(id, 0, &data).unwrap();
    fs.fsync(id).unwrap();
    bed.pool().sync().unwrap();
    let spent = written(&bed) - before;
    assert!((4 << 20..5 << 20).contains(&spent), "{spent}");
    assert_eq!(fs.read_all(id, 8 << 20).unwrap(), data);
    drop(fs);
    bed.crash();
    bed.reopen();
    assert_eq!(content(bed.fs(), "/large"), data);
    end(bed);
}

#[test]
fn rewriting_one_record_does_not_fill_the_pool() {
    let mut bed = logged(64);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let id = fs.create(root, b"one", &file()).unwrap();
    bed.pool().sync().unwrap();
    let mut data = noise(1, 128 << 10);
    for round in 0..1500u32 {
        data[..4].copy_from_slice(&round.to_le_bytes());
        fs.write(id, 0, &data).unwrap();
        fs.fsync(id).unwrap();
        assert!(bed.pool().storage().early_bytes() <= 65 << 20, "after {round} rounds");
    }
    assert_eq!(fs.read_all(id, 1 << 20).unwrap(), data);
    drop(fs);
    bed.crash();
    bed.reopen();
    assert_eq!(content(bed.fs(), "/one"), data);
    end(bed);
}

#[test]
fn acknowledged_changes_are_replayed_on_a_full_pool() {
    let mut bed = logged(66);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let small = fs.create(root, b"small", &file()).unwrap();
    fs.write(small, 0, &noise(2, 6 << 20)).unwrap();
    let filler = fs.create(root, b"filler", &file()).unwrap();
    let piece = noise(3, 1 << 20);
    let full = (0..512u64).find_map(|n| fs.write(filler, n << 20, &piece).err());
    assert!(matches!(full, Some(Error::NoSpace)), "{full:?}");
    fs.unlink(root, b"small").unwrap();
    for _ in 0..4 {
        bed.pool().sync().unwrap();
    }
    let data = noise(4, 4 << 20);
    let last = fs.create(root, b"last", &file()).unwrap();
    fs.write(last, 0, &data).unwrap();
    fs.fsync(last).unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/last"), data);
    end(bed);
}

#[test]
fn a_quota_does_not_stop_the_replay_of_what_it_let_through() {
    let mut bed = logged(67);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    fs.set_quota(Owner::User, Amount::Bytes, 1000, 1 << 20).unwrap();
    let id = fs.create(root, b"own", &NewNode { uid: 1000, ..file() }).unwrap();
    bed.pool().sync().unwrap();
    let data = noise(5, 6 << 20);
    for (n, piece) in data.chunks(1 << 20).enumerate() {
        fs.write_back(id, (n as u64) << 20, piece, Reach::Acknowledged).unwrap();
        fs.fsync(id).unwrap();
    }
    drop(fs);
    bed.crash();
    // With a sync in its middle, from which on the quota is used up.
    bed.dirty_max = Some(4 << 20);
    bed.reopen();
    assert_eq!(content(bed.fs(), "/own"), data);
    assert!(matches!(bed.fs().write(id, 0, b"more"), Err(Error::Quota)));
    bed.expect_sound();
    end(bed);
}

#[test]
fn a_large_fsync_syncs_the_pool_unless_much_more_data_is_dirty() {
    let mut bed = logged(63);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let [much, more] = [b"much", b"more"].map(|name| fs.create(root, name, &file()).unwrap());
    let data = noise(1, 12 << 20);
    fs.write(much, 0, &data).unwrap();
    let txg = bed.pool().info().txg;
    fs.fsync(much).unwrap();
    assert!(bed.pool().info().txg > txg, "one sync");
    // The data of this `fsync` is little beside the data on its way.
    fs.write(more, 0, &vec![3; 40 << 20]).unwrap();
    let txg = bed.pool().info().txg;
    fs.write(much, 100, b"small").unwrap();
    fs.fsync(much).unwrap();
    assert_eq!(bed.pool().info().txg, txg, "no sync");
    drop(fs);
    bed.crash();
    bed.reopen();
    let kept = content(bed.fs(), "/much");
    assert!(kept.len() == data.len() && kept[..100] == data[..100] && &kept[100..105] == b"small");
    end(bed);
}

#[test]
fn large_writes_survive_a_crash_and_what_changed_since_leaves_no_trace() {
    for throughput in [0, 1] {
        let mut bed = logged(61 + throughput);
        bed.set("tank/fs", "logbias", throughput).unwrap();
        let (fs, root) = (bed.fs().clone(), bed.fs().root());
        let make = |name: &[u8]| fs.create(root, name, &file()).unwrap();
        let [a, b, c, d] = [b"a", b"b", b"c", b"d"].map(|name| make(name));
        bed.pool().sync().unwrap();
        let txg = bed.pool().info().txg;
        // Over the borders of blocks; once more; and a small part of it.
        let mut data = noise(2, 1 << 20);
        fs.write(a, 5000, &data).unwrap();
        fs.fsync(a).unwrap();
        data[300_000..500_000].fill(7);
        fs.write(a, 305_000, &data[300_000..500_000]).unwrap();
        fs.fsync(a).unwrap();
        data[40..50].fill(8);
        fs.write(a, 5040, &data[40..50]).unwrap();
        fs.fsync(a).unwrap();
        // Logged, and then cut, removed, or written again without another `fsync`.
        for id in [b, c, d] {
            fs.write(id, 0, &noise(3, 300_000)).unwrap();
            fs.fsync(id).unwrap();
        }
        fs.truncate(b, 100_000).unwrap();
        fs.fsync(b).unwrap();
        fs.unlink(root, b"c").unwrap();
        fs.write(d, 0, &noise(4, 300_000)).unwrap();
        assert_eq!(bed.pool().info().txg, txg, "no sync was needed");
        let expect = |fs: &Filesystem, later: bool| {
            assert_eq!(content(fs, "/a")[5000..], data);
            assert_eq!(content(fs, "/b"), noise(3, 300_000)[..100_000]);
            assert_eq!(content(fs, "/d"), noise(if later { 4 } else { 3 }, 300_000));
        };
        expect(&fs, true);
        drop(fs);
        crash_and_return(&mut bed);
        expect(bed.fs(), false);
        // The same without a crash.
        let fs = bed.fs().clone();
        fs.fsync(root).unwrap();
        let e = fs.create(root, b"e", &file()).unwrap();
        for round in 0..3 {
            fs.write(e, 0, &noise(5 + round, 400_000)).unwrap();
            fs.fsync(e).unwrap();
        }
        fs.truncate(e, 200_000).unwrap();
        bed.pool().sync().unwrap();
        assert_eq!(fs.read_all(e, 1 << 20).unwrap(), noise(7, 400_000)[..200_000]);
        drop(fs);
        bed.expect_clean();
        end(bed);
    }
}

#[test]
fn a_file_replaced_by_rename_has_its_new_content() {
    let mut bed = logged(6);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    fs.create_with(root, b"a", &file(), b"old".to_vec()).unwrap();
    let new = fs.create(root, b"new", &file()).unwrap();
    let other = fs.create(root, b"other", &file()).unwrap();
    fs.write(new, 0, b"new").unwrap();
    fs.write(other, 0, b"nobody asked").unwrap();
    fs.rename(root, b"new", root, b"a", Replace::Allowed).unwrap();
    fs.fsync(root).unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/a"), b"new");
    assert_eq!(content(bed.fs(), "/other"), b"", "its data was not asked for");
    end(bed);
}

#[test]
fn logs_shrink_with_every_sync_and_leave_nothing_behind() {
    let mut bed = logged(7);
    let fs = bed.fs().clone();
    let id = fs.create(fs.root(), b"a", &file()).unwrap();
    for round in 0..40u64 {
        fs.write(id, round * 10_000, &vec![round as u8; 10_000]).unwrap();
        fs.fsync(id).unwrap();
        if round % 7 == 3 {
            bed.pool().sync().unwrap();
        }
        if round % 16 == 9 {
            bed.expect_clean();
        }
    }
    let expected: Vec<u8> = (0..40).flat_map(|round| vec![round as u8; 10_000]).collect();
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/a"), expected);
    // There was no `fsync` since: the log is gone.
    bed.expect_clean();
    end(bed);
}

#[test]
fn one_write_serves_many_callers_of_fsync() {
    let mut bed = Bed::new(8, &[], 0, 0);
    let fs = bed.fs().clone();
    fs.fsync(fs.root()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let fs = &fs;
            scope.spawn(move || {
                let name = format!("file{thread}");
                let id = fs.create(fs.root(), name.as_bytes(), &file()).unwrap();
                for round in 0..30u64 {
                    fs.write(id, round * 5000, &vec![thread; 5000]).unwrap();
                    fs.fsync(id).unwrap();
                }
            });
        }
    });
    drop(fs);
    crash_and_return(&mut bed);
    for thread in 0..6u8 {
        assert_eq!(content(bed.fs(), &format!("/file{thread}")), vec![thread; 150_000]);
    }
    end(bed);
}

#[test]
fn more_changes_than_are_kept_are_made_safe_by_a_sync() {
    let mut bed = logged(9);
    let fs = bed.fs().clone();
    let id = fs.create(fs.root(), b"a", &file()).unwrap();
    for round in 0..70_000u64 {
        fs.write(id, round % 1000, &[round as u8]).unwrap();
    }
    fs.fsync(id).unwrap();
    let expected = content(&fs, "/a");
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/a"), expected);
    end(bed);
}

#[test]
fn a_removed_file_and_a_new_one_in_its_place_are_replayed() {
    let mut bed = logged(10);
    let (fs, root) = (bed.fs().clone(), bed.fs().root());
    let first = fs.create_with(root, b"a", &file(), b"one".to_vec()).unwrap();
    fs.commit_all().unwrap();
    fs.open_handle(first).unwrap();
    fs.unlink(root, b"a").unwrap();
    fs.write(first, 0, b"into the void").unwrap();
    fs.fsync(first).unwrap();
    fs.create_with(root, b"a", &file(), b"two".to_vec()).unwrap();
    fs.commit_all().unwrap();
    drop(fs);
    crash_and_return(&mut bed);
    assert_eq!(content(bed.fs(), "/a"), b"two");
    end(bed);
}

//! Limits: quotas, reservations, quotas of users, and counts of file systems.

mod support;

use pool::Error as PoolError;
use pool::props::PropertyError;
use storage::host::{Entropy, SeededEntropy};
use support::Bed;
use zpl::{Amount, Error, FileKind, Filesystem, NewNode, Owner, SetAttr, XattrMode};

const MIB: u64 = 1 << 20;
const OFF: u64 = 2;

fn file() -> NewNode {
    NewNode::new(FileKind::Regular, 0o644)
}

fn noise(len: u64, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    SeededEntropy::new(seed).fill(&mut data);
    data
}

/// Appends to a new file in MiB until it is refused; how many went in, and why no more.
fn fill(fs: &Filesystem, name: &str, most: u64) -> (u64, Option<Error>) {
    let id = fs.create(fs.root(), name.as_bytes(), &file()).unwrap();
    for i in 0..most {
        if let Err(error) = fs.write(id, i * MIB, &noise(MIB, i)) {
            return (i, Some(error));
        }
    }
    (most, None)
}

fn refused(result: pool::Result<()>) -> PropertyError {
    match result {
        Err(PoolError::Property(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn quota_and_refquota_end_a_file_where_openzfs_does() {
    let mut bed = Bed::new(1, &[], 0, 0);
    for (name, limit) in [("tank/q", "quota"), ("tank/rq", "refquota")] {
        let fs = bed.filesystem(name, &[(limit, 16 * MIB)]).unwrap();
        let (written, why) = fill(&fs, "f", 32);
        assert!(matches!(why, Some(Error::Quota)), "{name}: {why:?}");
        assert_eq!(written, 16, "{name}: the write that reaches the limit goes in");
        assert_eq!(bed.get(name, "available"), 0);
        assert!(bed.get(name, "used") >= 16 * MIB && bed.get(name, "used") < 17 * MIB);
        assert!(matches!(fs.create(fs.root(), b"g", &file()), Err(Error::Quota)));
        fs.unlink(fs.root(), b"f").unwrap();
        fs.dataset().sync().unwrap();
        assert_eq!(fill(&fs, "again", 4).0, 4, "{name}: what was removed may be used again");
        assert_eq!(refused(bed.set(name, limit, MIB)), PropertyError::BelowUse);
    }
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

/// A record of 512 bytes takes a sector of 4096 bytes.
#[test]
fn small_records_count_with_whole_sectors_before_they_are_synced() {
    let small = [("compression", OFF), ("recordsize", 512)];
    for (limit, copies) in [("quota", 1), ("refquota", 2), ("user", 1)] {
        let mut properties = small.to_vec();
        properties.push(("copies", copies));
        if limit != "user" {
            properties.push((limit, 8 * MIB));
        }
        let bed = Bed::with_sectors(12, 7, &properties);
        let fs = bed.fs().clone();
        if limit == "user" {
            fs.set_quota(Owner::User, Amount::Bytes, 0, 8 * MIB).unwrap();
        }
        bed.pool().sync().unwrap();
        let id = fs.create(fs.root(), b"f", &file()).unwrap();
        let mut written = 0;
        let why = loop {
            match fs.write(id, written, &noise(64 << 10, written)) {
                Ok(()) => written += 64 << 10,
                Err(error) => break error,
            }
            assert!(written < 64 * MIB, "{limit}: no write was refused");
        };
        assert!(matches!(why, Error::Quota), "{limit}: {why:?}");
        bed.pool().sync().unwrap();
        let used = fs.space().unwrap().referenced;
        assert!((8 * MIB..11 * MIB).contains(&used), "{limit}, copies={copies}: {used} bytes are used");
        bed.expect_sound();
    }
}

#[test]
fn a_quota_holds_for_all_below_together() {
    let bed = Bed::new(2, &[], 0, 0);
    let top = bed.filesystem("tank/top", &[("quota", 20 * MIB)]).unwrap();
    let one = bed.filesystem("tank/top/one", &[]).unwrap();
    let two = bed.filesystem("tank/top/two", &[]).unwrap();
    // Nothing is synced in between: the promises alone must hold.
    let ids = [&one, &two].map(|fs| (fs.clone(), fs.create(fs.root(), b"f", &file()).unwrap()));
    let mut written = 0;
    let why = loop {
        let (fs, id) = &ids[(written % 2) as usize];
        match fs.write(*id, written / 2 * MIB, &noise(MIB, written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(why, Error::Quota), "{why:?}");
    assert!((19..=20).contains(&written), "{written} MiB went in");
    assert!(matches!(top.create(top.root(), b"f", &file()), Err(Error::Quota)));
    assert!(bed.get("tank/top", "used") < 22 * MIB);
    bed.expect_clean();
}

#[test]
fn reservations_are_taken_from_the_others() {
    let mut bed = Bed::sized(128 << 20, 3, &[], 0, 0);
    let usable = bed.get("tank", "available");
    assert_eq!(refused(bed.set("tank/fs", "reservation", usable + 16 * MIB)), PropertyError::AboveSpace);
    assert_eq!(refused(bed.set("tank/fs", "refreservation", usable + 16 * MIB)), PropertyError::AboveSpace);
    bed.set("tank/fs", "reservation", 20 * MIB).unwrap();
    let other = bed.filesystem("tank/other", &[("refreservation", 10 * MIB)]).unwrap();
    assert_eq!(bed.get("tank/other", "usedbyrefreservation") + bed.get("tank/other", "referenced"), 10 * MIB);
    assert!(bed.get("tank", "usedbychildren") >= 30 * MIB);
    assert!(bed.get("tank", "available") <= usable - 29 * MIB);
    bed.expect_clean();
    // The rest of the pool fills up; what is reserved is still there afterwards.
    let hog = bed.filesystem("tank/hog", &[]).unwrap();
    let (written, why) = fill(&hog, "f", 128);
    assert!(matches!(why, Some(Error::NoSpace)), "{why:?} after {written} MiB");
    assert_eq!(fill(bed.fs(), "f", 18).0, 18, "the reservation of tank/fs");
    assert_eq!(fill(&other, "f", 8).0, 8, "the refreservation of tank/other");
    assert!(matches!(bed.filesystem("tank/more", &[]).err(), Some(PoolError::NoSpace)));
    assert!(bed.get("tank/other", "usedbyrefreservation") < 2 * MIB);
    bed.expect_clean();
    bed.set("tank/fs", "reservation", 0).unwrap();
    bed.set("tank/other", "refreservation", 0).unwrap();
    bed.expect_clean();
    drop((other, hog));
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn a_dataset_does_not_move_where_its_quota_is_too_small() {
    let bed = Bed::new(7, &[], 0, 0);
    bed.filesystem("tank/small", &[("quota", 2 * MIB)]).unwrap();
    bed.filesystem("tank/kept", &[("reservation", 20 * MIB)]).unwrap();
    let fs = bed.filesystem("tank/big", &[]).unwrap();
    assert_eq!(fill(&fs, "f", 4).0, 4);
    fs.dataset().sync().unwrap();
    let moved = bed.pool().rename_dataset("tank/big", "tank/small/big");
    assert!(matches!(moved, Err(PoolError::NoSpace)), "{moved:?}");
    let used = bed.get("tank", "used");
    bed.pool().rename_dataset("tank/big", "tank/kept/big").unwrap();
    assert!(bed.get("tank", "used") + 4 * MIB <= used, "what is reserved there takes it in");
    bed.pool().rename_dataset("tank/kept/big", "tank/back").unwrap();
    bed.expect_clean();
}

#[test]
fn a_dataset_is_not_made_with_limits_it_cannot_have() {
    let bed = Bed::sized(128 << 20, 4, &[], 0, 0);
    for limits in [[("reservation", 1 << 40)], [("refreservation", 1 << 40)], [("quota", 512)]] {
        assert!(matches!(bed.filesystem("tank/no", &limits).err(), Some(PoolError::NoSpace)), "{limits:?}");
        assert!(matches!(bed.pool().dataset("tank/no"), Err(PoolError::NoDataset(_))));
    }
    bed.expect_clean();
}

#[test]
fn extended_attributes_go_to_the_new_owner_with_their_file() {
    // In folders of their own.
    let mut bed = Bed::new(6, &[("compression", OFF), ("xattr", 1)], 0, 0);
    let fs = bed.fs().clone();
    let id = fs.create(fs.root(), b"f", &NewNode { uid: 1000, gid: 100, ..file() }).unwrap();
    fs.xattr_set(id, b"user.large", &noise(60_000, 1), XattrMode::Either).unwrap();
    fs.dataset().sync().unwrap();
    assert!(fs.usage(Owner::User, Amount::Bytes, 1000).unwrap() > 60_000);
    let set = SetAttr { uid: Some(1001), gid: Some(101), ..SetAttr::default() };
    fs.setattr(id, &set).unwrap();
    fs.dataset().sync().unwrap();
    for (owner, before, after) in [(Owner::User, 1000, 1001), (Owner::Group, 100, 101)] {
        assert_eq!(fs.usage(owner, Amount::Bytes, before).unwrap(), 0);
        assert_eq!(fs.usage(owner, Amount::Objects, before).unwrap(), 0);
        assert!(fs.usage(owner, Amount::Bytes, after).unwrap() > 60_000);
    }
    drop(fs);
    bed.expect_sound();
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn a_read_of_a_full_pool_waits_for_no_sync_to_leave_its_time() {
    let mut bed = Bed::sized(96 << 20, 7, &[("compression", OFF), ("relatime", 0)], 0, 0);
    let fs = bed.fs().clone();
    let id = fs.create(fs.root(), b"f", &file()).unwrap();
    // No txg ends by its age.
    bed.pool().tune("zfs_txg_timeout", "3600").unwrap();
    let full = (0..96).find_map(|n| fs.write(id, n * MIB, &noise(MIB, n)).err());
    assert!(matches!(full, Some(Error::NoSpace)), "{full:?}");
    // A writer would wait for the space that is about to be freed.
    fs.truncate(id, 80 * MIB / 2).ok();
    let open = fs.dataset().open_txg();
    let _ = fs.accessed(id, false);
    assert_eq!(fs.dataset().open_txg(), open);
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn users_groups_and_projects_are_counted_and_held_to_their_quotas() {
    let mut bed = Bed::new(5, &[("compression", OFF)], 0, 0);
    let fs = bed.fs().clone();
    let by = |uid, gid| NewNode { uid, gid, ..file() };
    let id = fs.create(fs.root(), b"alice", &by(1000, 100)).unwrap();
    fs.write(id, 0, &noise(3 * MIB, 1)).unwrap();
    let other = fs.create(fs.root(), b"bob", &by(1001, 100)).unwrap();
    fs.write(other, 0, &noise(MIB, 2)).unwrap();
    fs.dataset().sync().unwrap();
    assert_eq!(fs.usage(Owner::User, Amount::Bytes, 1000).unwrap(), 3 * MIB + 4608);
    assert_eq!(fs.usage(Owner::Group, Amount::Objects, 100).unwrap(), 2);
    let all = fs.usage_by(Owner::User).unwrap();
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 1000, 1001]);
    let bytes: Option<u64> = all.values().map(|usage| usage.bytes).sum();
    let of_groups: Option<u64> = fs.usage_by(Owner::Group).unwrap().values().map(|usage| usage.bytes).sum();
    assert_eq!(bytes, of_groups);

    fs.set_quota(Owner::User, Amount::Bytes, 1000, 4 * MIB).unwrap();
    fs.set_quota(Owner::User, Amount::Objects, 1001, 1).unwrap();
    fs.write(id, 3 * MIB, &noise(MIB, 3)).unwrap();
    fs.dataset().sync().unwrap();
    assert!(matches!(fs.write(id, 4 * MIB, b"x"), Err(Error::Quota)), "alice's space");
    assert!(matches!(fs.create(fs.root(), b"more", &by(1000, 0)), Err(Error::Quota)));
    assert!(matches!(fs.create(fs.root(), b"more", &by(1001, 0)), Err(Error::Quota)), "bob's files");
    fs.write(other, MIB, b"x").unwrap();
    let give = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
    assert!(matches!(fs.setattr(other, &give(1000)), Err(Error::Quota)));
    assert!(matches!(fs.setattr(id, &give(1001)), Err(Error::Quota)));
    fs.setattr(id, &give(1000)).unwrap();
    fs.truncate(id, MIB).unwrap();
    fs.dataset().sync().unwrap();
    fs.write(id, MIB, b"x").unwrap();

    // New files inherit the project of their folder. Owners without a quota of their own have the default.
    let dir = fs.create(fs.root(), b"dir", &NewNode::new(FileKind::Directory, 0o755)).unwrap();
    let flags = fs.stat(dir).unwrap().flags | format::znode::pflags::PROJINHERIT;
    fs.setattr(dir, &SetAttr { projid: Some(7), flags: Some(flags), ..SetAttr::default() }).unwrap();
    let inside = fs.create(dir, b"f", &file()).unwrap();
    assert_eq!(fs.stat(inside).unwrap().projid, 7);
    fs.set_default_quota(Owner::Project, Amount::Bytes, MIB).unwrap();
    fs.write(inside, 0, &noise(MIB, 4)).unwrap();
    fs.dataset().sync().unwrap();
    assert!(matches!(fs.write(inside, 0, b"x"), Err(Error::Quota)), "the default for projects");
    assert_eq!(bed.get("tank/fs", "defaultprojectquota"), MIB);
    assert_eq!(fs.usage(Owner::Project, Amount::Objects, 7).unwrap(), 2);
    fs.set_quota(Owner::Project, Amount::Bytes, 7, 10 * MIB).unwrap();
    fs.write(inside, 0, b"x").unwrap();

    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.reopen();
    assert_eq!(bed.fs().quota(Owner::User, Amount::Bytes, 1000).unwrap(), 4 * MIB);
    assert_eq!(bed.fs().usage_by(Owner::User).unwrap()[&1001].object_quota, Some(1));
    bed.fs().set_quota(Owner::User, Amount::Objects, 1001, 0).unwrap();
    bed.fs().create(bed.fs().root(), b"more", &by(1001, 0)).unwrap();
    bed.fs().remove_tree(bed.fs().root(), b"dir").unwrap();
    bed.expect_sound();
    assert_eq!(bed.fs().usage(Owner::Project, Amount::Bytes, 7).unwrap(), 0);
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn file_systems_below_a_limit_are_counted() {
    let mut bed = Bed::new(6, &[], 0, 0);
    for name in ["tank/a", "tank/a/b", "tank/a/b/c", "tank/d"] {
        bed.filesystem(name, &[]).unwrap();
    }
    assert_eq!(bed.get("tank/a", "filesystem_count"), u64::MAX, "nobody counts yet");
    bed.set("tank/a", "filesystem_limit", 10).unwrap();
    assert_eq!((bed.get("tank/a", "filesystem_count"), bed.get("tank/a/b", "filesystem_count")), (2, 1));
    bed.set("tank", "snapshot_limit", 5).unwrap();
    assert_eq!((bed.get("tank", "filesystem_count"), bed.get("tank", "snapshot_count")), (5, 0));
    bed.expect_clean();
    bed.fs = None;
    bed.close();
    bed.reopen();
    assert_eq!(bed.pool().read_only(), None);
    bed.filesystem("tank/a/e", &[]).unwrap();
    bed.pool().rename_dataset("tank/a/b", "tank/d/b").unwrap();
    assert_eq!((bed.get("tank/a", "filesystem_count"), bed.get("tank/d", "filesystem_count")), (1, 2));
    bed.pool().destroy_dataset("tank/d/b/c").unwrap();
    assert_eq!((bed.get("tank/d", "filesystem_count"), bed.get("tank", "filesystem_count")), (1, 5));
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn snapshots_count_and_double_what_is_reserved() {
    let mut bed = Bed::sized(256 << 20, 8, &[], 0, 0);
    bed.set("tank", "snapshot_limit", 9).unwrap();
    let fs = bed.filesystem("tank/r", &[("refreservation", 30 * MIB)]).unwrap();
    assert_eq!(fill(&fs, "f", 20).0, 20);
    fs.dataset().sync().unwrap();
    assert!(bed.get("tank/r", "usedbyrefreservation") < 10 * MIB);
    let take = |name: &str| bed.pool().snapshot(&[name.to_owned()], &[]);
    take("tank/r@one").unwrap();
    assert_eq!(bed.get("tank/r", "usedbyrefreservation"), 30 * MIB, "all of it may be written once more");
    assert_eq!((bed.get("tank/r", "snapshot_count"), bed.get("tank", "snapshot_count")), (1, 1));
    bed.expect_clean();
    assert_eq!(fill(&fs, "g", 3).0, 3);
    fs.dataset().sync().unwrap();
    let info = bed.pool().dataset("tank/r").unwrap();
    let since = bed.pool().written_since(&info, "one").unwrap().unwrap();
    assert!((3 * MIB..4 * MIB).contains(&since), "{since}");
    bed.pool().clone_snapshot("tank/r@one", "tank/c", vec![]).unwrap();
    assert_eq!((bed.get("tank", "filesystem_count"), bed.get("tank/c", "snapshot_count")), (3, 0));
    let too_much = vec![("reservation".to_owned(), pool::props::Value::Number(1 << 40))];
    assert!(matches!(bed.pool().clone_snapshot("tank/r@one", "tank/d", too_much), Err(PoolError::NoSpace)));
    assert_eq!(bed.get("tank", "filesystem_count"), 3);
    // Another snapshot would need the reservation twice over: there is not that much left.
    let hog = bed.filesystem("tank/hog", &[]).unwrap();
    assert!(matches!(fill(&hog, "f", 256).1, Some(Error::NoSpace)));
    assert_eq!(fill(&fs, "h", 20).0, 20);
    fs.dataset().sync().unwrap();
    assert!(matches!(take("tank/r@two"), Err(PoolError::NoSpace)));
    bed.expect_clean();
    bed.pool().destroy_dataset("tank/c").unwrap();
    bed.pool().destroy_snapshots(&["tank/r@one".to_owned()], false).unwrap();
    assert_eq!((bed.get("tank", "filesystem_count"), bed.get("tank", "snapshot_count")), (3, 0));
    bed.expect_clean();
    drop((fs, hog));
    bed.close();
    bed.ask_zdb(&[]);
}

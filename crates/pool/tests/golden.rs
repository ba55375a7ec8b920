//! Pools that real OpenZFS made are read whole and found sound.

use std::path::Path;
use std::process::Command;

use pool::{Options, Pool};

fn unpack(name: &str) -> tempfile::TempDir {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new(format!("{golden}/unpack")).arg(name).arg(dir.path()).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    dir
}

fn import(dir: &Path, read_only: bool) -> Pool {
    let found = pool::discover(&[dir.to_path_buf()]);
    let [found] = found.as_slice() else { panic!("one pool is there, not {}", found.len()) };
    // Beside the gangs of OpenZFS come gangs of cenote.
    let force_ganging =
        if found.config.name.starts_with("ggang") { 20_000 } else { Options::default().force_ganging };
    Pool::import(found, Options { read_only, force_ganging, ..Options::default() }).unwrap()
}

fn check(dir: &Path) -> (scan::check::Summary, Vec<String>) {
    let pool = import(dir, true);
    let mut findings = Vec::new();
    let summary = scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
    (summary, findings)
}

macro_rules! sound {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let (summary, findings) = check(unpack(stringify!($name)).path());
            assert!(findings.is_empty(), "{findings:#?}");
            assert!(summary.blocks > 40, "{summary:?}");
        }
    )*};
}

sound! {
    gashift9 gashift12 gashift13 gcomp gcompat21 gfreebsd20 ggrub2 gposix gprops grandom grec gstripe gsum gv28
    gremove gcheckpoint gsnap gdisk gcrypt gmirror graidz1 graidz2 graidz3 gbig gsend gresume gredact gexpand gexpanding
    grewrite ggang ggangraidz ggangdraid
}

/// The first txg of a writer takes over structures that only OpenZFS uses: log space maps, deferred frees, features.
fn rewrite(name: &str) -> tempfile::TempDir {
    let dir = unpack(name);
    write_into_all(dir.path());
    expect_pleased(dir.path(), name);
    dir
}

/// Writes and frees in every file system that can be written.
fn write_into_all(dir: &Path) {
    let pool = import(dir, false);
    assert_eq!(pool.read_only(), None, "the pool can be written");
    let top = pool.name();
    pool.set_properties(&top, vec![("org.cenote:seen".into(), Some(pool::props::Value::Text("yes".into())))])
        .unwrap();
    for info in pool.list(&top, None, false).unwrap() {
        if info.kind != pool::props::DatasetKind::Filesystem {
            continue;
        }
        let is_locked = pool.encryption(&info).unwrap().is_some_and(|encryption| !encryption.is_loaded);
        if is_locked {
            continue;
        }
        let dataset = pool.open(&info.name).unwrap();
        if dataset.check_writable().is_err() {
            continue;
        }
        write_and_free(&dataset, 300_000);
    }
    pool.export().unwrap();
}

/// As [`write_into_all`]; then everything is destroyed, one after the other in this order, and the check is pleased in between.
fn write_and_destroy(name: &str, victims: &[&str]) {
    let dir = unpack(name);
    write_into_all(dir.path());
    for victim in victims {
        let pool = import(dir.path(), false);
        match victim.contains('@') {
            true => pool.destroy_snapshots(&[(*victim).to_owned()], false).unwrap(),
            false => pool.destroy_dataset(victim).unwrap(),
        }
        for _ in 0..4 {
            pool.set_properties(name, vec![("org.cenote:seen".into(), None)]).unwrap();
            pool.sync().unwrap();
        }
        assert_eq!(pool.freeing().unwrap(), 0);
        pool.export().unwrap();
        let (_, findings) = check(dir.path());
        assert!(findings.is_empty(), "without {victim}: {findings:#?}");
    }
}

/// Such a block is newer than the snapshot that has its contents, too, and is freed without regard to it. The zdb of OpenZFS 2.1 does not
/// know that: oracle/features24 lets a newer one judge.
#[test]
fn blocks_that_a_physical_rewrite_moved_are_freed_with_all_that_share_them() {
    let middle_first = ["large@two", "clone@two", "clone", "large@one", "small@one", "small@two", "small"];
    let victims = middle_first.map(|victim| format!("grewrite/{victim}"));
    write_and_destroy("grewrite", &victims.each_ref().map(String::as_str));
}

#[test]
fn gangs_with_large_headers_are_freed() {
    for name in ["ggang", "ggangraidz", "ggangdraid"] {
        let victims =
            ["large@before", "twice@before", "twice", "large"].map(|victim| format!("{name}/{victim}"));
        write_and_destroy(name, &victims.each_ref().map(String::as_str));
    }
}

/// Writes an object of so many bytes. It has no owner and no name, and is freed two txgs later: the tests need only its blocks.
fn write_and_free(dataset: &pool::Dataset, bytes: usize) {
    let new = dmu::NewObject::plain(format::ObjectType::PLAIN_OTHER).block_size(131072);
    let object = {
        let tx = dataset.begin(pool::Hold::write(1 << 20)).unwrap();
        let object = dataset.objset().create_object(&tx, new).unwrap();
        object.write(&tx, 0, &vec![7; bytes]).unwrap();
        object
    };
    dataset.sync().unwrap();
    {
        let tx = dataset.begin(pool::Hold::free()).unwrap();
        dataset.objset().free_object(&tx, &object);
    }
    dataset.sync().unwrap();
}

/// Nothing is wrong with the exported pool in this folder, here and in the eyes of OpenZFS.
fn expect_pleased(dir: &Path, name: &str) {
    let (_, findings) = check(dir);
    assert!(findings.is_empty(), "{findings:#?}");
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let out = Command::new(oracle).arg("--dir").arg(dir).arg(name).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
fn a_pool_of_openzfs_2_1_can_be_written() {
    rewrite("gcomp");
}

#[test]
fn a_legacy_pool_can_be_written() {
    rewrite("gv28");
}

#[test]
fn a_stripe_can_be_written() {
    rewrite("gstripe");
}

#[test]
fn a_mirror_can_be_written_and_either_side_has_everything() {
    let (dir, away) = (rewrite("gmirror"), tempfile::tempdir().unwrap());
    for (lost, child) in [("gmirror.0.img", 0), ("gmirror.1.img", 1)] {
        std::fs::rename(dir.path().join(lost), away.path().join(lost)).unwrap();
        assert_eq!(import(dir.path(), true).read_only().as_deref(), Some("it was opened for reading only"));
        let (_, findings) = check(dir.path());
        let [finding] = findings.as_slice() else { panic!("{findings:#?}") };
        assert!(finding.contains(&format!("device {child} is not there")), "{finding}");
        std::fs::rename(away.path().join(lost), dir.path().join(lost)).unwrap();
    }
}

/// zdb compares the recorded obsolete ranges with the pointers to the removed vdev.
#[test]
fn blocks_of_a_removed_vdev_are_freed() {
    let dir = rewrite("gremove");
    let pool = import(dir.path(), false);
    let removal = pool.removal().unwrap().unwrap();
    assert_eq!((removal.vdev, removal.mapping), (1, 144));
    let before = pool.info().space.allocated;
    // Blocks of the snapshot stay.
    let dataset = pool.open("gremove/a").unwrap();
    let files = dataset.objset().synced_objects().map(Result::unwrap);
    let files = files.filter(|(_, dnode)| dnode.object_type == format::ObjectType::PLAIN_FILE_CONTENTS);
    let files: Vec<_> = files.map(|(id, _)| id).collect();
    {
        let tx = dataset.begin(pool::Hold::free()).unwrap();
        let objset = dataset.objset();
        files.iter().for_each(|id| objset.free_object(&tx, &objset.object(*id).unwrap()));
    }
    dataset.sync().unwrap();
    assert!(pool.info().space.allocated < before, "{before} {:?}", pool.info().space);
    drop(dataset);
    pool.export().unwrap();
    expect_pleased(dir.path(), "gremove");
}

#[test]
fn a_livelist_of_openzfs_is_gone_on_with_and_its_clone_is_freed_by_it() {
    let dir = unpack("gredact");
    // With this setting the clone keeps its list even if it shares hardly any space.
    let livelists = pool::LivelistRules { percent_shared: 0, ..pool::LivelistRules::default() };
    let import = || {
        let found = pool::discover(&[dir.path().to_path_buf()]);
        Pool::import(&found[0], Options { livelists, ..Options::default() }).unwrap()
    };
    let pool = import();
    let name = pool.list("gredact", None, false).unwrap().into_iter().map(|info| info.name);
    let listed: Vec<String> = name.filter(|name| !pool.livelist_parts(name).unwrap().is_empty()).collect();
    let [clone] = listed.as_slice() else { panic!("one clone has a list with blocks: {listed:?}") };
    let before = pool.livelist_parts(clone).unwrap();
    write_and_free(&pool.open(clone).unwrap(), 3000);
    pool.sync().unwrap();
    let after = pool.livelist_parts(clone).unwrap();
    assert!(after.len() == 1 && after[0] > before[0], "{before:?} {after:?}");
    pool.export().unwrap();
    expect_pleased(dir.path(), "gredact");
    let pool = import();
    let snapshots = pool.list(clone, None, true).unwrap().into_iter().filter(|info| info.is_snapshot());
    let snapshots: Vec<String> = snapshots.map(|info| info.name).collect();
    pool.destroy_snapshots(&snapshots, false).unwrap();
    pool.destroy_dataset(clone).unwrap();
    for _ in 0..4 {
        pool.set_properties("gredact", vec![("org.cenote:seen".into(), None)]).unwrap();
        pool.sync().unwrap();
    }
    assert_eq!(pool.freeing().unwrap(), 0);
    assert_eq!(pool.info().features[format::features::LIVELIST.guid], 0);
    pool.export().unwrap();
    expect_pleased(dir.path(), "gredact");
}

#[test]
fn a_checkpoint_of_openzfs_is_kept_discarded_and_returned_to() {
    let dir = rewrite("gcheckpoint");
    let pool = import(dir.path(), false);
    assert!(pool.checkpointed().unwrap().created.is_some());
    pool.discard_checkpoint().unwrap();
    while pool.checkpointed().is_some() {
        pool.sync().unwrap();
    }
    pool.export().unwrap();
    expect_pleased(dir.path(), "gcheckpoint");

    let dir = rewrite("gcheckpoint");
    let found = pool::discover(&[dir.path().to_path_buf()]);
    let options = Options { to_checkpoint: true, ..Options::default() };
    let pool = Pool::import(&found[0], options).unwrap();
    assert_eq!((pool.read_only(), pool.checkpointed()), (None, None));
    assert!(pool.dataset("gcheckpoint/a").unwrap().phys.referenced_bytes > 150_000);
    pool.export().unwrap();
    expect_pleased(dir.path(), "gcheckpoint");
}

#[test]
fn a_pool_that_counts_file_systems_can_be_written() {
    rewrite("gprops");
}

#[test]
fn raidz_that_lacks_devices_is_written() {
    for (name, parity) in [("graidz1", 1), ("graidz2", 2), ("graidz3", 3)] {
        let dir = unpack(name);
        (0..parity).for_each(|i| std::fs::remove_file(dir.path().join(format!("{name}.{i}.img"))).unwrap());
        let pool = import(dir.path(), false);
        assert_eq!(pool.read_only(), None);
        pool.snapshot(&[format!("{name}@degraded")], &[]).unwrap();
        pool.export().unwrap();
        let (_, findings) = check(dir.path());
        assert_eq!(findings.len(), parity, "{findings:#?}");
    }
}

#[test]
fn raidz_can_be_written_and_is_read_without_the_devices_that_parity_replaces() {
    for (name, parity) in [("graidz1", 1), ("graidz2", 2), ("graidz3", 3)] {
        let dir = rewrite(name);
        (0..parity).for_each(|i| std::fs::remove_file(dir.path().join(format!("{name}.{i}.img"))).unwrap());
        let (_, findings) = check(dir.path());
        assert_eq!(findings.len(), parity, "{findings:#?}");
        for (child, finding) in findings.iter().enumerate() {
            assert!(finding.contains(&format!("device {child} is not there")), "{finding}");
        }
    }
}

/// OpenZFS judges the result in `oracle/expanded`.
#[test]
fn expanded_raidz_is_written_also_without_devices() {
    for lost in [&[][..], &[0, 6], &[4, 5, 9]] {
        let dir = unpack("gexpand");
        lost.iter().for_each(|i| std::fs::remove_file(dir.path().join(format!("gexpand.{i}.img"))).unwrap());
        let pool = import(dir.path(), false);
        assert_eq!(pool.read_only(), None);
        let dataset = pool.open("gexpand/large").unwrap();
        write_and_free(&dataset, 900_000);
        drop(dataset);
        let before = pool.dataset("gexpand/small").unwrap().phys.referenced_bytes;
        pool.snapshot(&["gexpand/small@later".into()], &[]).unwrap();
        assert_eq!(pool.dataset("gexpand/small@later").unwrap().phys.referenced_bytes, before);
        pool.export().unwrap();
        let (_, findings) = check(dir.path());
        assert_eq!(findings.len(), lost.len(), "{findings:#?}");
    }
}

#[test]
fn the_expansion_of_a_raidz_vdev_that_openzfs_began_is_ended() {
    let dir = unpack("gexpanding");
    let pool = import(dir.path(), false);
    assert_eq!(pool.read_only(), None);
    pool.wait_widened().unwrap();
    let ended = pool.expansion().unwrap().unwrap();
    // OpenZFS was killed, so its last count of copied bytes on the disks is less than it had copied.
    assert!(ended.ended.is_some() && ended.copied > 80 << 20, "{ended:?}");
    assert!(pool.take_expanded() && !pool.take_expanded(), "a scrub is to follow");
    pool.export().unwrap();
    let (_, findings) = check(dir.path());
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn the_property_written_without_a_snapshot_counts_from_the_newest_one() {
    let dir = unpack("gsnap");
    let pool = import(dir.path(), true);
    let all = pool.list(&pool.name(), None, true).unwrap();
    let written = pool::props::dataset::parse("written").unwrap();
    let mut compared = 0;
    for head in all.iter().filter(|info| !info.is_snapshot()) {
        let own = all.iter().filter(|info| info.is_snapshot() && info.dir_id == head.dir_id);
        let names: Vec<&str> = own.filter_map(|info| info.snapshot_name()).collect();
        let Some(newest) = names.last() else { continue };
        let since = pool.written_since(head, newest).unwrap().map(pool::props::Value::Number);
        assert_eq!(since, pool.property(head, written).unwrap().map(|(value, _)| value), "{}", head.name);
        let older = names.iter().map(|name| pool.written_since(head, name).unwrap().unwrap());
        assert!(older.is_sorted_by(|older, newer| older >= newer), "{}: more since earlier", head.name);
        compared += 1;
    }
    assert!(compared > 0);
    let top = pool.dataset(&pool.name()).unwrap();
    assert_eq!(pool.written_since(&top, "nosuch").unwrap(), None);
}

#[test]
fn a_pool_of_a_big_endian_machine_opens_read_only_and_says_why() {
    let dir = unpack("gbig");
    let reason = import(dir.path(), false).read_only().unwrap();
    assert!(reason.contains("big-endian"), "{reason}");
}

//! Encrypted file systems: what is written can be read with the key, after a crash, too, and not without.

mod support;

use format::crypt::Suite;
use pool::{KeyError, Pool};
use support::{Bed, unlock};
use zpl::{Amount, FileKind, Filesystem, NewNode, Owner, SetAttr, XattrMode};

fn file() -> NewNode {
    NewNode { uid: 1000, gid: 100, ..NewNode::new(FileKind::Regular, 0o644) }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((i / 3).wrapping_mul(seed) >> 3) as u8).collect()
}

/// Files of all sizes, names, and attributes that lie in spill blocks.
fn fill(fs: &Filesystem, seed: u64) {
    let dir = fs
        .create(fs.root(), format!("dir{seed}").as_bytes(), &NewNode::new(FileKind::Directory, 0o755))
        .unwrap();
    for len in [0, 1, 511, 4096, 100_000, 131_072, 1_000_000, 5 << 20] {
        let id = fs.create(dir, format!("file-{len}").as_bytes(), &file()).unwrap();
        fs.write(id, 0, &bytes(seed, len)).unwrap();
    }
    let sparse = fs.create(dir, b"sparse", &file()).unwrap();
    fs.write(sparse, 900 << 20, b"far away").unwrap();
    for n in 0..300 {
        fs.create(dir, format!("a rather long name, so that the directory grows: {n}").as_bytes(), &file())
            .unwrap();
    }
    fs.xattr_set(sparse, b"user.big", &bytes(seed, 9000), XattrMode::Either).unwrap();
}

fn expect(fs: &Filesystem, seed: u64) {
    let path = |name: &str| fs.resolve(format!("/dir{seed}/{name}").as_bytes(), false).unwrap();
    for len in [0, 1, 511, 4096, 100_000, 131_072, 1_000_000, 5 << 20] {
        assert!(fs.read_all(path(&format!("file-{len}")), 64 << 20).unwrap() == bytes(seed, len), "{len}");
    }
    let mut end = [0; 8];
    fs.read(path("sparse"), 900 << 20, &mut end).unwrap();
    assert_eq!(&end, b"far away");
    assert_eq!(fs.xattr_get(path("sparse"), b"user.big").unwrap().unwrap(), bytes(seed, 9000));
}

fn create_child(pool: &Pool, name: &str) {
    let new = support::new_filesystem(pool.host(), 0, 0);
    pool.create_filesystem(name, Vec::new(), new, zpl::initialiser()).unwrap();
}

fn open(pool: &Pool, name: &str) -> Filesystem {
    Filesystem::open(pool.open(name).unwrap()).unwrap()
}

#[test]
fn data_of_each_suite_is_readable_only_with_the_key() {
    for (seed, suite) in (1..).zip(Suite::ALL) {
        let mut bed = Bed::encrypted(seed, suite);
        fill(bed.fs(), seed);
        bed.pool().sync().unwrap();
        expect(bed.fs(), seed);
        bed.pool().snapshot(&["tank/fs@a".into()], &[]).unwrap();
        create_child(bed.pool(), "tank/fs/child");
        bed.pool().clone_snapshot("tank/fs@a", "tank/clone", Vec::new()).unwrap();
        fill(bed.fs(), seed + 100);
        fill(&open(bed.pool(), "tank/fs/child"), seed);
        let clone = open(bed.pool(), "tank/clone");
        expect(&clone, seed);
        fill(&clone, seed + 200);
        drop(clone);
        bed.close();
        bed.ask_zdb(&[]);
        bed.reopen();
        for (name, seed) in
            [("tank/fs", seed), ("tank/fs", seed + 100), ("tank/fs/child", seed), ("tank/fs@a", seed)]
        {
            expect(&open(bed.pool(), name), seed);
        }
        for seed in [seed, seed + 200] {
            expect(&open(bed.pool(), "tank/clone"), seed);
        }
        bed.expect_sound();
        bed.expect_clean();
    }
}

#[test]
fn a_dataset_without_its_key_is_snapshotted_rolled_back_cloned_renamed_and_destroyed() {
    let mut bed = Bed::encrypted(20, Suite::Aes256Gcm);
    fill(bed.fs(), 1);
    bed.pool().snapshot(&["tank/fs@a".into()], &[]).unwrap();
    fill(bed.fs(), 2);
    bed.fs().fsync(bed.fs().root()).unwrap();
    create_child(bed.pool(), "tank/fs/child");
    bed.fs = None;
    let info = bed.pool().dataset("tank/fs").unwrap();
    bed.pool().unload_key(&info).unwrap();
    let locked = bed.pool().open("tank/fs").err();
    assert!(matches!(locked, Some(pool::Error::Key(KeyError::NotLoaded(_)))), "{locked:?}");
    let new = support::new_filesystem(bed.pool().host(), 0, 0);
    let refused = bed.pool().create_filesystem("tank/fs/other", Vec::new(), new, zpl::initialiser());
    assert!(matches!(refused, Err(pool::Error::Key(KeyError::RootNotLoaded))), "{refused:?}");
    let pool = bed.pool();
    pool.snapshot(&["tank/fs@b".into()], &[]).unwrap();
    pool.clone_snapshot("tank/fs@b", "tank/clone", Vec::new()).unwrap();
    pool.destroy_dataset("tank/fs/child").unwrap();
    pool.rename_dataset("tank/fs", "tank/other").unwrap();
    pool.rename_dataset("tank/other", "tank/fs").unwrap();
    unlock(pool);
    expect(&open(pool, "tank/clone"), 2);
    expect(&open(pool, "tank/fs"), 2);
    pool.unload_key(&info).unwrap();
    pool.destroy_dataset("tank/clone").unwrap();
    pool.destroy_snapshots(&["tank/fs@b".into()], false).unwrap();
    pool.rollback("tank/fs@a").unwrap();
    bed.pool().sync().unwrap();
    unlock(bed.pool());
    let fs = open(bed.pool(), "tank/fs");
    expect(&fs, 1);
    assert!(fs.resolve(b"/dir2", false).is_err());
    drop(fs);
    bed.expect_clean();
    bed.pool().destroy_snapshots(&["tank/fs@a".into()], false).unwrap();
    bed.pool().destroy_dataset("tank/fs").unwrap();
    bed.expect_clean();
    assert_eq!(bed.pool().info().feature(&format::features::ENCRYPTION), pool::FeatureState::Enabled);
}

#[test]
fn an_encrypted_log_is_claimed_without_the_key_and_replayed_with_it() {
    for (seed, suite) in [(30, Suite::Aes256Gcm), (31, Suite::Aes128Ccm)] {
        let mut bed = Bed::encrypted(seed, suite);
        bed.fs().fsync(bed.fs().root()).unwrap();
        let txg = bed.pool().info().txg;
        let fs = bed.fs().clone();
        let small = fs.create(fs.root(), b"small", &file()).unwrap();
        fs.write(small, 0, b"in the record").unwrap();
        let large = fs.create(fs.root(), b"large", &file()).unwrap();
        fs.write(large, 0, &bytes(5, 3 << 20)).unwrap();
        fs.setattr(small, &SetAttr { uid: Some(77), ..SetAttr::default() }).unwrap();
        fs.commit_all().unwrap();
        assert_eq!(bed.pool().info().txg, txg, "the log needs no sync of the pool");
        drop(fs);
        bed.crash();
        bed.expect_clean_as_left();
        bed.ask_zdb(&["--allow-unclean"]);
        let locked = bed.import();
        assert!(locked.open("tank/fs").is_err());
        assert_eq!(zpl::replay_logs(&locked).unwrap(), Vec::new());
        // The claimed log stays until the key is loaded.
        locked.snapshot(&["tank/fs@claimed".into()], &[]).unwrap();
        locked.export().unwrap();
        bed.ask_zdb(&[]);
        bed.reopen();
        let read = |name: &[u8]| bed.fs().read_all(bed.fs().resolve(name, false).unwrap(), 64 << 20).unwrap();
        assert_eq!(read(b"/small"), b"in the record");
        assert!(read(b"/large") == bytes(5, 3 << 20));
        let owner = bed.fs().stat(bed.fs().resolve(b"/small", false).unwrap()).unwrap().uid;
        assert_eq!(owner, 77);
        bed.expect_sound();
        bed.expect_clean();
    }
}

#[test]
fn owners_are_counted_in_an_encrypted_file_system() {
    let mut bed = Bed::encrypted(40, Suite::Aes192Gcm);
    fill(bed.fs(), 3);
    bed.pool().sync().unwrap();
    let used = |bed: &Bed| bed.fs().usage(Owner::User, Amount::Bytes, 1000).unwrap();
    let before = used(&bed);
    assert!(before > 300 << 10, "{before}");
    bed.close();
    bed.reopen();
    assert_eq!(used(&bed), before);
}

/// CCM cannot seal a record of 16 MiB, so such files have smaller ones.
#[test]
fn records_are_not_larger_than_a_suite_can_seal() {
    for (suite, most) in [(Suite::Aes128Ccm, 8 << 20), (Suite::Aes128Gcm, 16 << 20)] {
        let mut bed = Bed::encrypted(40, suite);
        bed.set_record_size(16 << 20);
        let id = bed.fs().create(bed.fs().root(), b"large", &file()).unwrap();
        let mut x = 1u64;
        let mut noise = vec![0; 33 << 20];
        for word in noise.chunks_exact_mut(8) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&x.to_le_bytes());
        }
        bed.fs().write(id, 0, &noise).unwrap();
        bed.pool().sync().unwrap();
        assert_eq!(bed.fs().stat(id).unwrap().block_size, most);
        bed.close();
        bed.ask_zdb(&[]);
        bed.reopen();
        assert!(bed.fs().read_all(id, 64 << 20).unwrap() == noise);
    }
}

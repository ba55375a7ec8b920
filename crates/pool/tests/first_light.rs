//! A pool made, synced, exported and opened again, with real OpenZFS as the judge of its blocks.

mod oracle;

use std::path::Path;
use std::sync::Arc;

use dmu::{NewObject, zap};
use format::ObjectType;
use format::zap::Value;
use pool::{CreateSpec, Grant, Hold, Initialise, NewFilesystem, Options, Pool};
use storage::host::{Access, Disk, FileDisk};

fn initialise() -> Initialise {
    Arc::new(|objset, tx, new| {
        let master =
            objset.create_object_at(tx, format::ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
        zap::create(&master, tx, new.host.entropy.u64(), 0)?;
        zap::insert(&master, tx, b"VERSION", &Value::from_u64(5))
    })
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, Access::ReadWrite { exclusive: true }).unwrap())
}

fn create(path: &Path, ashift: u32) -> Pool {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(256 << 20).unwrap();
    let options = Options::default();
    let spec = CreateSpec {
        ashift: Some(ashift),
        command: Some("zpool create tank".into()),
        ..CreateSpec::new("tank", vec![disk(path)], NewFilesystem::plain(&options.host), initialise())
    };
    Pool::create(spec, options).unwrap()
}

fn zdb(path: &Path) {
    let pool = Pool::import_disks(
        vec![Arc::new(FileDisk::open(path, Access::ReadOnly).unwrap())],
        Options { read_only: true, ..Options::default() },
    )
    .unwrap();
    let mut found = Vec::new();
    scan::check::check(&pool, &mut |finding| found.push(finding)).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    drop(pool);
    oracle::expect_pleased("tank", path);
}

#[test]
fn a_pool_survives_writes_and_reopening() {
    let dir = tempfile::tempdir().unwrap();
    for ashift in [9, 12, 13] {
        let path = dir.path().join(format!("disk{ashift}"));
        let pool = create(&path, ashift);
        pool.export().unwrap();
        zdb(&path);
        let pool = Pool::import_disks(vec![disk(&path)], Options::default()).unwrap();
        let host = pool.host().clone();
        pool.create_filesystem("tank/fs", Vec::new(), NewFilesystem::plain(&host), initialise()).unwrap();
        let dataset = pool.open("tank/fs").unwrap();
        let data: Vec<u8> = (0..10_000_000u32).map(|i| (i / 7 % 251) as u8).collect();
        let id = {
            let tx = dataset.begin(Hold::write(data.len() as u64)).unwrap();
            let object = dataset
                .objset()
                .create_object(&tx, NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(131072))
                .unwrap();
            object.write(&tx, 0, &data).unwrap();
            object.id()
        };
        dataset.sync().unwrap();
        for round in 0..5u64 {
            let tx = dataset.begin(Hold::write(1 << 20)).unwrap();
            let object = dataset.objset().object(id).unwrap();
            object.write(&tx, round * 1_000_000 + 77, &[round as u8; 300_000]).unwrap();
            drop(tx);
            dataset.sync().unwrap();
        }
        drop(dataset);
        pool.export().unwrap();
        zdb(&path);
        let pool = Pool::import_disks(vec![disk(&path)], Options::default()).unwrap();
        let dataset = pool.open("tank/fs").unwrap();
        let mut back = vec![0; data.len()];
        dataset.objset().object(id).unwrap().read(0, &mut back).unwrap();
        let mut expected = data.clone();
        for round in 0..5usize {
            let at = round * 1_000_000 + 77;
            expected[at..at + 300_000].fill(round as u8);
        }
        assert!(back == expected, "the file reads as it was written");
        {
            let tx = dataset.begin(Hold::free()).unwrap();
            let object = dataset.objset().object(id).unwrap();
            dataset.objset().free_object(&tx, &object);
        }
        dataset.sync().unwrap();
        drop(dataset);
        pool.destroy_dataset("tank/fs").unwrap();
        pool.export().unwrap();
        zdb(&path);
    }
}

#[test]
fn devices_of_a_refused_pool_are_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let [old, small] = ["old", "small"].map(|name| folder.path().join(name));
    create(&old, 12).export().unwrap();
    std::fs::File::create(&small).unwrap().set_len(32 << 20).unwrap();
    let before = std::fs::read(&old).unwrap();
    let options = Options::default();
    let spec = CreateSpec {
        caches: vec![disk(&small)],
        ..CreateSpec::new("new", vec![disk(&old)], NewFilesystem::plain(&options.host), initialise())
    };
    assert!(matches!(Pool::create(spec, options), Err(pool::Error::BadDevice { .. })));
    assert!(std::fs::read(&old).unwrap() == before, "the labels of another pool are there");
}

#[test]
fn the_creator_of_a_file_system_gets_the_permissions_that_are_granted_to_creators() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    create(&path, 9).export().unwrap();
    let options = Options { user: 1000, ..Options::default() };
    let host = options.host.clone();
    let pool = Pool::import_disks(vec![disk(&path)], options).unwrap();
    let grant = |key: &str, names: &[&str]| Grant {
        key: key.into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    pool.allow("tank", vec![grant("c-$", &["destroy", "mount"])]).unwrap();
    let new = |name: &str| {
        pool.create_filesystem(name, Vec::new(), NewFilesystem::plain(&host), initialise()).unwrap();
    };
    new("tank/a");
    pool.allow("tank/a", vec![grant("C-$", &["@set"])]).unwrap();
    new("tank/a/b");
    let mut granted = pool.grants("tank/a/b").unwrap();
    granted.iter_mut().for_each(|grant| grant.names.sort());
    granted.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(granted, [grant("Ul$1000", &["@set"]), grant("ul$1000", &["destroy", "mount"])]);
    let mut found = Vec::new();
    scan::check::check(&pool, &mut |finding| found.push(finding)).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

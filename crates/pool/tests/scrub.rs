//! Scrubs: an undamaged pool is not changed, damaged copies are repaired, lost blocks are reported, and a busy pool gives no
//! false errors.

mod oracle;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dmu::{NewObject, zap};
use format::features;
use format::label::DATA_START;
use format::scan::{Scan, ScanState};
use format::zap::Value;
use format::{ObjectId, ObjectType};
use pool::{CreateSpec, Dataset, Error, Hold, Initialise, NewFilesystem, Options, Pool};
use scan::Scans as _;
use storage::host::{Access, Disk, Entropy, FileDisk, SeededEntropy};

const RECORD: usize = 16 << 10;
/// The time that background work may take, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(300);

/// Sets the flag when it is dropped. So threads that run until then also end when the test fails, and the failure is
/// reported.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn initialise() -> Initialise {
    Arc::new(|objset, tx, new| {
        let master = objset.create_object_at(tx, ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
        zap::create(&master, tx, new.host.entropy.u64(), 0)?;
        zap::insert(&master, tx, b"VERSION", &Value::from_u64(5))
    })
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, Access::ReadWrite { exclusive: true }).unwrap())
}

fn open(path: &Path) -> Pool {
    Pool::import_disks(vec![disk(path)], Options { txg_timeout: 1, ..Options::default() }).unwrap()
}

fn create(path: &PathBuf, set: &str) -> Pool {
    create_with(path, features::set(set).unwrap().features().collect())
}

fn create_with(path: &PathBuf, features: Vec<&'static features::Feature>) -> Pool {
    File::create(path).unwrap().set_len(256 << 20).unwrap();
    let options = Options::default();
    let host = options.host.clone();
    let spec = CreateSpec {
        ashift: Some(12),
        features,
        ..CreateSpec::new("tank", vec![disk(path)], NewFilesystem::plain(&host), initialise())
    };
    let pool = Pool::create(spec, options).unwrap();
    // As it is: then a record can be found on the disk.
    let local = vec![("compression".to_owned(), pool::props::Value::Number(2))];
    pool.create_filesystem("tank/fs", local, NewFilesystem::plain(&host), initialise()).unwrap();
    pool
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SeededEntropy::new(seed).fill(&mut data);
    data
}

fn put(dataset: &Arc<Dataset>, data: &[u8]) -> ObjectId {
    let tx = dataset.begin(Hold::write(data.len() as u64)).unwrap();
    let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(RECORD as u32);
    let object = dataset.objset().create_object(&tx, new).unwrap();
    object.write(&tx, 0, data).unwrap();
    object.id()
}

fn scrubbed(pool: &Pool) -> Scan {
    pool.storage().cache().clear();
    pool.scrub().unwrap();
    pool.wait_scrub().unwrap();
    let status = pool.scan().unwrap().unwrap();
    assert!(!status.running && status.scan.state == ScanState::Finished);
    status.scan
}

fn checked(pool: Pool, path: &Path) {
    clean(pool);
    oracle::expect_pleased("tank", path);
}

fn clean(pool: Pool) {
    let mut found = Vec::new();
    scan::check::check(&pool, &mut |finding| found.push(finding)).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    pool.export().unwrap();
}

/// Where `needle` lies on the disk.
fn find(path: &Path, needle: &[u8]) -> u64 {
    let image = std::fs::read(path).unwrap();
    let found: Vec<usize> =
        (0..image.len() - needle.len()).step_by(4096).filter(|&at| image[at..].starts_with(needle)).collect();
    assert_eq!(found.len(), 1, "the record is there once");
    found[0] as u64
}

fn spoil(path: &Path, at: u64) {
    File::options().write(true).open(path).unwrap().write_all_at(&[0x5a; 4096], at).unwrap();
}

#[test]
fn a_scrub_of_a_good_pool_finds_nothing_and_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let pool = create(&path, "openzfs-2.1-linux");
    assert_eq!(pool.scan().unwrap(), None);
    assert!(matches!(pool.pause_scrub(), Err(Error::NotScrubbing)));
    let dataset = pool.open("tank/fs").unwrap();
    for n in 0..20 {
        put(&dataset, &bytes(n, 40 * RECORD));
    }
    drop(dataset);
    pool.sync().unwrap();
    let scan = scrubbed(&pool);
    let allocated = pool.info().space.allocated;
    assert_eq!((scan.errors, scan.processed, scan.queue), (0, 0, ObjectId(0)));
    assert!(scan.examined > 20 * 40 * RECORD as u64 && scan.examined <= allocated, "{scan:?} {allocated}");
    assert!(scan.end_time >= scan.start_time && scan.start_time > 0);
    assert!(pool.data_errors().unwrap().is_empty());
    pool.export().unwrap();
    let pool = open(&path);
    assert_eq!(pool.scan().unwrap().unwrap().scan, scan);
    checked(pool, &path);
}

#[test]
fn a_damaged_copy_is_repaired_from_a_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let pool = create(&path, "openzfs-2.1-linux");
    let dataset = pool.open("tank/fs").unwrap();
    put(&dataset, &bytes(1, 100 * RECORD));
    pool.sync().unwrap();
    let (_, root) = dataset.objset().synced_root();
    drop(dataset);
    let root = *root.block().unwrap();
    let copies: Vec<_> = root.copies().collect();
    assert!(copies.len() > 1, "an objset has copies");
    for (which, copy) in copies.iter().enumerate() {
        spoil(&path, copy.offset + DATA_START);
        assert_eq!(pool.storage().verify_copies(&root).bad.len(), 1);
        let scan = scrubbed(&pool);
        assert_eq!((scan.errors, scan.processed), (0, root.psize), "copy {which}");
        assert!(pool.storage().verify_copies(&root).bad.is_empty());
        let disk = pool.storage().vdevs().tops()[0].leaves().next().unwrap().meter.stats();
        assert!(disk.checksum_errors > 0);
        pool.clear_errors(None);
    }
    checked(pool, &path);
}

#[test]
fn a_block_without_a_good_copy_is_named_until_it_is_written_again() {
    for set in ["openzfs-2.1-linux", "openzfs-2.2-linux"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let pool = create(&path, set);
        let dataset = pool.open("tank/fs").unwrap();
        let data = bytes(7, 100 * RECORD);
        let id = put(&dataset, &data);
        drop(dataset);
        pool.sync().unwrap();
        let owner = pool.dataset("tank/fs").unwrap().id;
        for block in [41, 97] {
            spoil(&path, find(&path, &data[block * RECORD..][..RECORD]));
        }
        assert_eq!(scrubbed(&pool).errors, 2, "{set}");
        pool.export().unwrap();
        let pool = open(&path);
        let errors = pool.data_errors().unwrap();
        let places: Vec<_> = errors.iter().map(|e| (e.dataset, e.object, e.level, e.blkid)).collect();
        assert_eq!(places, [(owner, id, 0, 41), (owner, id, 0, 97)], "{set}");
        let dataset = pool.open("tank/fs").unwrap();
        for block in [41, 97] {
            let tx = dataset.begin(Hold::write(RECORD as u64)).unwrap();
            let at = block * RECORD;
            dataset.objset().object(id).unwrap().write(&tx, at as u64, &data[at..][..RECORD]).unwrap();
        }
        drop(dataset);
        pool.sync().unwrap();
        assert_eq!(scrubbed(&pool).errors, 0, "{set}");
        assert!(pool.data_errors().unwrap().is_empty());
        clean(pool);
        // zdb 2.1 does not know the error log of 2.2.
        if set == "openzfs-2.1-linux" {
            oracle::expect_pleased("tank", &path);
        }
    }
}

#[test]
fn a_damaged_dataset_may_be_destroyed_during_a_scrub() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let pool = create(&path, "openzfs-2.2-linux");
    let dataset = pool.open("tank/fs").unwrap();
    let data = bytes(7, 20 * RECORD);
    put(&dataset, &data);
    drop(dataset);
    let new = NewFilesystem::plain(&Options::default().host);
    pool.create_filesystem("tank/later", Vec::new(), new, initialise()).unwrap();
    let later = pool.open("tank/later").unwrap();
    for n in 0..10 {
        put(&later, &bytes(20 + n, 500 * RECORD));
    }
    drop(later);
    pool.sync().unwrap();
    spoil(&path, find(&path, &data[11 * RECORD..][..RECORD]));
    let until = Instant::now() + PATIENCE;
    loop {
        pool.storage().cache().clear();
        pool.scrub().unwrap();
        while pool.scan().unwrap().unwrap().scan.errors == 0 {
            assert!(Instant::now() < until, "no scrub comes upon it");
            std::thread::yield_now();
        }
        if pool.pause_scrub().is_ok() {
            break;
        }
    }
    pool.destroy_dataset("tank/fs").unwrap();
    pool.scrub().unwrap();
    pool.wait_scrub().unwrap();
    assert_eq!(pool.data_errors().unwrap(), []);
    clean(pool);
}

#[test]
fn a_pool_in_full_use_gives_no_false_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let pool = create(&path, "openzfs-2.1-linux");
    let dataset = pool.open("tank/fs").unwrap();
    let mut objects: Vec<ObjectId> = (0..30).map(|n| put(&dataset, &bytes(n, 50 * RECORD))).collect();
    pool.sync().unwrap();
    pool.snapshot(&["tank/fs@kept".to_owned()], &[]).unwrap();
    let kept = pool.dataset("tank/fs@kept").unwrap().phys.bp;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| {
            let chance = SeededEntropy::new(3);
            while !stop.load(Ordering::Acquire) {
                let id = objects.swap_remove(chance.below(objects.len() as u64) as usize);
                let tx = dataset.begin(Hold::free()).unwrap();
                let object = dataset.objset().object(id).unwrap();
                dataset.objset().free_object(&tx, &object);
                drop((tx, object));
                objects.push(put(&dataset, &bytes(chance.u64(), 50 * RECORD)));
                dataset.sync().unwrap();
            }
        });
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Acquire) {
                n += 1;
                pool.snapshot(&[format!("tank/fs@s{n}")], &[]).unwrap();
                if n > 2 {
                    pool.destroy_snapshots(&[format!("tank/fs@s{}", n - 2)], false).unwrap();
                }
            }
        });
        for round in 0..4 {
            // A snapshot's root stays where it is.
            let root = *kept.block().unwrap();
            if round % 2 == 1 {
                spoil(&path, root.dvas[1].offset + DATA_START);
            }
            let scan = scrubbed(&pool);
            assert_eq!((scan.errors, scan.processed), (0, if round % 2 == 1 { root.psize } else { 0 }));
            assert!(pool.storage().verify_copies(&root).bad.is_empty());
            assert!(scan.examined > 20 * 50 * RECORD as u64, "{scan:?}");
        }
        drop(ends);
    });
    drop(dataset);
    pool.sync().unwrap();
    checked(pool, &path);
}

#[test]
fn an_unreadable_file_system_is_not_destroyed_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    // With the feature it is freed by and by, as far as it can be found (sim: destroy).
    let all = features::set("openzfs-2.1-linux").unwrap().features();
    let pool = create_with(&path, all.filter(|feature| feature.name != "async_destroy").collect());
    let dataset = pool.open("tank/fs").unwrap();
    let (whole, lost) = (put(&dataset, &bytes(1, 40 * RECORD)), put(&dataset, &bytes(2, 40 * RECORD)));
    pool.sync().unwrap();
    let dnodes = dataset.objset().synced_objects().map(Result::unwrap);
    let dnode = dnodes.into_iter().find(|(id, _)| *id == lost).unwrap().1;
    let indirect = *dnode.block_ptrs[0].block().unwrap();
    assert_eq!(indirect.level, 1);
    drop(dataset);
    pool.export().unwrap();
    indirect.copies().for_each(|dva| spoil(&path, DATA_START + dva.offset));

    let pool = open(&path);
    let before = pool.info().space.allocated;
    let refused = pool.destroy_dataset("tank/fs").unwrap_err();
    assert!(matches!(refused, Error::Unfreeable { .. }), "{refused}");
    for _ in 0..4 {
        pool.sync().unwrap();
    }
    assert!(pool.info().space.allocated >= before, "nothing of it was freed");
    let dataset = pool.open("tank/fs").unwrap();
    let mut data = vec![0; 40 * RECORD];
    dataset.objset().object(whole).unwrap().read(0, &mut data).unwrap();
    assert!(data == bytes(1, 40 * RECORD));
}

#[test]
fn a_device_whose_end_is_missing_is_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    create(&path, "openzfs-2.1-linux").export().unwrap();
    File::options().write(true).open(&path).unwrap().set_len(240 << 20).unwrap();
    let image = std::fs::read(&path).unwrap();
    let pool = open(&path);
    let why = pool.read_only().expect("its last labels would lie in the data");
    assert!(why.contains("its end is missing"), "{why}");
    assert!(matches!(pool.sync(), Ok(()) | Err(Error::ReadOnly { .. })));
    drop(pool);
    assert!(std::fs::read(&path).unwrap() == image);
}

#[test]
fn the_newer_of_two_copies_of_a_device_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    create(&path, "openzfs-2.1-linux").export().unwrap();
    // By its name it comes last.
    std::fs::copy(&path, folder.path().join("disk.old")).unwrap();
    let pool = open(&path);
    put(&pool.open("tank/fs").unwrap(), &bytes(1, RECORD));
    pool.sync().unwrap();
    pool.export().unwrap();
    let found = pool::discover(&[folder.path().to_path_buf()]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].devices.values().collect::<Vec<_>>(), [&path]);
}

//! A pool that is read by one process while another one keeps changing it.

mod oracle;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dmu::{NewObject, zap};
use format::zap::Value;
use format::{ObjectId, ObjectType};
use pool::{CreateSpec, Dataset, Hold, NewFilesystem, Options, Pool};
use storage::host::{Access, Disk, FileDisk, Host};

const BYTES: u64 = 64 << 20;

fn create(path: &Path) -> Pool {
    std::fs::File::create(path).unwrap().set_len(BYTES).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(path, Access::ReadWrite { exclusive: true }).unwrap());
    let filesystem = NewFilesystem {
        host: Host::system(),
        normalization: 0,
        utf8only: false,
        casesensitivity: 0,
        project_quota: true,
        version: 5,
        encryption: Default::default(),
    };
    let spec = CreateSpec::new(
        "tank",
        vec![disk],
        filesystem,
        Arc::new(|objset, tx, new| {
            let master = objset.create_object_at(tx, ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
            zap::create(&master, tx, new.host.entropy.u64(), 0)?;
            zap::insert(&master, tx, b"VERSION", &Value::from_u64(5))
        }),
    );
    Pool::create(spec, Options { workers: 1, ..Options::default() }).unwrap()
}

fn fill(dataset: &Dataset, object: ObjectId, byte: u8) -> pool::Result<()> {
    let object = dataset.objset().object(object).unwrap();
    for at in 0..8 {
        let tx = dataset.begin(Hold::write(1 << 20))?;
        object.write(&tx, at << 20, &vec![byte; 1 << 20])?;
    }
    Ok(())
}

/// The file system of `pool` with one object, which is not compressed.
fn filled(pool: &Pool) -> (Arc<Dataset>, ObjectId) {
    let off = vec![("compression".to_owned(), Some(pool::props::Value::Number(2)))];
    pool.set_properties("tank", off).unwrap();
    let dataset = pool.open("tank").unwrap();
    let object = {
        let tx = dataset.begin(Hold::write(0)).unwrap();
        let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(128 << 10);
        dataset.objset().create_object(&tx, new).unwrap().id()
    };
    fill(&dataset, object, 1).unwrap();
    (dataset, object)
}

#[test]
fn a_reader_elsewhere_finds_the_leased_state_whatever_is_overwritten_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let pool = create(&path);
    let (dataset, object) = filled(&pool);
    let lease = pool.lease().unwrap();
    let then = pool.info().txg;
    // Far more than the pool could hold without using freed space again.
    let mut refused = 0;
    for byte in 2..20 {
        refused += u32::from(fill(&dataset, object, byte).is_err());
        pool.sync().unwrap();
    }
    assert!(refused > 0, "the space of the leased state is not for others");
    assert!(pool.info().txg > then);
    assert!(pool.lease().unwrap().uberblock().txg > lease.uberblock().txg);

    let found = pool::discover(std::slice::from_ref(&path)).remove(0);
    assert!(Pool::import(&found, Options { read_only: true, ..Options::default() }).is_err(), "it is locked");
    let options = Options { read_only: true, leased: Some(lease.uberblock().clone()), ..Options::default() };
    let reader = Pool::import(&found, options).unwrap();
    let seen = reader.open("tank").unwrap();
    let mut data = vec![0; 8 << 20];
    seen.objset().object(object).unwrap().read(0, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 1));
    let mut findings = Vec::new();
    scan::check::check(&reader, &mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    drop((seen, reader));

    drop(lease);
    (0..4).for_each(|_| pool.sync().unwrap());
    fill(&dataset, object, 99).unwrap();
    drop(dataset);
    pool.export().unwrap();
    oracle::expect_pleased("tank", &path);
}

#[test]
fn reading_commands_wait_for_no_txg_and_see_changes_of_commands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let pool = create(&path);
    let (dataset, object) = filled(&pool);
    pool.snapshot(&["tank@before".to_owned()], &[]).unwrap();
    let then = pool.info().txg;

    // No txg can close while the transaction is open.
    let tx = dataset.begin(Hold::write(1 << 20)).unwrap();
    dataset.objset().object(object).unwrap().write(&tx, 0, &vec![2; 1 << 20]).unwrap();
    let waits = pool.await_lease();
    assert!(!waits.wait(Duration::from_millis(5)).unwrap());
    let lease = waits.take();
    assert_eq!(lease.uberblock().txg, then);
    drop(tx);
    for byte in 3..12 {
        // The writes may fail in a full pool; the leased state stays readable.
        let _ = fill(&dataset, object, byte);
        pool.sync().unwrap();
    }

    let found = pool::discover(std::slice::from_ref(&path)).remove(0);
    let options = Options { read_only: true, leased: Some(lease.uberblock().clone()), ..Options::default() };
    let reader = Pool::import(&found, options).unwrap();
    assert!(reader.dataset("tank@before").is_ok());
    let seen = reader.open("tank").unwrap();
    let mut data = vec![0; 8 << 20];
    seen.objset().object(object).unwrap().read(0, &mut data).unwrap();
    assert!(data.iter().all(|byte| *byte == 1));
    let mut findings = Vec::new();
    scan::check::check(&reader, &mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    drop((seen, reader));

    // If no transaction is open, the lease contains all changes.
    fill(&dataset, object, 12).ok();
    let waits = pool.await_lease();
    assert!(waits.wait(Duration::from_secs(60)).unwrap());
    let all = waits.take();
    assert!(all.uberblock().txg > lease.uberblock().txg);
    drop((all, lease));
    drop(dataset);
    pool.export().unwrap();
    oracle::expect_pleased("tank", &path);
}

#[test]
fn an_exported_pool_can_be_imported_while_a_dataset_of_before_is_still_referred_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.img");
    let pool = create(&path);
    let (held, _) = filled(&pool);
    pool.export().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(&path, Access::ReadWrite { exclusive: true }).unwrap());
    let again = Pool::import_disks(vec![disk], Options::default()).unwrap();
    again.export().unwrap();
    drop(held);
    oracle::expect_pleased("tank", &path);
}

/// Ends the readers when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Passes of a sync write blocks of the MOS in the place where the pass before wrote them, and readers have its pointers until the pass ends.
#[test]
fn the_mos_can_be_read_during_every_pass_of_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tank.img");
    let pool = create(&path);
    let is_over = AtomicBool::new(false);
    let reads = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        let readers: Vec<_> = reads
            .iter()
            .map(|reads| {
                let (pool, is_over) = (&pool, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        pool.storage().cache().clear();
                        let info = pool.dataset("tank").expect("it can be read");
                        assert!(info.phys.creation_txg.0 > 0);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // A busy machine may let a reader wait: the syncs go on until each has read during some.
        let has_read = || reads.iter().all(|reads| reads.load(Ordering::Relaxed) > 10);
        for number in (0..u64::MAX).take_while(|number| *number < 100 || !has_read()) {
            let value = pool::props::Value::Number((number % 2) + 1);
            pool.set_properties("tank", vec![("atime".to_owned(), Some(value))]).unwrap();
            pool.sync().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("every read was good");
        }
    });
    pool.export().unwrap();
    oracle::expect_pleased("tank", &path);
}

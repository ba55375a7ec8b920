//! Trim on devices that discard trimmed bytes: no byte in use is trimmed.

mod scripted;

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::ObjectId;
use pool::props::Value;
use pool::{Course, Hold, Layout, Options, Order, Pool, Treatment};
use scripted::{LEN, SIZE, content, read, write};
use storage::host::{Before, Disk, ScriptedDisk};

/// A disk that overwrites trimmed bytes with random ones.
#[derive(Debug)]
struct Forgetful {
    disk: ScriptedDisk,
    forgotten: Arc<AtomicU64>,
}

impl Before for Forgetful {
    fn disk(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.disk.write_at(bufs, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.forgotten.fetch_add(len, Ordering::Relaxed);
        let noise = vec![0xa5; len as usize];
        self.disk.write_at(&[IoSlice::new(&noise)], offset)
    }
}

fn options() -> Options {
    Options { io_threads: 0, ..scripted::options() }
}

/// Disks that share one count of trimmed bytes.
fn forgetful(count: usize) -> (Vec<Arc<dyn Disk>>, Arc<AtomicU64>) {
    let forgotten = Arc::<AtomicU64>::default();
    let disk = |_| Arc::new(Forgetful { disk: ScriptedDisk::new(SIZE), forgotten: forgotten.clone() });
    ((0..count).map(disk).map(|disk| disk as Arc<dyn Disk>).collect(), forgotten)
}

fn remove(pool: &Pool, id: ObjectId) {
    let dataset = pool.open("tank").unwrap();
    let tx = dataset.begin(Hold::write(LEN)).unwrap();
    let object = dataset.objset().object(id).unwrap();
    dataset.objset().free_object(&tx, &object);
}

#[track_caller]
fn expect_clean(pool: &Pool) {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding.to_string())).unwrap();
    assert_eq!(found, [""; 0]);
}

#[test]
fn only_free_space_is_trimmed_or_overwritten() {
    for (layout, count) in
        [(Layout::Single, 2), (Layout::Mirror, 3), (Layout::Raidz(1), 3), (Layout::Raidz(2), 5)]
    {
        let (disks, forgotten) = forgetful(count);
        let pool = scripted::created_on(disks.clone(), layout, options());
        let files: Vec<_> = (0..12).map(|n| write(&pool, n).unwrap()).collect();
        pool.sync().unwrap();
        files.iter().step_by(2).for_each(|id| remove(&pool, *id));
        let leaves: Vec<_> = pool.info().config.tree.leaves().map(|leaf| leaf.guid).collect();
        for what in Treatment::ALL {
            // While something is written, and states before may still be fallen back to.
            for guid in &leaves {
                pool.treat(*guid, what, Order::Start(None)).unwrap();
            }
            for n in 20..24 {
                let id = write(&pool, n).unwrap();
                pool.sync().unwrap();
                remove(&pool, id);
            }
            pool.wait_treated(what, &leaves).unwrap();
            let courses = pool.treated(what).unwrap();
            assert!(courses.iter().all(|(_, treated)| treated.course == Course::Complete), "{courses:?}");
        }
        let free = SIZE * count as u64 - (16 << 20);
        assert!(forgotten.load(Ordering::Relaxed) > free / 2, "most of it is free");
        let expect = |pool: &Pool| {
            for n in (0..12).filter(|n| n % 2 == 1) {
                assert!(read(pool, files[n as usize]) == content(n), "{layout:?}: file {n}");
            }
            expect_clean(pool);
        };
        expect(&pool);
        pool.export().unwrap();
        expect(&Pool::import_disks(disks, options()).unwrap());
    }
}

#[test]
fn with_autotrim_freed_space_is_trimmed() {
    for on in [false, true] {
        let (disks, forgotten) = forgetful(3);
        let pool = scripted::created_on(disks.clone(), Layout::Raidz(1), options());
        pool.set_pool_properties(vec![("autotrim".to_owned(), Value::Number(on.into()))]).unwrap();
        let pool = {
            // The property is known to the next import, too.
            pool.export().unwrap();
            Pool::import_disks(disks, options()).unwrap()
        };
        let files: Vec<_> = (0..12).map(|n| write(&pool, n).unwrap()).collect();
        pool.sync().unwrap();
        files.iter().step_by(2).for_each(|id| remove(&pool, *id));
        pool.sync().unwrap();
        assert_eq!(forgotten.load(Ordering::Relaxed), 0, "an older state may still be fallen back to");
        for n in 20..25 {
            write(&pool, n).unwrap();
            pool.sync().unwrap();
        }
        let bytes = forgotten.load(Ordering::Relaxed);
        assert_eq!(bytes > LEN / 2, on, "{bytes} bytes");
        for n in (0..12).filter(|n| n % 2 == 1) {
            assert!(read(&pool, files[n as usize]) == content(n), "file {n}");
        }
        expect_clean(&pool);
        pool.export().unwrap();
    }
}

#[test]
fn a_treatment_can_be_suspended_gone_on_with_and_given_up() {
    let (disks, _) = forgetful(1);
    let pool = scripted::created_on(disks.clone(), Layout::Single, options());
    let guid = pool.info().config.tree.leaves().next().unwrap().guid;
    let course = |pool: &Pool| pool.treated(Treatment::Trim).unwrap()[0].1;
    let order =
        |pool: &Pool, order| pool.treat(guid, Treatment::Trim, order).map_err(|error| error.to_string());
    assert_eq!(order(&pool, Order::Suspend), Err("there is no active trim".to_owned()));
    // One byte a second: it would take years.
    order(&pool, Order::Start(Some(1))).unwrap();
    assert_eq!(order(&pool, Order::Start(None)), Err("currently trimming".to_owned()));
    order(&pool, Order::Suspend).unwrap();
    let suspended = course(&pool);
    assert_eq!((suspended.course, suspended.parameter), (Course::Suspended, 1));
    pool.wait_treated(Treatment::Trim, &[guid]).unwrap();
    pool.export().unwrap();
    let pool = Pool::import_disks(disks, options()).unwrap();
    assert_eq!(course(&pool), suspended);
    order(&pool, Order::Cancel).unwrap();
    assert_eq!(course(&pool).course, Course::Canceled);
    assert_eq!(order(&pool, Order::Cancel), Err("there is no active trim".to_owned()));
    order(&pool, Order::Start(None)).unwrap();
    pool.wait_treated(Treatment::Trim, &[guid]).unwrap();
    assert_eq!(course(&pool).course, Course::Complete);
    order(&pool, Order::Forget).unwrap();
    assert_eq!(course(&pool), pool::Treated::default());
    pool.export().unwrap();
}

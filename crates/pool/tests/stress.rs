//! Pools in real files under heavy load, with killed processes: no synced data is lost, no space leaks, and zdb finds no
//! error.

mod oracle;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use dmu::{NewObject, zap};
use format::zap::Value;
use format::{ObjectId, ObjectType};
use pool::{CreateSpec, Dataset, Hold, Initialise, NewFilesystem, Options, Pool};
use storage::host::{Access, Disk, Entropy, FileDisk, SeededEntropy};

const RECORD: u64 = 16 << 10;
/// Where the child that is to be killed finds its pool, and its objects.
const CHILD_POOL: &str = "CENOTE_STRESS_POOL";
const CHILD_OBJECTS: &str = "CENOTE_STRESS_OBJECTS";

fn initialise() -> Initialise {
    Arc::new(|objset, tx, new| {
        let master = objset.create_object_at(tx, ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
        zap::create(&master, tx, new.host.entropy.u64(), 0)?;
        zap::insert(&master, tx, b"VERSION", &Value::from_u64(5))
    })
}

fn open(path: &Path) -> Pool {
    let options = Options { workers: 2, txg_timeout: 1, ..Options::default() };
    let disk = FileDisk::open(path, Access::ReadWrite { exclusive: true }).unwrap();
    Pool::import_disks(vec![Arc::new(disk)], options).unwrap()
}

/// A pool in a file with one file system, and what its objects should hold.
struct Ground {
    _folder: tempfile::TempDir,
    path: PathBuf,
    pool: Option<Pool>,
    dataset: Option<Arc<Dataset>>,
    model: BTreeMap<ObjectId, Vec<u8>>,
    chance: SeededEntropy,
}

impl Ground {
    fn new(ashift: u32, bytes: u64, compression: u64) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let options = Options::default();
        let host = options.host.clone();
        let disk: Arc<dyn Disk> =
            Arc::new(FileDisk::open(&path, Access::ReadWrite { exclusive: true }).unwrap());
        let spec = CreateSpec {
            ashift: Some(ashift),
            command: Some("zpool create tank".into()),
            ..CreateSpec::new("tank", vec![disk], NewFilesystem::plain(&host), initialise())
        };
        let pool = Pool::create(spec, options).unwrap();
        let local = vec![("compression".to_owned(), pool::props::Value::Number(compression))];
        pool.create_filesystem("tank/fs", local, NewFilesystem::plain(&host), initialise()).unwrap();
        let dataset = pool.open("tank/fs").unwrap();
        let chance = SeededEntropy::new(u64::from(ashift));
        Ground {
            _folder: folder,
            path,
            pool: Some(pool),
            dataset: Some(dataset),
            model: BTreeMap::new(),
            chance,
        }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    fn dataset(&self) -> &Arc<Dataset> {
        self.dataset.as_ref().unwrap()
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let mut data = vec![self.chance.u64() as u8; len];
        if self.chance.below(2) == 0 {
            self.chance.fill(&mut data);
        }
        data
    }

    /// A new object with `len` bytes; `false` when the pool is full.
    fn create(&mut self, len: usize) -> bool {
        let data = self.bytes(len);
        let tx = match self.dataset().begin(Hold::write(len as u64)) {
            Ok(tx) => tx,
            Err(error) if error.is_no_space() => return false,
            Err(error) => panic!("{error}"),
        };
        let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(RECORD as u32);
        let object = self.dataset().objset().create_object(&tx, new).unwrap();
        object.write(&tx, 0, &data).unwrap();
        drop(tx);
        self.model.insert(object.id(), data);
        true
    }

    fn pick(&self) -> ObjectId {
        *self.model.keys().nth(self.chance.below(self.model.len() as u64) as usize).unwrap()
    }

    fn overwrite(&mut self, id: ObjectId, offset: usize, len: usize) {
        let data = self.bytes(len);
        let tx = self.dataset().begin(Hold::write(len as u64)).unwrap();
        self.dataset().objset().object(id).unwrap().write(&tx, offset as u64, &data).unwrap();
        drop(tx);
        let whole = self.model.get_mut(&id).unwrap();
        whole.resize(whole.len().max(offset + len), 0);
        whole[offset..offset + len].copy_from_slice(&data);
    }

    /// Frees whole records at the end.
    fn truncate(&mut self, id: ObjectId, len: usize) {
        let records = len as u64 / RECORD;
        let tx = self.dataset().begin(Hold::free()).unwrap();
        self.dataset().objset().object(id).unwrap().free_blocks(&tx, records, u64::MAX >> 20);
        drop(tx);
        self.model.get_mut(&id).unwrap()[(records * RECORD) as usize..].fill(0);
    }

    fn remove(&mut self, id: ObjectId) {
        let tx = self.dataset().begin(Hold::free()).unwrap();
        let object = self.dataset().objset().object(id).unwrap();
        self.dataset().objset().free_object(&tx, &object);
        drop(tx);
        self.model.remove(&id);
    }

    fn remove_all(&mut self) {
        while let Some(id) = self.model.keys().next() {
            self.remove(*id);
        }
    }

    fn sync(&self) {
        self.pool().sync().unwrap();
    }

    /// Every object reads as it should, and the checker finds nothing.
    fn expect_sound(&self) {
        self.sync();
        for (id, data) in &self.model {
            let mut back = vec![0xee; data.len()];
            self.dataset().objset().object(*id).unwrap().read(0, &mut back).unwrap();
            assert!(back == *data, "object {id} holds something else");
        }
        expect_clean(self.pool());
    }

    fn close(&mut self) {
        self.dataset = None;
        self.pool.take().unwrap().export().unwrap();
    }

    fn reopen(&mut self) {
        self.pool = Some(open(&self.path));
        self.dataset = Some(self.pool().open("tank/fs").unwrap());
    }

    /// Lets zdb check the pool between two openings.
    fn show_zdb(&mut self) {
        self.close();
        oracle::expect_pleased("tank", &self.path);
        self.reopen();
    }
}

fn expect_clean(pool: &Pool) {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding)).unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_pool_is_sound_at_every_stage_of_its_life() {
    for ashift in [9, 12, 13] {
        let mut ground = Ground::new(ashift, 96 << 20, 15);
        let done = |ground: &mut Ground| {
            ground.expect_sound();
            ground.show_zdb();
            ground.expect_sound();
        };
        done(&mut ground); // 1: created.
        for i in 0..60 {
            assert!(ground.create(1 + i * 9000));
        }
        done(&mut ground); // 2: filled.
        for round in 0..4 {
            for _ in 0..60 {
                let id = ground.pick();
                let offset = ground.chance.below(ground.model[&id].len() as u64) as usize;
                ground.overwrite(id, offset, 1 + round * 20_000);
            }
            ground.sync();
        }
        done(&mut ground); // 3: overwritten.
        for _ in 0..40 {
            let id = ground.pick();
            ground.remove(id);
        }
        done(&mut ground); // 4: deleted.
        let mut capacities = Vec::new();
        for _ in 0..3 {
            ground.remove_all();
            (0..3).for_each(|_| ground.sync());
            while ground.create(200_000) {}
            ground.expect_sound();
            capacities.push(ground.model.len());
            ground.remove_all();
        }
        assert!(capacities.iter().all(|count| count * 10 > capacities[0] * 9), "{capacities:?}");
        done(&mut ground); // 5: full, and empty again.
        (0..50).for_each(|i| assert!(ground.create(i * 5000)));
        ground.sync();
        ground.dataset = None;
        ground.model.clear();
        ground.pool().destroy_dataset("tank/fs").unwrap();
        let host = ground.pool().host().clone();
        ground
            .pool()
            .create_filesystem("tank/fs", Vec::new(), NewFilesystem::plain(&host), initialise())
            .unwrap();
        ground.dataset = Some(ground.pool().open("tank/fs").unwrap());
        done(&mut ground); // 6: the data set destroyed, with another in its place.
        assert!(ground.create(100_000));
        ground.expect_sound();
    }
}

#[test]
fn fifty_txgs_of_mixed_work_leave_a_sound_pool() {
    for ashift in [9, 12, 13] {
        let mut ground = Ground::new(ashift, 256 << 20, 15);
        for txg in 0..50 {
            for _ in 0..ground.chance.below(12) {
                match (ground.chance.below(8), ground.model.len()) {
                    (0..=2, _) | (_, 0) => {
                        let len = ground.chance.below(400_000) as usize;
                        assert!(ground.create(len));
                    }
                    (3..=5, _) => {
                        let id = ground.pick();
                        let offset = ground.chance.below(ground.model[&id].len() as u64 + 30_000) as usize;
                        let len = ground.chance.below(100_000) as usize;
                        ground.overwrite(id, offset, len);
                    }
                    (6, _) => {
                        let id = ground.pick();
                        let len = ground.chance.below(ground.model[&id].len() as u64 + 1) as usize;
                        ground.truncate(id, len);
                    }
                    _ => {
                        let id = ground.pick();
                        ground.remove(id);
                    }
                }
            }
            ground.sync();
            if txg % 17 == 16 {
                ground.expect_sound();
                ground.close();
                ground.reopen();
            }
        }
        ground.expect_sound();
        ground.show_zdb();
        ground.expect_sound();
    }
}

#[test]
fn writers_on_all_cores_and_a_syncing_thread_do_not_disturb_each_other() {
    let mut ground = Ground::new(12, 256 << 20, 15);
    for _ in 0..4 {
        assert!(ground.create(100));
    }
    let ids: Vec<_> = ground.model.keys().copied().collect();
    let dataset = ground.dataset().clone();
    let contents: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let write = |id: ObjectId| {
            let dataset = dataset.clone();
            scope.spawn(move || {
                let chance = SeededEntropy::new(id.0);
                let object = dataset.objset().object(id).unwrap();
                let mut model = vec![0; 2 << 20];
                object.read(0, &mut model).unwrap();
                for _ in 0..150 {
                    let offset = chance.below(1 << 20) as usize;
                    let mut data = vec![0; chance.below(100_000) as usize];
                    chance.fill(&mut data);
                    let tx = dataset.begin(Hold::write(data.len() as u64)).unwrap();
                    object.write(&tx, offset as u64, &data).unwrap();
                    drop(tx);
                    model[offset..offset + data.len()].copy_from_slice(&data);
                }
                model
            })
        };
        let writers: Vec<_> = ids.iter().map(|id| write(*id)).collect();
        for _ in 0..20 {
            ground.sync();
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    drop(dataset);
    ground.model = ids.into_iter().zip(contents).collect();
    ground.expect_sound();
    ground.close();
    ground.reopen();
    ground.expect_sound();
}

/// Record `number` of the child's log.
fn entry(number: u64) -> Vec<u8> {
    let mut data = vec![0; RECORD as usize];
    SeededEntropy::new(number).fill(&mut data);
    data
}

/// Not a test: the process that is killed. It appends to a log, and keeps the length of the log in the first word
/// of another object, in one transaction; it reports each length that is synced.
#[test]
#[ignore = "started by the test that kills it"]
fn child_that_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(CHILD_POOL) else { return };
    let ids = std::env::var(CHILD_OBJECTS).unwrap();
    let (log, head) = ids.split_once(' ').unwrap();
    let pool = open(Path::new(&path));
    let dataset = pool.open("tank/fs").unwrap();
    let object = |id: &str| dataset.objset().object(ObjectId(id.parse().unwrap())).unwrap();
    let (log, head) = (object(log), object(head));
    let mut word = [0; 8];
    head.read(0, &mut word).unwrap();
    let mut length = u64::from_le_bytes(word);
    loop {
        for _ in 0..7 {
            let tx = dataset.begin(Hold::write(2 * RECORD)).unwrap();
            log.write(&tx, length * RECORD, &entry(length)).unwrap();
            length += 1;
            head.write(&tx, 0, &[&length.to_le_bytes()[..], &entry(length)[8..]].concat()).unwrap();
        }
        if length % 3 == 0 {
            pool.sync().unwrap();
            println!("synced {length}");
        }
    }
}

#[test]
fn a_pool_killed_in_mid_write_opens_at_its_last_sync() {
    let mut ground = Ground::new(12, 512 << 20, 15);
    assert!(ground.create(RECORD as usize) && ground.create(RECORD as usize));
    let ids: Vec<_> = ground.model.keys().copied().collect();
    let (log, head) = (ids[0], ids[1]);
    ground.model.clear();
    {
        let tx = ground.dataset().begin(Hold::write(RECORD)).unwrap();
        ground.dataset().objset().object(head).unwrap().write(&tx, 0, &[0; 8]).unwrap();
    }
    ground.sync();
    let chance = SeededEntropy::new(1);
    for round in 0..6 {
        // The first child finds an exported pool, the others what a killed one left.
        if round == 0 {
            ground.close();
        } else {
            ground.dataset = None;
            ground.pool = None;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(CHILD_POOL, &ground.path)
            .env(CHILD_OBJECTS, format!("{} {}", log.0, head.0))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = |line: std::io::Result<String>| line.ok()?.strip_prefix("synced ")?.parse::<u64>().ok();
        let mut promised = 0;
        for _ in 0..2 + chance.below(10) {
            promised = lines.by_ref().find_map(told).expect("the child writes until it is killed");
        }
        std::thread::sleep(std::time::Duration::from_millis(chance.below(60)));
        child.kill().unwrap();
        child.wait().unwrap();
        promised = lines.filter_map(told).last().unwrap_or(promised);

        ground.reopen();
        let objset = ground.dataset().objset().clone();
        let mut word = [0; 8];
        objset.object(head).unwrap().read(0, &mut word).unwrap();
        let length = u64::from_le_bytes(word);
        assert!(length >= promised, "round {round}: {promised} were synced, {length} are there");
        let mut record = vec![0; RECORD as usize];
        for number in 0..length {
            objset.object(log).unwrap().read(number * RECORD, &mut record).unwrap();
            assert!(record == entry(number), "round {round}: record {number} of {length}");
        }
        expect_clean(ground.pool());
    }
    ground.close();
    oracle::expect_pleased("tank", &ground.path);
}

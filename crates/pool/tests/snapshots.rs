//! Snapshots, clones and rollbacks: the contents of a snapshot stay, unreferenced blocks are freed, and the space accounting
//! is exact.

mod oracle;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmu::{NewObject, zap};
use format::zap::Value;
use format::{ObjectId, ObjectType};
use pool::{CreateSpec, Error, Hold, Initialise, NewFilesystem, Options, Pool};
use storage::host::{Access, Disk, Entropy, FileDisk, SeededEntropy};

/// Contents of a dataset's objects.
type Model = BTreeMap<ObjectId, Vec<u8>>;

fn initialise() -> Initialise {
    Arc::new(|objset, tx, new| {
        let master = objset.create_object_at(tx, ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
        zap::create(&master, tx, new.host.entropy.u64(), 0)?;
        zap::insert(&master, tx, b"VERSION", &Value::from_u64(5))
    })
}

fn filesystem() -> NewFilesystem {
    NewFilesystem::plain(&Options::default().host)
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, Access::ReadWrite { exclusive: true }).unwrap())
}

struct Ground {
    _folder: tempfile::TempDir,
    path: PathBuf,
    pool: Option<Pool>,
    chance: SeededEntropy,
    /// The expected content of every file system and snapshot, by name.
    models: BTreeMap<String, Model>,
}

impl Ground {
    fn new(seed: u64) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        let spec = CreateSpec {
            ashift: Some(12),
            ..CreateSpec::new("tank", vec![disk(&path)], filesystem(), initialise())
        };
        let pool = Pool::create(spec, Options::default()).unwrap();
        pool.create_filesystem("tank/fs", Vec::new(), filesystem(), initialise()).unwrap();
        let models = BTreeMap::from([("tank/fs".to_owned(), Model::new())]);
        Ground { _folder: folder, path, pool: Some(pool), chance: SeededEntropy::new(seed), models }
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.chance.fill(&mut data);
        data
    }

    /// A few changes to a file system.
    fn change(&mut self, fs: &str) {
        let dataset = self.pool().open(fs).unwrap();
        let mut model = self.models.remove(fs).unwrap();
        for _ in 0..1 + self.chance.below(6) {
            let data = self.bytes(1 + self.chance.below(300_000) as usize);
            match (self.chance.below(4), model.len() as u64) {
                (0 | 1, _) | (_, 0) => {
                    let tx = dataset.begin(Hold::write(data.len() as u64)).unwrap();
                    let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(16 << 10);
                    let object = dataset.objset().create_object(&tx, new).unwrap();
                    object.write(&tx, 0, &data).unwrap();
                    model.insert(object.id(), data);
                }
                (2, count) => {
                    let id = *model.keys().nth(self.chance.below(count) as usize).unwrap();
                    let whole = model.get_mut(&id).unwrap();
                    let at = self.chance.below(whole.len() as u64) as usize;
                    let tx = dataset.begin(Hold::write(data.len() as u64)).unwrap();
                    dataset.objset().object(id).unwrap().write(&tx, at as u64, &data).unwrap();
                    whole.resize(whole.len().max(at + data.len()), 0);
                    whole[at..at + data.len()].copy_from_slice(&data);
                }
                (_, count) => {
                    let id = *model.keys().nth(self.chance.below(count) as usize).unwrap();
                    let tx = dataset.begin(Hold::free()).unwrap();
                    dataset.objset().free_object(&tx, &dataset.objset().object(id).unwrap());
                    model.remove(&id);
                }
            }
        }
        self.models.insert(fs.to_owned(), model);
        drop(dataset);
        if self.chance.below(2) == 0 {
            self.pool().sync().unwrap();
        }
    }

    fn pick(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let names: Vec<&String> = self.models.keys().filter(|name| wanted(name)).collect();
        (!names.is_empty()).then(|| names[self.chance.below(names.len() as u64) as usize].clone())
    }

    fn expect_sound(&self) {
        self.pool().sync().unwrap();
        for (name, model) in &self.models {
            let dataset = self.pool().open(name).unwrap();
            for (id, data) in model {
                let mut back = vec![0xee; data.len()];
                dataset.objset().object(*id).unwrap().read(0, &mut back).unwrap();
                assert!(back == *data, "{name} object {id} holds something else");
            }
        }
        let mut found = Vec::new();
        scan::check::check(self.pool(), &mut |finding| found.push(finding)).unwrap();
        assert!(found.is_empty(), "{found:#?}");
    }

    fn reopen(&mut self) {
        self.pool.take().unwrap().export().unwrap();
        self.pool = Some(Pool::import_disks(vec![disk(&self.path)], Options::default()).unwrap());
    }

    /// Makes a bookmark, or destroys one.
    fn mark(&mut self, step: u32) {
        let chosen = self.chance.below(3);
        if let (0, Some(snapshot)) = (chosen, self.pick(|name| name.contains('@'))) {
            let fs = snapshot.split('@').next().unwrap();
            self.pool().bookmark(&snapshot, &format!("{fs}#m{step}")).unwrap();
        }
        let Some(fs) = self.pick(|name| !name.contains('@')).filter(|_| chosen == 1) else { return };
        let marks = self.pool().bookmarks(&fs).unwrap();
        if let Some(mark) = marks.first() {
            self.pool().destroy_bookmarks(std::slice::from_ref(&mark.name)).unwrap();
        }
    }

    /// Promotes some clone.
    fn promote(&mut self) {
        let Some(clone) = self.pick(|name| !name.contains('@')) else { return };
        match self.pool().promote(&clone) {
            Ok(()) => self.rename_moved(&clone),
            Err(Error::NotAClone(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Snapshots that `clone` took over are called after it now.
    fn rename_moved(&mut self, clone: &str) {
        let names: Vec<String> = self.models.keys().filter(|name| name.contains('@')).cloned().collect();
        for name in names {
            if matches!(self.pool().dataset(&name), Err(Error::NoDataset(_))) {
                let leaf = name.split_once('@').unwrap().1;
                let model = self.models.remove(&name).unwrap();
                self.models.insert(format!("{clone}@{leaf}"), model);
            }
        }
    }

    /// One random operation on snapshots or clones.
    fn operate(&mut self, step: u32) {
        let snapshot = self.pick(|name| name.contains('@'));
        self.mark(step);
        match (self.chance.below(12), snapshot) {
            (0..=3, _) | (_, None) => {
                let fs = self.pick(|name| !name.contains('@')).unwrap();
                let name = format!("{fs}@s{step}");
                self.pool().snapshot(std::slice::from_ref(&name), &[]).unwrap();
                self.models.insert(name, self.models[&fs].clone());
            }
            (4..=6, Some(snapshot)) => {
                match self.pool().destroy_snapshots(std::slice::from_ref(&snapshot), false) {
                    Ok(()) => drop(self.models.remove(&snapshot)),
                    Err(Error::HasClones(_)) => {
                        let info = self.pool().dataset(&snapshot).unwrap();
                        assert!(!self.pool().clones(&info).unwrap().is_empty());
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            (7, Some(snapshot)) => {
                let name = format!("tank/c{step}");
                self.pool().clone_snapshot(&snapshot, &name, Vec::new()).unwrap();
                self.models.insert(name, self.models[&snapshot].clone());
            }
            (8, Some(snapshot)) => match self.pool().rollback(&snapshot) {
                Ok(()) => {
                    let fs = snapshot.split('@').next().unwrap();
                    self.models.insert(fs.to_owned(), self.models[&snapshot].clone());
                }
                Err(Error::NotNewest(_)) => {}
                Err(error) => panic!("{error}"),
            },
            (9 | 10, Some(_)) => self.promote(),
            (_, Some(_)) => {
                let Some(clone) = self.pick(|name| name.starts_with("tank/c") && !name.contains('@')) else {
                    return;
                };
                match self.pool().destroy_dataset(&clone) {
                    Ok(()) => drop(self.models.remove(&clone)),
                    Err(Error::HasChildren(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

#[test]
fn snapshots_keep_what_they_saw_whatever_comes_after() {
    for seed in 1..=4 {
        let mut ground = Ground::new(seed);
        for step in 0..60 {
            let fs = ground.pick(|name| !name.contains('@')).unwrap();
            ground.change(&fs);
            ground.operate(step);
            if step % 10 == 9 {
                ground.expect_sound();
            }
            if step % 25 == 24 {
                ground.reopen();
                ground.expect_sound();
            }
        }
        // With everything gone, everything is free again.
        while ground.pool().promote("tank/fs").is_ok() {
            ground.rename_moved("tank/fs");
        }
        let mut left = 1;
        while left > 0 {
            left = 0;
            for name in ground.models.keys().cloned().collect::<Vec<_>>() {
                let done = match name.as_str() {
                    snapshot if snapshot.contains('@') => {
                        ground.pool().destroy_snapshots(&[snapshot.to_owned()], false)
                    }
                    "tank/fs" => continue,
                    clone => ground.pool().destroy_dataset(clone),
                };
                match done {
                    Ok(()) => drop(ground.models.remove(&name)),
                    Err(Error::HasClones(_) | Error::HasChildren(_)) => left += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        ground.expect_sound();
        assert_eq!(ground.pool().freeing().unwrap(), 0);
        ground.pool.take().unwrap().export().unwrap();
        oracle::expect_pleased("tank", &ground.path);
    }
}

#[test]
fn zdb_agrees_with_snapshots_and_clones() {
    let mut ground = Ground::new(9);
    for step in 0..40 {
        let fs = ground.pick(|name| !name.contains('@')).unwrap();
        ground.change(&fs);
        ground.operate(step);
    }
    ground.expect_sound();
    ground.pool.take().unwrap().export().unwrap();
    oracle::expect_pleased("tank", &ground.path);
}

#[test]
fn holds_and_clones_keep_a_snapshot() {
    let mut ground = Ground::new(3);
    ground.change("tank/fs");
    let pool = ground.pool();
    let snap = vec!["tank/fs@a".to_owned()];
    pool.snapshot(&snap, &[]).unwrap();
    assert!(matches!(pool.snapshot(&snap, &[]), Err(Error::Exists(_))));
    pool.hold(&snap, "keep").unwrap();
    assert!(matches!(pool.hold(&snap, "keep"), Err(Error::Exists(_))));
    assert!(matches!(pool.destroy_snapshots(&snap, false), Err(Error::Held(_))));
    pool.clone_snapshot("tank/fs@a", "tank/c", Vec::new()).unwrap();
    // Destruction is deferred until neither holds nor clones are left.
    pool.destroy_snapshots(&snap, true).unwrap();
    pool.release(&snap, "keep").unwrap();
    assert!(matches!(pool.release(&snap, "keep"), Err(Error::NoHold(_))));
    let info = pool.dataset("tank/fs@a").unwrap();
    assert_eq!(pool.clones(&info).unwrap(), ["tank/c"]);
    pool.destroy_dataset("tank/c").unwrap();
    assert!(matches!(pool.dataset("tank/fs@a"), Err(Error::NoDataset(_))));
    pool.snapshot(&["tank/fs@b".into()], &[]).unwrap();
    pool.rename_snapshots(&["tank/fs@b".into()], "c").unwrap();
    assert!(pool.dataset("tank/fs@c").is_ok());
    ground.expect_sound();
}

#[test]
fn a_deferred_destroy_does_not_affect_other_users() {
    let mut ground = Ground::new(7);
    ground.change("tank/fs");
    let pool = ground.pool();
    let snaps = ["tank/fs@a".to_owned(), "tank/fs@b".to_owned()];
    snaps.iter().for_each(|name| pool.snapshot(std::slice::from_ref(name), &[]).unwrap());
    pool.hold(&snaps[1..], "keep").unwrap();
    let reader = pool.open("tank/fs@a").unwrap();
    assert!(matches!(pool.destroy_snapshots(&snaps, true), Err(Error::DatasetBusy(_))));
    drop(reader);
    pool.destroy_snapshots(&snaps, true).unwrap();
    assert!(pool.dataset("tank/fs@a").is_err());
    let reader = pool.open("tank/fs@b").unwrap();
    assert!(matches!(pool.release(&snaps[1..], "keep"), Err(Error::DatasetBusy(_))));
    drop(reader);
    pool.clone_snapshot("tank/fs@b", "tank/c", Vec::new()).unwrap();
    pool.release(&snaps[1..], "keep").unwrap();
    let reader = pool.open("tank/fs@b").unwrap();
    assert!(matches!(pool.destroy_dataset("tank/c"), Err(Error::DatasetBusy(_))));
    drop(reader);
    pool.destroy_dataset("tank/c").unwrap();
    assert!(pool.dataset("tank/fs@b").is_err());
    ground.expect_sound();
}

#[test]
fn two_snapshots_in_a_row_fall_into_different_txgs() {
    let mut ground = Ground::new(5);
    ground.change("tank/fs");
    let pool = ground.pool();
    std::thread::scope(|scope| {
        for i in 0..8 {
            scope.spawn(move || pool.snapshot(&[format!("tank/fs@{i}")], &[]).unwrap());
        }
    });
    let mut txgs: Vec<_> = pool
        .list("tank/fs", None, true)
        .unwrap()
        .iter()
        .filter(|info| info.is_snapshot())
        .map(|info| info.phys.creation_txg)
        .collect();
    txgs.dedup();
    assert_eq!(txgs.len(), 8);
    ground.expect_sound();
}

#[test]
fn a_snapshot_that_is_called_by_its_name_is_found_without_the_others() {
    const COUNT: usize = 120;
    let mut ground = Ground::new(1);
    ground.change("tank/fs");
    // Few of these names fit into one leaf of the list.
    let name = |i: usize| format!("{i:0>200}");
    for i in 0..COUNT {
        ground.pool().snapshot(&[format!("tank/fs@{}", name(i))], &[]).unwrap();
    }
    ground.reopen();
    let pool = ground.pool();
    let head = pool.open("tank/fs").unwrap();
    let looks = || {
        let of = pool.storage().cache().stats().metadata;
        of.hits + of.misses
    };
    let open = |i: usize, called: &str| {
        let key = head.snapshot_named(name(i).as_bytes()).unwrap().unwrap();
        let before = looks();
        let opened = head.open_snapshot(key, called.as_bytes()).unwrap();
        assert_eq!(opened.name(), format!("tank/fs@{}", name(i)));
        looks() - before
    };
    let first = open(0, &name(0));
    for i in 0..COUNT {
        let now = open(i, &name(i));
        assert!(now <= first + 2, "{i}: {now} blocks, the first took {first}");
    }
    // A snapshot that had another name when it was looked at is found all the same.
    open(7, "before");
    open(8, &name(7));
    open(9, &"x".repeat(2000));
    let gone = pool::SnapshotKey {
        guid: format::Guid(1),
        ..head.snapshot_named(name(3).as_bytes()).unwrap().unwrap()
    };
    assert!(matches!(head.open_snapshot(gone, name(3).as_bytes()), Err(Error::NoDataset(_))));
    drop(head);
    ground.pool.take().unwrap().export().unwrap();
    oracle::expect_pleased("tank", &ground.path);
}

#[test]
fn a_pool_refuses_strings_that_it_cannot_keep_and_goes_on() {
    let ground = Ground::new(11);
    let pool = ground.pool();
    let snapshot = ["tank/fs@1".to_owned()];
    pool.snapshot(&snapshot, &[]).unwrap();
    let long = "n".repeat(256);
    for tag in ["", &long] {
        assert!(matches!(pool.hold(&snapshot, tag), Err(Error::BadTag(refused)) if refused == tag));
    }
    let text = |len: usize| pool::props::Value::Text("v".repeat(len));
    let guid = pool.info().config.tree.children[0].guid;
    for (name, value) in [("", text(1)), (long.as_str(), text(1)), ("a:b", text(8192))] {
        let named = || (name.to_owned(), Some(value.clone()));
        let local = || vec![(name.to_owned(), value.clone())];
        let refused = |done: pool::Result<()>| assert!(matches!(done, Err(Error::Property(_))), "{done:?}");
        refused(pool.set_properties("tank/fs", vec![named()]));
        refused(pool.set_properties("tank/fs@1", vec![named()]));
        refused(pool.snapshot(&["tank/fs@2".to_owned()], &local()));
        refused(pool.create_filesystem("tank/new", local(), filesystem(), initialise()));
        refused(pool.clone_snapshot("tank/fs@1", "tank/new", local()));
        refused(pool.set_pool_properties(local()));
        refused(pool.set_vdev_property(guid, name, Some(value.clone())));
    }
    for (key, name) in [("", "create"), ("ul$0", ""), (long.as_str(), "create"), ("ul$0", long.as_str())] {
        let grant = pool::Grant { key: key.to_owned(), names: vec![name.to_owned()] };
        assert!(matches!(pool.allow("tank/fs", vec![grant]), Err(Error::BadTag(_))));
    }
    // All that is just short enough is kept.
    let fits = "n".repeat(255);
    pool.hold(&snapshot, &fits).unwrap();
    pool.set_properties("tank/fs", vec![(fits.clone(), Some(text(8191)))]).unwrap();
    pool.set_properties("tank/fs@1", vec![(fits.clone(), Some(text(8191)))]).unwrap();
    pool.set_command(&"a command line ".repeat(20_000));
    pool.log_command().unwrap();
    ground.expect_sound();
}

/// The faults of the pool.
fn findings(pool: &Pool) -> Vec<String> {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding.to_string())).unwrap();
    found
}

fn names(pool: &Pool) -> Vec<String> {
    pool.list("tank", None, false).unwrap().into_iter().map(|info| info.name).collect()
}

#[test]
fn a_pool_returns_to_its_checkpoint_with_all_that_it_held() {
    let mut ground = Ground::new(11);
    ground.change("tank/fs");
    let pool = ground.pool.take().unwrap();
    let import = |options| Pool::import_disks(vec![disk(&ground.path)], options);
    let back = || Options { to_checkpoint: true, ..Options::default() };
    let before = pool.info().space.allocated;
    pool.checkpoint().unwrap();
    assert!(matches!(pool.checkpoint(), Err(Error::CheckpointExists)));
    let usable = pool.usable();
    pool.destroy_dataset("tank/fs").unwrap();
    for round in 0..4 {
        pool.create_filesystem(&format!("tank/b{round}"), Vec::new(), filesystem(), initialise()).unwrap();
        pool.sync().unwrap();
    }
    assert!(pool.checkpointed().unwrap().bytes > 0 && pool.usable() < usable);
    assert_eq!(findings(&pool), Vec::<String>::new());
    assert!(matches!(pool.set_guid(None), Err(Error::CheckpointExists)));
    pool.export().unwrap();
    let pool = import(Options { read_only: true, ..back() }).unwrap();
    assert_eq!((names(&pool), findings(&pool)), (vec!["tank".into(), "tank/fs".into()], vec![]));
    drop(pool);
    let pool = import(Options::default()).unwrap();
    assert_eq!(names(&pool).len(), 5);
    pool.export().unwrap();

    let pool = import(back()).unwrap();
    assert_eq!((names(&pool).len(), pool.checkpointed()), (2, None));
    // As after a crash, before anything was synced.
    drop(pool);
    let pool = import(Options::default()).unwrap();
    assert_eq!((names(&pool), findings(&pool)), (vec!["tank".into(), "tank/fs".into()], vec![]));
    assert!(pool.info().space.allocated < before + (1 << 20));
    pool.export().unwrap();
    let again = import(back());
    assert!(matches!(again, Err(Error::NoCheckpoint)), "{:?}", again.err());
    oracle::expect_pleased("tank", &ground.path);
}

#[test]
fn blocks_of_a_discarded_checkpoint_are_free() {
    let mut ground = Ground::new(12);
    ground.change("tank/fs");
    let pool = ground.pool.take().unwrap();
    pool.checkpoint().unwrap();
    pool.destroy_dataset("tank/fs").unwrap();
    pool.sync().unwrap();
    pool.discard_checkpoint().unwrap();
    while pool.checkpointed().is_some() {
        pool.sync().unwrap();
    }
    assert!(matches!(pool.discard_checkpoint(), Err(Error::NoCheckpoint)));
    assert_eq!(findings(&pool), Vec::<String>::new());
    let feature = pool.info().feature(&format::features::ZPOOL_CHECKPOINT);
    assert_eq!(feature, pool::FeatureState::Enabled);
    pool.checkpoint().unwrap();
    pool.export().unwrap();
    oracle::expect_pleased("tank", &ground.path);
}

#[test]
fn each_invalid_change_of_a_dataset_has_an_error_of_its_own() {
    let ground = Ground::new(9);
    let pool = ground.pool();
    assert!(matches!(pool.rename_dataset("tank/fs", "tank"), Err(Error::Exists(name)) if name == "tank"));
    assert!(matches!(pool.rename_dataset("tank/fs", "tank/fs/below"), Err(Error::BelowItself)));
    assert!(matches!(pool.destroy_dataset("tank"), Err(Error::IsPool)));
    let twice = ["tank/fs@a".to_owned(), "tank/fs@b".to_owned()];
    assert!(matches!(pool.snapshot(&twice, &[]), Err(Error::SeveralOfOne)));
    assert_eq!(findings(pool), [""; 0]);
}

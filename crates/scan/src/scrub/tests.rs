use dmu::{NewObject, zap};
use format::features::RESILVER_DEFER;
use storage::host::{Script, ScriptedDisk};

use super::*;
use pool::{CreateSpec, Hold, NewFilesystem, Options};
use std::sync::Arc;

pub(super) fn made(disk: &ScriptedDisk) -> Pool {
    made_on(std::slice::from_ref(disk))
}

pub(super) fn made_on(disks: &[ScriptedDisk]) -> Pool {
    let options = Options::default();
    let spec = CreateSpec {
        ashift: Some(9),
        ..CreateSpec::new(
            "tank",
            disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn storage::host::Disk>).collect(),
            NewFilesystem::plain(&options.host),
            Arc::new(|objset, tx, _| {
                let new = NewObject::plain(ObjectType::MASTER_NODE);
                zap::create(&objset.create_object_at(tx, ObjectId(1), new), tx, 7, 0)
            }),
        )
    };
    Pool::create(spec, options).expect("a pool")
}

fn again(pool: Pool, disk: &ScriptedDisk) -> Pool {
    pool.export().expect("exported");
    Pool::import_disks(vec![Arc::new(disk.clone())], Options::default()).expect("imported")
}

pub(super) fn fill(pool: &Pool) {
    let dataset = pool.open("tank").expect("open");
    for size in [512u32, 1024, 4096] {
        let tx = dataset.begin(Hold::write(1 << 20)).expect("space");
        for n in (0..40u64).step_by(3) {
            let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(size);
            let object = dataset.objset().create_object(&tx, new).expect("new");
            let data: Vec<u8> = (0..n * 700).map(|i| (i * n % 251) as u8).collect();
            object.write(&tx, 0, &data).expect("written");
        }
    }
    pool.sync().expect("synced");
}

#[test]
fn errors_that_are_logged_during_a_scrub_stay_in_the_log() {
    let disk = ScriptedDisk::new(128 << 20);
    let pool = made(&disk);
    let dataset = pool.dataset("tank").expect("there").id;
    let at = move |blkid| DataError { dataset, object: ObjectId(7), level: 0, blkid, birth: 0 };
    // Of these two it is known that they are readable; one is logged, the other found by the scrub at work.
    let (healed, found) = (BTreeSet::from([at(0), at(1)]), BTreeSet::from([at(0), at(2)]));
    pool.run(move |syncing| errors::replace(syncing, &found)).expect("logged");
    let added = pool.run(move |syncing| errors::add(syncing, &BTreeSet::from([at(1), at(3)])));
    assert_eq!(added.expect("logged"), 2);
    forget(&pool, healed).expect("forgotten");
    assert_eq!(pool.data_errors().expect("read"), [at(2), at(3)]);
    let found = errors::found(pool.inner().mos()).expect("read");
    assert_eq!(found, BTreeSet::from([at(3)]), "the log of the scrub keeps its own");
}

#[test]
fn reading_lost_blocks_again_can_be_stopped() {
    let disk = ScriptedDisk::new(128 << 20);
    let pool = made(&disk);
    let error = DataError { dataset: ObjectId(0), object: ObjectId(1), level: 0, blkid: 0, birth: 0 };
    let known = BTreeSet::from([error]);
    assert_eq!(visit::look_again(pool.inner(), &known, &|| false).expect("read"), None);
    assert_eq!(visit::look_again(pool.inner(), &known, &|| true).expect("read"), Some(BTreeSet::new()));
}

#[test]
fn a_scrub_that_was_left_can_be_paused_resumed_and_canceled() {
    let disk = ScriptedDisk::new(128 << 20);
    let pool = made(&disk);
    fill(&pool);
    pool.run(|syncing| begin(syncing, Births::default())).expect("begun");
    let pool = again(pool, &disk);
    assert_eq!(pool.read_only(), None);
    let status = pool.scan().expect("read").expect("begun");
    assert!(status.scan.is_scrubbing() && !status.running);
    pool.pause_scrub().expect("paused");
    let pool = again(pool, &disk);
    assert!(pool.scan().expect("read").expect("begun").scan.is_paused());
    pool.resume_scrub().expect("nothing to do");
    assert!(!pool.scan().expect("read").expect("begun").running);
    pool.scrub().expect("resumed");
    pool.wait_scrub().expect("done");
    let scan = pool.scan().expect("read").expect("done").scan;
    assert_eq!((scan.state, scan.errors), (ScanState::Finished, 0));
    assert!(matches!(pool.cancel_scrub(), Err(Error::NotScrubbing)));
    pool.run(|syncing| begin(syncing, Births::default())).expect("begun");
    pool.cancel_scrub().expect("canceled");
    let scan = pool.scan().expect("read").expect("done").scan;
    assert_eq!((scan.state, scan.queue), (ScanState::Canceled, ObjectId(0)));
    let mut found = Vec::new();
    crate::check::check(&pool, &mut |finding| found.push(finding)).expect("checked");
    assert!(found.is_empty(), "{found:?}");
}

/// A pool with snapshots and a clone, and how many bytes a whole scrub of it examines.
fn with_snapshots(disk: &ScriptedDisk) -> (Pool, u64) {
    let pool = made(disk);
    for n in 0..4 {
        fill(&pool);
        pool.snapshot(&[format!("tank@{n}")], &[]).expect("taken");
    }
    pool.clone_snapshot("tank@1", "tank/clone", Vec::new()).expect("cloned");
    pool.scrub().expect("begun");
    pool.wait_scrub().expect("done");
    let examined = pool.scan().expect("read").expect("there").scan.examined;
    (pool, examined)
}

#[test]
fn a_scrub_that_openzfs_left_goes_on_where_it_was() {
    let disk = ScriptedDisk::new(128 << 20);
    let (pool, whole) = with_snapshots(&disk);
    let snapshot = pool.dataset("tank@1").expect("there").id;
    pool.run(move |syncing| {
        let mut scan = begin(syncing, Births::default())?;
        let first = syncing.mos().dataset(snapshot)?;
        (scan.bookmark, scan.examined) = ([snapshot.0, 3, 0, 1], 4096);
        scan.current = [first.prev_snap_txg.0, first.creation_txg.0];
        scan_state::write(syncing.mos(), &syncing.tx, &scan)
    })
    .expect("written");
    let pool = again(pool, &disk);
    let scan = pool.scan().expect("read").expect("there").scan;
    assert_eq!((scan.bookmark, scan.examined), ([snapshot.0, 3, 0, 1], 4096));
    pool.snapshot(&["tank@now".to_owned()], &[]).expect("taken");
    let kept = pool.scan().expect("read").expect("there").scan;
    assert_eq!(kept.bookmark, scan.bookmark, "changes elsewhere do not move it");
    pool.resume_scrub().expect("resumed");
    pool.wait_scrub().expect("done");
    let scan = pool.scan().expect("read").expect("there").scan;
    assert!(scan.state == ScanState::Finished && scan.queue.0 == 0, "{scan:?}");
    assert!(scan.examined > whole / 4 && scan.examined < whole, "{} of {whole}", scan.examined);
}

#[test]
fn a_scrub_whose_place_is_gone_begins_anew() {
    let disk = ScriptedDisk::new(128 << 20);
    let (pool, whole) = with_snapshots(&disk);
    pool.run(|syncing| {
        let mut scan = begin(syncing, Births::default())?;
        (scan.bookmark, scan.examined) = ([9999, 3, 0, 9], 4096);
        scan_state::write(syncing.mos(), &syncing.tx, &scan)
    })
    .expect("written");
    let pool = again(pool, &disk);
    pool.resume_scrub().expect("resumed");
    pool.wait_scrub().expect("done");
    let scan = pool.scan().expect("read").expect("there").scan;
    assert!(scan.state == ScanState::Finished && scan.examined > whole / 10 * 9, "{whole}: {scan:?}");
}

#[test]
fn a_scrub_that_is_cut_short_goes_on_at_the_next_import() {
    let disk = ScriptedDisk::new(128 << 20);
    let (mut pool, whole) = with_snapshots(&disk);
    pool.run(|syncing| begin(syncing, Births::default())).expect("begun");
    // Each round visits one dataset and imports the pool again.
    let mut rounds = 0;
    while let Some(owner) = order::next(pool.inner()).expect("read") {
        assert!(order::done(pool.inner(), owner).expect("read"));
        rounds += 1;
        if rounds == 3 {
            pool.snapshot(&["tank@mid".to_owned()], &[]).expect("taken");
            pool.destroy_snapshots(&["tank@2".to_owned()], false).expect("destroyed");
        }
        pool = again(pool, &disk);
        pool.run(|_| Ok(())).expect("synced");
    }
    // The MOS, the origin and its head, four snapshots of five, two heads.
    assert_eq!(rounds, 9, "every dataset once");
    pool.resume_scrub().expect("resumed");
    pool.wait_scrub().expect("done");
    let scan = pool.scan().expect("read").expect("there").scan;
    assert!(scan.state == ScanState::Finished && scan.examined < whole, "{scan:?}");
}

#[test]
fn a_device_that_joins_in_the_middle_of_a_resilver_waits_for_its_end() {
    let script = Script::new();
    let [first, second, third] = ["a", "b", "c"].map(|name| script.disk(name, 128 << 20));
    let pool = made(&first);
    fill(&pool);
    let old = pool.members()[0].guid;
    drop(pool.attach(old, Arc::new(second)).expect("attached"));
    pool.run(|syncing| {
        resilver::begin(syncing)?;
        let mut state = syncing.inner.scrubber().lock();
        let progress = state.progress.as_mut().expect("begun");
        progress.scan.examined = progress.scan.to_examine / 2;
        Ok(())
    })
    .expect("begun");
    drop(pool.attach(old, Arc::new(third)).expect("attached"));
    let scan = pool.scan().expect("read").expect("begun").scan;
    assert!(pool.run(move |syncing| resilver::defer(syncing, &scan)).expect("noted"));
    let last = pool.members()[2].guid;
    assert_eq!(pool.inner().deferred(), [last.0]);
    let users = |pool: &Pool| pool.info().features.get(RESILVER_DEFER.guid).copied();
    assert_eq!(users(&pool), Some(1));
    assert!(resilver::lacking_now(pool.inner()).is_some_and(|lacking| covers(&scan, Some(lacking))));
    take_up(&pool).expect("taken up");
    pool.wait_scrub().expect("done");
    assert!(pool.inner().deferred().is_empty() && users(&pool) == Some(0));
    assert!(pool.members().iter().all(|member| !member.is_behind), "{:?}", pool.members());
    let again = pool.scan().expect("read").expect("done").scan;
    assert!(
        again.state == ScanState::Finished && again.min_txg >= scan.min_txg && again.max_txg > scan.max_txg
    );
}

//! Sequential rebuilds: a new device gets its data by the space in use, without looking at blocks.

mod oracle;
mod scripted;

use std::sync::Arc;

use format::rebuild::{Rebuild, RebuildState};
use format::scan::{ScanFunc, ScanState};
use format::{Guid, ObjectId, features};
use pool::{DraidLayout, Hold, Layout, Options, Pool, RebuildStep};
use scan::Scans as _;
use scripted::{SIZE, content, read};
use storage::host::{CrashPolicy, Disk, Fault, Script, ScriptedDisk};

fn options() -> Options {
    Options { io_threads: 0, ..scripted::options() }
}

fn created(script: &Script, layout: Layout, count: usize) -> Pool {
    scripted::created(script, layout, count, options())
}

fn disk(script: &Script, name: &str) -> Arc<dyn Disk> {
    Arc::new(script.disk(name, SIZE))
}

fn first(pool: &Pool) -> Guid {
    pool.members()[0].guid
}

fn filled(pool: &Pool, count: u64) -> Vec<(ObjectId, Vec<u8>)> {
    let files = (0..count).map(|n| (scripted::write(pool, n).unwrap(), content(n))).collect();
    pool.sync().unwrap();
    files
}

fn rebuild(pool: &Pool) -> Rebuild {
    let all = pool.rebuilds().unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].1
}

/// The changes that the pool made by itself, as `zpool history -i` lists them.
fn told(pool: &Pool) -> Vec<String> {
    let events = pool.history().unwrap();
    let internal = events.iter().filter_map(|event| {
        assert!(event.command().is_some() || event.record.get_u64("history txg").unwrap() > 0);
        let name = event.record.get_str("internal_name")?;
        Some(format!("{name} {}", event.record.get_str("history internal str").unwrap()))
    });
    internal.collect()
}

/// Part after part of the rebuild, as its thread has them copied; `bytes` at once.
fn some(pool: &Pool, bytes: u64) -> RebuildStep {
    pool.run(move |syncing| syncing.rebuild_some(bytes)).unwrap()
}

/// The pool on these disks after a power cut.
fn after_cut(script: &Script, disks: &[usize]) -> Pool {
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    let all = after.disks();
    let pool = scripted::imported(disks.iter().map(|disk| all[*disk].clone()), options());
    assert_eq!(pool.read_only(), None);
    pool
}

/// All files can be read, and a scrub finds nothing to repair.
fn is_whole(pool: &Pool, expected: &[(ObjectId, Vec<u8>)]) {
    for (id, content) in expected {
        assert!(read(pool, *id) == *content);
    }
    pool.scrub().unwrap();
    pool.wait_scrub().unwrap();
    let scan = pool.scan().unwrap().unwrap().scan;
    assert_eq!((scan.state, scan.processed, scan.errors), (ScanState::Finished, 0, 0));
}

/// As zdb sees it on the disks `names`.
fn is_good_for_zdb(script: &Script, names: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for disk in script.disks() {
        let name = disk.path().display().to_string();
        if names.contains(&name.as_str()) {
            std::fs::write(folder.path().join(&name), bytes_of(&disk)).unwrap();
        }
    }
    oracle::expect_pleased("tank", folder.path());
}

fn bytes_of(disk: &ScriptedDisk) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_new_side_of_a_mirror_is_rebuilt_and_then_scrubbed() {
    let script = Script::new();
    let pool = created(&script, Layout::Mirror, 2);
    let mut expected = filled(&pool, 3);
    let [one, other] = [0, 1].map(|n: usize| pool.members()[n].guid);
    let joined = pool.attach_sequentially(one, disk(&script, "third")).unwrap();
    assert_eq!(pool.info().features[features::DEVICE_REBUILD.guid], 1);
    assert!(matches!(pool.attach(one, disk(&script, "no")), Err(pool::Error::Rebuilding)));
    assert!(matches!(pool.scrub(), Err(pool::Error::Resilvering)));
    pool.resilver_joined(joined).unwrap();
    expected.push((scripted::write(&pool, 7).unwrap(), content(7)));
    pool.wait_rebuild().unwrap();
    pool.wait_scrub().unwrap();
    let done = rebuild(&pool);
    assert_eq!((done.state, done.errors), (RebuildState::Complete, 0));
    assert!(done.rebuilt > 100_000 && done.rebuilt == done.scanned, "{done:?}");
    // The blocks that the rebuild itself writes to the MOS do not count as scanned.
    assert!(done.scanned < 2 << 20, "{done:?}");
    let scan = pool.scan().unwrap().unwrap().scan;
    assert_eq!((scan.func, scan.state, scan.processed), (ScanFunc::Scrub, ScanState::Finished, 0));
    assert_eq!(pool.info().features[features::DEVICE_REBUILD.guid], 0);
    assert!(!pool.info().config.tree.leaves().any(|leaf| leaf.extra.contains("rebuild_txg")));
    assert!(pool.members().iter().all(|member| !member.is_behind));
    let said = told(&pool);
    let [old, new] = ["disk0", "third"].map(|name| std::env::current_dir().unwrap().join(name));
    let attached = format!("vdev attach attach vdev={} to vdev={}", new.display(), old.display());
    assert_eq!(said[0], attached);
    let of_vdev = format!("rebuild vdev_id=0 vdev_guid={}", pool.info().config.tree.children[0].guid.0);
    assert_eq!(said[1..3], [format!("{of_vdev} started"), format!("{of_vdev} complete")]);
    assert!(said[3].starts_with("scan setup func=1 mintxg=0 maxtxg="), "{said:?}");
    assert_eq!(said[4..], ["scan done errors=0"]);
    pool.detach(one).unwrap();
    pool.detach(other).unwrap();
    pool.sync().unwrap();
    is_whole(&after_cut(&script, &[2]), &expected);
    pool.export().unwrap();
    is_good_for_zdb(&script, &["third"]);
}

#[test]
fn a_rebuild_goes_on_after_a_power_cut_and_what_is_written_and_freed_meanwhile_is_right() {
    let script = Script::new();
    let pool = created(&script, Layout::Single, 1);
    let mut expected = filled(&pool, 6);
    let _later = pool.replace_sequentially(first(&pool), disk(&script, "new")).unwrap();
    for _ in 0..4 {
        pool.sync().unwrap();
    }
    assert_eq!(some(&pool, 100_000), RebuildStep::GoesOn);
    let part = rebuild(&pool);
    assert!(part.is_active() && part.last_offset > 0 && part.rebuilt >= 100_000, "{part:?}");
    // Freed space is written again, before the place of the rebuild and behind it.
    let dataset = pool.open("tank").unwrap();
    let tx = dataset.begin(Hold::write(1 << 20)).unwrap();
    for (id, bytes) in [expected.remove(0), expected.remove(2)] {
        dataset.objset().object(id).unwrap().write(&tx, 0, &vec![9; bytes.len()]).unwrap();
        expected.push((id, vec![9; bytes.len()]));
    }
    drop((tx, dataset));
    for n in 10..14 {
        expected.push((scripted::write(&pool, n).unwrap(), content(n)));
        pool.sync().unwrap();
    }
    drop(pool);
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    let pool = scripted::imported(after.disks(), options());
    let found = rebuild(&pool);
    assert_eq!((found.last_offset, found.is_active()), (part.last_offset, true));
    pool.resume_scrub().unwrap();
    pool.wait_scrub().unwrap();
    let done = rebuild(&pool);
    assert_eq!((done.state, done.start_time), (RebuildState::Complete, part.start_time));
    assert!(done.scanned > part.scanned);
    assert_eq!(pool.members().len(), 1, "the old device has left");
    is_whole(&pool, &expected);
    pool.export().unwrap();
    is_good_for_zdb(&after, &["new"]);
}

#[test]
fn a_device_of_draid_is_rebuilt_from_the_others_with_it_and_without_it() {
    for (parity, is_there) in [(1, true), (1, false), (2, false)] {
        let script = Script::new();
        let layout = Layout::Draid(DraidLayout { parity, data: 2, spares: 0 });
        let pool = created(&script, layout, 4);
        let expected = filled(&pool, 8);
        let old = first(&pool);
        if !is_there {
            pool.offline(old, false).unwrap();
        }
        let joined = pool.replace_sequentially(old, disk(&script, "new")).unwrap();
        pool.resilver_joined(joined).unwrap();
        pool.wait_scrub().unwrap();
        let done = rebuild(&pool);
        assert_eq!((done.state, done.errors), (RebuildState::Complete, 0));
        let scan = pool.scan().unwrap().unwrap().scan;
        assert_eq!((scan.func, scan.state, scan.processed), (ScanFunc::Scrub, ScanState::Finished, 0));
        assert_eq!(pool.members().len(), 4, "the old device has left");
        pool.sync().unwrap();
        // Without another one, what was rebuilt is needed.
        is_whole(&after_cut(&script, &[2, 3, 4]), &expected);
        pool.export().unwrap();
        if parity == 2 {
            is_good_for_zdb(&script, &["disk1", "disk2", "disk3", "new"]);
        }
    }
}

#[test]
fn a_rebuild_ends_when_its_device_leaves_or_fails_and_raidz_has_none() {
    let script = Script::new();
    let pool = created(&script, Layout::Mirror, 2);
    filled(&pool, 2);
    let _later = pool.attach_sequentially(first(&pool), disk(&script, "third")).unwrap();
    pool.detach(pool.members()[2].guid).unwrap();
    assert_eq!(some(&pool, 1 << 20), RebuildStep::Canceled);
    assert_eq!(rebuild(&pool).state, RebuildState::Canceled);
    assert!(told(&pool).last().unwrap().ends_with(" canceled"), "{:?}", told(&pool));
    assert_eq!(pool.info().features[features::DEVICE_REBUILD.guid], 0);
    assert_eq!(some(&pool, 1 << 20), RebuildStep::Ended);
    // A device that fails in the middle keeps its list of what it lacks.
    let joined = pool.attach_sequentially(first(&pool), disk(&script, "fourth")).unwrap();
    let fourth = script.disks().pop().unwrap();
    fourth.inject(Fault::Vanish { from_op: 0 });
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert_ne!(rebuild(&pool).state, RebuildState::Active);
    assert!(pool.members()[2].is_behind);
    let script = Script::new();
    let pool = created(&script, Layout::Raidz(1), 3);
    let refused = pool.replace_sequentially(first(&pool), disk(&script, "new"));
    assert!(matches!(refused, Err(pool::Error::NotSequential)), "{refused:?}");
}

#[test]
fn ranges_that_a_sequential_rebuild_cannot_read_are_resilvered() {
    let script = Script::new();
    let pool = created(&script, Layout::Mirror, 2);
    let expected = filled(&pool, 8);
    let joined = pool.attach_sequentially(first(&pool), disk(&script, "third")).unwrap();
    // Neither complete side can be read in all of a range, but each has the parts that the other one does not give.
    for (disk, odd) in script.disks().iter().zip([0, 1]) {
        for n in 0..(SIZE - format::label::DATA_START) >> 17 {
            let at = format::label::DATA_START + (n << 17) + (odd << 16);
            disk.inject(Fault::ReadError(at..at + (1 << 15)));
        }
    }
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert!(rebuild(&pool).errors > 0 && rebuild(&pool).state == RebuildState::Canceled);
    let scan = pool.scan().unwrap().unwrap().scan;
    assert_eq!((scan.func, scan.state, scan.errors), (ScanFunc::Resilver, ScanState::Finished, 0));
    assert_eq!(pool.info().features[features::DEVICE_REBUILD.guid], 0);
    assert!(pool.members().iter().all(|member| !member.is_behind));
    pool.sync().unwrap();
    is_whole(&after_cut(&script, &[2]), &expected);
}

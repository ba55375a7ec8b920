//! Distributed spares of draid: one fills in for a device, is rebuilt and written, and is free again.

mod oracle;
mod scripted;

use std::sync::Arc;

use format::config::VdevKind;
use format::rebuild::RebuildState;
use format::scan::{ScanFunc, ScanState};
use format::{Guid, ObjectId};
use pool::{AuxVdev, DraidLayout, Layout, Options, Pool, RebuildStep};
use scan::Scans as _;
use scripted::{SIZE, content, read};
use storage::host::{CrashPolicy, Disk, Fault, Script, ScriptedDisk};

type Files = Vec<(ObjectId, Vec<u8>)>;

fn options() -> Options {
    Options { io_threads: 0, ..scripted::options() }
}

/// A draid1 vdev of five devices with one spare.
fn created(script: &Script) -> Pool {
    let layout = Layout::Draid(DraidLayout { parity: 1, data: 2, spares: 1 });
    scripted::created(script, layout, 5, options())
}

fn filled(pool: &Pool, numbers: std::ops::Range<u64>) -> Files {
    let files = numbers.map(|n| (scripted::write(pool, n).unwrap(), content(n))).collect();
    pool.sync().unwrap();
    files
}

fn guids(pool: &Pool) -> Vec<Guid> {
    pool.members().iter().map(|member| member.guid).collect()
}

/// The only spare of the pool.
fn spare(pool: &Pool) -> AuxVdev {
    let mut all = pool.aux_vdevs().unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The disks of `script` after a power cut, without those at `without`.
fn after_cut(script: &Script, without: &[usize]) -> (Script, Vec<ScriptedDisk>) {
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    let disks = after.disks().into_iter().enumerate();
    let disks = disks.filter(|(number, _)| !without.contains(number)).map(|(_, disk)| disk).collect();
    (after, disks)
}

fn imported(disks: Vec<ScriptedDisk>) -> Pool {
    let pool = scripted::imported(disks, options());
    assert_eq!(pool.read_only(), None);
    pool
}

fn has_files(pool: &Pool, expected: &Files) {
    for (id, content) in expected {
        assert!(read(pool, *id) == *content);
    }
}

/// All files can be read, and a scrub repairs nothing.
fn is_whole(pool: &Pool, expected: &Files) {
    has_files(pool, expected);
    pool.scrub().unwrap();
    pool.wait_scrub().unwrap();
    let scan = pool.scan().unwrap().unwrap().scan;
    assert_eq!((scan.state, scan.processed, scan.errors), (ScanState::Finished, 0, 0));
}

fn is_good_for_zdb(disks: &[ScriptedDisk]) {
    let folder = tempfile::tempdir().unwrap();
    for disk in disks {
        let mut bytes = vec![0; SIZE as usize];
        disk.read_at(&mut bytes, 0).unwrap();
        std::fs::write(folder.path().join(disk.path()), bytes).unwrap();
    }
    oracle::expect_pleased_with("tank", folder.path(), &["--allow-missing"]);
}

/// The spare fills in for device `number`, which goes away, and gets everything.
fn fills_in(pool: &Pool, number: usize, sequential: bool) {
    let (lost, spare) = (guids(pool)[number], spare(pool).config.guid);
    pool.offline(lost, false).unwrap();
    let joined = match sequential {
        true => pool.replace_by_spare_sequentially(lost, spare).unwrap(),
        false => pool.replace_by_spare(lost, spare).unwrap(),
    };
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert!(pool.members().iter().all(|member| !member.is_open || !member.is_behind));
}

#[test]
fn with_a_spare_rebuilt_the_pool_survives_one_more_device() {
    for sequential in [true, false] {
        let script = Script::new();
        let pool = created(&script);
        let mut files = filled(&pool, 0..8);
        assert!(!spare(&pool).in_use);
        fills_in(&pool, 2, sequential);
        assert!(spare(&pool).in_use && spare(&pool).is_distributed);
        let func = pool.scan().unwrap().unwrap().scan.func;
        assert_eq!(func, if sequential { ScanFunc::Scrub } else { ScanFunc::Resilver });
        files.extend(filled(&pool, 8..12));
        is_whole(&pool, &files);
        // The pool is opened again for writing, with the spare in use.
        let (_, disks) = after_cut(&script, &[2]);
        let again = imported(disks.clone());
        is_whole(&again, &files);
        again.export().unwrap();
        is_good_for_zdb(&disks);
        // Each other device may fail now, and the pool is still written.
        for second in [0, 1, 3, 4] {
            let (after, disks) = after_cut(&script, &[2, second]);
            let pool = imported(disks);
            has_files(&pool, &files);
            let mut files = files.clone();
            files.extend(filled(&pool, 20..24));
            has_files(&pool, &files);
            pool.export().unwrap();
            let disks: Vec<_> = after.disks().into_iter().collect();
            let third = [0, 1, 3, 4].into_iter().find(|other| *other != second).unwrap();
            let left = disks.iter().enumerate().filter(|(at, _)| ![2, second, third].contains(at));
            let left = left.map(|(_, disk)| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
            assert!(Pool::import_disks(left, options()).is_err(), "a third one is one too many");
            // The second one comes back, and gets what it missed; so does the part of the spare on it.
            let pool = imported(
                disks.iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, d)| d.clone()).collect(),
            );
            pool.resume_scrub().unwrap();
            pool.wait_scrub().unwrap();
            is_whole(&pool, &files);
            assert!(pool.members().iter().all(|member| !member.is_open || !member.is_behind));
            pool.export().unwrap();
            let kept: Vec<_> = disks
                .iter()
                .enumerate()
                .filter(|(at, _)| ![2, third].contains(at))
                .map(|(_, d)| d.clone())
                .collect();
            has_files(&imported(kept), &files);
        }
    }
}

#[test]
fn a_device_that_fails_while_the_spare_is_written_is_left_out_and_may_come_back() {
    let script = Script::new();
    let pool = created(&script);
    let mut files = filled(&pool, 0..6);
    fills_in(&pool, 0, true);
    script.disks()[3].inject(Fault::Vanish { from_op: 0 });
    files.extend(filled(&pool, 6..10));
    assert!(pool.members().iter().any(|member| member.failed.is_some()));
    has_files(&pool, &files);
    script.disks()[3].heal();
    let back = guids(&pool)[4];
    let joined = pool.online_disk(back, Arc::new(script.disks()[3].clone())).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    is_whole(&pool, &files);
    pool.export().unwrap();
    let disks = script.disks();
    // Imports without the device that the spare replaces, and without one that was there all the time.
    has_files(&imported([1, 3, 4].map(|at: usize| disks[at].clone()).to_vec()), &files);
    is_good_for_zdb(&[1, 2, 3, 4].map(|at: usize| disks[at].clone()));
}

#[test]
fn the_spare_is_free_again_when_its_device_is_back_or_replaced() {
    let script = Script::new();
    let pool = created(&script);
    let mut files = filled(&pool, 0..6);
    let lost = guids(&pool)[1];
    fills_in(&pool, 1, true);
    files.extend(filled(&pool, 6..8));
    let joined = pool.online_disk(lost, Arc::new(script.disks()[1].clone())).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert_eq!(pool.members().len(), 5);
    assert!(!spare(&pool).in_use);
    is_whole(&pool, &files);
    // It fills in once more, and a new device takes the place of the lost one.
    fills_in(&pool, 1, false);
    let new: Arc<dyn Disk> = Arc::new(script.disk("new", SIZE));
    let joined = pool.replace(lost, new).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert_eq!((pool.members().len(), spare(&pool).in_use), (5, false));
    is_whole(&pool, &files);
    // The administrator ends the use of the spare.
    let (lost, guid) = (guids(&pool)[4], spare(&pool).config.guid);
    let _later = pool.replace_by_spare_sequentially(lost, guid).unwrap();
    pool.detach(guid).unwrap();
    assert_eq!((pool.members().len(), spare(&pool).in_use), (5, false));
    pool.export().unwrap();
    let disks = script.disks();
    is_good_for_zdb(&[0, 2, 3, 4, 5].map(|at: usize| disks[at].clone()));
}

#[test]
fn a_spare_stays_in_the_place_of_a_device_that_was_detached_and_can_be_replaced() {
    let script = Script::new();
    let pool = created(&script);
    let files = filled(&pool, 0..6);
    let lost = guids(&pool)[1];
    let guid = spare(&pool).config.guid;
    let joined = pool.replace_by_spare_sequentially(lost, guid).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    pool.detach(lost).unwrap();
    let config = pool.info().config;
    let child = &config.tree.children[0].children[1];
    assert_eq!((&child.kind, child.guid), (&VdevKind::DistributedSpare, guid));
    assert!(spare(&pool).in_use, "it stays in the list");
    is_whole(&pool, &files);
    pool.sync().unwrap();
    let (_, disks) = after_cut(&script, &[1]);
    let again = imported(disks.clone());
    is_whole(&again, &files);
    again.export().unwrap();
    is_good_for_zdb(&disks);
    let joined = pool.replace_sequentially(guid, Arc::new(script.disk("new", SIZE))).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert_eq!((pool.members().len(), spare(&pool).in_use), (5, false));
    is_whole(&pool, &files);
}

#[test]
fn a_rebuild_of_a_spare_goes_on_after_a_power_cut_at_any_time() {
    let script = Script::new();
    let pool = created(&script);
    let mut files = filled(&pool, 0..6);
    let lost = guids(&pool)[2];
    pool.offline(lost, false).unwrap();
    let begin = script.op_count();
    let _later = pool.replace_by_spare_sequentially(lost, spare(&pool).config.guid).unwrap();
    for _ in 0..3 {
        pool.sync().unwrap();
    }
    let some = |pool: &Pool| pool.run(|syncing| syncing.rebuild_some(200_000)).unwrap();
    assert_eq!(some(&pool), RebuildStep::GoesOn);
    files.extend(filled(&pool, 6..8));
    let sure = files.len();
    assert_eq!(some(&pool), RebuildStep::GoesOn);
    pool.sync().unwrap();
    let end = script.op_count();
    drop(pool);
    for cut in (begin..=end).step_by(((end - begin) / 12).max(1)) {
        let after = script.image_after(cut, CrashPolicy::LoseAllUnflushed, cut as u64);
        let disks: Vec<_> = after.disks().into_iter().enumerate().filter(|(at, _)| *at != 2).collect();
        let pool = imported(disks.iter().map(|(_, disk)| disk.clone()).collect());
        pool.resume_scrub().unwrap();
        pool.wait_scrub().unwrap();
        let files: Files = if cut == end { files[..sure].to_vec() } else { files[..6].to_vec() };
        is_whole(&pool, &files);
        if pool.members().len() == 6 {
            let all = pool.rebuilds().unwrap();
            assert!(all.iter().all(|(_, rebuild)| rebuild.state != RebuildState::Active));
            pool.export().unwrap();
            // The pool now needs the rebuilt data.
            let left = disks.iter().filter(|(at, _)| *at != 4).map(|(_, disk)| disk.clone()).collect();
            has_files(&imported(left), &files);
        }
    }
}

#[test]
fn spares_fill_in_by_themselves_and_stay_in_their_vdev() {
    let script = Script::new();
    let pool = created(&script);
    let files = filled(&pool, 0..4);
    let guid = spare(&pool).config.guid;
    assert!(matches!(pool.remove(guid), Err(pool::Error::DistributedSpareStays)));
    assert_eq!(pool.wants_spares(), None);
    script.disks()[1].inject(Fault::Vanish { from_op: 0 });
    filled(&pool, 4..5);
    let lost = guids(&pool)[1];
    assert_eq!(pool.wants_spares(), Some((vec![lost], 1)));
    let (helped, joined) = pool.use_spares().unwrap();
    assert_eq!(helped, [lost]);
    assert_eq!(pool.rebuilds().unwrap().len(), 1, "it is rebuilt in the order of places");
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert_eq!(pool.wants_spares(), None);
    assert!(matches!(pool.replace_by_spare(guids(&pool)[0], guid), Err(pool::Error::SpareInUse)));
    is_whole(&pool, &files);
    // The spare is closed, and comes back with what it missed.
    pool.offline(guid, false).unwrap();
    let mut files = files;
    files.extend(filled(&pool, 6..8));
    let joined = pool.online(guid, std::path::Path::new("draid1-0-0")).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    is_whole(&pool, &files);
    pool.export().unwrap();
    // It is needed now.
    let disks = script.disks();
    has_files(&imported([0, 2, 4].map(|at: usize| disks[at].clone()).to_vec()), &files);
}

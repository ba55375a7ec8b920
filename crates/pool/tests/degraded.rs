//! A mirror with a device that fails, is outdated or is missing: the pool continues and records which txgs the device missed.

mod scripted;

use std::sync::Arc;

use format::scan::{ScanFunc, ScanState};
use format::{ObjectId, label};
use pool::{Hold, Layout, Options, Pool};
use scan::Scans as _;
use scripted::{LEN, SIZE, content, read};
use storage::host::{CrashPolicy, Disk, Fault, Host, Script, ScriptedDisk};

/// Operations at which a device fails, of those of a txg.
const STEPS: usize = 16;

fn options() -> Options {
    Options { io_threads: 0, ..scripted::options() }
}

/// A pool of one mirror, or of one raidz vdev of this parity with as many data devices as it has parity.
fn created(script: &Script, parity: usize) -> Pool {
    let (layout, count) =
        if parity == 0 { (Layout::Mirror, 2) } else { (Layout::Raidz(parity as u8), 2 * parity) };
    scripted::created(script, layout, count, options())
}

fn write(pool: &Pool, n: u64) -> ObjectId {
    scripted::write(pool, n).unwrap()
}

fn imported(disks: impl IntoIterator<Item = ScriptedDisk>) -> Pool {
    scripted::imported(disks, options())
}

/// The findings of a check, without those about devices that are not there.
fn findings(pool: &Pool) -> Vec<String> {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding)).unwrap();
    found.retain(|finding| !matches!(finding, scan::check::Finding::Absent { .. }));
    found.iter().map(ToString::to_string).collect()
}

fn all_but(script: &Script, lost: usize) -> Vec<ScriptedDisk> {
    let mut disks = script.disks();
    disks.remove(lost);
    disks
}

/// A device fails at each operation of a txg: the pool continues without an error, and all data is on the other devices.
fn goes_on_without(parity: usize, fault: impl Fn(usize) -> Fault) {
    let ops = {
        let script = Script::new();
        let pool = created(&script, parity);
        write(&pool, 1);
        pool.sync().unwrap();
        script.forget();
        write(&pool, 2);
        pool.sync().unwrap();
        script.op_count()
    };
    let mut failed = 0;
    for from_op in (0..ops).step_by(ops.div_ceil(STEPS)) {
        let script = Script::new();
        let pool = created(&script, parity);
        let first = write(&pool, 1);
        pool.sync().unwrap();
        script.forget();
        let second = write(&pool, 2);
        let lost = from_op % script.disks().len();
        script.disks()[lost].inject(fault(from_op));
        pool.sync().unwrap_or_else(|error| panic!("operation {from_op}: {error}"));
        let third = write(&pool, 3);
        pool.sync().unwrap();
        failed += usize::from(pool.members().iter().any(|member| member.failed.is_some()));
        let expected = [(first, content(1)), (second, content(2)), (third, content(3))];
        for (id, content) in &expected {
            assert!(read(&pool, *id) == *content, "operation {from_op}");
        }
        let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
        drop(pool);
        for disks in [all_but(&after, lost), after.disks()] {
            let count = disks.len();
            let pool = imported(disks);
            assert_eq!(pool.read_only(), None, "operation {from_op}, {count} devices");
            for (id, content) in &expected {
                assert!(read(&pool, *id) == *content, "operation {from_op}, {count} devices");
            }
            assert_eq!(findings(&pool), [""; 0], "operation {from_op}, {count} devices");
            write(&pool, 4);
            pool.sync().unwrap();
            assert_eq!(findings(&pool), [""; 0], "operation {from_op}, {count} devices");
        }
    }
    assert!(failed > 0, "no device failed");
}

/// Where the configuration lies in each label of a disk.
fn configs(disk: &ScriptedDisk) -> [std::ops::Range<u64>; 4] {
    let of = |offset: u64| offset + label::PHYS.offset..offset + label::RING.offset;
    label::offsets(disk.size()).unwrap().map(of)
}

/// A pool of one disk, in which some places cannot be read or written, gets labels of another txg. Then the power fails.
fn labelled(faults: impl Fn(&ScriptedDisk) -> Vec<Fault>) -> Result<(), pool::Error> {
    let script = Script::new();
    let pool = scripted::created(&script, Layout::Single, 1, options());
    let first = write(&pool, 1);
    pool.sync().unwrap();
    let disk = script.disks().remove(0);
    faults(&disk).into_iter().for_each(|fault| disk.inject(fault));
    let second = write(&pool, 2);
    let done = pool.rewrite_config();
    assert!(pool.members().iter().all(|member| member.failed.is_none()), "nothing replaces the disk");
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    drop(pool);
    let pool = imported(after.disks());
    assert!(read(&pool, first) == content(1));
    if done.is_ok() {
        assert!(read(&pool, second) == content(2));
    }
    assert_eq!(findings(&pool), [""; 0]);
    done
}

#[test]
fn a_disk_with_a_bad_place_in_one_label_of_each_half_stays_in_use() {
    labelled(|_| Vec::new()).unwrap();
    for [bad, other] in [[0, 1], [0, 3], [2, 1], [2, 3]] {
        for fault in [Fault::ReadError, Fault::RefusedRange] {
            let faults = |disk: &ScriptedDisk| [bad, other].map(|n| fault(configs(disk)[n].clone())).into();
            labelled(faults).unwrap_or_else(|error| panic!("labels {bad} and {other}: {error}"));
        }
    }
}

#[test]
fn a_disk_that_refuses_both_labels_of_a_half_keeps_its_last_txg() {
    for bad in [[0, 2], [1, 3]] {
        for fault in [Fault::ReadError, Fault::RefusedRange] {
            let faults = |disk: &ScriptedDisk| bad.map(|n| fault(configs(disk)[n].clone())).into();
            labelled(faults).expect_err("no label of the half is good");
        }
    }
}

#[test]
fn an_uberblock_is_durable_in_one_of_four_labels() {
    let rings = |disk: &ScriptedDisk| {
        let ring = |offset: u64| offset + label::RING.offset..offset + label::SIZE;
        label::offsets(disk.size()).unwrap().map(ring)
    };
    for good in 0..4 {
        let others = |disk: &ScriptedDisk| {
            let others = rings(disk).into_iter().enumerate().filter(|(n, _)| *n != good);
            others.map(|(_, ring)| Fault::RefusedRange(ring)).collect()
        };
        labelled(others).unwrap_or_else(|error| panic!("label {good}: {error}"));
    }
    let all = |disk: &ScriptedDisk| rings(disk).map(Fault::RefusedRange).into();
    labelled(all).expect_err("the txg is on no disk");
}

#[test]
fn a_mirror_goes_on_without_a_side_that_refuses_writes() {
    goes_on_without(0, |from_op| Fault::WriteError { from_op });
}

#[test]
fn a_mirror_goes_on_without_a_side_whose_flush_lost_writes() {
    goes_on_without(0, |from_op| Fault::LoseAtFlush { from_op });
}

#[test]
fn a_mirror_goes_on_without_a_side_that_vanishes() {
    goes_on_without(0, |from_op| Fault::Vanish { from_op });
}

#[test]
fn raidz_goes_on_without_a_device_that_refuses_writes() {
    goes_on_without(1, |from_op| Fault::WriteError { from_op });
}

#[test]
fn raidz2_goes_on_without_a_device_that_vanishes() {
    goes_on_without(2, |from_op| Fault::Vanish { from_op });
}

/// A device is missing during many changes, comes back outdated and is resilvered; then as many other devices are removed as
/// the layout allows.
fn is_resilvered(parity: usize) {
    let script = Script::new();
    let pool = created(&script, parity);
    let count = script.disks().len();
    let mut expected: Vec<_> = (0..3).map(|n| (write(&pool, n), content(n))).collect();
    pool.sync().unwrap();
    pool.export().unwrap();
    for lost in 0..count {
        let pool = imported(all_but(&script, lost));
        assert_eq!(pool.read_only(), None);
        let n = 10 + lost as u64;
        expected.push((write(&pool, n), content(n)));
        pool.sync().unwrap();
        pool.snapshot(&[format!("tank@{lost}")], &[]).unwrap();
        let (gone, _) = expected.remove(0);
        let dataset = pool.open("tank").unwrap();
        let tx = dataset.begin(Hold::write(LEN)).unwrap();
        let object = dataset.objset().object(gone).unwrap();
        dataset.objset().free_object(&tx, &object);
        drop((tx, object, dataset));
        pool.sync().unwrap();
        // As after a crash.
        drop(pool);
        let pool = imported(script.disks());
        assert!(pool.needs_resilver(), "device {lost}");
        expected.push((write(&pool, n + 100), content(n + 100)));
        pool.resume_scrub().unwrap();
        pool.wait_scrub().unwrap();
        assert!(!pool.needs_resilver(), "device {lost}");
        // Blocks that the outdated device lacks do not count as its errors, not even the first blocks that an import reads.
        let errors =
            pool.storage().vdevs().leaves().map(|leaf| leaf.meter.stats().checksum_errors).sum::<u64>();
        assert_eq!(errors, 0, "device {lost}");
        let scan = pool.scan().unwrap().unwrap().scan;
        assert_eq!((scan.func, scan.state), (ScanFunc::Resilver, ScanState::Finished));
        assert!(scan.processed > 20_000 && scan.errors == 0, "{scan:?}");
        assert_eq!(findings(&pool), [""; 0], "device {lost}");
        pool.scrub().unwrap();
        pool.wait_scrub().unwrap();
        assert_eq!(
            pool.scan().unwrap().unwrap().scan.processed,
            0,
            "device {lost}: nothing is left to repair"
        );
        pool.export().unwrap();
        // The pool now needs the resilvered data.
        let away = if parity == 0 { 1 } else { parity };
        let others: Vec<usize> = (0..count).filter(|disk| *disk != lost).take(away).collect();
        let after = script.image_after(script.op_count(), CrashPolicy::KeepAll, 1);
        let left =
            after.disks().into_iter().enumerate().filter(|(n, _)| !others.contains(n)).map(|(_, disk)| disk);
        let pool = imported(left);
        for (id, content) in &expected {
            assert!(read(&pool, *id) == *content, "device {lost}");
        }
        assert_eq!(findings(&pool), [""; 0], "device {lost} with fewer others");
    }
}

#[test]
fn a_side_of_a_mirror_that_comes_back_old_is_resilvered() {
    is_resilvered(0);
}

#[test]
fn a_device_of_raidz_that_comes_back_old_is_resilvered() {
    is_resilvered(1);
}

#[test]
fn a_device_of_raidz2_that_comes_back_old_is_resilvered() {
    is_resilvered(2);
}

fn sized(script: &Script, name: &str, size: u64) -> Arc<dyn Disk> {
    Arc::new(script.disk(name, size))
}

/// The disks of the script that a pool can be imported from without the others.
fn is_whole_on(script: &Script, disks: &[usize], expected: &[(ObjectId, Vec<u8>)]) {
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    let all = after.disks();
    let pool = imported(disks.iter().map(|disk| all[*disk].clone()));
    assert_eq!(pool.read_only(), None);
    for (id, content) in expected {
        assert!(read(&pool, *id) == *content, "on {disks:?}");
    }
    assert_eq!(findings(&pool), [""; 0], "on {disks:?}");
}

#[test]
fn devices_join_and_leave_a_mirror() {
    let script = Script::new();
    let pool = created(&script, 0);
    let mut expected = vec![(write(&pool, 1), content(1))];
    let guids = |pool: &Pool| pool.members().iter().map(|member| member.guid).collect::<Vec<_>>();
    let [first, second] = guids(&pool)[..] else { panic!("two sides") };
    let small = pool.attach(first, sized(&script, "small", SIZE / 2));
    assert!(matches!(small, Err(pool::Error::TooSmall)), "{small:?}");
    let joined = pool.attach(first, sized(&script, "third", SIZE)).unwrap();
    pool.resilver_joined(joined).unwrap();
    expected.push((write(&pool, 2), content(2)));
    pool.wait_scrub().unwrap();
    assert_eq!(guids(&pool).len(), 3);
    pool.detach(first).unwrap();
    pool.detach(second).unwrap();
    assert!(matches!(pool.detach(guids(&pool)[0]), Err(pool::Error::NotAMirror)));
    assert_eq!(findings(&pool), [""; 0]);
    // The last side has the guid of the mirror.
    is_whole_on(&script, &[3], &expected);
    let [single] = guids(&pool)[..] else { panic!("one device") };
    let joined = pool.attach(single, sized(&script, "fourth", SIZE)).unwrap();
    pool.resilver_joined(joined).unwrap();
    expected.push((write(&pool, 3), content(3)));
    pool.wait_scrub().unwrap();
    is_whole_on(&script, &[3], &expected);
    is_whole_on(&script, &[4], &expected);
    let joined = pool.replace(guids(&pool)[0], sized(&script, "fifth", SIZE)).unwrap();
    pool.resilver_joined(joined).unwrap();
    expected.push((write(&pool, 4), content(4)));
    pool.wait_scrub().unwrap();
    assert_eq!(guids(&pool).len(), 2, "the device that was replaced has left");
    pool.sync().unwrap();
    is_whole_on(&script, &[4], &expected);
    is_whole_on(&script, &[5], &expected);
    assert_eq!(findings(&pool), [""; 0]);
}

#[test]
fn a_device_goes_offline_and_comes_back() {
    for temporary in [false, true] {
        let script = Script::new();
        let pool = created(&script, 0);
        let mut expected = vec![(write(&pool, 1), content(1))];
        let [first, second] = [0, 1].map(|n: usize| pool.members()[n].guid);
        pool.offline(first, temporary).unwrap();
        assert!(matches!(pool.offline(second, temporary), Err(pool::Error::NoReplicas)));
        expected.push((write(&pool, 2), content(2)));
        pool.sync().unwrap();
        assert!(pool.members()[0].is_offline && !pool.members()[0].is_open);
        // With another guid it would not come back: its labels would be those of another pool.
        let guid = pool.guid();
        assert!(matches!(pool.set_guid(None), Err(pool::Error::DeviceAway)));
        assert_eq!(pool.guid(), guid);
        is_whole_on(&script, &[1], &expected);
        let joined = pool.online_disk(first, Arc::new(script.disks().swap_remove(0))).unwrap();
        pool.resilver_joined(joined).unwrap();
        expected.push((write(&pool, 3), content(3)));
        pool.wait_scrub().unwrap();
        pool.sync().unwrap();
        is_whole_on(&script, &[0], &expected);
        is_whole_on(&script, &[1], &expected);
        assert_ne!(pool.set_guid(None).unwrap(), guid);
        let other = pool.online_disk(second, Arc::new(script.disks().swap_remove(0)));
        assert!(other.is_err(), "another device of the pool is not this one");
    }
}

/// A device of raidz is replaced, without it too; what was resilvered is needed then. Two are replaced at once where parity allows.
fn is_replaced(parity: usize, is_there: bool) {
    let script = Script::new();
    let pool = created(&script, parity);
    let count = script.disks().len();
    let mut expected: Vec<_> = (0..3).map(|n| (write(&pool, n), content(n))).collect();
    pool.sync().unwrap();
    let old: Vec<_> = pool.members().iter().take(parity).map(|member| member.guid).collect();
    // All of them join before the first block is resilvered: one resilver is about all of them.
    let mut joined = Vec::new();
    for (n, guid) in old.iter().enumerate() {
        if !is_there {
            pool.offline(*guid, false).unwrap();
        }
        let small = pool.replace(*guid, sized(&script, "small", SIZE / 2));
        assert!(matches!(small, Err(pool::Error::TooSmall)), "{small:?}");
        joined.push(pool.replace(*guid, sized(&script, &format!("new{n}"), SIZE)).unwrap());
    }
    for (n, joined) in joined.into_iter().enumerate() {
        pool.resilver_joined(joined).unwrap();
        expected.push((write(&pool, 10 + n as u64), content(10 + n as u64)));
    }
    pool.wait_scrub().unwrap();
    pool.sync().unwrap();
    assert_eq!(pool.members().len(), count, "the devices that were replaced have left");
    let scan = pool.scan().unwrap().unwrap().scan;
    assert!(scan.processed > 50_000 && scan.errors == 0, "{scan:?}");
    assert_eq!(findings(&pool), [""; 0]);
    pool.scrub().unwrap();
    pool.wait_scrub().unwrap();
    assert_eq!(pool.scan().unwrap().unwrap().scan.processed, 0, "nothing is left to repair");
    pool.export().unwrap();
    let names: Vec<String> = script.disks().iter().map(|disk| disk.path().display().to_string()).collect();
    // Without as many others as parity allows, what was resilvered is needed.
    let left: Vec<usize> = names
        .iter()
        .enumerate()
        .filter(|(n, name)| name.starts_with("new") || (parity..count).contains(n))
        .map(|(n, _)| n)
        .skip(parity)
        .collect();
    is_whole_on(&script, &left, &expected);
}

#[test]
fn a_device_of_raidz_is_replaced() {
    is_replaced(1, true);
    is_replaced(1, false);
}

#[test]
fn two_devices_of_raidz2_are_replaced_at_once() {
    is_replaced(2, true);
    is_replaced(2, false);
}

#[test]
fn a_replacement_is_given_up_or_goes_on_after_a_crash() {
    for parity in [0, 1] {
        let script = Script::new();
        let pool = created(&script, parity);
        let expected = vec![(write(&pool, 1), content(1))];
        pool.sync().unwrap();
        let old = pool.members()[0].guid;
        let joined = pool.replace(old, sized(&script, "new", SIZE)).unwrap();
        pool.resilver_joined(joined).unwrap();
        pool.wait_scrub().unwrap();
        pool.sync().unwrap();
        let new = pool.members()[0].guid;
        assert_ne!(new, old);
        // The labels of the first device are wiped: it can come back as a new one.
        let joined = pool.replace(new, Arc::new(script.disks().swap_remove(0))).unwrap();
        pool.resilver_joined(joined).unwrap();
        let newest = pool.members()[1].guid;
        pool.detach(newest).unwrap();
        assert!(matches!(pool.detach(newest), Err(pool::Error::NoSuchDevice)));
        assert_eq!(pool.members()[0].guid, new, "the replacement was given up");
        pool.wait_scrub().unwrap();
        let joined = pool.replace(new, Arc::new(script.disks().swap_remove(0))).unwrap();
        pool.resilver_joined(joined).unwrap();
        // As after a crash.
        let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
        drop(pool);
        let pool = imported(after.disks());
        assert_eq!(pool.read_only(), None);
        pool.resume_scrub().unwrap();
        pool.wait_scrub().unwrap();
        pool.sync().unwrap();
        assert!(pool.members().iter().all(|member| member.guid != new), "parity {parity}");
        assert_eq!(findings(&pool), [""; 0]);
        for (id, content) in &expected {
            assert!(read(&pool, *id) == *content);
        }
    }
}

#[test]
fn a_device_that_an_administrator_calls_faulty_stays_so_until_it_is_cleared() {
    let script = Script::new();
    let pool = created(&script, 1);
    write(&pool, 1);
    pool.sync().unwrap();
    let [first, second] = [0, 1].map(|n: usize| pool.members()[n].guid);
    pool.fault(first, false).unwrap();
    assert!(matches!(pool.fault(second, false), Err(pool::Error::NoReplicas)));
    write(&pool, 2);
    pool.sync().unwrap();
    pool.export().unwrap();
    let pool = imported(script.disks());
    assert!(pool.members()[0].is_faulted && !pool.members()[0].is_open);
    let joined = pool.online_disk(first, Arc::new(script.disks().swap_remove(0))).unwrap();
    pool.resilver_joined(joined).unwrap();
    pool.wait_scrub().unwrap();
    assert!(!pool.members()[0].is_faulted && pool.members()[0].is_open);
    assert_eq!(findings(&pool), [""; 0]);
}

#[test]
fn a_resilver_goes_on_where_the_power_was_cut() {
    let script = Script::new();
    let pool = created(&script, 0);
    let mut expected = Vec::new();
    for n in 0..6 {
        expected.push((write(&pool, n), content(n)));
        pool.snapshot(&[format!("tank@{n}")], &[]).unwrap();
    }
    let first = pool.members()[0].guid;
    let joined = pool.attach(first, sized(&script, "third", SIZE)).unwrap();
    let before = script.op_count();
    pool.resilver_joined(joined).unwrap();
    // Datasets of the scan's queue come and go meanwhile.
    pool.snapshot(&["tank@late".to_owned()], &[]).unwrap();
    pool.destroy_snapshots(&["tank@3".to_owned()], false).unwrap();
    pool.wait_scrub().unwrap();
    pool.sync().unwrap();
    let after = script.op_count();
    drop(pool);
    let mut went_on = 0;
    for cut in (before..=after).step_by((after - before) / 14) {
        let image = script.image_after(cut, CrashPolicy::LoseAllUnflushed, cut as u64);
        let pool = imported(image.disks());
        let left = pool.scan().unwrap().filter(|status| status.scan.is_resilvering());
        pool.resume_scrub().unwrap();
        pool.wait_scrub().unwrap();
        pool.sync().unwrap();
        let scan = pool.scan().unwrap().unwrap().scan;
        assert_eq!((scan.func, scan.state, scan.errors), (ScanFunc::Resilver, ScanState::Finished, 0));
        if let Some(left) = left.filter(|left| left.scan.examined > 0) {
            went_on += 1;
            assert_eq!(scan.start_time, left.scan.start_time);
            assert!(scan.examined >= left.scan.examined, "{scan:?}");
        }
        assert_eq!(findings(&pool), [""; 0], "after operation {cut}");
        drop(pool);
        is_whole_on(&image, &[2], &expected);
    }
    assert!(went_on > 2, "{went_on} resilvers were cut in the middle");
}

#[test]
fn devices_that_join_one_after_another_all_get_everything() {
    let script = Script::new();
    let pool = created(&script, 0);
    let mut expected = vec![(write(&pool, 1), content(1))];
    pool.sync().unwrap();
    let first = pool.members()[0].guid;
    let joined = pool.attach(first, sized(&script, "third", SIZE)).unwrap();
    pool.resilver_joined(joined).unwrap();
    let joined = pool.attach(first, sized(&script, "fourth", SIZE)).unwrap();
    pool.resilver_joined(joined).unwrap();
    let joined = pool.attach(first, sized(&script, "fifth", SIZE)).unwrap();
    pool.resilver_joined(joined).unwrap();
    expected.push((write(&pool, 2), content(2)));
    pool.wait_scrub().unwrap();
    pool.sync().unwrap();
    assert!(pool.inner().deferred().is_empty());
    for disk in 2..5 {
        is_whole_on(&script, &[disk], &expected);
    }
    assert_eq!(findings(&pool), [""; 0]);
}

/// Writes a file that does not become smaller on disk.
fn noise(pool: &Pool, seed: u64) -> (ObjectId, Vec<u8>) {
    let id = write(pool, seed);
    let mut content = vec![0; LEN as usize];
    Host::seeded(seed, 0).entropy.fill(&mut content);
    let dataset = pool.open("tank").unwrap();
    let tx = dataset.begin(Hold::write(LEN)).unwrap();
    dataset.objset().object(id).unwrap().write(&tx, 0, &content).unwrap();
    (id, content)
}

/// Bytes that were read from each leaf.
fn bytes_read(pool: &Pool) -> Vec<u64> {
    pool.storage().vdevs().leaves().map(|leaf| leaf.meter.stats().read_bytes).collect()
}

#[test]
fn both_sides_of_a_mirror_are_read_and_one_that_does_not_answer_is_left_alone() {
    let script = Script::new();
    let pool = created(&script, 0);
    let files: Vec<_> = (0..60).map(|n| noise(&pool, n)).collect();
    pool.sync().unwrap();
    pool.export().unwrap();
    let pool = imported(script.disks());
    let before = bytes_read(&pool);
    for (id, content) in &files {
        assert!(read(&pool, *id) == *content);
    }
    let after = bytes_read(&pool);
    let sides: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let sum: u64 = sides.iter().sum();
    assert!(sides.iter().all(|side| side * 4 > sum), "each side has its share of {sides:?}");
    assert!(sum < 60 * LEN * 5 / 4, "nothing is read twice: {sides:?}");
    pool.export().unwrap();
    // One reader waits for a side; the others do not.
    let pool = imported(script.disks());
    let stuck = &script.disks()[0];
    let stuck_leaf = pool.storage().vdevs().leaves().next().unwrap().clone();
    read(&pool, files[0].0);
    stuck.inject(Fault::Hang { from_op: 0 });
    std::thread::scope(|scope| {
        scope.spawn(|| stuck_leaf.disk.read_at(&mut [0; 512], 0));
        while stuck_leaf.meter.oldest().is_none() {
            std::thread::yield_now();
        }
        for (id, content) in &files[1..] {
            assert!(read(&pool, *id) == *content);
        }
        stuck.heal();
    });
    assert_eq!(findings(&pool), [""; 0]);
}

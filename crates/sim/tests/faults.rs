//! Disks that corrupt data, return errors, vanish, or lose acknowledged writes: within the redundancy no data is lost,
//! beyond it no wrong data is returned.

use format::label;
use scan::Scans as _;
use sim::{Machine, Story, Tree, What, seeds};
use storage::host::scripted::Op;
use storage::host::{CrashPolicy, Disk, Entropy, Fault, SeededEntropy};

/// Where DVAs count from, in bytes.
const DATA_START: u64 = 4 << 20;

/// Number of the disk and byte offset at which `marker` was written first, by the log of the disks.
fn find(story: &Story, marker: &[u8]) -> (usize, u64) {
    let found = story.script().ops().into_iter().find_map(|op| match op {
        Op::Write { disk, offset, bytes } => {
            let at = bytes.windows(marker.len()).position(|window| window == marker)?;
            Some((disk, offset + at as u64))
        }
        Op::Flush { .. } => None,
    });
    found.expect("the marker was written, uncompressed")
}

#[test]
fn torn_uberblock_falls_back_to_the_previous_txg() {
    for (disks, back) in [(1, 1), (1, 2), (2, 1), (3, 2)] {
        let mut story = Story::on(Machine::striped(disks), 7);
        story.write("/hello", "older").write("/other", vec![1; 100_000]).sync();
        story.write("/hello", "old").sync();
        let old = ["older", "old", "new", "newer"];
        story.forget();
        story.write("/hello", "new").write("/other", vec![2; 70_000]).sync();
        story.write("/hello", "newer").unlink("/other").sync();
        let from = story.marks()[story.marks().len() - back].began;
        story.shut_down();
        assert_eq!(story.rot_uberblocks(from, |_, _| true), 4 * disks * back);
        story.reboot();
        story.expect_file("/hello", old[3 - back]);
        let tree = Tree::read(story.fs()).unwrap();
        assert_eq!(tree, *story.marks()[story.marks().len() - 1 - back].tree);
        let findings = story.check();
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

#[test]
fn any_one_good_label_is_enough() {
    for good in 0..4 {
        let mut story = Story::seeded(7);
        story.write("/hello", "there").sync().shut_down();
        let disk = story.disk(0);
        for (number, offset) in label::offsets(disk.size()).unwrap().into_iter().enumerate() {
            if number != good {
                (0..label::SIZE).step_by(512).for_each(|at| disk.rot(offset + at, 0xff));
            }
        }
        story.reboot();
        story.expect_file("/hello", "there");
        story.expect_clean();
    }
}

#[test]
fn a_rotten_copy_of_metadata_is_read_from_another_and_reported() {
    for copies in 1..=3 {
        let mut story = Story::on(Machine::striped(2), 7);
        story.write("/hello", "there").sync().shut_down();
        let best = story
            .script()
            .disks()
            .iter()
            .filter_map(|disk| pool::labels::read(disk).best)
            .max_by_key(|ub| ub.txg);
        let root = best.unwrap().root;
        let dvas: Vec<_> = root.block().unwrap().copies().collect();
        assert_eq!(dvas.len(), 3, "the root of a pool has three copies");
        for dva in &dvas[..copies] {
            story.disk(dva.vdev.0 as usize).rot(DATA_START + dva.offset + 20, 4);
        }
        let opened = story.try_reboot();
        if copies == 3 {
            let error = opened.expect_err("nothing leads into the pool").to_string();
            assert!(error.contains("cannot be opened"), "{error}");
            continue;
        }
        opened.unwrap();
        story.expect_file("/hello", "there");
    }
}

#[test]
fn a_rotten_copy_of_a_directory_is_reported_by_the_check() {
    let mut story = Story::seeded(7);
    // A directory whose entries have a block of their own, and which no later sync moves.
    story.mkdir("/d");
    for i in 0..200 {
        story.write(&format!("/d/some-longer-name-{i}"), "x");
    }
    story.sync().write("/later", "x").sync();
    let ops = story.script().ops();
    // Metadata is written in two copies of the same bytes at two places.
    let mut twins = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        let Op::Write { offset, bytes, .. } = op else { continue };
        let again =
            |other: &Op| matches!(other, Op::Write { offset: o, bytes: b, .. } if b == bytes && o != offset);
        if *offset >= DATA_START
            && *offset < story.disk(0).size() - (512 << 10)
            && ops[number + 1..].iter().any(again)
        {
            twins.push(*offset);
        }
    }
    assert!(!twins.is_empty());
    story.shut_down();
    for offset in &twins {
        story.disk(0).rot(offset + 10, 8);
    }
    story.reboot();
    let found = Tree::read(story.fs()).unwrap();
    assert_eq!(found, *story.marks().last().unwrap().tree);
    let findings = story.check();
    assert!(!findings.is_empty(), "{} copies are rotten", twins.len());
    assert!(findings.iter().all(|finding| finding.contains("damaged copy")), "{findings:#?}");
}

#[test]
fn rotten_data_is_an_error_of_that_file_alone() {
    let mut story = Story::on(Machine { properties: vec![("compression", 2)], ..Machine::striped(2) }, 7);
    let chance = SeededEntropy::new(7);
    story.live(&chance, 40, 50_000);
    let mut data = vec![0xa5; 40_000];
    data[30_000..30_012].copy_from_slice(b"rots-in-here");
    story.write("/victim", &data).sync();
    let (disk, offset) = find(&story, b"rots-in-here");
    story.shut_down();
    story.disk(disk).rot(offset, 2);
    story.reboot();
    let victim = story.fs().resolve(b"/victim", true).unwrap();
    let error = story.fs().read_all(victim, 1 << 20).expect_err("the block has one copy, and it is rotten");
    assert_eq!(error.errno(), 5, "{error}");
    let findings = story.check();
    assert!(findings.len() == 1 && findings[0].contains("damaged block"), "{findings:#?}");
    // The rest reads as before; the damaged file can be removed, and the pool is whole again.
    story.unlink("/victim").sync();
    story.expect_model();
    story.expect_clean();
}

#[test]
fn an_unreadable_sector_of_data_is_an_error_of_that_file_alone() {
    let mut story = Story::on(Machine { properties: vec![("compression", 2)], ..Machine::default() }, 7);
    story.write("/victim", [vec![1; 5000], b"cannot-be-read".to_vec()].concat());
    story.write("/other", vec![2; 5000]).sync();
    let (disk, offset) = find(&story, b"cannot-be-read");
    story.shut_down();
    story.disk(disk).inject(Fault::ReadError(offset..offset + 1));
    story.reboot();
    let victim = story.fs().resolve(b"/victim", true).unwrap();
    assert_eq!(story.fs().read_all(victim, 1 << 20).unwrap_err().errno(), 5);
    story.expect_file("/other", vec![2; 5000]);
    story.disk(disk).heal();
    story.reboot();
    story.expect_model();
    story.expect_clean();
}

/// Work of one txg, the same each time.
fn a_txg(story: &mut Story) {
    story.write("/b", vec![2; 60_000]).unlink("/a").mkdir("/d").write("/d/c", "c");
}

/// A disk that fails at each operation of a txg: the pool is suspended and reports it, and all synced data is there after
/// the next import.
fn stops_and_comes_back(machine: &Machine, fault: impl Fn(usize) -> Fault) {
    let ops = {
        let mut story = Story::on(machine.clone(), 7);
        story.write("/a", vec![1; 60_000]).sync().forget();
        a_txg(&mut story);
        story.sync();
        story.script().op_count()
    };
    for from_op in 0..ops {
        let mut story = Story::on(machine.clone(), 7);
        story.write("/a", vec![1; 60_000]).sync().forget();
        a_txg(&mut story);
        let disk = story.disk(from_op % 2);
        disk.inject(fault(from_op));
        // A fault of a disk that the last operations do not concern goes unnoticed, rightly.
        let Err(error) = story.try_sync() else {
            disk.heal();
            continue;
        };
        assert!(matches!(error, pool::Error::Stopped(_)), "operation {from_op}: {error}");
        let dir = story.fs().root();
        let again = story.fs().create(dir, b"more", &zpl::NewNode::new(zpl::FileKind::Regular, 0o644));
        assert!(again.is_err(), "a stopped pool takes no more changes");
        assert!(story.try_sync().is_err(), "a stopped pool syncs no more");
        disk.heal();
        // The uberblock of the txg may have arrived on one of the disks before the other refused.
        story.cut_power(CrashPolicy::KeepAll);
        story.expect_clean();
    }
}

#[test]
fn a_disk_that_vanishes_in_mid_write_stops_the_pool_at_its_last_sync() {
    stops_and_comes_back(&Machine::striped(2), |from_op| Fault::Vanish { from_op });
}

#[test]
fn a_write_error_in_mid_txg_stops_the_pool_at_its_last_sync() {
    stops_and_comes_back(&Machine::striped(2), |from_op| Fault::WriteError { from_op });
}

#[test]
fn a_mirror_with_an_old_copy_of_a_side_is_written_and_resilvered() {
    for old in 0..2 {
        let mut story = Story::on(Machine::mirrored(2), 7);
        story.write("/a", vec![1; 60_000]).sync().forget();
        for change in 2..6 {
            story.write("/a", vec![change; 60_000]).write(&format!("/{change}"), vec![change; 5000]).sync();
        }
        let now = story.script().image_after(story.script().op_count(), CrashPolicy::KeepAll, 1);
        let before = story.script().image_after(0, CrashPolicy::KeepAll, 1);
        let mixed: Vec<_> =
            (0..2).map(|i| if i == old { &before } else { &now }.disks().swap_remove(i)).collect();
        let (pool, fs) = story.machine().open(mixed, 7).unwrap();
        assert_eq!(Tree::read(&fs).unwrap(), *story.marks().last().unwrap().tree, "side {old} is old");
        assert_eq!(pool.read_only(), None);
        assert!(pool.needs_resilver(), "side {old} is old");
        pool.resume_scrub().unwrap();
        pool.wait_scrub().unwrap();
        assert!(!pool.needs_resilver(), "side {old} has everything");
    }
}

#[test]
fn a_rotten_side_of_a_mirror_is_read_from_the_other_one_and_mended_by_a_scrub() {
    for side in 0..2 {
        let mut story = Story::on(Machine::mirrored(2), 7);
        let mut marker = vec![0; 20_000];
        SeededEntropy::new(5).fill(&mut marker);
        story.write("/hello", marker.clone()).sync();
        let (_, at) = find(&story, &marker[..100]);
        story.shut_down();
        story.disk(side).rot(at, 10);
        story.reboot();
        story.expect_file("/hello", marker);
        let findings = story.check();
        assert!(findings.len() == 1 && findings[0].contains("damaged copy"), "side {side}: {findings:#?}");
        story.pool().scrub().unwrap();
        story.pool().wait_scrub().unwrap();
        story.forget_unasked_syncs();
        story.expect_clean();
    }
}

#[test]
fn one_of_two_disks_that_lost_its_unflushed_writes_leaves_a_synced_state() {
    // The disks of a pool lose power together, but only one had a cache to lose.
    for machine in [Machine::striped(2), Machine::mirrored(2)] {
        one_loses_its_unflushed_writes(machine);
    }
}

fn one_loses_its_unflushed_writes(machine: Machine) {
    let mut story = Story::on(machine, 7);
    story.write("/a", vec![1; 60_000]).sync().forget();
    a_txg(&mut story);
    story.sync();
    let ops = story.script().ops();
    let marks = story.marks().to_vec();
    for cut in 0..=ops.len() {
        for loser in 0..2 {
            let kept = story.script().image_after(cut, CrashPolicy::KeepAll, 1);
            let lost = story.script().image_after(cut, CrashPolicy::LoseAllUnflushed, 1);
            let mixed: Vec<_> =
                (0..2).map(|i| if i == loser { &lost } else { &kept }.disks().swap_remove(i)).collect();
            let (_pool, fs) = story.machine().open(mixed, 7).unwrap();
            let found = Tree::read(&fs).unwrap();
            let whole = if cut < ops.len() { &marks[..] } else { &marks[1..] };
            assert!(whole.iter().any(|mark| *mark.tree == found), "cut {cut}, disk {loser} lost its writes");
        }
    }
}

/// A lying disk: it acknowledges writes and drops them, or writes them elsewhere.
fn never_makes_up_data(fault: impl Fn(usize) -> Fault) {
    let prepare = || {
        let mut story = Story::seeded(7);
        story.write("/a", vec![1; 60_000]).sync().forget();
        a_txg(&mut story);
        story
    };
    let ops = {
        let mut story = prepare();
        story.sync();
        story.script().op_count()
    };
    for op in 0..ops {
        let mut story = prepare();
        story.disk(0).inject(fault(op));
        if story.try_sync().is_err() || story.try_reboot().is_err() {
            continue; // Refusal is an answer.
        }
        let marks = story.marks();
        let (old, new) = (&marks[0].tree, &marks[marks.len() - 1].tree);
        let Ok(found) = Tree::read(story.fs()) else { continue };
        for (path, entry) in &found.0 {
            let known = [old, new].iter().any(|tree| tree.0.get(path) == Some(entry));
            let is_file = matches!(entry.what, What::File(..));
            assert!(
                known,
                "operation {op}: {} {path} was made up: {entry:?}",
                if is_file { "file" } else { "name" }
            );
        }
    }
}

#[test]
fn a_forgotten_write_never_makes_up_data() {
    never_makes_up_data(|op| Fault::Forget { op });
}

#[test]
fn a_misdirected_write_never_makes_up_data() {
    never_makes_up_data(|op| Fault::Misdirect { op, to: 30 << 20 });
}

#[test]
fn bits_that_rot_anywhere_in_the_data_never_make_up_data() {
    for seed in seeds(1) {
        let chance = SeededEntropy::new(seed);
        let mut story = Story::seeded(seed);
        story.live(&chance, 60, 40_000).sync();
        let synced = story.marks().last().unwrap().tree.clone();
        let writes: Vec<(u64, usize)> = story
            .script()
            .ops()
            .iter()
            .filter_map(|op| match op {
                Op::Write { offset, bytes, .. } if !bytes.is_empty() => Some((*offset, bytes.len())),
                _ => None,
            })
            .collect();
        for _ in 0..60 {
            let image = story.script().image_after(story.script().op_count(), CrashPolicy::KeepAll, 0);
            for _ in 0..1 + chance.below(6) {
                let (offset, len) = writes[chance.below(writes.len() as u64) as usize];
                let mask = 1 << chance.below(8);
                image.disks()[0].rot(offset + chance.below(len as u64), mask);
            }
            let Ok((pool, fs)) = story.machine().open(image.disks(), seed) else { continue };
            let mut findings = 0;
            // The check may report the damage or refuse to walk the pool, but it must return.
            let _ = scan::check::check(&pool, &mut |_| findings += 1);
            let Ok(found) = Tree::read(&fs) else { continue };
            assert!(found == *synced, "seed {seed}: {:#?}", found.differences(&synced));
        }
    }
}

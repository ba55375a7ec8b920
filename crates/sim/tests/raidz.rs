//! Raidz: every parity, several widths and sector sizes, with devices taken away, overwritten, and power lost.

mod zdb;

use scan::Scans as _;
use sim::{Cuts, Machine, Story, Tree, seeds};
use storage::host::scripted::Op;
use storage::host::{CrashPolicy, Disk, Fault, ScriptedDisk, SeededEntropy};

/// Parity, width and log2 of the sector size of the pools of a test.
const LAYOUTS: [(u8, usize, u32); 9] =
    [(1, 2, 9), (1, 3, 12), (1, 5, 9), (2, 3, 12), (2, 4, 9), (2, 6, 12), (3, 4, 12), (3, 6, 9), (3, 8, 12)];

fn machine(parity: u8, width: usize, ashift: u32) -> Machine {
    Machine { ashift, workers: 2, ..Machine::raidz(parity, width) }
}

/// Every set of `size` of the numbers below `count`, as bits.
fn sets(count: usize, size: u8) -> Vec<u32> {
    (0u32..1 << count).filter(|set| set.count_ones() == u32::from(size)).collect()
}

/// The disks of a story as they are now, without those of `gone`.
fn left(story: &Story, gone: u32) -> Vec<ScriptedDisk> {
    let now = story.script().image_after(story.script().op_count(), CrashPolicy::KeepAll, 1).disks();
    now.into_iter().enumerate().filter(|(disk, _)| gone & 1 << disk == 0).map(|(_, disk)| disk).collect()
}

#[test]
fn data_is_read_without_the_devices_that_parity_replaces() {
    for (parity, width, ashift) in LAYOUTS {
        let mut story = Story::on(machine(parity, width, ashift), 11);
        let chance = SeededEntropy::new(u64::from(parity) * 100 + width as u64);
        story.without_links().live(&chance, 60, 300_000).sync();
        story.live(&chance, 40, 40_000).sync();
        story.expect_model();
        story.expect_clean();
        story.reboot().expect_model();
        story.live(&chance, 20, 40_000).sync().shut_down();
        for gone in sets(width, parity) {
            let (pool, fs) = story.machine().open(left(&story, gone), 7).expect("enough devices are there");
            assert_eq!(
                Tree::read(&fs).unwrap(),
                story.model().tree(),
                "raidz{parity} of {width} without {gone:b}"
            );
            assert_eq!(pool.read_only(), None, "what absent devices miss is noted");
        }
        for gone in sets(width, parity + 1) {
            assert!(story.machine().open(left(&story, gone), 7).is_err(), "without {gone:b} nothing is read");
        }
        story.reboot();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_during_work_on_raidz_leaves_a_synced_state() {
    for seed in seeds(1) {
        for (parity, width, ashift) in [(1, 3, 9), (2, 5, 12), (3, 5, 9)] {
            let mut story = Story::on(machine(parity, width, ashift), seed);
            story.mkdir("/d").write("/d/a", vec![7; 50_000]).write("/b", "small").sync();
            story.forget();
            story.write_at("/d/a", 20_000, vec![9; 10_000]).link("/d/a", "/d/a2").sync();
            story.truncate("/d/a", 30_001).set_xattr("/b", "user.k", b"value").sync();
            story.rename("/d", "/e").unlink("/e/a2").write("/last", vec![3; 100_000]).sync();
            story.expect_model();
            let name = "power_cut_during_work_on_raidz_leaves_a_synced_state";
            println!("{} cuts", Cuts::of(&story, "raidz", name).every(11).run());
            zdb::expect_pleased(&mut story);
        }
    }
}

#[test]
fn fsynced_data_on_raidz_survives_a_power_cut() {
    for (parity, width, ashift) in LAYOUTS {
        let mut story = Story::on(machine(parity, width, ashift), 5);
        let chance = SeededEntropy::new(5);
        story.write("/a", vec![1; 60_000]).commit().sync();
        story.forget();
        for _ in 0..4 {
            story.without_links().live(&chance, 6, 50_000).commit();
            story.write("/a", vec![chance.below(200) as u8; 5_000]).commit();
        }
        story.cut_power(CrashPolicy::LoseAllUnflushed);
        story.expect_clean();
        zdb::expect_pleased(&mut story);
    }
}

/// Flips a bit in every sector in use of the data of a device.
fn overwrite(disk: &ScriptedDisk) {
    let (start, end) = (4 << 20, disk.size() - (1 << 19));
    let mut piece = vec![0; 1 << 20];
    for offset in (start..end).step_by(piece.len()) {
        let len = piece.len().min((end - offset) as usize);
        disk.read_at(&mut piece[..len], offset).unwrap();
        for (sector, bytes) in piece[..len].chunks(512).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                disk.rot(offset + sector as u64 * 512 + 17, 4);
            }
        }
    }
}

#[test]
fn overwritten_devices_are_read_around_and_mended_by_a_scrub() {
    for (parity, width, ashift) in LAYOUTS {
        let mut story = Story::on(machine(parity, width, ashift), 3);
        let chance = SeededEntropy::new(3);
        story.without_links().live(&chance, 40, 200_000).sync().shut_down();
        let damaged: Vec<usize> = (0..usize::from(parity)).map(|i| (i + 1) % width).collect();
        damaged.iter().for_each(|disk| overwrite(&story.disk(*disk)));
        story.reboot();
        story.expect_model();
        let findings = story.check();
        assert!(!findings.is_empty(), "raidz{parity} of {width}: damage is found");
        story.pool().scrub().unwrap();
        story.pool().wait_scrub().unwrap();
        story.forget_unasked_syncs();
        story.expect_model();
        story.expect_clean();
        // The repaired devices suffice when the others are removed.
        story.shut_down();
        let gone = (0..width).filter(|disk| !damaged.contains(disk)).take(parity.into());
        let gone = gone.fold(0, |set, disk| set | 1 << disk);
        let (_pool, fs) = story.machine().open(left(&story, gone), 7).unwrap();
        assert_eq!(Tree::read(&fs).unwrap(), story.model().tree());
        story.reboot();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn a_device_of_raidz_that_refuses_writes_stops_the_pool_at_its_last_sync() {
    for from_op in 0..40 {
        let mut story = Story::on(machine(1, 3, 9), 7);
        story.write("/a", vec![1; 60_000]).sync().forget();
        story.write("/a", vec![2; 60_000]).write("/b", vec![3; 9_000]);
        let disk = story.disk(from_op % 3);
        disk.inject(Fault::WriteError { from_op });
        let refused = story.try_sync();
        disk.heal();
        if let Err(error) = refused {
            assert!(matches!(error, pool::Error::Stopped(_)), "operation {from_op}: {error}");
            story.cut_power(CrashPolicy::KeepAll);
        }
        story.expect_clean();
    }
}

#[test]
fn blocks_in_pieces_on_raidz_are_read_freed_and_mended() {
    for (parity, width, ashift) in LAYOUTS {
        let pieces = Machine { force_ganging: 2 << ashift, ..machine(parity, width, ashift) };
        let mut story = Story::on(pieces, 9);
        let chance = SeededEntropy::new(9);
        story.without_links().live(&chance, 30, 60_000).sync();
        story.live(&chance, 30, 30_000).sync();
        story.expect_model();
        story.expect_clean();
        story.shut_down();
        overwrite(&story.disk(1));
        story.reboot();
        story.expect_model();
        story.pool().scrub().unwrap();
        story.pool().wait_scrub().unwrap();
        story.forget_unasked_syncs();
        story.expect_model();
        story.expect_clean();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn fsynced_data_on_a_log_device_survives_a_power_cut() {
    let mut story = Story::on(Machine { logs: 2, ..machine(1, 3, 12) }, 5);
    let chance = SeededEntropy::new(5);
    story.write("/a", vec![1; 60_000]).commit().sync();
    story.forget();
    for _ in 0..4 {
        story.without_links().live(&chance, 6, 50_000).commit();
    }
    let is_log = |disk: usize| disk >= 3;
    let on_logs = story.script().ops().iter().any(|op| {
        matches!(op, Op::Write { disk, bytes, .. } if is_log(*disk) && bytes.iter().any(|byte| *byte != 0))
    });
    assert!(on_logs, "logs are written to the devices that are for them");
    story.cut_power(CrashPolicy::LoseAllUnflushed);
    story.expect_clean();
    zdb::expect_pleased(&mut story);
}

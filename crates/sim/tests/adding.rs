//! Devices that a pool gets while it is used: the power goes before, while and after they are added.

mod zdb;

use std::sync::Arc;

use pool::{Layout, NewDevices, NewTop};
use scan::Scans as _;
use sim::{Cuts, Machine, Story, seeds};
use storage::allocator::Class;
use storage::host::{CrashPolicy, Disk};

/// New disks in the machine of a story.
fn disks(story: &Story, count: usize) -> Vec<Arc<dyn Disk>> {
    let have = story.script().disks().len();
    let bytes = story.machine().disk_bytes;
    let disk = |number| Arc::new(story.script().disk(format!("/scripted/{number}"), bytes)) as Arc<dyn Disk>;
    (have..have + count).map(disk).collect()
}

fn add(story: &mut Story, tops: Vec<NewTop>) {
    let ashift = Some(story.machine().ashift);
    story.pool().add(NewDevices { tops, ashift, ..NewDevices::default() }).expect("they fit");
    story.forget_unasked_syncs();
}

/// Data before, work while, and data after `tops` are added.
fn grow(story: &mut Story, tops: Vec<NewTop>) {
    story.mkdir("/d").write("/d/a", vec![7; 150_000]).write("/b", "small").sync();
    story.forget();
    story.write("/d/c", vec![9; 90_000]).unlink("/b");
    add(story, tops);
    story.sync();
    story.write("/d/a", vec![3; 200_000]).write("/e", vec![4; 70_000]).sync();
    story.unlink("/d/c").rename("/e", "/f").sync();
}

#[test]
fn power_cut_while_a_disk_is_added_leaves_a_synced_state() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        let new = disks(&story, 1);
        grow(&mut story, vec![NewTop::new(Layout::Single, new)]);
        story.expect_model();
        let name = "power_cut_while_a_disk_is_added_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "adding", name).every(3).run());
        story.reboot().expect_model();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_while_mirrors_and_raidz_are_added_leaves_a_synced_state() {
    for seed in seeds(1) {
        let mut story = Story::on(Machine { ashift: 12, ..Machine::mirrored(2) }, seed);
        let new = disks(&story, 5);
        let tops = vec![
            NewTop::new(Layout::Mirror, new[..2].to_vec()),
            NewTop::new(Layout::Raidz(1), new[2..].to_vec()),
        ];
        grow(&mut story, tops);
        story.expect_model();
        let name = "power_cut_while_mirrors_and_raidz_are_added_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "adding", name).every(20).run());
        story.reboot().expect_model();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn fsynced_data_survives_while_a_log_device_is_added() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        story.write("/a", vec![1; 60_000]).commit().sync();
        story.write("/b", vec![2; 9_000]).commit();
        let new = disks(&story, 1);
        add(&mut story, vec![NewTop { class: Class::Log, ..NewTop::new(Layout::Single, new) }]);
        story.sync();
        story.forget();
        for round in 0..4 {
            story.write("/a", vec![round; 8_000]).commit();
            story.write("/c", vec![round + 1; 30_000]).commit();
            if round == 2 {
                story.sync();
            }
        }
        let log = story.pool().info().vdev_space[&1];
        assert!(log.allocated > 0, "new log blocks lie on the log device");
        story.cut_power(CrashPolicy::LoseAllUnflushed);
        story.expect_clean();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_while_a_log_device_is_removed_loses_nothing_that_was_fsynced() {
    for seed in seeds(1) {
        let mut story = Story::on(Machine { logs: 2, ..Machine::striped(1) }, seed);
        story.write("/a", vec![1; 60_000]).commit().sync();
        story.write("/b", vec![2; 9_000]).commit();
        story.sync();
        story.forget();
        story.write("/a", vec![3; 30_000]).commit();
        story.write("/c", vec![4; 30_000]).commit();
        let log = story.pool().info().config.tree.children[1].guid;
        story.pool().remove(log).expect("nothing keeps it");
        story.forget_unasked_syncs();
        story.sync();
        story.write("/b", vec![5; 20_000]).commit();
        story.write("/d", vec![6; 20_000]).commit();
        story.sync();
        story.expect_model();
        let holes = story.pool().info().config.hole_array;
        assert_eq!(holes, [1]);
        let again = story.pool().remove(log);
        assert!(matches!(again, Err(pool::Error::NoSuchDevice)), "{again:?}");
        let name = "power_cut_while_a_log_device_is_removed_loses_nothing_that_was_fsynced";
        println!("{} cuts", Cuts::of(&story, "adding", name).every(2).run());
        story.reboot().expect_model();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn data_fsynced_after_the_removal_of_the_log_device_survives() {
    let mut story = Story::on(Machine { logs: 1, ..Machine::mirrored(2) }, 3);
    story.write("/a", vec![1; 60_000]).commit().sync();
    story.write("/b", vec![2; 9_000]).commit();
    let log = story.pool().info().config.tree.children[1].guid;
    story.pool().remove(log).expect("nothing keeps it");
    story.forget_unasked_syncs();
    story.sync();
    let new = disks(&story, 1);
    add(&mut story, vec![NewTop { class: Class::Log, ..NewTop::new(Layout::Single, new) }]);
    story.write("/b", vec![5; 20_000]).commit().sync();
    story.write("/d", vec![6; 20_000]).commit();
    story.cut_power(CrashPolicy::LoseAllUnflushed);
    story.expect_clean();
    zdb::expect_pleased(&mut story);
}

/// Data before, a device replaced at work, and data after it.
fn replace(story: &mut Story) {
    story.mkdir("/d").write("/d/a", vec![7; 150_000]).write("/b", "small").sync();
    story.forget();
    story.write("/d/c", vec![9; 90_000]).unlink("/b");
    let old = story.pool().members()[0].guid;
    let new = disks(story, 1).remove(0);
    let joined = story.pool().replace(old, new).expect("it fits");
    story.pool().resilver_joined(joined).expect("it begins");
    story.pool().wait_scrub().expect("it is resilvered");
    story.forget_unasked_syncs();
    story.sync();
    story.write("/d/a", vec![3; 200_000]).sync();
    story.unlink("/d/c").sync();
}

#[test]
fn power_cut_while_a_device_is_replaced_leaves_a_synced_state() {
    for seed in seeds(1) {
        for (machine, stride) in [
            (Machine::mirrored(2), 7),
            (Machine::raidz(1, 3), 11),
            (Machine { ashift: 12, ..Machine::raidz(2, 5) }, 23),
        ] {
            let mut story = Story::on(machine, seed);
            replace(&mut story);
            story.expect_model();
            let name = "power_cut_while_a_device_is_replaced_leaves_a_synced_state";
            println!("{} cuts", Cuts::of(&story, "adding", name).every(stride).run());
            story.reboot().expect_model();
            zdb::expect_pleased(&mut story);
        }
    }
}

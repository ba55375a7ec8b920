//! Devices that a pool gets while it is used: the power goes before, while and after they are added.

mod zdb;

use std::sync::Arc;

use pool::{Layout, NewDevices, NewTop};
use scan::Scans as _;
use sim::{Cuts, Machine, Story, seeds};
use storage::allocator::Class;
use storage::host::{CrashPolicy, Disk, Fault};

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

/// Data before, a device replaced at work, and data after it. `sequentially`: its space in use is copied in the order of places.
fn replace(story: &mut Story, sequentially: bool) {
    story.mkdir("/d").write("/d/a", vec![7; 150_000]).write("/b", "small").sync();
    story.forget();
    story.write("/d/c", vec![9; 90_000]).unlink("/b");
    let old = story.pool().members()[0].guid;
    let new = disks(story, 1).remove(0);
    let joined = match sequentially {
        true => story.pool().replace_sequentially(old, new).expect("it fits"),
        false => story.pool().replace(old, new).expect("it fits"),
    };
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
        for (machine, stride, sequentially) in [
            (Machine::mirrored(2), 7, false),
            (Machine::mirrored(2), 29, true),
            (Machine::raidz(1, 3), 11, false),
            (Machine { ashift: 12, ..Machine::raidz(2, 5) }, 23, false),
        ] {
            let mut story = Story::on(machine, seed);
            replace(&mut story, sequentially);
            story.expect_model();
            let name = "power_cut_while_a_device_is_replaced_leaves_a_synced_state";
            println!("{} cuts", Cuts::of(&story, "adding", name).every(stride).run());
            story.reboot().expect_model();
            zdb::expect_pleased(&mut story);
        }
    }
}

/// Bytes that do not become fewer when they are compressed.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let step = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::repeat_n((), len).scan(seed, |state, ()| step(state)).collect()
}

/// Data before, while and after the first vdev is removed: some of it goes while the rest is copied.
fn evacuate(story: &mut Story) {
    story.mkdir("/d").write("/d/a", noise(300_000, 1)).write("/b", noise(200_000, 2)).sync();
    for n in 0..6u8 {
        story.write(&format!("/d/{n}"), noise(20_000 + 9_000 * usize::from(n), n.into()));
    }
    story.sync().unlink("/d/1").unlink("/d/4").sync();
    story.forget();
    let gone = story.pool().info().config.tree.children[0].guid;
    story.pool().remove(gone).expect("the others have room for it");
    story.forget_unasked_syncs();
    story.write("/d/a", noise(100_000, 7)).unlink("/d/3").sync();
    story.unlink("/b").write("/c", noise(90_000, 8)).sync();
    story.write("/b", vec![1; 30_000]).sync();
    for _ in 0..200 {
        if story.pool().unmoved().expect("read") == 0 {
            break;
        }
        story.sync();
    }
    assert_eq!(story.pool().removal().expect("read").map(|it| it.stage), Some(pool::RemovalStage::Finished));
    story.write("/d/a", vec![4; 50_000]).unlink("/d/5").sync();
    story.sync();
}

#[test]
fn power_cut_while_a_vdev_is_removed_leaves_a_synced_state() {
    for seed in seeds(1) {
        let slow = Machine { copied_at_once: 70_000, ..Machine::default() };
        for (machine, stride) in [
            (Machine { disks: 3, ..slow.clone() }, 31),
            (Machine { disks: 6, width: 2, layout: Layout::Mirror, ashift: 12, ..slow }, 97),
        ] {
            let mut story = Story::on(machine, seed);
            evacuate(&mut story);
            story.expect_model();
            let name = "power_cut_while_a_vdev_is_removed_leaves_a_synced_state";
            println!("{} cuts", Cuts::of(&story, "adding", name).every(stride).run());
            story.reboot().expect_model();
            zdb::expect_pleased(&mut story);
        }
    }
}

/// Removes a top-level vdev that holds data, and waits until it has left.
fn remove(story: &mut Story, index: usize) {
    let gone = story.pool().info().config.tree.children[index].guid;
    story.pool().remove(gone).expect("the others have room for it");
    story.pool().wait_removed().expect("all is copied");
    story.forget_unasked_syncs();
}

#[test]
fn freed_space_becomes_obsolete_on_each_removed_vdev_that_was_mapped_to_it() {
    let mut story = Story::on(Machine { copied_at_once: 300_000, disks: 4, ..Machine::default() }, 13);
    for n in 0..8u8 {
        story.write(&format!("/{n}"), noise(900_000, n.into())).sync();
    }
    // The data of the first goes to the second, too, and from there to the others.
    (0..2).for_each(|index| remove(&mut story, index));
    let obsolete = |story: &Story| -> Vec<u64> {
        let all = story.pool().inner().obsolete().expect("read");
        all.iter().map(|each| each.bytes.iter().sum()).collect()
    };
    let before = obsolete(&story);
    assert_eq!(before.len(), 2);
    for n in 0..5 {
        story.unlink(&format!("/{n}"));
    }
    story.sync().sync().expect_clean();
    let now = obsolete(&story);
    assert!(now.iter().zip(&before).all(|(now, before)| *now > before + 30_000), "{before:?} {now:?}");
    story.reboot().expect_clean().expect_model();
    zdb::expect_pleased(&mut story);
}

/// Data is moved twice, and most of it is then freed.
fn condense(story: &mut Story) {
    for n in 0..5u8 {
        story.write(&format!("/{n}"), noise(400_000, n.into())).sync();
    }
    remove(story, 0);
    let mapping = |story: &Story| story.pool().removal().expect("read").expect("there was one").mapping;
    let long = mapping(story);
    story.forget();
    for n in 0..4 {
        story.unlink(&format!("/{n}")).sync();
        story.write("/new", noise(50_000, n)).sync();
    }
    for _ in 0..40 {
        story.sync();
    }
    let short = mapping(story);
    assert!(short < long && short > 0, "{long} {short}");
}

#[test]
fn power_cut_while_the_mapping_of_a_removed_vdev_is_condensed_leaves_a_synced_state() {
    for seed in seeds(1) {
        let few = Machine { copied_at_once: 70_000, condensed_at_once: 3, disks: 3, ..Machine::default() };
        let mut story = Story::on(few, seed);
        condense(&mut story);
        story.expect_model();
        let name = "power_cut_while_the_mapping_of_a_removed_vdev_is_condensed_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "adding", name).every(29).run());
        story.reboot().expect_model();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn a_mapping_is_condensed_further_after_an_import_and_an_exported_pool_is_right_in_the_middle() {
    let few = Machine { copied_at_once: 20_000, condensed_at_once: 1, disks: 3, ..Machine::default() };
    let mut story = Story::on(few, 21);
    for n in 0..5u8 {
        story.write(&format!("/{n}"), noise(400_000, n.into())).sync();
    }
    remove(&mut story, 0);
    for n in 0..4 {
        story.unlink(&format!("/{n}"));
    }
    let is_condensed = |story: &Story| {
        let key = "com.delphix:condensing_indirect";
        story.pool().inner().mos().directory(key).expect("read").is_some()
    };
    let (mut middle, mut goes_on) = (0, false);
    for round in 0..60u8 {
        story.write("/new", vec![round; 5_000]).sync();
        if is_condensed(&story) {
            middle += 1;
            story.expect_clean();
            if middle == 2 {
                // Blocks go that the old mapping leads to, and the new one.
                story.unlink("/4").sync();
                zdb::expect_pleased(&mut story);
                story.reboot();
                goes_on = is_condensed(&story);
            }
        }
    }
    assert!(goes_on && !is_condensed(&story), "{middle}");
    story.reboot().expect_clean().expect_model();
    zdb::expect_pleased(&mut story);
}

#[test]
fn a_pool_is_opened_right_after_its_special_device_was_removed() {
    let mut story = Story::on(Machine::default(), 11);
    let new = disks(&story, 2);
    let class_of = [Class::Special, Class::Dedup];
    let tops = new.into_iter().zip(class_of);
    let tops = tops.map(|(disk, class)| NewTop { class, ..NewTop::new(Layout::Single, vec![disk]) });
    add(&mut story, tops.collect());
    // All blocks of metadata are on the special device, also those that tell which device is for dedup tables.
    story.write("/a", noise(700_000, 3)).sync();
    let gone = story.pool().info().config.tree.children[1].guid;
    story.pool().remove(gone).expect("there is another device");
    story.pool().wait_removed().expect("all is copied");
    story.forget_unasked_syncs();
    story.reboot().expect_model();
    assert_eq!(story.pool().storage().vdevs().tops()[2].class, Class::Dedup);
    story.write("/b", noise(100_000, 4)).sync().expect_clean();
    zdb::expect_pleased(&mut story);
}

#[test]
fn blocks_of_a_removed_vdev_are_cloned() {
    let mut story = Story::on(Machine::cloning(), 12);
    let new = disks(&story, 2);
    story.write("/a", noise(900_000, 1)).sync();
    add(&mut story, new.into_iter().map(|disk| NewTop::new(Layout::Single, vec![disk])).collect());
    story.write("/b", noise(900_000, 2)).sync();
    let gone = story.pool().info().config.tree.children[0].guid;
    story.pool().remove(gone).expect("there is another device");
    story.pool().wait_removed().expect("all is copied");
    story.forget_unasked_syncs();
    assert!(story.clone_file("/a", "/c") && story.clone_file("/b", "/d"));
    story.sync().reboot().expect_model();
    story.unlink("/a").sync().expect_clean();
    zdb::expect_pleased(&mut story);
}

#[test]
fn a_vdev_whose_removal_is_given_up_stays_as_it_is() {
    for ashift in [9, 12] {
        let mut story = Story::on(Machine { copied_at_once: 40_000, ashift, ..Machine::striped(3) }, 5);
        story.write("/a", noise(2_000_000, 3)).write("/b", noise(300_000, 4)).sync();
        story.unlink("/b").write("/c", noise(100_000, 6)).sync();
        let before = story.pool().info();
        let gone = before.config.tree.children[2].guid;
        for round in 0..3u8 {
            story.pool().remove(gone).expect("the others have room for it");
            let again = story.pool().remove(gone);
            assert!(matches!(again, Err(pool::Error::RemovingThis)), "{again:?}");
            story.forget_unasked_syncs();
            for _ in 0..round {
                story.write("/c", vec![round; 70_000]).sync();
            }
            zdb::expect_pleased(&mut story);
            story.reboot().expect_clean();
            story.pool().cancel_removal().expect("it goes on");
            story.forget_unasked_syncs();
            story.sync().expect_clean();
        }
        let after = story.pool().info();
        for feature in ["com.delphix:device_removal", "com.delphix:obsolete_counts"] {
            assert_eq!(after.features[feature], 0, "{feature}");
        }
        assert_eq!(after.config.tree.children[2].extra, before.config.tree.children[2].extra);
        story.expect_model();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn a_device_that_comes_back_after_a_removal_gets_what_was_copied_without_it() {
    let mut story = Story::on(
        Machine { copied_at_once: 70_000, disks: 6, width: 2, layout: Layout::Mirror, ..Machine::default() },
        9,
    );
    story.write("/a", noise(700_000, 5)).sync();
    let members = story.pool().members();
    let (other, replaced) = (members[2].guid, members[4].guid);
    story.pool().offline(other, false).expect("its mirror has another side");
    let gone = story.pool().info().config.tree.children[0].guid;
    story.pool().remove(gone).expect("the others have room for it");
    story.forget_unasked_syncs();
    story.sync();
    // Once while the removal is running, once after it.
    let joined = story.pool().online_disk(other, Arc::new(story.disk(2))).expect("it is there");
    story.pool().resilver_joined(joined).expect("it begins");
    story.pool().wait_scrub().expect("it ends");
    story.pool().wait_removed().expect("all is copied");
    let new = disks(&story, 1).remove(0);
    let joined = story.pool().replace(replaced, new).expect("it fits");
    story.pool().resilver_joined(joined).expect("it begins");
    story.pool().wait_scrub().expect("it is resilvered");
    story.forget_unasked_syncs();
    story.sync().expect_clean();
    // Each side has everything.
    story.pool().scrub().expect("it begins");
    story.pool().wait_scrub().expect("it ends");
    let scan = story.pool().scan().expect("read").expect("there was one").scan;
    assert_eq!((scan.processed, scan.errors), (0, 0), "nothing is left to be repaired");
    story.expect_model();
    zdb::expect_pleased(&mut story);
}

#[test]
fn a_vdev_that_cannot_all_be_read_stays() {
    let mut story = Story::on(Machine { copied_at_once: 70_000, ..Machine::striped(3) }, 6);
    story.write("/a", noise(2_000_000, 3)).sync();
    // The last blocks of the disk that hold something: those before are copied by then. Its labels can be read.
    let used = story.pool().info().vdev_space[&1].allocated;
    let end = (4 << 20) + used;
    story.disk(1).inject(Fault::ReadError(end - 100_000..end + (1 << 20)));
    let gone = story.pool().info().config.tree.children[1].guid;
    story.pool().remove(gone).expect("the others have room for it");
    story.forget_unasked_syncs();
    for _ in 0..40 {
        story.sync();
    }
    let removal = story.pool().removal().expect("read").expect("there was one");
    assert_eq!(removal.stage, pool::RemovalStage::Canceled);
    assert!(removal.copied > 100_000, "{removal:?}");
    story.disk(1).heal();
    story.sync().expect_clean();
    story.pool().remove(gone).expect("it can be read");
    story.pool().wait_removed().expect("all is copied");
    story.forget_unasked_syncs();
    story.sync().expect_model();
    zdb::expect_pleased(&mut story);
}

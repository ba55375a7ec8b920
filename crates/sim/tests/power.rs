//! Power cuts at every write and flush of a story, with all outcomes for writes that were not flushed.

mod zdb;

use format::crypt::Suite;
use sim::{Cuts, Machine, Story, seeds};
use storage::host::scripted::Op;
use storage::host::{CrashPolicy, Entropy, SeededEntropy};

/// A file replaced as careful programs do it.
fn replace_by_rename(story: &mut Story) {
    story.write("/hello", "old").sync();
    story.forget();
    story.write("/hello.new", "new").rename("/hello.new", "/hello").sync();
}

#[test]
fn power_cut_at_any_write_leaves_old_or_new() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        replace_by_rename(&mut story);
        let made = Cuts::of(&story, "power", "power_cut_at_any_write_leaves_old_or_new").run();
        println!("{made} cuts");
        assert!(story.expect_file("/hello", "new").marks().len() == 2 && made > 0);
        zdb::expect_pleased(&mut story);
    }
}

/// One of everything, synced after every few steps.
fn short_story(story: &mut Story) {
    story.mkdir("/d").write("/d/a", vec![7; 50_000]).write("/b", "small").sync();
    story.write_at("/d/a", 20_000, vec![9; 10_000]).link("/d/a", "/d/a2").symlink("/s", "d/a").sync();
    story.truncate("/d/a", 30_001).chmod("/b", 0o600).set_xattr("/b", "user.k", b"value").sync();
    story.rename("/d", "/e").unlink("/e/a2").mkdir("/d").write("/d/c", vec![1; 3000]).sync();
    story.unlink("/e/a").rmdir("/e").rename("/d/c", "/b").sync();
    story.write("/last", vec![3; 100_000]).sync();
}

#[test]
fn power_cut_in_a_short_story_leaves_a_synced_state() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        short_story(&mut story);
        story.expect_model();
        println!(
            "{} cuts",
            Cuts::of(&story, "power", "power_cut_in_a_short_story_leaves_a_synced_state").run()
        );
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_during_random_work_on_striped_disks_leaves_a_synced_state() {
    for seed in seeds(2) {
        let chance = SeededEntropy::new(seed);
        let machine = Machine {
            disks: 1 + (seed % 3) as usize,
            ashift: [9, 12, 13][(seed / 3 % 3) as usize],
            workers: 2,
            ..Machine::default()
        };
        let mut story = Story::on(machine, seed);
        story.without_links().live(&chance, 60, 40_000).sync();
        story.forget();
        for _ in 0..6 {
            story.live(&chance, 15, 60_000).sync();
        }
        story.expect_model();
        let name = "power_cut_during_random_work_on_striped_disks_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "power", name).every(5).run());
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_during_work_on_a_mirror_leaves_a_synced_state_on_both_sides() {
    for seed in seeds(1) {
        let mut story = Story::on(Machine::mirrored(2), seed);
        short_story(&mut story);
        story.expect_model();
        let name = "power_cut_during_work_on_a_mirror_leaves_a_synced_state_on_both_sides";
        println!("{} cuts", Cuts::of(&story, "power", name).every(5).run());
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_while_a_checkpoint_is_made_and_discarded_leaves_a_synced_state() {
    for seed in seeds(1) {
        let mut story = Story::on(Machine::striped(2), seed);
        story.write("/a", vec![5; 150_000]).write("/b", "small").sync();
        story.forget();
        story.pool().checkpoint().expect("the feature is enabled");
        story.forget_unasked_syncs();
        story.write("/a", vec![6; 120_000]).unlink("/b").sync();
        story.write("/c", vec![7; 90_000]).sync();
        let kept = story.pool().checkpointed().expect("made");
        assert!(kept.bytes > 20_000 && kept.created.is_some(), "{kept:?}");
        assert!(matches!(story.pool().checkpoint(), Err(pool::Error::CheckpointExists)));
        story.forget_unasked_syncs();
        story.reboot();
        story.write("/a", vec![8; 50_000]).sync();
        story.pool().discard_checkpoint().expect("there is one");
        story.forget_unasked_syncs();
        for round in 0..3 {
            story.write("/c", vec![round; 60_000]).sync();
        }
        assert_eq!(story.pool().checkpointed(), None);
        story.expect_model();
        let name = "power_cut_while_a_checkpoint_is_made_and_discarded_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "power", name).every(3).run());
        zdb::expect_pleased(&mut story);
    }
}

/// The bookmark and its list appear and go with the counts of their features.
#[test]
fn power_cut_while_a_snapshot_is_redacted_leaves_a_sound_pool() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        story.write("/a", random(seed, 150_000)).write("/b", "small").sync();
        let snapshot = |story: &mut Story, name: &str| {
            story.pool().snapshot(&[name.to_owned()], &[]).expect("there is room");
            story.forget_unasked_syncs();
        };
        snapshot(&mut story, "tank/fs@a");
        story.write("/a", random(seed + 1, 150_000)).sync();
        snapshot(&mut story, "tank/fs@b");
        story.forget();
        let by = ["tank/fs@b".to_owned()];
        stream::Sender::new(story.pool()).redact("tank/fs@a", "mark", &by).expect("its own descendant");
        story.forget_unasked_syncs();
        let mark = story.pool().dataset("tank/fs#mark").expect("made");
        let (_, header) = story.pool().redaction_list(&mark).expect("sound").expect("it is one");
        assert!(header.progress.is_none() && header.entries > 0, "{header:?}");
        story.pool().destroy_bookmarks(&["tank/fs#mark".to_owned()]).expect("there");
        story.forget_unasked_syncs();
        story.write("/b", "more").sync();
        let name = "power_cut_while_a_snapshot_is_redacted_leaves_a_sound_pool";
        println!("{} cuts", Cuts::of(&story, "power", name).every(2).run());
        story.expect_clean();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_while_files_share_blocks_leaves_what_was_synced_or_logged() {
    for seed in seeds(2) {
        let suite = (seed % 2 == 0).then_some(Suite::Aes256Gcm);
        let mut story = Story::on(Machine { suite, ..Machine::cloning() }, seed);
        story.write("/a", random(seed, 100_000)).write("/b", random(seed + 1, 40_000)).commit().sync();
        story.forget();
        assert!(story.clone_file("/a", "/c"));
        story.commit();
        // Within one txg: the source goes, its clone is cloned and changed.
        story.unlink("/a").commit();
        assert!(story.clone_file("/c", "/d"));
        story.commit().write_at("/d", 17_000, vec![9; 500]).commit().sync();
        assert!(story.clone_file("/b", "/e"));
        story.commit();
        assert!(story.clone_file("/c", "/b"));
        story.sync().unlink("/c").sync();
        story.expect_model();
        let name = "power_cut_while_files_share_blocks_leaves_what_was_synced_or_logged";
        println!("{} cuts", Cuts::of(&story, "power", name).every(2).run());
        story.expect_clean();
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_during_random_work_with_clones_leaves_a_synced_state() {
    for seed in seeds(2) {
        let chance = SeededEntropy::new(seed);
        let ganging = if seed % 3 == 0 { 8 << 10 } else { u64::MAX };
        let properties = if seed % 3 == 2 { vec![("dedup", 1)] } else { Vec::new() };
        let machine = Machine { force_ganging: ganging, properties, ..Machine::cloning() };
        let mut story = Story::on(machine, seed);
        story.without_links().live(&chance, 60, 60_000).sync();
        story.forget();
        for _ in 0..6 {
            story.live(&chance, 20, 60_000).sync();
        }
        story.expect_model();
        story.expect_clean();
        let info = story.pool().info();
        assert!(info.clones.saved + info.dedup.saved() > 0);
        drop(info);
        let name = "power_cut_during_random_work_with_clones_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "power", name).every(9).run());
        zdb::expect_pleased(&mut story);
    }
}

/// Bytes that do not compress.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SeededEntropy::new(seed).fill(&mut data);
    data
}

#[test]
fn power_cut_in_an_encrypted_file_system_leaves_what_was_synced_or_logged() {
    for seed in seeds(2) {
        let suite = if seed % 2 == 0 { Suite::Aes128Ccm } else { Suite::Aes256Gcm };
        let mut story = Story::on(Machine::encrypted(suite), seed);
        story.write("/log", "begins").commit().sync();
        story.forget();
        story.write("/small", "in a record").commit();
        story.write("/large", vec![8; 90_000]).commit();
        story.mkdir("/d").write("/d/a", vec![7; 50_000]).sync();
        story.write_at("/d/a", 20_000, vec![9; 10_000]).set_xattr("/small", "user.k", b"value").commit();
        story.rename("/d/a", "/b").unlink("/large").commit().sync();
        story.expect_model();
        let name = "power_cut_in_an_encrypted_file_system_leaves_what_was_synced_or_logged";
        println!("{} cuts", Cuts::of(&story, "power", name).every(2).run());
        zdb::expect_pleased(&mut story);
    }
}

/// OpenZFS finds everything that a checkpoint keeps.
#[test]
fn blocks_kept_by_a_checkpoint_match_openzfs() {
    let mut story = Story::on(Machine { ashift: 12, ..Machine::mirrored(2) }, 7);
    story.write("/a", vec![5; 150_000]).write("/b", "small").sync();
    story.pool().checkpoint().expect("the feature is enabled");
    story.forget_unasked_syncs();
    story.write("/a", vec![6; 120_000]).unlink("/b").sync();
    story.write("/c", vec![7; 90_000]).sync().expect_model();
    zdb::expect_pleased(&mut story);
}

#[test]
fn power_cut_during_import_and_export_leaves_the_synced_state() {
    for seed in seeds(1) {
        let mut story = Story::on(Machine::striped(2), seed);
        story.write("/a", vec![5; 40_000]).sync();
        story.forget();
        story.reboot();
        story.write("/b", "two").sync();
        story.export();
        story.reboot();
        story.unlink("/a").sync();
        let name = "power_cut_during_import_and_export_leaves_the_synced_state";
        println!("{} cuts", Cuts::of(&story, "power", name).run());
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_lost_again_and_again_loses_nothing_synced() {
    for seed in seeds(3) {
        let chance = SeededEntropy::new(seed);
        let mut story = Story::on(Machine::striped(1 + (seed % 2) as usize), seed);
        story.without_links().live(&chance, 30, 30_000).sync();
        for _ in 0..12 {
            // The power fails within the first txg after an import, while labels may still be torn from the last cut.
            story.forget();
            story.live(&chance, 4, 20_000).sync();
            let cut = chance.below(story.script().op_count() as u64 + 1) as usize;
            story.cut_power_at(cut, CrashPolicy::Torn);
        }
        story.expect_clean();
        // Not for zdb-check: old uberblocks of the rings are torn, as the story wants.
    }
}

/// Records of a few contents, written, cut off and removed in turn, so that they are shared again and again.
fn share(story: &mut Story, chance: &SeededEntropy, steps: u64) {
    for _ in 0..steps {
        let path = format!("/f{}", chance.below(4));
        let known = story.model().exists(&path);
        match chance.below(6) {
            0 if known => story.unlink(&path),
            1 if known => story.truncate(&path, chance.below(10) * 2048),
            _ => {
                let first = chance.below(4);
                let data = (first..=first + chance.below(3)).flat_map(|n| vec![1 + (n % 5) as u8; 4096]);
                let data: Vec<u8> = data.enumerate().map(|(i, byte)| byte ^ (i % 4096 % 251) as u8).collect();
                story.write_at(&path, chance.below(8) * 4096, data)
            }
        };
    }
}

#[test]
fn power_cut_while_blocks_are_shared_leaves_a_synced_state() {
    // Of the property dedup: sha256; sha512,verify; edonr,verify.
    for (seed, (dedup, copies)) in seeds(4).zip([(1, 1), (267, 2), (269, 1), (1, 2)].into_iter().cycle()) {
        let chance = SeededEntropy::new(seed);
        let has_logs = (dedup, copies) == (1, 2);
        let machine = Machine {
            features: if has_logs { vec![&format::features::FAST_DEDUP] } else { Vec::new() },
            properties: vec![("dedup", dedup), ("recordsize", 4096), ("copies", copies)],
            ..Machine::striped(1 + (seed % 2) as usize)
        };
        let mut story = Story::on(machine, seed);
        share(&mut story, &chance, 20);
        story.sync();
        story.forget();
        for _ in 0..4 {
            share(&mut story, &chance, 8);
            story.sync();
        }
        story.expect_model();
        let shared = story.pool().info().dedup;
        assert!(shared.ref_blocks > shared.blocks, "{shared:?}");
        let name = "power_cut_while_blocks_are_shared_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "power", name).every(5).run());
        zdb::expect_pleased(&mut story);
        story.reboot();
        for number in 0..4 {
            if story.model().exists(&format!("/f{number}")) {
                story.unlink(&format!("/f{number}"));
            }
        }
        story.sync().sync();
        assert_eq!(story.pool().info().dedup, Default::default());
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_while_half_the_labels_are_torn_loses_nothing() {
    // Half-written labels; power fails again in the first txg.
    for torn in [[0, 2], [1, 3], [0, 1]] {
        let mut story = Story::on(Machine::striped(2), 7);
        story.write("/a", "synced").sync().shut_down();
        story.rot_label_configs(&torn);
        story.reboot().forget();
        story.write("/a", "new").sync();
        let made = Cuts::of(&story, "power", "power_cut_while_half_the_labels_are_torn_loses_nothing").run();
        println!("{made} cuts");
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_while_the_newest_uberblock_has_one_copy_loses_nothing() {
    for (disk, label) in (0..2).flat_map(|disk| (0..4).map(move |label| (disk, label))) {
        let mut story = Story::on(Machine::striped(2), 7);
        story.write("/a", "old").sync().forget();
        story.write("/a", "synced").sync().shut_down();
        assert_eq!(story.rot_uberblocks(0, |d, l| (d, l) != (disk, label)), 7);
        story.reboot().forget();
        story.expect_file("/a", "synced");
        story.write("/a", "new").sync();
        let made =
            Cuts::of(&story, "power", "power_cut_while_the_newest_uberblock_has_one_copy_loses_nothing")
                .run();
        println!("{made} cuts");
        // Not for zdb-check: old uberblocks of the rings are torn, as the story wants.
    }
}

/// A pool of small holes only: files that fill it, cut down to their first block, again and again.
fn shatter(story: &mut Story) {
    for round in 0..4 {
        let mut paths = Vec::new();
        loop {
            let path = format!("/{round}-{}", paths.len());
            let done = story.try_write_at(&path, 0, &[round + 1; 256 << 10]);
            paths.push(path);
            match done {
                Ok(()) => {}
                Err(zpl::Error::NoSpace | zpl::Error::Quota) => break,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        story.forget_unasked_syncs();
        story.sync();
        for path in &paths {
            if story.model().content(path).is_some_and(|data| data.len() > 4096) {
                story.truncate(path, 4096);
            }
        }
        story.forget_unasked_syncs();
        // Freed space can be used two txgs later.
        story.sync().sync().sync();
    }
}

#[test]
fn power_cut_while_blocks_are_written_in_pieces_leaves_a_synced_state() {
    for seed in seeds(1) {
        let properties = vec![("compression", 2), ("recordsize", 4 << 10)];
        let mut story = Story::on(Machine { ashift: 12, properties, ..Machine::default() }, seed);
        shatter(&mut story);
        let large = vec![("recordsize".to_owned(), Some(pool::props::Value::Number(1 << 20)))];
        story.pool().set_properties("tank/fs", large).unwrap();
        story.forget_unasked_syncs();
        story.write("/large", vec![7; 2 << 20]).sync();
        let id = story.fs().resolve(b"/large", false).unwrap();
        for record in 0..2 {
            let object = story.fs().dataset().objset().object(id).unwrap();
            let ptr = object.synced_ptr(record).unwrap();
            assert!(ptr.block().unwrap().is_gang(), "no hole takes a record whole");
        }
        story.write_at("/large", 1 << 20, vec![8; 1 << 20]).sync();
        story.truncate("/large", 100).sync();
        let name = "power_cut_while_blocks_are_written_in_pieces_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "power", name).every(3).run());
        story.expect_clean();
        story.write("/large", vec![9; 2 << 20]).sync();
        zdb::expect_pleased(&mut story);
    }
}

/// Small changes, each made safe by the intent log, with a sync now and then. No batch is longer than a log block.
fn logged_story(story: &mut Story) {
    story.write("/hello", "old").commit();
    story.forget();
    story.mkdir("/d").write("/d/a", vec![7; 900]).commit();
    story.write_at("/d/a", 500, vec![9; 1000]).commit();
    story.link("/d/a", "/d/a2").symlink("/s", "d/a").chmod("/hello", 0o600).commit();
    story.write("/hello.new", "new").rename("/hello.new", "/hello").commit();
    story.sync();
    story.unlink("/d/a2").truncate("/d/a", 700).commit();
    story.rename("/d", "/e").mkdir("/d").commit();
    story.write("/lost", "nobody asks");
    story.sync();
    story.rmdir("/d").unlink("/e/a").write("/last", vec![3; 1500]).commit();
}

#[test]
fn power_cut_between_commits_loses_nothing_that_was_committed() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        logged_story(&mut story);
        let test = "power_cut_between_commits_loses_nothing_that_was_committed";
        println!("{} cuts", Cuts::of(&story, "power", test).run());
    }
}

#[test]
fn power_cut_during_a_replay_loses_nothing_that_was_committed() {
    for seed in seeds(1) {
        let mut story = Story::seeded(seed);
        logged_story(&mut story);
        let first = story.script().op_count();
        story.reboot();
        story.pool().sync().unwrap();
        let test = "power_cut_during_a_replay_loses_nothing_that_was_committed";
        println!("{} cuts", Cuts::of(&story, "power", test).from_operation(first).run());
    }
}

const RECORD: u64 = 16 << 10;

/// Bytes of which a third compresses.
fn mixed(chance: &SeededEntropy, len: u64) -> Vec<u8> {
    let mut data = vec![chance.u64() as u8; len as usize];
    if chance.below(3) > 0 {
        chance.fill(&mut data);
    }
    data
}

/// Bytes that the story wrote to its disks so far.
fn written(story: &Story) -> usize {
    let lens = story.script().ops().into_iter().map(|op| match op {
        Op::Write { bytes, .. } => bytes.len(),
        Op::Flush { .. } => 0,
    });
    lens.sum()
}

/// Large writes, each made safe by a log that points at their blocks, in between what makes such blocks superfluous:
/// writes over them, cuts, removals.
fn pointed_story(story: &mut Story, chance: &SeededEntropy) {
    let paths = ["/a", "/b", "/c"];
    paths.iter().for_each(|path| {
        story.write(path, mixed(chance, 8 * RECORD));
    });
    story.commit().sync();
    story.forget();
    let mut safe = 0;
    for turn in 0..24 {
        let path = paths[chance.below(3) as usize];
        let (at, len) = (chance.below(8 * RECORD), (2 + chance.below(4)) * RECORD);
        match turn % 8 {
            3 => story.truncate(path, chance.below(8 * RECORD)).commit(),
            5 => {
                let other = paths.iter().find(|other| **other != path).expect("there are three");
                story.rename(path, other).commit();
                story.write(path, mixed(chance, 3 * RECORD)).commit()
            }
            // No `fsync` follows; then a sync keeps some early blocks and frees others.
            6 => story.write_at(path, at, mixed(chance, len)).sync(),
            _ => {
                safe += len as usize;
                story.write_at(path, at, mixed(chance, len)).commit()
            }
        };
    }
    assert!(safe > 500_000, "{safe} bytes");
}

#[test]
fn power_cut_while_a_log_points_at_blocks_loses_nothing_that_was_committed() {
    // The second number is dedup: off, sha256.
    let variants = [(false, 2), (true, 2), (true, 1)];
    for (seed, (throughput, dedup)) in seeds(1).flat_map(|seed| variants.map(|variant| (seed, variant))) {
        let chance = SeededEntropy::new(seed);
        let properties = vec![("recordsize", RECORD), ("logbias", u64::from(throughput)), ("dedup", dedup)];
        let machine =
            Machine { disks: 1 + (seed % 2) as usize, ashift: 12, properties, ..Machine::default() };
        let mut story = Story::on(machine, seed);
        pointed_story(&mut story, &chance);
        story.expect_model();
        let test = "power_cut_while_a_log_points_at_blocks_loses_nothing_that_was_committed";
        println!("{} cuts", Cuts::of(&story, "power", test).run());
        // A crash with the last of it in the log, and what OpenZFS says of it.
        story.write_at("/a", 0, mixed(&chance, 6 * RECORD)).commit();
        story.cut_power(CrashPolicy::LoseAllUnflushed);
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn power_cut_during_a_replay_of_pointers_loses_nothing_that_was_committed() {
    for seed in seeds(1) {
        let chance = SeededEntropy::new(seed);
        let properties = vec![("recordsize", RECORD), ("logbias", 1)];
        let mut story = Story::on(Machine { properties, ..Machine::default() }, seed);
        pointed_story(&mut story, &chance);
        let first = story.script().op_count();
        story.reboot();
        story.pool().sync().unwrap();
        let test = "power_cut_during_a_replay_of_pointers_loses_nothing_that_was_committed";
        println!("{} cuts", Cuts::of(&story, "power", test).from_operation(first).run());
    }
}

#[test]
fn blocks_that_a_log_points_at_are_written_once() {
    let mut story = Story::seeded(5);
    let chance = SeededEntropy::new(5);
    story.write("/a", "").commit().sync();
    story.forget();
    let mut data = vec![0; 4 << 20];
    chance.fill(&mut data);
    story.write("/a", &data).commit().sync();
    assert!(written(&story) < data.len() * 5 / 4, "{} bytes for {}", written(&story), data.len());
    zdb::expect_pleased(&mut story);
}

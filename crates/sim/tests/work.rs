//! Long work: many txgs beside the model, the same bytes from the same seed, full pools.

mod zdb;

use scan::Scans as _;
use sim::{Machine, Story, seeds};
use storage::host::{CrashPolicy, Disk, SeededEntropy};

/// Fifty txgs of random work, closed and opened at random points.
fn work(machine: Machine, seed: u64, for_zdb: bool) -> Story {
    let chance = SeededEntropy::new(seed);
    let mut story = Story::on(machine, seed);
    if for_zdb {
        story.without_links();
    }
    for _ in 0..50 {
        let count = chance.below(25) as usize;
        story.live(&chance, count, 100_000).sync();
        match chance.below(12) {
            0 => {
                story.expect_model();
                story.reboot();
            }
            1 => {
                story.export().reboot();
                story.expect_model();
            }
            2 => {
                story.cut_power(CrashPolicy::LoseAllUnflushed);
            }
            3 => {
                story.expect_clean();
            }
            _ => {}
        }
        story.forget();
    }
    story.expect_model();
    story.expect_clean();
    story
}

#[test]
fn fifty_txgs_of_random_work_match_the_model() {
    for seed in seeds(3) {
        println!(
            "seed {seed}: CENOTE_SIM_SEED={seed} cargo test -p cenote-sim --test work fifty_txgs_of_random_work_match_the_model"
        );
        let machine = Machine {
            disks: 1 + (seed % 3) as usize,
            ashift: [9, 12, 13][(seed % 3) as usize],
            workers: 1 + (seed % 2) as usize,
            ..Machine::default()
        };
        work(machine, seed, false);
    }
}

#[test]
fn zdb_is_pleased_after_fifty_txgs_of_random_work() {
    let machine = Machine { ashift: 12, ..Machine::striped(2) };
    zdb::expect_pleased(&mut work(machine, 1, true));
}

/// A number that differs when any byte of any disk does.
fn sum(story: &Story) -> Vec<u64> {
    let sum_of = |disk: storage::host::ScriptedDisk| {
        let mut bytes = vec![0; disk.size() as usize];
        disk.read_at(&mut bytes, 0).unwrap();
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        words.fold(0xcbf2_9ce4_8422_2325u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
        })
    };
    story.script().disks().into_iter().map(sum_of).collect()
}

#[test]
fn the_same_seed_gives_the_same_disks() {
    let one = |seed, workers| {
        let mut story = Story::on(Machine { workers, ..Machine::striped(2) }, seed);
        let chance = SeededEntropy::new(seed);
        for _ in 0..6 {
            story.live(&chance, 20, 60_000).sync();
        }
        story.export();
        sum(&story)
    };
    let first = one(1, 1);
    assert_eq!(first, one(1, 1), "again");
    assert_eq!(first, one(1, 2), "with two workers");
    assert_ne!(first, one(2, 1), "another seed, other bytes");
}

#[test]
fn the_same_calls_give_the_same_disks_when_memory_sets_the_borders() {
    let one = || {
        let mut story = Story::on(Machine { workers: 2, dirty_max: 1 << 20, ..Machine::default() }, 3);
        let mut data = vec![0; 100_000];
        for i in 0..80 {
            data[i] = 1;
            story.write(&format!("/f{}", i % 20), &data);
        }
        story.forget_unasked_syncs();
        story.sync().export();
        sum(&story)
    };
    assert_eq!(one(), one());
}

#[test]
fn a_full_pool_reports_it_and_is_usable_again_after_removals() {
    for ashift in [9, 12] {
        let machine = Machine { ashift, properties: vec![("compression", 2)], ..Machine::default() };
        let mut story = Story::on(machine, 5);
        let chance = SeededEntropy::new(5);
        let mut capacities = Vec::new();
        for round in 0..5 {
            let mut stored = 0;
            for number in 0.. {
                let path = format!("/f{number}");
                let len = if round % 2 == 0 { 128 << 10 } else { 1 + chance.below(40_000) as usize };
                let before = story.model().content(&path).map_or(0, |data| data.len());
                match story.try_write_at(&path, before as u64, &vec![number as u8 | 1; len]) {
                    Ok(()) => stored += len,
                    Err(zpl::Error::NoSpace | zpl::Error::Quota) => break,
                    Err(error) => panic!("round {round}: {error}"),
                }
            }
            story.forget_unasked_syncs();
            story.sync();
            story.expect_model();
            story.expect_clean();
            capacities.push(stored);
            if round == 2 {
                story.reboot();
            }
            // A full pool can still free space.
            let files: Vec<String> = story.model().files().cloned().collect();
            for path in &files {
                story.unlink(path);
            }
            story.forget_unasked_syncs();
            story.sync().sync().sync();
            story.expect_clean();
        }
        println!("ashift {ashift}: {capacities:?} bytes");
        let whole: Vec<_> = capacities.iter().step_by(2).collect();
        assert!(*whole[0] > 16 << 20, "a pool of 64 MiB holds more than {} bytes", whole[0]);
        assert!(
            whole.iter().all(|bytes| **bytes * 20 > whole[0] * 19),
            "nothing is lost by filling: {capacities:?}"
        );
        story.write("/after", "all is well").sync().reboot();
        story.expect_file("/after", "all is well");
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn an_overwrite_of_everything_in_a_nearly_full_pool_is_done_or_refused() {
    let mut story = Story::on(Machine { properties: vec![("compression", 2)], ..Machine::default() }, 6);
    let mut full = false;
    for round in 0..12u8 {
        for number in 0..100 {
            let data = vec![round + 1; 128 << 10];
            match story.try_write_at(&format!("/f{number}"), 0, &data) {
                Ok(()) => {}
                Err(zpl::Error::NoSpace | zpl::Error::Quota) => full = true,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        story.forget_unasked_syncs();
        story.sync();
        story.expect_clean();
    }
    println!("refused something: {full}");
    story.reboot();
    story.expect_clean();
    zdb::expect_pleased(&mut story);
}

/// The file at `path`, made if need be, outside the model.
fn file(story: &Story, path: &str) -> format::ObjectId {
    let fs = story.fs();
    match fs.resolve(path.as_bytes(), true) {
        Ok(id) => id,
        Err(_) => {
            let new = zpl::NewNode::new(zpl::FileKind::Regular, 0o644);
            fs.create(fs.root(), &path.as_bytes()[1..], &new).unwrap()
        }
    }
}

#[test]
fn a_pool_whose_blocks_are_all_written_in_pieces_is_synced() {
    for ashift in [9, 12] {
        // The pool's own blocks too: they change with each pass of a sync, until space maps stand still.
        let machine = Machine { ashift, force_ganging: 2 << ashift, ..Machine::default() };
        let mut story = work(machine, 4, true);
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn large_records_go_into_a_pool_without_large_holes() {
    let machine = Machine {
        disk_bytes: 128 << 20,
        ashift: 12,
        dirty_max: 32 << 20,
        properties: vec![("compression", 2), ("recordsize", 4 << 10)],
        ..Machine::default()
    };
    let mut story = Story::on(machine, 8);
    let chance = SeededEntropy::new(8);
    let small = file(&story, "/small");
    let mut records = 0;
    while story.fs().write(small, records << 12, &[3; 1 << 20]).is_ok() {
        records += 256;
        story.forget_unasked_syncs();
    }
    make_holes_everywhere(&mut story, small, records, &chance);
    let large = vec![("recordsize".to_owned(), Some(pool::props::Value::Number(1 << 20)))];
    story.pool().set_properties("tank/fs", large).unwrap();
    let large = file(&story, "/large");
    for number in 0..20 {
        story.fs().write(large, number << 20, &[9; 1 << 20]).unwrap();
        story.pool().sync().unwrap();
    }
    story.forget_unasked_syncs();
    let findings = story.check();
    assert!(findings.is_empty(), "{findings:#?}");
    let object = story.fs().dataset().objset().object(large).unwrap();
    let in_pieces = |number: &u64| object.synced_ptr(*number).unwrap().block().unwrap().is_gang();
    assert!((0..20).filter(in_pieces).count() > 5, "no hole takes a record whole");
    drop(object);
    // Blocks that lie in pieces are read back, overwritten, removed.
    story.reboot();
    let mut back = vec![0; 1 << 20];
    for number in 0..20 {
        story.fs().read(large, number << 20, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 9), "record {number}");
    }
    story.fs().write(large, 5 << 20, &[8; 3 << 20]).unwrap();
    // Any copy of any piece, or of the header, may be damaged: the other copies suffice, and a scrub repairs it.
    let twice = vec![("copies".to_owned(), Some(pool::props::Value::Number(2)))];
    story.pool().set_properties("tank/fs", twice).unwrap();
    for number in 20..23 {
        story.fs().write(large, number << 20, &[7; 1 << 20]).unwrap();
        story.pool().sync().unwrap();
    }
    let object = story.fs().dataset().objset().object(large).unwrap();
    for number in 20..23 {
        let block = *object.synced_ptr(number).unwrap().block().unwrap();
        let places = story.pool().storage().extents(&block).unwrap();
        let taken: u64 = places.iter().map(|dva| dva.asize).sum();
        assert!(taken >= 2 << 20, "record {number}: {taken} bytes for two copies");
    }
    drop(object);
    expect_every_place_mended(&story, large, 20);
    story.forget_unasked_syncs();
    let findings = story.check();
    assert!(findings.is_empty(), "{findings:#?}");
    zdb::expect_pleased(&mut story);
    story.reboot();
    story.fs().truncate(large, 0).unwrap();
    story.forget_unasked_syncs();
    let findings = story.check();
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn a_lost_indirect_block_affects_only_its_file() {
    let machine =
        Machine { properties: vec![("compression", 2), ("recordsize", 4 << 10)], ..Machine::default() };
    let mut story = Story::on(machine, 3);
    let files: Vec<_> = ["/cut", "/punched", "/written", "/removed", "/replaced", "/new", "/sound"]
        .map(|path| (path, file(&story, path)))
        .into();
    for (_, id) in &files[..5] {
        story.fs().write(*id, 0, &[7; 1 << 20]).unwrap();
    }
    story.pool().sync().unwrap();
    for (_, id) in &files[..5] {
        let objset = story.fs().dataset().objset().clone();
        let (_, dnode) = objset.synced_objects().map(Result::unwrap).find(|(at, _)| at == id).unwrap();
        assert!(dnode.levels > 1);
        for dva in dnode.block_ptrs[0].block().unwrap().copies() {
            let at = dva.offset + (4 << 20);
            story.disk(0).write_at(&[std::io::IoSlice::new(&[0x5a; 512])], at).unwrap();
        }
    }
    story.forget_unasked_syncs();
    story.reboot();
    let id = |path: &str| files.iter().find(|(name, _)| *name == path).unwrap().1;
    let fs = story.fs();
    assert!(fs.truncate(id("/cut"), 4096).is_err());
    assert!(fs.punch(id("/punched"), 4096, 8192).is_err());
    assert!(fs.write(id("/written"), 4096, &[1; 4096]).is_err());
    // These lose their names; their space stays.
    fs.unlink(fs.root(), b"removed").unwrap();
    fs.rename(fs.root(), b"new", fs.root(), b"replaced", zpl::Replace::Allowed).unwrap();
    fs.write(id("/sound"), 0, b"goes on").unwrap();
    story.pool().sync().unwrap();
    assert_eq!(fs.unlinked_count().unwrap(), 2);
    assert!(fs.resolve(b"/removed", false).is_err());
    let mut read = [0; 7];
    story.forget_unasked_syncs();
    story.reboot();
    story.fs().drain_unlinked().unwrap();
    assert_eq!(story.fs().unlinked_count().unwrap(), 2);
    story.fs().read(id("/sound"), 0, &mut read).unwrap();
    assert_eq!(&read, b"goes on");
    assert!(!story.check().is_empty(), "five blocks are lost");
}

/// Frees a seventh of the records, then overwrites them at random until the holes are everywhere, then frees every second one.
fn make_holes_everywhere(story: &mut Story, small: zpl::ObjectId, records: u64, chance: &SeededEntropy) {
    for number in (0..records).filter(|_| chance.below(7) == 0) {
        story.fs().punch(small, number << 12, 4096).unwrap();
    }
    for _ in 0..35 {
        story.pool().sync().unwrap();
        story.forget_unasked_syncs();
        for _ in 0..records / 20 {
            match story.fs().write(small, chance.below(records) << 12, &[5; 4096]) {
                Ok(()) | Err(zpl::Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    for number in (0..records).step_by(2) {
        story.fs().punch(small, number << 12, 4096).unwrap();
    }
    (0..4).for_each(|_| story.pool().sync().unwrap());
}

/// Damages one place after the other of a record that lies in pieces.
fn expect_every_place_mended(story: &Story, file: zpl::ObjectId, record: u64) {
    const DATA_START: u64 = 4 << 20;
    let object = story.fs().dataset().objset().object(file).unwrap();
    let block = *object.synced_ptr(record).unwrap().block().unwrap();
    assert!(block.is_gang() && block.copies().count() > 1);
    let storage = story.pool().storage();
    let good = storage.read_stored(&block).unwrap();
    let places = storage.extents(&block).unwrap();
    // One of the last pieces too, but not all of them: a scrub each.
    let few: Vec<_> = places.iter().take(7).chain(places.last()).collect();
    for dva in &few {
        let spoilt = [0x5a; 512];
        story.disk(0).write_at(&[std::io::IoSlice::new(&spoilt)], dva.offset + DATA_START).unwrap();
        assert_eq!(storage.read_stored(&block).unwrap(), good, "{dva:?}");
        assert_eq!(storage.extents(&block).unwrap().len(), places.len(), "{dva:?}");
        let found = storage.verify_copies(&block);
        assert!(found.bad.len() == 1 && !found.lost, "{dva:?}: {found:?}");
        story.pool().scrub().unwrap();
        story.pool().wait_scrub().unwrap();
        let scan = story.pool().scan().unwrap().unwrap().scan;
        assert!(scan.errors == 0 && scan.processed > 0, "{dva:?}: {scan:?}");
        assert!(storage.verify_copies(&block).bad.is_empty(), "{dva:?}");
    }
    assert!(few.len() > 4, "headers and pieces");
}

//! Full pools: a writer gets the error for no space, and the pool continues.

mod zdb;

use format::ObjectId;
use sim::{Machine, Story};
use storage::host::{Entropy, SeededEntropy};
use zpl::{Error, FileKind, NewNode, XattrMode};

const MIB: u64 = 1 << 20;
/// Value of the property `compression` for `off`.
const OFF: u64 = 2;
/// Value of the property `compression` for `lz4`.
const LZ4: u64 = 15;

fn machine(ashift: u32, record: u64, copies: u64, compression: u64) -> Machine {
    Machine {
        ashift,
        disk_bytes: 64 << 20,
        properties: vec![("recordsize", record), ("copies", copies), ("compression", compression)],
        ..Machine::default()
    }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut data = vec![0; len];
    SeededEntropy::new(seed).fill(&mut data);
    data
}

fn make(story: &Story, name: &str) -> Result<ObjectId, Error> {
    story.fs().create(story.fs().root(), name.as_bytes(), &NewNode::new(FileKind::Regular, 0o644))
}

/// Calls `step` with 0, 1, 2 … until the error for no space; returns the number of calls before.
fn until_full(story: &mut Story, mut step: impl FnMut(&Story, u64) -> Result<(), Error>) -> u64 {
    for number in 0.. {
        match step(story, number) {
            Ok(()) => {}
            Err(Error::NoSpace) => return number,
            Err(error) => panic!("step {number}: {error}"),
        }
    }
    unreachable!("a pool of finite size is full some day")
}

/// The pool syncs, its blocks and sums are in order, and they are after it is opened again.
fn expect_whole(story: &mut Story) {
    story.pool().sync().unwrap();
    story.forget_unasked_syncs();
    assert_eq!(story.check(), Vec::<String>::new());
    story.reboot();
}

/// Removes all files of the root, and waits until their space can be used again.
fn empty(story: &mut Story) {
    let fs = story.fs().clone();
    let names: Vec<Vec<u8>> = fs.entries(fs.root()).unwrap().map(|entry| entry.unwrap().name).collect();
    for name in names {
        fs.unlink(fs.root(), &name).unwrap_or_else(|e| panic!("removing from a full pool: {e}"));
    }
    for _ in 0..4 {
        story.pool().sync().unwrap();
    }
    story.forget_unasked_syncs();
}

const STEP: u64 = 256 << 10;

/// Fills a pool with one file, opens it again, compares the file and removes it; twice.
fn fill_with_one_file(machine: Machine) -> Story {
    println!("{machine:?}");
    let compressible = machine.properties.contains(&("compression", LZ4));
    let piece = |number: u64| {
        let mut data = noise(STEP as usize, number);
        if compressible {
            data.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 7);
            data[..STEP as usize / 2].fill(number as u8 | 1);
        }
        data
    };
    let mut story = Story::on(machine, 1);
    let mut sizes = Vec::new();
    for round in 0..2 {
        let id = make(&story, "f").unwrap();
        let steps =
            until_full(&mut story, |story, number| story.fs().write(id, number * STEP, &piece(number)));
        let size = story.fs().stat(id).unwrap().size;
        assert!(size >= steps * STEP && size < (steps + 1) * STEP, "{size} bytes after {steps} steps");
        expect_whole(&mut story);
        let mut back = vec![0; STEP as usize];
        for number in 0..steps {
            story.fs().read(id, number * STEP, &mut back).unwrap();
            assert!(back == piece(number), "step {number} of round {round}");
        }
        sizes.push(size);
        empty(&mut story);
    }
    println!("{sizes:?} bytes");
    assert!(sizes[1] * 20 >= sizes[0] * 19, "space is lost by filling: {sizes:?}");
    story
}

#[test]
fn one_file_fills_a_pool_of_any_sector_size_record_size_and_copies() {
    for ashift in [12, 13, 16, 9] {
        for record in [512, 4 << 10, 128 << 10, MIB] {
            for copies in [3, 2, 1] {
                fill_with_one_file(machine(ashift, record, copies, OFF));
            }
        }
    }
}

#[test]
fn compressible_data_fills_a_pool() {
    for (ashift, record, copies) in [(12, 128 << 10, 1), (9, 4 << 10, 2), (13, 16 << 10, 3)] {
        fill_with_one_file(machine(ashift, record, copies, LZ4));
    }
}

#[test]
fn blocks_in_pieces_fill_a_pool() {
    for (ashift, record, copies) in [(9, 16 << 10, 3), (12, 128 << 10, 2), (13, 128 << 10, 1)] {
        let pieces = Machine { force_ganging: 2 << ashift, ..machine(ashift, record, copies, OFF) };
        zdb::expect_pleased(&mut fill_with_one_file(pieces));
    }
}

#[test]
fn raidz_is_filled_without_running_out_of_space_in_a_sync() {
    for (parity, width, ashift, record, copies, pieces) in [
        (1, 2, 12, 4 << 10, 1, false),
        (2, 4, 12, 512, 2, false),
        (3, 4, 12, 16 << 10, 1, true),
        (3, 5, 13, MIB, 1, false),
        (1, 3, 16, 4 << 10, 1, false),
    ] {
        let plain = machine(ashift, record, copies, OFF);
        let force_ganging = if pieces { 2 << ashift } else { u64::MAX };
        let rows =
            Machine { force_ganging, properties: plain.properties.clone(), ..Machine::raidz(parity, width) };
        zdb::expect_pleased(&mut fill_with_one_file(Machine { ashift, ..rows }));
    }
}

#[test]
fn a_pool_with_dedup_tables_is_filled_without_running_out_of_space_in_a_sync() {
    for (ashift, record, copies, dedup) in [(12, 4 << 10, 1, 1), (9, 512, 1, 267), (13, 16 << 10, 2, 12)] {
        let mut tables = machine(ashift, record, copies, OFF);
        tables.properties.push(("dedup", dedup));
        let mut story = fill_with_one_file(tables);
        assert_eq!(story.pool().info().dedup, Default::default());
        zdb::expect_pleased(&mut story);
    }
}

/// Txgs after which all blocks of the log are freed that nothing refers to any more: at least 200 with each.
const FLUSHES: usize = 40;

#[test]
fn a_pool_with_logs_of_dedup_tables_is_filled_without_running_out_of_space_in_a_sync() {
    let mut tables = machine(12, 4 << 10, 1, OFF);
    tables.properties.push(("dedup", 1));
    tables.features.push(&format::features::FAST_DEDUP);
    let mut story = fill_with_one_file(tables);
    assert_eq!(story.pool().info().dedup, Default::default());
    story.expect_clean();
    // Until then zdb calls these blocks leaked: it does not look for them in the log.
    for _ in 0..FLUSHES {
        story.sync();
    }
    assert_eq!(story.pool().info().dedup, Default::default());
    zdb::expect_pleased(&mut story);
}

/// A small file with attributes: in its dnode, in a spill block, in an object of their own.
fn small_file(story: &Story, number: u64) -> Result<(), Error> {
    let id = make(story, &format!("f{number}"))?;
    story.fs().write(id, 0, &noise(1 + (number * 977 % 9000) as usize, number))?;
    let len = [20, 700, 9000][(number % 3) as usize];
    story.fs().xattr_set(id, b"user.a", &noise(len, number), XattrMode::Either)
}

#[test]
fn small_files_with_attributes_fill_a_pool() {
    for (ashift, in_dnodes, rows) in [
        (9, 2, None),
        (12, 1, None),
        (13, 2, None),
        (16, 2, None),
        (12, 2, Some((2, 4))),
        (9, 1, Some((1, 2))),
    ] {
        println!("ashift {ashift} {rows:?}");
        let mut machine = machine(ashift, 128 << 10, 1, OFF);
        machine.properties.push(("xattr", in_dnodes));
        if let Some((parity, width)) = rows {
            let (ashift, properties) = (machine.ashift, machine.properties);
            machine = Machine { ashift, properties, ..Machine::raidz(parity, width) };
        }
        let mut story = Story::on(machine, 2);
        let mut counts = Vec::new();
        for _ in 0..2 {
            let count = until_full(&mut story, small_file);
            expect_whole(&mut story);
            let fs = story.fs();
            for number in 0..count {
                let id = fs.resolve(format!("/f{number}").as_bytes(), true).unwrap();
                let mut back = vec![0; 1 + (number * 977 % 9000) as usize];
                fs.read(id, 0, &mut back).unwrap();
                assert!(back == noise(back.len(), number), "file {number}");
            }
            counts.push(count);
            empty(&mut story);
        }
        println!("{counts:?} files");
        assert!(counts[1] * 20 >= counts[0] * 19, "space is lost by filling: {counts:?}");
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn overwrites_under_snapshots_fill_a_pool() {
    for (ashift, record, copies) in [(9, 512, 1), (12, 4 << 10, 2), (13, 512, 3)] {
        println!("ashift {ashift}, {record}, {copies}");
        let mut story = Story::on(machine(ashift, record, copies, OFF), 3);
        let chance = SeededEntropy::new(3);
        let id = make(&story, "f").unwrap();
        // A record takes a sector at least.
        let size = record * (4 * MIB / (record.max(1 << ashift) * copies));
        let records = size / record;
        story.fs().write(id, 0, &noise(size as usize, 0)).unwrap();
        let mut snapshots = Vec::new();
        let full = until_full(&mut story, |story, number| {
            for _ in 0..records / 20 {
                story.fs().write(id, chance.below(records) * record, &noise(record as usize, number))?;
            }
            let name = format!("tank/fs@{number}");
            match story.pool().snapshot(std::slice::from_ref(&name), &[]) {
                Ok(()) => snapshots.push(name),
                Err(pool::Error::NoSpace) => return Err(Error::NoSpace),
                Err(error) => panic!("{name}: {error}"),
            }
            Ok(())
        });
        println!("{full} snapshots");
        assert!(full > 2);
        expect_whole(&mut story);
        // Snapshots go one by one and all at once.
        let (first, rest) = snapshots.split_at(2);
        for name in first {
            story.pool().destroy_snapshots(std::slice::from_ref(name), false).unwrap();
        }
        story.pool().destroy_snapshots(rest, false).unwrap();
        (0..4).for_each(|_| story.pool().sync().unwrap());
        story.forget_unasked_syncs();
        let id = story.fs().resolve(b"/f", true).unwrap();
        story.fs().write(id, 0, &noise(size as usize, 1)).unwrap();
        expect_whole(&mut story);
        zdb::expect_pleased(&mut story);
    }
}

/// Nothing is added to the file system, nor to file `id`, which is called `f`.
fn expect_files_to_be_refused(fs: &zpl::Filesystem, id: ObjectId) {
    let root = fs.root();
    let [file, directory] = [FileKind::Regular, FileKind::Directory].map(|kind| NewNode::new(kind, 0o755));
    let link = NewNode::new(FileKind::Symlink, 0o777);
    let refused = [
        ("create", fs.create(root, b"new", &file).map(drop)),
        ("mkdir", fs.create(root, b"new", &directory).map(drop)),
        ("symlink", fs.symlink(root, b"new", &link, b"target").map(drop)),
        ("link", fs.link(id, root, b"new")),
        ("rename", fs.rename(root, b"f", root, b"new", zpl::Replace::Refused)),
        ("write", fs.write(id, 0, &[1; 4096])),
        ("setxattr", fs.xattr_set(id, b"user.a", &[1; 3000], XattrMode::Either)),
    ];
    for (what, result) in refused {
        assert!(matches!(result, Err(Error::NoSpace)), "{what}: {result:?}");
    }
}

#[test]
fn a_full_pool_refuses_additions_and_allows_frees_and_changes() {
    for ashift in [9, 13] {
        let mut story = Story::on(machine(ashift, 128 << 10, 1, OFF), 4);
        let id = make(&story, "f").unwrap();
        story.pool().snapshot(&["tank/fs@before".into()], &[]).unwrap();
        until_full(&mut story, |story, number| {
            story.fs().write(id, number * STEP, &noise(STEP as usize, number))
        });
        until_full(&mut story, |story, number| make(story, &format!("small{number}")).map(drop));
        expect_files_to_be_refused(story.fs(), id);
        let pool = story.pool();
        pool.sync().unwrap();
        // The space that one transaction might have taken is still free. A reservation takes the rest.
        let of = |dataset: &str, name: &str| {
            let info = pool.dataset(dataset).unwrap();
            match pool.property(&info, pool::props::dataset::parse(name).unwrap()).unwrap() {
                Some((pool::props::Value::Number(number), _)) => number,
                other => panic!("{name}: {other:?}"),
            }
        };
        let rest = of("tank", "available");
        assert!(rest < 4 * MIB, "{rest} bytes are left");
        let number = |number| Some(pool::props::Value::Number(number));
        let all = of("tank/fs", "used") + rest;
        pool.set_properties("tank/fs", vec![("reservation".into(), number(all))]).unwrap();
        let new = pool::NewFilesystem::plain(pool.host());
        let refused = [
            ("create", pool.create_filesystem("tank/new", Vec::new(), new, zpl::initialiser())),
            ("snapshot", pool.snapshot(&["tank/fs@new".into()], &[])),
            ("clone", pool.clone_snapshot("tank/fs@before", "tank/clone", Vec::new())),
            ("bookmark", pool.bookmark("tank/fs@before", "tank/fs#mark")),
        ];
        for (what, result) in refused {
            assert!(matches!(result, Err(pool::Error::NoSpace)), "{what}: {result:?}");
        }
        let text = |text: &str| Some(pool::props::Value::Text(text.into()));
        let done = [
            ("set", pool.set_properties("tank/fs", vec![("com.example:a".into(), text("b"))])),
            ("quota", pool.set_properties("tank/fs", vec![("quota".into(), number(1 << 30))])),
            ("hold", pool.hold(&["tank/fs@before".into()], "tag")),
            ("release", pool.release(&["tank/fs@before".into()], "tag")),
            ("rename", pool.rename_snapshots(&["tank/fs@before".into()], "after")),
            ("destroy", pool.destroy_snapshots(&["tank/fs@after".into()], false)),
            ("reservation", pool.set_properties("tank/fs", vec![("reservation".into(), number(0))])),
        ];
        for (what, result) in done {
            assert!(result.is_ok(), "{what}: {result:?}");
        }
        expect_whole(&mut story);
        story.fs().truncate(story.fs().resolve(b"/f", true).unwrap(), STEP).unwrap();
        empty(&mut story);
        story.pool().snapshot(&["tank/fs@new".into()], &[]).unwrap();
        zdb::expect_pleased(&mut story);
    }
}

/// Fills a pool while a snapshot holds a file of many small records. Returns the file's number.
fn fill_beside_a_snapshot(story: &mut Story) -> ObjectId {
    let id = make(story, "f").unwrap();
    for number in 0..80 {
        story.fs().write(id, number * STEP, &noise(STEP as usize, number)).unwrap();
    }
    story.pool().snapshot(&["tank/fs@a".into()], &[]).unwrap();
    let other = make(story, "g").unwrap();
    until_full(story, |story, number| story.fs().write(other, number * STEP, &noise(STEP as usize, number)));
    id
}

#[test]
fn blocks_that_a_snapshot_keeps_go_out_of_use_in_steps_or_not_at_all() {
    type Free = fn(&Story, ObjectId) -> Result<(), Error>;
    let ways: [Free; 3] = [
        |story, id| story.fs().truncate(id, 0),
        |story, id| story.fs().punch(id, 0, 80 * STEP),
        |story, _| story.fs().unlink(story.fs().root(), b"f"),
    ];
    for free in ways {
        let mut story = Story::on(machine(9, 512, 1, OFF), 5);
        let id = fill_beside_a_snapshot(&mut story);
        match free(&story, id) {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        expect_whole(&mut story);
        story.pool().destroy_snapshots(&["tank/fs@a".into()], false).unwrap();
        story.fs().unlink(story.fs().root(), b"g").unwrap();
        (0..6).for_each(|_| story.pool().sync().unwrap());
        expect_whole(&mut story);
        let free = until_full(&mut story, |story, number| {
            let id = story.fs().resolve(b"/h", true).or_else(|_| make(story, "h"))?;
            story.fs().write(id, number * STEP, &noise(STEP as usize, number))
        });
        println!("{free} steps fit again");
        assert!(free > 20);
        expect_whole(&mut story);
        zdb::expect_pleased(&mut story);
    }
}

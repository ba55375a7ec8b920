//! The forge changes only the fields that it is given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use format::ObjectType;
use format::objset::ObjsetType;
use scan::Scans as _;
use sim::Story;
use sim::forge::{Forgery, PatchedDisk, Patches, Place, Source, apply, crafted, sample};
use sim::reading::{self, Limits};
use storage::host::Disk;

/// A command that takes longer counts as endless. The limit is generous, because the machine may be slow and busy.
const TIME_MAX: Duration = Duration::from_secs(180);

fn read(source: &Source, patches: Patches) -> reading::Report {
    let disk = PatchedDisk::new(source.image().clone(), patches);
    reading::read_all(vec![Arc::new(disk) as Arc<dyn Disk>], &Limits::default())
}

#[test]
fn a_pool_whose_blocks_are_all_written_again_is_the_same_pool() {
    let source = sample();
    let mut forgery = Forgery::of(&source);
    let all: Vec<_> = source.blocks().collect();
    assert!(all.len() > 50, "{} blocks", all.len());
    for kind in [ObjectType::DSL_DATASET, ObjectType::DSL_DIR] {
        assert!(source.with_bonus(0, kind).len() > 2);
    }
    for (block, ..) in all {
        // Those would be written to space that is free.
        if !source.is_embedded(block) {
            forgery.edit(block, |_| {});
        }
    }
    let report = read(&source, forgery.seal());
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(report.files > 120, "{report:?}");
}

#[test]
fn a_changed_name_is_read_without_a_checksum_error() {
    let source = sample();
    let mut forgery = Forgery::of(&source);
    let blocks: Vec<_> = source.blocks().filter(|(.., place)| place.level == 0).collect();
    let changed: usize = blocks
        .into_iter()
        .map(|(block, ..)| forgery.replace_in(block, b"long name 59", b"l\x1b[2J nam/59"))
        .sum();
    assert!(changed > 0);
    let patches = forgery.seal();
    assert_ne!(apply(source.image(), &patches), **source.image());
    let report = read(&source, patches);
    assert!(!report.problems.iter().any(|problem| problem.contains("checksum")), "{report:?}");
}

#[test]
fn each_crafted_pool_is_read_in_bounded_time() {
    let source = sample();
    for (name, patches) in crafted(&source) {
        let began = Instant::now();
        let report = read(&source, patches);
        let took = began.elapsed();
        println!("{name}: {took:?}, {} files, {} problems", report.files, report.problems.len());
        assert!(took < TIME_MAX, "{name}: {took:?}");
        assert!(!report.problems.iter().any(|problem| problem.contains("checksum")), "{name}: {report:?}");
    }
}

/// The same pools on every machine. For a longer run: `FORGE_SECS=1200 cargo test -p cenote-sim --test forge`.
#[test]
fn any_changed_bytes_end_in_an_answer_or_an_error() {
    let source = sample();
    let secs: Option<u64> = std::env::var("FORGE_SECS").ok().map(|secs| secs.parse().expect("seconds"));
    let first = std::env::var("FORGE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let began = Instant::now();
    let goes_on = |seed: &u64| match secs {
        Some(secs) => began.elapsed() < Duration::from_secs(secs),
        None => *seed < first + 30,
    };
    for seed in (first..).take_while(goes_on) {
        let patches = sim::forge::damage(&source, seed);
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(|| read(&source, patches));
        let report = outcome.unwrap_or_else(|_| panic!("FORGE_SEED={seed}"));
        let took = began.elapsed();
        assert!(took < TIME_MAX, "FORGE_SEED={seed}: {took:?}, {report:?}");
    }
}

fn change(source: &Source, patches: Patches) -> Vec<String> {
    let disk = PatchedDisk::new(source.image().clone(), patches).writable();
    sim::changing::change_all(vec![Arc::new(disk) as Arc<dyn Disk>]).0
}

#[test]
fn a_sound_pool_is_changed_without_a_refusal() {
    let refused = change(&sample(), Patches::new());
    assert_eq!(refused, Vec::<String>::new());
}

#[test]
fn each_crafted_pool_is_changed_in_bounded_time() {
    let source = sample();
    let mut broken = Vec::new();
    for (name, patches) in crafted(&source) {
        let began = Instant::now();
        let refused = change(&source, patches);
        let took = began.elapsed();
        println!("{name}: {took:?}, {} refused", refused.len());
        broken.extend(
            refused
                .iter()
                .filter(|line| line.contains("internal error"))
                .map(|line| format!("{name}: {line}")),
        );
        assert!(took < TIME_MAX, "{name}: {took:?}");
    }
    assert_eq!(broken, Vec::<String>::new());
}

/// The sample with one of the crafted changes, imported to be changed.
fn imported(name: &str) -> pool::Pool {
    let source = sample();
    let (_, patches) = crafted(&source).into_iter().find(|(found, _)| *found == name).expect("crafted");
    let disk = PatchedDisk::new(source.image().clone(), patches).writable();
    pool::Pool::import_disks(vec![Arc::new(disk)], pool::Options::default()).expect("it can be imported")
}

/// Fails when `work` takes longer than it ever should.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    waited.recv_timeout(TIME_MAX).expect("it ends")
}

#[test]
fn a_receive_over_a_snapshot_that_is_before_itself_is_refused() {
    let source = sample();
    let disk = PatchedDisk::new(source.image().clone(), Patches::new());
    let options = pool::Options { read_only: true, ..pool::Options::default() };
    let sender = pool::Pool::import_disks(vec![Arc::new(disk)], options).expect("it can be imported");
    let from = stream::Sender::new(&sender).send_source("tank/fs@one").expect("there");
    let mut stream = Vec::new();
    let flags = pool::SendFlags::default();
    stream::Sender::new(&sender)
        .send("tank/fs@two", Some(&from), flags, &mut stream, &mut |_| {})
        .expect("sent");
    let said = ends(move || {
        let pool = imported("snapshot-before-itself");
        let options = pool::ReceiveOptions { force: true, ..pool::ReceiveOptions::default() };
        let mut incoming = stream::Incoming::open(&stream[..]).expect("sound");
        let (begin, list) = incoming.next_stream().expect("sound").expect("one");
        let done =
            stream::Receiver::new(&pool).receive(&mut incoming, (&begin, &list), "tank/fs@three", &options);
        done.map(drop).map_err(|error| error.to_string())
    });
    assert!(said.as_ref().is_err_and(|said| said.contains("txg of the snapshot before another")), "{said:?}");
}

#[test]
fn a_send_of_a_clone_of_itself_is_refused() {
    let said = ends(|| {
        let pool = imported("origin-loop");
        pool.snapshot(&["tank/clone@new".to_owned()], &[]).expect("taken");
        let from = stream::Sender::new(&pool).send_source("tank/fs@one").expect("there");
        let flags = pool::SendFlags::default();
        let sent = stream::Sender::new(&pool).send(
            "tank/clone@new",
            Some(&from),
            flags,
            &mut std::io::sink(),
            &mut |_| {},
        );
        sent.map(drop).map_err(|error| error.to_string())
    });
    assert!(said.as_ref().is_err_and(|said| said.contains("txg of the origin of a clone")), "{said:?}");
}

#[test]
fn a_snapshot_of_a_clone_that_lists_itself_is_destroyed_or_refused() {
    let said = ends(|| {
        let pool = imported("clones-loop");
        let name = ["tank/clone@new".to_owned()];
        pool.snapshot(&name, &[]).expect("taken");
        pool.destroy_snapshots(&name, false).map_err(|error| error.to_string())
    });
    assert!(said.as_ref().is_err_and(|said| said.contains("clone of itself")), "{said:?}");
}

#[test]
fn a_scrub_of_each_crafted_pool_ends() {
    let source = sample();
    for (name, patches) in crafted(&source) {
        let disk = PatchedDisk::new(source.image().clone(), patches).writable();
        let said = ends(move || {
            let pool = pool::Pool::import_disks(vec![Arc::new(disk)], pool::Options::default());
            let pool = pool.map_err(|error| error.to_string())?;
            pool.scrub().and_then(|()| pool.wait_scrub()).map_err(|error| error.to_string())
        });
        println!("{name}: {said:?}");
        assert!(said.as_ref().map_or_else(String::len, |()| 0) < 1000, "{name}: a long line");
        assert!(
            name != "snapshot-loop" || said.is_err_and(|said| said.contains("the snapshot before another"))
        );
    }
}

fn expect_clean(pool: &pool::Pool) {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding.to_string())).expect("it can be checked");
    assert_eq!(found, Vec::<String>::new());
}

/// OpenZFS's stress program leaves such datasets.
#[test]
fn the_intent_log_of_a_dataset_that_is_no_file_system_stays_until_the_dataset_goes() {
    const OBJSET_TYPE: std::ops::Range<usize> = 704..712;
    let mut story = Story::seeded(7);
    story.write("/a", "text").commit();
    let objset = story.pool().dataset("tank/fs").expect("there").id.0;
    let source = Source::parse(story.write("/b", [9; 5000]).commit().shut_down().image());
    let mut forgery = Forgery::of(&source);
    let place = Place { objset, object: 0, level: 0, blkid: u64::MAX };
    let block = source.block(place).expect("the objset has a block");
    forgery.edit(block, |raw| raw[OBJSET_TYPE].copy_from_slice(&(ObjsetType::Other as u64).to_le_bytes()));
    let disk = PatchedDisk::new(source.image().clone(), forgery.seal()).writable();
    let import = || {
        let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
        pool::Pool::import_disks(vec![disk], pool::Options::default()).expect("it can be imported")
    };
    for _ in 0..2 {
        let pool = import();
        assert_eq!(zpl::replay_logs(&pool).expect("nothing is replayed"), Vec::new());
        assert_eq!(pool.logs_to_replay(), ["tank/fs"]);
        pool.snapshot(&["tank@new".to_owned()], &[]).expect("the pool is changed");
        pool.destroy_snapshots(&["tank@new".to_owned()], false).expect("the pool is changed");
        expect_clean(&pool);
        pool.export().expect("it is exported");
    }
    let pool = import();
    pool.destroy_dataset("tank/fs").expect("it is destroyed");
    expect_clean(&pool);
    pool.export().expect("it is exported");
    let pool = import();
    assert_eq!(pool.logs_to_replay(), Vec::<String>::new());
    expect_clean(&pool);
}

//! The forge changes what it is told to change, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use format::ObjectType;
use sim::forge::{Forgery, PatchedDisk, Patches, Source, apply, crafted, sample};
use sim::reading::{self, Limits};
use storage::host::Disk;

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
        assert!(took < Duration::from_secs(20), "{name}: {took:?}");
        assert!(!report.problems.iter().any(|problem| problem.contains("checksum")), "{name}: {report:?}");
    }
}

/// For a longer run: `FORGE_SECS=1200 cargo test -p cenote-sim --test forge`.
#[test]
fn any_changed_bytes_end_in_an_answer_or_an_error() {
    let source = sample();
    let secs = std::env::var("FORGE_SECS").map_or(4, |secs| secs.parse().expect("seconds"));
    let first = std::env::var("FORGE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(secs);
    for seed in first.. {
        if Instant::now() >= end {
            println!("{} pools", seed - first);
            return;
        }
        let patches = sim::forge::damage(&source, seed);
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(|| read(&source, patches));
        let report = outcome.unwrap_or_else(|_| panic!("FORGE_SEED={seed}"));
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "FORGE_SEED={seed}: {took:?}, {report:?}");
    }
}

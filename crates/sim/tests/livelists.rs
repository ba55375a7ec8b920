//! Clones with livelists: the lists are kept, shortened and dropped, and blocks of destroyed clones are freed by them,
//! with crashes and exports meanwhile.

mod zdb;

use format::features;
use pool::props::Value;
use pool::{LivelistRules, NewFilesystem, Options};
use sim::{Cuts, Machine, Story, seeds};
use storage::host::{Entropy, SeededEntropy};
use zpl::{FileKind, Filesystem, NewNode, ObjectId, Place, XattrMode};

const BASE: &str = "tank/base";
const CLONE: &str = "tank/clone";

/// A machine whose livelists have short parts and are never dropped because a clone shares little with its origin, and
/// that frees a few blocks with each txg.
fn machine() -> Machine {
    let livelists = LivelistRules { entries_max: 120, percent_shared: 0 };
    Machine { livelists, async_blocks: 8, ..Machine::default() }
}

fn create(fs: &Filesystem, name: &str) -> ObjectId {
    fs.create(fs.root(), name.as_bytes(), &NewNode::new(FileKind::Regular, 0o644)).unwrap()
}

fn open(story: &Story, name: &str) -> Filesystem {
    Filesystem::open(story.pool().open(name).unwrap()).unwrap()
}

/// Small records, and the given properties.
fn properties(local: &[(&str, u64)]) -> Vec<(String, Value)> {
    local
        .iter()
        .chain(&[("recordsize", 4096)])
        .map(|(name, value)| ((*name).to_owned(), Value::Number(*value)))
        .collect()
}

/// A story with a file system of some files, and a snapshot of it.
fn with_base(machine: Machine, seed: u64, local: &[(&str, u64)]) -> Story {
    let mut story = Story::on(machine, seed);
    story.write("/kept", "kept").sync();
    let local = local
        .iter()
        .chain(&[("recordsize", 4096)])
        .map(|(name, value)| ((*name).to_owned(), Value::Number(*value)))
        .collect();
    let host = Options::default().host;
    story.pool().create_filesystem(BASE, local, NewFilesystem::plain(&host), zpl::initialiser()).unwrap();
    let (fs, chance) = (open(&story, BASE), SeededEntropy::new(seed));
    for n in 0..40 {
        let mut data = vec![0; 1 + chance.below(60_000) as usize];
        chance.fill(&mut data);
        fs.write(create(&fs, &format!("base {n}")), 0, &data).unwrap();
    }
    let mut data = vec![0; 900_000];
    chance.fill(&mut data);
    fs.write(create(&fs, "large"), 0, &data).unwrap();
    drop(fs);
    story.pool().sync().unwrap();
    story.pool().snapshot(&[format!("{BASE}@s")], &[]).unwrap();
    story.forget();
    story
}

fn clone(story: &mut Story, local: &[(&str, u64)]) {
    story.pool().clone_snapshot(&format!("{BASE}@s"), CLONE, properties(local)).unwrap();
    story.forget_unasked_syncs();
}

/// A round of changes in the clone, and a check.
fn change(story: &mut Story, round: usize) {
    alter(story, round);
    expect_sound(story);
}

/// A round of changes in the clone: new files, overwritten and removed ones, holes, attributes.
fn alter(story: &mut Story, round: usize) {
    let (fs, chance) = (open(story, CLONE), SeededEntropy::new(round as u64));
    for n in 0..8 {
        let mut data = vec![0; 1 + chance.below(50_000) as usize];
        chance.fill(&mut data);
        let id = create(&fs, &format!("new {round} {n}"));
        fs.write(id, 0, &data).unwrap();
        if n == 3 {
            fs.xattr_set(id, b"user.long", &data[..data.len().min(700)], XattrMode::Either).unwrap();
        }
    }
    let large = fs.resolve(b"/large", false).unwrap();
    fs.write(large, chance.below(800_000), &vec![round as u8; 40_000]).unwrap();
    for old in [round.checked_sub(1), round.checked_sub(3)].into_iter().flatten() {
        for n in 0..6 {
            if let Ok(id) = fs.resolve(format!("/new {old} {n}").as_bytes(), false) {
                match n {
                    0 => fs.truncate(id, 3000).unwrap(),
                    _ => fs.unlink(fs.root(), format!("new {old} {n}").as_bytes()).unwrap(),
                }
            }
        }
    }
    drop(fs);
    story.write("/kept", format!("kept {round}")).sync();
}

/// Nothing is found by a check, which compares each livelist with the blocks of its clone.
#[track_caller]
fn expect_sound(story: &mut Story) {
    let findings = story.check();
    assert!(findings.is_empty(), "{findings:#?}");
    story.forget_unasked_syncs();
}

/// While the blocks of a destroyed clone are freed, the list is OpenZFS's at every moment, and the state is kept across exports.
#[track_caller]
fn expect_sound_while_freeing(story: &mut Story) {
    for _ in 0..3 {
        expect_sound(story);
        zdb::expect_pleased(story);
        story.reboot();
        story.pool().sync().unwrap();
        story.forget_unasked_syncs();
    }
}

/// How many livelists the pool has.
fn lists(story: &Story) -> u64 {
    story.pool().info().features[features::LIVELIST.guid]
}

/// Entries of each part of the clone's livelist: written and freed blocks, and the freed ones among them.
fn parts(story: &Story) -> Vec<(u64, u64)> {
    story.pool().livelist_parts(CLONE).unwrap()
}

/// Syncs until nothing waits to be freed; how many times that took.
fn settle(story: &mut Story) -> usize {
    for n in 0..1000 {
        if story.pool().freeing().unwrap() == 0 {
            return n;
        }
        story.write("/kept", format!("settled {n}")).sync();
        expect_sound(story);
    }
    panic!("{} bytes still wait", story.pool().freeing().unwrap());
}

#[test]
fn a_livelist_gets_parts_and_is_condensed_and_its_clone_is_freed_by_it() {
    // Of the property dedup: off; sha256.
    for dedup in [2, 1] {
        let mut story = with_base(machine(), 3, &[("dedup", dedup)]);
        clone(&mut story, &[("dedup", dedup)]);
        assert_eq!(lists(&story), 1);
        let mut seen = Vec::new();
        for round in 0..9 {
            change(&mut story, round);
            seen.push(parts(&story));
            if round % 4 == 1 {
                zdb::expect_pleased(&mut story);
                story.reboot();
                story.forget_unasked_syncs();
            }
        }
        assert!(seen.iter().any(|parts| parts.len() > 1), "{seen:?}");
        let sum = |parts: &Vec<(u64, u64)>| parts.iter().map(|(all, _)| all).sum::<u64>();
        assert!(seen.windows(2).any(|pair| sum(&pair[1]) < sum(&pair[0])), "never condensed: {seen:?}");
        let full = story.pool().info().space.allocated;
        story.pool().destroy_dataset(CLONE).unwrap();
        story.forget_unasked_syncs();
        let waiting = story.pool().freeing().unwrap();
        assert!(waiting > 500_000, "{waiting}");
        expect_sound_while_freeing(&mut story);
        let left = story.pool().freeing().unwrap();
        assert!((1..waiting).contains(&left), "{left} of {waiting}");
        assert!(settle(&mut story) > 0);
        story.sync().sync().sync();
        assert_eq!(lists(&story), 0);
        let empty = story.pool().info().space.allocated;
        assert!(empty + waiting / 2 < full, "{empty} of {full} bytes are still allocated");
        zdb::expect_pleased(&mut story);
    }
}

/// A file of 20 records in the clone of a dataset has other names for its blocks: files that were made by block cloning.
fn share_blocks(story: &mut Story, round: usize) {
    let fs = open(story, CLONE);
    let from = |name: &[u8]| Place { fs: &fs, id: fs.resolve(name, false).unwrap(), offset: 0 };
    let source = create(&fs, &format!("source {round}"));
    let mut data = vec![0; 20 << 12];
    SeededEntropy::new(round as u64).fill(&mut data);
    fs.write(source, 0, &data).unwrap();
    story.pool().sync().unwrap();
    // Two of the copies are of one txg, so that the list has equal pointers. Blocks older than the clone are shared, too.
    for n in 0..2 {
        let copy = create(&fs, &format!("copy {round} {n}"));
        let place = Place { fs: &fs, id: source, offset: 0 };
        assert_eq!(fs.clone_range(place, (copy, 0), 20 << 12).unwrap(), 20 << 12);
        let old = create(&fs, &format!("old {round} {n}"));
        assert_eq!(fs.clone_range(from(b"/large"), (old, 0), 40 << 12).unwrap(), 40 << 12);
    }
    story.pool().sync().unwrap();
    let late = create(&fs, &format!("late {round}"));
    assert_eq!(
        fs.clone_range(from(format!("/copy {round} 0").as_bytes()), (late, 0), 20 << 12).unwrap(),
        20 << 12
    );
    // One of equal pointers goes, then the block's first name, then a part of the other.
    fs.unlink(fs.root(), format!("copy {round} 0").as_bytes()).unwrap();
    story.pool().sync().unwrap();
    fs.unlink(fs.root(), format!("source {round}").as_bytes()).unwrap();
    fs.write(fs.resolve(format!("/copy {round} 1").as_bytes(), false).unwrap(), 3 << 12, &[9; 5 << 12])
        .unwrap();
    fs.truncate(fs.resolve(format!("/old {round} 0").as_bytes(), false).unwrap(), 7 << 12).unwrap();
    drop(fs);
    story.forget_unasked_syncs();
    story.write("/kept", format!("shared {round}")).sync();
    expect_sound(story);
}

#[test]
fn a_clone_in_which_files_share_blocks_keeps_a_livelist_and_is_freed_by_it() {
    let sharing = Machine { features: Machine::cloning().features, ..machine() };
    let mut story = with_base(sharing, 6, &[]);
    let before = story.pool().info().space.allocated;
    clone(&mut story, &[]);
    for round in 0..4 {
        share_blocks(&mut story, round);
        if round % 2 == 1 {
            zdb::expect_pleased(&mut story);
            story.reboot();
            story.forget_unasked_syncs();
        }
    }
    assert!(parts(&story).iter().any(|(_, freed)| *freed > 0), "{:?}", parts(&story));
    let full = story.pool().info().space.allocated;
    story.pool().destroy_dataset(CLONE).unwrap();
    story.forget_unasked_syncs();
    expect_sound_while_freeing(&mut story);
    assert!(settle(&mut story) > 0);
    story.sync().sync().sync();
    let empty = story.pool().info().space.allocated;
    assert!(empty < before + (full - before) / 4, "{before}, {full}, {empty} bytes are allocated");
    // The blocks that the clone shared with its origin are still there.
    let base = open(&story, BASE);
    let large = base.resolve(b"/large", false).unwrap();
    let mut data = vec![0; 900_000];
    assert_eq!(base.read(large, 0, &mut data).unwrap(), data.len());
    drop(base);
    zdb::expect_pleased(&mut story);
}

#[test]
fn a_clone_with_snapshots_keeps_its_livelist() {
    let mut story = with_base(machine(), 4, &[]);
    clone(&mut story, &[]);
    for round in 0..6 {
        change(&mut story, round);
        if round % 2 == 0 {
            story.pool().snapshot(&[format!("{CLONE}@{round}")], &[]).unwrap();
            story.forget_unasked_syncs();
        }
    }
    assert_eq!(lists(&story), 1);
    zdb::expect_pleased(&mut story);
    story.reboot();
    for round in [2, 0, 4] {
        story.pool().destroy_snapshots(&[format!("{CLONE}@{round}")], false).unwrap();
        story.forget_unasked_syncs();
        change(&mut story, 6 + round);
    }
    settle(&mut story);
    story.pool().destroy_dataset(CLONE).unwrap();
    story.forget_unasked_syncs();
    assert!(settle(&mut story) > 3);
    story.sync();
    assert_eq!(lists(&story), 0);
    zdb::expect_pleased(&mut story);
}

#[test]
fn a_promotion_a_rollback_and_a_clone_that_shares_little_end_a_livelist() {
    let mut story = with_base(machine(), 5, &[]);
    clone(&mut story, &[]);
    change(&mut story, 0);
    story.pool().promote(CLONE).unwrap();
    story.forget_unasked_syncs();
    assert_eq!(lists(&story), 0);
    change(&mut story, 1);
    story.pool().promote(BASE).unwrap();
    story.pool().destroy_dataset(CLONE).unwrap();
    story.forget_unasked_syncs();
    settle(&mut story);

    clone(&mut story, &[]);
    change(&mut story, 2);
    story.pool().snapshot(&[format!("{CLONE}@a")], &[]).unwrap();
    story.forget_unasked_syncs();
    change(&mut story, 3);
    assert_eq!(lists(&story), 1);
    story.pool().rollback(&format!("{CLONE}@a")).unwrap();
    story.forget_unasked_syncs();
    assert_eq!(lists(&story), 0);
    change(&mut story, 4);
    zdb::expect_pleased(&mut story);

    let strict = LivelistRules { percent_shared: 75, ..machine().livelists };
    let mut story = with_base(Machine { livelists: strict, ..machine() }, 6, &[]);
    clone(&mut story, &[]);
    let mut rounds = 0;
    while lists(&story) == 1 {
        change(&mut story, rounds);
        rounds += 1;
        assert!(rounds < 20, "the list is still there");
    }
    assert!(rounds > 1, "the list went at once");
    change(&mut story, rounds);
    zdb::expect_pleased(&mut story);
}

#[test]
fn power_cut_while_a_livelist_is_kept_leaves_one_that_is_right() {
    for seed in seeds(1) {
        let mut story = with_base(machine(), seed, &[]);
        clone(&mut story, &[]);
        for round in 0..4 {
            alter(&mut story, round);
        }
        let name = "power_cut_while_a_livelist_is_kept_leaves_one_that_is_right";
        println!("{} cuts", Cuts::of(&story, "livelists", name).every(60).run());
    }
}

#[test]
fn power_cut_while_a_clone_is_freed_by_its_livelist_leaves_a_synced_state() {
    for seed in seeds(1) {
        let mut story = with_base(machine(), seed, &[]);
        clone(&mut story, &[]);
        for round in 0..4 {
            change(&mut story, round);
        }
        story.forget();
        story.pool().destroy_dataset(CLONE).unwrap();
        story.forget_unasked_syncs();
        for n in 0..4 {
            story.write("/kept", format!("freed {n}")).sync();
        }
        let name = "power_cut_while_a_clone_is_freed_by_its_livelist_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "livelists", name).every(12).run());
        settle(&mut story);
        // The txg after the last block frees the list itself.
        story.sync();
        assert_eq!(lists(&story), 0);
    }
}

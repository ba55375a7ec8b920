//! Destroyed file systems: their names are removed at once, their blocks are freed in parts, with crashes and exports
//! meanwhile.

mod zdb;

use std::io::IoSlice;

use pool::props::Value;
use pool::{NewFilesystem, Options};
use sim::{Cuts, Machine, Story, seeds};
use storage::host::{Disk, Entropy, SeededEntropy};
use zpl::{FileKind, Filesystem, NewNode, ObjectId, XattrMode};

const DOOMED: &str = "tank/doomed";

/// A machine that frees a few blocks with each txg.
fn slow(ashift: u32) -> Machine {
    Machine { ashift, async_blocks: 30, ..Machine::default() }
}

fn create(fs: &Filesystem, name: &str) -> ObjectId {
    fs.create(fs.root(), name.as_bytes(), &NewNode::new(FileKind::Regular, 0o644)).unwrap()
}

/// Some seventy small files, one with a spill block, and two with indirect blocks, the second with two levels of them.
fn fill(fs: &Filesystem, chance: &SeededEntropy) {
    for n in 0..70 {
        let mut data = vec![0; 1 + chance.below(40_000) as usize];
        chance.fill(&mut data);
        let id = create(fs, &format!("small {n}"));
        fs.write(id, 0, &data).unwrap();
        if n == 40 {
            fs.xattr_set(id, b"user.long", &data[..600], XattrMode::Either).unwrap();
        }
    }
    let mut data = vec![0; 300_000];
    chance.fill(&mut data);
    let id = create(fs, "larger");
    fs.write(id, 0, &data).unwrap();
    let id = create(fs, "sparse");
    for at in [0, 1 << 24, 1 << 33, (1 << 33) + (1 << 20)] {
        fs.write(id, at, &data[..50_000]).unwrap();
    }
}

/// A story with a second file system, which is full of things.
fn with_doomed(machine: Machine, seed: u64) -> Story {
    let mut story = Story::on(machine, seed);
    story.write("/kept", "kept").sync();
    story.forget();
    let host = Options::default().host;
    let shared = story.machine().properties.iter().filter(|(name, _)| *name == "dedup");
    let shared = shared.map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect();
    story.pool().create_filesystem(DOOMED, shared, NewFilesystem::plain(&host), zpl::initialiser()).unwrap();
    fill(&open(&story, DOOMED), &SeededEntropy::new(seed));
    story.pool().sync().unwrap();
    story.forget();
    story
}

fn open(story: &Story, name: &str) -> Filesystem {
    Filesystem::open(story.pool().open(name).unwrap()).unwrap()
}

fn freeing(story: &Story) -> u64 {
    story.pool().freeing().unwrap()
}

/// Syncs until nothing waits to be freed; how many times that took.
fn settle(story: &mut Story) -> usize {
    for n in 0..1000 {
        if freeing(story) == 0 {
            return n;
        }
        story.write("/kept", format!("kept {n}")).sync();
        let findings = story.check();
        assert!(findings.is_empty(), "{n}: {findings:#?}");
        story.forget_unasked_syncs();
    }
    panic!("{} bytes still wait", freeing(story));
}

#[test]
fn a_file_system_is_freed_in_parts_and_zdb_is_pleased_in_between() {
    for ashift in [9, 12] {
        let mut story = with_doomed(slow(ashift), 5);
        let full = story.pool().info().space.allocated;
        story.pool().destroy_dataset(DOOMED).unwrap();
        story.forget_unasked_syncs();
        assert!(story.pool().open(DOOMED).is_err());
        let mut before = freeing(&story);
        assert!(before > 1 << 20, "{before} bytes wait");
        // A second destroyed file system waits for the first, and the state is kept across an export.
        let host = Options::default().host;
        let (new, made) = ("tank/other", NewFilesystem::plain(&host));
        story.pool().create_filesystem(new, Vec::new(), made, zpl::initialiser()).unwrap();
        fill(&open(&story, new), &SeededEntropy::new(6));
        story.pool().sync().unwrap();
        story.pool().destroy_dataset(new).unwrap();
        story.forget_unasked_syncs();
        for _ in 0..4 {
            zdb::expect_pleased(&mut story);
            story.reboot();
            story.pool().sync().unwrap();
            story.forget_unasked_syncs();
            let findings = story.check();
            assert!(findings.is_empty(), "{findings:#?}");
            story.forget_unasked_syncs();
        }
        before = before.max(freeing(&story));
        assert!(freeing(&story) > 0, "of {before}");
        assert!(settle(&mut story) > 3);
        // Space that the last of them freed can be used two txgs later.
        story.sync().sync().sync();
        let empty = story.pool().info().space.allocated;
        assert!(empty + (1 << 20) < full, "{empty} of {full} bytes are still allocated");
        zdb::expect_pleased(&mut story);
    }
}

#[test]
fn a_clone_and_what_a_rollback_undoes_are_freed_in_parts() {
    // Of the property dedup: off; sha256.
    for dedup in [2, 1] {
        free_clone_and_rollback(dedup);
    }
}

fn free_clone_and_rollback(dedup: u64) {
    let mut machine = slow(9);
    machine.properties.push(("dedup", dedup));
    let mut story = with_doomed(machine, 7);
    let snapshot = format!("{DOOMED}@s");
    let pool = story.pool();
    pool.snapshot(std::slice::from_ref(&snapshot), &[]).unwrap();
    pool.clone_snapshot(&snapshot, "tank/clone", Vec::new()).unwrap();
    for name in [DOOMED, "tank/clone"] {
        let fs = open(&story, name);
        let id = fs.resolve(b"/larger", false).unwrap();
        fs.write(id, 10_000, &[7; 200_000]).unwrap();
        fs.unlink(fs.root(), b"small 3").unwrap();
        for n in 0..60 {
            fs.write(create(&fs, &format!("new {n}")), 0, &vec![n; 20_000]).unwrap();
        }
    }
    let pool = story.pool();
    pool.sync().unwrap();
    pool.rollback(&snapshot).unwrap();
    pool.destroy_dataset("tank/clone").unwrap();
    story.forget_unasked_syncs();
    assert!(freeing(&story) > 0);
    assert!(settle(&mut story) > 3);
    let fs = open(&story, DOOMED);
    assert!(fs.resolve(b"/small 3", false).is_ok() && fs.resolve(b"/new 3", false).is_err());
    drop(fs);
    assert_eq!(story.pool().info().dedup.blocks > 0, dedup == 1);
    zdb::expect_pleased(&mut story);
}

#[test]
fn power_cut_while_a_file_system_is_freed_leaves_a_synced_state() {
    for seed in seeds(1) {
        let mut story = with_doomed(slow(9), seed);
        story.pool().destroy_dataset(DOOMED).unwrap();
        story.forget_unasked_syncs();
        for n in 0..8 {
            story.write("/kept", format!("kept {n}")).sync();
        }
        assert!(freeing(&story) > 0);
        let name = "power_cut_while_a_file_system_is_freed_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "destroy", name).every(3).run());
        settle(&mut story);
    }
}

#[test]
fn blocks_that_cannot_be_found_stay_allocated_and_stop_nothing() {
    // With few, looking for what cannot be found takes all that a txg may spend.
    for async_blocks in [10, 400] {
        lose_and_destroy(Machine { async_blocks, ..slow(9) });
    }
}

fn lose_and_destroy(machine: Machine) {
    let mut story = with_doomed(machine, 9);
    let fs = open(&story, DOOMED);
    let id = fs.resolve(b"/larger", false).unwrap();
    let objset = fs.dataset().objset().clone();
    let (_, dnode) = objset.synced_objects().map(Result::unwrap).find(|(at, _)| *at == id).unwrap();
    let lost = *dnode.block_ptrs[0].block().unwrap();
    assert_eq!(lost.level, 1);
    drop((fs, objset));
    for dva in lost.copies() {
        story.disk(0).write_at(&[IoSlice::new(&[0x5a; 512])], dva.offset + (4 << 20)).unwrap();
    }
    story.forget_unasked_syncs();
    story.reboot();
    story.pool().destroy_dataset(DOOMED).unwrap();
    story.forget_unasked_syncs();
    let other = "tank/other";
    let host = Options::default().host;
    story
        .pool()
        .create_filesystem(other, Vec::new(), NewFilesystem::plain(&host), zpl::initialiser())
        .unwrap();
    fill(&open(&story, other), &SeededEntropy::new(6));
    story.pool().sync().unwrap();
    story.pool().destroy_dataset(other).unwrap();
    let mut first = None;
    for boot in 0..3 {
        story.forget_unasked_syncs();
        let mut still = 0;
        let mut left = freeing(&story);
        for n in 0..3000 {
            story.write("/kept", format!("kept {boot} {n}")).sync();
            still = if freeing(&story) == left { still + 1 } else { 0 };
            left = freeing(&story);
            if still == 4 {
                break;
            }
        }
        assert_eq!((still, story.pool().freeing_now().unwrap()), (4, 0), "nobody goes on in vain");
        story.forget_unasked_syncs();
        assert!((left > 300_000, left) == (true, *first.get_or_insert(left)), "{left} bytes are left");
        // Blocks below the lost block count as leaked. Nothing else is wrong.
        let findings = story.check();
        let expected = |finding: &String| {
            ["damaged block", "cannot be read", "leaked", "destroyed datasets'"]
                .iter()
                .any(|what| finding.contains(what))
        };
        assert!(!findings.is_empty() && findings.iter().all(expected), "{findings:#?}");
        story.forget_unasked_syncs();
        story.reboot();
    }
    story.expect_model();
}

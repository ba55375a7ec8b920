//! A raidz vdev gets a device while it is used: the power goes at many moments, devices fail, and everything is read from where it is.

mod zdb;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;

use pool::Joined;
use scan::Scans as _;
use sim::{Cuts, Machine, Story, Tree, seeds};
use storage::host::scripted::Op;
use storage::host::{CrashPolicy, Disk, Fault, ScriptedDisk};

/// A machine whose pool can be expanded.
fn machine(parity: u8, width: usize, ashift: u32) -> Machine {
    let features = vec![&format::features::RAIDZ_EXPANSION];
    Machine { ashift, features, ..Machine::raidz(parity, width) }
}

/// A new disk in the machine of a story.
fn disk(story: &Story) -> Arc<dyn Disk> {
    let (number, bytes) = (story.script().disks().len(), story.machine().disk_bytes);
    Arc::new(story.script().disk(format!("/scripted/{number}"), bytes))
}

/// Bytes that do not become fewer when they are compressed.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let step = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::repeat_n((), len).scan(seed, |state, ()| step(state)).collect()
}

/// More than passes through the boot areas.
fn fill(story: &mut Story, megabytes: u32) {
    story.mkdir("/d");
    for n in 0..megabytes {
        story.write(&format!("/d/{n}"), noise(1_000_000, n));
    }
    story.sync();
    for n in (0..megabytes).step_by(5) {
        story.unlink(&format!("/d/{n}"));
    }
    story.sync();
}

fn widen(story: &mut Story) {
    let vdev = story.pool().info().config.tree.children[0].guid;
    let new = disk(story);
    story.pool().widen(vdev, new).expect("it fits");
    story.forget_unasked_syncs();
}

fn is_expanding(story: &Story) -> bool {
    story.pool().expansion().expect("read").expect("there is one").ended.is_none()
}

/// Work with each txg until the expansion has ended, and a little longer.
fn work(story: &mut Story) {
    for n in 0..60u8 {
        if !is_expanding(story) {
            break;
        }
        let n32 = u32::from(n);
        story.write(&format!("/new-{}", n % 7), noise(30_000 + 7_000 * usize::from(n % 5), n32));
        if n % 3 == 1 {
            story.write_at("/d/3", 40_000 * u64::from(n), noise(25_000, n32 + 100));
        }
        story.sync();
    }
    assert!(!is_expanding(story), "it ends");
    for n in 0..5u8 {
        story.write(&format!("/after-{n}"), noise(50_000, n.into())).sync();
    }
}

fn scrubbed(story: &Story) {
    story.pool().scrub().expect("it begins");
    story.pool().wait_scrub().expect("it ends");
    let scan = story.pool().scan().expect("read").expect("there was one").scan;
    assert_eq!((scan.processed, scan.errors), (0, 0), "nothing is to be repaired");
}

/// The changes that the pool made by itself, as `zpool history -i` lists them.
fn told(story: &Story) -> Vec<String> {
    let events = story.pool().history().expect("read");
    let internal = events.iter().filter_map(|event| {
        let name = event.record.get_str("internal_name")?;
        Some(format!("{name} {}", event.record.get_str("history internal str").expect("it has one")))
    });
    internal.collect()
}

/// The disks of a story as they are now, without those of `gone`.
fn left(story: &Story, gone: u32) -> Vec<ScriptedDisk> {
    let now = story.script().image_after(story.script().op_count(), CrashPolicy::KeepAll, 1).disks();
    now.into_iter().enumerate().filter(|(disk, _)| gone & 1 << disk == 0).map(|(_, disk)| disk).collect()
}

#[test]
fn power_cut_while_a_raidz_vdev_is_expanded_leaves_a_synced_state() {
    for seed in seeds(1) {
        for (parity, width, ashift, rarity) in [(1, 3, 12, 67), (2, 4, 9, 151)] {
            let mut story = Story::on(machine(parity, width, ashift), seed);
            fill(&mut story, 14);
            story.forget();
            widen(&mut story);
            work(&mut story);
            story.expect_model();
            let name = "power_cut_while_a_raidz_vdev_is_expanded_leaves_a_synced_state";
            println!("{} cuts", Cuts::of(&story, "expansion", name).every(97).one_in(rarity).run());
            story.reboot().expect_model();
            story.expect_clean();
            scrubbed(&story);
        }
    }
}

#[test]
fn the_expansion_goes_on_after_a_power_cut_at_any_stage() {
    for (parity, width, ashift) in [(1, 3, 9), (3, 5, 12)] {
        let mut story = Story::on(machine(parity, width, ashift), 4);
        fill(&mut story, 14);
        story.forget();
        widen(&mut story);
        for n in 0..9u8 {
            story.write("/a", noise(40_000, n.into())).commit();
            story.write("/b", noise(90_000, n.into())).commit();
            story.cut_power([CrashPolicy::LoseAllUnflushed, CrashPolicy::RandomSubset][usize::from(n % 2)]);
            story.expect_clean();
            story.write("/c", noise(30_000, n.into())).sync();
        }
        // A replay gives files its own time.
        story.write("/a", "new").write("/b", "new").sync();
        work(&mut story);
        story.reboot().expect_model();
        story.expect_clean();
        scrubbed(&story);
    }
}

#[test]
fn data_is_read_without_as_many_devices_as_parity_allows_at_every_stage() {
    for (parity, width, ashift) in [(1, 2, 9), (2, 4, 12)] {
        let mut story = Story::on(machine(parity, width, ashift), 8);
        fill(&mut story, 12);
        widen(&mut story);
        let mut is_over = false;
        for n in 0..40u8 {
            story.write("/a", noise(70_000, n.into())).sync();
            let gone = (0..width as u32 + 1).filter(|first| u32::from(n) % (width as u32 + 1) == *first);
            for first in gone {
                let gone: u32 =
                    (0..u32::from(parity)).map(|at| 1 << ((first + at) % (width as u32 + 1))).sum();
                let (_, fs) = story.machine().open(left(&story, gone), 7).expect("enough devices are there");
                assert_eq!(
                    Tree::read(&fs).unwrap(),
                    story.model().tree(),
                    "raidz{parity} without {gone:b}, {n}"
                );
            }
            if std::mem::replace(&mut is_over, !is_expanding(&story)) {
                return;
            }
        }
        assert!(is_over);
    }
}

#[test]
fn an_expansion_waits_for_a_device_that_fails_and_for_its_resilver() {
    for moved in [1, 4] {
        let mut story = Story::on(machine(1, 3, 12), 5);
        fill(&mut story, 14);
        widen(&mut story);
        for n in 0..moved {
            story.write("/a", noise(70_000, n)).sync();
        }
        story.disk(2).inject(Fault::Vanish { from_op: story.script().op_count() + 9 });
        let mut seen = Vec::new();
        for n in 0..5 {
            story.write("/b", noise(70_000, n)).sync();
            seen.push(story.pool().expansion().expect("read").expect("there is one"));
        }
        assert!(seen[2..].iter().all(|now| now.waits && now.ended.is_none()), "{seen:?}");
        assert_eq!(seen[2].copied, seen[4].copied, "it waits");
        story.disk(2).heal();
        let (old, new) = (story.pool().members()[2].guid, disk(&story));
        let joined: Joined = story.pool().replace(old, new).expect("it fits");
        story.pool().resilver_joined(joined).expect("it begins");
        story.pool().wait_scrub().expect("it is resilvered");
        story.forget_unasked_syncs();
        work(&mut story);
        let pool = story.pool().name();
        let said = told(&story);
        let expected = [
            format!("raidz vdev expansion started {pool} vdev 0 new width 4"),
            "vdev attach attach vdev=/scripted/3 to vdev=raidz1-0".to_owned(),
            "vdev attach replace vdev=/scripted/4 for vdev=/tank.2.img".to_owned(),
            format!("raidz vdev expansion completed {pool} vdev 0 new width 4"),
        ];
        let found: Vec<&String> = said.iter().filter(|line| expected.contains(line)).collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{said:#?}");
        assert!(
            said.last().expect("some").starts_with(&format!("vdev online pool '{pool}' size: ")),
            "{said:#?}"
        );
        story.expect_model();
        story.expect_clean();
        scrubbed(&story);
    }
}

/// The images of these disks in a folder.
fn images(disks: &[ScriptedDisk], folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let image = |(number, disk): (usize, &ScriptedDisk)| {
        let path = folder.join(format!("{number}.img"));
        let mut file = std::fs::File::create(&path).expect("a file");
        let mut bytes = vec![0; disk.size() as usize];
        disk.read_at(&mut bytes, 0).expect("readable");
        file.write_all(&bytes).expect("written");
        path
    };
    disks.iter().enumerate().map(image).collect()
}

/// Before the first sectors move, when they are in the boot areas, when they are in their places, and later: OpenZFS reads the pool.
#[test]
fn openzfs_reads_what_a_power_cut_leaves_in_each_state_of_the_uberblock() {
    let mut story = Story::on(machine(1, 3, 12), 6);
    fill(&mut story, 14);
    story.forget();
    widen(&mut story);
    work(&mut story);
    let mut cuts: BTreeMap<u64, Vec<ScriptedDisk>> = BTreeMap::new();
    let ops = story.script().ops();
    for cut in (0..ops.len()).filter(|op| matches!(ops[*op], Op::Flush { disk: 0 })) {
        let disks = story.script().image_after(cut, CrashPolicy::KeepAll, 1).disks();
        let best = disks.iter().filter_map(|disk| pool::labels::read(disk).best).max_by_key(|it| it.rank());
        cuts.entry(best.expect("an uberblock").raidz_reflow >> 55).or_insert(disks);
    }
    assert_eq!(cuts.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4]);
    for (state, disks) in cuts {
        let folder = tempfile::tempdir().expect("a folder");
        let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
        let options = ["--newer", "--quick", "--allow-unclean", "tank"];
        let Ok(out) = Command::new(oracle).args(options).args(images(&disks, folder.path())).output() else {
            return;
        };
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() || out.status.code() == Some(2), "state {state}: {said}");
    }
    zdb::expect_pleased(&mut story);
}

#[test]
fn expansion_is_refused_for_a_vdev_or_device_that_does_not_allow_it() {
    let refused = |story: &Story| {
        let vdev = story.pool().info().config.tree.children[0].guid;
        story.pool().widen(vdev, disk(story)).expect_err("it is refused")
    };
    let story = Story::on(Machine::raidz(1, 3), 1);
    assert!(matches!(refused(&story), pool::Error::RaidzExpansionOff));
    let mut story = Story::on(machine(1, 3, 9), 1);
    let small = Arc::new(story.script().disk("/scripted/small", 48 << 20));
    let vdev = story.pool().info().config.tree.children[0].guid;
    assert!(matches!(story.pool().widen(vdev, small), Err(pool::Error::BadDevice { .. })));
    story.pool().checkpoint().expect("it is kept");
    assert!(matches!(refused(&story), pool::Error::CheckpointExists));
    story.pool().discard_checkpoint().expect("there is one");
    story.forget_unasked_syncs();
    for _ in 0..6 {
        story.sync();
    }
    let member = story.pool().members()[1].guid;
    story.pool().offline(member, true).expect("parity replaces it");
    assert!(matches!(refused(&story), pool::Error::RaidzNotWhole));
    let joined = story.pool().online_disk(member, Arc::new(story.disk(1))).expect("it is there");
    story.pool().resilver_joined(joined).expect("it begins");
    story.pool().wait_scrub().expect("it ends");
    story.forget_unasked_syncs();
    let mut loader = [0; 512];
    loader[..5].copy_from_slice(b"\xeb\x0eBTX");
    story.disk(0).write_at(&[std::io::IoSlice::new(&loader)], 512 << 10).expect("taken");
    assert!(matches!(refused(&story), pool::Error::BootAreaInUse));
    story.disk(0).write_at(&[std::io::IoSlice::new(&[0; 512])], 512 << 10).expect("taken");
    story.forget_unasked_syncs();
    widen(&mut story);
    assert!(matches!(refused(&story), pool::Error::Expanding));
    assert!(matches!(story.pool().checkpoint(), Err(pool::Error::Expanding)));
}

//! Pools whose newest state is damaged: an import reports it, names the older state, and rewinds to it with `-F`.

mod bed;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use bed::Bed;
use format::label::DATA_START;
use format::uberblock::Uberblock;
use storage::host::{Access, FileDisk};

/// Uberblocks of the pool in the image, newest first, one per txg.
fn states(bed: &Bed, image: &str) -> Vec<Uberblock> {
    let disk = FileDisk::open(&bed.path(image), Access::Peek).expect("opened");
    let mut all = pool::labels::read(&disk).uberblocks;
    all.sort_by_key(|state| std::cmp::Reverse(state.rank()));
    all.dedup_by_key(|state| state.txg);
    all
}

/// Overwrites every copy of the root of a state.
fn damage(bed: &Bed, image: &str, state: &Uberblock) {
    let file = OpenOptions::new().write(true).open(bed.path(image)).expect("opened");
    for dva in state.root.block().expect("a root").copies() {
        file.write_all_at(&[0xa5; 512], DATA_START + dva.offset).expect("written");
    }
}

/// A bed with `tank`, exported, with the file `old` in it and then `new`.
fn two_files() -> Bed {
    let bed = Bed::with_tank(128, &[]);
    for name in ["old", "new"] {
        std::fs::write(bed.path(name), name.repeat(50_000)).expect("written");
        bed.run(&["cp", "-q", name, "tank/fs:/"]).good();
    }
    bed.run(&["zpool", "export", "tank"]).good();
    bed
}

fn import(bed: &Bed, options: &[&str]) -> bed::Done {
    let image = bed.path("tank.img").display().to_string();
    let mut line = vec!["zpool", "import", "-d", &image];
    line.extend(options);
    line.push("tank");
    bed.run(&line)
}

#[test]
fn an_import_names_an_earlier_state_and_uses_it_only_on_request() {
    let bed = two_files();
    let all = states(&bed, "tank.img");
    damage(&bed, "tank.img", &all[0]);
    let before = std::fs::read(bed.path("tank.img")).expect("read");
    let done = import(&bed, &[]);
    assert!(done.out.contains("\tby executing 'zpool import -F tank'.  A scrub of the pool\n"), "{done:?}");
    assert!(done.out.contains("\tRecovery is possible, but will result in some data loss.\n"), "{done:?}");
    done.refused("cannot import 'tank': I/O error");
    let dry = import(&bed, &["-Fn"]);
    assert!(dry.status == 1 && dry.err.is_empty(), "{dry:?}");
    assert!(dry.out.starts_with("Would be able to return tank to its state as of "), "{dry:?}");
    assert!(before == std::fs::read(bed.path("tank.img")).expect("read"), "nothing was written");
    let done = import(&bed, &["-F"]).good();
    assert!(done.starts_with("Pool tank returned to its state as of "), "{done}");
    let newest = &states(&bed, "tank.img")[0];
    assert!(newest.txg > all[0].txg, "{} after {}", newest.txg, all[0].txg);
    let left = states(&bed, "tank.img");
    assert!(left.iter().all(|state| state.txg != all[0].txg), "what was left behind is not found any more");
    assert!(left.iter().any(|state| state.txg == all[1].txg));
    bed.run(&["zfs", "snapshot", "tank/fs@kept"]).good();
    assert!(bed.list("tank/fs:/").iter().any(|entry| entry["path"] == "old"));
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
    import(&bed, &[]).good();
}

#[test]
fn a_whole_pool_is_imported_as_it_is_even_with_f() {
    let bed = two_files();
    assert_eq!(import(&bed, &["-F", "-n"]).good(), "");
    assert_eq!(bed.run(&["zpool", "list", "-H", "tank"]).status, 1);
    assert_eq!(import(&bed, &["-F"]).good(), "");
    assert_eq!(bed.list("tank/fs:/").len(), 3);
    bed.expect_sound("tank");
}

#[test]
fn an_old_state_is_returned_to_only_with_x_and_when_all_of_it_can_be_read() {
    let bed = two_files();
    let all = states(&bed, "tank.img");
    let last = all[0].txg.0;
    let safe = all.iter().enumerate().filter(|(nth, state)| *nth < 2 || state.txg.0 + 2 >= last).count();
    all[..safe].iter().for_each(|state| damage(&bed, "tank.img", state));
    let done = import(&bed, &["-F"]);
    assert!(done.out.ends_with("\tDestroy and re-create the pool from\n\ta backup source.\n"), "{done:?}");
    done.refused("cannot import 'tank': I/O error");
    // An older state may be damaged as well; a state that is reported as complete must be complete.
    let done = import(&bed, &["-FX"]);
    if done.status == 0 {
        assert!(done.out.starts_with("Pool tank returned to its state as of "), "{done:?}");
        bed.run(&["zfs", "create", "tank/more"]).good();
        bed.expect_sound("tank");
    } else {
        done.refused("cannot import 'tank': I/O error");
    }
}

#[test]
fn import_with_t_returns_to_the_given_txg() {
    let bed = two_files();
    let before = states(&bed, "tank.img")[1].txg;
    let line = ["-T", &before.0.to_string()];
    let done = import(&bed, &["-Fn", line[0], line[1]]);
    assert!(done.status == 1 && done.out.starts_with("Would be able to return tank"), "{done:?}");
    let done = import(&bed, &line).good();
    assert!(done.starts_with("Pool tank returned to its state as of "), "{done}");
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
    let done = import(&bed, &["-T", "soon"]);
    assert!(done.status == 2 && done.err.starts_with("invalid txg value\n"), "{done:?}");
    assert_eq!(import(&bed, &["-X"]).status, 2);
}

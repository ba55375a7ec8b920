//! A recursive copy of a dataset includes the datasets below it, or reports those that are missing.

mod bed;

use std::fs;

use bed::Bed;

/// A pool with a tree of datasets. `tank/fs` is not mounted inside `tank` by its mountpoint; `tank/a` has a folder in `tank`.
fn tree() -> Bed {
    let bed = Bed::with_tank(128, &["mountpoint=/elsewhere"]);
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        bed.run(&["zfs", "create", name]).good();
    }
    bed.run(&["zfs", "set", "mountpoint=/tank/deep/place", "tank/c"]).good();
    bed.run(&["mkdir", "-p", "tank:/a", "tank:/deep/place"]).good();
    for (name, place) in
        [("1", "tank:/"), ("2", "tank/a:/"), ("3", "tank/a/b:/"), ("4", "tank/c:/"), ("5", "tank/fs:/")]
    {
        fs::write(bed.path(name), name).expect("made");
        bed.run(&["cp", name, place]).good();
    }
    bed
}

fn expect(bed: &Bed, files: &[(&str, &str)]) {
    for (path, content) in files {
        let found = fs::read_to_string(bed.path(path));
        assert_eq!(found.ok().as_deref(), Some(*content), "{path}");
    }
}

#[test]
fn datasets_below_are_copied_where_they_are_mounted() {
    let bed = tree();
    bed.run(&["cp", "-rp", "tank:/", "out"]).good();
    expect(
        &bed,
        &[("out/1", "1"), ("out/a/2", "2"), ("out/a/b/3", "3"), ("out/deep/place/4", "4"), ("out/fs/5", "5")],
    );
    // A copy of a folder includes the datasets that are mounted below it.
    bed.run(&["cp", "-r", "tank:/deep", "part"]).good();
    expect(&bed, &[("part/place/4", "4")]);
    assert_eq!(fs::read_dir(bed.path("part")).expect("read").count(), 1);
    bed.run(&["cp", "-rx", "tank:/", "alone"]).good();
    assert!(
        bed.path("alone/a").is_dir() && !bed.path("alone/a/2").exists() && !bed.path("alone/fs").exists()
    );
    let done = bed.run(&["cp", "-r", "tank:/", "tank/a:/"]);
    assert_eq!(done.status, 1, "{done:?}");
    assert!(done.err.starts_with("cannot copy 'tank:/' into itself: 'tank/a' lies below it\n"), "{done:?}");
    bed.run(&["cp", "-rx", "tank:/1", "tank/a:/"]).good();
}

#[test]
fn snapshots_below_are_copied_and_missing_ones_are_named() {
    let bed = tree();
    bed.run(&["zfs", "snapshot", "tank@s", "tank/a@s"]).good();
    bed.run(&["rm", "tank/a:/2"]).good();
    let done = bed.run(&["cp", "-rp", "tank@s:/", "out"]);
    assert_eq!(done.status, 1, "{done:?}");
    for name in ["tank/a/b", "tank/c", "tank/fs"] {
        assert!(
            done.err.contains(&format!("'{name}' was not copied: it has no snapshot '@s'\n")),
            "{done:?}"
        );
    }
    expect(&bed, &[("out/1", "1"), ("out/a/2", "2")]);
    bed.run(&["cp", "-rpx", "tank@s:/", "alone"]).good();
}

#[test]
fn files_beneath_a_dataset_are_named() {
    let bed = tree();
    bed.run(&["cp", "5", "tank:/a"]).good();
    let done = bed.run(&["cp", "-rp", "tank:/", "out"]);
    assert_eq!(done.status, 1, "{done:?}");
    let said =
        "files in the folder that 'tank/a' is mounted on were not copied: the dataset takes their place\n";
    assert_eq!(done.err, said);
    expect(&bed, &[("out/a/2", "2")]);
    assert!(!bed.path("out/a/5").exists());
}

//! Pools of the versions before feature flags and file systems of the versions before system attributes: made, used and
//! upgraded, each judged by `cenote check` and by OpenZFS.

mod bed;

use std::collections::BTreeSet;
use std::fs;

use bed::{Bed, Done};

const NEEDS: &str = "pool must be upgraded to set this property or value";

/// The newest version of file systems in pools of `version`.
fn newest(version: u64) -> u64 {
    match version {
        ..9 => 2,
        9..15 => 3,
        15..24 => 4,
        _ => 5,
    }
}

fn image(bed: &Bed, name: &str) -> String {
    fs::File::create(bed.path(name)).expect("made").set_len(64 << 20).expect("long");
    bed.path(name).display().to_string()
}

/// A folder with what file systems hold: files of several sizes, links of both kinds, a fifo's worth of modes.
fn tree(bed: &Bed) -> String {
    let dir = bed.path("tree");
    fs::create_dir_all(dir.join("d/e")).expect("made");
    fs::write(dir.join("large"), (0..400_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect::<Vec<_>>())
        .expect("written");
    fs::write(dir.join("d/small"), "hello\n").expect("written");
    fs::write(dir.join("d/empty"), "").expect("written");
    for n in 0..60 {
        fs::write(dir.join(format!("d/e/a file with number {n}")), n.to_string()).expect("written");
    }
    std::os::unix::fs::symlink("small", dir.join("d/short")).expect("linked");
    std::os::unix::fs::symlink("long/".repeat(40), dir.join("d/long")).expect("linked");
    fs::hard_link(dir.join("large"), dir.join("d/again")).expect("linked");
    dir.display().to_string()
}

/// The stream that `from` writes, taken by `to`.
fn pipe(bed: &Bed, from: &[&str], to: &[&str]) -> Done {
    let stream = bed.command(from).output().expect("started");
    assert!(stream.status.success(), "{}", String::from_utf8_lossy(&stream.stderr));
    fs::write(bed.path("stream"), stream.stdout).expect("written");
    bed.command(to)
        .stdin(fs::File::open(bed.path("stream")).expect("there"))
        .output()
        .expect("started")
        .into()
}

/// All commands that change snapshots and clones, on a pool of this version.
fn live_with(version: u64) {
    let bed = Bed::new();
    let (image, tree) = (image(&bed, "old.img"), tree(&bed));
    let run = |line: &str| bed.run(&line.split(' ').collect::<Vec<_>>()).good();
    let copy = |to: &str| bed.run(&["cp", "-r", "-p", &tree, to]).good();
    run(&format!("zpool create -o version={version} old {image}"));
    assert_eq!(run("zpool get -Ho value version old"), format!("{version}\n"));
    assert_eq!(run("zfs get -Ho value version old"), format!("{}\n", newest(version)));
    for fs_version in newest(version) + 1..=5 {
        bed.run(&["zfs", "create", "-o", &format!("version={fs_version}"), "old/fs"])
            .refused(&format!("cannot create 'old/fs': {NEEDS}"));
    }
    run("zfs create -o version=1 old/fs");
    copy("old:/");
    copy("old/fs:/");
    run("zfs snapshot -r old@a");
    bed.run(&["cp", &format!("{tree}/large"), "old/fs:/second"]).good();
    run("zfs snapshot -r old@b");
    run("rm old/fs:/second");
    run("zfs snapshot old/fs@c");
    bed.run(&["cp", &format!("{tree}/large"), "old/fs:/third"]).good();
    run("zfs clone old/fs@b old/clone");
    run("rm old/clone:/second");
    run("zfs snapshot old/clone@own");
    bed.expect_sound("old");
    run("zfs destroy old/fs@c");
    run("zfs promote old/clone");
    run("zfs destroy old/clone@a");
    run("zfs snapshot old/fs@d");
    bed.run(&["cp", &format!("{tree}/large"), "old/fs:/fourth"]).good();
    run("zfs rollback old/fs@d");
    run("zfs rename old/fs old/named");
    pipe(&bed, &["zfs", "send", "old/clone@b"], &["zfs", "receive", "old/got"]).good();
    pipe(&bed, &["zfs", "send", "-i", "@b", "old/clone@own"], &["zfs", "receive", "-F", "old/got"]).good();
    for name in ["old", "old/named", "old/clone", "old/got"] {
        expect_tree(&bed, name);
    }
    bed.expect_sound("old");
    run("zfs destroy -r old/named");
    run("zfs destroy -r old/got");
    bed.expect_sound("old");
    refusals(&bed, version);
    bed.expect_sound("old");
    is_upgraded(&bed, version, &tree);
}

/// The dataset has all files of the tree.
fn expect_tree(bed: &Bed, from: &str) {
    bed.run(&["cp", "-r", "-p", &format!("{from}:/tree"), "back"]).good();
    bed::expect_same(
        &bed.manifest("tree"),
        &bed.manifest("back"),
        &["ino", "dev", "blocks", "atime_ns", "ctime_ns", "data"],
    );
    fs::remove_dir_all(bed.path("back")).expect("removed");
}

/// Upgrades the pool by one version, to 28, and to the newest, then its file systems.
fn is_upgraded(bed: &Bed, version: u64, tree: &str) {
    let run = |line: &str| bed.run(&line.split(' ').collect::<Vec<_>>()).good();
    let copy = |to: &str| bed.run(&["cp", "-r", "-p", tree, to]).good();
    for next in BTreeSet::from([version + 1, 28]).into_iter().filter(|next| (version + 1..=28).contains(next))
    {
        run(&format!("zpool upgrade -V {next} old"));
        assert_eq!(run("zpool get -Ho value version old"), format!("{next}\n"));
        bed.run(&["cp", &format!("{tree}/large"), &format!("old/clone:/in {next}")]).good();
        run(&format!("zfs snapshot old/clone@at{next}"));
        bed.expect_sound("old");
    }
    run("zfs destroy old/clone@own");
    run("zpool upgrade old");
    let said = run("zfs upgrade -r old");
    assert!(said.contains("filesystems upgraded\n"), "{said}");
    // Before any node is of the new form.
    bed.expect_sound("old");
    copy("old/clone:/tree/d");
    // Not one with two names: zdb misses the other where the node says it lies in the directory of this one.
    run("rm old/clone:/tree/d/tree/d/small");
    run("zfs destroy old/clone@b");
    run("zfs create old/new");
    copy("old/new:/");
    expect_tree(bed, "old/new");
    bed.expect_sound("old");
}

/// Features that a pool of this version lacks are refused in the words of OpenZFS.
fn refusals(bed: &Bed, version: u64) {
    let refused = |needed: u64, line: &str, why: &str| {
        let done = bed.run(&line.split(' ').collect::<Vec<_>>());
        if version < needed {
            assert_eq!((done.status, done.err.lines().next()), (1, Some(why)), "{line}");
        } else {
            assert_eq!(done.status, 0, "{line}: {}", done.err);
        }
    };
    let set = format!("cannot set property for 'old': {NEEDS}");
    for (needed, assignment) in [
        (2, "copies=2"),
        (5, "compression=gzip"),
        (9, "refquota=50M"),
        (14, "aclinherit=passthrough-x"),
        (15, "userquota@1000=50M"),
        (20, "compression=zle"),
        (5000, "compression=lz4"),
        (5000, "checksum=sha512"),
    ] {
        refused(needed, &format!("zfs set {assignment} old"), &set);
    }
    refused(8, "zfs allow root create old", "cannot set permissions on 'old': pool must be upgraded");
    refused(18, "zfs hold tag old@a", "cannot hold: pool must be upgraded");
    refused(12, "zfs set user:x=y old@a", &format!("cannot set property for 'old@a': {NEEDS}"));
    let boot = "cannot set property for 'old': pool must be upgraded to support 'bootfs' property";
    refused(6, "zpool set bootfs=old old", boot);
    if version >= 18 {
        bed.run(&["zfs", "release", "tag", "old@a"]).good();
    }
}

macro_rules! versions {
    ($($name:ident = $version:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                live_with($version);
            }
        )*
    };
}

// Those that changed something; `oracle/versions` has all of them, with the kernel.
versions! {
    version_1_is_used = 1, version_2_is_used = 2, version_4_is_used = 4, version_8_is_used = 8,
    version_9_is_used = 9, version_10_is_used = 10, version_11_is_used = 11, version_12_is_used = 12,
    version_14_is_used = 14, version_15_is_used = 15, version_18_is_used = 18, version_21_is_used = 21,
    version_24_is_used = 24, version_25_is_used = 25, version_26_is_used = 26, version_27_is_used = 27,
    version_28_is_used = 28,
}

#[test]
fn file_systems_of_every_version_are_made_sent_and_upgraded_in_a_pool_with_features() {
    let bed = Bed::with_tank(256, &[]);
    let tree = tree(&bed);
    let get = |what: &str, name: &str| bed.run(&["zfs", "get", "-Ho", "value", what, name]).good();
    let list = |name: &str| bed.list(&format!("{name}:/"));
    for version in 1..=5u64 {
        let name = format!("tank/v{version}");
        bed.run(&["zfs", "create", "-o", &format!("version={version}"), &name]).good();
        assert_eq!(get("version", &name), format!("{version}\n"));
        bed.run(&["cp", "-r", "-p", &tree, &format!("{name}:/")]).good();
        bed.run(&["zfs", "snapshot", &format!("{name}@s")]).good();
        let copied = format!("tank/copy{version}");
        pipe(&bed, &["zfs", "send", &format!("{name}@s")], &["zfs", "receive", &copied]).good();
        assert_eq!(get("version", &copied), format!("{version}\n"));
        bed::expect_same(&list(&name), &list(&copied), &[]);
        // Version 3 brought case and normalization rules for names, version 4 quotas of users.
        let strange = format!("tank/strange{version}");
        let words =
            ["zfs", "create", "-o", &format!("version={version}"), "-o", "normalization=formC", &strange];
        let done = bed.run(&words);
        if version < 3 {
            done.refused(&format!("cannot create '{strange}': {NEEDS}"));
        } else {
            done.good();
        }
        let done = bed.run(&["zfs", "set", "userquota@1000=5M", &name]);
        if version < 4 {
            done.refused(&format!("cannot set property for '{name}': {NEEDS}"));
        } else {
            done.good();
        }
    }
    bed.expect_sound("tank");
    let down = bed.run(&["zfs", "set", "version=1", "tank/v3"]);
    assert_eq!((down.status, down.err.lines().count()), (1, 1), "{down:?}");
    for version in 1..=4u64 {
        let name = format!("tank/v{version}");
        let before = list(&name);
        let said = bed.run(&["zfs", "upgrade", "-V", &(version + 1).to_string(), &name]).good();
        assert_eq!(said, "1 filesystems upgraded\n");
        bed.run(&["zfs", "set", "version=5", &name]).good();
        assert_eq!(get("version", &name), "5\n");
        bed::expect_same(&before, &list(&name), &[]);
        bed.run(&["cp", "-r", "-p", &tree, &format!("{name}:/tree/d")]).good();
        bed.run(&["rm", &format!("{name}:/tree/d/small")]).good();
    }
    let said = bed.run(&["zfs", "upgrade", "-V", "5", "tank/v1"]).good();
    assert_eq!(said, "0 filesystems upgraded\n1 filesystems already at this version\n");
    bed.expect_sound("tank");
}

#[test]
fn invalid_versions_are_refused_before_a_device_is_written() {
    let bed = Bed::new();
    let image = bed.path("old.img");
    std::fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    let untouched = std::fs::read(&image).unwrap();
    let image = image.display().to_string();
    for version in ["0", "29", "4999", "5001"] {
        let done = bed.run(&["zpool", "create", "-o", &format!("version={version}"), "old", &image]);
        let why = format!("cannot create 'old': property 'version' number {version} is invalid.\n");
        assert_eq!((done.status, done.err), (1, why));
    }
    for (other, why) in [
        ("feature@lz4_compress=enabled", "'feature@' and 'version' properties cannot be specified together"),
        (
            "compatibility=2018",
            "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'",
        ),
    ] {
        let done = bed.run(&["zpool", "create", "-o", "version=28", "-o", other, "old", &image]);
        assert_eq!((done.status, done.err), (1, format!("{why}\n")));
    }
    assert!(std::fs::read(&image).unwrap() == untouched, "the device is as it was");
}

#[test]
fn a_pool_of_version_27_is_used_and_gets_later_versions() {
    let bed = Bed::new();
    std::fs::File::create(bed.path("old.img")).unwrap().set_len(128 << 20).unwrap();
    let image = bed.path("old.img").display().to_string();
    bed.run(&["zpool", "create", "-o", "version=27", "-O", "compression=gzip", "old", &image]).good();
    bed.run(&["zfs", "create", "old/fs"]).good();
    std::fs::write(bed.path("file"), vec![9; 400_000]).unwrap();
    let file = bed.path("file").display().to_string();
    bed.run(&["cp", &file, "old/fs:/file"]).good();
    bed.run(&["zfs", "snapshot", "old/fs@a"]).good();
    bed.run(&["zfs", "clone", "old/fs@a", "old/clone"]).good();
    bed.run(&["rm", "old/fs:/file"]).good();
    bed.run(&["zfs", "snapshot", "old/fs@b"]).good();
    bed.run(&["zfs", "promote", "old/clone"]).good();
    bed.run(&["zfs", "set", "quota=60M", "old/fs"]).good();
    for (property, value) in [("compression", "lz4"), ("compression", "zstd"), ("checksum", "sha512")] {
        let done = bed.run(&["zfs", "set", &format!("{property}={value}"), "old/fs"]);
        assert!(done.err.contains("pool must be upgraded to set this property or value"), "{}", done.err);
    }
    let done = bed.run(&["zfs", "set", "recordsize=1M", "old/fs"]);
    assert!(done.err.contains("must be power of 2 from 512B to 128K"), "{}", done.err);
    let done = bed.run(&["zfs", "bookmark", "old/fs@b", "old/fs#b"]);
    assert_eq!(done.err, "cannot create bookmark 'old/fs#b': bookmark feature not enabled\n");
    bed.expect_sound("old");
    assert_eq!(bed.pool_values(&["version", "old"]), "27\n");
    let done = bed.run(&["zpool", "set", "version=26", "old"]);
    assert!(done.err.contains("property 'version' number 26 is invalid."), "{}", done.err);
    bed.run(&["zpool", "set", "version=28", "old"]).good();
    assert_eq!(bed.pool_values(&["version", "old"]), "28\n");
    bed.run(&["zfs", "destroy", "-r", "old/fs"]).good();
    bed.expect_sound("old");
    let done = bed.run(&["zpool", "set", "version=5000", "old"]);
    let why = "cannot set property for 'old': invalid argument for this pool operation\n";
    assert_eq!((done.status, done.err.as_str()), (1, why));
    bed.run(&["zpool", "upgrade", "old"]).good();
    assert_eq!(bed.run(&["cat", "old/clone:/file"]).out.len(), 400_000);
    bed.expect_sound("old");
    bed.run(&["zpool", "destroy", "old"]).good();
}

#[test]
fn a_new_pool_takes_blake3_and_the_set_it_was_made_with_decides() {
    let bed = Bed::new();
    let image = |name: &str| {
        std::fs::File::create(bed.path(name)).unwrap().set_len(128 << 20).unwrap();
        bed.path(name).display().to_string()
    };
    bed.run(&["zpool", "create", "new", &image("new.img")]).good();
    assert_eq!(bed.pool_values(&["feature@blake3,feature@head_errlog", "new"]), "enabled\ndisabled\n");
    bed.run(&["zfs", "create", "-o", "checksum=blake3", "new/fs"]).good();
    std::fs::write(bed.path("file"), vec![9; 400_000]).unwrap();
    bed.run(&["cp", &bed.path("file").display().to_string(), "new/fs:/file"]).good();
    assert_eq!(bed.pool_values(&["feature@blake3", "new"]), "active\n");
    bed.run(&["check", "new"]).good();

    let set = "compatibility=openzfs-2.1-linux";
    bed.run(&["zpool", "create", "-o", set, "set", &image("set.img")]).good();
    assert_eq!(bed.pool_values(&["feature@blake3,feature@edonr", "set"]), "disabled\nenabled\n");
    let done = bed.run(&["zfs", "set", "checksum=blake3", "set"]);
    assert!(done.err.contains("pool must be upgraded to set this property or value"), "{}", done.err);
    let words = bed.run(&["zpool", "upgrade", "set"]).good();
    assert!(words.ends_with("already has all supported and requested features enabled.\n"), "{words}");
    bed.run(&["zpool", "set", "compatibility=off", "set"]).good();
    bed.run(&["zpool", "upgrade", "set"]).good();
    bed.run(&["zfs", "set", "checksum=blake3", "set"]).good();
    // A set that OpenZFS keeps in a file is known without the file.
    bed.run(&["zpool", "create", "-o", "compatibility=zol-0.6.5,2018", "first", &image("first.img")]).good();
    assert_eq!(bed.pool_values(&["feature@large_blocks,feature@edonr", "first"]), "enabled\ndisabled\n");
    bed.expect_sound("first");
}

#[test]
fn a_pool_of_the_last_legacy_version_gets_feature_flags() {
    let bed = Bed::new();
    std::fs::File::create(bed.path("old.img")).unwrap().set_len(128 << 20).unwrap();
    let image = bed.path("old.img").display().to_string();
    bed.run(&["zpool", "create", "-o", "version=28", "old", &image]).good();
    bed.run(&["zfs", "create", "-o", "compression=lzjb", "old/fs"]).good();
    std::fs::write(bed.path("file"), vec![9; 400_000]).unwrap();
    bed.run(&["cp", &bed.path("file").display().to_string(), "old/fs:/file"]).good();
    bed.run(&["zfs", "snapshot", "old/fs@before"]).good();
    let words = bed.run(&["zpool", "upgrade", "-V", "28", "old"]).good();
    assert!(words.ends_with("Pool 'old' is already formatted using version '28'.\n\n"), "{words}");
    let words = bed.run(&["zpool", "upgrade", "old"]).good();
    assert!(
        words
            .contains("Successfully upgraded 'old' from version 28 to feature flags.\nEnabled the following"),
        "{words}"
    );
    assert_eq!(bed.pool_values(&["version,feature@lz4_compress", "old"]), "-\nactive\n");
    bed.run(&["zfs", "set", "compression=zstd", "checksum=skein", "old/fs"]).good();
    bed.run(&["cp", &bed.path("file").display().to_string(), "old/fs:/file"]).good();
    bed.run(&["zfs", "destroy", "old/fs@before"]).good();
    assert_eq!(bed.run(&["cat", "old/fs:/file"]).out.len(), 400_000);
    let words = bed.run(&["zpool", "upgrade", "-V", "28", "old"]).good();
    assert!(words.ends_with("is already formatted using more current version '5000'.\n\n"), "{words}");
    assert_eq!(bed.run(&["zpool", "upgrade", "-V", "29", "old"]).status, 2);
    let done = bed.run(&["zfs", "upgrade", "-V", "4", "old/fs"]);
    assert_eq!(
        done.out,
        "old/fs: can not be downgraded; it is already at version 5\n0 filesystems upgraded\n"
    );
    assert_eq!(done.status, 1);
    bed.expect_sound("old");
}

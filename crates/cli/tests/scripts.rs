//! Commands as scripts written for OpenZFS send them: trees with clones destroyed, streams with options, tables with
//! intervals.

mod bed;

use std::fs;
use std::process::Stdio;

use bed::live::{Live, write};
use bed::{Bed, Done};

/// Names below `top`, in order.
fn names(bed: &Bed, top: &str) -> Vec<String> {
    let text = bed.run(&["zfs", "list", "-H", "-o", "name", "-t", "all", "-r", top]).good();
    text.lines().map(str::to_owned).collect()
}

/// A stream of `bed`'s pool, in a file.
fn send(bed: &Bed, words: &[&str]) -> Vec<u8> {
    let output = bed.command(&[&["zfs", "send"], words].concat()).output().expect("it starts");
    assert!(output.status.success(), "{:?}", Done::from(output));
    output.stdout
}

fn receive(bed: &Bed, stream: &[u8], words: &[&str]) -> Done {
    fs::write(bed.path("stream"), stream).expect("written");
    let stream = fs::File::open(bed.path("stream")).expect("there");
    bed.command(&[&["zfs", "receive"], words].concat()).stdin(stream).output().expect("it starts").into()
}

/// Puts a file of so many bytes that do not compress into a dataset.
fn put(bed: &Bed, place: &str, len: usize) {
    let mut word = 7u64;
    let noise = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 33) as u8
    });
    fs::write(bed.path("file"), noise.take(len).collect::<Vec<u8>>()).expect("written");
    bed.run(&["cp", &bed.path("file").display().to_string(), place]).good();
}

#[test]
fn a_tree_is_destroyed_with_the_clones_in_it_whatever_their_names() {
    let bed = Bed::with_tank(128, &[]);
    let zfs = |words: &[&str]| bed.run(&[&["zfs"], words].concat());
    let grow = || {
        zfs(&["create", "-p", "tank/d/b"]).good();
        zfs(&["snapshot", "tank/d/b@s"]).good();
        zfs(&["clone", "tank/d/b@s", "tank/d/a"]).good();
        zfs(&["snapshot", "tank/d/a@t"]).good();
        zfs(&["clone", "tank/d/a@t", "tank/d/c"]).good();
        zfs(&["create", "tank/d/c/below"]).good();
    };
    grow();
    let order = ["tank/d/c/below", "tank/d/c", "tank/d/a@t", "tank/d/a", "tank/d/b@s", "tank/d/b", "tank/d"];
    let would: String = order.iter().map(|name| format!("would destroy {name}\n")).collect();
    assert_eq!(zfs(&["destroy", "-rnv", "tank/d"]).good(), would);
    assert_eq!(zfs(&["destroy", "-rv", "tank/d"]).good(), would.replace("would", "will"));
    // Clones outside of the tree, and datasets cloned from them, need -R.
    grow();
    zfs(&["clone", "tank/d/c@none", "tank/z"]).refused("cannot open 'tank/d/c@none': dataset does not exist");
    zfs(&["clone", "tank/d/a@t", "tank/a"]).good();
    zfs(&["snapshot", "tank/a@u"]).good();
    zfs(&["clone", "tank/a@u", "tank/d/0"]).good();
    zfs(&["destroy", "-r", "tank/d"]).refused("cannot destroy 'tank/d': filesystem has dependent clones");
    zfs(&["destroy", "-R", "tank/d"]).good();
    assert_eq!(names(&bed, "tank"), ["tank", "tank/fs"]);
    // The same holds for destroying one snapshot of the tree, and for a rollback past newer ones.
    grow();
    zfs(&["clone", "tank/d/a@t", "tank/a"]).good();
    assert!(zfs(&["destroy", "-Rv", "tank/d/b@s"]).good().contains("will destroy tank/d/a@t\n"));
    assert_eq!(names(&bed, "tank"), ["tank", "tank/d", "tank/d/b", "tank/fs"]);
    for snapshot in ["tank/fs@1", "tank/fs@2", "tank/fs@3"] {
        zfs(&["snapshot", snapshot]).good();
    }
    zfs(&["clone", "tank/fs@2", "tank/d/y"]).good();
    zfs(&["snapshot", "tank/d/y@s"]).good();
    zfs(&["clone", "tank/d/y@s", "tank/d/x"]).good();
    zfs(&["destroy", "-d", "tank/fs@2"]).good();
    zfs(&["rollback", "-R", "tank/fs@1"]).good();
    assert_eq!(names(&bed, "tank"), ["tank", "tank/d", "tank/d/b", "tank/fs", "tank/fs@1"]);
    bed.expect_sound("tank");
}

#[test]
fn a_clone_that_holds_what_it_was_cloned_from_stays() {
    let bed = Bed::with_tank(64, &[]);
    let zfs = |words: &[&str]| bed.run(&[&["zfs"], words].concat());
    zfs(&["snapshot", "tank/fs@s"]).good();
    zfs(&["clone", "tank/fs@s", "tank/c"]).good();
    zfs(&["create", "tank/c/zz"]).good();
    zfs(&["rename", "tank/fs", "tank/c/fs"]).good();
    let all = names(&bed, "tank");
    for words in [["destroy", "-r", "tank/c"], ["destroy", "-R", "tank/c"], ["destroy", "-R", "tank/c/fs@s"]]
    {
        zfs(&words).refused("cannot destroy 'tank/c': recursive dataset dependency");
    }
    assert_eq!(names(&bed, "tank"), all);
    zfs(&["promote", "tank/c"]).good();
    zfs(&["destroy", "-r", "tank/c"]).good();
    assert_eq!(names(&bed, "tank"), ["tank"]);
    bed.expect_sound("tank");
}

#[test]
fn all_pools_are_scrubbed_where_their_servers_hold_them() {
    let Some(live) = Live::with_tank(64) else { return };
    fs::File::create(live.path("other.img")).unwrap().set_len(64 << 20).unwrap();
    live.run(&["zpool", "create", "-m", &live.text("mnt2"), "other", &live.text("other.img")]).good();
    write(&live.path("mnt/file"), &[7; 100_000]);
    assert_eq!(live.run(&["zpool", "scrub", "-aw"]).good(), "");
    for pool in ["tank", "other"] {
        let status = live.run(&["zpool", "status", pool]).good();
        assert!(status.contains("  scan: scrub repaired 0B in "), "{status}");
        live.run(&["zpool", "export", pool]).good();
        live.bed.expect_sound(pool);
    }
}

#[test]
fn a_stream_that_goes_on_takes_the_options_it_began_with() {
    let bed = Bed::with_tank(128, &[]);
    put(&bed, "tank/fs:/file", 3 << 20);
    bed.run(&["zfs", "snapshot", "tank/fs@s"]).good();
    let stream = send(&bed, &["tank/fs@s"]);
    let done = receive(&bed, &stream[..stream.len() / 2], &["-s", "tank/part"]);
    assert!(done.status == 1 && done.err.contains("    zfs send -t 1-"), "{done:?}");
    let get = ["zfs", "get", "-Ho", "value", "receive_resume_token", "tank/part"];
    let token = bed.run(&get).good().trim().to_owned();
    let plain = send(&bed, &["-t", &token]);
    // The token decides about the form of the stream, and overrides other options.
    let said = ["--large-block", "--embed", "--compressed", "--raw", "-D", "-t", &token];
    assert!(plain == send(&bed, &said), "other bytes");
    for refused in ["-p", "-R", "-b", "-h"] {
        let done = bed.run(&["zfs", "send", refused, "-t", &token]);
        assert_eq!((done.status, done.err.lines().next()), (2, Some("invalid flags combined with -t")));
    }
    receive(&bed, &plain, &["-s", "tank/part"]).good();
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/part:/"), &["object"]);
    bed.expect_sound("tank");
}

#[test]
fn running_sends_print_their_progress() {
    let bed = Bed::with_tank(64, &[]);
    put(&bed, "tank/fs:/file", 300_000);
    for snapshot in ["tank/fs@a", "tank/fs@b"] {
        bed.run(&["zfs", "snapshot", snapshot]).good();
    }
    let said = |words: &[&str]| -> String {
        let mut command = bed.command(&[&["zfs", "send"], words].concat());
        let output = command.stdout(Stdio::piped()).output().expect("it starts");
        assert!(output.status.success());
        Done::from(output).err
    };
    let text = said(&["-vR", "tank/fs@b"]);
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("TIME")).collect();
    assert_eq!(headings, ["TIME        SENT   SNAPSHOT tank/fs@a", "TIME        SENT   SNAPSHOT tank/fs@b"]);
    assert!(!said(&["-vP", "tank/fs@a"]).contains("TIME") && !said(&["tank/fs@a"]).contains("TIME"));
    bed.expect_sound("tank");
}

#[test]
fn excluded_datasets_are_not_sent() {
    let bed = Bed::with_tank(128, &[]);
    let zfs = |words: &[&str]| bed.run(&[&["zfs"], words].concat());
    for name in ["tank/t/a/x", "tank/t/ab", "tank/t/b"] {
        zfs(&["create", "-p", name]).good();
    }
    zfs(&["snapshot", "-r", "tank/t@s"]).good();
    let stream = send(&bed, &["-R", "-X", "tank/t/a,tank/t/none", "--exclude=tank/t/b", "tank/t@s"]);
    receive(&bed, &stream, &["tank/u"]).good();
    assert_eq!(names(&bed, "tank/u"), ["tank/u", "tank/u@s", "tank/u/ab", "tank/u/ab@s"]);
    zfs(&["send", "-X", "tank/t/a", "tank/t@s"])
        .refused("Cannot specify dataset exclusion (-X) on a non-recursive send.");
    zfs(&["send", "-R", "-X", "tank/t", "tank/t@s"])
        .refused("warning: cannot send 'tank/t@s': it is excluded");
    let done = zfs(&["send", "-R", "-X", "tank", "tank/t@s"]);
    assert_eq!(
        (done.status, done.err.lines().next()),
        (2, Some("-X tank: not a valid non-root dataset name."))
    );
    bed.expect_sound("tank");
}

#[test]
fn a_backup_is_sent_back_with_what_it_received() {
    let bed = Bed::with_tank(128, &["compression=gzip", "my:note=kept"]);
    let zfs = |words: &[&str]| bed.run(&[&["zfs"], words].concat());
    zfs(&["snapshot", "tank/fs@s"]).good();
    receive(&bed, &send(&bed, &["-p", "tank/fs@s"]), &["tank/backup"]).good();
    zfs(&["set", "compression=lz4", "atime=off", "tank/backup"]).good();
    let shown = |name: &str| {
        zfs(&["get", "-Ho", "value,source", "compression,atime,my:note", name]).good().replace('\n', " ")
    };
    receive(&bed, &send(&bed, &["-p", "tank/backup@s"]), &["tank/copy"]).good();
    assert_eq!(shown("tank/copy"), "lz4\treceived off\treceived kept\treceived ");
    receive(&bed, &send(&bed, &["-b", "tank/backup@s"]), &["tank/back"]).good();
    assert_eq!(shown("tank/back"), "gzip\treceived on\tdefault kept\treceived ");
    bed.expect_sound("tank");
}

#[test]
fn holds_arrive_with_their_snapshots() {
    let bed = Bed::with_tank(128, &["compression=lz4"]);
    let zfs = |words: &[&str]| bed.run(&[&["zfs"], words].concat());
    for name in ["tank/fs@a", "tank/fs@b"] {
        zfs(&["snapshot", name]).good();
    }
    zfs(&["hold", "keep", "tank/fs@a", "tank/fs@b"]).good();
    zfs(&["hold", "and keep", "tank/fs@b"]).good();
    let held = |name: &str| {
        let holds = zfs(&["holds", "-H", name]).good();
        holds.lines().map(|line| line.split('\t').nth(1).expect("a tag").to_owned()).collect::<Vec<_>>()
    };
    let stream = send(&bed, &["-h", "-I", "@a", "tank/fs@b"]);
    receive(&bed, &send(&bed, &["tank/fs@a"]), &["tank/copy"]).good();
    receive(&bed, &stream, &["tank/copy"]).good();
    assert_eq!((held("tank/copy@a"), held("tank/copy@b")), (vec![], vec!["and keep".into(), "keep".into()]));
    // Without -p, properties stay where they are.
    assert_eq!(zfs(&["get", "-Ho", "source", "compression", "tank/copy"]).good(), "default\n");
    let tree = send(&bed, &["-hR", "tank/fs@b"]);
    receive(&bed, &tree, &["tank/all"]).good();
    assert_eq!((held("tank/all@a").len(), held("tank/all@b").len()), (1, 2));
    receive(&bed, &tree, &["-h", "tank/free"]).good();
    assert_eq!(held("tank/free@b"), Vec::<String>::new());
    zfs(&["destroy", "tank/all@b"]).refused(
        "cannot destroy snapshot tank/all@b: it's being held. Run 'zfs holds -r tank/all@b' to see holders.",
    );
    bed.expect_sound("tank");
}

#[test]
fn all_snapshots_of_a_clone_are_sent_from_its_origin() {
    let bed = Bed::with_tank(128, &[]);
    let zfs = |words: &[&str]| bed.run(&[&["zfs"], words].concat());
    put(&bed, "tank/fs:/one", 50_000);
    zfs(&["snapshot", "tank/fs@s"]).good();
    zfs(&["clone", "tank/fs@s", "tank/clone"]).good();
    put(&bed, "tank/clone:/two", 60_000);
    zfs(&["snapshot", "tank/clone@t"]).good();
    put(&bed, "tank/clone:/three", 70_000);
    zfs(&["snapshot", "tank/clone@u"]).good();
    let steps = zfs(&["send", "-nP", "-I", "tank/fs@s", "tank/clone@u"]).good();
    let steps: Vec<Vec<&str>> = steps.lines().map(|line| line.split('\t').take(3).collect()).collect();
    assert_eq!(steps[0], ["incremental", "tank/fs@s", "tank/clone@t"]);
    assert_eq!((steps[1][2], steps.len()), ("tank/clone@u", 3));
    receive(&bed, &send(&bed, &["-I", "tank/fs@s", "tank/clone@u"]), &["tank/again"]).good();
    assert_eq!(names(&bed, "tank/again"), ["tank/again", "tank/again@t", "tank/again@u"]);
    assert_eq!(zfs(&["get", "-Ho", "value", "origin", "tank/again"]).good(), "tank/fs@s\n");
    bed::expect_same(&bed.list("tank/clone:/"), &bed.list("tank/again:/"), &["object"]);
    zfs(&["snapshot", "tank/fs@later"]).good();
    let done = zfs(&["send", "-I", "tank/fs@later", "tank/clone@u"]);
    assert_eq!(
        (done.status, done.err.lines().next()),
        (2, Some("incremental source must be in same filesystem"))
    );
    bed.expect_sound("tank");
}

#[test]
fn pools_have_user_properties() {
    let bed = Bed::new();
    fs::File::create(bed.path("tank.img")).unwrap().set_len(64 << 20).unwrap();
    let image = bed.path("tank.img").display().to_string();
    let zpool = |words: &[&str]| bed.run(&[&["zpool"], words].concat());
    zpool(&["create", "-o", "My:owner=x", "tank", &image])
        .refused("property 'My:owner' is not a valid pool or vdev property");
    zpool(&["create", "-o", "my:owner=the ops", "tank", &image]).good();
    let get = |word: &str| zpool(&["get", "-H", "-o", "property,value,source", word, "tank"]).good();
    assert_eq!(get("my:owner"), "my:owner\tthe ops\tlocal\n");
    assert_eq!(get("my:none"), "my:none\t-\tdefault\n");
    assert_eq!(zpool(&["list", "-H", "-o", "name,my:owner", "tank"]).good(), "tank\tthe ops\n");
    let all = get("all");
    let at = |line: &str| all.lines().position(|other| other.starts_with(line)).expect("it is shown");
    assert!(at("my:owner\tthe ops\tlocal") < at("feature@"));
    bed.expect_sound("tank");
}

#[test]
fn dry_runs_list_everything_that_would_be_made() {
    let bed = Bed::with_tank(64, &[]);
    let create = |words: &[&str]| bed.run(&[&["zfs", "create"], words].concat()).good();
    assert_eq!(
        create(&["-nv", "-o", "compression=lz4", "tank/a"]),
        "would create tank/a\n\tcompression=lz4\n"
    );
    assert_eq!(
        create(&["-npv", "-o", "my:a=1", "-o", "atime=off", "tank/x/y"]),
        "would create ancestors of tank/x/y\nwould create tank/x/y\n\tmy:a=1\n\tatime=off\n"
    );
    assert_eq!(create(&["-npP", "tank/x/y"]), "create_ancestors\ttank/x/y\ncreate\ttank/x/y\n");
    assert_eq!(names(&bed, "tank"), ["tank", "tank/fs"]);
    assert_eq!(create(&["-pv", "tank/x/y"]), "create ancestors of tank/x/y\ncreate tank/x/y\n");
    bed.expect_sound("tank");
}

#[test]
fn values_that_are_words_are_sorted_as_in_openzfs() {
    let bed = Bed::with_tank(64, &["compression=off"]);
    for word in ["gzip-9", "lz4", "on", "zstd"] {
        bed.run(&["zfs", "create", "-o", &format!("compression={word}"), &format!("tank/{word}")]).good();
    }
    let sorted = |option: &str| {
        let list = ["zfs", "list", "-Hr", "-d1", "-o", "name", option, "compression", "tank"];
        bed.run(&list).good().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let up = ["tank/gzip-9", "tank/lz4", "tank/fs", "tank", "tank/on", "tank/zstd"];
    assert_eq!(sorted("-s"), up);
    let down = ["tank/zstd", "tank", "tank/on", "tank/fs", "tank/lz4", "tank/gzip-9"];
    assert_eq!(sorted("-S"), down);
    bed.expect_sound("tank");
}

#[test]
fn shares_have_options_that_nfs_and_smb_know() {
    let bed = Bed::with_tank(64, &[]);
    let set = |word: &str| bed.run(&["zfs", "set", word, "tank/fs"]);
    for (word, property) in
        [("sharenfs=foo", "sharenfs"), ("sharenfs=rw,nope=1", "sharenfs"), ("sharesmb=bar", "sharesmb")]
    {
        set(word).refused(&format!(
            "cannot set property for 'tank/fs': '{property}' cannot be set to invalid options"
        ));
    }
    for word in ["sharenfs=on", "sharenfs=rw=@10.0.0.0/8,no_root_squash", "sharesmb=off", "sharenfs=off"] {
        assert_eq!(set(word).good(), "");
    }
    bed.expect_sound("tank");
}

#[test]
fn wait_prints_the_remaining_work_at_intervals() {
    let bed = Bed::with_tank(64, &[]);
    let wait = |words: &[&str]| bed.run(&[&["zpool", "wait"], words].concat());
    assert_eq!(wait(&["tank"]).good(), "");
    assert_eq!(wait(&["-t", "scrub,free", "tank", "1"]).good(), "    FREE   SCRUB\n       0       0\n");
    assert_eq!(wait(&["-Hp", "-t", "scrub,free", "tank", "0.5"]).good(), "0\t0\n");
    let stamped = wait(&["-T", "u", "-H", "-t", "free", "tank", "1"]).good();
    assert!(stamped.lines().next().is_some_and(|line| line.parse::<u64>().is_ok()), "{stamped}");
    let done = wait(&["tank", "1", "2"]);
    assert_eq!((done.status, done.err.lines().next()), (2, Some("too many arguments")));
    bed.expect_sound("tank");
}

#[test]
fn a_pool_that_lacks_features_says_so_until_it_is_upgraded() {
    let bed = Bed::new();
    fs::File::create(bed.path("tank.img")).unwrap().set_len(64 << 20).unwrap();
    let image = bed.path("tank.img").display().to_string();
    let zpool = |words: &[&str]| bed.run(&[&["zpool"], words].concat());
    zpool(&["create", "-d", "tank", &image]).good();
    let status = "status: Some supported and requested features are not enabled on the pool.\n\
                  \tThe pool can still be used, but some features are unavailable.\n\
                  action: Enable all features using 'zpool upgrade'. Once this is done,\n\
                  \tthe pool may no longer be accessible by software that does not support\n\
                  \tthe features. See zpool-features(7) for details.\n";
    let shown = zpool(&["status", "tank"]).good();
    assert!(shown.contains(status), "{shown}");
    assert_eq!(zpool(&["status", "-x"]).good(), "all pools are healthy\n");
    // Features outside the compatibility set are not reported as missing.
    zpool(&["set", "compatibility=legacy", "tank"]).good();
    assert!(!zpool(&["status", "tank"]).good().contains("status:"));
    zpool(&["set", "compatibility=off", "tank"]).good();
    zpool(&["upgrade", "tank"]).good();
    assert!(!zpool(&["status", "tank"]).good().contains("status:"));
    bed.expect_sound("tank");
}

#[test]
fn a_mount_can_do_without_extended_attributes() {
    let Some(live) = Live::with_tank(64) else { return };
    let file = live.path("mnt/file");
    write(&file, b"x");
    live.run(&["zfs", "unmount", "tank"]).good();
    live.run(&["zfs", "mount", "-o", "noxattr", "tank"]).good();
    let refused = xattr::set(&file, "user.colour", b"blue").expect_err("no attributes");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()));
    live.run(&["zfs", "mount", "-o", "remount", "tank"]).good();
    xattr::set(&file, "user.colour", b"blue").expect("attributes again");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

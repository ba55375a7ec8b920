//! The refusals of `zfs`, word by word.

mod bed;

use bed::{Bed, Done, streams};

fn zfs(bed: &Bed, line: &str) -> Done {
    let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
    bed.run(&words)
}

fn value(bed: &Bed, property: &str, name: &str) -> String {
    zfs(bed, &format!("get -Hpo value {property} {name}")).good().trim_end().to_owned()
}

/// The command line was wrong: this line, then the usage once.
#[track_caller]
fn expect_usage(done: &Done, line: &str) {
    let mut lines = done.err.lines();
    assert_eq!((done.status, lines.next()), (2, Some(line)), "{done:?}");
    assert_eq!(lines.filter(|line| line.starts_with("usage:")).count(), 1, "{done:?}");
}

/// It was refused in just these lines.
#[track_caller]
fn expect_lines(done: &Done, lines: &[&str]) {
    assert_eq!((done.status, done.err.lines().collect::<Vec<_>>().as_slice()), (1, lines), "{done:?}");
}

#[test]
fn a_percent_sign_is_in_no_name_that_is_made() {
    let bed = Bed::with_tank(64, &[]);
    zfs(&bed, "snapshot tank/fs@a").good();
    zfs(&bed, "bookmark tank/fs@a tank/fs#m").good();
    for (line, cannot) in [
        ("snapshot tank/fs@a%b", "create snapshot 'tank/fs@a%b'"),
        ("bookmark tank/fs@a tank/fs#a%b", "create bookmark 'tank/fs#a%b'"),
        ("bookmark tank/fs#m #a%b", "create bookmark 'tank/fs#a%b'"),
        ("rename tank/fs@a tank/fs@a%b", "rename to 'tank/fs@a%b'"),
        ("rename tank/fs@a a%b", "rename to 'tank/fs@a%b'"),
        ("rename tank/fs tank/a%b", "rename to 'tank/a%b'"),
        ("clone tank/fs@a tank/a%b", "create 'tank/a%b'"),
    ] {
        zfs(&bed, line).refused(&format!("cannot {cannot}: invalid character % in name"));
    }
    zfs(&bed, "rename tank/fs tank/b@7")
        .refused("cannot rename to 'tank/b@7': snapshot delimiter '@' is not expected here");
    assert_eq!(zfs(&bed, "list -Hro name -t all tank").good(), "tank\ntank/fs\ntank/fs@a\ntank/fs#m\n");
    bed.expect_sound("tank");
}

#[test]
fn all_dependents_of_a_destroy_are_listed() {
    let bed = Bed::with_tank(64, &[]);
    for line in [
        "create tank/fs/a",
        "create tank/fs/b",
        "snapshot tank/fs/a@1",
        "snapshot tank/fs/a@2",
        "snapshot tank/fs@top",
        "clone tank/fs/a@2 tank/c",
        "create tank/c/in",
        "snapshot tank/c/in@x",
        "snapshot tank/c@y",
        "clone tank/c/in@x tank/d",
        "snapshot tank/d@z",
    ] {
        zfs(&bed, line).good();
    }
    let clones = ["tank/d@z", "tank/d", "tank/c/in@x", "tank/c/in", "tank/c@y", "tank/c"];
    let by_force = "use '-R' to destroy the following datasets:";
    expect_lines(
        &zfs(&bed, "destroy tank/fs"),
        &[
            "cannot destroy 'tank/fs': filesystem has children",
            "use '-r' to destroy the following datasets:",
            "tank/fs/b",
            "tank/fs/a@1",
            "tank/fs/a@2",
            "tank/fs/a",
            "tank/fs@top",
        ],
    );
    let dependent = "cannot destroy 'tank/fs': filesystem has dependent clones";
    let wanted = [&[dependent, by_force][..], &clones].concat();
    expect_lines(&zfs(&bed, "destroy -r tank/fs"), &wanted);
    let dependent = "cannot destroy 'tank/fs/a@2': snapshot has dependent clones";
    let wanted = [&[dependent, by_force][..], &clones].concat();
    expect_lines(&zfs(&bed, "destroy tank/fs/a@2"), &wanted);
    let refused = "cannot rollback to 'tank/fs/a@1': clones of previous snapshots exist";
    let how = "use '-R' to force deletion of the following clones and dependents:";
    let wanted = [&[refused, how][..], &clones].concat();
    expect_lines(&zfs(&bed, "rollback -r tank/fs/a@1"), &wanted);
    zfs(&bed, "destroy -R tank/fs").good();
    assert_eq!(zfs(&bed, "list -Hro name -t all tank").good(), "tank\n");
    bed.expect_sound("tank");
}

#[test]
fn options_of_rename_belong_to_file_systems_or_to_snapshots() {
    let bed = Bed::with_tank(64, &[]);
    zfs(&bed, "snapshot tank/fs@a").good();
    for (line, why) in [
        ("rename -pu tank/fs tank/x/y", "-u and -p options are mutually exclusive"),
        ("rename -ru tank/fs@a tank/fs@b", "-u and -r options are mutually exclusive"),
        ("rename -pr tank/fs@a tank/fs@b", "-p and -r options are mutually exclusive"),
    ] {
        expect_usage(&zfs(&bed, line), why);
    }
    for option in ["-u", "-p"] {
        zfs(&bed, &format!("rename {option} tank/fs@a tank/fs@b"))
            .refused("cannot open 'tank/fs@a': snapshot delimiter '@' is not expected here");
    }
    // The new name is the present one.
    for line in ["rename tank/fs tank/fs", "rename tank/fs@a tank/fs@a", "rename tank tank"] {
        assert_eq!(zfs(&bed, line).good(), "", "{line}");
    }
    zfs(&bed, "rename tank/no tank/no").refused("cannot open 'tank/no': dataset does not exist");
}

#[test]
fn a_delimiter_that_is_not_expected_is_named() {
    let bed = Bed::with_tank(64, &[]);
    zfs(&bed, "snapshot tank/fs@s").good();
    zfs(&bed, "bookmark tank/fs@s tank/fs#m").good();
    let (at, hash) = ("snapshot delimiter '@'", "bookmark delimiter '#'");
    for (line, name, delimiter) in [
        ("send -nv tank/fs#m", "tank/fs#m", hash),
        ("send tank/fs#m", "tank/fs#m", hash),
        ("set x:y=1 tank/fs#m", "tank/fs#m", hash),
        ("inherit x:y tank/fs#m", "tank/fs#m", hash),
        ("mount tank/fs@s", "tank/fs@s", at),
        ("mount tank/fs#m", "tank/fs#m", hash),
    ] {
        zfs(&bed, line).refused(&format!("cannot open '{name}': {delimiter} is not expected here"));
    }
}

#[test]
fn words_in_the_wrong_place_are_answered_with_the_usage() {
    let bed = Bed::with_tank(64, &[]);
    expect_usage(&zfs(&bed, "set tank/fs compression=lz4"), "missing property=value argument(s)");
    for line in ["list --json-int tank", "get --json-int used tank"] {
        expect_usage(&zfs(&bed, line), "'--json-int' only works with '-j' option");
    }
    assert_eq!(value(&bed, "compression", "tank/fs"), "on");
}

#[test]
fn limits_set_together_are_judged_as_one_after_the_other() {
    let bed = Bed::with_tank(128, &[]);
    let above = "cannot set property for 'tank/fs': size is greater than available space";
    let below = "cannot set property for 'tank/fs': size is less than current used or reserved space";
    for (line, why) in [
        ("quota=1M reservation=5M", above),
        ("reservation=5M quota=1M", below),
        ("refquota=1M refreservation=5M", above),
        ("refreservation=5M refquota=1M", below),
        ("refreservation=5M quota=1M", below),
        ("quota=1M refreservation=5M", above),
    ] {
        zfs(&bed, &format!("set {line} tank/fs")).refused(why);
    }
    for property in ["quota", "reservation", "refquota", "refreservation"] {
        assert_eq!(value(&bed, property, "tank/fs"), "0", "{property}");
    }
    let new = "create -o quota=1M -o reservation=5M tank/new";
    zfs(&bed, new).refused("cannot create 'tank/new': out of space");
    zfs(&bed, "set quota=6M reservation=5M refreservation=2M tank/fs").good();
    // Reservations that the same command removes do not count against the new quota.
    zfs(&bed, "set reservation=none refreservation=none quota=1M tank/fs").good();
    zfs(&bed, "set quota=9M reservation=5M tank/fs").good();
    bed.expect_sound("tank");
}

#[test]
fn written_counts_from_any_snapshot_in_the_history() {
    let bed = Bed::with_tank(64, &[]);
    std::fs::write(bed.path("file"), vec![7; 300_000]).expect("written");
    let file = bed.path("file").display().to_string();
    zfs(&bed, "set compression=off tank").good();
    zfs(&bed, "snapshot tank/fs@1").good();
    bed.run(&["cp", &file, "tank/fs:/one"]).good();
    zfs(&bed, "snapshot tank/fs@2").good();
    zfs(&bed, "clone tank/fs@2 tank/clone").good();
    bed.run(&["cp", &file, "tank/clone:/two"]).good();
    let number = |name: &str, of: &str| -> u64 { value(&bed, name, of).parse().expect("a number") };
    assert_eq!(number("written@tank/fs@1", "tank/fs"), number("written@1", "tank/fs"));
    assert!(number("written@tank/fs@1", "tank/fs") > 300_000);
    assert_eq!(number("written@tank/fs@2", "tank/clone"), number("written", "tank/clone"));
    assert!(number("written@tank/fs@1", "tank/clone") > 600_000);
    for absent in ["written@1", "written@tank/fs@no", "written@tank/no@1"] {
        assert_eq!(value(&bed, absent, "tank/clone"), "-", "{absent}");
    }
}

#[test]
fn owners_are_listed_by_the_kinds_that_were_asked_for() {
    let bed = Bed::with_tank(64, &[]);
    std::fs::write(bed.path("file"), "text").expect("written");
    bed.run(&["cp", &bed.path("file").display().to_string(), "tank/fs:/file"]).good();
    let listed = |command: &str, kinds: &str| -> Vec<String> {
        let done = zfs(&bed, &format!("{command} -Ho type {kinds}tank/fs")).good();
        let mut found: Vec<String> = done.lines().map(str::to_owned).collect();
        found.dedup();
        found
    };
    let (user, group) = ("POSIX User", "POSIX Group");
    assert_eq!(listed("userspace", ""), [user]);
    assert_eq!(listed("groupspace", ""), [group]);
    for command in ["userspace", "groupspace"] {
        assert_eq!(listed(command, "-t posixgroup "), [group]);
        assert_eq!(listed(command, "-t posixuser "), [user]);
        assert_eq!(listed(command, "-t smbuser,smbgroup "), Vec::<String>::new());
        for all in ["-t all ", "-t posixuser,posixgroup "] {
            assert_eq!(listed(command, all), [group, user]);
        }
    }
}

#[test]
fn create_p_takes_a_dataset_that_is_there_as_it_is() {
    let bed = Bed::with_tank(64, &[]);
    zfs(&bed, "create -p -p tank/a/b").good();
    zfs(&bed, "create -pp -o compression=bogus tank/a/b").good();
    assert_eq!(value(&bed, "compression", "tank/a/b"), "on");
    zfs(&bed, "create -o compression=bogus tank/a/b").refused(
        "cannot create 'tank/a/b': 'compression' must be one of 'on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | \
         zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]'",
    );
}

#[test]
fn names_stay_utf_8_where_a_normalization_is_inherited() {
    let bed = Bed::with_tank(64, &[]);
    let both = |name: &str| [value(&bed, "utf8only", name), value(&bed, "normalization", name)];
    zfs(&bed, "create -o utf8only=off -o normalization=formD tank/n")
        .refused("cannot create 'tank/n': 'utf8only' must be set 'on' if normalization chosen");
    zfs(&bed, "create -o normalization=formD tank/n").good();
    for (words, name, wanted) in [
        ("", "tank/n/inherits", ["on", "formD"]),
        ("-o utf8only=off", "tank/n/off", ["on", "formD"]),
        ("-o normalization=none", "tank/n/none", ["on", "none"]),
        ("-o utf8only=off -o normalization=none", "tank/n/both", ["off", "none"]),
        ("-o utf8only=off", "tank/plain", ["off", "none"]),
    ] {
        let line = format!("create {words} {name}");
        zfs(&bed, &line.replace("create  ", "create ")).good();
        assert_eq!(both(name), wanted, "{line}");
    }
}

#[test]
fn counts_begin_with_the_first_limit_and_include_what_is_there() {
    let bed = Bed::with_tank(64, &[]);
    let counts = |name: &str| {
        zfs(&bed, &format!("get -H -o value,source filesystem_count,snapshot_count {name}")).good()
    };
    for line in ["create tank/fs/a", "create tank/fs/a/b", "snapshot tank/fs/a@s"] {
        zfs(&bed, line).good();
    }
    assert_eq!(counts("tank/fs"), "none\tdefault\nnone\tdefault\n");
    zfs(&bed, "set filesystem_limit=none tank/fs").good();
    assert_eq!(counts("tank/fs"), "none\tdefault\nnone\tdefault\n");
    zfs(&bed, "set snapshot_limit=10 tank/fs").good();
    assert_eq!(counts("tank/fs"), "2\tlocal\n1\tlocal\n");
    assert_eq!(counts("tank/fs/a"), "1\tlocal\n1\tlocal\n");
    assert_eq!(counts("tank"), "none\tdefault\nnone\tdefault\n");
    zfs(&bed, "create tank/fs/c").good();
    zfs(&bed, "set snapshot_limit=none tank/fs").good();
    assert_eq!(counts("tank/fs"), "3\tlocal\n1\tlocal\n");
    bed.expect_sound("tank");
}

#[test]
fn a_refused_snapshot_of_several_says_that_none_was_created() {
    let bed = Bed::with_tank(64, &[]);
    let none = "no snapshots were created";
    zfs(&bed, "snapshot tank/fs@x").good();
    let exists = "cannot create snapshot 'tank/fs@x': dataset already exists";
    expect_lines(&zfs(&bed, "snapshot tank/fs@x"), &[exists]);
    for line in ["snapshot -r tank/fs@x", "snapshot -r tank@x", "snapshot tank@y tank/fs@x"] {
        expect_lines(&zfs(&bed, line), &[exists, none]);
    }
    let twice = "cannot create snapshots : multiple snapshots of same fs not allowed";
    expect_lines(&zfs(&bed, "snapshot tank/fs@w tank/fs@z"), &[twice, none]);
    // A snapshot that is named twice is one.
    zfs(&bed, "snapshot tank/fs@z tank/fs@z").good();
    assert_eq!(zfs(&bed, "list -Hro name -t snapshot tank").good(), "tank/fs@x\ntank/fs@z\n");
}

#[test]
fn the_word_all_and_invalid_names_are_refused_in_a_list_of_properties() {
    let bed = Bed::with_tank(64, &[]);
    for (list, line) in [
        ("all,x", "bad property list: invalid property 'all'"),
        ("used,all", "bad property list: invalid property 'all'"),
        ("used,x", "bad property list: invalid property 'x'"),
        (",used", "bad property list: empty property name"),
        ("", "bad property list: no properties specified"),
    ] {
        expect_usage(&bed.run(&["zfs", "get", list, "tank"]), line);
        expect_usage(&bed.run(&["zfs", "list", "-o", list, "tank"]), line);
        let list = &list.replace("used", "size");
        expect_usage(&bed.run(&["zpool", "get", list, "tank"]), line);
        expect_usage(&bed.run(&["zpool", "list", "-o", list, "tank"]), line);
        expect_usage(&bed.run(&["zpool", "get", list, "tank", "root"]), line);
    }
    assert_eq!(zfs(&bed, "get -Ho property used,type, tank").good(), "used\ntype\n");
    for (columns, line) in [
        ("all,name", "too many fields given to -o option"),
        ("name,all", "\"all\" conflicts with specific fields given to -o option"),
        ("name,value,source,property,received,name", "too many fields given to -o option"),
    ] {
        expect_usage(&bed.run(&["zfs", "get", "-o", columns, "used", "tank"]), line);
    }
    expect_usage(&zfs(&bed, "list -d -1 tank"), "Depth can not be negative.");
}

#[test]
fn an_owner_without_a_quota_has_the_default_one() {
    let bed = Bed::with_tank(64, &[]);
    std::fs::write(bed.path("file"), "text").expect("written");
    bed.run(&["cp", &bed.path("file").display().to_string(), "tank/fs:/file"]).good();
    let listed = |command: &str| zfs(&bed, &format!("{command} -Hnpo name,quota,objquota tank/fs")).good();
    let me = rustix::process::geteuid().as_raw();
    assert_eq!(listed("userspace"), format!("{me}\t0\t0\n"));
    zfs(&bed, "set defaultuserquota=10M defaultuserobjquota=7 defaultgroupquota=20M tank/fs").good();
    zfs(&bed, "set userquota@4242=1M tank/fs").good();
    assert_eq!(listed("userspace"), format!("{me}\t10485760\t7\n4242\t1048576\t-\n"));
    assert!(listed("groupspace").ends_with("\t20971520\t0\n"));
    zfs(&bed, &format!("set userquota@{me}=2M tank/fs")).good();
    assert_eq!(listed("userspace"), format!("{me}\t2097152\t7\n4242\t1048576\t-\n"));
}

/// The words and exit statuses of OpenZFS 2.1.11 and 2.3.2.
#[test]
fn redaction_is_refused_in_the_words_of_openzfs_and_what_it_leaves_out_is_not_read() {
    let bed = Bed::with_tank(128, &[]);
    streams::put(&bed, "tank/fs", "one");
    zfs(&bed, "snapshot tank/fs@a").good();
    zfs(&bed, "clone tank/fs@a tank/clone").good();
    streams::put(&bed, "tank/clone", "one");
    for line in ["snapshot tank/clone@s", "snapshot tank/fs@b", "bookmark tank/fs@a tank/fs#plain"] {
        zfs(&bed, line).good();
    }
    zfs(&bed, "redact tank/fs@a book tank/clone@s").good();
    let missing = "provided snapshot tank/clone@none does not exist";
    let descends = "redaction snapshot must be descendent of snapshot being redacted";
    for (line, status, said) in [
        (
            "redact tank/fs@a book tank/clone@s",
            17,
            "specified redaction bookmark (book) provided already exists",
        ),
        (
            "redact tank/fs@a book tank/fs@b",
            3,
            "attempted to resume redaction  with a mismatched redaction list",
        ),
        ("redact tank/fs@a new tank/clone@none", 2, missing),
        ("redact tank/fs@none new tank/clone@s", 2, "provided snapshot tank/fs@none does not exist"),
        ("redact tank/fs@a new tank/fs@a", 22, descends),
        ("redact tank/fs@b new tank/clone@s", 22, descends),
        ("redact tank/fs@a b#k tank/clone@s", 22, "redaction bookmark name must not contain '#'"),
        (
            "redact tank/fs@a new clone@s",
            18,
            "potentially invalid redaction snapshot; full dataset names required",
        ),
        ("send --redact none tank/fs@a", 1, "cannot open 'tank/fs#none': no such pool or dataset"),
        ("send --redact plain tank/fs@a", 1, "warning: cannot send 'tank/fs@a': not a redaction bookmark"),
        (
            "send --redact book tank/fs",
            1,
            "warning: cannot send 'tank/fs': cannot do a redacted send to a filesystem",
        ),
        ("send -w --redact book tank/fs@a", 1, "Error: raw sends may not be redacted."),
        ("send -R --redact book tank/fs@a", 1, "Error: multiple snapshots cannot be sent redacted."),
        ("send -R -i #book tank/fs@b", 1, "Error: multiple snapshots cannot be sent from a bookmark."),
        ("send -I #book tank/fs@b", 1, "Error: multiple snapshots cannot be sent from a bookmark."),
        (
            "send -n -I tank/fs#plain tank/fs@b",
            1,
            "Error: multiple snapshots cannot be sent from a bookmark.",
        ),
    ] {
        let done = zfs(&bed, line);
        assert_eq!((done.status, done.err.lines().last()), (status, Some(said)), "{line}: {done:?}");
    }
    assert!(zfs(&bed, "redact tank/fs@a book").err.starts_with("too few arguments\nusage:"));
    streams::send(&bed, &["--redact", "book", "tank/fs@a"], "redacted").good();
    streams::receive(&bed, "redacted", &["tank/red"]).good();
    assert_eq!(value(&bed, "redact_snaps", "tank/red"), value(&bed, "guid", "tank/clone@s"));
    let incomplete = "Dataset is not complete, was created by receiving a redacted zfs send stream.";
    let read = bed.run(&["ls", "tank/red:/"]);
    assert_eq!((read.status, read.err.trim_end()), (1, &*format!("cannot open 'tank/red': {incomplete}")));
    let again = zfs(&bed, "redact tank/red@a again tank/clone@s");
    let said = "attempted to redact redacted dataset or with respect to redacted dataset\n";
    assert_eq!((again.status, &*again.err), (114, said));
    streams::send(&bed, &["-i", "#book", "tank/fs@b"], "rest").good();
    streams::receive(&bed, "rest", &["tank/red"]).good();
    assert_eq!(value(&bed, "redact_snaps", "tank/red"), "-");
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/red:/"), &["object"]);
    bed.expect_sound("tank");
}

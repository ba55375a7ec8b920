//! `zfs send` into `zfs receive`: trees, properties, names.

mod bed;

use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use bed::live::{Live, write};
use bed::streams::{names, put, receive, send, shown, zfs};
use bed::{Bed, Done};

#[test]
fn properties_of_a_tree_arrive_where_they_belong() {
    let bed = Bed::with_tank(128, &["compression=lz4"]);
    zfs(&bed, "create tank/fs/c");
    zfs(&bed, "snapshot -r -o my:p=v1 tank/fs@1");
    send(&bed, &["-R", "tank/fs@1"], "s").good();
    receive(&bed, "s", &["-o", "mountpoint=/backup", "tank/d"]).good();
    assert_eq!(shown(&bed, "mountpoint", "tank/d"), "/backup\tlocal");
    assert_eq!(shown(&bed, "mountpoint", "tank/d/c"), "/backup/c\tinherited from tank/d");
    assert_eq!(shown(&bed, "compression", "tank/d"), "lz4\treceived");
    assert_eq!((shown(&bed, "my:p", "tank/d@1"), shown(&bed, "my:p", "tank/d/c@1")), {
        let received = "v1\treceived".to_owned();
        (received.clone(), received)
    });
    receive(&bed, "s", &["-x", "compression", "tank/x"]).good();
    assert_eq!(shown(&bed, "compression", "tank/x"), "on\tdefault");
    zfs(&bed, "inherit compression tank/fs");
    zfs(&bed, "snapshot -r tank/fs@2");
    send(&bed, &["-R", "-i", "@1", "tank/fs@2"], "s").good();
    receive(&bed, "s", &["tank/d"]).good();
    assert_eq!(shown(&bed, "compression", "tank/d"), "on\tdefault");
    assert_eq!(shown(&bed, "mountpoint", "tank/d"), "/backup\tlocal");
    bed.expect_sound("tank");
}

#[test]
fn a_copy_follows_what_its_tree_became() {
    let bed = Bed::with_tank(128, &[]);
    for name in ["a", "b", "c", "gone", "gone/below", "deep", "deep/inner"] {
        zfs(&bed, &format!("create tank/fs/{name}"));
        put(&bed, &format!("tank/fs/{name}"), "one");
    }
    zfs(&bed, "snapshot -r tank/fs@0");
    zfs(&bed, "snapshot -r tank/fs@1");
    send(&bed, &["-R", "tank/fs@1"], "s").good();
    receive(&bed, "s", &["tank/d"]).good();
    // Two datasets swap names, one moves below a new one, and one leaves its parent, which is destroyed.
    for line in [
        "rename tank/fs/a tank/fs/t",
        "rename tank/fs/b tank/fs/a",
        "rename tank/fs/t tank/fs/b",
        "create tank/fs/new",
        "rename tank/fs/c tank/fs/new/moved",
        "rename tank/fs/deep/inner tank/fs/inner",
        "destroy -r tank/fs/deep",
        "destroy -r tank/fs/gone",
        "destroy tank/fs/a@0",
    ] {
        zfs(&bed, line);
    }
    put(&bed, "tank/fs/a", "two");
    put(&bed, "tank/fs/new/moved", "two");
    zfs(&bed, "snapshot -r tank/fs@2");
    zfs(&bed, "snapshot -r tank/fs@3");
    send(&bed, &["-R", "-I", "@1", "tank/fs@3"], "s").good();
    receive(&bed, "s", &["tank/d"]).good();
    for place in ["a", "b", "new/moved", "inner"] {
        let (one, other) = (bed.list(&format!("tank/fs/{place}:/")), bed.list(&format!("tank/d/{place}:/")));
        bed::expect_same(&one, &other, &["object"]);
    }
    let kept = names(&bed, "tank/d");
    let has = |name: &str| kept.iter().any(|kept| kept == name);
    assert!(has("/gone") && has("/gone/below@1") && has("/deep@1") && has("/a@0"), "{kept:?}");
    bed.expect_sound("tank");
    // Datasets removed at the sender are destroyed only with `-F`; then both trees are equal.
    put(&bed, "tank/fs/inner", "two");
    zfs(&bed, "snapshot -r tank/fs@4");
    zfs(&bed, "rename -r tank/fs@2 two");
    send(&bed, &["-R", "-i", "@3", "tank/fs@4"], "s").good();
    receive(&bed, "s", &["-F", "tank/d"]).good();
    assert_eq!(names(&bed, "tank/d"), names(&bed, "tank/fs"));
    bed.expect_sound("tank");
}

#[test]
fn a_clone_that_was_promoted_is_promoted_in_the_copy() {
    let bed = Bed::with_tank(128, &[]);
    zfs(&bed, "create tank/fs/o");
    put(&bed, "tank/fs/o", "one");
    zfs(&bed, "snapshot -r tank/fs@0");
    zfs(&bed, "clone tank/fs/o@0 tank/fs/c");
    zfs(&bed, "snapshot -r tank/fs@1");
    send(&bed, &["-R", "tank/fs@1"], "s").good();
    receive(&bed, "s", &["tank/d"]).good();
    assert_eq!(shown(&bed, "origin", "tank/d/c"), "tank/d/o@0\t-");
    zfs(&bed, "promote tank/fs/c");
    put(&bed, "tank/fs/c", "two");
    zfs(&bed, "snapshot -r tank/fs@2");
    send(&bed, &["-R", "-i", "@1", "tank/fs@2"], "s").good();
    receive(&bed, "s", &["-F", "tank/d"]).good();
    assert_eq!(shown(&bed, "origin", "tank/d/o"), "tank/d/c@0\t-");
    assert_eq!(names(&bed, "tank/d"), names(&bed, "tank/fs"));
    bed.expect_sound("tank");
}

#[test]
fn datasets_newer_than_the_snapshot_may_lack_it() {
    let bed = Bed::with_tank(64, &[]);
    zfs(&bed, "create tank/fs/c");
    zfs(&bed, "create tank/fs/c/below");
    zfs(&bed, "snapshot -r tank/fs@1");
    zfs(&bed, "create tank/fs/young");
    send(&bed, &["-R", "tank/fs@1"], "s").good();
    receive(&bed, "s", &["tank/d"]).good();
    assert_eq!(names(&bed, "tank/d"), ["", "@1", "/c", "/c@1", "/c/below", "/c/below@1"]);
    zfs(&bed, "destroy tank/fs/c@1");
    send(&bed, &["-R", "tank/fs@1"], "s")
        .refused("cannot send tank/fs@1 recursively: snapshot tank/fs/c@1 does not exist");
    let done = send(&bed, &["-R", "-s", "tank/fs@1"], "s");
    let warned = "WARNING: skipping dataset tank/fs/c and its children: snapshot 1 does not exist\n";
    assert_eq!((done.status, done.err.as_str()), (0, warned));
    receive(&bed, "s", &["tank/e"]).good();
    assert_eq!(names(&bed, "tank/e"), ["", "@1"]);
    assert_eq!(send(&bed, &["-s", "tank/fs@1"], "s").status, 2);
    bed.expect_sound("tank");
}

#[test]
fn names_that_a_stream_cannot_have_are_refused_at_once() {
    let bed = Bed::with_tank(64, &[]);
    zfs(&bed, "create -p tank/fs/p/q");
    zfs(&bed, "snapshot -r tank/fs@1");
    zfs(&bed, "create tank/into");
    send(&bed, &["-R", "tank/fs@1"], "tree").good();
    send(&bed, &["tank/fs/p/q@1"], "one").good();
    receive(&bed, "tree", &["tank/into/d@s"])
        .refused("cannot receive: cannot specify snapshot name for multi-snapshot stream");
    receive(&bed, "one", &["-d", "tank/into@s"])
        .refused("cannot receive: invalid argument - snapshot not allowed with -d");
    receive(&bed, "one", &["tank/into/b%d"]).refused("cannot receive: invalid name");
    assert_eq!(names(&bed, "tank/into"), [""]);
    // A dry run makes nothing and works on a read-only pool.
    let told = "would receive full stream of tank/fs/p/q@1 into tank/into/d@1\n";
    assert_eq!(receive(&bed, "one", &["-nv", "tank/into/d"]).good(), told);
    receive(&bed, "one", &["-e", "tank/into/no"])
        .refused("cannot receive: specified fs (tank/into/no) does not exist");
    receive(&bed, "one", &["-d", "tank/into"]).good();
    assert_eq!(names(&bed, "tank/into"), ["", "/fs", "/fs/p", "/fs/p/q", "/fs/p/q@1"]);
    bed.expect_sound("tank");
}

#[test]
fn properties_that_a_stream_cannot_have_are_refused_at_once() {
    let bed = Bed::with_tank(128, &["reservation=35M"]);
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["-p", "tank/fs@1"], "s").good();
    for (words, why) in [
        (["-x", "nosuch"], "invalid property 'nosuch'"),
        (["-x", "used"], "invalid property 'used'"),
        (["-x", "version"], "invalid property 'version'"),
        (["-x", "volsize"], "invalid property 'volsize'"),
        (["-x", "normalization"], "invalid property 'normalization'"),
        (["-o", "version=4"], "invalid property 'version'"),
        (["-o", "casesensitivity=mixed"], "'casesensitivity' is readonly"),
        (["-o", "normalization=formD"], "'normalization' is readonly"),
        (["-o", "utf8only=on"], "'utf8only' is readonly"),
        (["-o", "userquota@0=5M"], "'userquota@0' is kept among the files; set it when they are received"),
        (
            ["-o", "defaultuserquota=1M"],
            "'defaultuserquota' is kept among the files; set it when they are received",
        ),
    ] {
        receive(&bed, "s", &[words[0], words[1], "tank/d"]).refused(&format!("cannot receive: {why}"));
    }
    for words in [["-x", "atime", "-x", "atime"], ["-o", "atime=on", "-x", "atime"]] {
        let done = receive(&bed, "s", &[&words[..], &["tank/d"]].concat());
        let said = done.err.lines().next();
        assert_eq!((done.status, said), (2, Some("property 'atime' specified multiple times")));
    }
    assert_eq!(names(&bed, "tank"), ["", "/fs", "/fs@1"]);
    // A property for which there is no room is reported; the files arrive.
    let done = receive(&bed, "s", &["tank/d"]);
    let told = "cannot receive reservation property on tank/d: size is greater than available space\n";
    assert_eq!((done.status, done.err.as_str()), (0, told));
    assert_eq!(shown(&bed, "reservation", "tank/d"), "none\tdefault");
    bed.expect_sound("tank");
}

#[test]
fn mounts_of_a_copy_follow_what_its_tree_became() {
    let Some(live) = Live::with_tank(256) else { return };
    let zfs = |line: &str| {
        let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
        live.run(&words).good()
    };
    let send = |words: &[&str], into: &[&str]| -> Done {
        let out = live.command(&[&["zfs", "send"], words].concat()).output().expect("it starts");
        assert!(out.status.success(), "{out:?}");
        std::fs::write(live.path("s"), out.stdout).expect("written");
        let stream = std::fs::File::open(live.path("s")).expect("there");
        live.command(&[&["zfs", "receive"], into].concat()).stdin(stream).output().expect("it starts").into()
    };
    for line in ["create tank/fs", "create tank/fs/a", "create tank/fs/gone"] {
        zfs(line);
    }
    write(&live.path("mnt/fs/a/file"), b"one");
    zfs("snapshot -r tank/fs@1");
    send(&["-R", "tank/fs@1"], &["tank/d"]).good();
    assert_eq!(std::fs::read(live.path("mnt/d/a/file")).expect("mounted"), b"one");
    for line in ["rename tank/fs/a tank/fs/b", "destroy -r tank/fs/gone"] {
        zfs(line);
    }
    write(&live.path("mnt/fs/b/file"), b"two");
    zfs("snapshot -r tank/fs@2");
    // A dataset in use that would be destroyed stays and is reported; the others are received.
    let open = std::fs::File::open(live.path("mnt/d/gone")).expect("mounted");
    let done = send(&["-R", "-i", "@1", "tank/fs@2"], &["-F", "tank/d"]);
    assert!(done.status == 1 && done.err.contains("mnt/d/gone") && done.err.contains("busy"), "{done:?}");
    assert_eq!(std::fs::read(live.path("mnt/d/b/file")).expect("mounted"), b"two");
    drop(open);
    send(&["-R", "-i", "@1", "tank/fs@2"], &["-F", "tank/d"]).good();
    assert_eq!(std::fs::read(live.path("mnt/d/b/file")).expect("mounted"), b"two");
    let mounts = live.mounts();
    assert!(["mnt/d/a", "mnt/d/gone"].iter().all(|gone| !mounts.contains(&live.path(gone))), "{mounts:?}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// A command whose standard input, output and error are a terminal; `None` where there is no `script`.
fn at_a_terminal(command: &Command, line: &str) -> Option<(bool, String)> {
    let line = format!("timeout 20 {} {line}", env!("CARGO_BIN_EXE_cenote"));
    let mut script = Command::new("script");
    bed::in_place_of(command, script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()));
    match script.output() {
        Ok(output) => Some((output.status.code() == Some(1), String::from_utf8_lossy(&output.stdout).into())),
        Err(error) => {
            eprintln!("skipped: script: {error}");
            None
        }
    }
}

#[test]
fn a_stream_is_not_read_from_a_terminal() {
    let wanted =
        "Error: Backup stream can not be read from a terminal.\r\nYou must redirect standard input.\r\n";
    let bed = Bed::with_tank(64, &[]);
    let Some(said) = at_a_terminal(&bed.command(&[]), "zfs receive tank/new") else { return };
    assert_eq!(said, (true, wanted.to_owned()));
    let Some(live) = Live::with_tank(64) else { return };
    assert_eq!(at_a_terminal(&live.command(&[]), "zfs receive tank/new"), Some((true, wanted.to_owned())));
    live.run(&["zpool", "export", "tank"]).good();
}

#[test]
fn a_snapshot_is_healed_from_its_stream() {
    let bed = Bed::with_tank(128, &["compression=off"]);
    put(&bed, "tank/fs", "one");
    let content = std::fs::read(bed.path("file")).expect("written");
    zfs(&bed, "snapshot tank/fs@1");
    zfs(&bed, "snapshot tank/fs@2");
    send(&bed, &["tank/fs@1"], "s").good();
    let image = std::fs::read(bed.path("tank.img")).expect("there");
    let at = image.windows(4096).position(|part| part == &content[..4096]).expect("the block is on the disk");
    let disk = std::fs::File::options().write(true).open(bed.path("tank.img")).expect("opened");
    disk.write_all_at(b"spoilt", at as u64).expect("written");
    bed.run(&["zpool", "scrub", "-w", "tank"]).good();
    let damaged = || bed.run(&["zpool", "status", "tank"]).good();
    assert!(damaged().contains("1 data errors"), "{}", damaged());
    for (words, said) in [
        (&["-c", "-F", "tank/fs"][..], "-c and -F are mutually exclusive"),
        (
            &["-c", "tank/fs@2"],
            "stream is not compatible with the data in the pool: it is of another snapshot",
        ),
        (&["-c", "tank/fs@3"], "cannot open 'tank/fs@3': dataset does not exist"),
    ] {
        let refused = receive(&bed, "s", words);
        assert!(refused.status > 0 && refused.err.contains(said), "{refused:?}");
    }
    let would = receive(&bed, "s", &["-cnv", "tank/fs"]).good();
    assert_eq!(would, "would receive corrective full stream of tank/fs@1 into tank/fs@1\n");
    assert!(damaged().contains("1 data errors"));
    let told = receive(&bed, "s", &["-cv", "tank/fs@1"]).good();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "receiving corrective full stream of tank/fs@1 into tank/fs@1");
    assert!(lines[1].starts_with("received ") && lines[2] == "healed 1 block of tank/fs@1", "{told}");
    assert!(damaged().contains("No known data errors"), "{}", damaged());
    assert!(bed.run(&["zpool", "history", "tank"]).good().contains("zfs receive -cv tank/fs@1"));
    assert_eq!(std::fs::read(bed.path("tank.img")).expect("there")[at..][..4096], content[..4096]);
    bed.expect_sound("tank");
}

#[test]
fn damage_that_a_stream_cannot_heal_is_reported() {
    let bed = Bed::with_tank(128, &["compression=off"]);
    put(&bed, "tank/fs", "one");
    let content = std::fs::read(bed.path("file")).expect("written");
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["tank/fs@1"], "s").good();
    let image = std::fs::read(bed.path("tank.img")).expect("there");
    let at = image.windows(4096).position(|part| part == &content[..4096]).expect("the block is on the disk");
    let disk = std::fs::File::options().write(true).open(bed.path("tank.img")).expect("opened");
    disk.write_all_at(b"spoilt", at as u64).expect("written");
    // A stream that is sent from the damaged pool ends with an error.
    let cut = send(&bed, &["tank/fs@1"], "half");
    assert_eq!(cut.status, 1, "{cut:?}");
    let refused = receive(&bed, "half", &["-c", "tank/fs"]);
    refused.refused("cannot receive new filesystem stream: incomplete stream");
    let other = resealed(&std::fs::read(bed.path("s")).expect("there"), &content[..4096]);
    std::fs::write(bed.path("other"), other).expect("written");
    let told = receive(&bed, "other", &["-c", "tank/fs"]);
    assert!(told.err.contains("\nA block of tank/fs@1 is still damaged: object "), "{told:?}");
    assert!(told.err.ends_with(": the stream does not give the bytes that were there\n"), "{told:?}");
    told.refused(
        "cannot receive new filesystem stream: corrective receive was not able to reconstruct the data needed for \
         healing.",
    );
    receive(&bed, "s", &["-c", "tank/fs"]).good();
    bed.expect_sound("tank");
}

/// Properties missing for one snapshot of a package do not affect the others.
#[test]
fn the_other_snapshots_of_a_package_are_healed() {
    let bed = Bed::with_tank(128, &["compression=off"]);
    put(&bed, "tank/fs", "one");
    zfs(&bed, "snapshot tank/fs@0");
    let contents = ["two", "three"].map(|name| {
        put(&bed, "tank/fs", name);
        zfs(&bed, &format!("snapshot tank/fs@{name}"));
        std::fs::read(bed.path("file")).expect("written")
    });
    send(&bed, &["-I", "tank/fs@0", "tank/fs@three"], "s").good();
    let image = std::fs::read(bed.path("tank.img")).expect("there");
    let disk = std::fs::File::options().write(true).open(bed.path("tank.img")).expect("opened");
    let places = contents.each_ref().map(|content| {
        let at = image.windows(4096).position(|part| part == &content[..4096]).expect("on the disk");
        disk.write_all_at(b"spoilt", at as u64).expect("written");
        at
    });
    let other = resealed(&std::fs::read(bed.path("s")).expect("there"), &contents[0][..4096]);
    std::fs::write(bed.path("other"), other).expect("written");
    let told = receive(&bed, "other", &["-c", "tank/fs"]);
    assert!(told.err.contains("\nA block of tank/fs@two is still damaged: object "), "{told:?}");
    told.refused(
        "cannot receive incremental stream: corrective receive was not able to reconstruct the data needed for \
         healing.",
    );
    let image = std::fs::read(bed.path("tank.img")).expect("there");
    assert_eq!(image[places[1]..][..4096], contents[1][..4096]);
    assert!(bed.run(&["zpool", "history", "tank"]).good().contains("zfs receive -c tank/fs"));
    receive(&bed, "s", &["-c", "tank/fs"]).good();
    bed.expect_sound("tank");
}

/// The stream with one bit changed where `content` begins, and checksums that agree.
fn resealed(stream: &[u8], content: &[u8]) -> Vec<u8> {
    use format::stream::{self, Record};
    let mut out = stream.to_vec();
    let at = out.windows(content.len()).position(|part| part == content).expect("in the stream");
    out[at] ^= 1;
    let (mut at, mut sum) = (0, codec::RunningFletcher4::new(format::ByteOrder::Little));
    while at < out.len() {
        let raw: &mut [u8; stream::RECORD] = (&mut out[at..at + stream::RECORD]).try_into().expect("as long");
        let mut record = Record::decode(raw, format::ByteOrder::Little).expect("a record");
        if matches!(record, Record::Begin(_)) {
            sum = codec::RunningFletcher4::new(format::ByteOrder::Little);
        }
        if let Record::End(end) = &mut record {
            end.checksum = sum.sum();
            *raw = record.encode();
        }
        let end = at + stream::RECORD + record.payload_len() as usize;
        let (raw, payload) = out[at..end].split_first_chunk_mut().expect("as long");
        match record {
            Record::Begin(_) => [&raw[..], payload].into_iter().for_each(|part| sum.add(part)),
            _ => sum.seal(raw, payload),
        }
        at = end;
    }
    out
}

#[test]
fn a_whole_pool_becomes_the_root_of_another() {
    let bed = Bed::with_tank(64, &["compression=lz4"]);
    zfs(&bed, "create tank/fs/below");
    put(&bed, "tank", "top");
    put(&bed, "tank/fs", "one");
    zfs(&bed, "set my:note=moved tank");
    zfs(&bed, "snapshot -r tank@1");
    let new_pool = |name: &str| {
        let image = format!("{name}.img");
        std::fs::File::create(bed.path(&image)).expect("made").set_len(128 << 20).expect("long");
        bed.run(&["zpool", "create", name, &bed.path(&image).display().to_string()]).good();
    };
    send(&bed, &["-R", "tank@1"], "tree").good();
    send(&bed, &["tank@1"], "one").good();
    for (name, file, words) in [
        ("into", "tree", &["-F", "into"][..]),
        ("verb", "tree", &["-Fv", "verb"]),
        ("drop", "tree", &["-Fdu", "drop"]),
        ("alone", "one", &["-F", "alone"]),
    ] {
        new_pool(name);
        put(&bed, name, "given up");
        let gentle: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with('-')).collect();
        let exists = format!("cannot receive new filesystem stream: destination '{name}' exists");
        let refused = receive(&bed, file, &gentle);
        assert_eq!(refused.err.lines().nth(1), Some("must specify -F to overwrite it"), "{refused:?}");
        refused.refused(&exists);
        receive(&bed, file, words).good();
        let has = bed.list(&format!("{name}:/"));
        assert!(has.iter().any(|file| file["path"] == "top" || file["path"] == "/top"), "{has:?}");
        assert!(!has.iter().any(|file| file["path"].to_string().contains("given up")), "{has:?}");
        bed.expect_sound(name);
        if file == "tree" {
            assert_eq!(names(&bed, name), names(&bed, "tank"), "{words:?}");
            assert_eq!(shown(&bed, "my:note", name), "moved\treceived");
            assert_eq!(shown(&bed, "compression", &format!("{name}/fs")), "lz4\treceived");
        } else {
            assert_eq!(names(&bed, name), ["", "@1"]);
        }
    }
    // It continues with the next stream.
    put(&bed, "tank", "more");
    zfs(&bed, "snapshot -r tank@2");
    send(&bed, &["-R", "-i", "@1", "tank@2"], "next").good();
    receive(&bed, "next", &["into"]).good();
    assert_eq!(names(&bed, "into"), names(&bed, "tank"));
    bed::expect_same(&bed.list("into:/"), &bed.list("tank:/"), &["object"]);
    let refused = receive(&bed, "tree", &["-F", "into"]);
    assert_eq!(refused.err.lines().nth(1), Some("must destroy them to overwrite it"), "{refused:?}");
    refused.refused("cannot receive new filesystem stream: destination has snapshots (eg. into@1)");
    bed.expect_sound("into");
}

#[test]
fn a_received_value_comes_back_with_all_that_follows_from_it() {
    let bed = Bed::with_tank(128, &["quota=40M", "reservation=20M", "refreservation=10M"]);
    for word in ["refquota=30M", "canmount=noauto", "filesystem_limit=7"] {
        zfs(&bed, &format!("set {word} tank/fs"));
    }
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["-p", "tank/fs@1"], "s").good();
    zfs(&bed, "set reservation=none tank/fs");
    receive(&bed, "s", &["tank/d"]).good();
    let reserved = "usedbyrefreservation";
    let promised = shown(&bed, reserved, "tank/d");
    for word in ["reservation=1M", "refreservation=none", "quota=50M", "refquota=none"] {
        zfs(&bed, &format!("set {word} tank/d"));
    }
    zfs(&bed, "set canmount=off tank/d");
    zfs(&bed, "set filesystem_limit=9 tank/d");
    for property in ["quota", "reservation", "refreservation", "refquota", "canmount", "filesystem_limit"] {
        zfs(&bed, &format!("inherit -S {property} tank/d"));
        let received = shown(&bed, property, "tank/fs").replace("local", "received");
        let received = if property == "reservation" { "20M\treceived".to_owned() } else { received };
        assert_eq!(shown(&bed, property, "tank/d"), received);
    }
    assert_eq!(shown(&bed, reserved, "tank/d"), promised);
    // The reservations hold, and the accounting shows it.
    bed.expect_sound("tank");
    let free = |name: &str| -> u64 {
        zfs(&bed, &format!("get -Hpo value available {name}")).trim().parse().expect("a number")
    };
    assert!(free("tank/d") <= 40 << 20);
    for (line, why) in [
        ("volsize tank/d", "'volsize' property cannot be reverted to a received value"),
        ("version tank/d", "'version' property cannot be reverted to a received value"),
        ("utf8only tank/d", "'utf8only' property cannot be inherited"),
        ("used tank/d", "used property is read-only"),
    ] {
        let words: Vec<&str> = ["zfs", "inherit", "-S"].into_iter().chain(line.split(' ')).collect();
        bed.run(&words).refused(why);
    }
    bed.run(&["zfs", "inherit", "canmount", "tank/d"]).refused("'canmount' property cannot be inherited");
    // A received limit that does not fit any more is refused as one that is set.
    zfs(&bed, "set reservation=none tank/d");
    zfs(&bed, "set quota=15M refreservation=none tank/d");
    bed.run(&["zfs", "inherit", "-S", "reservation", "tank/d"])
        .refused("cannot inherit reservation for 'tank/d': size is greater than available space");
    assert_eq!(shown(&bed, "reservation", "tank/d"), "none\tlocal");
    bed.expect_sound("tank");
}

#[test]
fn an_increment_goes_nowhere_else_than_its_target_is_said_to_be() {
    let bed = Bed::with_tank(128, &[]);
    put(&bed, "tank/fs", "one");
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["tank/fs@1"], "full").good();
    receive(&bed, "full", &["tank/have"]).good();
    put(&bed, "tank/fs", "two");
    zfs(&bed, "snapshot tank/fs@2");
    let before = names(&bed, "tank");
    for words in [&["-i", "@1", "tank/fs@2"][..], &["-p", "-i", "@1", "tank/fs@2"], &["tank/fs@2"]] {
        send(&bed, words, "s").good();
        for option in ["-d", "-e"] {
            for target in ["tank/missing", "tank/missing/below", "nopool/x"] {
                let done = receive(&bed, "s", &[option, target]);
                done.refused(&format!("cannot receive: specified fs ({target}) does not exist"));
            }
        }
    }
    assert_eq!(names(&bed, "tank"), before);
    bed.expect_sound("tank");
}

#[test]
fn sources_that_a_stream_cannot_have_are_refused() {
    let bed = Bed::with_tank(128, &[]);
    zfs(&bed, "snapshot tank/fs@1");
    zfs(&bed, "snapshot tank/fs@2");
    for option in ["-i", "-I"] {
        let done = send(&bed, &[option, "@1", option, "@1", "tank/fs@2"], "s");
        assert_eq!((done.status, done.err.lines().next()), (2, Some("usage:")), "{done:?}");
    }
    send(&bed, &["-i", "other/fs@1", "tank/fs@2"], "s")
        .refused("warning: cannot send 'tank/fs@2': not an earlier snapshot from the same fs");
    let done = send(&bed, &["-I", "other/fs@1", "tank/fs@2"], "s");
    let said = done.err.lines().next();
    assert_eq!((done.status, said), (2, Some("incremental source must be in same filesystem")));
    let done = bed.run(&["zfs", "snapshot", "tank/fs@3", "other/fs@3"]);
    let said =
        "cannot create snapshots : multiple snapshots of same fs not allowed\nno snapshots were created\n";
    assert_eq!((done.status, done.err.as_str()), (1, said));
    assert_eq!(names(&bed, "tank"), ["", "/fs", "/fs@1", "/fs@2"]);
}

//! `zfs receive -s` and `zfs send -t`: streams that were cut off, and the rest of them.

mod bed;

use bed::Bed;
use bed::streams::{names, put, receive, send, shown, zfs};

#[test]
fn a_partial_receive_is_sent_on() {
    let bed = Bed::with_tank(128, &[]);
    put(&bed, "tank/fs", "one");
    put(&bed, "tank/fs", "two");
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["tank/fs@1"], "whole").good();
    let whole = std::fs::read(bed.path("whole")).expect("there");
    std::fs::write(bed.path("part"), &whole[..whole.len() * 2 / 3]).expect("written");
    assert_eq!(receive(&bed, "part", &["-s", "tank/a"]).status, 1);
    for (words, said) in [
        (&["-S", "-c", "tank/a"][..], "incompatible flags combined with saved send flag"),
        (&["-S", "tank/fs@1"], "saved send must specify the dataset with partially-received state"),
        (&["-S", "tank/fs"], "saved send failed: 'tank/fs' holds no part of a stream"),
        (&["-S", "tank/none"], "cannot open 'tank/none': dataset does not exist"),
    ] {
        let refused = send(&bed, words, "none");
        assert!(refused.status > 0 && refused.err.contains(said), "{refused:?}");
    }
    let told = bed.run(&["zfs", "send", "-nvP", "--saved", "tank/a"]).good();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..2], ["resume token contents:", "nvlist version: 0"]);
    assert_eq!(lines[3..7], ["\tobject = 0x0", "\toffset = 0x0", "\tbytes = 0x0", "\ttoname = tank/a"]);
    assert!(lines[7].starts_with("full\ttank/a\t") && lines[8].starts_with("size\t"), "{told}");
    send(&bed, &["--saved", "tank/a"], "saved").good();
    let cut = receive(&bed, "saved", &["-s", "tank/b"]);
    let token = shown(&bed, "receive_resume_token", "tank/b");
    let token = token.split('\t').next().expect("a value");
    assert_eq!(cut.err.lines().last(), Some(format!("    zfs send -t {token}").as_str()), "{cut:?}");
    send(&bed, &["-t", token], "rest").good();
    receive(&bed, "rest", &["-s", "tank/b"]).good();
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/b:/"), &["object"]);
    bed.run(&["zfs", "receive", "-A", "tank/a"]).good();
    bed.expect_sound("tank");
}

/// A file of `bytes` that do not compress.
fn put_random(bed: &Bed, fs: &str, name: &str, bytes: usize) {
    let mut state = 88_172_645_463_325_252_u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(bytes)
    .collect();
    std::fs::write(bed.path("random"), random).expect("written");
    bed.run(&["cp", &bed.path("random").display().to_string(), &format!("{fs}:/{name}")]).good();
}

/// Cuts a stream in a file of the bed off after `bytes`.
fn cut(bed: &Bed, file: &str, bytes: u64) {
    std::fs::File::options().write(true).open(bed.path(file)).expect("there").set_len(bytes).expect("cut");
}

#[test]
fn a_partial_increment_goes_with_its_file_system() {
    let bed = Bed::with_tank(128, &[]);
    put(&bed, "tank/fs", "one");
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["tank/fs@1"], "full").good();
    receive(&bed, "full", &["tank/have"]).good();
    put_random(&bed, "tank/fs", "big", 3 << 20);
    zfs(&bed, "snapshot tank/fs@2");
    send(&bed, &["-i", "@1", "tank/fs@2"], "s").good();
    cut(&bed, "s", 2 << 20);
    let done = receive(&bed, "s", &["-s", "tank/have"]);
    assert!(done.err.contains("Partially received snapshot is saved."), "{done:?}");
    zfs(&bed, "destroy -r tank/have");
    assert_eq!(names(&bed, "tank"), ["", "/fs", "/fs@1", "/fs@2"]);
    bed.expect_sound("tank");
}

fn token(bed: &Bed, fs: &str) -> String {
    bed.run(&["zfs", "get", "-H", "-o", "value", "receive_resume_token", fs]).good().trim_end().to_owned()
}

#[test]
fn a_stream_of_a_head_is_resumed_as_long_as_that_has_not_changed() {
    let bed = Bed::with_tank(128, &[]);
    put_random(&bed, "tank/fs", "big", 3 << 20);
    send(&bed, &["tank/fs"], "s").good();
    cut(&bed, "s", 2 << 20);
    assert_eq!(receive(&bed, "s", &["-s", "tank/copy"]).status, 1);
    let token = token(&bed, "tank/copy");
    send(&bed, &["-t", &token], "rest").good();
    receive(&bed, "rest", &["-s", "tank/copy"]).good();
    assert_eq!(names(&bed, "tank/copy"), ["", "@--head--"]);
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/copy:/"), &["object"]);
    // The rest cannot be sent after the head changed, because the result would be neither the old nor the new state.
    zfs(&bed, "destroy -r tank/copy");
    assert_eq!(receive(&bed, "s", &["-s", "tank/copy"]).status, 1);
    put(&bed, "tank/fs", "more");
    send(&bed, &["-t", &token], "rest").refused(
        "cannot resume send: 'tank/fs@--head--' is no longer the same snapshot used in the initial send",
    );
    bed.expect_sound("tank");
}

#[test]
fn a_stream_that_replaces_a_file_system_is_resumed() {
    let bed = Bed::with_tank(128, &[]);
    put_random(&bed, "tank/fs", "big", 3 << 20);
    zfs(&bed, "snapshot tank/fs@1");
    zfs(&bed, "create tank/copy");
    put(&bed, "tank/copy", "old");
    send(&bed, &["tank/fs@1"], "s").good();
    cut(&bed, "s", 2 << 20);
    assert_eq!(receive(&bed, "s", &["-F", "-s", "tank/copy"]).status, 1);
    let token = token(&bed, "tank/copy");
    send(&bed, &["-t", &token], "rest").good();
    // Without `-F` the old contents stay, and the received part is kept.
    receive(&bed, "rest", &["tank/copy"])
        .refused("cannot receive new filesystem stream: destination tank/copy has been modified");
    assert_eq!(self::token(&bed, "tank/copy"), token);
    receive(&bed, "rest", &["-F", "tank/copy"]).good();
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/copy:/"), &["object"]);
    bed.expect_sound("tank");
}

/// A bed with the pools `tank` and `usb`.
fn bed_with_two() -> Bed {
    let bed = Bed::with_tank(128, &[]);
    std::fs::File::create(bed.path("usb.img")).expect("made").set_len(128 << 20).expect("long");
    bed.run(&["zpool", "create", "usb", &bed.path("usb.img").display().to_string()]).good();
    zfs(&bed, "create tank/fs/sub");
    bed
}

/// The lines of a command, without the names of snapshots, which follow from the time.
fn dated(bed: &Bed, words: &[&str]) -> Vec<String> {
    let now = |line: &str| match line.split_once("-20") {
        Some((before, after)) => format!("{before}-NOW{}", &after[after.find('Z').map_or(0, |at| at + 1)..]),
        None => line.to_owned(),
    };
    bed.run(words).good().lines().map(now).collect()
}

#[test]
fn a_policy_makes_one_snapshot_an_hour_and_removes_only_its_own() {
    let bed = Bed::with_tank(128, &[]);
    zfs(&bed, "create tank/fs/sub");
    zfs(&bed, "snapshot -r tank/fs@mine");
    // Made by an earlier run of the command, as far as the mark says; one is held, one has a clone.
    let [old, held, cloned, renamed] =
        ["01", "02", "03", "04"].map(|day| format!("tank/fs@auto-2026-01-{day}-000000.000Z"));
    for name in [&old, &renamed, &held, &cloned] {
        zfs(&bed, &format!("snapshot -o cenote:made-by=snapshots {name}"));
    }
    zfs(&bed, &format!("hold keep {held}"));
    zfs(&bed, &format!("clone {cloned} tank/clone"));
    zfs(&bed, &format!("rename {renamed} tank/fs@before-upgrade"));
    // A mark that is inherited makes no snapshot one of the command's.
    zfs(&bed, "set cenote:made-by=snapshots tank/fs/sub");
    let keep = ["snapshots", "--keep", "1y,1d", "-r", "tank/fs"];
    let mut dry = keep.to_vec();
    dry.push("-n");
    // The present snapshots are of this day, so only the dataset below is due, and the newest of the day stays.
    let said = dated(&bed, &dry);
    assert_eq!(said, ["would create tank/fs/sub@auto-NOW", "would destroy tank/fs@auto-NOW"]);
    assert_eq!(names(&bed, "tank/fs").len(), 8);
    assert_eq!(dated(&bed, &keep), ["created tank/fs/sub@auto-NOW", "destroyed tank/fs@auto-NOW"]);
    let nothing =
        "nothing to do for 'tank/fs': no new snapshot is due, and the policy keeps those that are there";
    assert_eq!(dated(&bed, &keep), [nothing]);
    assert_eq!(dated(&bed, &dry), [nothing]);
    assert_eq!(dated(&bed, &[&keep[..], &["--quiet"]].concat()), [""; 0]);
    zfs(&bed, &format!("destroy -R {cloned}"));
    zfs(&bed, &format!("release keep {held}"));
    zfs(&bed, &format!("destroy {held}"));
    assert_eq!(dated(&bed, &keep), ["created tank/fs@auto-NOW"]);
    let names = names(&bed, "tank/fs");
    assert!(names.iter().filter(|name| name.contains("@auto-")).count() == 2, "{names:?}");
    assert!(names.contains(&"@before-upgrade".to_owned()), "{names:?}");
    assert!(names.contains(&"@mine".to_owned()) && names.contains(&"/sub@mine".to_owned()), "{names:?}");
    for (words, status) in [
        (["snapshots", "--keep", "5x", "tank/fs"], 2),
        (["snapshots", "--keep", "5h", "tank/fs@mine"], 1),
        (["snapshots", "--keep", "5h", "tank/none"], 1),
    ] {
        let done = bed.run(&words);
        assert!(done.status == status && !done.err.is_empty(), "{done:?}");
    }
    bed.expect_sound("tank");
}

#[test]
fn a_backup_sends_everything_once_and_then_what_changed() {
    let bed = bed_with_two();
    put(&bed, "tank/fs", "one");
    // Backups that were killed left snapshots, one on the way to another place.
    for (day, to) in [("01", "usb/copy"), ("02", "usb/other")] {
        let marks = format!("-o cenote:made-by=backup -o cenote:made-for=cenote-backup:{to}");
        zfs(&bed, &format!("snapshot {marks} tank/fs@backup-2026-01-{day}-000000.000Z"));
    }
    let backup = ["backup", "-r", "tank/fs", "usb/copy"];
    let said = dated(&bed, &backup);
    let left = names(&bed, "tank/fs");
    let is_left = |day: &str| left.iter().any(|name| name.starts_with(&format!("@backup-2026-01-{day}")));
    assert_eq!((is_left("01"), is_left("02")), (false, true), "{left:?}");
    assert_eq!(said[0], "tank/fs@backup-NOW -> usb/copy");
    assert_eq!(said.len(), 2);
    put(&bed, "tank/fs", "two");
    bed.run(&backup).good();
    let same = |name: &str| {
        let place = |fs: &str| bed.run(&["cat", &format!("{fs}:/{name}")]).good();
        place("tank/fs") == place("usb/copy")
    };
    assert!(same("one") && same("two"));
    // The snapshot that was sent last stays and is held; the one before it is gone here.
    let left: Vec<String> = names(&bed, "tank/fs").into_iter().filter(|name| name.starts_with('@')).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let holds = zfs(&bed, &format!("holds -H tank/fs{}", left[0]));
    assert!(holds.contains("cenote-backup:usb/copy"), "{holds}");
    assert_eq!(shown(&bed, "readonly", "usb/copy"), "on\tlocal");
    // The same once more, by its name: nothing is left to do.
    let again = bed.run(&["backup", &format!("tank/fs{}", left[0]), "usb/copy"]).good();
    assert!(again.contains("usb/copy has it"), "{again}");
    // Changes in the copy are not overwritten, and a line says what to do.
    zfs(&bed, "snapshot usb/copy@own");
    let before = names(&bed, "tank/fs");
    let refused = bed.run(&backup);
    assert!(refused.status == 1 && refused.err.contains("'zfs rollback -r usb/copy@backup-"), "{refused:?}");
    let new: Vec<_> = names(&bed, "tank/fs").into_iter().filter(|name| !before.contains(name)).collect();
    assert!(new.iter().all(|name| !name.starts_with('@')), "a refused backup left {new:?}");
    zfs(&bed, "destroy usb/copy@own");
    bed.run(&backup).good();
    // A dataset that is no copy is left alone.
    zfs(&bed, "create usb/other");
    let refused = bed.run(&["backup", "tank/fs", "usb/other"]);
    assert!(refused.status == 1 && refused.err.contains("has no snapshot of it"), "{refused:?}");
    let refused = bed.run(&["backup", "tank/fs", "tank/fs/sub/x"]);
    assert!(refused.status == 1 && refused.err.contains("lies in"), "{refused:?}");
    bed.expect_sound("tank");
    bed.expect_sound("usb");
}

#[test]
fn a_backup_goes_on_where_a_receive_was_cut_off() {
    let bed = bed_with_two();
    put(&bed, "tank/fs", "one");
    put(&bed, "tank/fs", "two");
    zfs(&bed, "snapshot tank/fs@1");
    send(&bed, &["tank/fs@1"], "whole").good();
    let whole = std::fs::read(bed.path("whole")).expect("there");
    std::fs::write(bed.path("part"), &whole[..whole.len() * 2 / 3]).expect("written");
    assert_eq!(receive(&bed, "part", &["-s", "-u", "usb/copy"]).status, 1);
    put(&bed, "tank/fs", "three");
    let said = dated(&bed, &["backup", "tank/fs", "usb/copy"]);
    assert_eq!(said[0], "usb/copy: going on with what was interrupted");
    assert!(bed.run(&["cat", "usb/copy:/three"]).good().starts_with("tank/fs three"));
    bed.expect_sound("usb");
}

#[test]
fn a_backup_in_a_folder_can_be_verified_and_received() {
    let bed = bed_with_two();
    put(&bed, "tank/fs", "one");
    bed.run(&["backup", "-r", "tank/fs", "./streams"]).good();
    put(&bed, "tank/fs", "two");
    bed.run(&["backup", "-r", "tank/fs", "./streams"]).good();
    let files = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(bed.path(folder)).expect("there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("read").file_name().into_string().expect("text")).collect();
        names.retain(|name| name.ends_with(".zfs-stream"));
        names.sort();
        names
    };
    let streams = files("streams");
    assert_eq!((streams.len(), files("streams/sub").len()), (2, 2));
    // The streams of the datasets below are read again, too.
    let verified = bed.run(&["backup", "--verify", "./streams"]).good();
    assert_eq!(verified.lines().filter(|line| line.starts_with("sub/")).count(), 2, "{verified}");
    assert_eq!(verified.lines().count(), 4);
    let size = pool::props::number::nice_bytes(
        std::fs::metadata(bed.path("streams").join(&streams[0])).expect("there").len(),
    );
    let line = format!("{}: read again, and all {size} are as they were written", streams[0]);
    assert_eq!(verified.lines().next(), Some(line.as_str()));
    // A folder has the streams of one dataset.
    let refused = bed.run(&["backup", "tank/fs/sub", "./streams"]);
    assert!(refused.status == 1 && refused.err.contains("has a backup of 'tank/fs'"), "{refused:?}");
    assert_eq!(files("streams"), streams);
    assert_eq!(names(&bed, "tank/fs/sub").iter().filter(|name| name.starts_with('@')).count(), 1);
    for name in &streams {
        receive(&bed, &format!("streams/{name}"), &["-u", "usb/back"]).good();
    }
    assert!(bed.run(&["cat", "usb/back:/two"]).good().starts_with("tank/fs two"));
    // One byte that changed is found.
    let path = bed.path("streams").join(&streams[1]);
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let done = bed.run(&["backup", "--verify", "./streams"]);
    assert!(done.status == 1 && done.err.contains("it is damaged"), "{done:?}");
    // Without its first stream nothing can be received: `--verify` says so, and the next backup begins anew.
    for name in [streams[0].clone(), streams[0].replace(".zfs-stream", ".json")] {
        std::fs::remove_file(bed.path("streams").join(name)).expect("removed");
    }
    let done = bed.run(&["backup", "--verify", "./streams"]);
    assert!(done.status == 1 && done.err.contains("the stream before '0002-"), "{done:?}");
    let said = bed.run(&["backup", "tank/fs", "./streams"]).good();
    assert!(said.contains("this stream is a full one"), "{said}");
    let newest = files("streams").pop().expect("there");
    receive(&bed, &format!("streams/{newest}"), &["-u", "usb/again"]).good();
    assert!(bed.run(&["cat", "usb/again:/two"]).good().starts_with("tank/fs two"));
    let none = bed.run(&["backup", "--verify", "./state"]);
    assert!(none.status == 1 && none.err.lines().count() == 1, "{none:?}");
    bed.expect_sound("tank");
}

#[test]
fn the_snapshots_of_a_copy_are_pruned_and_none_is_made_there() {
    let bed = bed_with_two();
    let keep = |words: &[&str]| bed.run(&[&["snapshots", "--keep", "1h"], words].concat());
    keep(&["-r", "tank/fs"]).good();
    // A dataset that came later gets its own; the others have theirs.
    zfs(&bed, "create tank/fs/new");
    let said = keep(&["-r", "tank/fs"]).good();
    assert!(said.lines().count() == 1 && said.starts_with("created tank/fs/new@auto-"), "{said}");
    for _ in 0..2 {
        bed.run(&["backup", "tank/fs", "usb/copy"]).good();
    }
    let before = names(&bed, "usb/copy");
    let refused = keep(&["usb/copy"]);
    assert!(refused.status == 1 && refused.err.contains("--prune"), "{refused:?}");
    assert_eq!(names(&bed, "usb/copy"), before);
    // A dataset beside the copy gets its own, and so does the one above.
    let above = bed.run(&["snapshots", "--keep", "1h", "-r", "usb"]);
    assert!(
        above.err.contains("'usb/copy' is a copy") && above.out.starts_with("created usb@auto-"),
        "{above:?}"
    );
    assert_eq!((above.status, names(&bed, "usb/copy")), (0, before.clone()));
    let said = keep(&["--prune", "usb/copy"]).good();
    assert!(said.lines().all(|line| line.starts_with("destroyed usb/copy@")), "{said}");
    let left = names(&bed, "usb/copy");
    assert_eq!(left.iter().filter(|name| name.starts_with('@')).count(), 1, "{before:?} {left:?}");
    // The next backup starts from the snapshot that is left.
    put(&bed, "tank/fs", "more");
    bed.run(&["backup", "tank/fs", "usb/copy"]).good();
    assert!(bed.run(&["cat", "usb/copy:/more"]).good().starts_with("tank/fs more"));
    // A copy that is used as a dataset of its own has snapshots.
    zfs(&bed, "inherit -r readonly usb/copy");
    keep(&["usb/copy"]).good();
    bed.expect_sound("usb");
}

#[test]
fn a_backup_makes_no_folder_where_its_disk_is_not_mounted() {
    let bed = bed_with_two();
    let refused = bed.run(&["backup", "tank/fs", "./no/streams"]);
    assert!(refused.status == 1 && refused.err.contains("is its disk mounted?"), "{refused:?}");
    assert!(!bed.path("no").exists() && names(&bed, "tank/fs").iter().all(|name| !name.starts_with('@')));
    // A name with a slash at its end is a folder.
    bed.run(&["backup", "tank/fs", "streams/"]).good();
    bed.run(&["backup", "--verify", "--json", "streams"]).good();
}

#[test]
fn a_backup_whose_interrupted_snapshot_is_gone_begins_anew() {
    let bed = bed_with_two();
    put(&bed, "tank/fs", "one");
    bed.run(&["backup", "tank/fs", "usb/copy"]).good();
    put(&bed, "tank/fs", "two");
    zfs(&bed, "snapshot tank/fs@gone");
    let base = names(&bed, "tank/fs").into_iter().find(|name| name.starts_with("@backup-")).expect("there");
    send(&bed, &["-i", &base, "tank/fs@gone"], "more").good();
    let bytes = std::fs::metadata(bed.path("more")).expect("there").len();
    cut(&bed, "more", bytes * 2 / 3);
    assert_eq!(receive(&bed, "more", &["-s", "-u", "usb/copy"]).status, 1);
    zfs(&bed, "destroy tank/fs@gone");
    let said = dated(&bed, &["backup", "tank/fs", "usb/copy"]);
    assert!(said[0].ends_with("that begins anew"), "{said:?}");
    assert!(bed.run(&["cat", "usb/copy:/two"]).good().starts_with("tank/fs two"));
    bed.expect_sound("usb");
}

#[test]
fn the_copy_of_an_encrypted_dataset_stays_in_the_form_that_it_has() {
    let bed = bed_with_two();
    std::fs::write(bed.path("key"), "passphrase123").expect("written");
    let location = format!("keylocation=file://{}", bed.path("key").display());
    let words = ["zfs", "create", "-o", "encryption=on", "-o", "keyformat=passphrase", "-o", &location];
    bed.run(&[&words[..], &["tank/e"]].concat()).good();
    let snapshots =
        || names(&bed, "tank/e").into_iter().filter(|name| name.starts_with('@')).collect::<Vec<_>>();
    for to in ["usb/raw", "./raw/"] {
        bed.run(&["backup", "-w", "tank/e", to]).good();
        let before = snapshots();
        let refused = bed.run(&["backup", "tank/e", to]);
        assert!(refused.status == 1 && refused.err.contains("was made with --raw"), "{to}: {refused:?}");
        assert_eq!(snapshots(), before, "{to}");
        bed.run(&["backup", "-w", "tank/e", to]).good();
    }
    // The key is in no server here.
    let refused = bed.run(&["backup", "tank/e", "usb/new"]);
    assert!(refused.status == 1 && refused.err.contains("key must be loaded"), "{refused:?}");
    bed.expect_sound("tank");
    bed.expect_sound("usb");
}

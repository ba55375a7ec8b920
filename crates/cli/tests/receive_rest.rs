//! `zfs receive -s` and `zfs send -t`: streams that were cut off, and the rest of them.

mod bed;

use bed::Bed;
use bed::streams::{names, put, receive, send, shown, zfs};

#[test]
fn what_was_received_in_part_is_sent_on() {
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
    // The rest of something else would be neither the one nor the other.
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
    // Without -F the old content stays, and what arrived waits.
    receive(&bed, "rest", &["tank/copy"])
        .refused("cannot receive new filesystem stream: destination tank/copy has been modified");
    assert_eq!(self::token(&bed, "tank/copy"), token);
    receive(&bed, "rest", &["-F", "tank/copy"]).good();
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/copy:/"), &["object"]);
    bed.expect_sound("tank");
}

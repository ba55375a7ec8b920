//! `cenote tar` both ways, against GNU tar and against streams that lead astray.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use super::bed::{Bed, expect_same};
use super::{OWN, plant};

/// Lets GNU tar unpack the output of `cenote tar -c PLACE` in the folder `to`.
fn unpack(bed: &Bed, place: &str, to: &str) {
    let output = bed.command(&["tar", "-c", place]).output().expect("the program starts");
    assert!(output.status.success() && output.stdout.len().is_multiple_of(512), "{:?}", output.status);
    fs::write(bed.path("stream.tar"), output.stdout).expect("written");
    fs::create_dir(bed.path(to)).expect("made");
    let mut tar = std::process::Command::new("tar");
    tar.args(["-x", "-p", "--xattrs", "--xattrs-include=*", "-f"]).arg(bed.path("stream.tar"));
    let output = tar.arg("-C").arg(bed.path(to)).output().expect("tar is here");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// Files of all kinds, in `src` and in the pool.
fn planted() -> Bed {
    let bed = Bed::with_tank(256, &["recordsize=4K", "xattr=sa"]);
    plant(&bed.path("src"));
    let deep = "n".repeat(120);
    fs::create_dir(bed.path("src").join(&deep)).expect("made");
    symlink(&deep, bed.path("src").join(&deep).join("long")).expect("made");
    bed.run(&["cp", "-rp", "src", "tank/fs:/"]).good();
    bed
}

#[test]
fn a_tar_stream_holds_what_gnu_tar_unpacks() {
    let bed = planted();
    unpack(&bed, "tank/fs:/src", "out");
    expect_same(
        &bed.manifest("out"),
        &bed.manifest("src"),
        &["ino", "blocks", "ctime_ns", "atime_ns", "data"],
    );
    let taken = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(bed.path("out/sparse")).expect("there"));
    assert!(taken * 512 < 4 << 20, "the stream has no zeros for holes");
    unpack(&bed, "tank/fs:/src/small", "one");
    assert_eq!(fs::read(bed.path("one/small")).expect("there"), b"small\n");
    bed.run(&["tar", "-c", "tank/fs:/gone"])
        .refused("cannot read 'tank/fs:/gone': no such file or directory");
    let stream = fs::read(bed.path("stream.tar")).expect("there");
    assert!(put(&bed, "tank/fs:/gone", &stream).1.contains("no such file or directory"));
}

/// Lets cenote unpack a stream at a place; returns the exit status and the messages.
fn put(bed: &Bed, place: &str, stream: &[u8]) -> (Option<i32>, String) {
    let mut command = bed.command(&["tar", "-x", place]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // It may not want all of it.
    let _ = child.stdin.take().expect("piped").write_all(stream);
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// A member of a tar stream in the form of 1988.
fn member(path: &str, flag: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut field = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    field(0, path);
    field(100, "0000644\0");
    field(108, "0001750\0");
    field(116, "0001750\0");
    field(124, &format!("{:011o}\0", content.len()));
    field(136, "00000000007\0");
    field(148, "        ");
    field(157, link);
    field(257, "ustar\x0000");
    block[156] = flag;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

#[test]
fn a_tar_stream_is_unpacked_as_it_was_packed() {
    let bed = planted();
    bed.run(&["zfs", "create", "-o", "recordsize=4K", "tank/again"]).good();
    let own = bed.command(&["tar", "-c", "tank/fs:/src"]).output().expect("it starts").stdout;
    assert_eq!(put(&bed, "tank/again", &own), (Some(0), String::new()));
    expect_same(&bed.list("tank/again:/"), &bed.list("tank/fs:/src"), &OWN);
    // Over what is there, and as GNU tar packs it.
    bed.run(&["zfs", "create", "tank/gnu"]).good();
    let mut tar = std::process::Command::new("tar");
    tar.args(["-c", "--format=pax", "--sparse", "--xattrs", "--numeric-owner", "-C"])
        .arg(bed.path("src"))
        .arg(".");
    let theirs = tar.output().expect("tar is here").stdout;
    for _ in 0..2 {
        assert_eq!(put(&bed, "tank/gnu", &theirs), (Some(0), String::new()));
        expect_same(
            &bed.list("tank/gnu:/"),
            &bed.manifest("src"),
            &["ino", "blocks", "ctime_ns", "atime_ns", "data"],
        );
    }
    // Cut off anywhere, it leaves whole files, and says so.
    bed.run(&["zfs", "create", "tank/cut"]).good();
    let whole = bed.list("tank/again:/");
    for cut in [1, 511, 512, own.len() / 3, own.len() / 2, own.len() - 1024] {
        let (status, said) = put(&bed, "tank/cut", &own[..cut]);
        assert!(status == Some(1) && said.contains("the stream is cut off"), "{cut}: {said}");
        for node in bed.list("tank/cut:/") {
            let size = |nodes: &[serde_json::Value]| {
                nodes.iter().find(|other| other["path"] == node["path"]).map(|node| node["size"].clone())
            };
            assert!(node["type"] != "file" || size(&whole) == Some(node["size"].clone()), "{node}");
        }
    }
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

#[test]
fn no_member_of_a_tar_stream_leads_out_of_its_place() {
    let bed = Bed::with_tank(128, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    fs::write(bed.path("src/victim"), "safe").expect("written");
    bed.run(&["cp", "-rp", "src", "tank/fs:/"]).good();
    bed.run(&["cp", "-rp", "src", "tank/fs:/place"]).good();
    let mut stream = Vec::new();
    for (path, flag, link, content) in [
        ("../src/victim", b'0', "", &b"bad"[..]),
        ("a/../../src/victim", b'0', "", b"bad"),
        ("/absolute", b'0', "", b"below"),
        ("out", b'2', "../src", b""),
        ("out/victim", b'0', "", b"bad"),
        ("hard", b'1', "../src/victim", b""),
        ("hard", b'1', "out/victim", b""),
        ("hard", b'1', "none", b""),
        ("twice", b'0', "", b"first"),
        ("twice", b'0', "", b"second"),
        ("victim/below", b'0', "", b"bad"),
        ("dir", b'5', "", b""),
        ("dir", b'0', "", b"bad"),
        ("last", b'0', "", b"good"),
    ] {
        stream.extend(member(path, flag, link, content));
    }
    stream.extend([0; 1024]);
    let (status, said) = put(&bed, "tank/fs:/place", &stream);
    assert!(status == Some(1) && said.matches("left out").count() == 8, "{said}");
    let cat = |path: &str| bed.run(&["cat", &format!("tank/fs:/{path}")]).good();
    assert_eq!((cat("src/victim").as_str(), cat("place/absolute").as_str()), ("safe", "below"));
    assert_eq!((cat("place/twice").as_str(), cat("place/last").as_str()), ("second", "good"));
    for bad in [&b"no tar at all"[..], &[7; 2048], &member("x", b'S', "", b""), &member("x", b'Z', "", b"")] {
        let (status, said) = put(&bed, "tank/fs:/place", bad);
        assert!(status == Some(1) && said.starts_with("cenote tar: "), "{said}");
    }
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

#[test]
fn acls_are_text_in_a_stream_and_unknown_users_are_named() {
    let bed = Bed::with_tank(128, &["acltype=posix"]);
    let with_acl = |path: &str, text: &str| {
        let rest = format!(" SCHILY.acl.access={text}\n");
        let records = format!("{}{rest}", rest.len() + 2);
        assert_eq!(records.len(), rest.len() + 2, "two digits of length");
        [member("PaxHeader", b'x', "", records.as_bytes()), member(path, b'0', "", b"x")].concat()
    };
    let known = with_acl("known", "u::rw-,u:7:r--,g::r--,m::rw-,o::---");
    let unknown = with_acl("unknown", "u::rw-,u:no-one:r--,g::r--,m::r--,o::-");
    let (status, said) = put(&bed, "tank/fs:/", &[known, unknown, vec![0; 1024]].concat());
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("'unknown'") && said.contains("'no-one'"), "{said}");
    let output = bed.command(&["tar", "-c", "tank/fs:/"]).output().expect("the program starts");
    let has = |text: &str| output.stdout.windows(text.len()).any(|piece| piece == text.as_bytes());
    assert!(has("SCHILY.acl.access=user::rw-,user:7:r--,group::r--,mask::rw-,other::---\n"));
    assert!(has("unknown") && !has("user:no-one"));
    bed.expect_sound("tank");
}

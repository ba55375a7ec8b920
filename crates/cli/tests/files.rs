//! Files without a mount: into pools, inside them, and out again.

mod bed;
mod tar_streams;

use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bed::{Bed, expect_same};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// Fields that a copy has of its own.
const OWN: [&str; 3] = ["ino", "blocks", "ctime_ns"];

/// Bytes that no codec makes smaller.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(&mut next).take(len).collect()
}

/// Every kind of file that this user can make.
fn plant(top: &Path) {
    let path = |name: &str| top.join(name);
    fs::create_dir_all(path("d/e")).expect("made");
    fs::write(path("d/noise"), noise(3_000_001, 7)).expect("made");
    fs::write(path("d/text"), "the quick brown fox\n".repeat(40_000)).expect("made");
    fs::write(path("empty"), "").expect("made");
    fs::write(path("small"), "small\n").expect("made");
    fs::write(path("a-b"), "sorts before a/b").expect("made");
    fs::create_dir(path("a")).expect("made");
    fs::write(path("a/b"), "x").expect("made");
    fs::write(top.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "not UTF-8").expect("made");
    let sparse = File::create(path("sparse")).expect("made");
    sparse.set_len(64 << 20).expect("long");
    sparse.write_all_at(b"in the middle", 50_000_000).expect("written");
    let hole = File::create(path("hole-first")).expect("made");
    hole.write_all_at(b"end", 300_000).expect("written");
    File::create(path("hole-only")).expect("made").set_len(5 << 20).expect("long");
    symlink("d/text", path("link")).expect("made");
    symlink("/nowhere", path("dangling")).expect("made");
    fs::hard_link(path("d/text"), path("d/e/text-too")).expect("made");
    fs::hard_link(path("d/text"), path("text-also")).expect("made");
    mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).expect("made");
    // Only root makes devices.
    let device = |name: &str, kind, major, minor| {
        let _ = mknodat(CWD, path(name), kind, Mode::from_raw_mode(0o600), makedev(major, minor));
    };
    device("null", FileType::CharacterDevice, 1, 3);
    device("disk", FileType::BlockDevice, 259, 300_000);
    if rustix::process::geteuid().is_root() {
        rustix::fs::chown(path("small"), Some(rustix::fs::Uid::from_raw(12345)), None).expect("given away");
    }
    // Some file systems have no extended attributes.
    let _ = xattr::set(path("small"), "user.colour", b"blue");
    let _ = xattr::set(path("d"), "user.long", &[b'a'; 2000]);
    fs::set_permissions(path("small"), Permissions::from_mode(0o4750)).expect("set");
    fs::set_permissions(path("d/e"), Permissions::from_mode(0o1777)).expect("set");
    for name in ["d/noise", "d", "small"] {
        let time = std::time::UNIX_EPOCH + Duration::new(946_684_799, 123_456_789);
        File::open(path(name)).expect("there").set_modified(time).expect("set");
    }
    fs::set_permissions(path("a"), Permissions::from_mode(0o555)).expect("set");
}

#[test]
fn files_copied_into_a_pool_come_out_unchanged() {
    for properties in [&["compression=lz4"][..], &["recordsize=4K", "xattr=sa"], &["recordsize=1M"]] {
        let bed = Bed::with_tank(256, properties);
        plant(&bed.path("src"));
        let wanted = bed.manifest("src");
        bed.run(&["cp", "-rp", "src", "tank/fs:/"]).good();
        // Holes are kept as far as whole records are holes.
        expect_same(&bed.list("tank/fs:/src"), &wanted, &["ino", "blocks", "ctime_ns", "data"]);
        bed.run(&["cp", "-rp", "tank/fs:/src", "out"]).good();
        expect_same(&bed.manifest("out"), &wanted, &["ino", "blocks", "ctime_ns", "data"]);
        let taken =
            std::os::unix::fs::MetadataExt::blocks(&fs::metadata(bed.path("out/sparse")).expect("there"));
        assert!(taken * 512 < 4 << 20, "the copy is sparse");
        // From pool to pool, and over what is there already.
        bed.run(&["cp", "-rp", "tank/fs:/src", "tank/fs:/again"]).good();
        bed.run(&["cp", "-rp", "tank/fs:/src/.", "tank/fs:/again"]).good();
        expect_same(&bed.list("tank/fs:/again"), &bed.list("tank/fs:/src"), &OWN);
        bed.run(&["rm", "-r", "tank/fs:/src", "tank/fs:/again"]).good();
        assert_eq!(bed.list("tank/fs:/").len(), 1);
        bed.run(&["zpool", "export", "tank"]).good();
        bed.expect_sound("tank");
    }
}

#[test]
fn a_copy_without_p_belongs_to_the_copying_user() {
    let bed = Bed::with_tank(128, &[]);
    plant(&bed.path("src"));
    let done = bed.run(&["cp", "-r", "--json", "src", "tank/fs:/"]).good();
    let summary: serde_json::Value = serde_json::from_str(&done).expect("JSON");
    assert!(summary["errors"] == 0 && summary["hard_links"] == 2 && summary["stopped"] == false, "{summary}");
    let list = bed.list("tank/fs:/src");
    let small = list.iter().find(|entry| entry["path"] == "small").expect("copied");
    assert_eq!(small["uid"], rustix::process::geteuid().as_raw());
    assert!(
        small["mode"].as_str().is_some_and(|mode| mode.starts_with('0')) && small.get("xattrs").is_none()
    );
}

#[test]
fn names_are_made_moved_shown_and_removed() {
    let bed = Bed::with_tank(64, &[]);
    bed.run(&["mkdir", "-p", "tank/fs:/a/b/c"]).good();
    bed.run(&["mkdir", "-p", "tank/fs:/a/b"]).good();
    bed.run(&["mkdir", "tank/fs:/a"]).refused("cannot create 'tank/fs:/a': file exists");
    fs::write(bed.path("hello"), "hello\n").expect("made");
    bed.run(&["cp", "hello", "tank/fs:/a/b/c"]).good();
    bed.run(&["mv", "tank/fs:/a/b/c/hello", "tank/fs:/a/greeting"]).good();
    assert_eq!(bed.run(&["cat", "tank/fs:/a/greeting"]).good(), "hello\n");
    assert_eq!(bed.run(&["ls", "tank/fs:/a"]).good(), "b\ngreeting\n");
    let tree = bed.run(&["tree", "tank/fs:/"]).good();
    let drawn = "tank/fs:/\n└── a\n    ├── b\n    │   └── c\n    └── greeting\n\n3 folders, 1 file\n";
    assert_eq!(tree, drawn);
    assert!(bed.run(&["stat", "tank/fs:/a/greeting"]).good().contains("   size  6 bytes"));
    assert!(bed.run(&["du", "-s", "tank/fs:/"]).good().ends_with("\ttank/fs:/\n"));
    bed.run(&["rm", "tank/fs:/a"]).refused("'tank/fs:/a' is a folder: remove folders with -r");
    bed.run(&["rm", "-r", "tank/fs:/a"]).good();
    bed.run(&["rm", "tank/fs:/a"]).refused("cannot remove 'tank/fs:/a': no such file or directory");
    bed.run(&["rm", "-f", "tank/fs:/a"]).good();
}

#[test]
fn a_dataset_without_a_path_is_its_root() {
    let bed = Bed::with_tank(64, &[]);
    fs::write(bed.path("hello"), "hello\n").expect("made");
    bed.run(&["cp", "hello", "tank/fs:"]).good();
    for words in [&["ls"][..], &["tree"], &["du", "-s"], &["stat"]] {
        let whole = bed.run(&[words, &["tank/fs:/"]].concat()).good();
        for name in ["tank/fs", "tank/fs:"] {
            assert_eq!(bed.run(&[words, &[name]].concat()).good(), whole, "{words:?} {name}");
        }
    }
    // Commands that change files refuse the name of a dataset in place of a file.
    bed.run(&["rm", "-r", "tank/fs:"]).refused("cannot remove 'tank/fs:/': invalid argument");
    assert_eq!(bed.run(&["rm", "-r", "tank/fs"]).status, 2);
    assert_eq!(bed.run(&["mv", "tank/fs:", "tank/fs:/x"]).status, 1);
    assert_eq!(bed.run(&["ls", "tank/fs"]).good(), "hello\n");
    // If a local folder has this name, the operand does not mean the dataset, and `ls` refuses it.
    fs::create_dir_all(bed.path("tank/fs")).expect("made");
    assert_eq!(bed.run(&["ls", "tank/fs"]).status, 2);
}

#[test]
fn errors_are_one_line_and_leave_nothing_behind() {
    let bed = Bed::with_tank(64, &[]);
    fs::create_dir(bed.path("dir")).expect("made");
    fs::write(bed.path("file"), "x").expect("made");
    bed.run(&["ls", "tank/none:/"]).refused("cannot open 'tank/none': dataset does not exist");
    bed.run(&["ls", "none:/"]).refused("cannot open 'none': dataset does not exist");
    bed.run(&["cp", "missing", "tank/fs:/"]).refused("cannot read 'missing': no such file or directory");
    bed.run(&["cp", "dir", "tank/fs:/"]).refused("'dir' is a folder: copy folders with -r");
    bed.run(&["cp", "-r", "file", "dir", "tank/fs:/none"])
        .refused("'tank/fs:/none' does not exist: several copies need a folder");
    bed.run(&["cp", "file", "tank/fs:/none/file"])
        .refused("cannot write 'tank/fs:/none/file': no such file or directory");
    let long = format!("tank/fs:/{}", "n".repeat(300));
    let done = bed.run(&["cp", "file", &long]);
    assert!(
        done.status == 1 && done.err.contains("file name too long") && done.err.lines().count() == 1,
        "{done:?}"
    );
    bed.run(&["mkdir", "tank/fs:/a"]).good();
    bed.run(&["cp", "-r", "tank/fs:/a", "tank/fs:/a/b"]).refused("cannot copy 'tank/fs:/a' into itself");
    assert_eq!(bed.run(&["cp", "tank/fs:/a"]).status, 2);
    // A file that cannot be copied does not stop the copying of the others.
    let done = bed.run(&["cp", "missing", "file", "tank/fs:/a"]);
    assert!(done.status == 1 && done.err.lines().count() == 1, "{done:?}");
    assert_eq!(bed.run(&["ls", "tank/fs:/a"]).good(), "file\n");
    fs::write(bed.path("junk"), noise(100_000, 3)).expect("made");
    bed.run(&["check", "junk"]).refused("'junk' holds no pool");
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

#[test]
fn a_full_pool_ends_a_copy_with_one_line() {
    let bed = Bed::with_tank(64, &["compression=off"]);
    fs::create_dir(bed.path("src")).expect("made");
    for i in 0..40 {
        fs::write(bed.path(&format!("src/{i:02}")), noise(3 << 20, i + 1)).expect("made");
    }
    for _ in 0..2 {
        let done = bed.run(&["cp", "-r", "src", "tank/fs:/"]);
        assert!(
            done.status == 1 && done.err.lines().count() == 1 && done.err.contains("no space left"),
            "{done:?}"
        );
        // The files there are whole.
        for entry in bed.list("tank/fs:/src") {
            assert!(entry["type"] == "dir" || entry["size"] == 3 << 20, "{entry}");
        }
        bed.run(&["rm", "-r", "tank/fs:/src"]).good();
    }
    fs::write(bed.path("one"), noise(3 << 20, 99)).expect("made");
    bed.run(&["cp", "one", "tank/fs:/"]).good();
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

#[test]
fn an_interrupted_copy_is_consistent() {
    let bed = Bed::with_tank(512, &["compression=gzip-9"]);
    fs::create_dir(bed.path("src")).expect("made");
    for i in 0..60 {
        fs::write(bed.path(&format!("src/{i:02}")), noise(2 << 20, i + 1)).expect("made");
    }
    let mut command = bed.command(&["cp", "-r", "src", "tank/fs:/"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    // It may be done already; then there is nothing to interrupt.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    // On a busy machine it may not listen yet: then the signal ends it, and nothing was begun.
    let unheard = std::os::unix::process::ExitStatusExt::signal(&output.status).is_some();
    let done = bed::Done::from(output);
    assert!(unheard || [0, 130].contains(&done.status), "{done:?}");
    for entry in bed.list("tank/fs:/") {
        assert!(entry["type"] == "dir" || entry["size"] == 2 << 20, "{entry}");
    }
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

#[test]
fn the_same_folder_gives_the_same_image() {
    let bed = Bed::new();
    plant(&bed.path("src"));
    for image in ["a.img", "b.img"] {
        let mut command = bed.command(&["mkfs", "-q", "-d", "src", "-o", "compression=zstd-3", image]);
        let output = command.env("SOURCE_DATE_EPOCH", "1700000000").output().expect("it starts");
        bed::Done::from(output).good();
        // Reading changes times of access; these are not what the image is made of.
        let _ = fs::read(bed.path("src/d/text"));
    }
    let read = |image: &str| fs::read(bed.path(image)).expect("an image");
    assert!(read("a.img") == read("b.img"), "the images are identical");
    bed.run(&["mkfs", "-d", "src", "a.img"]).refused("cannot make 'a.img': it exists already");
    for inside in ["src/x.img", "src/../src/x.img"] {
        let line = format!("cannot make '{inside}': it would be a file in the folder that it is made from");
        bed.run(&["mkfs", "-d", "src", inside]).refused(&line);
        assert!(!bed.path(inside).exists());
    }
    bed.run(&["mkfs", "-q", "-d", "src", "--name", "tank", "-o", "recordsize=16K", "tank.img"]).good();
    let list = bed.run(&["-d", "tank.img", "ls", "-R", "--json", "--sha256", "tank:/"]).objects();
    expect_same(&list, &bed.manifest("src"), &["ino", "blocks", "ctime_ns", "data"]);
    bed.expect_sound("tank");
    bed.run(&["mkfs", "-d", "src", "-o", "compression=fast", "c.img"]);
    assert!(!bed.path("c.img").exists());
}

#[test]
fn odd_names_stay_on_one_line_and_steer_no_terminal() {
    let bed = Bed::with_tank(64, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    fs::write(bed.path("src/a\nb\x1b[2J"), "x").expect("made");
    std::os::unix::fs::symlink("to\there", bed.path("src/link")).expect("made");
    bed.run(&["cp", "-r", "src", "tank/fs:/"]).good();
    let quoted = "a\\0012b\\0033[2J";
    assert_eq!(bed.run(&["ls", "tank/fs:/src"]).good(), format!("{quoted}\nlink\n"));
    let long = bed.run(&["ls", "-l", "tank/fs:/src"]).good();
    assert!(long.lines().count() == 2 && long.ends_with(" link -> to\\0011here\n"), "{long}");
    let tree = bed.run(&["tree", "tank/fs:/"]).good();
    assert!(tree.contains(&format!("├── {quoted}\n")) && tree.ends_with("\n1 folder, 2 files\n"), "{tree}");
    let stat = bed.run(&["stat", "tank/fs:/src/a\nb\x1b[2J"]).good();
    assert!(stat.contains(&format!("  place  tank/fs:/src/{quoted}\n   type")), "{stat}");
    assert!(stat.contains("   size  1 byte,") && stat.contains("   data  1 byte in 1 part,"), "{stat}");
    let projects = bed.run(&["zfs", "project", "tank/fs:/src"]).good();
    assert!(projects.contains(&format!("tank/fs:/src/{quoted}\n")), "{projects}");
    // For programs, names are what they are.
    assert!(bed.list("tank/fs:/src").iter().any(|entry| entry["path"] == "a\nb\x1b[2J"));
}

/// The output of `cenote WORDS` on a terminal; `None` where there is no `script` to make one.
fn on_a_terminal(bed: &Bed, words: &str) -> Option<String> {
    let mut script = Command::new("script");
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_cenote"));
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    bed::in_place_of(&bed.command(&[]), &mut script);
    match script.output() {
        Ok(output) => {
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{shown}");
            Some(shown)
        }
        Err(error) => {
            eprintln!("skipped: script: {error}");
            None
        }
    }
}

/// Outside a pool files take their whole length.
#[test]
fn a_copy_out_of_a_pool_first_prints_its_size() {
    let bed = Bed::with_tank(128, &["compression=gzip-9"]);
    fs::create_dir(bed.path("from")).expect("made");
    (0..20).for_each(|n| {
        let text = format!("line of file {n}\n").repeat(20_000);
        fs::write(bed.path(&format!("from/{n}")), &text[..256 << 10]).expect("written");
    });
    fs::hard_link(bed.path("from/0"), bed.path("from/again")).expect("linked");
    let sparse = File::create(bed.path("from/sparse")).expect("made");
    sparse.set_len(4 << 40).expect("long");
    sparse.write_all_at(&[7; 1 << 20], 1 << 40).expect("written");
    bed.run(&["-d", "tank.img", "cp", "-r", "from", "tank/fs:/"]).good();
    let Some(shown) = on_a_terminal(&bed, "-d tank.img cp -r tank/fs:/from to") else { return };
    let said = shown.find("to copy: 21 files, 6M (").unwrap_or_else(|| panic!("{shown:?}"));
    let line = shown[said..].lines().next().expect("a line");
    let stored = line.split_once('(').and_then(|(_, rest)| rest.split_once(" in the pool); ")).expect("both");
    assert!(stored.0.ends_with('K') && stored.1.ends_with(" are free in '.'"), "{line:?}");
    // Before: the bar, which has the time left, comes below it.
    assert!(shown.rfind("left").is_none_or(|last| last > said), "{shown:?}");
    assert_eq!(fs::metadata(bed.path("to/sparse")).expect("copied").len(), 4 << 40);
    // No such line is printed into a file, with `-q`, or when the copy stays in the pool.
    let plain = bed.run(&["-d", "tank.img", "cp", "-r", "tank/fs:/from", "again"]);
    assert_eq!((plain.status, plain.err.as_str()), (0, ""));
    for words in ["cp -qr tank/fs:/from quiet", "cp -r tank/fs:/from tank/fs:/inside"] {
        let shown = on_a_terminal(&bed, &format!("-d tank.img {words}")).expect("it was there");
        assert!(!shown.contains("to copy"), "{shown:?}");
    }
}

#[test]
fn copies_inside_a_pool_share_blocks_where_the_feature_is() {
    let bed = Bed::new();
    File::create(bed.path("tank.img")).expect("made").set_len(128 << 20).expect("long");
    let features = ["-o", "feature@block_cloning=enabled"];
    let image = bed.path("tank.img").display().to_string();
    bed.run(&[&["zpool", "create"][..], &features, &["tank", &image]].concat()).good();
    bed.run(&["zfs", "create", "tank/one"]).good();
    bed.run(&["zfs", "create", "-o", "recordsize=16K", "tank/two"]).good();
    bed.run(&["zfs", "create", "-o", "compression=gzip", "tank/other"]).good();
    plant(&bed.path("plain"));
    bed.run(&["cp", "-rpq", "plain", "tank/one:/"]).good();
    bed.run(&["zfs", "snapshot", "tank/one@now"]).good();
    let saved = || bed.pool_values(&["bclonesaved", "tank"]);
    for (n, from) in ["tank/one:/plain", "tank/one@now:/plain"].into_iter().enumerate() {
        let before: u64 = saved().trim().parse().expect("a number");
        bed.run(&["cp", "-rpq", from, &format!("tank/two:/copy{n}")]).good();
        let after: u64 = saved().trim().parse().expect("a number");
        assert!(after - before > 3_000_000, "{before} {after}");
        expect_same(&bed.list(&format!("tank/two:/copy{n}")), &bed.list("tank/one:/plain"), &OWN);
    }
    bed.run(&["cp", "-q", "--reflink=always", "tank/one:/plain/d/noise", "tank/one:/again"]).good();
    // Bytes are copied where blocks cannot be shared, and where the user forbids it.
    let before = saved();
    bed.run(&["cp", "-q", "--reflink=never", "tank/one:/plain/d/noise", "tank/one:/bytes"]).good();
    bed.run(&["cp", "-rpq", "tank/one:/plain", "tank/other:/copy"]).good();
    expect_same(&bed.list("tank/other:/copy"), &bed.list("tank/one:/plain"), &OWN);
    let refused = bed.run(&["cp", "-q", "--reflink=always", "tank/one:/plain/d/noise", "tank/other:/no"]);
    assert!(refused.status == 1 && refused.err.contains("other properties"), "{refused:?}");
    assert_eq!(saved(), before);
    let done = bed.run(&["check", "tank.img"]);
    assert!(done.status == 0 && done.out.contains(": clean"), "{done:?}");
    for dataset in ["tank/two", "tank/one"] {
        bed.run(&["zfs", "destroy", "-r", dataset]).good();
    }
    assert_eq!(saved().trim(), "0");
    bed.expect_sound("tank");
}

/// Names in a folder of this machine that copies gave to files that were not complete.
fn unfinished(folder: &Path) -> usize {
    let names = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".cenote-")).count()
}

/// Kills `cenote WORDS` after a moment, as a power cut would.
#[test]
fn a_copy_that_goes_on_does_not_go_below_the_earlier_one() {
    let bed = Bed::with_tank(64, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    ["a", "b"].iter().for_each(|name| fs::write(bed.path(&format!("src/{name}")), name).expect("made"));
    // The first copy makes the destination.
    bed.run(&["cp", "-rp", "src", "tank/fs:/copy"]).good();
    bed.run(&["cp", "-rp", "tank/fs:/copy", "out"]).good();
    for (from, to) in [("src", "tank/fs:/copy"), ("tank/fs:/copy", "out")] {
        let refused = bed.run(&["cp", "-rp", "--resume", from, to]);
        assert!(refused.status == 1 && refused.err.contains(&format!("give '{from}/.'")), "{refused:?}");
        let whole = bed.run(&["cp", "-rp", "--resume", "--json", &format!("{from}/."), to]).objects();
        assert_eq!((&whole[0]["files"], &whole[0]["skipped"]), (&0.into(), &2.into()));
    }
    assert_eq!(bed.list("tank/fs:/copy").len(), 3);
    // Without a name in common there is no doubt.
    bed.run(&["mkdir", "tank/fs:/empty"]).good();
    bed.run(&["cp", "-rp", "--resume", "src", "tank/fs:/empty"]).good();
    assert_eq!(bed.list("tank/fs:/empty/src").len(), 3);
}

fn killed(bed: &Bed, words: &[&str], after: Duration) {
    let mut child =
        bed.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait().expect("it ends");
}

#[test]
fn a_killed_copy_leaves_no_half_file_and_is_resumed() {
    const LEN: usize = 3 << 20;
    let bed = Bed::with_tank(512, &["compression=gzip-9"]);
    fs::create_dir(bed.path("src")).expect("made");
    (0..40).for_each(|i| fs::write(bed.path(&format!("src/{i:02}")), noise(LEN, i + 1)).expect("made"));
    let mut wait = 150;
    while wait < 1200 && bed.list("tank/fs:/").len() == 1 {
        killed(&bed, &["cp", "-rp", "src", "tank/fs:/"], Duration::from_millis(wait));
        wait *= 2;
    }
    for entry in bed.list("tank/fs:/") {
        let is_temporary = entry["path"].as_str().is_some_and(|path| path.contains("/.cenote-"));
        assert!(entry["type"] == "dir" || is_temporary || entry["size"] == LEN, "{entry}");
    }
    let resume = ["cp", "-rp", "--resume", "--json", "src", "tank/fs:/"];
    bed.run(&resume).good();
    expect_same(&bed.list("tank/fs:/src"), &bed.manifest("src"), &OWN_DATA);
    let again = bed.run(&resume).objects();
    assert_eq!((&again[0]["files"], &again[0]["skipped"]), (&0.into(), &40.into()));
    // Out of the pool: killed once something is there.
    let out = ["cp", "-rp", "tank/fs:/src", "out"];
    let mut wait = 100;
    while wait < 1200 && fs::read_dir(bed.path("out")).map_or(0, Iterator::count) < 2 {
        killed(&bed, &out, Duration::from_millis(wait));
        wait *= 2;
    }
    for entry in fs::read_dir(bed.path("out")).into_iter().flatten().map(|entry| entry.expect("an entry")) {
        let is_temporary = entry.file_name().to_string_lossy().starts_with(".cenote-");
        assert!(is_temporary || entry.metadata().expect("there").len() == LEN as u64, "{entry:?}");
    }
    // A temporary file of another process that still runs stays.
    let other = bed.path(&format!("out/.cenote-{}-7", std::process::id()));
    fs::create_dir_all(bed.path("out")).expect("made");
    fs::write(&other, "half").expect("made");
    fs::write(bed.path("out/.cenote-4194305-0"), "half").expect("made");
    bed.run(&["cp", "-rp", "--resume", "tank/fs:/src/.", "out"]).good();
    assert_eq!(unfinished(&bed.path("out")), 1);
    fs::remove_file(other).expect("removed");
    bed.run(&["cp", "-rp", "--resume", "tank/fs:/src/.", "out"]).good();
    expect_same(&bed.manifest("out"), &bed.manifest("src"), &OWN_DATA);
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

/// Fields that differ where holes are kept by records.
const OWN_DATA: [&str; 4] = ["ino", "blocks", "ctime_ns", "data"];

#[test]
fn a_resumed_copy_makes_what_differs_and_the_names_that_are_missing() {
    let bed = Bed::with_tank(256, &[]);
    plant(&bed.path("src"));
    let wanted = bed.manifest("src");
    bed.run(&["cp", "-rp", "src", "tank/fs:/"]).good();
    for (from, to) in [("src", "tank/fs:/src"), ("tank/fs:/src", "out")] {
        let from = format!("{from}/.");
        bed.run(&["cp", "-rp", &from, to]).good();
        // One name of three is gone, one file is shorter, one is newer, one is as it was.
        if to == "out" {
            fs::remove_file(bed.path("out/text-also")).expect("removed");
            fs::write(bed.path("out/d/noise"), "short").expect("written");
            fs::write(bed.path("out/a-b"), "sorts before a/c").expect("written");
        } else {
            bed.run(&["rm", "tank/fs:/src/text-also"]).good();
            bed.run(&["cp", "src/empty", "tank/fs:/src/d/noise"]).good();
        }
        let done = bed.run(&["cp", "-rp", "--resume", "--json", &from, to]).objects();
        assert!(done[0]["skipped"].as_u64() > Some(3) && done[0]["files"].as_u64() <= Some(3), "{done:?}");
        let found = if to == "out" { bed.manifest("out") } else { bed.list(to) };
        expect_same(&found, &wanted, &OWN_DATA);
    }
    // Without -p times are not kept: a copy that is not older is complete.
    bed.run(&["cp", "-r", "tank/fs:/src/d", "plain"]).good();
    let done = bed.run(&["cp", "-r", "--resume", "--json", "tank/fs:/src/d/.", "plain"]).objects();
    assert_eq!(done[0]["files"], 0, "{done:?}");
}

#[test]
fn a_dry_run_says_what_a_copy_does_and_writes_nothing() {
    let bed = Bed::with_tank(256, &[]);
    fs::create_dir_all(bed.path("src/d")).expect("made");
    for (name, text) in [("src/a", "new"), ("src/d/b", "b"), ("src/c", "the same")] {
        fs::write(bed.path(name), text).expect("made");
    }
    symlink("a", bed.path("src/link")).expect("made");
    fs::hard_link(bed.path("src/c"), bed.path("src/z")).expect("made");
    bed.run(&["cp", "-rp", "src", "tank/fs:/"]).good();
    bed.run(&["zfs", "create", "tank/fs/child"]).good();
    bed.run(&["cp", "src/a", "tank/fs/child:/inside"]).good();
    fs::write(bed.path("src/a"), "newer").expect("made");
    fs::write(bed.path("src/more"), vec![7; 5000]).expect("made");
    let into = bed.run(&["cp", "-rpn", "--resume", "src", "tank/fs:/"]).good();
    let summary = "nothing was written: it would create 1, replace 2, skip 2; 4.89K in 2 files";
    let wanted = [
        "replace  tank/fs:/src/a",
        "skip     tank/fs:/src/c",
        "replace  tank/fs:/src/link",
        "create   tank/fs:/src/more",
        "link     tank/fs:/src/z",
        "skip     tank/fs:/src/d/b",
        summary,
    ];
    assert_eq!(into.lines().collect::<Vec<_>>(), wanted);
    assert_eq!(bed.list("tank/fs:/src").len(), 7);
    // Out of the pool, with the dataset below, to a name that is not there.
    let out = bed.run(&["cp", "-rn", "tank/fs:/", "out"]).good();
    let first: Vec<&str> = out.lines().take(2).collect();
    assert_eq!(first, ["create   out/", "create   out/child/"], "{out}");
    assert!(out.contains("create   out/child/inside\n") && !bed.path("out").exists(), "{out}");
    let steps = bed.run(&["cp", "-rn", "--json", "tank/fs:/src/d", "out"]).objects();
    assert_eq!((steps.len(), &steps[1]["path"], &steps[1]["bytes"]), (3, &"out/b".into(), &1.into()));
    assert_eq!((&steps[2]["dry_run"], &steps[2]["created"]), (&true.into(), &2.into()));
    assert_eq!(bed.run(&["cp", "-rnq", "src", "tank/fs:/other"]).good().lines().count(), 1);
    // The dry run refuses everything that the copy refuses.
    fs::create_dir_all(bed.path("taken/a")).expect("made");
    let refused = bed.run(&["cp", "-rn", "tank/fs:/src/.", "taken"]);
    assert!(refused.status == 1 && refused.err.contains("a directory has that name"), "{refused:?}");
    assert_eq!(fs::read_dir(bed.path("taken")).expect("there").count(), 1);
    // A reader that goes away ends it.
    let mut child = bed
        .command(&["cp", "-rn", "src", "tank/fs:/other"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    assert!([Some(0), Some(141)].contains(&child.wait().expect("it ends").code()));
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

/// Every command that prints a result prints it as JSON, too: one object per line, or one object.
#[test]
fn every_command_that_prints_a_result_prints_json() {
    let bed = Bed::with_tank(128, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    fs::write(bed.path("src/a"), "text ".repeat(50_000)).expect("made");
    fs::create_dir(bed.path("links")).expect("made");
    bed.run(&["cp", "-r", "src", "tank/fs:/"]).good();
    fs::copy(bed::root().join("crates/bench/tests/report.json"), bed.path("report.json")).expect("there");
    let policy = ["snapshots", "--json", "--keep", "2d", "tank/fs"];
    let lines: [&[&str]; 21] = [
        &["cp", "--json", "src/a", "tank/fs:/b"],
        &["ls", "-R", "--json", "tank/fs"],
        &["tree", "--json", "tank/fs"],
        &["stat", "--json", "tank/fs:/b"],
        &["du", "--json", "tank/fs"],
        &["usage", "--json", "tank/fs"],
        &["mkfs", "--json", "-d", "src", "made.img"],
        &["report", "--json", "report.json"],
        &["report", "--json", "report.json", "report.json"],
        &["advise", "--json", "--time", "0.2", "src"],
        &["engines", "--json"],
        &["tune", "--json"],
        &["generate", "--json", "completions", "completions"],
        &policy,
        &["backup", "--json", "tank/fs", "./backup"],
        &["backup", "--json", "--verify", "./backup"],
        &["install-links", "--json", "links"],
        &["zfs", "list", "-j"],
        &["zpool", "list", "-j"],
        &["zpool", "status", "-j"],
        &["check", "--json", "tank"],
    ];
    for words in lines {
        let out = bed.run(words).good();
        let mut values = serde_json::Deserializer::from_str(&out).into_iter::<serde_json::Value>();
        let all: Result<Vec<_>, _> = values.by_ref().collect();
        let all = all.unwrap_or_else(|error| panic!("{words:?}: {error}: {out}"));
        assert!(!all.is_empty() && all.iter().all(serde_json::Value::is_object), "{words:?}: {out}");
    }
}

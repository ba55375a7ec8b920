//! Copies that go wrong: sources that change, vanish or cannot be read, disks that are full, signals.

mod bed;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bed::{Bed, Done};
use rustix::process::{Pid, Signal, kill_process};

const MIB: usize = 1 << 20;
/// However much was read.
const ANY: Range<u64> = 0..u64::MAX;
/// So little that most of what [`plant`] makes is still to be copied.
const EARLY: Range<u64> = 0..40 << 20;
/// Whom tests that run as root become.
const NOBODY: u32 = 65534;

/// Incompressible bytes, different for every seed.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(word).take(len / 8 + 1).flatten().collect();
    bytes.truncate(len);
    bytes
}

/// The message of a copy that takes a while to stop.
const STOPPING: &str = "stopping: what is in memory is written first; Ctrl-C again leaves at once";

fn send(child: &Child, signal: Signal) {
    // The process may have ended already; then no signal is sent.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Whether the process has a file of this folder open: not the folder itself, which may still be unread.
fn reads_from(pid: u32, folder: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut targets = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    targets.any(|target| target != folder && target.starts_with(folder))
}

fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// How many bytes the process has asked to read so far, of whatever file.
fn bytes_read(pid: u32) -> Option<u64> {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    counts.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

/// Starts a command and holds it still at a moment when it has a file of `folder` open and has read so many
/// bytes since it opened it.
fn hold(bed: &Bed, words: &[&str], folder: &str, after: &Range<u64>) -> Option<Child> {
    let folder = fs::canonicalize(bed.path(folder)).expect("a folder");
    let mut command = bed.command(words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id();
    let lives = || Path::new(&format!("/proc/{pid}/fd/0")).exists();
    let since = Instant::now();
    // The bytes that it had read when its file was surely not yet open, and when it surely was.
    let (mut before, mut opened) = (0, None);
    while since.elapsed() < bed::PATIENCE && lives() {
        let Some(read) = bytes_read(pid) else { break };
        if !reads_from(pid, &folder) {
            (before, opened) = (read, None);
            continue;
        }
        let opened = *opened.get_or_insert_with(|| bytes_read(pid).unwrap_or(read));
        if bytes_read(pid).is_none_or(|read| read < opened + after.start) {
            continue;
        }
        send(&child, Signal::STOP);
        while !is_stopped(pid) && lives() {
            std::thread::yield_now();
        }
        let in_time = bytes_read(pid).is_some_and(|read| read - before < after.end);
        if is_stopped(pid) && in_time && reads_from(pid, &folder) {
            return Some(child);
        }
        send(&child, Signal::CONT);
    }
    send(&child, Signal::CONT);
    let _ = child.wait_with_output();
    None
}

/// As [`hold`], again and again: a copy into `tank/fs` may be over before it can be held. What it copied then is removed.
fn hold_surely(bed: &Bed, words: &[&str], folder: &str, after: Range<u64>) -> Child {
    let held = (0..20).find_map(|_| {
        let held = hold(bed, words, folder, &after);
        if held.is_none() {
            bed.run(&["rm", "-rf", &format!("tank/fs:/{folder}")]).good();
        }
        held
    });
    held.expect("the copy is met while it reads")
}

fn go_on(child: Child) -> Done {
    send(&child, Signal::CONT);
    Done::from(child.wait_with_output().expect("it ends"))
}

fn expect_lines(done: &Done, status: i32, lines: &[&str]) {
    assert!(
        done.status == status && done.err.lines().eq(lines.iter().copied()),
        "{done:?}\nwanted: {lines:#?}"
    );
}

/// The pool is clean once it is exported, as `cenote check` and zdb say.
fn expect_sound(bed: &Bed) {
    bed.run(&["zpool", "export", "tank"]).good();
    bed.expect_sound("tank");
}

/// When several commands create a pool with one name or on one device at once, exactly one succeeds.
#[test]
fn a_name_and_a_device_are_given_to_one_new_pool() {
    let bed = Bed::new();
    let image = |i: usize| bed.path(&format!("{i}.img")).display().to_string();
    for i in 0..6 {
        File::create(image(i)).expect("made").set_len(64 << 20).expect("long");
    }
    let race = |name: &dyn Fn(usize) -> String, image: &dyn Fn(usize) -> String| -> Vec<usize> {
        let start = |i| {
            let mut command = bed.command(&["zpool", "create", &name(i), &image(i)]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let racers: Vec<Child> = (0..6).map(start).collect();
        let done = racers.into_iter().map(|child| Done::from(child.wait_with_output().expect("it ends")));
        let done: Vec<Done> = done.collect();
        let known = bed.run(&["zpool", "list", "-Ho", "name"]).good();
        let made: Vec<usize> = (0..6).filter(|&i| done[i].status == 0).collect();
        assert!(made.len() == 1 && known.lines().eq([name(made[0])]), "{known}{done:#?}");
        made
    };
    for _ in 0..3 {
        let winner = race(&|_| "tank".to_owned(), &image)[0];
        for i in (0..6).filter(|&i| i != winner) {
            let done = bed.run(&["zpool", "labelclear", "-f", &image(i)]);
            assert_eq!(done.status, 1, "the device of a loser was written: {done:?}");
        }
        bed.run(&["zpool", "export", "tank"]).good();
        fs::rename(image(winner), bed.path("tank.img")).expect("renamed");
        bed.expect_sound("tank");
        fs::remove_file(bed.path("tank.img")).expect("removed");
        File::create(image(winner)).expect("made").set_len(64 << 20).expect("long");

        let winner = race(&|i| format!("tank{i}"), &|_| image(0))[0];
        let name = format!("tank{winner}");
        bed.run(&["zpool", "export", &name]).good();
        fs::rename(image(0), bed.path(&format!("{name}.img"))).expect("renamed");
        bed.expect_sound(&name);
        File::create(image(0)).expect("made").set_len(64 << 20).expect("long");
    }
}

#[test]
fn files_that_vanish_while_a_folder_is_copied_are_named_one_by_one() {
    let bed = Bed::with_tank(256, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    let count = 60;
    for i in 0..count {
        fs::write(bed.path(&format!("src/{i:02}")), noise(2 * MIB, i)).expect("made");
    }
    let child = hold_surely(&bed, &["cp", "-r", "src", "tank/fs:/"], "src", ANY);
    for i in 0..count {
        fs::remove_file(bed.path(&format!("src/{i:02}"))).expect("removed");
    }
    let done = go_on(child);
    let copied = bed.list("tank/fs:/src");
    let files: Vec<_> = copied.iter().filter(|entry| entry["type"] == "file").collect();
    assert!(done.status == 1 && files.len() + done.err.lines().count() == count as usize, "{done:?}");
    for line in done.err.lines() {
        assert!(
            line.starts_with("cannot read 'src/") && line.ends_with("': no such file or directory"),
            "{line}"
        );
    }
    // Those that were open are whole.
    assert!(files.iter().all(|file| file["size"] == 2 * MIB), "{files:?}");
    expect_sound(&bed);
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_named() {
    let bed = Bed::with_tank(512, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    let path = bed.path("src/big");
    let size = 96 * MIB;
    let changes: [(&str, &dyn Fn()); 3] = [
        ("grows", &|| {
            let mut file = File::options().append(true).open(&path).expect("there");
            file.write_all(b"more").expect("written");
        }),
        ("shrinks", &|| File::options().write(true).open(&path).expect("there").set_len(10).expect("cut")),
        ("is written to", &|| fs::write(&path, noise(size, 2)).expect("written")),
    ];
    for (what, change) in changes {
        fs::write(&path, noise(size, 1)).expect("made");
        let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().write(true).open(&path).expect("there").set_modified(long_ago).expect("set");
        // The file changes between the first and the last check of the copy, and at neither check is it a mixture of old and
        // new contents.
        let child =
            hold_surely(&bed, &["cp", "-r", "src", "tank/fs:/"], "src", MIB as u64..(size - 8 * MIB) as u64);
        change();
        let done = go_on(child);
        let changed = "'src/big' changed while it was copied: the copy may hold parts of both\n";
        let shorter = "cannot read 'src/big': it became shorter while it was copied\n";
        let copies = bed.list("tank/fs:/src").into_iter().filter(|entry| entry["type"] == "file").count();
        assert!(done.status == 1, "{what}: {done:?}");
        // A file that became shorter before its end was read is not copied.
        assert!(
            (done.err == changed && copies == 1) || (done.err == shorter && copies == 0),
            "{what}: {done:?}"
        );
        bed.run(&["rm", "-r", "tank/fs:/src"]).good();
    }
    expect_sound(&bed);
}

#[test]
fn unreadable_files_do_not_stop_the_others() {
    let bed = Bed::with_tank(64, &[]);
    fs::create_dir_all(bed.path("src/closed")).expect("made");
    for name in ["good", "secret", "closed/inside"] {
        fs::write(bed.path("src").join(name), "x").expect("made");
    }
    fs::set_permissions(bed.path("src/secret"), Permissions::from_mode(0o0)).expect("set");
    fs::set_permissions(bed.path("src/closed"), Permissions::from_mode(0o0)).expect("set");
    let mut command = bed.command(&["cp", "-r", "src", "tank/fs:/"]);
    if rustix::process::geteuid().is_root() {
        // Root may read everything, so another user makes the copy, with a program that this user may start.
        let program = bed.path("cenote");
        bed::copy_program(&program);
        give(&bed.path(""), NOBODY);
        let mut other = Command::new(program);
        other.args(command.get_args()).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        other.current_dir(bed.path("")).uid(NOBODY).gid(NOBODY);
        command = other;
    }
    let done = Done::from(command.output().expect("it starts"));
    if rustix::process::geteuid().is_root() {
        // A state folder of another user is refused.
        give(&bed.path("state"), 0);
    }
    let mut lines: Vec<_> = done.err.lines().collect();
    lines.sort_unstable();
    let wanted =
        ["cannot read 'src/closed': permission denied", "cannot read 'src/secret': permission denied"];
    assert!(done.status == 1 && lines == wanted, "{done:?}");
    let names: Vec<_> = bed.list("tank/fs:/src").into_iter().map(|entry| entry["path"].clone()).collect();
    assert!(
        names.iter().any(|name| name == "good") && !names.iter().any(|name| name == "secret"),
        "{names:?}"
    );
    // A file that gives errors instead of bytes.
    let done = bed.run(&["cp", "/proc/self/mem", "tank/fs:/"]);
    expect_lines(&done, 1, &["cannot read '/proc/self/mem': input/output error"]);
    assert!(bed.run(&["ls", "tank/fs:/mem"]).status == 1);
    fs::set_permissions(bed.path("src/closed"), Permissions::from_mode(0o755)).expect("set");
    expect_sound(&bed);
}

/// Makes `user` the owner of a folder and of everything in it.
fn give(folder: &Path, user: u32) {
    let mut waiting = vec![folder.to_path_buf()];
    while let Some(path) = waiting.pop() {
        rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(user)), None).expect("given away");
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("a folder").flatten().map(|entry| entry.path()));
        }
    }
}

/// A command under a limit of file sizes, in KiB.
fn limited(bed: &Bed, kibibytes: usize, words: &[&str]) -> Done {
    let plain = bed.command(words);
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("ulimit -f {kibibytes}; exec \"$0\" \"$@\""));
    bed::in_place_of(&plain, command.arg(plain.get_program()).args(plain.get_args()));
    Done::from(command.output().expect("bash is here"))
}

#[test]
fn a_copy_out_that_finds_no_room_is_one_line_and_leaves_no_half_file() {
    let bed = Bed::with_tank(128, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    fs::write(bed.path("src/big"), noise(8 * MIB, 1)).expect("made");
    fs::write(bed.path("src/small"), noise(1000, 2)).expect("made");
    bed.run(&["cp", "-r", "src", "tank/fs:/"]).good();
    // A file may not be longer than 4 MiB here; others may be copied.
    let done = limited(&bed, 4096, &["cp", "-r", "tank/fs:/src", "out"]);
    expect_lines(&done, 1, &["cannot write the copy of 'tank/fs:/src/big': file too large"]);
    assert!(!bed.path("out/big").exists());
    assert_eq!(fs::read(bed.path("out/small")).expect("copied"), noise(1000, 2));
    // A device is never written to, also where the user names it.
    let done = bed.run(&["cp", "tank/fs:/src/big", "/dev/full"]);
    let hint = "'cenote cat' writes to standard output";
    expect_lines(&done, 1, &["cannot write '/dev/full': it is no regular file", hint]);
    // A full file system, where this user may make one.
    let full = bed.path("full");
    fs::create_dir(&full).expect("made");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(&full).output();
    if mount.is_ok_and(|output| output.status.success()) {
        let done = bed.run(&["cp", "-r", "tank/fs:/src", "full/"]);
        let left: Vec<_> =
            fs::read_dir(full.join("src")).expect("a folder").flatten().map(|e| e.file_name()).collect();
        let unmounted = Command::new("umount").arg(&full).status().expect("it starts");
        assert!(unmounted.success());
        // Both are copied at once: the first that finds no room ends it.
        let first = if done.err.contains("small") { "small" } else { "big" };
        let line = format!("cannot write the copy of 'tank/fs:/src/{first}': no space left on device");
        expect_lines(&done, 1, &[&line]);
        assert!(left.iter().all(|name| name == "small"), "{left:?}");
    } else {
        eprintln!("skipped: this user cannot mount a tmpfs");
    }
    expect_sound(&bed);
}

#[test]
fn an_image_that_cannot_grow_stops_the_copy_and_keeps_the_pool() {
    let bed = Bed::with_tank(256, &["compression=off"]);
    fs::write(bed.path("before"), "safe").expect("made");
    bed.run(&["cp", "before", "tank/fs:/"]).good();
    fs::create_dir(bed.path("src")).expect("made");
    for i in 0..40 {
        fs::write(bed.path(&format!("src/{i:02}")), noise(2 * MIB, i)).expect("made");
    }
    // Writes beyond the first 32 MiB of the image fail, as on a disk that is full below a sparse image.
    let done = limited(&bed, 32 << 10, &["cp", "-r", "src", "tank/fs:/"]);
    assert!(done.status == 1 && done.err.lines().count() <= 2, "{done:?}");
    assert!(
        done.err.contains("File too large") && done.err.contains("last synced state is safe"),
        "{done:?}"
    );
    assert_eq!(bed.run(&["cat", "tank/fs:/before"]).good(), "safe");
    for entry in bed.list("tank/fs:/") {
        assert!(entry["type"] == "dir" || entry["size"] == 4 || entry["size"] == 2 * MIB, "{entry}");
    }
    bed.run(&["cp", "-r", "src", "tank/fs:/"]).good();
    expect_sound(&bed);
}

/// A folder whose copy takes a while.
fn plant(bed: &Bed) {
    fs::create_dir(bed.path("src")).expect("made");
    for i in 0..60 {
        fs::write(bed.path(&format!("src/{i:02}")), noise(2 * MIB, i)).expect("made");
    }
}

#[test]
fn a_signal_stops_a_copy_in_good_order() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let bed = Bed::with_tank(512, &["compression=gzip-9"]);
        plant(&bed);
        let child = hold_surely(&bed, &["cp", "-r", "src", "tank/fs:/"], "src", EARLY);
        send(&child, signal);
        let done = go_on(child);
        // A slow end is announced before.
        let lines: Vec<&str> = done.err.lines().collect();
        let said = lines.strip_prefix(&[STOPPING]).unwrap_or(&lines);
        assert_eq!(said, ["stopped: everything that was copied until then is complete"]);
        assert_eq!(done.status, status);
        let list = bed.list("tank/fs:/");
        assert!(list.iter().all(|entry| entry["type"] == "dir" || entry["size"] == 2 * MIB), "{list:?}");
        assert!(list.len() < 60, "{} were copied all the same", list.len());
        // The same for a copy out of the pool: no partial file is left.
        bed.run(&["cp", "-r", "src", "tank/fs:/all"]).good();
        fs::create_dir(bed.path("out")).expect("made");
        let mut command = bed.command(&["cp", "-r", "tank/fs:/all", "out"]);
        let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        // It may also be over unmet.
        let lives = || Path::new(&format!("/proc/{}/fd/0", child.id())).exists();
        while lives() && fs::read_dir(bed.path("out/all")).map_or(0, Iterator::count) < 2 {}
        send(&child, signal);
        let done = go_on(child);
        assert!([0, status].contains(&done.status), "{done:?}");
        for file in fs::read_dir(bed.path("out/all")).expect("a folder").flatten() {
            assert_eq!(file.metadata().expect("there").len(), 2 * MIB as u64, "{file:?}");
        }
        expect_sound(&bed);
    }
}

#[test]
fn a_second_ctrl_c_ends_a_copy_at_once_and_the_pool_is_as_last_synced() {
    let bed = Bed::with_tank(512, &["compression=gzip-9"]);
    plant(&bed);
    let child = hold_surely(&bed, &["cp", "-r", "src", "tank/fs:/"], "src", EARLY);
    send(&child, Signal::INT);
    send(&child, Signal::CONT);
    // While it writes what was copied.
    std::thread::sleep(Duration::from_millis(20));
    send(&child, Signal::INT);
    let done = go_on(child);
    // On a busy machine the two may be one, or come so far apart that it stopped in good order before.
    let orderly = [STOPPING, "stopped: everything that was copied until then is complete"];
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(done.status == 130 && (lines.len() <= 1 || lines == orderly), "{done:?}");
    bed.list("tank/fs:/");
    bed.run(&["rm", "-rf", "tank/fs:/src"]).good();
    bed.run(&["cp", "-r", "src", "tank/fs:/"]).good();
    expect_sound(&bed);
}

#[test]
fn a_reader_that_has_enough_ends_cat_without_a_word() {
    let bed = Bed::with_tank(128, &[]);
    fs::write(bed.path("big"), noise(16 * MIB, 1)).expect("made");
    bed.run(&["cp", "big", "tank/fs:/"]).good();
    let mut command = bed.command(&["cat", "tank/fs:/big"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut pipe = child.stdout.take().expect("a pipe");
    let mut head = [0; 10];
    std::io::Read::read_exact(&mut pipe, &mut head).expect("read");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.signal().is_none() && output.status.code() == Some(141), "{output:?}");
    assert!(output.stderr.is_empty() && head == noise(16 * MIB, 1)[..10], "{output:?}");
    assert!(fs::metadata(bed.path("big")).expect("there").size() == 16 * MIB as u64);
    expect_sound(&bed);
}

#[test]
fn an_image_whose_end_is_missing_is_not_called_clean() {
    let bed = Bed::with_tank(128, &[]);
    let image = bed.path("tank.img");
    File::options().write(true).open(&image).expect("there").set_len(100 * MIB as u64).expect("cut");
    let done = bed.run(&["check", &image.display().to_string()]);
    assert!(done.status == 1 && done.out.contains("its end is missing"), "{done:?}");
}

#[test]
fn looking_for_pools_where_nothing_is_fails() {
    let bed = Bed::with_tank(128, &[]);
    bed.run(&["zpool", "export", "tank"]).good();
    fs::write(bed.path("text"), "no pool").expect("made");
    for (place, why) in [("nowhere", "No such file or directory"), ("text", "holds no pool")] {
        for words in
            [&["zfs", "list"][..], &["zpool", "list"], &["zpool", "status", "tank"], &["ls", "tank:/"]]
        {
            let done = bed.run(&[&["-d", place], words].concat());
            let told = done.err.contains(why) && done.err.contains(place) && done.err.lines().count() == 1;
            assert!(done.status == 1 && done.out.is_empty() && told, "{words:?}: {done:?}");
        }
    }
    let listed = bed.run(&["-d", "tank.img", "zfs", "list", "-H", "-o", "name"]).good();
    assert_eq!(listed, "tank\ntank/fs\n");
}

/// An image with the exported pool `tank`.
fn exported(name: &str) -> Bed {
    let bed = Bed::with_tank(100, &[]);
    bed.run(&["cp", "-r", &format!("{}/src", env!("CARGO_MANIFEST_DIR")), "tank/fs:/"]).good();
    bed.run(&["zpool", "export", "tank"]).good();
    if name != "tank.img" {
        std::fs::rename(bed.path("tank.img"), bed.path(name)).expect("moved");
    }
    bed
}

/// Overwrites labels of an image: those with these numbers.
fn damage_labels(image: &std::path::Path, labels: &[u64]) {
    let file = std::fs::File::options().write(true).open(image).expect("there");
    let end = file.metadata().expect("there").len() >> 18 << 18;
    for label in labels {
        let start = if *label < 2 { label << 18 } else { end - ((4 - label) << 18) };
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4096], start + 0x4000 + 0x800)
            .expect("written");
    }
}

#[test]
fn an_import_says_what_is_wrong_with_the_files_that_it_was_given() {
    let bed = exported("tank.img");
    let import = |place: &str| bed.run(&["zpool", "import", "-d", place]);
    let none = "no pools available to import\n";
    // OpenZFS is silent about folders without pools, and about files that are not there.
    std::fs::create_dir(bed.path("empty")).expect("made");
    for place in ["empty", "missing"] {
        let done = import(place);
        assert_eq!((done.status, done.err.as_str()), (0, none), "{place}");
    }
    std::fs::write(bed.path("text"), "no pool").expect("written");
    let done = import("text");
    assert_eq!((done.status, done.err), (1, format!("{none}cenote: 'text' holds no pool\n")));
    damage_labels(&bed.path("tank.img"), &[1, 2]);
    let done = import("tank.img");
    let more =
        "cenote: 2 of the 4 labels of 'tank.img' are damaged: 'cenote check tank.img' looks at the rest\n";
    assert!(done.status == 0 && done.err == more && done.out.contains("pool: tank"), "{done:?}");
    damage_labels(&bed.path("tank.img"), &[0, 3]);
    let why = "'tank.img' holds no pool: its labels are damaged";
    let done = import("tank.img");
    assert_eq!((done.status, done.err), (1, format!("{none}cenote: {why}\n")));
    bed.run(&["check", "tank.img"]).refused(why);
    bed.run(&["-d", "tank.img", "zfs", "list"]).refused(why);
}

#[test]
fn two_copies_of_a_device_are_named_and_the_right_one_is_used_or_none() {
    let bed = exported("tank.img");
    std::fs::copy(bed.path("tank.img"), bed.path("tank.img.copy")).expect("copied");
    let folder = bed.path("").display().to_string();
    // Both are of the same state, but one is where the device was last.
    let done = bed.run(&["zpool", "import", "-d", &folder, "tank"]);
    let (real, copy) =
        (bed.path("tank.img").display().to_string(), bed.path("tank.img.copy").display().to_string());
    let line = format!("cenote: '{copy}' and '{real}' are copies of one device: '{real}' is used\n");
    assert!(done.status == 0 && done.err == line, "{done:?}");
    assert!(bed.run(&["zpool", "status", "-P", "tank"]).good().contains(&format!("{real} ")));
    bed.run(&["zpool", "export", "tank"]).good();
    // Of two states the newer one is used, wherever it is.
    std::fs::rename(&real, bed.path("a.img")).expect("moved");
    let newer = bed.path("a.img").display().to_string();
    let line = format!("cenote: '{copy}' and '{newer}' are copies of one device: '{newer}' is used\n");
    let done = bed.run(&["zpool", "import", "-d", &folder]);
    assert!(done.status == 0 && done.err == line, "{done:?}");
    // It is unknown which one of two equal copies is meant.
    std::fs::copy(bed.path("a.img"), bed.path("b.img")).expect("copied");
    std::fs::remove_file(&copy).expect("removed");
    let other = bed.path("b.img").display().to_string();
    let said = |used: &str, left: &str| format!("'{left}' and '{used}' are copies of one device");
    let done = bed.run(&["zpool", "import", "-d", &folder, "tank"]);
    let refused = [said(&newer, &other), said(&other, &newer)];
    assert!(done.status == 1 && refused.iter().any(|line| done.err.contains(line)), "{done:?}");
    assert!(done.err.contains("name only one of them with -d"), "{done:?}");
    let done = bed.run(&["-d", &folder, "zfs", "list"]);
    assert!(done.status == 1 && refused.iter().any(|line| done.err.contains(line)), "{done:?}");
    bed.run(&["zpool", "import", "-d", &newer, "tank"]).good();
    bed.run(&["zpool", "export", "tank"]).good();
}

#[test]
fn check_names_the_files_whose_blocks_are_damaged() {
    let bed = Bed::with_tank(100, &["compression=off"]);
    let noise: Vec<u8> =
        (0..40u32 << 10).flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    bed.run(&["mkdir", "tank/fs:/letters"]).good();
    std::fs::write(bed.path("note"), &noise).expect("written");
    bed.run(&["cp", "note", "tank/fs:/letters/note"]).good();
    bed.run(&["zfs", "snapshot", "tank/fs@one"]).good();
    bed.run(&["zfs", "snapshot", "tank/fs@two"]).good();
    bed.run(&["zpool", "export", "tank"]).good();
    let image = std::fs::read(bed.path("tank.img")).expect("read");
    let at = image.windows(64).position(|part| part == &noise[4096..4160]).expect("the block") as u64;
    let file = std::fs::File::options().write(true).open(bed.path("tank.img")).expect("there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 64], at).expect("written");
    let done = bed.run(&["check", "tank.img"]);
    let line = done.out.lines().find(|line| line.contains("damaged block")).expect("a finding");
    assert!(
        done.status == 1 && line.ends_with("(file 'tank/fs:/letters/note', also in 2 snapshots)"),
        "{done:?}"
    );
    // The block stays with the snapshots when the file is gone.
    bed.run(&["-d", "tank.img", "rm", "tank/fs:/letters/note"]).good();
    let done = bed.run(&["check", "tank.img"]);
    assert!(done.out.contains("(file 'tank/fs@one:/letters/note', in 2 snapshots)"), "{done:?}");
}

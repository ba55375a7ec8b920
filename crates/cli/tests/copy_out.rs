//! Copies never change a file outside the target that the user named, whatever the pool contains and whatever another user
//! does to the tree meanwhile.

mod bed;

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bed::craft::{craft, file, folder, link, rename_on_disk, run};
use bed::{Bed, copy_program};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use zpl::{FileKind, NewNode, XattrMode};

/// How often a race is run.
const ROUNDS: usize = 6;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Everything that must stay as it is: path, mode, owner, links, times, contents, attributes.
type State = Vec<(PathBuf, u32, u32, u64, i64, i64, Vec<u8>, Vec<OsString>)>;

fn state(top: &Path) -> State {
    let mut found = Vec::new();
    let mut todo = vec![top.to_path_buf()];
    while let Some(path) = todo.pop() {
        let data = fs::symlink_metadata(&path).expect("there");
        if data.is_dir() {
            todo.extend(fs::read_dir(&path).expect("read").map(|entry| entry.expect("an entry").path()));
        }
        let content = if data.is_file() { fs::read(&path).expect("read") } else { Vec::new() };
        let attributes = xattr::list(&path).map_or(Vec::new(), Iterator::collect);
        let times = (data.mtime(), data.mtime_nsec());
        found.push((path, data.mode(), data.uid(), data.nlink(), times.0, times.1, content, attributes));
    }
    found.sort();
    found
}

/// A tree beside the target, which no copy may change.
fn victim(bed: &Bed) -> PathBuf {
    let top = bed.path("victim");
    fs::create_dir(&top).expect("made");
    fs::write(top.join("key"), "a secret").expect("made");
    fs::set_permissions(top.join("key"), Permissions::from_mode(0o600)).expect("set");
    fs::create_dir(top.join("d")).expect("made");
    fs::write(top.join("d/x"), "mine").expect("made");
    mknodat(CWD, top.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    top
}

/// The program as the user 65534, with a state folder of that user.
fn as_nobody(bed: &Bed, words: &[&str]) -> Command {
    let program = bed.path("cenote");
    if !program.exists() {
        copy_program(&program);
        for name in ["", "state"] {
            fs::set_permissions(bed.path(name), Permissions::from_mode(0o777)).expect("set");
        }
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).args(words);
    command.current_dir(bed.path("")).stdin(Stdio::null());
    bed.command(&[]).get_envs().for_each(|(name, value)| {
        command.env(name, value.unwrap_or_default());
    });
    command
}

#[test]
fn a_name_of_two_sources_is_made_once_and_nothing_outside_changes() {
    let bed = Bed::with_tank(128, &[]);
    let before = state(&victim(&bed));
    bed.run(&["zfs", "create", "tank/b"]).good();
    fs::create_dir_all(bed.path("a/d")).expect("made");
    fs::create_dir_all(bed.path("b/d")).expect("made");
    for n in 0..40 {
        fs::write(bed.path(&format!("a/d/{n}")), vec![n as u8; 200_000]).expect("made");
        fs::set_permissions(bed.path(&format!("a/d/{n}")), Permissions::from_mode(0o4777)).expect("set");
        symlink(bed.path("victim/key"), bed.path(&format!("b/d/{n}"))).expect("made");
    }
    fs::write(bed.path("b/d/other"), "merged").expect("made");
    bed.run(&["cp", "-rp", "a/d", "tank/fs:/"]).good();
    bed.run(&["cp", "-rp", "b/d", "tank/b:/"]).good();
    for round in 0..ROUNDS {
        let out = format!("out{round}");
        fs::create_dir(bed.path(&out)).expect("made");
        let done = run(bed.command(&["cp", "-rp", "tank/fs:/d", "tank/b:/d", &out]));
        assert!(done.status == 1, "{done:?}");
        assert_eq!(done.err.matches("this copy has already made something with that name").count(), 40);
        assert_eq!(fs::read(bed.path(&format!("{out}/d/other"))).expect("merged"), b"merged");
        assert_eq!(state(&bed.path("victim")), before);
        let left = fs::read_dir(bed.path(&format!("{out}/d"))).expect("read").count();
        assert_eq!(left, 41, "no temporary files stay");
    }
}

#[test]
fn names_that_a_crafted_directory_has_twice_are_made_once() {
    let bed = Bed::with_tank(128, &[]);
    let top = victim(&bed);
    let before = state(&top);
    craft(&bed, |fs| {
        // A file and a link of one name; a folder and a link of one name; two folders of one name.
        let d = folder(fs, fs.root(), b"d");
        file(fs, d, b"x", 0o4777, &vec![7; 100_000]);
        link(fs, d, b"y", &top.join("key"));
        let inside = folder(fs, d, b"p");
        file(fs, inside, b"x", 0o4777, b"not mine");
        link(fs, d, b"q", &top.join("d"));
        let first = folder(fs, d, b"r");
        file(fs, first, b"1", 0o644, b"1");
        let second = folder(fs, d, b"s");
        file(fs, second, b"1", 0o644, b"2");
        rename_on_disk(fs, d, b"y", b"x");
        rename_on_disk(fs, d, b"q", b"p");
        rename_on_disk(fs, d, b"s", b"r");
    });
    for user in [false, true] {
        if user && !is_root() {
            eprintln!("skipped: only root can run a copy as another user");
            continue;
        }
        for round in 0..ROUNDS {
            let out = format!("out{user}{round}");
            let words = ["-d", "tank.img", "cp", "-rp", "tank/fs:/d", &out];
            let done = run(if user { as_nobody(&bed, &words) } else { bed.command(&words) });
            let errors = done.err.lines().filter(|line| line.starts_with("cannot write")).count();
            // Without root, one more line says that owners were not kept.
            let lines = done.err.lines().count();
            assert!(done.status == 1 && errors == 3 && lines == errors + usize::from(user), "{done:?}");
            let twice = done.err.matches("this copy has already made something with that name").count();
            assert!(twice >= 2, "{done:?}");
            assert_eq!(state(&top), before);
        }
    }
}

#[test]
fn a_name_of_two_sources_is_made_once_in_a_pool() {
    let bed = Bed::with_tank(128, &[]);
    for name in ["tank/b", "tank/out"] {
        bed.run(&["zfs", "create", name]).good();
    }
    fs::create_dir_all(bed.path("a/d/sub")).expect("made");
    fs::create_dir_all(bed.path("b/d/sub")).expect("made");
    for n in 0..40 {
        // Small files, large files and links.
        let size = if n % 2 == 0 { 300_000 } else { 1000 };
        fs::write(bed.path(&format!("a/d/{n}")), vec![n as u8; size]).expect("made");
        symlink("elsewhere", bed.path(&format!("b/d/{n}"))).expect("made");
        fs::write(bed.path(&format!("b/d/sub/{n}")), "b").expect("made");
        fs::write(bed.path(&format!("a/d/sub/{n}")), "a").expect("made");
    }
    fs::write(bed.path("b/d/other"), "merged").expect("made");
    bed.run(&["cp", "-rp", "a/d", "tank/fs:/"]).good();
    bed.run(&["cp", "-rp", "b/d", "tank/b:/"]).good();
    for (round, sources) in
        [["tank/fs:/d", "tank/b:/d"], ["a/d", "tank/b:/d"], ["a/d", "b/d"]].iter().enumerate()
    {
        let to = format!("tank/out:/{round}");
        bed.run(&["mkdir", &to]).good();
        let done = run(bed.command(&["cp", "-rp", sources[0], sources[1], &to]));
        assert!(done.status == 1, "{done:?}");
        let twice = done.err.matches("this copy has already made something with that name").count();
        assert_eq!(twice, 80, "{done:?}");
        let left = bed.run(&["ls", &format!("{to}/d")]).good().lines().count();
        assert_eq!(left, 42, "no temporary files stay");
        let other = bed.run(&["cat", &format!("{to}/d/other")]).good();
        assert_eq!(other, "merged");
        // Files of an earlier run are replaced.
        bed.run(&["cp", "-rp", sources[0], &to]).good();
    }
}

#[test]
fn names_that_a_crafted_directory_has_twice_are_made_once_in_a_pool() {
    let bed = Bed::with_tank(128, &[]);
    let nowhere = bed.path("nowhere");
    craft(&bed, |fs| {
        // A file and a link of one name, two files of one name, two folders of one name.
        let d = folder(fs, fs.root(), b"d");
        file(fs, d, b"x", 0o644, &vec![7; 100_000]);
        link(fs, d, b"y", &nowhere);
        file(fs, d, b"p", 0o644, b"one");
        file(fs, d, b"q", 0o644, b"two");
        let first = folder(fs, d, b"r");
        file(fs, first, b"1", 0o644, b"1");
        let second = folder(fs, d, b"s");
        file(fs, second, b"1", 0o644, b"2");
        folder(fs, fs.root(), b"out");
        rename_on_disk(fs, d, b"y", b"x");
        rename_on_disk(fs, d, b"q", b"p");
        rename_on_disk(fs, d, b"s", b"r");
    });
    for round in 0..ROUNDS {
        let out = format!("tank/fs:/out/{round}");
        bed.run(&["-d", "tank.img", "mkdir", &out]).good();
        let done = run(bed.command(&["-d", "tank.img", "cp", "-rp", "tank/fs:/d", &out]));
        assert!(done.status == 1 && done.err.lines().count() == 3, "{done:?}");
        let twice = done.err.matches("this copy has already made something with that name").count();
        assert_eq!(twice, 3, "{done:?}");
        let left = bed.run(&["-d", "tank.img", "ls", &format!("{out}/d")]).good().lines().count();
        assert_eq!(left, 3, "no temporary files stay");
    }
}

#[test]
fn a_crafted_name_that_is_a_path_is_refused() {
    let bed = Bed::with_tank(128, &[]);
    let before = state(&victim(&bed));
    for name in [&b"../victim/key"[..], b"victim/d/evil"] {
        craft(&bed, |fs| {
            let plain = vec![b'n'; name.len()];
            file(fs, fs.root(), &plain, 0o4777, b"evil");
            rename_on_disk(fs, fs.root(), &plain, name);
        });
        let done = run(bed.command(&["-d", "tank.img", "cp", "-rp", "tank/fs:/.", "."]));
        assert!(done.status == 1 && done.err.contains("damaged"), "{done:?}");
        assert_eq!(state(&bed.path("victim")), before);
    }
}

#[test]
fn fifos_and_devices_in_the_target_are_neither_written_to_nor_replaced() {
    let bed = Bed::with_tank(128, &[]);
    let top = victim(&bed);
    craft(&bed, |fs| {
        for name in ["fifo", "link", "null"] {
            file(fs, fs.root(), name.as_bytes(), 0o644, b"content");
        }
    });
    fs::create_dir(bed.path("out")).expect("made");
    mknodat(CWD, bed.path("out/fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    symlink(top.join("fifo"), bed.path("out/link")).expect("made");
    let before = state(&top);
    let words = ["-d", "tank.img", "cp", "tank/fs:/fifo", "out"];
    let done = run(bed.command(&words));
    assert!(done.status == 1 && done.err.contains("a FIFO has that name"), "{done:?}");
    let done = run(bed.command(&["-d", "tank.img", "cp", "tank/fs:/fifo", "out/fifo"]));
    assert!(done.status == 1 && done.err.contains("it is no regular file"), "{done:?}");
    // A link is replaced, not followed.
    run(bed.command(&["-d", "tank.img", "cp", "tank/fs:/link", "out"])).good();
    assert_eq!(fs::read(bed.path("out/link")).expect("a file"), b"content");
    assert!(fs::symlink_metadata(bed.path("out/link")).expect("there").is_file());
    assert_eq!(state(&top), before);
    if !is_root() {
        eprintln!("skipped: only root makes devices");
        return;
    }
    let null = |name: &str| {
        mknodat(CWD, bed.path(name), FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(1, 3))
            .expect("made");
    };
    null("out/null");
    for target in ["out", "out/null"] {
        let done = run(bed.command(&["-d", "tank.img", "cp", "tank/fs:/null", target]));
        assert!(done.status == 1, "{done:?}");
        let there = fs::symlink_metadata(bed.path("out/null")).expect("there");
        assert!(there.file_type().is_char_device());
    }
}

#[test]
fn set_id_bits_and_devices_come_out_with_p_only() {
    if !is_root() {
        eprintln!("skipped: only root keeps owners and makes devices");
        return;
    }
    let bed = Bed::with_tank(128, &[]);
    craft(&bed, |fs| {
        let d = folder(fs, fs.root(), b"d");
        file(fs, d, b"setuid", 0o6755, b"#!");
        let null = NewNode { rdev: makedev(1, 3), ..NewNode::new(FileKind::CharDevice, 0o666) };
        fs.create(d, b"null", &null).expect("made");
        fs.create(d, b"fifo", &NewNode::new(FileKind::Fifo, 0o641)).expect("made");
        link(fs, d, b"link", Path::new("nowhere"));
    });
    let done = run(bed.command(&["-d", "tank.img", "cp", "-r", "tank/fs:/d", "plain"]));
    assert!(done.status == 1 && done.err.contains("devices are copied with -p only"), "{done:?}");
    assert!(!bed.path("plain/null").exists());
    let mode = |name: &str| fs::symlink_metadata(bed.path(name)).expect("there").mode() & 0o7777;
    assert_eq!(mode("plain/setuid") & 0o7000, 0);
    run(bed.command(&["-d", "tank.img", "cp", "-rp", "tank/fs:/d", "kept"])).good();
    assert_eq!((mode("kept/setuid"), mode("kept/null"), mode("kept/fifo")), (0o6755, 0o666, 0o641));
    let stored = bed.run(&["-d", "tank.img", "ls", "-R", "--json", "tank/fs:/d"]).objects();
    let link = stored.iter().find(|entry| entry["path"] == "link").expect("there");
    let made = fs::symlink_metadata(bed.path("kept/link")).expect("there");
    let nanos = i128::from(made.mtime()) * 1_000_000_000 + i128::from(made.mtime_nsec());
    assert_eq!(link["mtime_ns"].to_string().trim_matches('"'), nanos.to_string());
}

/// The largest extended attribute of Linux, in bytes.
const LARGE: usize = 1 << 16;

#[test]
fn attributes_that_the_target_file_system_refuses_are_left_out_and_reported() {
    if !is_root() {
        eprintln!("skipped: only root runs commands as another user");
        return;
    }
    let bed = Bed::with_tank(128, &[]);
    craft(&bed, |fs| {
        let d = folder(fs, fs.root(), b"d");
        let large = file(fs, d, b"large", 0o644, b"with attributes");
        fs.xattr_set(large, b"user.large", &vec![b'x'; LARGE], XattrMode::Either).expect("set");
        file(fs, d, b"next", 0o644, b"after it");
    });
    // ext4 has room for a block of attributes; others may take them all.
    fs::write(bed.path("probe"), "").expect("made");
    let takes = xattr::set(bed.path("probe"), "user.large", &vec![b'x'; LARGE]).is_ok();
    let done = run(bed.command(&["-d", "tank.img", "cp", "-rp", "tank/fs:/d", "out"]));
    let left = done.err.contains("1 extended attribute was left out: the file system here");
    assert!(done.status == 0 && left != takes, "{done:?}");
    let read = |name: &str| fs::read(bed.path(name)).expect("there");
    assert_eq!((read("out/large"), read("out/next")), (b"with attributes".to_vec(), b"after it".to_vec()));
    let done = run(as_nobody(&bed, &["-d", "tank.img", "cp", "-rp", "tank/fs:/d", "theirs"]));
    assert!(done.status == 0 && done.err.contains("owners were not kept (3 of"), "{done:?}");
    assert_eq!(read("theirs/next"), b"after it");
}

/// Changes a tree in a loop for as long as it lives.
struct Attacker {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Attacker {
    fn starts(mut swap: impl FnMut() + Send + 'static) -> Attacker {
        let over = Arc::new(AtomicBool::new(false));
        let end = over.clone();
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                swap();
            }
        });
        Attacker { over, thread: Some(thread) }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Puts a link to `victim` in the place of `path` and takes it away again.
fn swap(path: &Path, aside: &Path, victim: &Path) {
    // Any step may fail, because the copy changes the same names.
    let _ = fs::rename(path, aside);
    let _ = symlink(victim, path);
    std::thread::sleep(Duration::from_micros(500));
    if fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink()) {
        let _ = fs::remove_file(path);
    }
    let _ = fs::rename(aside, path);
    std::thread::sleep(Duration::from_micros(500));
}

/// Files `0` to `39` in folders, such as a victim has.
fn plant(top: &Path) {
    for n in 0..40 {
        let dir = top.join(format!("d{}", n % 4));
        fs::create_dir_all(&dir).expect("made");
        fs::write(dir.join(n.to_string()), vec![b'n'; 50_000]).expect("made");
        fs::set_permissions(dir.join(n.to_string()), Permissions::from_mode(0o4777)).expect("set");
    }
}

#[test]
fn a_copy_does_not_follow_a_target_that_is_swapped_meanwhile() {
    let bed = Bed::with_tank(128, &[]);
    plant(&bed.path("src"));
    bed.run(&["cp", "-rp", "src", "tank/fs:/"]).good();
    plant(&bed.path("victim"));
    let before = state(&bed.path("victim"));
    for round in 0..ROUNDS {
        let out = bed.path(&format!("out{round}"));
        fs::create_dir(&out).expect("made");
        let (place, aside, other) = (out.join("src/d1"), out.join("src/aside"), bed.path("victim/d1"));
        let folders = Attacker::starts(move || swap(&place, &aside, &other));
        let (place, aside, other) = (out.join("src/d2/2"), out.join("src/aside2"), bed.path("victim/d2/2"));
        let files = Attacker::starts(move || swap(&place, &aside, &other));
        // The copy may fail, but it must not change the victim.
        run(bed.command(&["cp", "-rp", "tank/fs:/src", &out.display().to_string()]));
        run(bed.command(&["cp", "-rp", "tank/fs:/src", &out.display().to_string()]));
        drop((folders, files));
        assert_eq!(state(&bed.path("victim")), before, "round {round}");
    }
}

#[test]
fn a_copy_does_not_leave_a_source_that_is_swapped_meanwhile() {
    let bed = Bed::with_tank(512, &[]);
    plant(&bed.path("src"));
    plant(&bed.path("victim"));
    for n in 0..4 {
        fs::write(bed.path(&format!("victim/d{n}/secret")), "a secret").expect("made");
        fs::write(bed.path(&format!("victim/d{n}/{n}")), "a secret").expect("made");
    }
    let (place, aside, other) = (bed.path("src/d1"), bed.path("src/aside"), bed.path("victim/d1"));
    let _folders = Attacker::starts(move || swap(&place, &aside, &other));
    let (place, aside, other) = (bed.path("src/d2/2"), bed.path("src/aside2"), bed.path("victim/d2/2"));
    let _files = Attacker::starts(move || swap(&place, &aside, &other));
    let (place, aside) = (bed.path("src/d3/3"), bed.path("src/aside3"));
    let _fifos = Attacker::starts(move || {
        let _ = fs::rename(&place, &aside);
        let _ = mknodat(CWD, &place, FileType::Fifo, Mode::from_raw_mode(0o600), 0);
        std::thread::yield_now();
        let _ = fs::rename(&aside, &place);
    });
    for round in 0..ROUNDS {
        run(bed.command(&["cp", "-rp", "src", &format!("tank/fs:/{round}")]));
        let image = format!("{round}.img");
        run(bed.command(&["mkfs", "-q", "-d", "src", "--name", "made", &image]));
        let mut listed = bed.list(&format!("tank/fs:/{round}"));
        if bed.path(&image).exists() {
            listed.extend(bed.run(&["-d", &image, "ls", "-R", "--json", "made:/"]).objects());
        }
        for entry in listed {
            let size = entry["size"].as_u64();
            assert!(entry["type"] != "file" || size == Some(50_000), "round {round}: {entry}");
        }
    }
}

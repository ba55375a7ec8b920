//! Increments and rollbacks of what is mounted while programs use it.
//!
//! OpenZFS 2.1 with its kernel module did the same in each case: files that are the same in both states go on, those
//! that were removed give `EIO`, and so does a removed working directory.

mod bed;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bed::live::{Live, noise, write};
use bed::{Done, wait_until};

const EIO: i32 = 5;

impl Live {
    fn zfs(&self, line: &str) -> String {
        let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
        self.run(&words).good()
    }

    fn send(&self, words: &[&str], file: &str) {
        let out = File::create(self.path(file)).expect("made");
        let line = [&["zfs", "send"][..], words].concat();
        let done: Done = self.command(&line).stdout(Stdio::from(out)).output().expect("it starts").into();
        done.good();
    }

    fn receive(&self, file: &str, words: &[&str]) -> Done {
        let stream = File::open(self.path(file)).expect("there");
        let line = [&["zfs", "receive"][..], words].concat();
        self.command(&line).stdin(stream).output().expect("it starts").into()
    }

    /// `tank/w` with its snapshot `@1`, received as `tank/copy` with these options, and the increment to `@2` in a file.
    fn source(&self, options: &[&str]) {
        self.zfs("create tank/w");
        for (name, text) in [("same", "same"), ("other", "one"), ("gone", "gone")] {
            write(&self.path("mnt/w").join(name), text.as_bytes());
        }
        write(&self.path("mnt/w/big"), &noise(1 << 20));
        fs::create_dir(self.path("mnt/w/dir")).expect("made");
        fs::create_dir(self.path("mnt/w/dir/kept")).expect("made");
        fs::create_dir(self.path("mnt/w/lost")).expect("made");
        write(&self.path("mnt/w/dir/inner"), b"inner");
        self.zfs("snapshot tank/w@1");
        self.send(&["tank/w@1"], "full");
        self.receive("full", &[options, &["tank/copy"]].concat()).good();
        write(&self.path("mnt/w/other"), b"two, and longer");
        fs::remove_file(self.path("mnt/w/gone")).expect("removed");
        fs::remove_dir(self.path("mnt/w/lost")).expect("removed");
        fs::rename(self.path("mnt/w/dir/inner"), self.path("mnt/w/dir/kept/moved")).expect("renamed");
        write(&self.path("mnt/w/new"), b"new");
        self.zfs("snapshot tank/w@2");
        self.send(&["-i", "@1", "tank/w@2"], "next");
    }

    #[track_caller]
    fn expect_second_state(&self, at: &str) {
        let text = |name: &str| fs::read_to_string(self.path(at).join(name)).expect("there");
        assert_eq!((text("same"), text("other")), ("same".into(), "two, and longer".into()));
        assert_eq!((text("new"), text("dir/kept/moved")), ("new".into(), "inner".into()));
        for name in ["gone", "lost", "dir/inner"] {
            assert!(!self.path(at).join(name).exists(), "{name}");
        }
        assert_eq!(fs::read(self.path(at).join("big")).expect("there"), noise(1 << 20));
        let size = fs::metadata(self.path(at).join("other")).expect("there").len();
        assert_eq!(size, 15);
    }

    fn finish(&self) {
        self.run(&["zpool", "export", "tank"]).good();
        self.expect_sound();
    }
}

fn text_of(file: &mut File) -> std::io::Result<String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text).map(|_| text)
}

#[track_caller]
fn expect_eio<T: std::fmt::Debug>(done: std::io::Result<T>) {
    assert_eq!(done.expect_err("it is no more").raw_os_error(), Some(EIO));
}

#[test]
fn an_increment_goes_into_a_file_system_whose_files_are_open() {
    let Some(live) = Live::with_tank(128) else { return };
    live.source(&["-o", "atime=off"]);
    let at = |name: &str| live.path("mnt/copy").join(name);
    let open = |name: &str| File::options().read(true).write(true).open(at(name)).expect("opened");
    let (mut same, mut gone, mut big) = (open("same"), open("gone"), open("big"));
    let mut other = open("other");
    assert_eq!(text_of(&mut other).expect("read"), "one");
    let (dir, lost) = (File::open(at("dir")).expect("opened"), File::open(at("lost")).expect("opened"));
    // The kernel also keeps names that do not exist.
    assert!(!at("new").exists() && at("dir/inner").exists());
    let before = fs::metadata(at("")).expect("mounted").dev();
    live.receive("next", &["tank/copy"]).good();
    live.expect_second_state("mnt/copy");
    assert_eq!(text_of(&mut same).expect("it goes on"), "same");
    assert_eq!(big.read_to_end(&mut Vec::new()).expect("it goes on"), 1 << 20);
    assert_eq!(text_of(&mut other).expect("it goes on"), "two, and longer");
    let source = fs::metadata(live.path("mnt/w/other")).expect("there");
    assert_eq!(other.metadata().expect("it goes on").modified().ok(), source.modified().ok());
    expect_eio(text_of(&mut gone));
    expect_eio(gone.write_all(b"more").and_then(|()| gone.sync_all()));
    expect_eio(gone.metadata());
    expect_eio(fs::read_dir(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lost))).map(drop));
    let listed = fs::read_dir(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir)));
    assert_eq!(listed.expect("it goes on").count(), 1, "what was inside lies in the folder below now");
    assert_eq!(fs::metadata(at("")).expect("mounted").dev(), before, "it was not mounted anew");
    // The next writes reach the new state.
    same.write_all_at(b"SAME", 0).and_then(|()| same.sync_all()).expect("written");
    other.seek(SeekFrom::End(0)).expect("it goes on");
    other.write_all(b"!").expect("it goes on");
    drop((same, gone, big, other, dir, lost));
    live.run(&["zpool", "export", "tank"]).good();
    live.import().good();
    assert_eq!(fs::read(at("same")).expect("there"), b"SAME");
    assert_eq!(fs::read(at("other")).expect("there"), b"two, and longer!");
    live.finish();
}

#[test]
fn open_files_of_a_read_only_file_system_show_the_new_contents() {
    let Some(live) = Live::with_tank(128) else { return };
    live.source(&["-o", "readonly=on"]);
    let at = |name: &str| live.path("mnt/copy").join(name);
    let mut other = File::open(at("other")).expect("opened");
    assert_eq!(text_of(&mut other).expect("read"), "one");
    live.receive("next", &["tank/copy"]).good();
    live.expect_second_state("mnt/copy");
    assert_eq!(text_of(&mut other).expect("it goes on"), "two, and longer");
    assert_eq!(other.metadata().expect("it goes on").len(), 15);
    drop(other);
    live.finish();
}

#[test]
fn changes_since_the_snapshot_are_kept_without_force() {
    let Some(live) = Live::with_tank(128) else { return };
    live.source(&["-o", "atime=off"]);
    let at = |name: &str| live.path("mnt/copy").join(name);
    let mut same = File::options().read(true).write(true).open(at("same")).expect("opened");
    let mut own =
        File::options().read(true).write(true).create(true).truncate(true).open(at("own")).expect("made");
    own.write_all(b"own").expect("written");
    same.write_all(b"not synced").expect("written");
    let refused = live.receive("next", &["tank/copy"]);
    let words = "destination tank/copy has been modified\nsince most recent snapshot";
    assert!(refused.err.contains(words), "{refused:?}");
    assert_eq!(
        (text_of(&mut same).unwrap(), text_of(&mut own).unwrap()),
        ("not synced".into(), "own".into())
    );
    assert!(at("gone").exists() && !at("new").exists());
    own.write_all(b", and more").expect("it goes on");
    assert_eq!(fs::read(at("own")).expect("there"), b"own, and more");
    // Forced, with a newer snapshot that was opened through `.zfs`.
    live.zfs("snapshot tank/copy@later");
    assert!(at(".zfs/snapshot/later/own").exists());
    live.receive("next", &["-F", "tank/copy"]).good();
    live.expect_second_state("mnt/copy");
    expect_eio(text_of(&mut own));
    assert!(!at("own").exists() && !at(".zfs/snapshot/later").exists());
    // Its number may be another's now.
    write(&at("another"), b"another");
    assert_eq!(fs::read(at("another")).expect("there"), b"another");
    drop((same, own));
    live.finish();
}

#[test]
fn a_rollback_leaves_programs_the_files_that_the_snapshot_has() {
    let Some(live) = Live::with_tank(128) else { return };
    live.zfs("create tank/w");
    let at = |name: &str| live.path("mnt/w").join(name);
    write(&at("same"), b"same");
    write(&at("other"), b"one");
    write(&at("unlinked"), b"back again");
    live.zfs("snapshot tank/w@1");
    let mut same = File::open(at("same")).expect("opened");
    let mut other = File::open(at("other")).expect("opened");
    let mut back = File::open(at("unlinked")).expect("opened");
    fs::remove_file(at("unlinked")).expect("removed");
    write(&at("other"), b"longer than it was");
    let mut made =
        File::options().read(true).write(true).create(true).truncate(true).open(at("made")).expect("made");
    made.write_all(b"made").expect("written");
    live.zfs("snapshot tank/w@2");
    live.zfs("rollback -r tank/w@1");
    assert_eq!(text_of(&mut same).expect("it goes on"), "same");
    assert_eq!(fs::read(at("other")).expect("there"), b"one");
    assert_eq!(fs::read(at("unlinked")).expect("there"), b"back again");
    assert_eq!(text_of(&mut other).expect("it goes on"), "one");
    assert_eq!(text_of(&mut back).expect("it goes on"), "back again");
    expect_eio(text_of(&mut made));
    assert!(!at("made").exists());
    drop((same, other, back, made));
    live.finish();
}

#[test]
fn file_systems_mounted_below_stay_mounted() {
    let Some(live) = Live::with_tank(128) else { return };
    live.zfs("create tank/w");
    live.zfs("create tank/w/k");
    write(&live.path("mnt/w/k/file"), b"in the child");
    live.zfs("snapshot -r tank/w@1");
    live.send(&["-R", "tank/w@1"], "full");
    live.receive("full", &["-o", "atime=off", "tank/copy"]).good();
    let mut held = File::open(live.path("mnt/copy/k/file")).expect("opened");
    write(&live.path("mnt/w/new"), b"new");
    live.zfs("snapshot tank/w@2");
    live.send(&["-i", "@1", "tank/w@2"], "next");
    live.receive("next", &["tank/copy"]).good();
    assert_eq!(fs::read(live.path("mnt/copy/new")).expect("there"), b"new");
    assert_eq!(text_of(&mut held).expect("it goes on"), "in the child");
    // The folder of the mount point is removed; the file system mounted there stays mounted, as with OpenZFS.
    live.zfs("set mountpoint=none tank/w/k");
    let _ = fs::remove_dir(live.path("mnt/w/k"));
    live.zfs("snapshot tank/w@3");
    live.send(&["-i", "@2", "tank/w@3"], "next");
    live.receive("next", &["tank/copy"]).good();
    assert_eq!(fs::read(live.path("mnt/copy/k/file")).expect("still mounted"), b"in the child");
    assert_eq!(text_of(&mut held).expect("it goes on"), "in the child");
    drop(held);
    live.finish();
}

/// Ends the writers when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_writer_that_never_rests_stops_no_increment_by_force() {
    let Some(live) = Live::with_tank(256) else { return };
    live.source(&["-o", "atime=off"]);
    let at = |name: &str| live.path("mnt/copy").join(name);
    let ends = AtomicBool::new(false);
    let turns = [const { AtomicU32::new(0) }; 3];
    // Until each writer was at work again.
    let a_while = || {
        let before = turns.each_ref().map(|turn| turn.load(Ordering::SeqCst));
        wait_until("the writers go on", || {
            turns.iter().zip(before).all(|(turn, before)| turn.load(Ordering::SeqCst) > before + 2)
        });
    };
    std::thread::scope(|scope| {
        // Also when an assertion fails.
        let ended = Ends(&ends);
        for (worker, turns) in turns.iter().enumerate() {
            let (at, ends) = (&at, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    let turn = turns.fetch_add(1, Ordering::SeqCst) + 1;
                    // It may vanish under the writer's hands.
                    let _ = fs::write(at(&format!("w{worker}-{}", turn % 20)), turn.to_string());
                    let _ = fs::read(at("big"));
                    let _ = fs::remove_file(at(&format!("w{worker}-{}", (turn + 7) % 20)));
                }
            });
        }
        a_while();
        let refused = live.receive("next", &["tank/copy"]);
        assert!(refused.err.contains("has been modified"), "{refused:?}");
        live.receive("next", &["-F", "tank/copy"]).good();
        for _ in 0..3 {
            a_while();
            live.zfs("rollback tank/copy@2");
        }
        drop(ended);
    });
    live.zfs("rollback tank/copy@2");
    live.expect_second_state("mnt/copy");
    live.finish();
}

#[test]
fn a_stream_that_is_cut_off_leaves_everything_as_it_was() {
    let Some(live) = Live::with_tank(256) else { return };
    live.source(&["-o", "atime=off"]);
    let at = |name: &str| live.path("mnt/copy").join(name);
    write(&live.path("mnt/w/much"), &noise(4 << 20));
    live.zfs("snapshot tank/w@3");
    live.send(&["-i", "@1", "tank/w@3"], "long");
    let mut gone = File::open(at("gone")).expect("opened");
    let whole = fs::read(live.path("long")).expect("there");
    fs::write(live.path("cut"), &whole[..whole.len() / 2]).expect("written");
    assert!(!live.receive("cut", &["-F", "tank/copy"]).err.is_empty());
    assert_eq!(text_of(&mut gone).expect("it goes on"), "gone");
    assert!(!at("much").exists() && at("gone").exists());
    // Killed while it waits for the rest.
    let words = ["zfs", "receive", "-F", "tank/copy"];
    let mut child = live.command(&words).stdin(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&whole[..whole.len() / 2]).expect("taken");
    std::thread::sleep(Duration::from_millis(300));
    child.kill().expect("killed");
    child.wait().expect("gone");
    drop(input);
    assert_eq!(text_of(&mut gone).expect("it goes on"), "gone");
    wait_until("the first receive goes on", || live.receive("long", &["-F", "tank/copy"]).err.is_empty());
    assert_eq!(fs::read(at("much")).expect("there"), noise(4 << 20));
    expect_eio(text_of(&mut gone));
    drop(gone);
    live.finish();
}

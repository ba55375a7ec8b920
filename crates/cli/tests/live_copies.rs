//! `cenote cp` into a live pool: the server works, the client's terminal shows it, and Ctrl-C stops it.

mod bed;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bed::live::Live;

#[test]
fn a_copy_into_a_live_pool_shows_how_far_it_is() {
    let Some(live) = Live::with_tank(256) else { return };
    let from = live.path("many");
    fs::create_dir(&from).expect("made");
    (0..500).for_each(|n| fs::write(from.join(format!("f{n}")), [n as u8; 3000]).expect("written"));
    let program = env!("CARGO_BIN_EXE_cenote");
    let line = format!("{program} cp -r {} tank:/", from.display());
    let copy = live.command(&[]);
    let mut script = Command::new("script");
    bed::in_place_of(&copy, script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()));
    let output = match script.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: script: {error}"),
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    // How far it was when it was drawn is chance, and whether all was counted by then; that it was drawn is not.
    assert!(shown.contains("\u{1b}[2K") && shown.contains("copied 500 files"), "{shown:?}");
    assert_eq!(fs::read_dir(live.path("mnt/many")).expect("a folder").count(), 500);
    // Into a file goes no bar.
    let again =
        live.command(&["cp", "-r", &from.display().to_string(), "tank:/again"]).output().expect("it starts");
    assert!(again.status.success() && again.stderr.is_empty() && again.stdout.is_empty());
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_copy_into_a_live_pool_that_is_interrupted_leaves_whole_files() {
    let Some(live) = Live::with_tank(256) else { return };
    let from = live.path("many");
    fs::create_dir(&from).expect("made");
    (0..20_000)
        .for_each(|n| fs::write(from.join(format!("f{n}")), format!("{n}").repeat(10)).expect("written"));
    let mut copy = live.command(&["cp", "-r", &from.display().to_string(), "tank:/"]);
    let mut copy = copy.stderr(Stdio::piped()).spawn().expect("it starts");
    let to = live.path("mnt/many");
    let until = Instant::now() + Duration::from_secs(30);
    while fs::read_dir(&to).map_or(0, Iterator::count) < 10 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = copy.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    let status = copy.wait().expect("it ends");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut copy.stderr.take().expect("piped"), &mut said).expect("text");
    let copied: Vec<_> = fs::read_dir(&to).expect("there").map(|entry| entry.expect("read").path()).collect();
    match status.code() {
        Some(130) => {
            assert!(said.contains("stopped: everything that was copied until then is complete"), "{said}");
            assert!(copied.len() >= 10 && copied.len() < 20_000, "{}", copied.len());
        }
        // It ended before the signal arrived.
        code => assert_eq!((code, copied.len()), (Some(0), 20_000), "{said}"),
    }
    for path in copied {
        let name = path.file_name().expect("a name").to_string_lossy()[1..].to_owned();
        assert_eq!(fs::read_to_string(&path).expect("whole"), name.repeat(10), "{}", path.display());
    }
    // The server continues.
    live.run(&["zfs", "create", "tank/after"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn changes_by_commands_are_visible_in_the_mount() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/a"]).good();
    let at = |name: &str| live.path(&format!("mnt/a/{name}"));
    let from = live.path("from");
    let copy = |text: &str, place: &str| {
        fs::write(&from, text).expect("written");
        live.run(&["cp", &from.display().to_string(), place]).good();
    };
    // The kernel remembers for a day what is not there ...
    assert!(!at("new").exists() && !at("dir").exists());
    copy("one", "tank/a:/new");
    assert_eq!(fs::read_to_string(at("new")).expect("there now"), "one");
    // ... and what is in a file.
    copy("another text", "tank/a:/new");
    assert_eq!(fs::read_to_string(at("new")).expect("there"), "another text");
    live.run(&["mkdir", "-p", "tank/a:/dir/below"]).good();
    assert!(at("dir/below").is_dir() && !at("dir/below/moved").exists());
    live.run(&["mv", "tank/a:/new", "tank/a:/dir/below/moved"]).good();
    assert!(!at("new").exists());
    assert_eq!(fs::read_to_string(at("dir/below/moved")).expect("moved"), "another text");
    live.run(&["rm", "-r", "tank/a:/dir"]).good();
    assert!(!at("dir/below/moved").exists() && !at("dir").exists());
    assert_eq!(fs::read_dir(at("")).expect("a folder").count(), 0);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_removed_file_that_is_open_in_a_mount_survives_commands_on_its_dataset() {
    let Some(live) = Live::with_tank(128) else { return };
    let path = live.path("mnt/file");
    bed::live::write(&path, b"still wanted");
    let held = fs::File::open(&path).expect("open");
    fs::remove_file(&path).expect("removed");
    let from = live.path("from");
    fs::write(&from, b"other").expect("written");
    live.run(&["cp", &from.display().to_string(), "tank:/other"]).good();
    live.run(&["zpool", "sync", "tank"]).good();
    rustix::fs::fadvise(&held, 0, None, rustix::fs::Advice::DontNeed).expect("dropped from the page cache");
    let text = std::io::read_to_string(&held).expect("there as long as it is open");
    assert_eq!(text, "still wanted");
    drop(held);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn commands_read_unsynced_data_of_programs() {
    let Some(live) = Live::with_tank(128) else { return };
    fs::write(live.path("mnt/file"), "only in the page cache").expect("written");
    assert_eq!(live.run(&["cat", "tank:/file"]).good(), "only in the page cache");
    fs::write(live.path("mnt/file"), "something longer than before").expect("written");
    live.run(&["cp", "tank:/file", "tank:/copy"]).good();
    assert_eq!(fs::read_to_string(live.path("mnt/copy")).expect("there"), "something longer than before");
    let to = live.text("local");
    fs::write(live.path("mnt/file"), "again").expect("written");
    live.run(&["cp", "tank:/file", &to]).good();
    assert_eq!(fs::read_to_string(&to).expect("there"), "again");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_tar_stream_is_unpacked_into_a_live_pool() {
    let Some(live) = Live::with_tank(128) else { return };
    fs::write(live.path("mnt/old"), "kept").expect("written");
    fs::create_dir(live.path("src")).expect("made");
    fs::write(live.path("src/new"), "hello").expect("written");
    let stream = fs::File::create(live.path("src.tar")).expect("made");
    let tar = Command::new("tar").args(["-c", "-C"]).arg(live.path("src")).arg(".").stdout(stream).status();
    assert!(tar.expect("tar is here").success());
    // The kernel remembers that it is not there.
    assert!(!live.path("mnt/new").exists());
    let stream = fs::File::open(live.path("src.tar")).expect("there");
    let done: bed::Done =
        live.command(&["tar", "-x", "--json", "tank:/"]).stdin(stream).output().expect("it starts").into();
    let said = done.objects();
    assert_eq!((&said[0]["files"], &said[0]["bytes"], said.len()), (&1.into(), &5.into(), 1));
    assert_eq!(fs::read_to_string(live.path("mnt/new")).expect("there"), "hello");
    assert_eq!(fs::read_to_string(live.path("mnt/old")).expect("there"), "kept");
    let done = live.run(&["tar", "-x", "tnak:/"]);
    assert!(done.status == 1 && done.err.ends_with("did you mean 'tank'?\n"), "{done:?}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_backup_that_was_not_raw_is_not_followed_by_a_raw_one() {
    let Some(live) = Live::with_tank(256) else { return };
    fs::write(live.path("key"), "passphrase123").expect("written");
    let location = format!("keylocation=file://{}", live.path("key").display());
    let words = ["zfs", "create", "-o", "encryption=on", "-o", "keyformat=passphrase", "-o", &location];
    live.run(&[&words[..], &["tank/e"]].concat()).good();
    let streams = live.path("streams").display().to_string();
    for to in ["tank/plain", &streams] {
        live.run(&["backup", "tank/e", to]).good();
        let refused = live.run(&["backup", "-w", "tank/e", to]);
        assert!(refused.status == 1 && refused.err.contains("was made without --raw"), "{to}: {refused:?}");
        live.run(&["backup", "tank/e", to]).good();
    }
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

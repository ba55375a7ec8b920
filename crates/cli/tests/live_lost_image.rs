//! The image of a live pool is truncated or deleted: no write is acknowledged that is not durable, and the remaining data
//! can be saved.

mod bed;

use std::fs;
use std::process::{Child, Command, Stdio};

use bed::live::{Live, noise, write};
use bed::wait_until;

const SIZE: u64 = 128 << 20;

/// A program that writes a file and waits until it is durable.
fn writer(live: &Live) -> Child {
    let words = [format!("if={}", live.text("source")), format!("of={}", live.text("mnt/new"))];
    let mut dd = Command::new("dd");
    dd.args(words).args(["bs=1M", "conv=fsync"]).stderr(Stdio::null());
    dd.spawn().expect("dd starts")
}

#[test]
fn an_image_cut_short_under_a_live_pool_suspends_it_until_it_has_its_size_again() {
    let Some(live) = Live::with_tank(SIZE >> 20) else { return };
    let run = |words: &[&str]| live.run(words);
    write(&live.path("mnt/safe"), &noise(300_000));
    run(&["zpool", "sync", "tank"]).good();
    fs::write(live.path("source"), noise(3_000_000)).expect("written");
    let image = live.path("tank.img");
    let copy = live.text("copy.img");
    let copied = Command::new("cp").args(["--sparse=always", &live.text("tank.img"), &copy]).status();
    assert!(copied.expect("cp starts").success());
    let file = fs::File::options().write(true).open(&image).expect("opens");
    file.set_len(1 << 20).expect("cut");

    let mut dd = writer(&live);
    let health = || run(&["zpool", "list", "-Ho", "health", "tank"]).good();
    wait_until("it is not suspended", || health() == "SUSPENDED\n");
    let status = run(&["zpool", "status", "tank"]).good();
    let why = format!("the file was cut from {SIZE} to ");
    assert!(status.contains(&why) && status.contains("run 'zpool clear'"), "{status}");
    assert!(!status.contains("Destroy") && !status.contains("backup"), "{status}");
    run(&["zpool", "clear", "tank"]).refused("cannot clear errors for tank: pool I/O is currently suspended");
    assert_eq!(dd.try_wait().expect("it runs"), None, "nothing is acknowledged");

    // The contents come back, in the same file.
    let restored = Command::new("cp").arg("--sparse=never").arg(&copy).arg(&image).status();
    assert!(restored.expect("cp starts").success());
    run(&["zpool", "clear", "tank"]).good();
    assert!(dd.wait().expect("it ends").success());
    assert_eq!(health(), "ONLINE\n");
    assert_eq!(fs::read(live.path("mnt/new")).expect("readable"), noise(3_000_000));
    run(&["zpool", "export", "tank"]).good();
    live.import().good();
    for (name, bytes) in [("mnt/safe", 300_000), ("mnt/new", 3_000_000)] {
        assert_eq!(fs::read(live.path(name)).expect("readable"), noise(bytes), "{name}");
    }
    run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_deleted_image_is_reported_and_its_data_can_be_copied_back() {
    let Some(live) = Live::with_tank(SIZE >> 20) else { return };
    let run = |words: &[&str]| live.run(words);
    write(&live.path("mnt/safe"), &noise(300_000));
    fs::remove_file(live.path("tank.img")).expect("deleted");
    write(&live.path("mnt/later"), &noise(200_000));
    run(&["zpool", "sync", "tank"]).good();
    let status = run(&["zpool", "status", "tank"]).good();
    assert!(status.contains("The file of a device was deleted:"), "{status}");
    assert!(!run(&["zpool", "status", "-x"]).good().contains("healthy"));
    let contents = status.lines().find_map(|line| line.trim().strip_prefix("cp --sparse=always "));
    let contents = contents.expect("it says where").split(' ').next().expect("a path").to_owned();

    let refused = run(&["zpool", "export", "tank"]);
    assert!(
        refused.status == 1 && refused.err.contains("was deleted, and its data ends with"),
        "{refused:?}"
    );
    let server = live.server();
    assert!(Command::new("kill").arg(server.to_string()).status().expect("kill starts").success());
    let log = live.path("state/log/tank.log");
    wait_until("the log says nothing", || {
        fs::read_to_string(&log).expect("there").contains("the server does not end")
    });
    assert_eq!(fs::read(live.path("mnt/safe")).expect("readable"), noise(300_000));

    let copied = Command::new("cp").args(["--sparse=always", &contents]).arg(live.path("tank.img")).status();
    assert!(copied.expect("cp starts").success());
    run(&["zpool", "export", "-f", "tank"]).good();
    live.import().good();
    for (name, bytes) in [("mnt/safe", 300_000), ("mnt/later", 200_000)] {
        assert_eq!(fs::read(live.path(name)).expect("readable"), noise(bytes), "{name}");
    }
    run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_moved_or_replaced_image_is_reported_and_still_written() {
    let Some(live) = Live::with_tank(SIZE >> 20) else { return };
    let run = |words: &[&str]| live.run(words);
    let (image, moved) = (live.path("tank.img"), live.path("moved.img"));
    assert!(run(&["zpool", "status", "-x"]).good().contains("healthy"));
    let named = || {
        let status = run(&["zpool", "status", "tank"]).good();
        assert!(status.contains(" state: ONLINE"), "{status}");
        for words in ["A device was moved, or something else was put in its place:", "moved.img' now."] {
            assert!(status.contains(words), "{words}: {status}");
        }
        assert!(!run(&["zpool", "status", "-x"]).good().contains("healthy"));
    };
    fs::rename(&image, &moved).expect("moved");
    named();
    // A copy in its place is another file, although its contents are the same.
    fs::copy(&moved, &image).expect("copied");
    named();
    write(&live.path("mnt/later"), &noise(200_000));
    run(&["zpool", "sync", "tank"]).good();
    fs::remove_file(&image).expect("removed");
    named();
    run(&["zpool", "export", "tank"]).good();
    fs::rename(&moved, &image).expect("moved back");
    live.import().good();
    assert_eq!(fs::read(live.path("mnt/later")).expect("readable"), noise(200_000));
    assert!(run(&["zpool", "status", "-x"]).good().contains("healthy"));
    run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

//! How servers begin and end: killed, told to end, started twice, and found by their sockets.
//!
//! As root these tests mount with the real FUSE; where `/dev/fuse` cannot be opened they say so and end.

mod bed;

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bed::live::{Live, noise, write};
use bed::{Done, PATIENCE};

#[test]
fn a_server_that_was_killed_leaves_a_pool_that_imports_and_no_dead_mount() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/fs"]).good();
    write(&live.path("mnt/fs/kept"), b"synced");
    live.run(&["zpool", "sync", "tank"]).good();
    live.signal("-KILL");
    assert!(fs::metadata(live.path("mnt/fs")).is_err(), "a dead mount stays until somebody looks");
    // Any command that looks for the server finds the pool and cleans up.
    assert_eq!(live.get("mounted", "tank/fs"), "no");
    assert!(live.mounts().is_empty(), "{:?}", live.mounts());
    live.import().good();
    assert_eq!(fs::read(live.path("mnt/fs/kept")).expect("there"), b"synced");
    live.signal("-KILL");
    live.run(&["zfs", "mount", "-a"]).good();
    assert_eq!(fs::read(live.path("mnt/fs/kept")).expect("there"), b"synced");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn after_a_kill_only_tmpfiles_that_got_a_name_are_left() {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    let Some(live) = Live::with_tank(128) else { return };
    let point = live.path("mnt");
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        fs::File::from(rustix::fs::open(&point, flags, Mode::RUSR | Mode::WUSR).expect("made"))
    };
    let (mut lost, mut named) = (unnamed(), unnamed());
    lost.write_all(&noise(8 << 20)).and_then(|()| lost.sync_all()).expect("written");
    named.write_all(&vec![2; 3 << 20]).and_then(|()| named.sync_all()).expect("written");
    let path = point.join("named");
    rustix::fs::linkat(&named, "", CWD, &path, AtFlags::EMPTY_PATH).expect("named");
    live.run(&["zpool", "sync", "tank"]).good();
    let count = || live.get("referenced", "tank").parse::<u64>().expect("a number");
    assert!(count() > 8 << 20, "{}", count());
    live.signal("-KILL");
    drop((lost, named));
    live.import().good();
    assert_eq!(fs::read(&path).expect("there"), vec![2; 3 << 20]);
    assert_eq!(fs::read_dir(&point).expect("a folder").count(), 1);
    live.run(&["zpool", "sync", "tank"]).good();
    assert!(count() < 8 << 20, "what had no name is gone: {}", count());
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn sigterm_ends_a_server_in_good_order() {
    let Some(live) = Live::with_tank(128) else { return };
    fs::write(live.path("mnt/file"), b"not synced by its writer").expect("written");
    let held = fs::File::open(live.path("mnt/file")).expect("open");
    live.signal("-TERM");
    assert!(live.mounts().is_empty());
    assert!(!live.path("run/tank.sock").exists());
    drop(held);
    live.expect_sound();
    // The pool is still imported, and `zpool import -a` starts its server again.
    live.run(&["zpool", "import", "-a"]).good();
    assert_eq!(fs::read(live.path("mnt/file")).expect("there"), b"not synced by its writer");
}

#[test]
fn a_stale_socket_is_no_server() {
    let Some(live) = Live::new() else { return };
    fs::create_dir(live.path("run")).expect("made");
    fs::set_permissions(live.path("run"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("set");
    drop(std::os::unix::net::UnixListener::bind(live.path("run/tank.sock")).expect("bound"));
    fs::File::create(live.path("tank.img")).expect("made").set_len(128 << 20).expect("long");
    live.run(&["zpool", "create", "-m", &live.text("mnt"), "tank", &live.text("tank.img")]).good();
    write(&live.path("mnt/f"), b"x");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn relative_folders_for_state_and_sockets_are_relative_to_the_command() {
    let Some(live) = Live::new() else { return };
    fs::File::create(live.path("tank.img")).expect("made").set_len(128 << 20).expect("long");
    let run = |words: &[&str]| -> Done {
        let mut command = live.command(words);
        command.env("CENOTE_STATE_DIR", "state").env("CENOTE_RUN_DIR", "run");
        command.output().expect("it starts").into()
    };
    run(&["zpool", "create", "-m", &live.text("mnt"), "tank", &live.text("tank.img")]).good();
    assert!(live.path("run/tank.sock").exists() && live.path("state/log/tank.log").exists());
    run(&["zfs", "create", "tank/fs"]).good();
    // From elsewhere it is the same server.
    live.run(&["zfs", "create", "tank/other"]).good();
    let name = fs::read_to_string(format!("/proc/{}/comm", live.server())).expect("it runs");
    assert_eq!(name, "cenote\n");
    run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn one_of_several_servers_started_at_once_for_one_pool_name_stays() {
    let Some(live) = Live::new() else { return };
    let folders = ["a", "b", "c", "d"];
    for folder in folders {
        fs::create_dir(live.path(folder)).expect("made");
        let image = live.text(&format!("{folder}/tank.img"));
        fs::File::create(&image).expect("made").set_len(64 << 20).expect("long");
        let mut create = live.bed.command(&["zpool", "create", "tank", &image]);
        Done::from(create.env("CENOTE_STATE_DIR", live.path(folder)).output().expect("it starts")).good();
    }
    let start = |folder: &str| {
        let mut command = live.command(&["-d", &live.text(folder), "serve", "--no-mount", "tank"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    for _ in 0..5 {
        let mut servers: Vec<_> = folders.into_iter().map(start).collect();
        let until = Instant::now() + PATIENCE;
        while servers.len() > 1 {
            assert!(Instant::now() < until, "{} servers for one name", servers.len());
            std::thread::sleep(Duration::from_millis(10));
            let (over, running): (Vec<_>, Vec<_>) = servers
                .into_iter()
                .map(|mut server| (server.try_wait().expect("it is ours").is_some(), server))
                .partition(|(over, _)| *over);
            for (_, server) in over {
                let done = Done::from(server.wait_with_output().expect("it is ours"));
                assert!(done.status == 1 && done.err.contains("another pool of this name"), "{done:?}");
            }
            servers = running.into_iter().map(|(_, server)| server).collect();
        }
        live.signal("-TERM");
        let done = Done::from(servers.remove(0).wait_with_output().expect("it is ours"));
        assert_eq!(done.status, 0, "{done:?}");
    }
}

#[test]
fn a_server_of_an_image_that_is_not_imported_ends_with_an_export() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zpool", "export", "tank"]).good();
    let image = live.text("tank.img");
    live.run(&["-d", &image, "zfs", "mount", "-a"]).good();
    write(&live.path("mnt/kept"), b"written");
    // Commands without '-d' say how to reach it.
    let hint = format!("'tank' is in use without being imported: 'cenote -d {image} …' reaches it");
    for (words, line) in [
        (["zpool", "status", "tank"], "cannot open 'tank': no such pool"),
        (["zfs", "list", "tank"], "cannot open 'tank': dataset does not exist"),
    ] {
        let done = live.run(&words);
        assert!(done.err.lines().eq([line, hint.as_str()]), "{done:?}");
        done.refused(line);
    }
    assert!(live.run(&["-d", &image, "zpool", "status", "tank"]).good().contains("ONLINE"));
    live.run(&["zpool", "export", "tank"]).good();
    assert!(live.mounts().is_empty(), "{:?}", live.mounts());
    assert_eq!(live.run(&["-d", &image, "cat", "tank:/kept"]).good(), "written");
    live.run(&["zpool", "export", "tank"]).refused("cannot open 'tank': no such pool");
    live.expect_sound();
}

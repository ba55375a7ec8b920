//! Mounts are safe from a pool of unknown origin, and from another user of the machine.

mod bed;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use bed::live::{Live, write};

/// A live pool, where this process is root and can mount.
fn root_with_tank() -> Option<Live> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root imports what another user made");
        return None;
    }
    Live::with_tank(64)
}

/// The mount options of what is mounted at a place below the bed, as the kernel shows them.
fn options(live: &Live, name: &str) -> Vec<String> {
    let point = live.text(name);
    let text = fs::read_to_string("/proc/self/mounts").expect("there");
    let line = text.lines().find(|line| line.split(' ').nth(1) == Some(&point));
    let line = line.unwrap_or_else(|| panic!("{point} is not mounted:\n{text}"));
    line.split(' ').nth(3).expect("options").split(',').map(str::to_owned).collect()
}

#[test]
fn no_mountpoint_of_a_pool_leaves_the_altroot() {
    let Some(live) = root_with_tank() else { return };
    live.run(&["zpool", "export", "tank"]).good();
    let image = live.text("tank.img");
    let alt = live.text("deep/alt");
    let import = || live.run(&["zpool", "import", "-d", &image, "-R", &alt, "tank"]);
    import().good();
    live.run(&["zfs", "set", "mountpoint=/top", "tank"]).good();
    // More `..` than the altroot is deep: the maker of the pool need not know its depth.
    let up = format!("/{}{}", "../".repeat(30), live.text("outside/up").trim_start_matches('/'));
    live.run(&["zfs", "create", "-u", "-o", &format!("mountpoint={up}"), "tank/up"]);
    live.run(&["zfs", "create", "-o", "mountpoint=/top/a", "tank/a"]).good();
    fs::create_dir_all(live.path("outside/link")).expect("made");
    symlink(live.path("outside/link"), live.path("deep/alt/top/a/out")).expect("made");
    live.run(&["zfs", "create", "-u", "-o", "mountpoint=/top/a/out/x", "tank/link"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    let done = import();
    assert!(done.err.contains("has '..' in it"), "{done:?}");
    assert!(done.err.contains("a symbolic link in a pool's file system"), "{done:?}");
    let outside: Vec<_> =
        live.mounts().into_iter().filter(|point| !point.starts_with(live.path("deep/alt"))).collect();
    assert!(outside.is_empty(), "{outside:?}");
    assert!(!live.path("outside/up").exists() && !live.path("outside/link/x").exists());
    assert_eq!(live.get("mounted", "tank/a"), "yes");
    // Without an altroot a link in the pool is not followed either.
    live.run(&["zpool", "export", "tank"]).good();
    live.run(&["zpool", "import", "-N", "-d", &image, "tank"]).good();
    live.run(&["zfs", "set", "-u", &format!("mountpoint={}", live.text("mnt")), "tank"]);
    live.run(&["zfs", "set", "-u", &format!("mountpoint={}", live.text("mnt/a")), "tank/a"]);
    live.run(&["zfs", "set", "-u", &format!("mountpoint={}", live.text("mnt/a/out/x")), "tank/link"]);
    live.run(&["zfs", "mount", "tank"]).good();
    live.run(&["zfs", "mount", "tank/a"]).good();
    let done = live.run(&["zfs", "mount", "tank/link"]);
    assert!(done.err.contains("a symbolic link in a pool's file system"), "{done:?}");
    assert!(!live.path("outside/link/x").exists());
}

#[test]
fn a_pool_in_files_of_another_user_has_no_set_id_programs() {
    let Some(live) = root_with_tank() else { return };
    live.run(&["zpool", "export", "tank"]).good();
    std::os::unix::fs::chown(live.path("tank.img"), Some(65534), None).expect("root may");
    let image = live.text("tank.img");
    let done = live.run(&["zpool", "import", "-d", &image, "tank"]);
    let said = "cenote: 'tank' lies in files of user 65534: set-id bits and devices in it have no effect \
                (mount options 'suid' and 'dev' change that)\n";
    assert_eq!((done.status, done.err.as_str()), (0, said));
    let has = |word: &str| options(&live, "mnt").iter().any(|option| option == word);
    assert!(has("nosuid") && has("nodev"), "{:?}", options(&live, "mnt"));
    // The property is stored in the pool, so it does not lift the restriction, whether it was set before or is set now.
    live.run(&["zfs", "set", "setuid=on", "tank"]).good();
    assert!(has("nosuid"));
    live.run(&["zpool", "export", "tank"]).good();
    live.run(&["zpool", "import", "-o", "suid,dev", "-d", &image, "tank"]).good();
    assert!(!has("nosuid") && !has("nodev"), "{:?}", options(&live, "mnt"));
}

/// Mounts a FUSE file system of `user` without a server, under the name of a dataset.
fn mount_dead(live: &Live, name: &str, dataset: &str, user: u32) -> bool {
    let script = "import ctypes, os, sys\n\
                  libc = ctypes.CDLL(None, use_errno=True)\n\
                  fd = os.open('/dev/fuse', os.O_RDWR)\n\
                  data = f'fd={fd},rootmode=40000,user_id={sys.argv[3]},group_id=0,subtype=zfs,allow_other'\n\
                  args = [word.encode() for word in (sys.argv[1], sys.argv[2], 'fuse', data)]\n\
                  sys.exit(libc.mount(args[0], args[1], args[2], 0, args[3]) != 0)";
    fs::create_dir_all(live.path(name)).expect("made");
    let words = ["-c", script, dataset, &live.text(name), &user.to_string()];
    Command::new("python3").args(words).status().is_ok_and(|status| status.success())
}

#[test]
fn a_dead_mount_of_another_user_is_not_taken_down() {
    let Some(live) = root_with_tank() else { return };
    live.run(&["zpool", "export", "tank"]).good();
    if !mount_dead(&live, "spoofed", "tank", 65534) || !mount_dead(&live, "own", "tank", 0) {
        eprintln!("skipped: python3 cannot mount");
        return;
    }
    live.import().good();
    assert_eq!(live.mounts(), [live.path("spoofed"), live.path("mnt")]);
}

#[test]
fn folders_and_files_of_servers_are_for_one_user_only() {
    let Some(live) = Live::new() else { return };
    fs::File::create(live.path("tank.img")).expect("made").set_len(64 << 20).expect("long");
    // As an earlier version left it.
    fs::create_dir(live.path("state")).expect("made");
    fs::set_permissions(live.path("state"), fs::Permissions::from_mode(0o755)).expect("ours");
    let program = env!("CARGO_BIN_EXE_cenote");
    let line = format!(
        "umask 000; exec '{program}' zpool create -m '{}' tank '{}'",
        live.text("mnt"),
        live.text("tank.img")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("CENOTE_STATE_DIR", live.path("state"));
    command.env("CENOTE_RUN_DIR", live.path("run"));
    assert!(command.status().expect("sh is here").success());
    write(&live.path("mnt/file"), b"text");
    let mode = |name: &str| fs::symlink_metadata(live.path(name)).expect(name).mode() & 0o7777;
    for folder in ["state", "state/log", "state/claims", "run"] {
        assert_eq!(mode(folder), 0o700, "{folder}");
    }
    for file in
        ["state/pools.cache", "state/pools.lock", "state/log/tank.log", "run/tank.sock", "run/tank.lock"]
    {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    // A log file that is a symbolic link is not written to.
    live.run(&["zpool", "export", "tank"]).good();
    fs::remove_file(live.path("state/log/tank.log")).expect("there");
    write(&live.path("victim"), b"kept");
    symlink(live.path("victim"), live.path("state/log/tank.log")).expect("made");
    let done = live.import();
    assert!(done.status != 0 && done.err.contains("it is a symbolic link"), "{done:?}");
    assert_eq!(fs::read(live.path("victim")).expect("there"), b"kept");
}

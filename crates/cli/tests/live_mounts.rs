//! Mounts as the rest of the system sees them, and work on files in them.
//!
//! Each story has names of its own: what is mounted is known by its dataset, and the stories run side by side.

mod bed;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use bed::Done;
use bed::live::{Live, write};

fn tool(program: &str, words: &[&str]) -> Option<String> {
    match Command::new(program).args(words).stderr(Stdio::null()).output() {
        Ok(output) => Some(Done::from(output).out),
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

#[test]
fn a_mount_looks_like_a_mount_to_findmnt_and_df() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "-o", "compression=off", "tank/look"]).good();
    let point = live.text("mnt/look");
    if let Some(line) = tool("findmnt", &["-rno", "SOURCE,FSTYPE,TARGET", &point]) {
        assert_eq!(line.trim(), format!("tank/look fuse.zfs {point}"));
    }
    write(&live.path("mnt/look/file"), &[7; 8 << 20]);
    live.run(&["zpool", "sync", "tank"]).good();
    let Some(shown) = tool("df", &["--output=source,fstype,used,avail,target", "-B1", &point]) else {
        return;
    };
    let cells: Vec<&str> = shown.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!((cells[0], cells[1], cells[4]), ("tank/look", "fuse.zfs", point.as_str()), "{shown}");
    let near = |shown: &str, property: &str| {
        let (shown, pool): (i64, i64) =
            (shown.parse().expect("a number"), live.get(property, "tank/look").parse().expect("a number"));
        assert!((shown - pool).abs() <= 256 << 10, "{property}: {shown} {pool}");
    };
    near(cells[2], "referenced");
    near(cells[3], "available");
    // The size of the file system that the kernel reports is the quota.
    live.run(&["zfs", "set", "quota=20M", "tank/look"]).good();
    let shown = tool("df", &["--output=size", "-B1M", &point]).expect("df");
    let size: u64 = shown.lines().nth(1).expect("a row").trim().parse().expect("a number");
    assert!((19..=20).contains(&size), "{shown}");
}

#[test]
fn options_given_by_hand_are_shown_until_the_property_is_set() {
    let Some(live) = Live::with_tank(64) else { return };
    let value =
        |property: &str| live.run(&["zfs", "get", "-Ho", "value,source", property, "tank/opts"]).good();
    let mounted = |options: &str| {
        live.run(&["zfs", "unmount", "tank/opts"]).good();
        live.run(&["zfs", "mount", "-o", options, "tank/opts"]).good();
    };
    live.run(&["zfs", "create", "tank/opts"]).good();
    write(&live.path("mnt/opts/file"), b"text");
    let before = |file: &str| {
        // Long ago, so that `relatime` counts the next access.
        let old = fs::FileTimes::new().set_accessed(std::time::SystemTime::UNIX_EPOCH);
        let path = live.path(file);
        fs::File::options().append(true).open(&path).expect("there").set_times(old).expect("set");
        let read = fs::read(&path).expect("read");
        assert_eq!(read, b"text");
        // Unmounting drops the pages and attributes that the kernel keeps.
        live.run(&["zfs", "unmount", "tank/opts"]).good();
        live.run(&["zfs", "mount", "tank/opts"]).good();
        fs::metadata(&path).expect("there").accessed().expect("known") > std::time::SystemTime::UNIX_EPOCH
    };
    mounted("noatime");
    assert_eq!(value("atime"), "off\ttemporary\n");
    assert!(!before("mnt/opts/file"), "no access is noted");
    assert_eq!(value("atime"), "on\tdefault\n");
    live.run(&["zfs", "set", "atime=off", "tank/opts"]).good();
    assert_eq!(value("atime"), "off\tlocal\n");
    mounted("atime");
    assert_eq!(value("atime"), "on\ttemporary\n");
    assert!(before("mnt/opts/file"), "an access is noted");
    assert_eq!(value("atime"), "off\tlocal\n");
    // Setting a property to its present value ends a temporary mount option that contradicts it.
    mounted("atime,ro");
    assert_eq!((value("atime"), value("readonly")), ("on\ttemporary\n".into(), "on\ttemporary\n".into()));
    live.run(&["zfs", "set", "readonly=off", "tank/opts"]).good();
    write(&live.path("mnt/opts/file"), b"text");
    assert_eq!((value("atime"), value("readonly")), ("on\ttemporary\n".into(), "off\tlocal\n".into()));
    live.run(&["zfs", "set", "atime=off", "tank"]).good();
    assert_eq!(value("atime"), "on\ttemporary\n", "it has its own");
    live.run(&["zfs", "inherit", "atime", "tank/opts"]).good();
    assert_eq!(value("atime"), "off\tinherited from tank\n");
}

#[test]
fn mount_options_hold_until_the_next_mount() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/opts"]).good();
    live.run(&["zfs", "create", "tank/other"]).good();
    let value =
        |property: &str| live.run(&["zfs", "get", "-Ho", "value,source", property, "tank/opts"]).good();
    live.run(&["zfs", "unmount", "tank/opts"]).good();
    live.run(&["zfs", "mount", "-o", "ro,noexec", "tank/opts"]).good();
    let refused = fs::write(live.path("mnt/opts/x"), b"x").expect_err("read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!((value("readonly"), value("exec")), ("on\ttemporary\n".into(), "off\ttemporary\n".into()));
    assert_eq!(value("compression"), "on\tdefault\n");
    // Other properties, and properties of other datasets, do not change the options.
    live.run(&["zfs", "set", "readonly=on", "tank/other"]).good();
    live.run(&["zfs", "set", "setuid=off", "tank/opts"]).good();
    assert_eq!((value("readonly"), value("setuid")), ("on\ttemporary\n".into(), "off\tlocal\n".into()));
    live.run(&["zfs", "mount", "-o", "remount,rw", "tank/opts"]).good();
    write(&live.path("mnt/opts/x"), b"x");
    assert_eq!((value("readonly"), value("exec")), ("off\tdefault\n".into(), "on\tdefault\n".into()));
    live.run(&["zfs", "mount", "-o", "remount,ro", "tank/opts"]).good();
    assert_eq!(value("readonly"), "on\ttemporary\n");
    // A property that is set later takes precedence over the option given before.
    live.run(&["zfs", "set", "readonly=on", "tank/opts"]).good();
    live.run(&["zfs", "set", "readonly=off", "tank/opts"]).good();
    write(&live.path("mnt/opts/x"), b"y");
    live.run(&["zfs", "unmount", "tank/opts"]).good();
    live.run(&["zfs", "mount", "-o", "remount,ro", "tank/opts"])
        .refused("cannot mount 'tank/opts': not currently mounted");
    live.run(&["zfs", "mount", "-o", "ro", "-a"]).good();
    assert_eq!(value("readonly"), "on\ttemporary\n");

    // A file system in use stays mounted, unless `-f` is given.
    let held = fs::File::open(live.path("mnt/opts/x")).expect("open");
    let busy = format!("cannot unmount '{}': pool or dataset is busy", live.text("mnt/opts"));
    live.run(&["zfs", "unmount", "tank/opts"]).refused(&busy);
    live.run(&["zfs", "unmount", "-f", "tank/opts"]).good();
    assert_eq!(live.get("mounted", "tank/opts"), "no");
    drop(held);
    let list = live.run(&["zfs", "mount"]).good();
    // Others may have mounts, too.
    let ours = list.lines().filter(|line| line.contains(&live.text("mnt"))).count();
    assert_eq!(ours, 2, "{list}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn mount_options_stay_when_a_command_mounts_again() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-o", "setuid=off", "tank/a"]).good();
    live.run(&["zfs", "create", "tank/a/b"]).good();
    live.run(&["zfs", "create", "tank/sealed"]).good();
    live.run(&["zfs", "snapshot", "tank/a/b@s"]).good();
    live.run(&["zfs", "mount", "-o", "remount,ro,noexec,suid", "tank/a/b"]).good();
    let options = |name: &str| {
        let list = "readonly,exec,setuid";
        let shown = live.run(&["zfs", "get", "-Ho", "value,source", list, name]).good();
        shown.lines().map(|line| line.replace('\t', " ")).collect::<Vec<_>>()
    };
    let temporary = ["on temporary", "off temporary", "on temporary"];
    assert_eq!(options("tank/a/b"), temporary);
    live.run(&["zfs", "rename", "tank/a", "tank/c"]).good();
    assert_eq!(options("tank/c/b"), temporary, "renamed");
    live.run(&["zfs", "rollback", "tank/c/b@s"]).good();
    assert_eq!(options("tank/c/b"), temporary, "rolled back");
    live.run(&["zfs", "set", &format!("mountpoint={}", live.text("mnt/moved")), "tank/c"]).good();
    assert_eq!(options("tank/c/b"), temporary, "moved");
    assert!(live.mounts().contains(&live.path("mnt/moved/b")));
    live.run(&["zfs", "inherit", "mountpoint", "tank/c"]).good();
    assert_eq!(options("tank/c/b"), temporary, "moved back");
    let refused = fs::write(live.path("mnt/c/b/x"), b"x").expect_err("read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    // An option of the mount does not stay when the dataset moves below a parent that sets the property.
    live.run(&["zfs", "set", "exec=off", "tank/sealed"]).good();
    live.run(&["zfs", "rename", "tank/c/b", "tank/sealed/b"]).good();
    assert_eq!(options("tank/sealed/b")[..2], ["on temporary", "off inherited from tank/sealed"]);
    // The next mount by name does not keep the old options.
    live.run(&["zfs", "unmount", "tank/sealed/b"]).good();
    live.run(&["zfs", "mount", "tank/sealed/b"]).good();
    assert_eq!(options("tank/sealed/b")[0], "off default");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// Runs the helper that mount(8) runs for `mount -t zfs`.
fn helper(live: &Live, words: &[&str]) -> Done {
    live.command(words).arg0("mount.zfs").output().expect("it starts").into()
}

/// `tank/leg` is mounted again at once, though what was asked of it before is still being done: by a pool that is slow.
fn expect_mounted_again_at_once(live: &Live, at: &Path) {
    let to = at.to_str().expect("text");
    let slow = ["zfs_txg_timeout=3600", "zfs_delay_min_dirty_percent=0", "zfs_delay_scale=1000000000000"];
    for value in slow {
        live.run(&["tune", "tank", value]).good();
    }
    helper(live, &["tank/leg", to]).good();
    for n in 0..10 {
        fs::write(at.join(format!("{n}")), b"goes").expect("written");
    }
    (0..10).for_each(|n| fs::remove_file(at.join(format!("{n}"))).expect("removed"));
    umount(at);
    helper(live, &["tank/leg", to]).good();
    umount(at);
    live.run(&["tune", "tank", "zfs_delay_scale=0"]).good();
}

#[test]
fn mount_8_mounts_what_has_a_legacy_mountpoint() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-o", "mountpoint=legacy", "-o", "canmount=noauto", "tank/leg"]).good();
    live.run(&["zfs", "create", "tank/own"]).good();
    let (at, other) = (live.path("at"), live.path("other"));
    fs::create_dir(&at).expect("made");
    fs::create_dir(&other).expect("made");
    let (to, elsewhere) = (at.to_str().expect("text"), other.to_str().expect("text"));
    helper(&live, &["tank/leg", to, "-o", "rw,noexec,nofail"]).good();
    write(&at.join("file"), b"here");
    assert!(live.mounts().contains(&at));
    assert_eq!(live.get("mounted", "tank/leg"), "yes");
    let value =
        |property: &str| live.run(&["zfs", "get", "-Ho", "value,source", property, "tank/leg"]).good();
    assert_eq!(value("exec"), "off\ttemporary\n");
    let busy = helper(&live, &["tank/leg", elsewhere]);
    assert_eq!((busy.status, busy.err.as_str()), (128, "filesystem 'tank/leg' is already mounted\n"));
    // It stays where it is when its name changes, and comes back after a rollback.
    live.run(&["zfs", "snapshot", "tank/leg@s"]).good();
    live.run(&["zfs", "rename", "tank/leg", "tank/legs"]).good();
    live.run(&["zfs", "rename", "tank/legs", "tank/leg"]).good();
    write(&at.join("file"), b"gone");
    live.run(&["zfs", "rollback", "tank/leg@s"]).good();
    assert_eq!(fs::read(at.join("file")).expect("there"), b"here");
    assert_eq!(value("exec"), "off\ttemporary\n");
    helper(&live, &["-o", "remount,ro", "tank/leg", to]).good();
    assert!(fs::write(at.join("file"), b"no").is_err());
    let nowhere = helper(&live, &["-o", "remount,rw", "tank/leg", elsewhere]);
    assert_eq!((nowhere.status, nowhere.err.contains("not currently mounted")), (32, true), "{nowhere:?}");
    // After umount(8), every command reports it as not mounted.
    umount(&at);
    assert_eq!(live.get("mounted", "tank/leg"), "no");
    live.run(&["zfs", "unmount", "tank/leg"]).refused("cannot unmount 'tank/leg': not currently mounted");

    expect_mounted_again_at_once(&live, &at);

    let refused = helper(&live, &["tank/own", to]);
    let lines = "filesystem 'tank/own' cannot be mounted using 'mount'.\n\
                 Use 'zfs set mountpoint=legacy' or 'zfs mount tank/own'.\nSee zfs(8) for more information.\n";
    assert_eq!((refused.status, refused.err.as_str()), (1, lines));
    live.run(&["zfs", "unmount", "tank/own"]).good();
    helper(&live, &["-o", "zfsutil", "tank/own", to]).good();
    assert!(live.mounts().contains(&at));
    live.run(&["zfs", "unmount", "tank/own"]).good();
    let refused = helper(&live, &["-o", "zfsutil", "tank/leg", to]);
    assert!(refused.status == 1 && refused.err.contains("using 'zfs mount'"), "{refused:?}");
    let refused = helper(&live, &["tank/none", to]);
    assert_eq!(refused.err, "filesystem 'tank/none' cannot be mounted, unable to open the dataset\n");
    let refused = helper(&live, &["tank/leg", "/no/such/folder"]);
    assert_eq!(refused.err, "mount point '/no/such/folder' does not exist\n");

    // An export takes it down; the next mount starts the server that is not there.
    helper(&live, &["tank/leg", to]).good();
    live.run(&["zpool", "export", "tank"]).good();
    assert_eq!(live.mounts(), [] as [std::path::PathBuf; 0]);
    live.run(&["zpool", "import", "-N", "-d", &live.text("tank.img"), "tank"]).good();
    live.signal("-TERM");
    helper(&live, &["tank/leg", to]).good();
    assert_eq!((live.mounts(), fs::read(at.join("file")).expect("there")), (vec![at], b"here".to_vec()));
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn names_are_compared_as_the_file_system_was_made_to() {
    let Some(live) = Live::with_tank(128) else { return };
    let make = |name: &str, options: &[&str]| {
        let mut words = vec!["zfs", "create"];
        options.iter().for_each(|option| words.extend(["-o", *option]));
        words.push(name);
        live.run(&words).good();
    };
    make("tank/ci", &["casesensitivity=insensitive"]);
    let ci = live.path("mnt/ci");
    write(&ci.join("ReadMe"), b"one");
    assert_eq!(fs::read(ci.join("README")).expect("the same file"), b"one");
    let exclusive = fs::File::options().write(true).create_new(true).open(ci.join("readme"));
    assert_eq!(exclusive.expect_err("there is one").kind(), ErrorKind::AlreadyExists);
    let names: Vec<_> =
        fs::read_dir(&ci).expect("a folder").map(|entry| entry.expect("read").file_name()).collect();
    assert_eq!(names, ["ReadMe"]);
    fs::remove_file(ci.join("rEADmE")).expect("removed");
    assert!(!ci.join("ReadMe").exists());

    make("tank/nf", &["normalization=formD"]);
    assert_eq!(live.get("utf8only", "tank/nf"), "on");
    let nf = live.path("mnt/nf");
    write(&nf.join("caf\u{e9}"), b"composed");
    assert_eq!(fs::read(nf.join("cafe\u{301}")).expect("the same file"), b"composed");
    let broken = nf.join(Path::new(std::ffi::OsStr::from_bytes(b"\xff\xfe")));
    let refused = fs::write(&broken, b"x").expect_err("no UTF-8");
    assert_eq!(refused.raw_os_error(), Some(84), "EILSEQ: {refused}");

    make("tank/plain", &[]);
    let plain = live.path("mnt/plain");
    write(&plain.join("a"), b"1");
    assert!(!plain.join("A").exists());
    write(&plain.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), b"any bytes are a name");

    make("tank/utf8", &["utf8only=on"]);
    let refused = fs::write(live.path("mnt/utf8").join(std::ffi::OsStr::from_bytes(b"\xff")), b"x");
    assert_eq!(refused.expect_err("no UTF-8").raw_os_error(), Some(84));
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn mounted_files_are_rewritten_and_given_projects_by_their_paths() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-o", "compression=off", "tank/work"]).good();
    let text = b"a line that is easy to compress\n".repeat(32 << 10);
    fs::create_dir(live.path("mnt/work/dir")).expect("made");
    write(&live.path("mnt/work/dir/file"), &text);
    live.run(&["zpool", "sync", "tank"]).good();
    let before: u64 = live.get("referenced", "tank/work").parse().expect("a number");
    assert!(before > 1 << 20, "{before}");
    live.run(&["zfs", "set", "compression=zstd", "tank/work"]).good();
    let dir = live.text("mnt/work/dir");
    live.run(&["zfs", "rewrite", "-r", &dir]).good();
    live.run(&["zpool", "sync", "tank"]).good();
    assert_eq!(fs::read(live.path("mnt/work/dir/file")).expect("there"), text);
    let after: u64 = live.get("referenced", "tank/work").parse().expect("a number");
    assert!(after < before / 4, "{before} {after}");

    live.run(&["zfs", "project", "-p", "42", "-rs", &dir]).good();
    let shown = live.run(&["zfs", "project", "-r", &dir]).good();
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["42", "P", &dir], ["42", "P", &format!("{dir}/file")]], "{shown}");
    write(&live.path("mnt/work/dir/new"), b"inherits");
    live.run(&["zpool", "sync", "tank"]).good();
    let shown = live.run(&["zfs", "projectspace", "-Hpo", "name,objused", "tank/work"]).good();
    assert!(shown.lines().any(|line| line == "42\t3"), "{shown}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// Mounts a tmpfs; returns whether that is allowed here.
fn tmpfs(at: &Path) -> bool {
    let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(at).stderr(Stdio::null()).status();
    let done = done.is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped: no tmpfs can be mounted");
    }
    done
}

fn umount(at: &Path) {
    assert!(Command::new("umount").arg(at).status().expect("it starts").success());
}

#[test]
fn unmounting_leaves_mounts_under_and_over_it() {
    let Some(live) = Live::with_tank(128) else { return };
    let place = live.path("place");
    fs::create_dir(&place).expect("made");
    if !tmpfs(&place) {
        return;
    }
    write(&place.join("below"), b"x");
    live.run(&["zfs", "create", "-o", &format!("mountpoint={}", place.display()), "tank/top"]).good();
    assert!(!place.join("below").exists());
    live.run(&["zfs", "unmount", "tank/top"]).good();
    assert_eq!(fs::read(place.join("below")).expect("still mounted"), b"x");
    live.run(&["zfs", "mount", "tank/top"]).good();
    write(&place.join("own"), b"y");

    assert!(tmpfs(&place));
    write(&place.join("above"), b"z");
    let covered = format!("cannot unmount '{}': something else is mounted over it", place.display());
    live.run(&["zfs", "unmount", "tank/top"]).refused(&covered);
    assert_eq!(fs::read(place.join("above")).expect("still mounted"), b"z");
    umount(&place);
    assert_eq!(fs::read(place.join("own")).expect("still mounted"), b"y");
    live.run(&["zpool", "export", "tank"]).good();
    assert_eq!(fs::read(place.join("below")).expect("still mounted"), b"x");
    umount(&place);
    live.expect_sound();
}

#[test]
fn a_file_system_does_not_become_read_only_under_its_writers() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/w"]).good();
    let value = || live.run(&["zfs", "get", "-Ho", "value,source", "readonly", "tank/w"]).good();
    let file = live.path("mnt/w/file");
    let mut held = fs::File::create(&file).expect("made");
    std::io::Write::write_all(&mut held, b"one ").expect("written");
    for dataset in ["tank/w", "tank"] {
        live.run(&["zfs", "set", "readonly=on", dataset])
            .refused(&format!("cannot set property for '{dataset}': pool or dataset is busy"));
    }
    assert_eq!(value(), "off\tdefault\n");
    std::io::Write::write_all(&mut held, b"two").and_then(|()| held.sync_all()).expect("written");
    write(&live.path("mnt/other"), b"the one above is as it was, too");
    drop(held);
    live.run(&["zfs", "set", "readonly=on", "tank/w"]).good();
    assert_eq!(value(), "on\tlocal\n");
    assert_eq!(fs::read(&file).expect("there"), b"one two");
    assert!(fs::write(&file, b"x").is_err());
    live.run(&["zfs", "set", "readonly=off", "tank/w"]).good();
    live.run(&["zfs", "set", "readonly=on", "tank"]).good();
    let held = fs::File::options().append(true).open(&file).expect("it may be written");
    live.run(&["zfs", "inherit", "readonly", "tank/w"])
        .refused("cannot inherit readonly for 'tank/w': pool or dataset is busy");
    assert_eq!(value(), "off\tlocal\n");
    drop(held);
    live.run(&["zfs", "inherit", "readonly", "tank/w"]).good();
    assert_eq!(value(), "on\tinherited from tank\n");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn an_import_takes_mount_options() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/imp"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    let import =
        |list: &str| live.run(&["zpool", "import", "-o", list, "-d", &live.text("tank.img"), "tank"]);
    import("bogus").refused("cannot import 'tank': Invalid argument");
    import("ro,noexec").good();
    let refused = fs::write(live.path("mnt/imp/x"), b"x").expect_err("read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let values = live.run(&["zfs", "get", "-Ho", "value,source", "readonly,exec", "tank/imp"]).good();
    assert_eq!(values, "on\ttemporary\noff\ttemporary\n");
    live.run(&["zfs", "mount", "-o", "remount,rw", "tank/imp"]).good();
    write(&live.path("mnt/imp/x"), b"x");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn folders_that_were_there_before_stay_as_they_are() {
    let Some(live) = Live::with_tank(128) else { return };
    let own = live.path("own");
    fs::create_dir(&own).expect("made");
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o2750)).expect("set");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&own, Some(65534), Some(65534)).expect("given away");
    }
    let look = || {
        let data = fs::metadata(&own).expect("there");
        use std::os::unix::fs::MetadataExt;
        (data.mode(), data.uid(), data.ino())
    };
    let before = look();
    live.run(&["zfs", "create", "-o", &format!("mountpoint={}", own.display()), "tank/fs"]).good();
    live.run(&["zfs", "create", "-o", &format!("mountpoint={}", live.text("made")), "tank/new"]).good();
    write(&own.join("file"), b"x");
    live.run(&["zfs", "snapshot", "tank/fs@s"]).good();
    live.run(&["zfs", "rollback", "tank/fs@s"]).good();
    live.run(&["zfs", "unmount", "tank/fs"]).good();
    assert_eq!(look(), before);
    live.run(&["zfs", "mount", "tank/fs"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    assert_eq!(look(), before);
    assert!(!live.path("made").exists());
    live.expect_sound();
}

#[test]
fn a_mountpoint_may_be_a_symbolic_link() {
    let Some(live) = Live::with_tank(128) else { return };
    fs::create_dir(live.path("real")).expect("made");
    std::os::unix::fs::symlink(live.path("real"), live.path("link")).expect("made");
    let place = format!("mountpoint={}", live.text("link/fs"));
    live.run(&["zfs", "create", "-o", &place, "tank/linked"]).good();
    write(&live.path("real/fs/file"), b"here");
    assert_eq!(live.get("mounted", "tank/linked"), "yes");
    live.run(&["zfs", "mount", "-o", "remount,ro", "tank/linked"]).good();
    assert_eq!(live.get("readonly", "tank/linked"), "on");
    live.run(&["zfs", "unmount", "tank/linked"]).good();
    assert_eq!(live.get("mounted", "tank/linked"), "no");
}

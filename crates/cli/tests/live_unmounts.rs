//! Mounts that are unmounted by other programs, that are in use, or whose properties change while they are mounted.

mod bed;

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use bed::live::{Live, write};

#[track_caller]
fn umount(words: &[&str], at: &Path) {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if root { "umount" } else { "fusermount3" });
    command.args(if root { &[] } else { &["-u"][..] }).args(words);
    assert!(command.arg(at).status().expect("it starts").success());
}

#[test]
fn properties_are_set_right_after_umount_8() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/u"]).good();
    for round in 0..16 {
        umount(&[], &live.path("mnt/u"));
        let on = round % 2 == 0;
        let value = if on { "readonly=on" } else { "readonly=off" };
        live.run(&["zfs", "set", value, "tank/u"]).good();
        assert_eq!(live.get("mounted", "tank/u"), "no");
        live.run(&["zfs", "mount", "tank/u"]).good();
        assert_eq!(fs::write(live.path("mnt/u/file"), b"x").is_err(), on, "round {round}");
    }
    for word in ["atime=off", "exec=off", "setuid=off", "atime=on"] {
        umount(&[], &live.path("mnt/u"));
        live.run(&["zfs", "set", word, "tank/u"]).good();
        live.run(&["zfs", "mount", "tank/u"]).good();
    }
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_file_system_unmounted_in_use_is_mounted_again_after_its_users_end() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/l"]).good();
    let point = live.path("mnt/l");
    let lazily = |text: &str| {
        let mut held = fs::File::options().append(true).create(true).open(point.join("file")).expect("open");
        umount(if rustix::process::geteuid().is_root() { &["-l"] } else { &["-z"] }, &point);
        held.write_all(text.as_bytes()).expect("it may still be written");
        held
    };
    let mut held = lazily("one ");
    assert_eq!(live.get("mounted", "tank/l"), "no");
    if rustix::process::geteuid().is_root() {
        // As in OpenZFS: it is mounted at once, and is the same file system as the one that is still in use.
        live.run(&["zfs", "mount", "tank/l"]).good();
        assert_eq!(live.get("mounted", "tank/l"), "yes");
        assert_eq!(fs::read_to_string(point.join("file")).expect("there"), "one ");
        held.write_all(b"more ").expect("written");
        assert_eq!(fs::read_to_string(point.join("file")).expect("there"), "one more ");
        fs::write(point.join("new"), "from here").expect("written");
        live.run(&["zpool", "sync", "tank"]).good();
        umount(&["-l"], &point);
    }
    live.run(&["zfs", "unmount", "tank/l"]).refused("cannot unmount 'tank/l': not currently mounted");
    let used = "it was unmounted while in use, and programs still have files of it open \
                ('zfs unmount -f' closes them)";
    if !rustix::process::geteuid().is_root() {
        live.run(&["zfs", "mount", "tank/l"]).refused(&format!("cannot mount 'tank/l': {used}"));
    }
    live.run(&["zfs", "set", "readonly=on", "tank/l"])
        .refused(&format!("cannot set property for 'tank/l': {used}"));
    live.run(&["zfs", "set", "atime=off", "tank/l"]).good();
    let busy = format!("cannot unmount '{}': pool or dataset is busy", point.display());
    live.run(&["zfs", "destroy", "tank/l"]).refused(&busy);
    assert_ne!(live.run(&["zpool", "export", "tank"]).status, 0);
    drop(held);
    live.run(&["zfs", "mount", "tank/l"]).good();
    let more = if rustix::process::geteuid().is_root() { "more " } else { "" };
    assert_eq!(fs::read_to_string(point.join("file")).expect("there"), format!("one {more}"));

    // A forced unmount keeps what programs wrote before; their later writes fail.
    let mut held = lazily("two");
    live.run(&["zfs", "unmount", "-f", "tank/l"]).good();
    assert!(held.write_all(b"lost").and_then(|()| held.sync_all()).is_err());
    live.run(&["zfs", "mount", "tank/l"]).good();
    assert_eq!(fs::read_to_string(point.join("file")).expect("there"), format!("one {more}two"));

    // So does an export by force.
    let held = lazily(" three");
    live.run(&["zpool", "export", "-f", "tank"]).good();
    drop(held);
    live.expect_sound();
    live.import().good();
    assert_eq!(fs::read_to_string(point.join("file")).expect("there"), format!("one {more}two three"));
    live.run(&["zpool", "export", "tank"]).good();
}

#[test]
fn canmount_is_set_while_a_file_system_is_in_use() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/b"]).good();
    live.run(&["zfs", "create", "tank/b/below"]).good();
    let held = fs::File::create(live.path("mnt/b/file")).expect("made");
    let state = || (live.get("canmount", "tank/b"), live.get("mounted", "tank/b"));
    for value in ["noauto", "on"] {
        live.run(&["zfs", "set", &format!("canmount={value}"), "tank/b"]).good();
        assert_eq!(state(), (value.to_owned(), "yes".to_owned()));
    }
    let busy = format!("cannot unmount '{}': pool or dataset is busy", live.text("mnt/b"));
    live.run(&["zfs", "set", "canmount=off", "tank/b"]).refused(&busy);
    assert_eq!(state(), ("on".into(), "yes".into()));
    assert_eq!(live.get("mounted", "tank/b/below"), "yes");
    drop(held);
    for (value, mounted) in [("off", "no"), ("on", "no"), ("noauto", "no")] {
        live.run(&["zfs", "set", &format!("canmount={value}"), "tank/b"]).good();
        assert_eq!(state(), (value.to_owned(), mounted.to_owned()));
    }
    live.run(&["zpool", "export", "tank"]).good();
}

#[test]
fn a_mountpoint_that_is_set_is_where_the_file_system_is_mounted() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-p", "tank/m/child/deep"]).good();
    live.run(&["zfs", "create", "-o", &format!("mountpoint={}", live.text("apart")), "tank/m/own"]).good();
    live.run(&["zfs", "create", "-o", "canmount=noauto", "tank/m/byname"]).good();
    let mounted = |names: &[&str]| {
        names.iter().map(|name| live.get("mounted", &format!("tank/{name}"))).collect::<Vec<_>>()
    };
    let all = ["m", "m/child", "m/child/deep", "m/byname", "m/own"];
    let set = |words: &[&str], at: &str| {
        let at = if at.starts_with("mnt") { format!("mountpoint={}", live.text(at)) } else { at.to_owned() };
        let words: Vec<&str> = ["zfs", "set"].iter().chain(words).copied().chain([&*at, "tank/m"]).collect();
        live.run(&words).good();
    };
    live.run(&["zfs", "unmount", &live.text("apart")]).good();
    live.run(&["zfs", "unmount", "tank/m"]).good();
    assert_eq!(mounted(&all), ["no", "no", "no", "no", "no"]);
    set(&["-u"], "mnt/moved");
    assert_eq!(mounted(&all), ["no", "no", "no", "no", "no"], "-u mounts nothing");
    // Datasets that inherit the mount point are moved as well; those mounted by name or with their own mount point are not.
    set(&[], "mnt/moved");
    assert_eq!(mounted(&all), ["yes", "yes", "yes", "no", "no"]);
    assert!(live.mounts().contains(&live.path("mnt/moved/child/deep")));
    live.run(&["zfs", "unmount", "tank/m"]).good();
    live.run(&["zfs", "inherit", "mountpoint", "tank/m"]).good();
    assert_eq!(mounted(&all), ["yes", "yes", "yes", "no", "no"]);
    set(&[], "mountpoint=none");
    assert_eq!(mounted(&all), ["no", "no", "no", "no", "no"]);
    set(&[], "mnt/again");
    assert_eq!(mounted(&all), ["yes", "yes", "yes", "no", "no"]);
    set(&[], "canmount=off");
    live.run(&["zfs", "unmount", "tank/m/child"]).good();
    set(&[], "mnt/off");
    assert_eq!(mounted(&all), ["no", "yes", "yes", "no", "no"]);
    // Renaming does not mount a dataset that was not mounted.
    live.run(&["zfs", "unmount", "tank/m/child"]).good();
    live.run(&["zfs", "rename", "tank/m", "tank/n"]).good();
    assert_eq!(mounted(&["n", "n/child", "n/child/deep"]), ["no", "no", "no"]);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn the_option_rw_counts_more_than_readonly_until_the_next_mount() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/ro"]).good();
    let file = live.path("mnt/ro/file");
    write(&file, b"x");
    fs::remove_file(&file).expect("removed");
    live.run(&["zfs", "set", "readonly=on", "tank/ro"]).good();
    let value = |name: &str| live.run(&["zfs", "get", "-Ho", "value,source", name, "tank/ro"]).good();
    live.run(&["zfs", "unmount", "tank/ro"]).good();
    live.run(&["zfs", "mount", "-o", "rw", "tank/ro"]).good();
    assert_eq!(value("readonly"), "off\ttemporary\n");
    write(&file, b"written all the same");
    // Setting the property takes precedence, except while programs have files open for writing.
    let held = fs::File::options().append(true).open(&file).expect("open");
    live.run(&["zfs", "set", "readonly=on", "tank/ro"])
        .refused("cannot set property for 'tank/ro': pool or dataset is busy");
    assert_eq!(value("readonly"), "off\ttemporary\n");
    drop(held);
    live.run(&["zfs", "set", "readonly=on", "tank/ro"]).good();
    assert_eq!(value("readonly"), "on\tlocal\n");
    assert_eq!(fs::write(&file, b"x").expect_err("read-only").kind(), ErrorKind::ReadOnlyFilesystem);
    if rustix::process::geteuid().is_root() {
        live.run(&["zfs", "mount", "-o", "remount,rw", "tank/ro"]).good();
        assert_eq!(value("readonly"), "off\ttemporary\n");
        write(&file, b"and again");
        live.run(&["zfs", "mount", "-o", "remount,ro", "tank/ro"]).good();
        assert_eq!(value("readonly"), "on\tlocal\n");
        assert!(fs::write(&file, b"x").is_err());
    }
    live.run(&["zfs", "unmount", "tank/ro"]).good();
    live.run(&["zfs", "mount", "tank/ro"]).good();
    assert_eq!(value("readonly"), "on\tlocal\n");
    assert!(fs::write(&file, b"x").is_err());
    // Without extended attributes.
    live.run(&["zfs", "set", "readonly=off", "tank/ro"]).good();
    live.run(&["zfs", "unmount", "tank/ro"]).good();
    live.run(&["zfs", "mount", "-o", "noxattr", "tank/ro"]).good();
    assert_eq!(value("xattr"), "off\ttemporary\n");
    live.run(&["zfs", "set", "xattr=sa", "tank/ro"]).good();
    assert_eq!(value("xattr"), "sa\tlocal\n");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
    // A pool that is opened for reading only is not written.
    let image = live.text("tank.img");
    live.run(&["zpool", "import", "-o", "readonly=on", "-o", "rw", "-d", &image, "tank"]).good();
    assert!(fs::write(&file, b"x").is_err());
    live.run(&["zpool", "export", "tank"]).good();
}

#[test]
fn pools_that_lie_in_each_other_are_mounted_and_unmounted_as_a_whole() {
    let Some(live) = Live::with_tank(128) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts inside its own mounts");
        return;
    }
    fs::File::create(live.path("inner.img")).expect("made").set_len(128 << 20).expect("long");
    let inner = [&*live.text("mnt/in/ner"), "inner", &live.text("inner.img")].map(str::to_owned);
    live.run(&["zpool", "create", "-m", &inner[0], &inner[1], &inner[2]]).good();
    live.run(&["zfs", "create", "inner/c"]).good();
    let deep = format!("mountpoint={}", live.text("mnt/in/ner/deep"));
    live.run(&["zfs", "create", "-o", &deep, "tank/deep"]).good();
    live.run(&["zfs", "create", "tank/u"]).good();
    let places = ["mnt", "mnt/in/ner", "mnt/in/ner/c", "mnt/in/ner/deep", "mnt/u"];
    let there = || {
        let mut mounts = live.mounts();
        mounts.sort();
        mounts
    };
    let wanted: Vec<_> = places.iter().map(|place| live.path(place)).collect();
    assert_eq!(there(), wanted);
    for round in 0..2 {
        live.run(&["zfs", "unmount", "-a"]).good();
        assert_eq!(live.mounts(), [] as [std::path::PathBuf; 0], "round {round}");
        live.run(&["zfs", "mount", "-a"]).good();
        assert_eq!(there(), wanted, "round {round}");
        for dataset in ["tank/deep", "inner/c"] {
            assert_eq!(live.get("mounted", dataset), "yes");
        }
        write(&live.path("mnt/in/ner/deep/file"), b"seen");
    }
    // A dataset mounted by name stays, and so does the mount that it lies in.
    live.run(&["zfs", "create", "-o", "canmount=noauto", "tank/byname"]).good();
    live.run(&["zfs", "mount", "tank/byname"]).good();
    let busy = format!("cannot unmount '{}': pool or dataset is busy", live.text("mnt"));
    live.run(&["zfs", "unmount", "-a"]).refused(&busy);
    assert_eq!(there(), [live.path("mnt"), live.path("mnt/byname")]);
    live.run(&["zfs", "unmount", "tank/byname"]).good();
    live.run(&["zfs", "mount", "-a"]).good();
    assert_eq!(there(), wanted);
    let named = live.run(&["zfs", "unmount", "-a", "tank/u"]);
    assert!(named.status == 2 && named.err.starts_with("too many arguments\n"), "{named:?}");
    live.run(&["zpool", "export", "inner"])
        .refused(&format!("cannot unmount '{}': pool or dataset is busy", inner[0]));
    live.run(&["zfs", "unmount", "tank/deep"]).good();
    live.run(&["zpool", "export", "inner"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// Runs the helper that mount(8) runs for `mount -t zfs`, under this name.
fn helper(live: &Live, name: &str, words: &[&str]) -> bed::Done {
    live.command(words).arg0(name).output().expect("it starts").into()
}

#[test]
fn a_snapshot_is_mounted_by_mount_8_where_it_is_told() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-o", "snapdir=visible", "tank/u"]).good();
    write(&live.path("mnt/u/file"), b"one");
    live.run(&["zfs", "snapshot", "tank/u@s"]).good();
    write(&live.path("mnt/u/file"), b"two");
    let (at, other) = (live.path("at"), live.path("other"));
    fs::create_dir(&at).expect("made");
    fs::create_dir(&other).expect("made");
    let (to, elsewhere) = (live.text("at"), live.text("other"));
    let mount = |words: &[&str]| helper(&live, "mount.zfs", words);
    mount(&["tank/u@s", &to, "-o", "rw,noexec"]).good();
    assert_eq!(fs::read(at.join("file")).expect("there"), b"one");
    assert_eq!(fs::read(live.path("mnt/u/file")).expect("there"), b"two");
    assert_eq!(
        fs::write(at.join("file"), b"x").expect_err("read-only").kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    let names: Vec<_> =
        fs::read_dir(&at).expect("listed").map(|entry| entry.expect("read").file_name()).collect();
    assert_eq!(names, ["file"]);
    assert!(!at.join(".zfs").exists());
    let table = fs::read_to_string("/proc/self/mounts").expect("there");
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&to)).expect("listed");
    assert!(line.starts_with("tank/u@s ") && line.contains(" fuse.zfs ro,"), "{line}");
    assert_eq!((live.get("mounted", "tank/u"), live.get("mounted", "tank/u@s")), ("yes".into(), "-".into()));
    assert!(!live.run(&["zfs", "mount"]).good().contains("@"));

    let twice = mount(&["tank/u@s", &elsewhere]);
    assert_eq!((twice.status, twice.err.as_str()), (128, "filesystem 'tank/u@s' is already mounted\n"));
    let by_zfs = mount(&["-o", "zfsutil", "tank/u@s", &elsewhere]);
    assert!(by_zfs.status == 1 && by_zfs.err.contains("cannot be mounted using 'zfs mount'"), "{by_zfs:?}");
    let none = mount(&["tank/u@none", &elsewhere]);
    assert_eq!(none.err, "filesystem 'tank/u@none' cannot be mounted, unable to open the dataset\n");
    let rw = mount(&["-o", "remount,rw", "tank/u@s", &to]);
    assert_eq!(
        (rw.status, rw.err.as_str()),
        (32, "filesystem 'tank/u@s' can not be mounted: Read-only file system\n")
    );
    live.run(&["zfs", "mount", "tank/u@s"])
        .refused("cannot open 'tank/u@s': snapshot delimiter '@' is not expected here");

    // It stays where it is, whatever becomes of its names; it is not destroyed.
    live.run(&["zfs", "destroy", "tank/u@s"]).refused("cannot destroy snapshot tank/u@s: dataset is busy");
    live.run(&["zfs", "rename", "tank/u@s", "tank/u@r"]).good();
    live.run(&["zfs", "rename", "tank/u", "tank/v"]).good();
    assert_eq!(fs::read(at.join("file")).expect("there"), b"one");
    assert_eq!(mount(&["tank/v@r", &elsewhere]).status, 128);
    live.run(&["zfs", "set", "readonly=on", "tank"]).good();
    live.run(&["zfs", "set", "readonly=off", "tank"]).good();
    live.run(&["zfs", "unmount", "-a"]).good();
    assert_eq!(live.mounts(), [at.as_path()]);
    live.run(&["zfs", "mount", "-a"]).good();
    umount(&[], &at);
    live.run(&["zfs", "destroy", "tank/v@r"]).good();
    // An export takes it down.
    live.run(&["zfs", "snapshot", "tank/v@t"]).good();
    mount(&["tank/v@t", &to]).good();
    live.run(&["zpool", "export", "tank"]).good();
    assert_eq!(live.mounts(), [] as [std::path::PathBuf; 0]);
    live.expect_sound();
}

#[test]
fn mount_fuse_remounts_by_the_name_of_the_program() {
    let Some(live) = Live::with_tank(128) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root remounts");
        return;
    }
    live.run(&["zfs", "create", "tank/r"]).good();
    let at = live.text("mnt/r");
    let shown = "rw,relatime,remount,ro,user_id=0,group_id=0,default_permissions,allow_other";
    helper(&live, "zfs", &["tank/r", &at, "-o", shown]).good();
    assert!(fs::write(live.path("mnt/r/x"), b"x").is_err());
    helper(&live, "zfs", &["tank/r", &at, "-o", "remount,rw"]).good();
    write(&live.path("mnt/r/x"), b"x");
    live.run(&["zpool", "export", "tank"]).good();
}

#[test]
fn acltype_takes_effect_on_what_is_mounted() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-p", "tank/acl/below"]).good();
    let (file, below) = (live.path("mnt/acl/file"), live.path("mnt/acl/below/file"));
    write(&file, b"x");
    write(&below, b"x");
    // user::rw-, user:1000:rw-, group::r--, mask::rw-, other::r--
    let entries = [
        (0x01u16, 6u16, u32::MAX),
        (0x02, 6, 1000),
        (0x04, 4, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, mode, id) in entries {
        acl.extend(tag.to_le_bytes().into_iter().chain(mode.to_le_bytes()).chain(id.to_le_bytes()));
    }
    let set = |path: &Path| xattr::set(path, "system.posix_acl_access", &acl);
    assert!(set(&file).is_err());
    live.run(&["zfs", "set", "acltype=posix", "tank/acl"]).good();
    set(&file).expect("it has ACLs now");
    set(&below).expect("so has what inherits it");
    assert_eq!(xattr::get(&file, "system.posix_acl_access").expect("read").as_deref(), Some(&*acl));
    assert_eq!(live.get("mounted", "tank/acl/below"), "yes");
    // A mount in use stays as it is until it is mounted again, and the command says so.
    let held = fs::File::open(&below).expect("open");
    let stays = |name: &str| {
        format!("cenote: the property is set, but '{name}' stays mounted as it was: pool or dataset is busy")
    };
    live.run(&["zfs", "set", "acltype=off", "tank/acl"]).refused(&stays("tank/acl"));
    assert_eq!(live.get("acltype", "tank/acl"), "off");
    drop(held);
    live.run(&["zfs", "inherit", "acltype", "tank/acl"]).good();
    assert!(set(&file).is_err() && set(&below).is_err());
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn mounting_all_fails_where_the_device_of_fuse_is_missing() {
    let Some(live) = Live::with_tank(128) else { return };
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can take the device away");
    }
    live.signal("-TERM");
    // A device that nothing serves, in a namespace of its own; it keeps no mounts of other tests.
    let script = "grep ' fuse' /proc/self/mounts | cut -d ' ' -f 2 | xargs -r umount -l 2>/dev/null; \
        mknod \"$0\" c 240 4095 && mount --bind \"$0\" /dev/fuse && exec \"$@\"";
    for words in [&["zfs", "mount", "-a"][..], &["zfs", "mount", "tank"]] {
        let plain = live.command(words);
        let mut hidden = Command::new("unshare");
        let node = live.path(&format!("no-fuse-{}", words.len() + words[2].len()));
        hidden.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(node);
        bed::in_place_of(&plain, hidden.arg(plain.get_program()).args(plain.get_args()));
        let done = bed::Done::from(hidden.output().expect("it starts"));
        assert!(done.status == 1 && done.err.contains("/dev/fuse"), "{words:?}: {done:?}");
        assert_eq!(done.err.matches("modprobe fuse").count(), 1, "it is said once: {done:?}");
    }
    live.run(&["zfs", "mount", "-a"]).good();
    assert_eq!(live.get("mounted", "tank"), "yes");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

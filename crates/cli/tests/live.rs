//! Live pools: a server for each, mounted, through the program that was built.
//!
//! As root these tests mount with the real FUSE; where `/dev/fuse` cannot be opened they say so and end.

mod bed;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use bed::Done;
use bed::live::{Live, write};
use bed::person::Person;

#[test]
fn data_written_through_a_mount_survives_export_and_import() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "-o", "compression=zstd", "tank/fs"]).good();
    let file = live.path("mnt/fs/text");
    write(&file, &b"the same line again and again\n".repeat(100_000));
    live.run(&["zpool", "sync", "tank"]).good();
    let ratio: f64 = live.get("compressratio", "tank/fs").parse().expect("a number");
    assert!(ratio > 5.0, "{ratio}");
    assert_eq!(live.get("mounted", "tank/fs"), "yes");
    let list = live.run(&["zfs", "mount"]).good();
    assert!(list.contains(&format!("tank/fs                         {}", live.text("mnt/fs"))), "{list}");
    let status = live.run(&["zpool", "status", "tank"]).good();
    assert!(status.contains("state: ONLINE"), "{status}");
    // Without the mount it is the same file.
    let copy = live.run(&["cat", "tank/fs:/text"]).good();
    assert_eq!(copy.len(), 3_000_000);

    live.run(&["zpool", "export", "tank"]).good();
    assert!(live.mounts().is_empty() && !live.path("mnt/fs").exists());
    live.expect_sound();
    live.import().good();
    assert_eq!(fs::read(&file).expect("there").len(), 3_000_000);
    let history = live.run(&["zpool", "history", "tank"]).good();
    for line in ["zfs create -o compression=zstd tank/fs", "zpool export tank"] {
        assert!(history.contains(line), "{history}");
    }
}

#[test]
fn a_pool_in_use_is_neither_exported_nor_destroyed_unless_forced() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/a"]).good();
    let file = live.path("mnt/a/open");
    write(&file, b"x");
    let held = fs::File::open(&file).expect("open");
    let busy = format!("cannot unmount '{}': pool or dataset is busy", live.text("mnt/a"));
    live.run(&["zpool", "export", "tank"]).refused(&busy);
    live.run(&["zpool", "destroy", "tank"]).refused(&busy);
    live.run(&["zfs", "unmount", "tank/a"]).refused(&busy);
    live.run(&["zfs", "destroy", "tank/a"]).refused(&busy);
    live.run(&["zfs", "set", &format!("mountpoint={}", live.text("other")), "tank/a"]).refused(&busy);
    assert_eq!(live.mounts().len(), 2);
    write(&live.path("mnt/a/more"), b"still alive");
    live.run(&["zpool", "export", "-f", "tank"]).good();
    drop(held);
    live.expect_sound();
    live.import().good();
    assert_eq!(fs::read(live.path("mnt/a/more")).expect("there"), b"still alive");
    live.run(&["zpool", "destroy", "tank"]).good();
    // A pool that another test has mounted as another user is reported after it.
    let err = live.run(&["zfs", "list"]).err;
    assert!(err.starts_with("no datasets available\n"), "{err}");
    assert!(live.mounts().is_empty());
}

#[test]
fn mounts_follow_the_properties() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "-p", "tank/a/b"]).good();
    write(&live.path("mnt/a/b/file"), b"x");
    let set = |assignment: &str, dataset: &str| live.run(&["zfs", "set", assignment, dataset]).good();
    set(&format!("mountpoint={}", live.text("other")), "tank/a");
    assert_eq!(fs::read(live.path("other/b/file")).expect("moved"), b"x");
    assert!(!live.path("mnt/a").exists());
    live.run(&["zfs", "inherit", "mountpoint", "tank/a"]).good();
    assert_eq!(fs::read(live.path("mnt/a/b/file")).expect("moved back"), b"x");
    live.run(&["zfs", "rename", "tank/a", "tank/c"]).good();
    assert_eq!(fs::read(live.path("mnt/c/b/file")).expect("renamed"), b"x");
    assert_eq!(live.get("mounted", "tank/c/b"), "yes");

    set("readonly=on", "tank/c");
    let refused = fs::File::create(live.path("mnt/c/b/new")).expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    set("readonly=off", "tank/c");
    write(&live.path("mnt/c/b/new"), b"y");

    set("canmount=off", "tank/c/b");
    assert_eq!((live.get("mounted", "tank/c/b"), live.get("mounted", "tank/c")), ("no".into(), "yes".into()));
    live.run(&["zfs", "mount", "tank/c/b"])
        .refused("cannot mount 'tank/c/b': 'canmount' property is set to 'off'");
    set("canmount=on", "tank/c/b");
    assert_eq!(live.get("mounted", "tank/c/b"), "no", "canmount=on mounts nothing by itself");
    live.run(&["zfs", "mount", "tank/c/b"]).good();
    assert_eq!(fs::read(live.path("mnt/c/b/new")).expect("there"), b"y");

    set("mountpoint=legacy", "tank/c/b");
    let done = live.run(&["zfs", "mount", "tank/c/b"]);
    assert_eq!(
        done.err,
        "cannot mount 'tank/c/b': legacy mountpoint\nuse mount(8) to mount this filesystem\n"
    );
    set("mountpoint=none", "tank/c/b");
    live.run(&["zfs", "mount", "tank/c/b"]).refused("cannot mount 'tank/c/b': no mountpoint set");
    live.run(&["zfs", "inherit", "mountpoint", "tank/c/b"]).good();
    live.run(&["zfs", "mount", "tank/c/b"]).refused("cannot mount 'tank/c/b': filesystem already mounted");

    live.run(&["zfs", "unmount", &live.text("mnt/c")]).good();
    assert_eq!(live.mounts().len(), 1);
    live.run(&["zfs", "unmount", "tank/c"]).refused("cannot unmount 'tank/c': not currently mounted");
    live.run(&["zfs", "mount", "-a"]).good();
    assert_eq!(live.mounts().len(), 3);
    let listed = live.run(&["zfs", "list", "-Ho", "name", &live.text("mnt/c/b")]).good();
    assert_eq!(listed, "tank/c/b\n");
    live.run(&["zfs", "destroy", "-r", "tank/c"]).good();
    assert!(!live.path("mnt/c").exists());
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_mount_shows_what_a_rollback_brings_back() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/a"]).good();
    // No program has synced the file; the snapshot contains it nevertheless.
    fs::write(live.path("mnt/a/file"), b"then").expect("written");
    live.run(&["zfs", "snapshot", "tank/a@then"]).good();
    write(&live.path("mnt/a/file"), b"now, and longer");
    live.run(&["zfs", "rollback", "tank/a@then"]).good();
    assert_eq!(fs::read(live.path("mnt/a/file")).expect("there"), b"then");
    // This also works when another file system is mounted within it; that one is mounted again.
    live.run(&["zfs", "create", "tank/a/inner"]).good();
    write(&live.path("mnt/a/inner/own"), b"kept");
    write(&live.path("mnt/a/file"), b"now again");
    live.run(&["zfs", "rollback", "tank/a@then"]).good();
    assert_eq!(fs::read(live.path("mnt/a/file")).expect("there"), b"then");
    assert_eq!(fs::read(live.path("mnt/a/inner/own")).expect("there"), b"kept");
    live.run(&["zfs", "clone", "tank/a@then", "tank/b"]).good();
    assert_eq!(fs::read(live.path("mnt/b/file")).expect("cloned"), b"then");
    // When the command is refused, it has destroyed nothing. Open files are no reason (`live_in_use`).
    live.run(&["zfs", "snapshot", "tank/a@newer"]).good();
    assert_eq!(live.run(&["zfs", "rollback", "tank/a@then"]).status, 1);
    live.run(&["zfs", "list", "tank/a@newer"]).good();
    live.run(&["zfs", "rollback", "-r", "tank/a@then"]).good();
    assert_eq!(live.run(&["zfs", "list", "tank/a@newer"]).status, 1);
    live.run(&["zfs", "destroy", "-R", "tank/a"]).good();
    assert!(!live.path("mnt/a").exists() && !live.path("mnt/b").exists());
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// The shell's `one | other`, each by the program that was built; both have to succeed.
fn pipe(live: &Live, one: &[&str], other: &[&str]) -> Done {
    let mut sender = live.command(one).stdout(Stdio::piped()).spawn().expect("it starts");
    let stream = sender.stdout.take().expect("piped");
    let done: Done = live.command(other).stdin(stream).output().expect("it starts").into();
    assert!(sender.wait().expect("it ends").success() || done.status != 0);
    done
}

#[test]
fn promoting_a_mounted_clone_notifies_its_mounts() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "create", "tank/a"]).good();
    fs::create_dir(live.path("mnt/a/d1")).expect("made");
    for name in ["kept", "changed", "gone"] {
        write(&live.path("mnt/a").join(name), name.as_bytes());
    }
    live.run(&["zfs", "snapshot", "tank/a@s"]).good();
    live.run(&["zfs", "bookmark", "tank/a@s", "#m"]).good();
    live.run(&["zfs", "clone", "tank/a@s", "tank/b"]).good();
    write(&live.path("mnt/b/changed"), b"in the clone");
    live.run(&["zfs", "promote", "tank/b"]).good();
    live.run(&["zfs", "promote", "tank/b"]).refused("cannot promote 'tank/b': not a cloned filesystem");
    assert_eq!(live.get("origin", "tank/a"), "tank/b@s");
    assert_eq!(live.run(&["zfs", "list", "-Ht", "bookmark", "-o", "name"]).good(), "tank/b#m\n");
    // Both go on as they are.
    assert_eq!(fs::read(live.path("mnt/a/changed")).expect("there"), b"changed");
    write(&live.path("mnt/a/changed"), b"in the old one");
    assert_eq!(fs::read(live.path("mnt/b/changed")).expect("there"), b"in the clone");

    fs::rename(live.path("mnt/b/d1"), live.path("mnt/b/d 2")).expect("renamed");
    fs::remove_file(live.path("mnt/b/gone")).expect("removed");
    fs::hard_link(live.path("mnt/b/kept"), live.path("mnt/b/kept too")).expect("linked");
    std::os::unix::fs::symlink("kept", live.path("mnt/b/link")).expect("linked");
    let root = live.text("mnt/b");
    let diff = |words: &[&str]| -> Vec<String> {
        let told = live.run(&[&["zfs", "diff"], words].concat()).good();
        let mut lines: Vec<String> = told.lines().map(|line| line.replace(&root, "")).collect();
        lines.sort();
        lines
    };
    let now = diff(&["-F", "tank/b@s"]);
    let wanted = [
        "+\t@\t/link",
        "-\tF\t/gone",
        "M\t/\t/",
        "M\tF\t/changed",
        "M\tF\t/kept\t(+1)",
        "R\t/\t/d1 -> /d\\00402",
    ];
    assert_eq!(now, wanted);
    live.run(&["zfs", "snapshot", "tank/b@t"]).good();
    assert_eq!(diff(&["-F", "tank/b@s", "@t"]), wanted);
    assert_eq!(diff(&["-Hh", "tank/b@s", "tank/b@t"]).last().expect("a line"), "R\t/d1\t/d 2");
    assert!(diff(&["tank/b@t", "tank/b"]).is_empty());
    live.run(&["zfs", "diff", "tank/b@t", "tank/b@s"]).refused("Unable to obtain diffs: ");
    live.run(&["zfs", "unmount", "tank/b"]).good();
    assert_eq!(diff(&["-F", "tank/b@s"]), wanted);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_mounted_file_system_is_received_into() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/a"]).good();
    write(&live.path("mnt/a/file"), &vec![7; 3 << 20]);
    live.run(&["zfs", "snapshot", "tank/a@1"]).good();
    write(&live.path("mnt/a/file"), b"short");
    live.run(&["zfs", "snapshot", "tank/a@2"]).good();
    pipe(&live, &["zfs", "send", "tank/a@1"], &["zfs", "receive", "tank/b"]).good();
    assert_eq!(fs::metadata(live.path("mnt/b/file")).expect("mounted").len(), 3 << 20);
    pipe(&live, &["zfs", "send", "-i@1", "tank/a@2"], &["zfs", "receive", "tank/b"]).good();
    assert_eq!(fs::read(live.path("mnt/b/file")).expect("there"), b"short");
    write(&live.path("mnt/b/mine"), b"changed");
    live.run(&["zfs", "snapshot", "tank/b@mine"]).good();
    write(&live.path("mnt/a/more"), b"more");
    live.run(&["zfs", "snapshot", "tank/a@3"]).good();
    let send = ["zfs", "send", "-i@2", "tank/a@3"];
    let refused = pipe(&live, &send, &["zfs", "receive", "tank/b"]);
    refused.refused("cannot receive incremental stream: destination tank/b has been modified");
    assert!(live.path("mnt/b/mine").exists());
    // An open file is no reason to refuse it (`live_in_use`).
    pipe(&live, &send, &["zfs", "receive", "-F", "tank/b"]).good();
    assert!(!live.path("mnt/b/mine").exists() && live.path("mnt/b/more").exists());
    // A stream that is cut, and the rest of it.
    let whole = live.command(&["zfs", "send", "tank/a@1"]).output().expect("it starts").stdout;
    fs::write(live.path("part"), &whole[..whole.len() / 2]).expect("written");
    let part = fs::File::open(live.path("part")).expect("there");
    let cut: Done =
        live.command(&["zfs", "receive", "-s", "tank/c"]).stdin(part).output().expect("it starts").into();
    let token = live.get("receive_resume_token", "tank/c");
    assert_eq!(cut.err.lines().last(), Some(format!("    zfs send -t {token}").as_str()), "{cut:?}");
    cut.refused("cannot receive new filesystem stream: checksum mismatch or incomplete stream.");
    let into = live.run(&["cp", &live.path("part").to_string_lossy(), "tank/c:/"]);
    into.refused("cannot write 'tank/c': it holds part of a stream; receive the rest first");
    // The partial dataset is still there after an export. It is mounted only when it is complete.
    live.run(&["zpool", "export", "tank"]).good();
    live.import().good();
    assert_eq!(live.get("receive_resume_token", "tank/c"), token);
    assert!(!live.path("mnt/c/file").exists());
    pipe(&live, &["zfs", "send", "-t", &token], &["zfs", "receive", "-s", "tank/c"]).good();
    assert_eq!(fs::metadata(live.path("mnt/c/file")).expect("mounted").len(), 3 << 20);
    assert_eq!(live.get("receive_resume_token", "tank/c"), "-");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_copy_of_an_image_that_is_served_is_looked_at_for_itself() {
    let Some(live) = Live::with_tank(128) else { return };
    write(&live.path("mnt/file"), b"as it was copied");
    live.run(&["zpool", "sync", "tank"]).good();
    fs::copy(live.path("tank.img"), live.path("copy.img")).expect("copied");
    for round in 0..20u8 {
        write(&live.path("mnt/file"), &vec![round; 500_000]);
        live.run(&["zpool", "sync", "tank"]).good();
    }
    let copy = live.text("copy.img");
    let checked = live.run(&["check", &copy]);
    assert!(checked.status == 0, "{checked:?}");
    assert_eq!(live.run(&["-d", &copy, "cat", "tank:/file"]).good(), "as it was copied");
    assert_eq!(fs::read(live.path("mnt/file")).expect("served"), vec![19; 500_000]);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn import_without_mounting_mounts_later() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zpool", "export", "tank"]).good();
    live.run(&["zpool", "import", "-N", "-d", &live.text("tank.img"), "tank"]).good();
    assert!(live.mounts().is_empty());
    live.run(&["zfs", "create", "-u", "tank/quiet"]).good();
    assert!(live.mounts().is_empty());
    live.run(&["zfs", "mount", "-a"]).good();
    assert_eq!(live.mounts().len(), 2);
    live.run(&["zfs", "unmount", "tank/quiet"]).good();
    live.run(&["zfs", "mount", "-o", "ro", "tank/quiet"]).good();
    assert!(fs::File::create(live.path("mnt/quiet/f")).is_err());
    live.run(&["zfs", "mount", "-o", "bogus", "tank"]).refused("cannot mount 'tank': Invalid argument");
}

/// For a user without root rights the mount is made below the runtime directory, and a line says so.
#[test]
fn an_ordinary_user_has_pools_of_their_own() {
    let Some(live) = Live::new() else { return };
    let Some(person) = Person::new(&live) else { return };
    let home = &person.home;
    let user = |words: &[&str]| person.run(words);
    let made = user(&["zpool", "create", "mine", &person.image(128)]);
    let place = home.join("cenote/mnt/mine");
    person.with_pool(&live, &made, || {
        assert_eq!(made.status, 0, "{made:?}");
        let line = format!(
            "cenote: 'mine' is mounted on '{}': '/mine' does not exist, and you may not make it in '/'\n",
            place.display()
        );
        assert_eq!(made.err, line);
        // Only its owner may enter the mount.
        let said = user(&["zfs", "mount"]).good();
        assert!(said.contains(&place.display().to_string()), "{said}");
        let own = home.join("mnt").display().to_string();
        user(&["zfs", "set", &format!("mountpoint={own}"), "mine"]).good();
        let said = user(&["zfs", "mount"]).good();
        assert!(said.contains(&own) && !said.contains(&place.display().to_string()), "{said}");
        assert!(person.can(&["cp", "/etc/os-release", &own]));
        let read = user(&["cat", "mine:/os-release"]).good();
        assert_eq!(read.as_bytes(), fs::read("/etc/os-release").expect("there"));

        inner_file_systems_are_shown(&person, &own);
        a_mount_with_other_options_is_linked(&person, &own);
        options_are_changed(&person, &own);
        times_are_kept(&person, &own);
        a_stored_link_is_removed(&person, &own);
    });
}

/// A property of their inner file system, and where it comes from.
fn inner_value(person: &Person, property: &str) -> String {
    person.run(&["zfs", "get", "-Ho", "value,source", property, "mine/src"]).good()
}

/// fusermount3 may not enter a mount of the user. The file systems that belong into it are shown there all the same.
fn inner_file_systems_are_shown(person: &Person, own: &str) {
    for dataset in ["mine/src", "mine/src/deep"] {
        let made = person.run(&["zfs", "create", dataset]);
        let seen = format!("{own}{}", dataset.strip_prefix("mine").expect("below it"));
        assert_eq!((made.status, made.err.as_str()), (0, ""));
        assert!(person.can(&["cp", "/etc/os-release", &format!("{seen}/copy")]));
        let read = person.run(&["cat", &format!("{dataset}:/copy")]).good();
        assert_eq!(read.as_bytes(), fs::read("/etc/os-release").expect("there"));
    }
}

/// A file system that needs other options than the mount around it has a mount of its own, and a link leads there. The
/// link is shown and stored nowhere: snapshots have the folder, and no command removes it meanwhile.
fn a_mount_with_other_options_is_linked(person: &Person, own: &str) {
    person.run(&["zfs", "set", "exec=off", "mine/src"]).good();
    assert_eq!(inner_value(person, "exec"), "off\tlocal\n");
    let listed = person.does(&["ls", "-l", own]).good();
    assert!(listed.lines().any(|line| line.starts_with('l') && line.contains("src -> ")), "{listed}");
    assert!(person.can(&["test", "-e", &format!("{own}/src/deep/copy")]));
    person.run(&["zfs", "snapshot", "mine@now"]).good();
    let stored = person.run(&["ls", "--json", "mine@now:/"]).good();
    assert!(stored.contains("src") && !stored.contains("within"), "{stored}");
    for line in ["mv src moved", "rm src", "mv os-release src"] {
        let done = person.sh(own, line);
        // A file that is moved onto a link to a folder is moved into that folder.
        assert!(done.err.contains("busy") || done.status == 0, "{done:?}");
    }
    assert!(person.can(&["test", "-h", &format!("{own}/src")]));
    assert!(person.can(&["mv", &format!("{own}/src/os-release"), own]));
}

/// Options that the kernel enforces change, too, by a new mount; but not while a file is open.
fn options_are_changed(person: &Person, own: &str) {
    let table = fs::read_to_string("/proc/self/mounts").expect("there");
    let line = table.lines().find(|line| line.starts_with("mine/src /"));
    assert!(line.is_some_and(|line| line.contains("noexec")), "{table}");
    person.run(&["zfs", "mount", "-o", "remount,ro", "mine/src"]).good();
    assert_eq!(inner_value(person, "readonly"), "on\ttemporary\n");
    assert!(!person.can(&["cp", "/etc/os-release", &format!("{own}/src/more")]));
    person.run(&["zfs", "mount", "-o", "remount,rw", "mine/src"]).good();
    let held = format!("exec 3>>{own}/src/copy; \"$0\" zfs set readonly=on mine/src; echo more >&3");
    let done = person.does(&["sh", "-c", &held, &person.program.display().to_string()]);
    assert_eq!(done.err, "cannot set property for 'mine/src': pool or dataset is busy\n");
    assert_eq!(inner_value(person, "readonly"), "off\tdefault\n");
    assert!(person.run(&["cat", "mine/src:/copy"]).good().ends_with("more\n"));
}

/// The kernel writes times back as root, but the mount belongs to another user. A mount that is made anew shows all again.
fn times_are_kept(person: &Person, own: &str) {
    let late = "touch \"$1/late\"; sleep 1.1; exec 3>>\"$1/late\"; echo more >&3; sync -f \"$1/late\"; stat -c %Y \"$1/late\"";
    let written = person.does(&["sh", "-c", late, "sh", own]).good();
    person.run(&["zfs", "unmount", "mine"]).good();
    person.run(&["zfs", "mount", "-a"]);
    assert_eq!(person.does(&["stat", "-c", "%Y", &format!("{own}/late")]).good(), written);
    person.run(&["zfs", "set", "exec=off", "mine"]).good();
    assert!(person.can(&["test", "-e", &format!("{own}/src/deep/copy")]));
}

/// Once the inner file system is unmounted, the folder is shown as a folder and can be renamed. A link that an earlier version
/// stored there is removed, and a line says so.
fn a_stored_link_is_removed(person: &Person, own: &str) {
    person.run(&["zfs", "unmount", "mine/src"]).good();
    assert!(
        person.can(&["test", "-d", &format!("{own}/src")])
            && !person.can(&["test", "-h", &format!("{own}/src")])
    );
    assert!(person.can(&["rmdir", &format!("{own}/src")]));
    let old = "/nowhere/cenote/within/mine%src";
    assert!(person.can(&["ln", "-s", old, &format!("{own}/src")]));
    let said = person.run(&["zfs", "mount", "mine/src"]).err;
    let line = format!(
        "cenote: '{own}/src' held a symbolic link to '{old}', which an earlier version of cenote left there: removed"
    );
    assert_eq!(said.lines().next(), Some(line.as_str()), "{said}");
    assert!(person.can(&["test", "-e", &format!("{own}/src/copy")]));
    person.run(&["zfs", "mount", "mine/src/deep"]);
}

/// The lines under "Have a pool of your own", as they stand there.
#[test]
fn the_five_commands_of_the_readme_work_for_an_ordinary_user() {
    let Some(live) = Live::new() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let readme = fs::read_to_string(bed::root().join("README.md")).expect("there");
    let (_, lines) = readme.split_once("**Have a pool of your own**").expect("it has them");
    let lines = lines
        .lines()
        .skip_while(|line| !line.starts_with("    "))
        .take_while(|line| line.starts_with("    "));
    // Under another name: tests that run beside this one expect no pool 'tank' of another user.
    let lines: Vec<String> = lines.map(|line| line.trim().replace("tank", "fivelines")).collect();
    assert_eq!(lines.len(), 5);
    let home = live.path("home");
    fs::create_dir_all(home.join("src/below")).expect("made");
    fs::write(home.join("src/below/text"), "a line\n".repeat(100_000)).expect("written");
    let give = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("given away");
    ["", "src", "src/below", "src/below/text"].iter().for_each(|name| give(&home.join(name)));
    fs::set_permissions(live.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    fs::create_dir(live.path("bin")).expect("made");
    bed::copy_program(&live.path("bin/cenote"));
    let run = |script: &str| -> Done {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
        command.current_dir(&home).stdin(Stdio::null()).env("HOME", &home).env("XDG_RUNTIME_DIR", &home);
        let path = format!("{}:{}", live.text("bin"), std::env::var("PATH").expect("set"));
        command.env("PATH", path).env_remove("CENOTE_RUN_DIR").env_remove("CENOTE_SERVER");
        command.env_remove("CENOTE_STATE_DIR").env_remove("XDG_STATE_HOME");
        command.output().expect("it starts").into()
    };
    let done = run(&format!("set -e\n{}", lines.join("\n")));
    let found = run("cenote cat fivelines/src:/src/below/text | wc -c");
    let exported = run("cenote zpool export fivelines");
    if bed::person::helper_refuses(&done) {
        return;
    }
    assert_eq!(done.status, 0, "{done:?}");
    let ratio = done.out.lines().last().and_then(|line| line.split_whitespace().nth(2)).expect("a value");
    assert!(ratio.trim_end_matches('x').parse::<f64>().expect("a number") > 5.0, "{done:?}");
    assert_eq!(found.good().trim(), "700000");
    exported.good();
    // The link existed only for the mount; the pool stores a folder.
    let list = run("cenote -d disk.img ls --json fivelines:/").good();
    assert!(list.contains("\"dir\"") && !list.contains("within"), "{list}");
}

#[test]
fn a_server_reports_its_gzip_engine_and_can_change_it() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "set", "compression=gzip-6", "tank"]).good();
    let word = |name: &str| -> String {
        let out = live.run(&["engines", "--json", "tank"]).good();
        let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        all.pointer(name).expect("there").to_string()
    };
    assert_eq!((word("/gzip_engine"), word("/gzip_records/libdeflate")), ("\"property\"".into(), "0".into()));
    let text: String = (0..200_000u64).map(|i| format!("{i} {}\n", i * i % 9973)).collect();
    fs::write(live.path("mnt/text"), &text).expect("written");
    live.run(&["zpool", "sync", "tank"]).good();
    let before = word("/gzip_records/libdeflate");
    assert_ne!(before, "0");
    live.run(&["tune", "tank", "gzip_engine=isal"]).good();
    assert_eq!(word("/gzip_engine"), "\"isal\"");
    fs::write(live.path("mnt/more"), &text).expect("written");
    live.run(&["zpool", "sync", "tank"]).good();
    // Where igzip is not in the build, libdeflate is used instead.
    assert_eq!(word("/gzip_records/isal") != "0", word("/gzip_records/libdeflate") == before);
    assert_eq!(fs::read_to_string(live.path("mnt/more")).expect("read"), text);
    live.run(&["zpool", "export", "tank"]).good();
    live.bed.expect_sound("tank");
}

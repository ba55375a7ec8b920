//! `.zfs` of mounted file systems, while commands make, rename, destroy and promote the snapshots that it shows.

mod bed;

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::Command;

use bed::live::{Live, write};

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| error.kind().to_string())
}

const GONE: &str = "entity not found";

#[test]
fn the_folder_follows_its_property_and_the_snapshots() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/zd"]).good();
    let top = live.path("mnt/zd");
    let list = top.join(".zfs/snapshot");
    write(&top.join("f"), b"one");
    live.run(&["zfs", "snapshot", "tank/zd@a"]).good();
    write(&top.join("f"), b"two");
    live.run(&["zfs", "snapshot", "tank/zd@b"]).good();
    write(&top.join("f"), b"three");
    assert_eq!((names(&top), names(&list)), (vec!["f".into()], vec!["a".into(), "b".into()]));
    assert_eq!((read(&list.join("a/f")), read(&list.join("b/f"))), ("one".into(), "two".into()));
    // Another file system below it has a folder of its own.
    live.run(&["zfs", "create", "tank/zd/below"]).good();
    assert_eq!(names(&top.join("below/.zfs/snapshot")), [""; 0]);
    for (value, shown, there) in
        [("visible", true, true), ("disabled", false, false), ("hidden", false, true)]
    {
        live.run(&["zfs", "set", &format!("snapdir={value}"), "tank/zd"]).good();
        assert_eq!(names(&top).contains(&".zfs".to_owned()), shown, "{value}");
        assert_eq!(list.exists(), there, "{value}");
        assert_eq!(top.join("below/.zfs").exists(), there, "inherited {value}");
    }
    live.run(&["zfs", "rename", "tank/zd@a", "c"]).good();
    assert_eq!(names(&list), ["b", "c"]);
    assert_eq!((read(&list.join("a/f")), read(&list.join("c/f"))), (GONE.into(), "one".into()));
    live.run(&["zfs", "destroy", "tank/zd@b"]).good();
    assert_eq!((names(&list), read(&list.join("b/f"))), (vec!["c".into()], GONE.into()));
    // A mount, wherever it is.
    live.run(&["zfs", "unmount", "tank/zd"]).good();
    live.run(&["zfs", "mount", "tank/zd"]).good();
    assert_eq!(read(&list.join("c/f")), "one");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_snapshot_that_is_being_read_is_not_destroyed() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/held"]).good();
    let top = live.path("mnt/held");
    let list = top.join(".zfs/snapshot");
    write(&top.join("f"), b"one");
    live.run(&["zfs", "snapshot", "tank/held@a"]).good();
    live.run(&["zfs", "snapshot", "tank/held@b"]).good();
    let mut open = File::open(list.join("a/f")).expect("there");
    assert_eq!(read(&list.join("b/f")), "one");
    live.run(&["zfs", "destroy", "tank/held@a"])
        .refused("cannot destroy snapshot tank/held@a: dataset is busy");
    live.run(&["zfs", "unmount", "tank/held"])
        .refused(&format!("cannot unmount '{}': pool or dataset is busy", top.display()));
    let mut text = String::new();
    open.read_to_string(&mut text).expect("it is still there");
    assert_eq!(text, "one");
    drop(open);
    live.run(&["zfs", "destroy", "tank/held@a"]).good();
    // Rolls back to a snapshot with newer ones that were opened.
    write(&top.join("f"), b"two");
    live.run(&["zfs", "snapshot", "tank/held@c"]).good();
    assert_eq!(read(&list.join("c/f")), "two");
    live.run(&["zfs", "rollback", "-r", "tank/held@b"]).good();
    assert_eq!((read(&top.join("f")), names(&list)), ("one".into(), vec!["b".into()]));
    // A snapshot with deferred destruction is destroyed when its hold is released, although it was opened.
    live.run(&["zfs", "hold", "keep", "tank/held@b"]).good();
    live.run(&["zfs", "destroy", "-d", "tank/held@b"]).good();
    assert_eq!(read(&list.join("b/f")), "one");
    live.run(&["zfs", "release", "keep", "tank/held@b"]).good();
    assert_eq!(names(&list), [""; 0]);
    // All of a file system, with what was looked at.
    live.run(&["zfs", "snapshot", "tank/held@d"]).good();
    assert_eq!(read(&list.join("d/f")), "one");
    live.run(&["zfs", "destroy", "-r", "tank/held"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn snapshots_that_move_to_a_clone_are_shown_there() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/from"]).good();
    write(&live.path("mnt/from/f"), b"one");
    live.run(&["zfs", "snapshot", "tank/from@s"]).good();
    live.run(&["zfs", "clone", "tank/from@s", "tank/to"]).good();
    let [from, to] = ["from", "to"].map(|name| live.path(&format!("mnt/{name}/.zfs/snapshot")));
    assert_eq!(read(&from.join("s/f")), "one");
    live.run(&["zfs", "promote", "tank/to"]).good();
    assert_eq!((names(&from), names(&to)), (vec![], vec!["s".into()]));
    assert_eq!((read(&from.join("s/f")), read(&to.join("s/f"))), (GONE.into(), "one".into()));
    // Destroying the last clone destroys the snapshot with deferred destruction.
    live.run(&["zfs", "destroy", "-d", "tank/to@s"]).good();
    assert_eq!(read(&to.join("s/f")), "one");
    live.run(&["zfs", "destroy", "tank/from"]).good();
    assert_eq!(names(&to), [""; 0]);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_snapshot_that_was_in_use_while_it_moved_to_a_clone_is_free_afterwards() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/was"]).good();
    fs::create_dir(live.path("mnt/was/d")).expect("made");
    write(&live.path("mnt/was/d/f"), b"one");
    for leaf in ["a", "b"] {
        live.run(&["zfs", "snapshot", &format!("tank/was@{leaf}")]).good();
    }
    live.run(&["zfs", "clone", "tank/was@b", "tank/is"]).good();
    let [was, is] = ["was", "is"].map(|name| live.path(&format!("mnt/{name}/.zfs/snapshot")));
    let mut held = File::open(was.join("a/d/f")).expect("there");
    live.run(&["zfs", "promote", "tank/is"]).good();
    assert_eq!((names(&was), read(&is.join("a/d/f"))), (vec![], "one".into()));
    live.run(&["zfs", "destroy", "tank/is@a"]).refused("cannot destroy snapshot tank/is@a: dataset is busy");
    let mut text = String::new();
    held.read_to_string(&mut text).expect("it is still there");
    assert_eq!((text.as_str(), read(&was.join("a/d/f"))), ("one", GONE.into()));
    drop(held);
    write(&live.path("mnt/was/d/f"), b"two");
    // A new snapshot with the same name shows its own contents.
    live.run(&["zfs", "snapshot", "tank/was@a"]).good();
    assert_eq!(read(&was.join("a/d/f")), "two");
    live.run(&["zfs", "destroy", "tank/is@a"]).good();
    assert_eq!((names(&was), names(&is)), (vec!["a".into()], vec!["b".into()]));
    assert_eq!(read(&was.join("a/d/f")), "two");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_tree_is_copied_out_of_a_snapshot() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/out"]).good();
    let top = live.path("mnt/out");
    let script = "mkdir -p a/b && for i in $(seq 200); do echo $i > a/b/$i; done && ln a/b/1 a/one && ln -s b a/link && \
                  cp -a a /dev/shm/$$ && trap 'rm -r /dev/shm/$$' EXIT && $CENOTE zfs snapshot tank/out@s && rm -r a && \
                  diff -r --no-dereference .zfs/snapshot/s/a /dev/shm/$$ && cp -a .zfs/snapshot/s/a a && \
                  diff -r --no-dereference a /dev/shm/$$ && stat -c %h a/one && find .zfs -xdev | wc -l";
    let words = live.command(&["version"]);
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).current_dir(&top).env("CENOTE", words.get_program());
    shell.envs(words.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = bed::Done::from(shell.output().expect("bash"));
    assert_eq!(done.good(), "2\n208\n");
    let refused = fs::create_dir(top.join(".zfs/snapshot/new")).expect_err("not by default");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

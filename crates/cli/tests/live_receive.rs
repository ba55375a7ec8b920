//! Receiving into mounted file systems, and renaming mounted datasets.

mod bed;

use std::fs;
use std::process::Stdio;

use bed::Done;
use bed::live::{Live, write};

impl Live {
    fn zfs(&self, line: &str) -> String {
        let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
        self.run(&words).good()
    }

    fn send(&self, words: &[&str], file: &str) {
        let out = fs::File::create(self.path(file)).expect("made");
        let line = [&["zfs", "send"][..], words].concat();
        let done: Done = self.command(&line).stdout(Stdio::from(out)).output().expect("it starts").into();
        done.good();
    }

    fn receive(&self, file: &str, words: &[&str]) -> Done {
        let stream = fs::File::open(self.path(file)).expect("there");
        let line = [&["zfs", "receive"][..], words].concat();
        self.command(&line).stdin(stream).output().expect("it starts").into()
    }
}

#[test]
fn increments_of_a_mounted_tree_fit_one_after_the_other() {
    let Some(live) = Live::with_tank(128) else { return };
    live.zfs("create tank/w");
    live.zfs("create tank/w/k");
    live.zfs("create tank/w/k/deep");
    live.zfs("snapshot -r tank/w@1");
    live.send(&["-R", "tank/w@1"], "s");
    live.receive("s", &["tank/copy"]).good();
    for step in 2..=4 {
        write(&live.path(&format!("mnt/w/k/{step}")), b"in the child");
        live.zfs(&format!("snapshot -r tank/w@{step}"));
        live.send(&["-R", "-i", &format!("@{}", step - 1), &format!("tank/w@{step}")], "s");
        live.receive("s", &["tank/copy"]).good();
        // Not read: that would change the time of the last access.
        let copied = fs::metadata(live.path(&format!("mnt/copy/k/{step}"))).expect("mounted");
        assert_eq!(copied.len(), 12);
        assert_eq!(live.get("written", "tank/copy"), "0", "after {step}");
    }
    // A rollback of a child changes nothing in the file system in which it is mounted.
    write(&live.path("mnt/copy/k/own"), b"given up");
    live.zfs("rollback tank/copy/k@4");
    assert!(!live.path("mnt/copy/k/own").exists() && live.path("mnt/copy/k/4").exists());
    assert_eq!(live.get("written", "tank/copy"), "0");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_dataset_in_use_is_not_replaced_without_force() {
    let Some(live) = Live::with_tank(64) else { return };
    live.zfs("create tank/w");
    write(&live.path("mnt/w/file"), b"one");
    live.zfs("snapshot tank/w@1");
    live.send(&["tank/w@1"], "full");
    live.receive("full", &["tank/copy"]).good();
    write(&live.path("mnt/w/file"), b"two");
    live.zfs("snapshot tank/w@2");
    // A full stream replaces all: OpenZFS unmounts for it, too.
    live.zfs("destroy tank/copy@1");
    live.send(&["tank/w@2"], "next");
    let held = fs::File::open(live.path("mnt/copy/file")).expect("there");
    let refused = live.receive("next", &["-F", "tank/copy"]);
    let lines: Vec<&str> = refused.err.lines().collect();
    let point = format!("cannot unmount '{}': pool or dataset is busy", live.text("mnt/copy"));
    assert_eq!(
        lines,
        [
            "cannot receive new filesystem stream: pool or dataset is busy",
            &point,
            "use '-M' to unmount it by force"
        ],
        "{refused:?}"
    );
    assert_eq!(fs::read(live.path("mnt/copy/file")).expect("there"), b"one");
    live.receive("next", &["-F", "-M", "tank/copy"]).good();
    drop(held);
    assert_eq!(fs::read(live.path("mnt/copy/file")).expect("there"), b"two");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_mount_has_the_new_name_of_its_dataset() {
    let Some(live) = Live::with_tank(64) else { return };
    live.zfs("create tank/old");
    write(&live.path("mnt/old/file"), b"text");
    live.zfs("create tank/old/below");
    let held = fs::File::open(live.path("mnt/old/file")).expect("there");
    live.zfs("rename -u tank/old tank/new");
    assert_eq!((live.get("mounted", "tank/new"), live.get("mounted", "tank/new/below")), {
        let yes = "yes".to_owned();
        (yes.clone(), yes)
    });
    let mounts = live.zfs("mount");
    let line = |name: &str, place: &str| format!("{name:<30}  {}\n", live.text(place));
    assert!(mounts.contains(&line("tank/new", "mnt/old")), "{mounts}");
    assert!(mounts.contains(&line("tank/new/below", "mnt/old/below")), "{mounts}");
    assert!(!mounts.contains("tank/old"), "{mounts}");
    // By its place it is found, too.
    let place = live.text("mnt/old");
    assert_eq!(live.zfs(&format!("list -Ho name {place}")), "tank/new\n");
    assert!(live.zfs(&format!("userspace -Ho name,used {place}")).starts_with("root\t"));
    drop(held);
    live.zfs(&format!("unmount {place}/below"));
    live.zfs("unmount tank/new");
    assert_eq!(live.get("mounted", "tank/new"), "no");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

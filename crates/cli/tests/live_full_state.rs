//! The file system of the state folder or of the log is full: no command stops halfway, and the server continues.

mod bed;

use std::fs;
use std::io::Write;
use std::process::Command;

use bed::live::{Live, write};

const SIZE: u64 = 64 << 20;

/// A folder that holds a file of the rest of its few KiB; `None` where nothing can be mounted.
struct Tight {
    folder: std::path::PathBuf,
}

impl Tight {
    fn new(live: &Live, name: &str) -> Option<Tight> {
        let folder = live.path(name);
        fs::create_dir_all(&folder).expect("made");
        let words = ["-t", "tmpfs", "-o", "size=32k,mode=700", "tmpfs"];
        let mounted =
            Command::new("mount").args(words).arg(&folder).status().expect("mount starts").success();
        if !mounted {
            eprintln!("skipped: no tmpfs can be mounted");
        }
        mounted.then_some(Tight { folder })
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.folder.join("other")).expect("made");
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.folder.join("other")).expect("removed");
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

fn image(live: &Live) -> String {
    let image = live.text("tank.img");
    fs::File::create(&image).expect("made").set_len(SIZE).expect("long");
    image
}

/// Checks that there is no pool, imported or not.
fn expect_no_pool(live: &Live, image: &str) {
    assert_eq!(live.run(&["zpool", "list", "-H"]).out, "");
    let found = live.run(&["zpool", "import", "-d", image]);
    assert!(!found.out.contains("tank"), "{found:?}");
    assert!(!live.path("mnt").exists() || fs::read_dir(live.path("mnt")).expect("readable").next().is_none());
}

#[test]
fn a_pool_is_not_made_where_the_state_folder_has_no_room() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (image(&live), live.text("mnt"));
    let Some(tight) = Tight::new(&live, "state") else { return };
    tight.fill();
    let create = ["zpool", "create", "-m", &point, "tank", &image];
    let refused = live.run(&create);
    assert!(refused.status == 1 && refused.err.contains("No space left on device"), "{refused:?}");
    expect_no_pool(&live, &image);
    tight.make_room();
    live.run(&create).good();
    live.run(&["zpool", "export", "-f", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_pool_is_not_made_where_its_server_cannot_keep_a_log() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (image(&live), live.text("mnt"));
    fs::create_dir_all(live.path("state")).expect("made");
    fs::write(live.path("state/log"), "no folder").expect("written");
    let create = ["zpool", "create", "-m", &point, "tank", &image];
    let refused = live.run(&create);
    assert!(refused.status == 1 && refused.err.contains("state/log"), "{refused:?}");
    expect_no_pool(&live, &image);
    fs::remove_file(live.path("state/log")).expect("removed");
    live.run(&create).good();
    live.run(&["zpool", "export", "-f", "tank"]).good();
}

#[test]
fn a_server_with_a_full_log_continues_and_reports_it() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (image(&live), live.text("mnt"));
    let Some(tight) = Tight::new(&live, "state/log") else { return };
    live.run(&["zpool", "create", "-m", &point, "tank", &image]).good();
    let before = live.run(&["zpool", "status", "tank"]);
    assert!(before.err.is_empty(), "{before:?}");
    tight.fill();
    let log = tight.folder.join("tank.log");
    for number in 0..200 {
        live.run(&["zfs", "create", &format!("tank/fs{number}")]).good();
        if live.run(&["zpool", "status", "tank"]).err.contains("lines are missing in the log") {
            break;
        }
        assert!(number < 199, "nothing is said");
    }
    write(&live.path("mnt/file"), b"written");
    live.run(&["zpool", "sync", "tank"]).good();
    let said = live.run(&["zpool", "status", "tank"]);
    assert!(said.status == 0 && said.err.contains("No space left on device"), "{said:?}");
    tight.make_room();
    live.run(&["zfs", "create", "tank/last"]).good();
    let text = fs::read_to_string(log).expect("readable");
    assert!(text.contains(" missing here)"), "{text}");
    let said = live.run(&["zpool", "status", "tank"]);
    assert!(said.err.is_empty(), "{said:?}");
    live.run(&["zpool", "export", "-f", "tank"]).good();
    live.expect_sound();
}

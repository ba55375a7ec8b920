//! A pool whose device answers EIO for a while. The device is an image in the file system of another pool, which has no room
//! left and `failmode=continue`: its mount answers writes with EIO.

mod bed;

use std::fs;
use std::process::{Command, Stdio};

use bed::live::{Live, noise, write};
use bed::wait_until;

struct Failing {
    live: Live,
    below: Live,
}

impl Failing {
    fn new() -> Option<Failing> {
        let (live, below) = (Live::new()?, Live::new()?);
        fs::create_dir(below.path("small")).expect("made");
        let failing = Failing { live, below };
        if !failing.mount(&["-t", "tmpfs", "-o", "size=60m", "tmpfs"]) {
            eprintln!("skipped: no tmpfs can be mounted");
            return None;
        }
        let below = &failing.below;
        let (image, point) = (below.text("small/tank.img"), below.text("mnt"));
        fs::File::create(&image).expect("made").set_len(400 << 20).expect("long");
        let create = ["zpool", "create", "-o", "failmode=continue", "-O", "compression=off", "-m", &point];
        below.run(&[&create[..], &["tank", &image]].concat()).good();
        let image = below.path("mnt/upper.img");
        fs::File::create(&image).expect("made").set_len(256 << 20).expect("long");
        let (image, point) = (image.display().to_string(), failing.live.text("mnt"));
        failing.live.run(&["zpool", "create", "-m", &point, "upper", &image]).good();
        Some(failing)
    }

    fn mount(&self, words: &[&str]) -> bool {
        let point = self.below.path("small");
        Command::new("mount").args(words).arg(point).status().expect("mount starts").success()
    }

    fn health(&self) -> String {
        self.live.run(&["zpool", "list", "-Ho", "health", "upper"]).good().trim().to_owned()
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let _ = self.live.run(&["zpool", "export", "-f", "upper"]);
        let _ = self.below.run(&["zpool", "export", "-f", "tank"]);
        let _ = Command::new("umount").arg("-l").arg(self.below.path("small")).status();
    }
}

#[test]
fn a_device_that_answers_eio_suspends_the_pool_until_it_comes_back() {
    let Some(failing) = Failing::new() else { return };
    let run = |words: &[&str]| failing.live.run(words);
    write(&failing.live.path("mnt/safe"), &noise(300_000));
    run(&["zpool", "sync", "upper"]).good();
    fs::write(failing.live.path("source"), noise(80 << 20)).expect("written");
    let (from, to) = (failing.live.text("source"), failing.live.text("mnt/big"));
    let words = [format!("if={from}"), format!("of={to}"), "bs=1M".into(), "conv=fsync".into()];
    let mut dd = Command::new("dd").args(words).stderr(Stdio::null()).spawn().expect("dd starts");
    wait_until("it is not suspended", || failing.health() == "SUSPENDED");
    let status = run(&["zpool", "status", "upper"]).good();
    assert!(status.contains("Input/output error") && status.contains("msg/ZFS-8000-HC"), "{status}");
    let device = status.lines().find(|line| line.contains("upper.img  ")).expect("the device has a line");
    let counts: Vec<&str> = device.split_whitespace().skip(2).collect();
    assert!(counts.len() == 3 && counts[0] == "0" && counts[1] != "0" && counts[2] == "0", "{status}");
    assert!(run(&["zpool", "events", "-H"]).good().contains("\tereport.fs.zfs.io_failure\n"));
    assert_eq!(dd.try_wait().expect("it runs"), None, "nothing is acknowledged");
    assert_eq!(fs::read(failing.live.path("mnt/safe")).expect("readable"), noise(300_000));

    assert!(failing.mount(&["-o", "remount,size=900m"]));
    failing.below.run(&["zpool", "clear", "tank"]).good();
    run(&["zpool", "clear", "upper"]).good();
    assert!(dd.wait().expect("it ends").success());
    assert_eq!(failing.health(), "ONLINE");
    assert!(fs::read(&from).expect("readable") == fs::read(&to).expect("readable"));
    run(&["zpool", "export", "upper"]).good();
    let checked = run(&["check", &failing.below.text("mnt/upper.img")]);
    assert!(checked.status == 0 && checked.out.contains(": clean"), "{checked:?}");
}

//! A pool whose server was killed: commands tell, and start it again.

mod bed;

use std::fs;
use std::process::Command;
use std::time::Duration;

use bed::live::{Live, write};

#[test]
fn a_killed_server_is_told_of_and_started_again_by_the_next_change() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (live.text("fallen.img"), live.text("mnt"));
    fs::File::create(&image).expect("made").set_len(96 << 20).expect("long");
    live.run(&["zpool", "create", "-m", &point, "fallen", &image]).good();
    write(&live.path("mnt/file"), b"durable");
    assert_eq!(live.run(&["zpool", "status", "-x"]).good(), "all pools are healthy\n");
    // Without its server a command cannot use the pool, and says who has it.
    let held = live.bed.run(&["zfs", "create", "fallen/never"]).err;
    let pid = held.split("process ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it is named");
    assert!(Command::new("kill").args(["-KILL", pid]).status().expect("kill starts").success());
    while live.bed.run(&["zpool", "status", "fallen"]).out.contains("Another process uses the pool") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = live.run(&["zpool", "status", "-x"]).good();
    assert!(status.contains("The process that served the pool ended without exporting it"), "{status}");
    let created = live.run(&["zfs", "create", "fallen/fs"]);
    let said = "cenote: the server of 'fallen' had ended without exporting the pool; it was started again\n";
    assert!(created.status == 0 && created.err == said, "{created:?}");
    assert!(live.mounts().contains(&live.path("mnt/fs")), "it is mounted");
    assert_eq!(fs::read(live.path("mnt/file")).expect("readable"), b"durable");
    assert_eq!(live.run(&["zpool", "status", "-x"]).good(), "all pools are healthy\n");
}

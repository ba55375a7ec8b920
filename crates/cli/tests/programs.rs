//! Real programs on live pools: the short form of `tests/mount`, which is run as a whole before a release.

use std::path::Path;
use std::process::Command;

/// Stories that take some seconds each.
const STORIES: [&str; 4] = ["sqlite", "rsync", "tar", "writers"];

#[test]
#[ignore = "takes 90 s: part of the release check, as tests/mount is"]
fn programs_find_on_a_mount_what_they_left_there() {
    let may_mount =
        cfg!(feature = "mount") && rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !may_mount {
        let required = std::env::var("CENOTE_ORACLE").is_ok_and(|value| value == "required");
        assert!(!required, "only root can run these stories, with /dev/fuse, and CENOTE_ORACLE=required");
        eprintln!("skipped: needs root and /dev/fuse");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mount");
    let told = Command::new(script)
        .args(STORIES)
        .env("CENOTE", env!("CARGO_BIN_EXE_cenote"))
        .env("QUICK", "1")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{out}\n{err}");
}

//! OpenZFS as the judge of the pools that stories leave.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::process::Command;

use sim::Story;
use storage::host::{Access, FileDisk};

/// Ends the story and lets zdb check its disks; does nothing where zdb is not installed.
#[track_caller]
pub fn expect_pleased(story: &mut Story) {
    // Only a newer zdb knows features that 2.1 does not have.
    let options: &[&str] = if story.machine().features.is_empty() { &[] } else { &["--newer"] };
    story.export();
    let folder = tempfile::tempdir().unwrap();
    let mut images = story.write_images(folder.path()).unwrap();
    // A device that left the pool has no labels any more.
    images.retain(|path| {
        let disk = FileDisk::open(path, Access::Peek).unwrap();
        pool::labels::read(&disk).pool_configs().next().is_some()
    });
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let Ok(out) = Command::new(oracle).args(options).arg("tank").args(images).output() else { return };
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // 2: zdb is not installed here.
    assert!(out.status.success() || out.status.code() == Some(2), "seed {}: {said}", story.seed());
}

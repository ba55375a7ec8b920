//! OpenZFS as the judge of the pools that tests leave.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::Command;

/// Lets zdb check the exported pool in one file, or in the files of one folder; does nothing where it is not installed.
#[track_caller]
pub fn expect_pleased(pool: &str, image: &Path) {
    expect_pleased_with(pool, image, &[]);
}

/// As [`expect_pleased`], with these options of `zdb-check`.
#[track_caller]
pub fn expect_pleased_with(pool: &str, image: &Path, options: &[&str]) {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let mut command = Command::new(oracle);
    command.args(options);
    match image.is_dir() {
        true => command.arg("--dir").arg(image).arg(pool),
        false => command.arg(pool).arg(image),
    };
    let Ok(out) = command.output() else { return };
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // 2: zdb is not installed here.
    assert!(out.status.success() || out.status.code() == Some(2), "{said}");
}

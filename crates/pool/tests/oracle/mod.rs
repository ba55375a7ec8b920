//! OpenZFS as the judge of the pools that tests leave.

use std::path::Path;
use std::process::Command;

/// What zdb says of the exported pool in one file, or in the files of one folder; nothing where it is not installed.
#[track_caller]
pub fn expect_pleased(pool: &str, image: &Path) {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let mut command = Command::new(oracle);
    match image.is_dir() {
        true => command.arg("--dir").arg(image).arg(pool),
        false => command.arg(pool).arg(image),
    };
    let Ok(out) = command.output() else { return };
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    // 2: zdb is not installed here.
    assert!(out.status.success() || out.status.code() == Some(2), "{said}");
}

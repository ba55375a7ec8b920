//! Snapshots by a policy, and backups: commands for timers.
//!
//! From:   a policy or a destination, and the datasets.
//! To:     `zfs snapshot`, `destroy`, `hold`, `send` and `receive`, as child processes.

pub(super) mod backup;
mod chain;
mod existing;
pub(super) mod policy;
pub(super) mod snapshots;

pub use backup::Backup;
pub use snapshots::Snapshots;

use jiff::Timestamp;

/// The user property by which these commands know the snapshots that they made. Only a value that was set on the snapshot
/// itself counts, not an inherited or a received one.
const MADE_BY: &str = "cenote:made-by";

/// A name for a snapshot that is made now: `auto-2026-11-25-074012.345Z`. With milliseconds, so that two in one second differ.
fn name_now(prefix: &str) -> String {
    let now = Timestamp::now();
    let millis = now.subsec_millisecond().unsigned_abs();
    format!("{prefix}-{}.{millis:03}Z", now.strftime("%Y-%m-%d-%H%M%S"))
}

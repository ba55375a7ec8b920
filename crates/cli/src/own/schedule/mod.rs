//! Snapshots by a policy, and backups: commands for timers.
//!
//! From:   a policy or a destination, and the datasets.
//! To:     `zfs snapshot`, `destroy`, `hold`, `send` and `receive`, as child processes.

pub(super) mod backup;
mod chain;
mod destination;
mod existing;
pub(super) mod policy;
mod raw;
pub(super) mod snapshots;

pub use backup::Backup;
pub use snapshots::Snapshots;

use jiff::Timestamp;

/// The user property by which these commands know the snapshots that they made. Only a value that was set on the snapshot
/// itself counts, not an inherited or a received one.
const MADE_BY: &str = "cenote:made-by";
/// The user property by which a backup knows the snapshots that it made for one destination, so that one for another
/// destination leaves them alone.
const MADE_FOR: &str = "cenote:made-for";

/// The beginning of the names of snapshots of [`snapshots`].
const AUTO: &str = "auto";
/// The beginning of the names of snapshots of [`backup`].
const BACKUP: &str = "backup";

/// A name for a snapshot that is made now: `auto-2026-11-25-074012.345Z`. With milliseconds, so that two in one second differ.
fn name_now(prefix: &str) -> String {
    let now = Timestamp::now();
    let millis = now.subsec_millisecond().unsigned_abs();
    format!("{prefix}-{}.{millis:03}Z", now.strftime("%Y-%m-%d-%H%M%S"))
}

/// Whether a snapshot has a name that [`name_now`] gives with this prefix. Names tell in a copy, which does not get the property.
fn is_named(name: &str, prefix: &str) -> bool {
    let pattern = b"0000-00-00-000000.000Z";
    let Some(time) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')) else { return false };
    time.len() == pattern.len()
        && time.bytes().zip(pattern).all(|(is, like)| match like {
            b'0' => is.is_ascii_digit(),
            other => is == *other,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_these_commands_give_are_known_and_no_others() {
        assert!(is_named(&name_now(AUTO), AUTO) && is_named(&name_now(BACKUP), BACKUP));
        for name in [
            "",
            "auto",
            "auto-",
            "auto-2026-11-25",
            "auto-2026-11-25-074012.345",
            "backup-2026-11-25-074012.345Z",
            "auto-2026-11-25-074012.345Zx",
            "auto-2026-11-25-07401x.345Z",
            "myauto-2026-11-25-074012.345Z",
        ] {
            assert!(!is_named(name, AUTO), "{name}");
        }
    }
}

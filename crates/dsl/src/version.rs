//! Versions of pools: 1 to 28, and 5000 for those with feature flags.
//!
//! Source: docs/format/01-labels-uberblock.md §11.

use std::ops::RangeInclusive;

use format::config::{PoolConfig, VERSION_FEATURES, VdevKind};

use crate::{Error, NotWritten, Result};

/// The versions before feature flags.
pub const LEGACY: RangeInclusive<u64> = 1..=28;
/// First version with several copies of metadata.
pub const COPIES: u64 = 2;
/// First version whose sums of space leave parity out, and whose dnodes count bytes.
pub const DEFLATED: u64 = 3;
/// First version with hot spares.
pub const SPARES: u64 = 3;
/// First version with a history of commands.
pub const HISTORY: u64 = 4;
/// First version with a start-up file system (`bootfs`).
pub const BOOT: u64 = 6;
/// First version with log devices.
pub const LOGS: u64 = 7;
/// First version with permissions for users.
pub const DELEGATION: u64 = 8;
/// First version that counts exactly the space that only a head refers to.
pub const UNIQUE: u64 = 9;
/// Datasets may have a `refreservation`.
pub const REFRESERVATION: u64 = 9;
/// First version with cache devices.
pub const CACHES: u64 = 10;
/// First version whose datasets all begin with the snapshot `$ORIGIN`, and whose snapshots know their clones.
pub const ORIGIN: u64 = 11;
/// First version with properties of snapshots.
pub const SNAPSHOT_PROPERTIES: u64 = 12;
/// First version that has a breakdown of the used space of a directory.
pub const BREAKDOWN: u64 = 13;
/// First version with three columns of parity.
pub const RAIDZ3: u64 = 17;
/// First version with holds.
pub const HOLDS: u64 = 18;
/// First version in which log devices may leave a hole.
pub const HOLES: u64 = 19;
/// First version with dedup tables.
pub const DEDUP: u64 = 21;
/// First version whose deadlists tell blocks apart by birth, and whose directories know their clones.
pub const DEADLISTS: u64 = 26;
/// First version whose snapshots may be taken while the intent log is in use. Older versions have no intent log here: a
/// caller of `fsync` waits for the txg.
pub const LOGGED_SNAPSHOTS: u64 = 27;

/// Whether there are pools of this version.
#[must_use]
pub fn is_known(version: u64) -> bool {
    LEGACY.contains(&version) || version == VERSION_FEATURES
}

/// Why a pool of this version cannot be written. `is_deflated`: its sums of space exclude parity.
pub fn unwritable(config: &PoolConfig, is_deflated: bool) -> Option<NotWritten> {
    let version = config.version;
    if !is_known(version) {
        return Some(NotWritten::Version(version));
    }
    // Their sums of space count parity, also after an upgrade.
    let has_raidz = config.tree.children.iter().any(|top| matches!(top.kind, VdevKind::Raidz { .. }));
    (!is_deflated && has_raidz).then_some(NotWritten::OldRaidz)
}

/// The newest version of file systems in pools of `version`.
#[must_use]
pub const fn newest_filesystem(version: u64) -> u64 {
    match version {
        ..9 => 2,
        9..15 => 3,
        15..24 => 4,
        _ => 5,
    }
}

/// Oldest version of pools that hold file systems of `version` (1 to 5).
#[must_use]
pub const fn oldest_pool(version: u64) -> u64 {
    match version {
        ..3 => 1,
        3 => 9,
        4 => 15,
        _ => 24,
    }
}

/// Refuses a function that pools of `version` lack, if `version` is older than `needed`.
pub fn check(version: u64, needed: u64) -> Result<()> {
    if version >= needed { Ok(()) } else { Err(Error::OldPool) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_as_new_as_their_pool_allows() {
        let newest: Vec<u64> = [1, 8, 9, 14, 15, 23, 24, 28, 5000].map(newest_filesystem).into();
        assert_eq!(newest, [2, 2, 3, 3, 4, 4, 5, 5, 5]);
        for version in 1..=5 {
            let pool = oldest_pool(version);
            assert!(newest_filesystem(pool) >= version);
            assert!(pool == 1 || newest_filesystem(pool - 1) < version);
        }
    }

    #[test]
    fn numbers_between_28_and_5000_are_no_versions() {
        assert!([1, 13, 28, 5000].into_iter().all(is_known));
        assert!(![0, 29, 4999, 5001].into_iter().any(is_known));
    }
}

//! Versions of pools: 1 to 28, and 5000 for those with feature flags.
//!
//! Source: docs/format/01-labels-uberblock.md §11.

use std::ops::RangeInclusive;

use format::config::VERSION_FEATURES;

use crate::{Error, Result};

/// The versions before feature flags.
pub const LEGACY: RangeInclusive<u64> = 1..=28;
/// Oldest version that this build makes and writes. Pools before 26 keep the blocks of snapshots in lists of another form;
/// those before 27 want the intent log of a file system emptied before each snapshot of it.
const OLDEST_WRITTEN: u64 = 27;

/// Whether there are pools of this version.
#[must_use]
pub fn is_known(version: u64) -> bool {
    LEGACY.contains(&version) || version == VERSION_FEATURES
}

/// Whether this build makes and writes pools of this version.
#[must_use]
pub fn is_written(version: u64) -> bool {
    is_known(version) && version >= OLDEST_WRITTEN
}

/// Refuses versions of which this build makes no pools.
///
/// # Errors
/// [`Error::Unsupported`].
pub fn check_new(version: u64) -> Result<()> {
    match is_written(version) {
        true => Ok(()),
        false => Err(Error::Unsupported(format!(
            "pools of version {version} (versions {OLDEST_WRITTEN}, {} and {VERSION_FEATURES} are)",
            LEGACY.end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_written_is_refused_by_number() {
        for version in [27, 28, 5000] {
            check_new(version).unwrap();
        }
        for version in [0, 1, 3, 26, 29, 4999, 5001] {
            let said = check_new(version).unwrap_err().to_string();
            assert!(said.contains(&format!("pools of version {version} (")), "{said}");
        }
    }
}

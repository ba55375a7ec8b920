//! An earlier state of a pool, found on its devices.
//!
//! From:   `rewind`, which looks for it.
//! To:     [`crate::Options::state`]: an import goes back to it.

use format::Txg;
use format::uberblock::Uberblock;

/// A state of a pool that was read and can be imported.
#[derive(Clone, Debug)]
pub struct FoundState {
    pub(crate) uberblock: Uberblock,
    /// The newest uberblock on any device, even if its state cannot be read. The next txg gets a higher number.
    pub(crate) newest: Txg,
    pub(crate) newest_time: u64,
    /// Number of file blocks that cannot be read in this state.
    pub data_errors: u64,
}

impl FoundState {
    /// Its txg.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.uberblock.txg
    }

    /// When it was written, in seconds since 1970.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.uberblock.timestamp
    }

    /// Whether it is the newest state on the devices.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.txg() == self.newest
    }

    /// Seconds between this state and the newest.
    #[must_use]
    pub const fn seconds_lost(&self) -> u64 {
        self.newest_time.saturating_sub(self.uberblock.timestamp)
    }
}

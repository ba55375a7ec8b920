//! The state of a sequential rebuild, in the ZAP of the top-level vdev whose devices are rebuilt.
//!
//! Source: docs/format/11-redundancy.md §7.

use crate::{Corrupt, Txg};

/// Key in the ZAP of a top-level vdev.
pub const KEY: &[u8] = b"org.openzfs:vdev_rebuild";
/// Words of the state on disk.
pub const WORDS: usize = 12;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebuildState {
    /// There was none since the last resilver.
    #[default]
    None,
    /// Under way.
    Active,
    /// It ended before all was written: no device needs it any more, or a resilver took its place.
    Canceled,
    /// Came to its end.
    Complete,
}

/// The last sequential rebuild of a top-level vdev. Sizes are in bytes, times in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuild {
    /// How far it is.
    pub state: RebuildState,
    /// Everything before this place of the vdev is rebuilt.
    pub last_offset: u64,
    /// No device misses a block that was born up to this txg.
    pub min_txg: Txg,
    /// Every block that is born from this txg on was written to all devices.
    pub max_txg: Txg,
    /// Begin.
    pub start_time: u64,
    /// End, 0 while under way.
    pub end_time: u64,
    /// Milliseconds for which it ran, over all imports.
    pub scan_ms: u64,
    /// Space in use that it came upon.
    pub scanned: u64,
    /// Space of it that was to be rebuilt.
    pub issued: u64,
    /// Written to the devices.
    pub rebuilt: u64,
    /// Space in use on the vdev.
    pub to_scan: u64,
    /// Ranges that could not be read.
    pub errors: u64,
}

impl Rebuild {
    /// Reads the state.
    ///
    /// # Errors
    /// Another number of words, or a state that means nothing.
    pub fn from_words(words: &[u64]) -> Result<Rebuild, Corrupt> {
        let Ok(w) = <&[u64; WORDS]>::try_from(words) else {
            return Err(Corrupt::new("words of the state of a rebuild", words.len() as u64));
        };
        let state = match w[0] {
            0 => RebuildState::None,
            1 => RebuildState::Active,
            2 => RebuildState::Canceled,
            3 => RebuildState::Complete,
            other => return Err(Corrupt::new("state of a rebuild", other)),
        };
        Ok(Rebuild {
            state,
            last_offset: w[1],
            min_txg: Txg(w[2]),
            max_txg: Txg(w[3]),
            start_time: w[4],
            end_time: w[5],
            scan_ms: w[6],
            scanned: w[7],
            issued: w[8],
            rebuilt: w[9],
            to_scan: w[10],
            errors: w[11],
        })
    }

    /// The state as it is on disk.
    #[must_use]
    pub const fn to_words(&self) -> [u64; WORDS] {
        [
            self.state as u64,
            self.last_offset,
            self.min_txg.0,
            self.max_txg.0,
            self.start_time,
            self.end_time,
            self.scan_ms,
            self.scanned,
            self.issued,
            self.rebuilt,
            self.to_scan,
            self.errors,
        ]
    }

    /// Whether it is under way.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == RebuildState::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_rebuild_survives_a_round_trip() {
        let words: [u64; WORDS] = core::array::from_fn(|at| if at == 0 { 3 } else { at as u64 * 1000 });
        let rebuild = Rebuild::from_words(&words).expect("valid");
        assert_eq!((rebuild.state, rebuild.max_txg), (RebuildState::Complete, Txg(3000)));
        assert_eq!(rebuild.to_words(), words);
        assert!(Rebuild::from_words(&words[1..]).is_err(), "a word is missing");
        assert!(Rebuild::from_words(&[4; WORDS]).is_err(), "there is no state 4");
    }
}

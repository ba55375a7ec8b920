//! The state of a scrub or resilver, under `scan` in the object directory.
//!
//! Source: docs/format/06-mos-dsl.md §1.5.

use crate::{Corrupt, ObjectId, Txg};

/// Words of the state on disk.
pub const WORDS: usize = 24;
/// Bit of [`Scan::flags`]: the dataset that is being visited is to be visited once more.
const AGAIN: u64 = 1;
/// Bit of [`Scan::flags`]: paused.
const PAUSED: u64 = 2;
/// Objset of a bookmark that is in no dataset: the next one is to be taken from the queue.
pub const NEXT_IN_QUEUE: ObjectId = ObjectId(u64::MAX);

/// The work of a scan on the pool's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanFunc {
    /// Nothing was ever done.
    None,
    /// Every block's every copy is verified.
    Scrub,
    /// Writes to a device the blocks that it missed.
    Resilver,
    /// Only blocks with known errors are verified.
    ErrorScrub,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanState {
    /// Never begun.
    None,
    /// Under way, or paused.
    Scanning,
    /// Came to its end.
    Finished,
    /// Given up by the administrator.
    Canceled,
    /// An error scrub is under way.
    ErrorScrubbing,
}

/// The last scrub or resilver of a pool. Sizes are in bytes, times in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The kind of the scan.
    pub func: ScanFunc,
    /// How far it is.
    pub state: ScanState,
    /// Datasets still to be visited (a ZAP); 0 for none.
    pub queue: ObjectId,
    /// Blocks born up to here need no visit.
    pub min_txg: Txg,
    /// Blocks born later were written since it began.
    pub max_txg: Txg,
    /// The same for the dataset that is being visited.
    pub current: [u64; 2],
    /// Begin.
    pub start_time: u64,
    /// End, 0 while under way.
    pub end_time: u64,
    /// Allocated at the beginning.
    pub to_examine: u64,
    /// Visited so far, over all copies.
    pub examined: u64,
    /// Found without need of a visit.
    pub skipped: u64,
    /// Repaired, or resilvered.
    pub processed: u64,
    /// Blocks without a good copy.
    pub errors: u64,
    /// Classes of the dedup table to be visited first.
    pub ddt_class_max: u64,
    /// Where in the dedup table it is.
    pub ddt_bookmark: [u64; 4],
    /// Where it is: objset, object, level, block.
    pub bookmark: [u64; 4],
    /// Revisit (1), paused (2).
    pub flags: u64,
}

impl Scan {
    /// A scrub that begins in `txg`.
    #[must_use]
    pub fn begin(queue: ObjectId, txg: Txg, now: u64, allocated: u64) -> Scan {
        Scan {
            func: ScanFunc::Scrub,
            state: ScanState::Scanning,
            queue,
            min_txg: Txg(0),
            max_txg: txg,
            current: [0; 2],
            start_time: now,
            end_time: 0,
            to_examine: allocated,
            examined: 0,
            skipped: 0,
            processed: 0,
            errors: 0,
            ddt_class_max: 0,
            ddt_bookmark: [0; 4],
            bookmark: [0; 4],
            flags: 0,
        }
    }

    /// Reads the state.
    ///
    /// # Errors
    /// Another number of words (25 is a known mistake of old releases), or values that mean nothing.
    pub fn from_words(words: &[u64]) -> Result<Scan, Corrupt> {
        let Ok(w) = <&[u64; WORDS]>::try_from(words) else {
            return Err(Corrupt::new("words of the scan state", words.len() as u64));
        };
        let four = |at: usize| [w[at], w[at + 1], w[at + 2], w[at + 3]];
        Ok(Scan {
            func: match w[0] {
                0 => ScanFunc::None,
                1 => ScanFunc::Scrub,
                2 => ScanFunc::Resilver,
                3 => ScanFunc::ErrorScrub,
                other => return Err(Corrupt::new("scan function", other)),
            },
            state: match w[1] {
                0 => ScanState::None,
                1 => ScanState::Scanning,
                2 => ScanState::Finished,
                3 => ScanState::Canceled,
                4 => ScanState::ErrorScrubbing,
                other => return Err(Corrupt::new("scan state", other)),
            },
            queue: ObjectId(w[2]),
            min_txg: Txg(w[3]),
            max_txg: Txg(w[4]),
            current: [w[5], w[6]],
            start_time: w[7],
            end_time: w[8],
            to_examine: w[9],
            examined: w[10],
            skipped: w[11],
            processed: w[12],
            errors: w[13],
            ddt_class_max: w[14],
            ddt_bookmark: four(15),
            bookmark: four(19),
            flags: w[23],
        })
    }

    /// The state as it is on disk.
    #[must_use]
    pub fn to_words(&self) -> [u64; WORDS] {
        let [d0, d1, d2, d3] = self.ddt_bookmark;
        let [b0, b1, b2, b3] = self.bookmark;
        [
            self.func as u64,
            self.state as u64,
            self.queue.0,
            self.min_txg.0,
            self.max_txg.0,
            self.current[0],
            self.current[1],
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            d0,
            d1,
            d2,
            d3,
            b0,
            b1,
            b2,
            b3,
            self.flags,
        ]
    }

    /// A scrub that is under way, or paused.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        self.func == ScanFunc::Scrub && self.state == ScanState::Scanning
    }

    /// A resilver that is under way.
    #[must_use]
    pub fn is_resilvering(&self) -> bool {
        self.func == ScanFunc::Resilver && self.state == ScanState::Scanning
    }

    /// Whether it waits to be resumed.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.flags & PAUSED != 0
    }

    /// Pauses or resumes.
    pub fn set_paused(&mut self, paused: bool) {
        self.flags = if paused { self.flags | PAUSED } else { self.flags & !PAUSED };
    }

    /// The dataset that is being visited: 0 for the MOS, [`NEXT_IN_QUEUE`] for none.
    #[must_use]
    pub const fn objset(&self) -> ObjectId {
        ObjectId(self.bookmark[0])
    }

    /// Whether the dataset that is being visited is to be visited once more, for what was born after the bounds of this visit.
    #[must_use]
    pub const fn is_again(&self) -> bool {
        self.flags & AGAIN != 0
    }

    /// Sets whether the dataset is visited once more.
    pub const fn set_again(&mut self, again: bool) {
        self.flags = if again { self.flags | AGAIN } else { self.flags & !AGAIN };
    }

    /// The same scrub before its first block.
    #[must_use]
    pub fn restarted(self) -> Scan {
        Scan {
            current: [0; 2],
            examined: 0,
            skipped: 0,
            processed: 0,
            errors: 0,
            ddt_bookmark: [0; 4],
            bookmark: [0; 4],
            flags: self.flags & PAUSED,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_a_round_trip() {
        let mut words: [u64; WORDS] = core::array::from_fn(|i| i as u64 + 100);
        (words[0], words[1], words[23]) = (1, 1, 2);
        let scan = Scan::from_words(&words).expect("good");
        assert_eq!(scan.to_words(), words);
        assert!(scan.is_scrubbing() && scan.is_paused());
        assert_eq!((scan.errors, scan.bookmark[3]), (113, 122));
        let again = scan.restarted();
        assert!(again.is_paused() && again.bookmark == [0; 4] && again.start_time == scan.start_time);
        let mut again = again;
        again.set_again(true);
        assert!(again.is_again() && again.is_paused());
        again.set_again(false);
        assert_eq!(again.flags, PAUSED);
    }

    #[test]
    fn other_states_are_errors() {
        assert!(Scan::from_words(&[0; 25]).is_err());
        assert!(Scan::from_words(&[9; WORDS]).is_err());
    }
}

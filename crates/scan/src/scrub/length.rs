//! The number of blocks that a scan gathers before it reads them in the order of their places.
//!
//! From:   the time that the chunks before took.
//! To:     the visitor, which looks at the blocks of a chunk in the order of their places on the vdevs.
//!
//! With longer chunks the heads of a disk move less, and on slow disks that saves more than the longer chunk costs. But
//! the progress on disk moves only at the end of a chunk, and a chunk whose view becomes too old (after three txgs) is
//! visited again.

use std::time::Duration;

use format::scan::Scan;

/// The first chunk of a scrub: a small pool shows progress, too.
const FIRST: u64 = 8 << 20;
/// Of a resilver, all that a chunk found missing is written with one txg, and held in memory until then.
const RESILVER: u64 = 32 << 20;
/// Of a rebuild, a chunk is copied while a txg is written: what programs confirm waits for it.
const REBUILD: u64 = 64 << 20;
const LONGEST: u64 = 2 << 30;
/// Chunks that are not longer than the last one whose view became too old.
const CAUTIOUS: u32 = 8;
/// After a chunk that took less time, the next chunk is longer; after one that took more than [`LONG`], it is shorter.
const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(10);

/// Bytes of blocks in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) bytes: u64,
    longest: u64,
    /// For so many chunks there is no growth.
    cautious: u32,
}

impl Length {
    pub(super) fn of(scan: &Scan) -> Length {
        match scan.is_resilvering() {
            true => Length { bytes: RESILVER, longest: RESILVER, cautious: 0 },
            false => Length { bytes: FIRST, longest: LONGEST, cautious: 0 },
        }
    }

    /// The first length for a rebuild, which stores its place after each chunk.
    pub(super) const REBUILD: Length = Length { bytes: FIRST, longest: REBUILD, cautious: 0 };

    /// Sets the length of the next chunk, given the time that the last one took.
    pub(super) fn adapt(&mut self, took: Duration) {
        if took > LONG {
            self.halve();
        } else if took < SHORT && self.cautious == 0 {
            self.bytes = (self.bytes * 2).min(self.longest);
        }
        self.cautious = self.cautious.saturating_sub(1);
    }

    /// The view became too old during a chunk.
    pub(super) fn too_late(&mut self) {
        self.halve();
        self.cautious = CAUTIOUS;
    }

    fn halve(&mut self) {
        self.bytes = (self.bytes / 2).max(FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_become_longer_while_they_are_quick_and_shorter_when_they_take_long() {
        let mut length = Length { bytes: FIRST, longest: LONGEST, cautious: 0 };
        length.adapt(Duration::from_secs(1));
        assert_eq!(length.bytes, 2 * FIRST);
        length.adapt(Duration::from_secs(7));
        assert_eq!(length.bytes, 2 * FIRST);
        length.adapt(Duration::from_secs(12));
        length.adapt(Duration::from_secs(12));
        assert_eq!(length.bytes, FIRST, "never less than the first");
        for _ in 0..20 {
            length.adapt(Duration::ZERO);
        }
        assert_eq!(length.bytes, LONGEST);
    }

    #[test]
    fn after_a_chunk_that_was_too_late_the_next_ones_stay_short() {
        let mut length = Length { bytes: 8 * FIRST, longest: LONGEST, cautious: 0 };
        length.too_late();
        for _ in 0..CAUTIOUS {
            assert_eq!(length.bytes, 4 * FIRST);
            length.adapt(Duration::ZERO);
        }
        length.adapt(Duration::ZERO);
        assert_eq!(length.bytes, 8 * FIRST);
    }

    #[test]
    fn chunks_of_a_resilver_stay_within_what_one_txg_writes() {
        let mut length = Length { bytes: RESILVER, longest: RESILVER, cautious: 0 };
        length.adapt(Duration::ZERO);
        assert_eq!(length.bytes, RESILVER);
    }
}

//! The blocks that a hole frees, and the blocks that it zeroes in part.

use std::ops::Range;

/// A hole in an object: whole blocks to free, and parts of blocks to zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    /// Blocks that go as a whole.
    pub(crate) whole: Range<u64>,
    /// Byte ranges of blocks to zero; two at most.
    pub(crate) cuts: Vec<(u64, Range<usize>)>,
}

/// The hole from byte `offset` to `end` of an object with blocks of `block` bytes. `is_last`: all bytes after `end` are
/// zero, so the last block can be freed as a whole.
pub(crate) fn hole(block: u64, offset: u64, end: u64, is_last: bool) -> Hole {
    let whole_end = if is_last { end.div_ceil(block) } else { end / block };
    let whole_start = offset.div_ceil(block);
    let mut cuts = Vec::new();
    let within = |from: u64, to: u64| from as usize..to as usize;
    if whole_start > whole_end {
        cuts.push((offset / block, within(offset % block, end % block)));
    } else {
        if !offset.is_multiple_of(block) {
            cuts.push((offset / block, within(offset % block, block)));
        }
        if whole_end * block < end {
            cuts.push((whole_end, within(0, end % block)));
        }
    }
    Hole { whole: whole_start..whole_end, cuts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_freed_and_the_ends_are_zeroed() {
        assert_eq!(hole(8, 8, 24, false), Hole { whole: 1..3, cuts: vec![] });
        assert_eq!(hole(8, 5, 27, false), Hole { whole: 1..3, cuts: vec![(0, 5..8), (3, 0..3)] });
        assert_eq!(hole(8, 5, 27, true), Hole { whole: 1..4, cuts: vec![(0, 5..8)] });
        assert_eq!(hole(8, 9, 15, false).cuts, vec![(1, 1..7)]);
        assert_eq!(hole(8, 5, 8, false), Hole { whole: 1..1, cuts: vec![(0, 5..8)] });
    }
}

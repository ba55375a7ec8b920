//! Places in the order of a ZAP's entries, and the cookies that name them across calls.
//!
//! The order is (hash, cd), the same for micro and fat ZAPs, so a cookie survives growth, splits, the
//! upgrade to a fat ZAP, and unrelated inserts and removals.
//!
//! Source: docs/format/04-zap.md §6.1.

use super::hash;

/// The cookie of the end.
pub const END: u64 = u64::MAX;

/// A place in the iteration order: entries at or after it have not been seen yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Truncated hash.
    pub hash: u64,
    /// Collision differentiator.
    pub cd: u32,
}

/// Number of differentiators a hash may have: the smallest cd that is *not* allowed.
#[must_use]
pub const fn max_cd(hash_bits: u32) -> u32 {
    if hash_bits == hash::BITS { u32::MAX } else { u16::MAX as u32 }
}

impl Position {
    /// Before the first entry.
    pub const START: Position = Position { hash: 0, cd: 0 };

    /// The place just after the entry at (`hash`, `cd`).
    #[must_use]
    pub const fn after(hash: u64, cd: u32) -> Position {
        Position { hash, cd: cd.saturating_add(1) }
    }

    /// The first place of the leaf that follows the one with this prefix; `None` after the last leaf.
    #[must_use]
    pub const fn after_leaf(prefix: u64, prefix_len: u32) -> Option<Position> {
        let last = if prefix_len == 0 { 0 } else { u64::MAX >> (64 - prefix_len) };
        if prefix >= last {
            return None;
        }
        Some(Position { hash: (prefix + 1) << (64 - prefix_len), cd: 0 })
    }

    /// The cookie of this place; `hash_bits` is that of the ZAP (28 for a micro ZAP).
    #[must_use]
    pub const fn to_cookie(self, hash_bits: u32) -> u64 {
        self.hash >> (64 - hash_bits) | (self.cd as u64) << hash_bits
    }

    /// The place that a cookie means; `None` for [`END`]. Every other number means a place.
    #[must_use]
    pub const fn from_cookie(cookie: u64, hash_bits: u32) -> Option<Position> {
        if cookie == END {
            return None;
        }
        let cd = cookie >> hash_bits;
        let cd = if cd >= max_cd(hash_bits) as u64 { 0 } else { cd as u32 };
        Some(Position { hash: cookie << (64 - hash_bits), cd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_survives_its_cookie(hash: u64, cd in 0u32..65535, long: bool) {
            let bits = if long { hash::BITS_LONG } else { hash::BITS };
            let place = Position { hash: hash::truncate(hash, bits), cd };
            prop_assume!(place.to_cookie(bits) != END);
            prop_assert_eq!(Position::from_cookie(place.to_cookie(bits), bits), Some(place));
        }
    }

    #[test]
    fn the_last_leaf_has_no_successor() {
        assert_eq!(Position::after_leaf(0, 0), None);
        assert_eq!(Position::after_leaf(1, 1), None);
        assert_eq!(Position::after_leaf(0, 1), Some(Position { hash: 1 << 63, cd: 0 }));
        assert_eq!(Position::after_leaf(u64::MAX, 3), None);
    }

    #[test]
    fn the_end_is_no_place() {
        assert_eq!(Position::from_cookie(END, hash::BITS), None);
    }
}

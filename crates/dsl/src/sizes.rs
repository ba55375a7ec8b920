//! The sizes that blocks are charged with.
//!
//! Source: docs/format/06-mos-dsl.md §8.

use std::ops::{Add, AddAssign, Neg, Sub};

use format::blkptr::BlockPtr;
use storage::Vdevs;

/// The three sizes of a block, or of many. Signed: differences are sizes too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Allocated, parity taken out.
    pub used: i64,
    /// After compression.
    pub comp: i64,
    /// Before compression; metadata counts as compressed.
    pub uncomp: i64,
}

impl Sizes {
    /// The sizes of the block at `ptr`.
    pub fn of(vdevs: &Vdevs, ptr: &BlockPtr) -> Sizes {
        match ptr {
            BlockPtr::Hole(_) => Sizes::default(),
            BlockPtr::Embedded(e) => {
                let metadata = e.level > 0 || e.object_type.is_metadata();
                Sizes { used: 0, comp: 0, uncomp: if metadata { 0 } else { e.lsize as i64 } }
            }
            BlockPtr::Block(b) => {
                let metadata = b.level > 0 || b.object_type.is_metadata();
                Sizes {
                    used: vdevs.dsize(b) as i64,
                    comp: b.psize as i64,
                    uncomp: (if metadata { b.psize } else { b.lsize }) as i64,
                }
            }
        }
    }

    /// Adds the three to sums as they are stored.
    pub(crate) fn add_to(self, sums: [&mut u64; 3]) {
        for (sum, size) in sums.into_iter().zip([self.used, self.comp, self.uncomp]) {
            *sum = sum.wrapping_add_signed(size);
        }
    }

    /// Whether all three sums are 0.
    pub fn is_zero(self) -> bool {
        self == Sizes::default()
    }
}

impl Add for Sizes {
    type Output = Sizes;

    fn add(self, other: Sizes) -> Sizes {
        Sizes {
            used: self.used + other.used,
            comp: self.comp + other.comp,
            uncomp: self.uncomp + other.uncomp,
        }
    }
}

impl AddAssign for Sizes {
    fn add_assign(&mut self, other: Sizes) {
        *self = *self + other;
    }
}

impl Neg for Sizes {
    type Output = Sizes;

    fn neg(self) -> Sizes {
        Sizes { used: -self.used, comp: -self.comp, uncomp: -self.uncomp }
    }
}

impl Sub for Sizes {
    type Output = Sizes;

    fn sub(self, other: Sizes) -> Sizes {
        self + -other
    }
}

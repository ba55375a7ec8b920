//! Who is charged for which space.
//!
//! Source: docs/format/06-mos-dsl.md §8.

use std::ops::{Add, AddAssign, Neg, Sub};

use dmu::Tx;
use format::ObjectId;
use format::blkptr::BlockPtr;
use format::dsl_dir::DslDir;
use storage::Vdevs;

use super::lookup;
use crate::Result;
use crate::mos::Mos;

/// The three sizes of a block, or of many. Signed: differences are sizes too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Allocated, parity taken out.
    pub(crate) used: i64,
    /// After compression.
    pub(crate) comp: i64,
    /// Before compression; metadata counts as compressed.
    pub(crate) uncomp: i64,
}

impl Sizes {
    /// The sizes of what `ptr` refers to.
    pub(crate) fn of(vdevs: &Vdevs, ptr: &BlockPtr) -> Sizes {
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

    pub(crate) fn is_zero(self) -> bool {
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

/// What a directory's space is used by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    /// The head dataset.
    Head,
    /// Snapshots.
    Snap,
    /// Child directories.
    Child,
    /// Reservations of children beyond what they use.
    ChildReserved,
    /// The dataset's own reservation beyond what it uses.
    Reserved,
}

fn slot(dir: &mut DslDir, category: Category) -> &mut u64 {
    let breakdown = &mut dir.used_breakdown;
    match category {
        Category::Head => &mut breakdown.head,
        Category::Snap => &mut breakdown.snap,
        Category::Child => &mut breakdown.child,
        Category::ChildReserved => &mut breakdown.child_rsrv,
        Category::Reserved => &mut breakdown.refrsrv,
    }
}

/// Adds `delta` to a directory and, as far as its reservation does not hide it, to all above (§8.3).
pub(crate) fn add_space(mos: &Mos, tx: &Tx, dir: ObjectId, category: Category, delta: Sizes) -> Result<()> {
    if delta.is_zero() {
        return Ok(());
    }
    // What the present level is charged, by category.
    let mut charges = vec![(category, delta.used)];
    for id in lookup::chain(mos, dir)? {
        let mut dir = mos.dir(id)?;
        let before = dir.used_bytes;
        for (category, used) in charges.drain(..) {
            let slot = slot(&mut dir, category);
            *slot = slot.wrapping_add_signed(used);
            dir.used_bytes = dir.used_bytes.wrapping_add_signed(used);
        }
        dir.compressed_bytes = dir.compressed_bytes.wrapping_add_signed(delta.comp);
        dir.uncompressed_bytes = dir.uncompressed_bytes.wrapping_add_signed(delta.uncomp);
        mos.put_dir(tx, id, &dir)?;
        let used = dir.used_bytes.wrapping_sub(before) as i64;
        let accounted = dir.used_bytes.max(dir.reserved).wrapping_sub(before.max(dir.reserved)) as i64;
        charges.push((Category::Child, used));
        charges.push((Category::ChildReserved, accounted - used));
    }
    Ok(())
}

/// Moves `used` bytes of a directory between categories; its sum stays.
pub(crate) fn move_space(
    mos: &Mos,
    tx: &Tx,
    dir: ObjectId,
    from: Category,
    to: Category,
    used: i64,
) -> Result<()> {
    if used == 0 {
        return Ok(());
    }
    let mut phys = mos.dir(dir)?;
    let slot_from = slot(&mut phys, from);
    *slot_from = slot_from.wrapping_add_signed(-used);
    let slot_to = slot(&mut phys, to);
    *slot_to = slot_to.wrapping_add_signed(used);
    mos.put_dir(tx, dir, &phys)
}

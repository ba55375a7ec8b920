//! Charging space to directories.
//!
//! Source: docs/format/06-mos-dsl.md §8.

use dmu::Tx;
use format::ObjectId;
use format::dsl_dir::{DslDir, USED_BREAKDOWN};

use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::{Result, tree};

/// Space that moves to another category.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    pub(crate) from: Category,
    pub(crate) to: Category,
    /// Bytes; negative ones go the other way.
    pub(crate) used: i64,
}

/// The categories of a directory's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
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

/// Whether a directory stores the space of each category. Directories made in pools before version 13 do not.
pub const fn has_breakdown(dir: &DslDir) -> bool {
    dir.flags & USED_BREAKDOWN != 0
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
pub fn add_space(mos: &Mos, tx: &Tx, dir: ObjectId, category: Category, delta: Sizes) -> Result<()> {
    if delta.is_zero() {
        return Ok(());
    }
    // The charges of the present level, by category.
    let mut charges = vec![(category, delta.used)];
    for id in tree::chain(mos, dir)? {
        let mut dir = mos.dir(id)?;
        let before = dir.used_bytes;
        for (category, used) in charges.drain(..) {
            if has_breakdown(&dir) {
                let slot = slot(&mut dir, category);
                *slot = slot.wrapping_add_signed(used);
            }
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
pub(crate) fn move_space(mos: &Mos, tx: &Tx, dir: ObjectId, shift: Shift) -> Result<()> {
    let Shift { from, to, used } = shift;
    if used == 0 {
        return Ok(());
    }
    let mut phys = mos.dir(dir)?;
    if !has_breakdown(&phys) {
        return Ok(());
    }
    let slot_from = slot(&mut phys, from);
    *slot_from = slot_from.wrapping_add_signed(-used);
    let slot_to = slot(&mut phys, to);
    *slot_to = slot_to.wrapping_add_signed(used);
    mos.put_dir(tx, dir, &phys)
}

//! How much datasets may still use.
//!
//! Source: docs/format/06-mos-dsl.md §8.3, §8.5.

use format::ObjectId;

use crate::promises::Own;
use crate::room::{Reach, Reserve};
use crate::tree;
use crate::view::View;
use crate::{Error, Result};

/// Estimated bytes of metadata that a DSL change writes per object that it touches.
const OBJECT_COST: u64 = 16 << 10;
/// Copies of metadata in the MOS.
const MOS_COPIES: u64 = 3;

/// A quota's bytes; 0 means no quota.
fn unlimited(quota: u64) -> u64 {
    if quota == 0 { u64::MAX } else { quota }
}

/// Bytes available to a directory: within its quota and those above it, reservations counted.
pub(crate) fn dir_available(view: &View<'_>, id: ObjectId) -> Result<u64> {
    let mut bytes = view.room.usable(Reach::Limits);
    for id in tree::chain(view.mos, id)?.into_iter().rev() {
        let dir = view.mos.dir(id)?;
        if dir.parent.0 == 0 {
            bytes = unlimited(dir.quota).min(bytes).saturating_sub(dir.used_bytes);
            continue;
        }
        let reserved = dir.reserved.saturating_sub(dir.used_bytes);
        let within = unlimited(dir.quota).saturating_sub(dir.used_bytes);
        bytes = bytes.saturating_add(reserved).min(within);
    }
    Ok(bytes)
}

/// Bytes available to the head of `dir` itself.
pub fn available(view: &View<'_>, dir: ObjectId, own: &Own) -> Result<u64> {
    let bytes = dir_available(view, dir)?.saturating_add(own.unused());
    Ok(bytes.min(unlimited(own.refquota).saturating_sub(own.referenced)))
}

/// Refuses a change that touches `objects` objects of the DSL when the pool is full.
pub fn check_room(view: &View<'_>, objects: u64) -> Result<()> {
    check_reserve(view, objects, Reserve::Whole)
}

/// As above, for a change that may use all of the reserve but the part `kept`.
pub fn check_reserve(view: &View<'_>, objects: u64, kept: Reserve) -> Result<()> {
    let used = view.mos.dir(tree::root_dir(view.mos)?)?.used_bytes;
    if used.saturating_add(objects * OBJECT_COST * MOS_COPIES) > view.room.usable_beside(kept) {
        return Err(Error::NoSpace);
    }
    Ok(())
}

//! Lists of what clones wrote, which OpenZFS keeps so that destroying a clone takes less time. They must tell of every block that a clone
//! writes or frees, so they are given up before anything is written: removing them is always safe.
//!
//! From:   the directories of clones that OpenZFS made or wrote.
//! To:     free space.
//! Source: docs/format/06-mos-dsl.md §7.5.

use std::collections::BTreeSet;

use dmu::{Tx, zap};
use format::{ObjectId, ObjectType, features};

use crate::features::Features;
use crate::mos::Mos;
use crate::{Result, deadlist, tree};

const KEY: &[u8] = b"com.delphix:livelist";
/// Key in the object directory of lists whose blocks are being freed.
const DELETED: &str = "com.delphix:deleted_clones";

/// Whether blocks in such lists wait to be freed. Only OpenZFS frees them.
///
/// # Errors
/// If the object directory cannot be read.
pub fn is_freeing(mos: &Mos) -> Result<bool> {
    Ok(mos.directory(DELETED)?.is_some())
}

/// Frees all such lists of the pool, if it has any.
///
/// # Errors
/// If they, or what names them, cannot be read.
pub fn give_up(mos: &Mos, features: &mut Option<Features>, tx: &Tx) -> Result<()> {
    let is_active = |known: &Features| known.is_active(&features::LIVELIST);
    if !features.as_ref().is_some_and(is_active) {
        return Ok(());
    }
    let (mut seen, mut queue) = (BTreeSet::new(), vec![(tree::root_dir(mos)?, 0)]);
    while let Some((dir, level)) = queue.pop() {
        tree::check_place(&mut seen, dir, level)?;
        let children = mos.dir(dir)?.child_dir_zap;
        if children.0 != 0 {
            for entry in zap::entries(&*mos.object(children)?) {
                queue.extend(entry?.number().map(|child| (ObjectId(child), level + 1)));
            }
        }
        let object = mos.object(dir)?;
        if object.object_type() != ObjectType::ZAP_METADATA {
            continue;
        }
        if let Some(list) = zap::lookup_u64(&object, KEY)? {
            zap::remove(&object, tx, KEY)?;
            deadlist::free(mos, features, tx, ObjectId(list))?;
        }
    }
    if let Some(known) = features {
        // None is left, whatever was counted.
        let count = known.count(&features::LIVELIST).unwrap_or(0);
        known.adjust(tx, &features::LIVELIST, -count.cast_signed())?;
    }
    Ok(())
}

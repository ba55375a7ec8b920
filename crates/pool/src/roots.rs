//! The trees of a pool.
//!
//! From:   the MOS as of the last sync.
//! To:     walks that are to meet every block: `check`, and the search for an earlier state.

use std::collections::HashMap;

use dsl::list;
use dsl::walk::{self, Root};
use format::dsl_dataset::DslDataset;
use format::{ByteOrder, ObjectId, ObjectType, Txg};

use crate::pool::Inner;
use crate::{Result, bptree};

const LE: ByteOrder = ByteOrder::Little;

/// The MOS, every dataset and snapshot that its objects describe, and the rests of destroyed ones. `report` gets the
/// roots that cannot be read, and the reasons.
///
/// # Errors
/// The datasets cannot be listed at all.
pub fn roots(inner: &Inner, report: &mut dyn FnMut(String, String)) -> Result<Vec<Root>> {
    let mos = &inner.mos;
    let (_, mos_ptr) = mos.objset.synced_root();
    let mut roots = vec![Root::new(ObjectId(0), "the MOS", mos_ptr, Txg(0))];
    let mut names: HashMap<ObjectId, String> = HashMap::new();
    for info in list::survey(&inner.view(), &inner.name(), (None, true), &mut |name, error| {
        report(name, error.to_string());
    })? {
        names.insert(info.id, info.name);
    }
    for entry in mos.objset.synced_objects() {
        let (id, dnode) = match entry {
            Ok(found) => found,
            Err(error) => {
                report("the MOS".into(), error.to_string());
                continue;
            }
        };
        if dnode.bonus_type != ObjectType::DSL_DATASET {
            continue;
        }
        match DslDataset::decode(&dnode.bonus, LE) {
            Ok(phys) => {
                let name = names.remove(&id).unwrap_or_else(|| format!("dataset {id}"));
                roots.push(Root::new(id, name, phys.bp, phys.prev_snap_txg));
            }
            Err(error) => report(format!("dataset {id}"), error.to_string()),
        }
    }
    for entry in bptree::entries(mos) {
        match entry {
            Ok((_, entry)) => roots.push(walk::destroyed(&entry)),
            Err(error) => report("the list of destroyed datasets".into(), error.to_string()),
        }
    }
    Ok(roots)
}

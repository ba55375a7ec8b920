//! Whether the state of the devices of a mirror allows that it is written.
//!
//! From:   the configuration in the MOS of a pool that is being imported.
//! To:     a reason to open the pool for reading only.
//! Source: docs/format/11-redundancy.md §1.1, §3.4. A device that misses writes has them in a list (DTL) that this build does not
//!         write. So a mirror is written only while each of its devices has everything and takes every write.

use format::config::{PoolConfig, VdevConfig, VdevKind};

use crate::mos::Mos;
use crate::{Result, space_maps};

/// Keys of devices that do not take part as they should.
const FLAGS: [&str; 8] =
    ["offline", "faulted", "degraded", "removed", "not_present", "resilver_txg", "rebuild_txg", "unspare"];

/// Why OpenZFS has to bring the pool in order before it is written here.
pub(crate) fn unwritable(mos: &Mos, config: &PoolConfig) -> Result<Option<String>> {
    for top in config.tree.children.iter().filter(|top| !top.children.is_empty()) {
        if let Some(why) = unwritable_below(mos, top)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

fn unwritable_below(mos: &Mos, vdev: &VdevConfig) -> Result<Option<String>> {
    let name = || match &vdev.path {
        Some(path) => format!("'{}'", String::from_utf8_lossy(path).escape_debug()),
        None => vdev.guid.0.to_string(),
    };
    match vdev.kind {
        VdevKind::Replacing => return Ok(Some("a device is being replaced".into())),
        VdevKind::Spare => return Ok(Some("a spare is in use".into())),
        _ => {}
    }
    if let Some(flag) = FLAGS.iter().find(|flag| vdev.extra.get_u64(flag).is_some_and(|value| value != 0)) {
        return Ok(Some(format!("the device {} is marked {flag}", name())));
    }
    if let Some(dtl) = vdev.dtl.filter(|dtl| dtl.0 != 0)
        && space_maps::header(&mos.objset, dtl)?.alloc != 0
    {
        return Ok(Some(format!("the device {} lacks writes and is to be resilvered", name())));
    }
    for child in &vdev.children {
        if let Some(why) = unwritable_below(mos, child)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

//! The facts about expansions of raidz vdevs: devices that were added to one.
//!
//! From:   the ZAP of each top-level vdev in the MOS.
//! To:     `zpool status`. How blocks are spread since is in `shape.rs`.
//! Source: docs/format/11-redundancy.md §11; 15-volumes-redaction-and-newer-features.md §9.6.

use dmu::zap;

use crate::Result;
use crate::reflow::{ENDED, MOVING};

/// A raidz vdev got a device, and its blocks were moved, or are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// The raidz vdev, by id.
    pub vdev: u32,
    /// When it began, in seconds since 1970.
    pub begun: u64,
    /// When it ended; `None` if it has not.
    pub ended: Option<u64>,
    /// Bytes that were moved.
    pub copied: u64,
    /// Bytes that are in use on the vdev.
    pub allocated: u64,
    /// It has not ended, and nothing moves: a device is not whole, or refused something.
    pub waits: bool,
}

impl crate::Pool {
    /// The expansion of a raidz vdev that has not ended, or the one that ended last.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn expansion(&self) -> Result<Option<Expansion>> {
        let (mut last, info): (Option<Expansion>, _) = (None, self.info());
        for vdev in &info.config.tree.children {
            let Some(own) = vdev.zap_top.filter(|own| own.0 != 0) else { continue };
            let own = self.inner.mos.object(own)?;
            let get = |key: &str| zap::lookup_u64(&own, format!("org.openzfs:raidz_expand_{key}").as_bytes());
            let Some(state) = get("state")?.filter(|state| [MOVING, ENDED].contains(state)) else { continue };
            let [begun, ended, copied] = ["start_time", "end_time", "bytes_copied"].map(get);
            let [begun, ended, copied] = [begun?, ended?, copied?].map(Option::unwrap_or_default);
            let (vdev, ended) = (vdev.id as u32, (state == ENDED).then_some(ended));
            let later =
                |other: Expansion| other.ended.is_some_and(|other| ended.is_none_or(|own| own >= other));
            if last.is_none_or(later) {
                let allocated = info.vdev_space.get(&vdev).map_or(0, |space| space.allocated);
                let waits = ended.is_none() && self.inner.expansion_waits(vdev, copied);
                last = Some(Expansion { vdev, begun, ended, copied, allocated, waits });
            }
        }
        Ok(last)
    }
}

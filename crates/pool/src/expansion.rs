//! What is known of the expansions of raidz vdevs: devices that were added to one.
//!
//! From:   the ZAP of each top-level vdev in the MOS.
//! To:     `zpool status`. How blocks are spread since is in `shape.rs`.
//! Source: docs/format/11-redundancy.md §11; 15-volumes-redaction-and-newer-features.md §9.6.

use dmu::zap;

use crate::Result;

/// State of an expansion that has ended.
const FINISHED: u64 = 2;

/// A raidz vdev got a device, and its blocks were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// The raidz vdev, by id.
    pub vdev: u32,
    /// When it began, in seconds since 1970.
    pub begun: u64,
    /// When it ended.
    pub ended: u64,
    /// Bytes that were moved.
    pub copied: u64,
}

impl crate::Pool {
    /// The expansion of a raidz vdev that ended last.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn expansion(&self) -> Result<Option<Expansion>> {
        let mut last: Option<Expansion> = None;
        for vdev in &self.info().config.tree.children {
            let Some(own) = vdev.zap_top.filter(|own| own.0 != 0) else { continue };
            let own = self.inner.mos.object(own)?;
            let get = |key: &str| zap::lookup_u64(&own, format!("org.openzfs:raidz_expand_{key}").as_bytes());
            if get("state")? != Some(FINISHED) {
                continue;
            }
            let [begun, ended, copied] = ["start_time", "end_time", "bytes_copied"].map(get);
            let [begun, ended, copied] = [begun?, ended?, copied?].map(Option::unwrap_or_default);
            if last.is_none_or(|other| other.ended <= ended) {
                last = Some(Expansion { vdev: vdev.id as u32, begun, ended, copied });
            }
        }
        Ok(last)
    }
}

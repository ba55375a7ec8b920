//! Ranges of data and holes of a volume.

use dmu::Trail;

use super::Volume;
use crate::Result;

/// A run of bytes that are all data, or all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// A hole: it reads as zeros.
    pub is_hole: bool,
}

/// Blocks that one call looks at, at most.
const LOOKS_MAX: u64 = 16 << 10;

impl Volume {
    /// The runs of data and holes from byte `offset` on, `max` of them at most, without a gap. They cover `length` bytes or
    /// fewer.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] beyond the end; a block that cannot be read.
    pub fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        let end = self.end_of(offset, length)?;
        let (object, block) = (&self.inner.data, self.inner.block);
        let mut found: Vec<Extent> = Vec::new();
        let (mut at, mut looks, mut trail) = (offset, 0, Trail::default());
        while at < end && looks < LOOKS_MAX {
            looks += 1;
            let blkid = at / block;
            let next = object.next_block_on(blkid, &mut trail)?;
            let is_hole = next != Some(blkid);
            let until = if is_hole { next.unwrap_or(u64::MAX) } else { blkid + 1 };
            let until = until.saturating_mul(block).min(end);
            let count = found.len();
            match found.last_mut() {
                Some(last) if last.is_hole == is_hole => last.length += until - at,
                _ if count == max => break,
                _ => found.push(Extent { length: until - at, is_hole }),
            }
            at = until;
        }
        Ok(found)
    }
}

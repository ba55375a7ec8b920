//! Volumes: their creation, and the space that a full one takes.
//!
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §2.

use dsl::new_encryption::NewEncryption;
use dsl::new_head::Initialise;
use dsl::new_names;
use dsl::version;
use format::config::{VdevConfig, VdevKind};

use crate::Result;
use crate::pool::Pool;
use crate::props::{DatasetKind, Value};

/// The block size of a new volume where none is given, in bytes, unless the pool's blocks are larger.
pub const VOLUME_BLOCK: u64 = 16 << 10;
/// The record size that the parity of raidz is counted with, once and for all.
const DEFLATE_BLOCK: u64 = 128 << 10;
/// Bytes of an indirect block.
const INDIRECT: u64 = 128 << 10;
/// Pointers in an indirect block.
const POINTERS: u64 = 1024;
/// Levels of indirect blocks that any volume is counted with.
const LEVELS: u64 = 7;

impl Pool {
    /// Creates a volume with local properties. `initialise` makes its objects.
    ///
    /// # Errors
    /// As [`Pool::create_filesystem`].
    pub fn create_volume(
        &self,
        name: &str,
        local: Vec<(String, Value)>,
        encryption: NewEncryption,
        initialise: Initialise,
    ) -> Result<()> {
        new_names::check(name, DatasetKind::Filesystem)?;
        let full = name.to_owned();
        self.with_limits(name, local, move |syncing, local| {
            syncing.change(|dsl| dsl.create_volume(&full, &local, encryption, &initialise))
        })
    }

    /// Bytes that a completely written volume of `size` bytes with blocks of `block` bytes takes. Reserving them keeps it
    /// from running out of space.
    #[must_use]
    pub fn volume_reservation(&self, size: u64, block: u64) -> u64 {
        reservation(&self.info().config.tree.children, size, block)
    }

    /// The property that keeps space for a volume.
    #[must_use]
    pub fn volume_reserve(&self) -> &'static str {
        if self.info().config.version >= version::REFRESERVATION { "refreservation" } else { "reservation" }
    }

    /// The largest minimal allocation of all top-level vdevs, in bytes.
    #[must_use]
    pub fn largest_min_alloc(&self) -> u64 {
        self.info().config.tree.children.iter().map(min_alloc).max().unwrap_or(0)
    }
}

/// The block size of a new volume in a pool that allocates so many bytes at least.
#[must_use]
pub fn default_volume_block(min_alloc: u64) -> u64 {
    let mut block = VOLUME_BLOCK;
    while block.saturating_mul(2) <= min_alloc {
        block *= 2;
    }
    block
}

fn ashift(vdev: &VdevConfig) -> Option<u32> {
    vdev.top.as_ref().map(|top| top.ashift).filter(|ashift| *ashift < 32)
}

fn min_alloc(vdev: &VdevConfig) -> u64 {
    let Some(ashift) = ashift(vdev) else { return 0 };
    match vdev.kind {
        VdevKind::Draid { ndata, .. } => ndata.saturating_mul(1 << ashift),
        VdevKind::Raidz { nparity: 1 } => 2 << ashift,
        VdevKind::Raidz { .. } => 4 << ashift,
        _ if vdev.kind.is_absent() => 0,
        _ => 1 << ashift,
    }
}

/// Bytes that a block of `bytes` bytes takes with its parity; `None` for vdevs without parity.
fn asize(vdev: &VdevConfig, bytes: u64) -> Option<u64> {
    let sector = 1u64 << ashift(vdev)?;
    match vdev.kind {
        VdevKind::Raidz { nparity } => {
            let parity = u64::from(nparity);
            let columns = (vdev.children.len() as u64).checked_sub(parity).filter(|columns| *columns > 0)?;
            let data = bytes.div_ceil(sector);
            let sectors = data + parity * data.div_ceil(columns);
            Some(sectors.next_multiple_of(parity + 1) * sector)
        }
        VdevKind::Draid { nparity, ndata, .. } => {
            let row = ndata.checked_mul(sector).filter(|row| *row > 0)?;
            let rows = (bytes - 1) / row + 1;
            rows.checked_mul(ndata.checked_add(nparity.into())?)?.checked_mul(sector)
        }
        _ => None,
    }
}

/// The space that a full volume takes, computed as OpenZFS does. OpenZFS compares a `refreservation` with this figure, so it
/// must be equal.
fn reservation(tops: &[VdevConfig], size: u64, block: u64) -> u64 {
    let blocks = size / block;
    let with_parity = |vdev: &VdevConfig| {
        let (whole, one) = (asize(vdev, DEFLATE_BLOCK)?, asize(vdev, block)?);
        // The divisions in this order.
        let bytes = u128::from(blocks) * u128::from(one) / u128::from(whole / 512) * 256;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    };
    let plain = blocks.saturating_mul(block);
    let data = tops.iter().filter_map(with_parity).max().unwrap_or(plain);
    let (mut indirect, mut left) = (LEVELS, blocks);
    while left > 1 {
        left = left.div_ceil(POINTERS);
        indirect += left;
    }
    // One copy of data has two of its indirect blocks.
    data.saturating_add((indirect * 2).saturating_mul(INDIRECT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::made;
    use storage::host::Script;

    fn plain(size: u64, block: u64) -> u64 {
        reservation(&[], size, block)
    }

    #[test]
    fn the_space_of_a_volume_is_what_openzfs_computes() {
        // Pools of OpenZFS 2.1 and 2.4 have these.
        assert_eq!(plain(3 << 20, 8 << 10), 5 << 20);
        assert_eq!(plain(4 << 20, 8 << 10), 6 << 20);
        assert_eq!(plain(5 << 20, 512), 9_961_472);
        assert_eq!(plain(8 << 10, 8 << 10), (8 << 10) + (14 << 17));
    }

    #[test]
    fn parity_counts_by_its_share_of_large_records() {
        let script = Script::new();
        let pool = made(&["a", "b", "c"].map(|name| script.disk(name, 64 << 20)));
        let mut top = pool.info().config.tree.children[0].clone();
        pool.export().unwrap();
        let leaf = top.clone();
        top.kind = VdevKind::Raidz { nparity: 1 };
        top.children = vec![leaf.clone(), leaf.clone(), leaf];
        top.top.as_mut().unwrap().ashift = 12;
        // Of 8 KiB: two sectors, one of parity, rounded up to four. Of 128 KiB: 48 sectors.
        assert_eq!(asize(&top, 8 << 10), Some(16 << 10));
        assert_eq!(asize(&top, 128 << 10), Some(192 << 10));
        let n = (4 << 20) / (8 << 10);
        let data = n * (16 << 10) / ((192 << 10) / 512) * 256;
        assert_eq!(reservation(std::slice::from_ref(&top), 4 << 20, 8 << 10), data + (2 << 20));
        assert_eq!(min_alloc(&top), 8 << 10);
        assert_eq!(reservation(&[top], u64::MAX / (8 << 10) * (8 << 10), 8 << 10), u64::MAX);
    }

    #[test]
    fn blocks_are_as_large_as_what_the_pool_allocates() {
        assert_eq!(
            [0, 8 << 10, 16 << 10, 32 << 10, 48 << 10, 64 << 10].map(default_volume_block),
            [16 << 10, 16 << 10, 16 << 10, 32 << 10, 32 << 10, 64 << 10]
        );
    }
}

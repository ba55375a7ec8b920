//! Interface between the allocator and the space maps on disk.
//!
//! From:   [`super::Allocator`], which knows what changed.
//! To:     `pool`, which writes and reads space maps.

use format::VdevId;

use super::{MapEntry, Runs};

/// The changes in one metaslab: allocations happened before frees. Lists are (byte offset within the vdev, bytes),
/// ascending, coalesced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaslabChange {
    /// Top-level vdev.
    pub vdev: VdevId,
    /// Index of the metaslab.
    pub metaslab: u32,
    /// Allocated since the last call.
    pub allocs: Runs,
    /// Freed since the last call.
    pub frees: Runs,
}

/// Reads space maps for the allocator.
pub trait SpaceMapSource {
    /// Why a space map could not be read.
    type Error;

    /// Calls `each` for all entries of a metaslab's space map (and of the log space maps that belong to it),
    /// oldest first, **as of the last synced txg**: changes of a txg that is being synced are left out. (The
    /// blocks of the last synced state are still there, so an older root can be read while a new one is made.)
    ///
    /// # Errors
    /// When a block cannot be read or an entry not be decoded.
    fn replay(
        &mut self,
        vdev: VdevId,
        metaslab: u32,
        each: &mut dyn FnMut(MapEntry),
    ) -> Result<(), Self::Error>;
}

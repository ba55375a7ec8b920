//! Why the allocator refuses.

use format::blkptr::Dva;
use format::{Corrupt, VdevId};

/// Why nothing was allocated.
#[derive(Debug, thiserror::Error)]
pub enum AllocError<E> {
    /// There are fewer free runs of this size than copies.
    #[error("no free run of {psize} bytes for each copy")]
    NoSpace {
        /// Bytes asked for.
        psize: u64,
    },
    /// A space map could not be read.
    #[error("space map of metaslab {metaslab} of vdev {vdev} cannot be read")]
    Source {
        /// Top-level vdev.
        vdev: VdevId,
        /// Index of the metaslab.
        metaslab: u32,
        /// The reader's reason.
        source: E,
    },
    /// A space map contradicts itself or its header.
    #[error("space map of metaslab {metaslab} of vdev {vdev} is damaged: {damage}")]
    Damaged {
        /// Top-level vdev.
        vdev: VdevId,
        /// Index of the metaslab.
        metaslab: u32,
        /// What is wrong.
        damage: Corrupt,
    },
}

/// Why a block was not freed. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// No allocation can be there: unknown vdev, beyond the last metaslab, across a border, not aligned.
    #[error("{0:?} is not a place on this pool")]
    NoSuchPlace(Dva),
    /// The range, or part of it, is already free.
    #[error("{0:?} is not allocated")]
    NotAllocated(Dva),
}

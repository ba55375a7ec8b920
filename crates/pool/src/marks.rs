//! Which leaves are resilvered or rebuilt, and where a rebuild is.
//!
//! From:   `tree_change`, which marks a leaf that joins.
//! To:     `rebuild` and the sync, which take the mark away when the leaf has everything.
//! Source: docs/format/11-redundancy.md §1.1.

/// Key of a leaf that says since when it is rebuilt in the order of places.
pub(crate) const REBUILT: &str = "rebuild_txg";
/// Key of a leaf that says since when it is resilvered block by block.
pub(crate) const RESILVERED: &str = "resilver_txg";

/// Where a rebuild is. Blocks that are placed in its metaslab later are written to all devices, and the rebuild does not
/// follow them: its own record takes new places with each txg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passing {
    pub(crate) vdev: u32,
    pub(crate) metaslab: u64,
    /// Nothing behind this place was in use when the rebuild came to the metaslab.
    pub(crate) end: u64,
}

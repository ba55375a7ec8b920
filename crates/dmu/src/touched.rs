//! Objects of an objset that may differ from an earlier state of it.
//!
//! From:   `stream`, which walks the blocks of dnodes that were written since.
//! To:     `zpl`, which reports the changes of the files.

use format::ObjectId;

/// Numbers of objects whose dnodes lie in blocks that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// There is an object, changed or not.
    Object(ObjectId),
    /// There are none of these numbers.
    Free {
        /// The first.
        first: u64,
        /// How many.
        count: u64,
    },
}

//! Why a compressed payload could not be decoded.

use format::Compression;

/// A payload that no encoder of its algorithm could have made for a block of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The algorithm is a property value, not something that blocks are stored with.
    #[error("blocks are not stored with compression {0:?}")]
    NotStored(Compression),
    /// The payload ends before the block is complete, or claims to be longer than it is.
    #[error("{kind:?} payload is cut short at {available} bytes")]
    Truncated {
        /// The algorithm.
        kind: Compression,
        /// Bytes of payload there are.
        available: usize,
    },
    /// The payload breaks the rules of its algorithm.
    #[error("{kind:?} payload is damaged: {what}")]
    Malformed {
        /// The algorithm.
        kind: Compression,
        /// What is wrong, in the words of `docs/format`.
        what: &'static str,
    },
    /// The payload is sound but decodes to a block of another size.
    #[error("{kind:?} payload decodes to {found} bytes instead of {expected}")]
    WrongSize {
        /// The algorithm.
        kind: Compression,
        /// Logical size of the block, in bytes.
        expected: usize,
        /// The decoded size of the payload, in bytes.
        found: usize,
    },
}

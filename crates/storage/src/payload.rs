//! Encoded records between whoever made them and the disks.

use std::sync::Arc;

use crate::Record;

/// Bytes on their way to a disk.
#[derive(Clone, Debug)]
pub enum Payload {
    /// A record stored as it is.
    Whole(Record),
    /// An encoded record.
    Owned(Arc<Vec<u8>>),
}

impl Payload {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Whole(record) | Payload::Owned(record) => record,
        }
    }
}

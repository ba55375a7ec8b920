//! Encoded records between whoever made them and the disks.

use std::ops::Range;
use std::sync::Arc;

use crate::Record;

/// Bytes on their way to a disk.
#[derive(Clone, Debug)]
pub enum Payload {
    /// A record stored as it is.
    Whole(Record),
    /// An encoded record.
    Owned(Arc<Vec<u8>>),
    /// A part of either.
    Part {
        /// What it is a part of.
        of: Record,
        /// Its bytes.
        range: Range<usize>,
    },
}

impl Payload {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Whole(record) | Payload::Owned(record) => record,
            Payload::Part { of, range } => &of[range.clone()],
        }
    }

    /// The bytes of `range`, which may end behind the last one: zeros follow there.
    pub(crate) fn part(&self, range: Range<usize>) -> Payload {
        let bytes = self.bytes();
        if range.end > bytes.len() {
            let mut padded = bytes[range.start.min(bytes.len())..].to_vec();
            padded.resize(range.len(), 0);
            return Payload::Owned(Arc::new(padded));
        }
        let (of, start) = match self {
            Payload::Whole(record) | Payload::Owned(record) => (record, 0),
            Payload::Part { of, range } => (of, range.start),
        };
        Payload::Part { of: of.clone(), range: start + range.start..start + range.end }
    }
}

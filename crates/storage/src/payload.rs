//! Encoded records on their way to the disks.

use std::ops::Range;
use std::sync::Arc;

use crate::Record;

/// Bytes on their way to a disk: a part of a buffer that others may hold, too. A clone copies no byte.
#[derive(Clone, Debug)]
pub struct Payload {
    buffer: Record,
    range: Range<usize>,
}

impl From<Record> for Payload {
    fn from(buffer: Record) -> Payload {
        Payload { range: 0..buffer.len(), buffer }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Arc::new(bytes).into()
    }
}

impl Payload {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }

    /// The bytes, to be changed: without a copy if there is no other holder.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match Arc::try_unwrap(self.buffer) {
            Ok(bytes) if self.range == (0..bytes.len()) => bytes,
            Ok(bytes) => bytes[self.range].to_vec(),
            Err(shared) => shared[self.range].to_vec(),
        }
    }

    /// The same bytes with zeros behind them, `len` in all.
    pub(crate) fn padded(self, len: usize) -> Payload {
        match self.range.len() < len {
            true => self.part(0..len),
            false => self,
        }
    }

    /// The bytes of `range`, which may end behind the last one: zeros follow there.
    pub(crate) fn part(&self, range: Range<usize>) -> Payload {
        if range.end > self.range.len() {
            let bytes = self.bytes();
            let mut padded = bytes[range.start.min(bytes.len())..].to_vec();
            padded.resize(range.len(), 0);
            return padded.into();
        }
        let start = self.range.start;
        Payload { buffer: self.buffer.clone(), range: start + range.start..start + range.end }
    }
}

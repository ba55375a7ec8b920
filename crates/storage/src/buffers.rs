//! Used record buffers, kept for the next record: fresh memory costs more than the codec that fills it.
//!
//! From:   records that were written or read and have no holder any more.
//! To:     the next caller that needs a record of that size.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Record;
use crate::rank::{MutexHeld, RankedMutex};

/// Shorter buffers are cheaper to get from the allocator.
const LEN_MIN: usize = 32 << 10;

/// Free buffers within a byte limit.
pub struct Buffers {
    limit: u64,
    free: RankedMutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: u64,
    by_len: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Buffers {
    /// Keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Buffers {
        Buffers { limit, free: RankedMutex::default() }
    }

    fn lock(&self) -> MutexHeld<'_, Free> {
        self.free.lock()
    }

    /// A buffer of `len` bytes for overwriting. It contains zeros or the data of an old record.
    #[must_use]
    pub fn take(&self, len: usize) -> Vec<u8> {
        if len >= LEN_MIN {
            let mut free = self.lock();
            if let Some(buffer) = free.by_len.get_mut(&len).and_then(Vec::pop) {
                free.bytes -= len as u64;
                return buffer;
            }
        }
        vec![0; len]
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(&self, bytes: &[u8]) -> Vec<u8> {
        if bytes.len() < LEN_MIN {
            return bytes.to_vec();
        }
        let mut copy = self.take(bytes.len());
        copy.copy_from_slice(bytes);
        copy
    }

    /// Takes back the buffer of `record`, if there is no other holder and there is room.
    pub fn give(&self, record: Record) {
        if record.len() < LEN_MIN || record.capacity() > record.len() + record.len() / 8 {
            return;
        }
        let Some(buffer) = Arc::into_inner(record) else { return };
        let len = buffer.len();
        let mut free = self.lock();
        if free.bytes + len as u64 <= self.limit {
            free.bytes += len as u64;
            free.by_len.entry(len).or_default().push(buffer);
        } else if let Some(other) = free.by_len.keys().copied().find(|&other| other != len) {
            // The sizes in use have changed: buffers of old sizes are dropped.
            let stale = free.by_len.remove(&other);
            free.bytes -= stale.map_or(0, |stale| (stale.len() * other) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_holder_gives_it() {
        let buffers = Buffers::new(1 << 20);
        let record = Arc::new(buffers.copy_of(&[7; LEN_MIN]));
        buffers.give(record.clone());
        assert_eq!(buffers.take(LEN_MIN)[0], 0, "a new one: the other is still held");
        buffers.give(record);
        assert_eq!(buffers.take(LEN_MIN)[0], 7, "the same one");
        assert_eq!(buffers.take(LEN_MIN)[0], 0, "it was taken");
    }

    #[test]
    fn no_more_than_the_limit_is_kept_and_old_sizes_give_way() {
        let buffers = Buffers::new(4 * LEN_MIN as u64);
        let give = |len: usize| buffers.give(Arc::new(vec![1; len]));
        for _ in 0..10 {
            give(LEN_MIN);
            give(100);
            assert!(buffers.lock().bytes <= 4 * LEN_MIN as u64);
        }
        assert_eq!(buffers.lock().bytes, 4 * LEN_MIN as u64);
        give(2 * LEN_MIN);
        give(2 * LEN_MIN);
        assert_eq!(buffers.lock().by_len.keys().collect::<Vec<_>>(), [&(2 * LEN_MIN)]);
        assert_eq!(buffers.lock().bytes, 2 * LEN_MIN as u64);
        assert_eq!(buffers.take(2 * LEN_MIN)[0], 1);
        assert_eq!(buffers.lock().bytes, 0);
    }
}

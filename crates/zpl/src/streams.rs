//! Read-ahead into the cache, for files that clients read in order.
//!
//! From:   the reads of a session whose front end has no kernel that reads ahead.
//! To:     the cache of the pool. A cached block never changes, so writes need not come here.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar};

use dmu::rank::{MutexHeld, RankedMutex};
use dmu::{Object, Objset};
use format::ObjectId;

/// Maximal streams of one session, and of one file.
const STREAMS_MAX: usize = 64;
const STREAMS_OF_ONE_MAX: usize = 4;
/// Bytes ahead of the reader: after the second read, and at most.
const WINDOW_MIN: u64 = 1 << 20;
const WINDOW_MAX: u64 = 8 << 20;
/// ... and at most this part of the cache, because blocks that are evicted before they are used are read twice.
const CACHE_PART: u64 = 16;
/// Maximal blocks ahead of the reader.
const BLOCKS_MAX: u64 = 256;

/// Reads of one file, each behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    file: ObjectId,
    /// Byte behind the last read.
    next: u64,
    /// Block behind the last one that the workers got.
    ahead: u64,
    /// Bytes to read ahead; 0 until a second read follows the first one.
    window: u64,
}

impl Stream {
    /// Whether a read at `offset` belongs to it. Calls of one client overtake each other.
    fn takes(&self, file: ObjectId, offset: u64) -> bool {
        self.file == file
            && offset >= self.next.saturating_sub(self.window)
            && offset <= self.next.saturating_add(self.window)
    }

    /// Notes a read up to byte `end`; returns the blocks to read ahead.
    fn advance(&mut self, end: u64, file: &Facts) -> Range<u64> {
        self.next = self.next.max(end);
        self.window = (self.window * 2).max(WINDOW_MIN).min(file.window_max);
        let from = self.ahead.max(self.next.div_ceil(file.block));
        let to = self.next.saturating_add(self.window).min(file.size).div_ceil(file.block);
        self.ahead = self.ahead.max(to);
        from..to
    }
}

/// A file, as far as read-ahead is concerned.
struct Facts {
    size: u64,
    block: u64,
    window_max: u64,
}

#[derive(Default)]
struct State {
    /// Blocks that no thread has started.
    todo: VecDeque<(Arc<Object>, u64)>,
    /// Workers that are reading.
    reading: usize,
}

#[derive(Default)]
struct Lane {
    state: RankedMutex<State>,
    /// A worker has finished a block.
    finished: Condvar,
}

impl Lane {
    fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// For a worker: reads the next block that no thread has started.
    fn read_next(&self) {
        let (object, blkid) = {
            let mut state = self.lock();
            let Some(next) = state.todo.pop_front() else { return };
            state.reading += 1;
            next
        };
        // A reader that comes to the block reports its error.
        let _ = catch_unwind(AssertUnwindSafe(|| object.block_soon(blkid).is_ok()));
        drop(object);
        self.lock().reading -= 1;
        self.finished.notify_all();
    }
}

/// The streams of a session.
#[derive(Default)]
pub(crate) struct Streams {
    lane: Arc<Lane>,
    /// In the order of their last reads.
    table: RankedMutex<VecDeque<Stream>>,
}

impl Streams {
    /// Notes a read of `len` bytes at `offset` in a file of `size` bytes, and lets workers read ahead if reads follow each
    /// other.
    pub(crate) fn note(&self, objset: &Objset, object: &Arc<Object>, size: u64, offset: u64, len: usize) {
        let (block, end) = (object.block_size(), offset.saturating_add(len as u64));
        let window_max = WINDOW_MAX.min(objset.cache_limit() / CACHE_PART).min(BLOCKS_MAX * block);
        let facts = Facts { size, block, window_max };
        let wanted = self.wanted(object.id(), offset, end, &facts);
        let mut state = self.lane.lock();
        // The caller reads these blocks itself now.
        state.todo.retain(|(other, blkid)| {
            other.id() != object.id() || *blkid < offset / block || *blkid >= end.div_ceil(block)
        });
        state.todo.extend(wanted.clone().map(|blkid| (object.clone(), blkid)));
        drop(state);
        for _ in wanted {
            let lane = self.lane.clone();
            objset.readers().spawn(move || lane.read_next());
        }
    }

    /// The blocks to read ahead after a read from `offset` to `end`.
    fn wanted(&self, file: ObjectId, offset: u64, end: u64, facts: &Facts) -> Range<u64> {
        let mut table = self.table.lock();
        let found = table.iter().rposition(|stream| stream.takes(file, offset));
        let (stream, wanted) = match found.and_then(|index| table.remove(index)) {
            Some(mut stream) => {
                let wanted = stream.advance(end, facts);
                (stream, wanted)
            }
            None => (Stream { file, next: end, ahead: 0, window: 0 }, 0..0),
        };
        let of_this = |stream: &Stream| stream.file == file;
        if table.iter().filter(|stream| of_this(stream)).count() >= STREAMS_OF_ONE_MAX {
            let oldest = table.iter().position(of_this).expect("there are some");
            table.remove(oldest);
        }
        if table.len() >= STREAMS_MAX {
            table.pop_front();
        }
        table.push_back(stream);
        wanted
    }
}

impl Drop for Streams {
    /// Waits for the reads that have begun: the devices may be closed next.
    fn drop(&mut self) {
        let mut state = self.lane.lock();
        state.todo.clear();
        while state.reading > 0 {
            let wait = |state| self.lane.finished.wait(state).expect("no code panics while holding a lane");
            state = state.wait(wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FILE: ObjectId = ObjectId(7);

    fn facts(size: u64) -> Facts {
        Facts { size, block: 128 << 10, window_max: WINDOW_MAX }
    }

    fn read(streams: &Streams, file: ObjectId, offset: u64, size: u64) -> Range<u64> {
        streams.wanted(file, offset, offset + MIB, &facts(size))
    }

    #[test]
    fn reads_that_follow_each_other_get_more_and_more_blocks_ahead() {
        let streams = Streams::default();
        let ahead: Vec<_> = (0..5).map(|turn| read(&streams, FILE, turn * MIB, 1 << 30)).collect();
        assert_eq!(ahead, [0..0, 16..24, 24..40, 40..64, 64..104]);
    }

    #[test]
    fn nothing_is_read_ahead_of_the_end_of_a_file() {
        let streams = Streams::default();
        assert!(read(&streams, FILE, 0, 2 * MIB + 1).is_empty());
        assert_eq!(read(&streams, FILE, MIB, 2 * MIB + 1), 16..17);
        assert!(read(&streams, FILE, 2 * MIB, 2 * MIB + 1).is_empty());
    }

    #[test]
    fn calls_that_overtake_each_other_belong_to_one_stream() {
        let streams = Streams::default();
        let order = [0, 1, 3, 2, 4, 6, 5];
        let blocks: Vec<u64> =
            order.iter().flat_map(|turn| read(&streams, FILE, turn * MIB, 1 << 30)).collect();
        assert!(blocks.is_sorted_by(|one, next| one < next), "no block is read twice: {blocks:?}");
        assert_eq!(streams.table.lock().len(), 1);
    }

    #[test]
    fn readers_at_random_places_get_nothing_and_displace_no_other_file() {
        let streams = Streams::default();
        read(&streams, ObjectId(9), 0, 1 << 30);
        for turn in 0..200u64 {
            let blocks = read(&streams, FILE, turn * 7919 % 1000 * 10 * MIB, 1 << 40);
            assert!(blocks.is_empty());
        }
        assert_eq!(read(&streams, ObjectId(9), MIB, 1 << 30), 16..24);
    }
}

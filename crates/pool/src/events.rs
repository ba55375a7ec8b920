//! The newest events of an open pool, kept in memory only.
//!
//! From:   `reports`.
//! To:     `zpool events`, through the server that holds the pool.
//! Source: classes and names of fields as `zpool events -v` of OpenZFS shows them.

use std::collections::{BTreeMap, VecDeque};

use format::NvList;
use storage::rank::{MutexHeld, Rank, RankedMutex};

/// Number of events kept. Older events are dropped and counted.
const KEPT: usize = 512;

/// The newest events of a pool.
#[derive(Debug)]
pub(crate) struct Events(RankedMutex<Ring>);

impl Default for Events {
    fn default() -> Events {
        Events(RankedMutex::new(Rank::Events, Ring::default()))
    }
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<NvList>,
    /// Events since the pool was opened.
    posted: u64,
    dropped: u64,
    /// I/O and checksum errors of each leaf that events reported already.
    told: BTreeMap<u64, [u64; 2]>,
    /// Suspensions that events reported already.
    suspensions: u64,
}

/// A copy of the newest events.
#[derive(Clone, Debug, Default)]
pub struct Happened {
    /// Oldest first; each with its `class`, `time` and `eid`.
    pub events: Vec<NvList>,
    /// Events that were dropped since the last look.
    pub dropped: u64,
}

impl Events {
    fn ring(&self) -> MutexHeld<'_, Ring> {
        self.0.lock()
    }
}

impl Events {
    pub(crate) fn post(&self, event: NvList) {
        self.ring().post(event);
    }

    /// Replaces the reported I/O and checksum errors of a leaf by `now`. Returns the previous counts.
    pub(crate) fn tell_errors(&self, guid: u64, now: [u64; 2]) -> [u64; 2] {
        self.ring().told.insert(guid, now).unwrap_or_default()
    }

    /// The newest events, oldest first.
    pub(crate) fn newest(&self) -> Happened {
        let ring = self.ring();
        Happened { events: ring.kept.iter().cloned().collect(), dropped: ring.dropped }
    }

    /// Drops all events. Returns their number.
    pub(crate) fn clear(&self) -> u64 {
        let mut ring = self.ring();
        ring.dropped = 0;
        std::mem::take(&mut ring.kept).len() as u64
    }

    /// Records suspension number `count` as reported. Returns whether it was new.
    pub(crate) fn note_suspension(&self, count: u64) -> bool {
        let mut ring = self.ring();
        std::mem::replace(&mut ring.suspensions, count) < count
    }
}

impl Ring {
    fn post(&mut self, mut event: NvList) {
        self.posted += 1;
        event.insert("eid", self.posted);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_events_are_dropped_and_counted() {
        let events = Events::default();
        for _ in 0..KEPT + 3 {
            events.ring().post(NvList::new());
        }
        let ring = events.ring();
        assert_eq!((ring.kept.len(), ring.dropped), (KEPT, 3));
        assert_eq!(ring.kept.front().and_then(|event| event.get_u64("eid")), Some(4));
    }
}

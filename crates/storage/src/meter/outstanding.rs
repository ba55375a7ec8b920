//! Requests that a disk was sent and did not answer yet, and those that it answered late.
//!
//! From:   [`super::Metered`], which sees each request.
//! To:     reports about the device (`zpool status -s`, `zpool events`). The table is locked to note that a request begins
//!         or ends, never while the disk works on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rank::{MutexHeld, RankedMutex};

/// Late answers that are kept until they are asked for; all are counted.
const LATE_MAX: usize = 20;

/// The kind of a request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Make what was written durable.
    Flush,
    /// Forget what a range holds.
    Trim,
}

impl Deed {
    /// A word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Deed::Read => "read",
            Deed::Write => "write",
            Deed::Flush => "flush",
            Deed::Trim => "trim",
        }
    }
}

/// A request to a disk, and how long it takes so far or took in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of the request.
    pub deed: Deed,
    /// Byte offset on the disk.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When it was sent.
    pub began: Instant,
    /// How long it has taken.
    pub took: Duration,
}

#[derive(Debug)]
struct Entry {
    deed: Deed,
    offset: u64,
    len: u64,
    began: Instant,
    /// It was reported that the request takes too long.
    is_told: bool,
}

impl Entry {
    fn request(&self, now: Instant) -> Request {
        let Entry { deed, offset, len, began, .. } = *self;
        Request { deed, offset, len, began, took: now.saturating_duration_since(began) }
    }
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By number: the oldest comes first.
    requests: BTreeMap<u64, Entry>,
    late: VecDeque<Request>,
    /// When the disk answered last.
    answered: Option<Instant>,
}

/// The requests of one disk.
#[derive(Debug)]
pub(super) struct Outstanding {
    table: RankedMutex<Table>,
    /// Requests that took so many nanoseconds or more are late.
    late_nanos: AtomicU64,
    /// How many were late.
    late: AtomicU64,
}

impl Default for Outstanding {
    fn default() -> Outstanding {
        let late_nanos = AtomicU64::new(u64::MAX);
        Outstanding { table: RankedMutex::default(), late_nanos, late: AtomicU64::new(0) }
    }
}

/// A request that the disk works on. It ends when this is dropped.
pub(super) struct Sent<'a> {
    outstanding: &'a Outstanding,
    number: u64,
}

impl Outstanding {
    fn table(&self) -> MutexHeld<'_, Table> {
        self.table.lock()
    }

    pub(super) fn send(&self, deed: Deed, offset: u64, len: u64) -> Sent<'_> {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.requests.insert(number, Entry { deed, offset, len, began: Instant::now(), is_told: false });
        Sent { outstanding: self, number }
    }

    /// From now on a request is late that takes `limit` or longer.
    pub(super) fn set_limit(&self, limit: Duration) {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.late_nanos.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    pub(super) fn forget_late(&self) {
        self.late.store(0, Ordering::Relaxed);
    }

    /// The late requests that ended since this was called last.
    pub(super) fn take_late(&self) -> Vec<Request> {
        self.table().late.drain(..).collect()
    }

    /// How many requests the disk works on.
    pub(super) fn count(&self) -> usize {
        self.table().requests.len()
    }

    pub(super) fn oldest(&self) -> Option<Request> {
        let table = self.table();
        table.requests.values().next().map(|entry| entry.request(Instant::now()))
    }

    pub(super) fn overdue(&self, limit: Duration) -> Option<Request> {
        let now = Instant::now();
        let mut table = self.table();
        let entry = table.requests.values_mut().next()?;
        let request = entry.request(now);
        if request.took < limit || std::mem::replace(&mut entry.is_told, true) {
            return None;
        }
        Some(request)
    }

    pub(super) fn answered(&self) -> Option<Instant> {
        self.table().answered
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut table = self.outstanding.table();
        table.answered = Some(now);
        let Some(entry) = table.requests.remove(&self.number) else { return };
        let request = entry.request(now);
        if request.took.as_nanos() < u128::from(self.outstanding.late_nanos.load(Ordering::Relaxed)) {
            return;
        }
        self.outstanding.late.fetch_add(1, Ordering::Relaxed);
        if table.late.len() < LATE_MAX {
            table.late.push_back(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_is_reported_once_and_counts_as_late_when_it_ends() {
        let outstanding = Outstanding::default();
        outstanding.set_limit(Duration::ZERO);
        assert_eq!((outstanding.oldest(), outstanding.answered()), (None, None));
        let first = outstanding.send(Deed::Write, 4096, 512);
        let second = outstanding.send(Deed::Flush, 0, 0);
        let oldest = outstanding.oldest().expect("two are outstanding");
        assert_eq!((oldest.deed, oldest.offset, oldest.len), (Deed::Write, 4096, 512));
        assert_eq!(outstanding.count(), 2);
        assert_eq!(outstanding.overdue(Duration::MAX), None);
        assert!(outstanding.overdue(Duration::ZERO).is_some());
        assert_eq!(outstanding.overdue(Duration::ZERO), None, "it was told");
        drop(first);
        assert_eq!(outstanding.overdue(Duration::ZERO).map(|request| request.deed), Some(Deed::Flush));
        drop(second);
        assert_eq!((outstanding.late(), outstanding.oldest(), outstanding.count()), (2, None, 0));
        assert!(outstanding.answered().is_some());
        let deeds: Vec<Deed> = outstanding.take_late().iter().map(|request| request.deed).collect();
        assert_eq!(deeds, [Deed::Write, Deed::Flush]);
        assert!(outstanding.take_late().is_empty());
    }

    #[test]
    fn all_late_requests_are_counted_and_the_first_few_are_kept() {
        let outstanding = Outstanding::default();
        drop(outstanding.send(Deed::Read, 0, 1));
        assert_eq!(outstanding.late(), 0, "no limit is set");
        outstanding.set_limit(Duration::ZERO);
        (0..LATE_MAX + 3).for_each(|_| drop(outstanding.send(Deed::Read, 0, 1)));
        assert_eq!((outstanding.late(), outstanding.take_late().len()), (LATE_MAX as u64 + 3, LATE_MAX));
        outstanding.forget_late();
        assert_eq!(outstanding.late(), 0);
    }
}

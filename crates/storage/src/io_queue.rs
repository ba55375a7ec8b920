//! The writes of a txg on their way to the devices: a queue for each leaf, and threads that take from them.
//!
//! From:   [`crate::Writer`], which gathers neighbours into one write.
//! To:     the leaf. A device that is slow or hangs keeps only as many threads waiting as the others leave it: a thread takes
//!         its next write from the leaf that the fewest threads write to.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::rank::{MutexHeld, Rank, RankedMutex};
use crate::suspend::Suspension;
use crate::tree::Tree;
use crate::unflushed::KEPT_MAX;
use crate::{Deflate, Leaf, Payload, WriteError};

/// Bytes handed to the I/O threads and not yet written, at most.
const IN_FLIGHT_MAX: usize = 32 << 20;
/// From so many bytes in flight on, writing waits for the disks.
const SATURATED: usize = IN_FLIGHT_MAX / 2;
/// Threads that write, at most, however many leaves there are.
const THREADS_MAX: usize = 32;

/// A write handed to the I/O threads.
pub(crate) struct Job {
    /// Id of the top-level vdev.
    pub(crate) vdev: u32,
    pub(crate) leaf: Leaf,
    /// From the beginning of the device.
    pub(crate) offset: u64,
    pub(crate) buffers: Vec<Payload>,
    /// Bytes in `buffers`.
    pub(crate) len: usize,
    pub(crate) submitted: Instant,
}

impl Job {
    /// Writes the data, and keeps it until it is flushed.
    fn run(self, shared: &Shared) -> Result<(), WriteError> {
        let Shared { suspension, tree, .. } = shared;
        suspension.attempt(|| tree.write(self.vdev, &self.leaf, || self.write_twice()))?;
        let Job { vdev, leaf, offset, buffers, .. } = self;
        if !suspension.is_enabled() || leaf.health.has_failed() {
            return Ok(());
        }
        leaf.unflushed.keep(offset, buffers);
        if leaf.unflushed.bytes() <= KEPT_MAX {
            return Ok(());
        }
        suspension.attempt(|| tree.write(vdev, &leaf, || leaf.flush_or_say()))
    }

    /// A device that refuses once is asked a second time before the write counts as refused.
    fn write_twice(&self) -> Result<(), WriteError> {
        self.write().or_else(|_| self.write())
    }

    fn write(&self) -> Result<(), WriteError> {
        let slices: Vec<IoSlice<'_>> = self.buffers.iter().map(|b| IoSlice::new(b.bytes())).collect();
        self.leaf.write_queued(&slices, self.offset, self.submitted.elapsed())
    }
}

/// The writes to one leaf.
#[derive(Default)]
struct Lane {
    /// In the order in which they were handed over, each with its number among all.
    waiting: VecDeque<(u64, Job)>,
    /// Threads that write to the leaf now.
    active: usize,
}

#[derive(Default)]
struct Flight {
    /// By guid of the leaf.
    lanes: BTreeMap<u64, Lane>,
    /// Jobs handed over so far.
    handed_over: u64,
    /// Bytes that wait or are being written.
    bytes: usize,
    error: Option<WriteError>,
    /// No further write will come.
    ended: bool,
}

impl Flight {
    fn add(&mut self, job: Job) {
        self.bytes += job.len;
        let number = self.handed_over;
        self.handed_over += 1;
        self.lanes.entry(job.leaf.guid).or_default().waiting.push_back((number, job));
    }

    /// The oldest write of those leaves that the fewest threads write to.
    fn take(&mut self) -> Option<Job> {
        let waits = |lane: &&mut Lane| !lane.waiting.is_empty();
        let order = |lane: &&mut Lane| (lane.active, lane.waiting.front().map(|(number, _)| *number));
        let lane = self.lanes.values_mut().filter(waits).min_by_key(order)?;
        lane.active += 1;
        lane.waiting.pop_front().map(|(_, job)| job)
    }

    /// A thread has ended its write of `len` bytes to the leaf.
    fn landed(&mut self, leaf: u64, len: usize) {
        self.bytes -= len;
        if let Some(lane) = self.lanes.get_mut(&leaf) {
            lane.active -= 1;
            if lane.active == 0 && lane.waiting.is_empty() {
                self.lanes.remove(&leaf);
            }
        }
    }
}

struct Shared {
    flight: RankedMutex<Flight>,
    /// Wakes writing threads: there is work, or the queue ends.
    work: Condvar,
    /// Wakes threads that wait for room, or for all writes.
    landed: Condvar,
    deflate: Arc<Deflate>,
    suspension: Arc<Suspension>,
    tree: Arc<Tree>,
}

impl Shared {
    fn lock(&self) -> MutexHeld<'_, Flight> {
        self.flight.lock()
    }

    /// Reports whether the disks keep up.
    fn tell(&self, flight: &Flight) {
        self.deflate.set_saturated(flight.bytes > SATURATED);
    }

    fn wait_for_landing<'a>(&self, flight: MutexHeld<'a, Flight>) -> MutexHeld<'a, Flight> {
        Shared::wait(&self.landed, flight)
    }

    fn wait<'a>(on: &Condvar, flight: MutexHeld<'a, Flight>) -> MutexHeld<'a, Flight> {
        flight.wait(|flight| on.wait(flight).expect("no code panics while holding the flight lock"))
    }

    /// The next write for a thread; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut flight = self.lock();
        loop {
            if let Some(job) = flight.take() {
                return Some(job);
            }
            if flight.ended {
                return None;
            }
            flight = Shared::wait(&self.work, flight);
        }
    }

    /// The work of a thread, until the queue ends.
    fn work(&self) {
        while let Some(job) = self.next() {
            job.leaf.meter.dequeued();
            let (leaf, len) = (job.leaf.guid, job.len);
            let result = job.run(self);
            let mut flight = self.lock();
            flight.landed(leaf, len);
            self.tell(&flight);
            if let Err(error) = result {
                flight.error.get_or_insert(error);
            }
            self.landed.notify_all();
        }
    }
}

/// The threads that write to disks.
pub(crate) struct IoQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl IoQueue {
    /// At least `threads` threads, and one for each leaf; `threads` = 0 writes on the caller's thread, in order.
    ///
    /// # Panics
    /// If the system gives no threads.
    pub(crate) fn new(
        threads: usize,
        deflate: Arc<Deflate>,
        suspension: Arc<Suspension>,
        tree: Arc<Tree>,
    ) -> IoQueue {
        let leaves = tree.vdevs().leaves().count();
        let count = if threads == 0 { 0 } else { leaves.clamp(threads, THREADS_MAX.max(threads)) };
        let (work, landed) = (Condvar::new(), Condvar::new());
        let flight = RankedMutex::new(Rank::Flight, Flight::default());
        let shared = Arc::new(Shared { flight, work, landed, deflate, suspension, tree });
        let spawn = |i| {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(format!("cenote-io-{i}"))
                .spawn(move || shared.work())
                .expect("the system starts a handful of threads")
        };
        IoQueue { threads: (0..count).map(spawn).collect(), shared }
    }

    /// Hands a write over. Waits while too much is under way.
    ///
    /// # Errors
    /// Of this write where no threads write, else of an earlier one.
    pub(crate) fn submit(&self, job: Job) -> Result<(), WriteError> {
        if self.threads.is_empty() {
            return job.run(&self.shared);
        }
        let mut flight = self.shared.lock();
        while flight.bytes > 0 && flight.bytes + job.len > IN_FLIGHT_MAX {
            flight = self.shared.wait_for_landing(flight);
        }
        if let Some(error) = flight.error.take() {
            return Err(error);
        }
        job.leaf.meter.enqueued();
        flight.add(job);
        self.shared.tell(&flight);
        drop(flight);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Waits until all that was handed over is written.
    ///
    /// # Errors
    /// The first that a device gave since the last call.
    pub(crate) fn drain(&self) -> Result<(), WriteError> {
        let mut flight = self.shared.lock();
        while flight.bytes > 0 {
            flight = self.shared.wait_for_landing(flight);
        }
        flight.error.take().map_or(Ok(()), Err)
    }
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was already reported by the thread itself; dropping must not panic again.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Script;

    #[test]
    fn a_thread_takes_the_oldest_write_of_the_leaves_that_the_fewest_threads_write_to() {
        let script = Script::new();
        let leaves: Vec<Leaf> =
            (0..3).map(|n| Leaf::new(n, Arc::new(script.disk(format!("disk{n}"), 1 << 20)))).collect();
        let job = |leaf: &Leaf, offset| Job {
            vdev: 0,
            leaf: leaf.clone(),
            offset,
            buffers: vec![Payload::from(vec![0; 512])],
            len: 512,
            submitted: Instant::now(),
        };
        let mut flight = Flight::default();
        for (leaf, offset) in [(0, 0), (0, 512), (0, 1024), (1, 0), (1, 512), (2, 0)] {
            flight.add(job(&leaves[leaf], offset));
        }
        let mut take = || flight.take().map(|job| (job.leaf.guid, job.offset));
        // If no thread writes, the oldest is taken. Then each leaf once before any leaf twice.
        assert_eq!([take(), take(), take()], [Some((0, 0)), Some((1, 0)), Some((2, 0))]);
        assert_eq!([take(), take()], [Some((0, 512)), Some((1, 512))]);
        // Leaf 2 has nothing more to do; the end of a write to leaf 0 changes nothing for the order within the leaf.
        flight.landed(0, 512);
        assert_eq!(flight.take().map(|job| (job.leaf.guid, job.offset)), Some((0, 1024)));
        assert!(flight.take().is_none());
        for leaf in [0, 0, 1, 1, 2] {
            flight.landed(leaf, 512);
        }
        assert_eq!(flight.bytes, 0);
        assert!(flight.lanes.is_empty(), "leaves without writes are forgotten");
    }
}

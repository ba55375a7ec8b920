//! Threads for pure work: compress, checksum, decompress. Results come back in the order of the input.
//!
//! From:   a stream of items and a function without side effects.
//! To:     the caller's thread, which alone decides, allocates and moves pointers.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::available_parallelism;

use crossbeam_channel::unbounded;

/// The behaviour of the caller of [`Workers::map_ordered`] while results are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Takes items too: right where an item waits for a device, which other threads than the workers may do as well.
    Works,
    /// Waits, unless it is a worker: right for compression, where one thread more than cores only drives the
    /// others' tables out of the caches (docs/performance.md).
    Waits,
}

/// A fixed set of threads, shared by all work of a pool.
pub struct Workers {
    threads: rayon::ThreadPool,
}

impl Workers {
    /// Starts `count` threads with this name; 0 means one per core.
    ///
    /// # Panics
    /// If the system gives no threads.
    #[must_use]
    pub fn new(name: &'static str, count: usize) -> Workers {
        let count = if count == 0 { available_parallelism().map_or(1, usize::from) } else { count };
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(move |index| format!("{name}-{index}"))
            .build()
            .expect("the system gives a few threads");
        Workers { threads }
    }

    /// Number of threads.
    #[must_use]
    pub fn count(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Lets a worker do `job` when one has time. A panic in it goes no further: its result is just not there.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.threads.spawn(move || {
            let _ = catch_unwind(AssertUnwindSafe(job));
        });
    }

    /// Applies `f` to every item on the worker threads and hands the results to `sink`, in the order of the
    /// items, on the calling thread. If `caller` says so, the calling thread computes too while it has nothing
    /// else to do. At most `window` items are taken from `items` and not yet through `sink`. A call costs no
    /// thread; a few per txg are free.
    ///
    /// # Errors
    /// The first error of `sink`; no further item is taken or computed then.
    ///
    /// # Panics
    /// A panic of `f` continues in the calling thread when its item's turn comes. If `window` is 0.
    pub fn map_ordered<T, R, E>(
        &self,
        caller: Caller,
        items: impl IntoIterator<Item = T>,
        window: usize,
        f: impl Fn(T) -> R + Sync,
        mut sink: impl FnMut(R) -> Result<(), E>,
    ) -> Result<(), E>
    where
        T: Send,
        R: Send,
    {
        assert!(window > 0, "work needs at least one item in flight");
        let mut items = items.into_iter();
        let (todo, work) = unbounded::<(u64, T)>();
        let (done, results) = unbounded();
        let compute_next = || {
            let Ok((number, item)) = work.try_recv() else { return false };
            // A receiver that is gone has an error to report and needs no more results.
            let _ = done.send((number, catch_unwind(AssertUnwindSafe(|| f(item)))));
            true
        };
        // Drops work that has not begun, on every exit: the scope waits only for work that is being computed.
        struct Abandon<'a, W>(&'a crossbeam_channel::Receiver<W>);
        impl<W> Drop for Abandon<'_, W> {
            fn drop(&mut self) {
                while self.0.try_recv().is_ok() {}
            }
        }
        let compute_next = &compute_next;
        // All workers could be waiting in here, each for the others.
        let helps = caller == Caller::Works || self.threads.current_thread_index().is_some();
        self.threads.in_place_scope(|scope| {
            let _abandon = Abandon(&work);
            let (mut taken, mut sunk) = (0u64, 0u64);
            let mut early = BTreeMap::new(); // Results whose turn has not come.
            loop {
                while taken - sunk < window as u64 {
                    let Some(item) = items.next() else { break };
                    todo.send((taken, item)).expect("the receiver lives as long as this call");
                    taken += 1;
                    scope.spawn(move |_| {
                        compute_next();
                    });
                }
                if taken == sunk {
                    return Ok(());
                }
                early.extend(results.try_iter());
                match early.remove(&sunk) {
                    Some(Ok(result)) => {
                        sunk += 1;
                        sink(result)?;
                    }
                    Some(Err(panic)) => resume_unwind(panic),
                    None if helps && compute_next() => {}
                    None => {
                        let (number, result) = results.recv().expect("a sender lives as long as this call");
                        early.insert(number, result);
                    }
                }
            }
        })
    }
}

impl Default for Workers {
    fn default() -> Self {
        Workers::new("worker", 0)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({} threads)", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn nap(i: u64) {
        std::thread::sleep(Duration::from_micros(i * 7919 % 300));
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let workers = Workers::new("worker", 4);
        for (count, window) in [(0, 1), (1, 1), (500, 1), (500, 7), (500, 1000)] {
            let mut seen = Vec::new();
            let mul = |i| {
                nap(i);
                i * 3
            };
            workers
                .map_ordered(Caller::Works, 0..count, window, mul, |i| {
                    seen.push(i);
                    Ok::<_, Infallible>(())
                })
                .unwrap();
            assert!(seen.into_iter().eq((0..count).map(|i| i * 3)));
        }
    }

    #[test]
    fn the_first_error_of_the_sink_ends_the_work() {
        let workers = Workers::new("worker", 2);
        let computed = AtomicUsize::new(0);
        let count = |i: u64| {
            computed.fetch_add(1, Ordering::Relaxed);
            i
        };
        let result =
            workers.map_ordered(Caller::Works, 0.., 8, count, |i| if i == 20 { Err(i) } else { Ok(()) });
        assert_eq!(result, Err(20));
        assert!(computed.into_inner() <= 28);
    }

    #[test]
    fn no_more_than_a_window_of_items_is_in_flight() {
        let workers = Workers::new("worker", 3);
        let (taken, sunk) = (Cell::new(0), Cell::new(0));
        let items = (0..300u64).inspect(|_| {
            taken.set(taken.get() + 1);
            assert!(taken.get() - sunk.get() <= 5);
        });
        workers
            .map_ordered(Caller::Works, items, 5, nap, |()| {
                sunk.set(sunk.get() + 1);
                Ok::<_, Infallible>(())
            })
            .unwrap();
        assert_eq!(sunk.get(), 300);
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller_and_the_threads_live_on() {
        let workers = Workers::new("worker", 2);
        let hurt = |i: u64| assert_ne!(i, 13, "unlucky");
        let caught = catch_unwind(AssertUnwindSafe(|| {
            workers.map_ordered(Caller::Works, 0..100, 4, hurt, |()| Ok::<_, Infallible>(()))
        }));
        assert!(caught.is_err());
        workers.map_ordered(Caller::Works, 20..40, 4, hurt, |()| Ok::<_, Infallible>(())).unwrap();
    }

    #[test]
    fn borrowed_data_may_be_used_and_calls_may_nest() {
        let workers = Workers::new("worker", 1);
        let table = [1u64, 2, 3];
        let mut sum = 0;
        let inner = |i: usize| {
            let mut inner_sum = 0;
            workers
                .map_ordered(
                    Caller::Works,
                    table.iter(),
                    2,
                    |x| x * i as u64,
                    |x| {
                        inner_sum += x;
                        Ok::<_, Infallible>(())
                    },
                )
                .unwrap();
            inner_sum
        };
        workers
            .map_ordered(Caller::Works, 0..10, 3, inner, |x| {
                sum += x;
                Ok::<_, Infallible>(())
            })
            .unwrap();
        assert_eq!(sum, 45 * 6);
    }

    #[test]
    fn the_work_is_shared_by_several_threads() {
        let workers = Workers::new("worker", 2);
        assert_eq!(workers.count(), 2);
        let mut threads = std::collections::HashSet::new();
        // The first item takes until a second one was begun, however long that is on a busy machine.
        let begun = AtomicUsize::new(0);
        let busy = |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            let until = std::time::Instant::now() + Duration::from_secs(120);
            while begun.load(Ordering::SeqCst) < 2 && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            std::thread::current().id()
        };
        workers
            .map_ordered(Caller::Works, 0..50, 10, busy, |id| {
                threads.insert(id);
                Ok::<_, Infallible>(())
            })
            .unwrap();
        assert!(threads.len() >= 2);
    }
}

//! Work on several threads whose results come in order.

use std::collections::BTreeMap;

use crossbeam_channel::bounded;

/// Items taken and not yet through, per thread.
const AHEAD: usize = 16;

/// Applies `f` to every item on one thread per core and hands the results to `sink`, in the order of the items.
/// The threads are their own: `f` may use the workers of a pool, which must not wait for one another.
///
/// # Errors
/// The first error of `sink`; no further item is taken then.
pub fn map<T: Send, R: Send, E>(
    items: impl Iterator<Item = T> + Send,
    f: impl Fn(T) -> R + Sync,
    mut sink: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let f = &f;
    std::thread::scope(|scope| {
        let (jobs, taken) = bounded(threads);
        let (results, done) = bounded(threads * AHEAD);
        // One token for each item under way: a slow item does not let the others pile up.
        let (start, started) = bounded(threads * AHEAD);
        scope.spawn(move || {
            for item in items.enumerate() {
                if start.send(()).is_err() || jobs.send(item).is_err() {
                    return;
                }
            }
        });
        for _ in 0..threads {
            let (taken, results) = (taken.clone(), results.clone());
            scope.spawn(move || {
                for (number, item) in taken {
                    if results.send((number, f(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop((taken, results));
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        for (number, result) in &done {
            waiting.insert(number, result);
            while let Some(result) = waiting.remove(&next) {
                next += 1;
                // There is a token for each item; taking it back lets another one start.
                let _ = started.try_recv();
                if let Err(error) = sink(result) {
                    // Later sends fail because the receiver is gone, and their threads end.
                    drop((done, started));
                    return Err(error);
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_items() {
        let mut seen = Vec::new();
        let slow = |n: u64| {
            std::thread::sleep(std::time::Duration::from_micros(n * 7919 % 97));
            n
        };
        let done: Result<(), ()> = map(0..500, slow, |n| {
            seen.push(n);
            Ok(())
        });
        assert!(done.is_ok() && seen.into_iter().eq(0..500));
    }

    #[test]
    fn an_error_of_the_sink_ends_an_endless_walk() {
        assert_eq!(map(0u64.., |n| n, |n| if n < 100 { Ok(()) } else { Err(n) }), Err(100));
    }
}

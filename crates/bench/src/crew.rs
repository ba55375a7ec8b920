//! A few threads that share a list of jobs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use zpl::rank::RankedMutex;

use crate::{Error, Result, Watch};

/// Runs jobs `0..count` on up to `threads` threads, each once, started in order. Stops at the first error, and between jobs
/// when the caller wants to stop.
pub(crate) fn share(
    threads: u32,
    count: usize,
    watch: &dyn Watch,
    job: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let first_error = RankedMutex::leaf(None);
    let work = || {
        while !over.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let done = if watch.stopped() { Err(Error::Interrupted) } else { job(index) };
            if let Err(error) = done {
                over.store(true, Ordering::Relaxed);
                first_error.lock().get_or_insert(error);
            }
        }
    };
    let helpers = (threads as usize).min(count).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(work);
        }
        work();
    });
    match first_error.into_inner() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Deaf;

    #[test]
    fn every_job_is_done_once() {
        let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        share(4, done.len(), &Deaf, |index| {
            done[index].fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn the_first_error_ends_the_work() {
        let failed =
            share(2, 1_000_000, &Deaf, |index| if index == 3 { Err(Error::EmptyList("a")) } else { Ok(()) });
        assert!(matches!(failed, Err(Error::EmptyList("a"))));
        assert!(share(2, 0, &Deaf, |_| Err(Error::EmptyList("a"))).is_ok());
    }
}

//! Times of a measurement: what the clock shows and what the processor did, and when enough of them were taken.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Cold reads go on until they took so long together, an odd number of them, and so many at most.
const COLD_SECONDS: f64 = 0.75;
const COLD_READS_MAX: usize = 7;

#[derive(Clone, Copy)]
pub(crate) struct Elapsed {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: f64,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { wall: Instant::now(), cpu: process_cpu_seconds() }
    }

    pub(crate) fn elapsed(&self) -> Elapsed {
        // At least a microsecond: rates are quotients.
        Elapsed {
            seconds: micros(self.wall.elapsed().as_secs_f64()).max(1e-6),
            cpu_seconds: micros(process_cpu_seconds() - self.cpu),
        }
    }
}

/// Whole microseconds: the digits behind them are noise.
pub(crate) fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// CPU time of this process so far.
pub(crate) fn process_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Whether cold reads were enough for their median to be steady.
pub(crate) fn is_enough(reads: &[Elapsed]) -> bool {
    let seconds: f64 = reads.iter().map(|read| read.seconds).sum();
    reads.len() >= COLD_READS_MAX || (seconds >= COLD_SECONDS && reads.len() % 2 == 1)
}

/// The one in the middle by its time.
///
/// # Panics
/// If there are none.
pub(crate) fn middle(reads: &mut [Elapsed]) -> Elapsed {
    reads.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    reads[reads.len() / 2]
}

//! Times of a measurement: wall-clock and CPU time, and the rule for enough repetitions.

use std::time::Instant;

use procfs::CurrentSI as _;
use rustix::time::{ClockId, clock_gettime};

/// Reads go on until they took so long together, an odd number of them, and so many at most.
const READ_SECONDS: f64 = 0.75;
const READS_MAX: usize = 7;

#[derive(Clone, Copy)]
pub(crate) struct Elapsed {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

/// CPU seconds so far of the threads or processes that do the work.
pub(crate) type CpuClock = fn() -> f64;

pub(crate) struct Stopwatch {
    wall: Instant,
    clock: CpuClock,
    cpu: f64,
}

impl Stopwatch {
    pub(crate) fn start(clock: CpuClock) -> Stopwatch {
        Stopwatch { wall: Instant::now(), clock, cpu: clock() }
    }

    pub(crate) fn elapsed(&self) -> Elapsed {
        // At least a microsecond: rates are quotients.
        Elapsed {
            seconds: micros(self.wall.elapsed().as_secs_f64()).max(1e-6),
            cpu_seconds: micros((self.clock)() - self.cpu),
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

/// CPU time of the whole machine so far, in hundredths of seconds: a file system of the kernel compresses and writes in
/// threads of the kernel, which belong to no process. Time taken by the hypervisor is not counted.
pub(crate) fn machine_cpu_seconds() -> f64 {
    let ticks = procfs::KernelStats::current().map_or(0, |stat| {
        let cpu = stat.total;
        cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0)
    });
    ticks as f64 / procfs::ticks_per_second().max(1) as f64
}

/// Whether reads were enough for their median to be steady.
pub(crate) fn is_enough(reads: &[Elapsed]) -> bool {
    let seconds: f64 = reads.iter().map(|read| read.seconds).sum();
    reads.len() >= READS_MAX || (seconds >= READ_SECONDS && reads.len() % 2 == 1)
}

/// The one in the middle by its time.
///
/// # Panics
/// If there are none.
pub(crate) fn middle(reads: &mut [Elapsed]) -> Elapsed {
    reads.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    reads[reads.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads of the kernel and of other processes are work, too.
    #[test]
    fn the_clock_of_the_machine_counts_what_others_do() {
        let counted = || {
            let (machine, own) =
                (Stopwatch::start(machine_cpu_seconds), Stopwatch::start(process_cpu_seconds));
            let spin = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
            let other = std::process::Command::new("sh").args(["-c", spin]).status().unwrap();
            assert!(other.success());
            let (machine, own) = (machine.elapsed().cpu_seconds, own.elapsed().cpu_seconds);
            println!("the machine worked for {machine} s, this process for {own} s of them");
            machine >= own + 0.05
        };
        // One of the clocks goes in steps, and knows nothing of time that a host takes from the machine.
        assert!((0..20).any(|_| counted()));
    }
}

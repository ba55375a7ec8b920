//! CPU and devices while something is measured, once a second and at the borders of its phases.
//!
//! From:   `/proc/stat` for all processors, `/proc/self/io` for what devices did for this process,
//!         `/proc/self/stat` for its own CPU time.
//! To:     [`Tick`]s, whose byte counts add up to those of the system.

use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{Phase, Tick};
use procfs::CurrentSI as _;
use procfs::process::Process;
use zpl::rank::{MutexHeld, RankedMutex};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// More are merged, so that a measurement of hours has a picture of a page.
const TICKS_MAX: usize = 400;
/// The system counts CPU time in hundredths of seconds: shorter intervals say nothing about shares.
const SHORTEST_SECONDS: f64 = 0.02;
/// The parts of a measurement, in order.
pub(crate) const PHASES: [&str; 7] = ["write", "sync", "settle", "read", "warm read", "verify", "steps"];

/// Counters since the system, or this process, began.
#[derive(Clone, Copy, Default)]
struct Counters {
    /// Ticks of the clock, summed over all processors.
    user: u64,
    system: u64,
    idle: u64,
    wait: u64,
    /// Seconds.
    own: f64,
    read_bytes: u64,
    write_bytes: u64,
}

impl Counters {
    /// The counters as they are now; one that the system does not have stays 0.
    fn now() -> Counters {
        let mut counters = Counters { own: crate::stopwatch::process_cpu_seconds(), ..Counters::default() };
        if let Ok(stat) = procfs::KernelStats::current() {
            let total = stat.total;
            let more = |part: Option<u64>| part.unwrap_or(0);
            counters.user = total.user + total.nice;
            counters.system = total.system + more(total.irq) + more(total.softirq) + more(total.steal);
            counters.idle = total.idle;
            counters.wait = more(total.iowait);
        }
        if let Ok(io) = Process::myself().and_then(|me| me.io()) {
            counters.read_bytes = io.read_bytes;
            counters.write_bytes = io.write_bytes;
        }
        counters
    }
}

struct State {
    began: Instant,
    last_at: Instant,
    last: Counters,
    phase: &'static str,
    ticks: Vec<Tick>,
    over: bool,
}

impl State {
    /// Ends a tick now. A very short one at the end of a phase is added to the one before, if that is of the same phase.
    fn tick(&mut self) {
        let (at, now) = (Instant::now(), Counters::now());
        let seconds = (at - self.last_at).as_secs_f64();
        let spent = |of: fn(&Counters) -> u64| of(&now).saturating_sub(of(&self.last)) as f64;
        let parts = [spent(|c| c.user), spent(|c| c.system), spent(|c| c.idle), spent(|c| c.wait)];
        let all = parts.iter().sum::<f64>().max(1.0);
        let [user, system, idle, wait] = parts.map(|part| tenths(part / all * 100.0));
        let per_second = procfs::ticks_per_second().max(1) as f64;
        self.ticks.push(Tick {
            at: millis((at - self.began).as_secs_f64()),
            seconds: millis(seconds),
            phase: self.phase.to_owned(),
            user,
            system,
            idle,
            wait,
            own_seconds: millis(now.own - self.last.own),
            busy_seconds: millis((parts[0] + parts[1]) / per_second),
            read_bytes: now.read_bytes.saturating_sub(self.last.read_bytes),
            write_bytes: now.write_bytes.saturating_sub(self.last.write_bytes),
        });
        (self.last_at, self.last) = (at, now);
        if self.ticks.len() > TICKS_MAX {
            self.ticks = halved(std::mem::take(&mut self.ticks));
        }
    }
}

fn millis(seconds: f64) -> f64 {
    (seconds.max(0.0) * 1e3).round() / 1e3
}

fn tenths(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

/// Neighbours of the same phase become one.
fn halved(ticks: Vec<Tick>) -> Vec<Tick> {
    let mut kept: Vec<Tick> = Vec::with_capacity(ticks.len() / 2 + PHASES.len());
    let mut may_join = false;
    for tick in ticks {
        match kept.last_mut() {
            Some(last) if may_join && last.phase == tick.phase => {
                join(last, &tick);
                may_join = false;
            }
            _ => {
                kept.push(tick);
                may_join = true;
            }
        }
    }
    kept
}

fn join(first: &mut Tick, second: &Tick) {
    let all = (first.seconds + second.seconds).max(1e-3);
    let mean = |a: f64, b: f64| tenths((a * first.seconds + b * second.seconds) / all);
    *first = Tick {
        at: second.at,
        seconds: millis(all),
        phase: first.phase.clone(),
        user: mean(first.user, second.user),
        system: mean(first.system, second.system),
        idle: mean(first.idle, second.idle),
        wait: mean(first.wait, second.wait),
        own_seconds: millis(first.own_seconds + second.own_seconds),
        busy_seconds: millis(first.busy_seconds + second.busy_seconds),
        read_bytes: first.read_bytes + second.read_bytes,
        write_bytes: first.write_bytes + second.write_bytes,
    };
}

/// Looks at the machine until it is dropped.
pub(crate) struct Sampler {
    shared: Arc<(RankedMutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins to look; without a thread to do it, only the borders of phases are seen.
    pub(crate) fn start() -> Sampler {
        let now = Instant::now();
        let state = State {
            began: now,
            last_at: now,
            last: Counters::now(),
            phase: PHASES[0],
            ticks: Vec::new(),
            over: false,
        };
        let shared = Arc::new((RankedMutex::leaf(state), Condvar::new()));
        let looks_at = shared.clone();
        let thread = std::thread::Builder::new().name("cenote-sampler".into()).spawn(move || {
            let (state, changed) = &*looks_at;
            let mut state = state.lock();
            while !state.over {
                let left = INTERVAL.saturating_sub(state.last_at.elapsed());
                if left.is_zero() {
                    state.tick();
                } else {
                    state = state.wait(|state| {
                        changed.wait_timeout(state, left).expect("no code panics while holding the ticks").0
                    });
                }
            }
        });
        Sampler { shared, thread: thread.ok() }
    }

    fn state(&self) -> MutexHeld<'_, State> {
        self.shared.0.lock()
    }

    /// A new phase begins.
    pub(crate) fn phase(&self, phase: &'static str) {
        let mut state = self.state();
        if state.last_at.elapsed().as_secs_f64() > 1e-3 {
            state.tick();
        }
        state.phase = phase;
    }

    /// Ends; returns what was seen.
    pub(crate) fn finish(self) -> Vec<Tick> {
        let mut state = self.state();
        state.tick();
        std::mem::take(&mut state.ticks)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.state().over = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// The processors whose time the system counts: all of the machine, although this process may be allowed to use only
/// some.
pub(crate) fn cpus() -> u32 {
    procfs::KernelStats::current()
        .map_or_else(|_| crate::configuration::cores(), |stat| stat.cpu_time.len() as u32)
}

/// Share of all CPU time that others used, without the steps of an application, whose programs count as others, too.
/// `None` where the time was too short to measure it.
pub(crate) fn others_share(ticks: &[Tick], cpus: u32) -> Option<f64> {
    let ticks = || ticks.iter().filter(|tick| tick.phase != Phase::Steps.name());
    let seconds: f64 = ticks().map(|tick| tick.seconds).sum();
    if seconds < SHORTEST_SECONDS * 10.0 {
        return None;
    }
    let others: f64 = ticks().map(|tick| tick.busy_seconds - tick.own_seconds).sum();
    Some((others / (seconds * f64::from(cpus.max(1)))).clamp(0.0, 1.0))
}

/// Bytes that devices read and wrote for this process in a phase.
pub(crate) fn bytes_in(ticks: &[Tick], phase: &str) -> (u64, u64) {
    let of = ticks.iter().filter(|tick| tick.phase == phase);
    of.fold((0, 0), |(read, written), tick| (read + tick.read_bytes, written + tick.write_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_add_up_to_the_time_and_to_the_whole_machine() {
        let sampler = Sampler::start();
        std::thread::sleep(Duration::from_millis(60));
        sampler.phase("read");
        // Time of the processor and not of the clock: a busy machine may give it little.
        let began = crate::stopwatch::process_cpu_seconds();
        while crate::stopwatch::process_cpu_seconds() - began < 0.12 {
            std::hint::spin_loop();
        }
        let ticks = sampler.finish();
        assert!(ticks.len() >= 2 && ticks[0].phase == "write" && ticks.last().unwrap().phase == "read");
        let sum: f64 = ticks.iter().map(|tick| tick.seconds).sum();
        assert!((sum - ticks.last().unwrap().at).abs() < 0.01, "{ticks:?}");
        let last = ticks.last().unwrap();
        assert!(last.own_seconds > 0.0, "{last:?}");
        let all = last.user + last.system + last.idle + last.wait;
        assert!((99.0..101.0).contains(&all) || all == 0.0, "{last:?}");
    }

    #[test]
    fn merged_ticks_keep_their_sums() {
        let tick = |n: u32, phase: &str| Tick {
            at: f64::from(n) + 1.0,
            seconds: 1.0,
            phase: phase.into(),
            user: f64::from(n % 3) * 10.0,
            read_bytes: u64::from(n),
            write_bytes: 2,
            ..Tick::default()
        };
        let ticks: Vec<Tick> = (0..9).map(|n| tick(n, if n < 4 { "write" } else { "read" })).collect();
        let fewer = halved(ticks.clone());
        assert_eq!(fewer.len(), 5);
        for phase in ["write", "read"] {
            assert_eq!(bytes_in(&ticks, phase), bytes_in(&fewer, phase));
        }
        assert_eq!(fewer.iter().map(|tick| tick.seconds).sum::<f64>(), 9.0);
    }

    /// Held to one of them, a process still sees the time of all.
    #[test]
    fn the_time_that_is_counted_is_that_of_all_processors() {
        let all = std::fs::read_to_string("/proc/stat").unwrap();
        let is_one = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
        let all = all.lines().filter(is_one).count() as u32;
        std::thread::spawn(move || {
            let allowed = rustix::thread::sched_getaffinity(None).unwrap();
            let mut one = rustix::thread::CpuSet::new();
            let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
            one.set(first);
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            assert_eq!((crate::configuration::cores(), cpus()), (1, all));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_share_of_other_processes_excludes_our_own() {
        let tick = Tick { seconds: 10.0, busy_seconds: 12.0, own_seconds: 8.0, ..Tick::default() };
        assert_eq!(others_share(std::slice::from_ref(&tick), 2), Some(0.2));
        let program = Tick { phase: "steps".into(), busy_seconds: 20.0, own_seconds: 0.0, ..tick.clone() };
        assert_eq!(others_share(&[tick, program], 2), Some(0.2), "programs of ours are no noise");
        assert_eq!(others_share(&[Tick { seconds: 0.1, ..Tick::default() }], 2), None);
    }
}

//! With devices and networks of limited speed, the report names what was waited for. This test is alone in its program,
//! because load from other tests would count as waiting.

use std::hint::black_box;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bench::{Event, Place, Plan, Report, Source, Watch};

/// Attempts to measure without a disturbance.
const ATTEMPTS: usize = 8;
/// A machine is quiet while other processes take a smaller part of its CPU time.
const QUIET: f64 = 0.05;

/// One at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct Deaf;

impl Watch for Deaf {
    fn event(&self, _: Event<'_>) {}

    fn stopped(&self) -> bool {
        false
    }
}

fn plan(dir: &Path, compressions: &[&str]) -> Plan {
    Plan {
        compressions: compressions.iter().map(|word| (*word).to_owned()).collect(),
        place: Place::Folder(dir.to_owned()),
        ..Plan::usual()
    }
}

/// A folder in memory, where there is one: a device that other programs use, too, has its own times.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A result that differs from that of a machine that is fast enough and does nothing else.
struct Otherwise {
    what: String,
    /// Other work, or a processor that is too slow for the rates of the test, explains it.
    is_explained: bool,
}

/// Repeats `attempt` until it has an undisturbed result. `attempt` itself asserts everything that follows from the
/// limits of devices alone: that holds on every machine. Other results also need a machine that keeps up with the
/// devices, so they have to come out once. A machine that never keeps up is not judged by them.
fn undisturbed(attempt: impl Fn() -> Result<(), Otherwise>) {
    let mut unexplained = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(otherwise) if otherwise.is_explained => println!("disturbed: {}", otherwise.what),
            Err(otherwise) => unexplained.push(otherwise.what),
        }
    }
    assert!(
        unexplained.len() <= ATTEMPTS / 2,
        "{} of {ATTEMPTS} attempts: {unexplained:#?}",
        unexplained.len()
    );
    println!("not judged: the machine is too busy or too slow");
}

fn is_busy(report: &Report) -> bool {
    report.runs.iter().any(|run| run.others_cpu.is_none_or(|share| share >= QUIET))
}

fn holds(what: bool, is_explained: bool, report: &Report) -> Result<(), Otherwise> {
    if what { Ok(()) } else { Err(Otherwise { what: format!("{:?}", report.runs), is_explained }) }
}

/// Nothing is faster than its device. The least part of the time that the device needs for these bytes.
const FLOOR: f64 = 0.93;
/// From this part on that the device is in use, it is what is waited for.
const SCARCE: f64 = 0.81;

/// With a slow device, all compression that saves space beats off, and the report says why. What compresses is read as
/// much faster than the device as it is smaller.
#[test]
fn a_slow_device_is_what_off_waits_for() {
    const RATE: u64 = 10 << 20;
    let _alone = ALONE.lock();
    undisturbed(|| {
        let dir = folder();
        let mut source = Source::named(&["fastq:10M".to_owned()]).unwrap();
        let device = bench::Device { write_bytes: Some(RATE), read_bytes: Some(RATE) };
        let plan = Plan { device, ..plan(dir.path(), &["off", "lz4"]) };
        let report = bench::run(&plan, &mut source, &Deaf).unwrap();
        let [off, lz4] = &report.runs[..] else { panic!("two runs") };
        let device_seconds = |run: &bench::Run| run.allocated_bytes as f64 / RATE as f64;
        for run in [off, lz4] {
            let least = FLOOR * device_seconds(run).min(run.logical_bytes as f64 / RATE as f64);
            assert!(run.write_seconds > least && run.read_seconds > least, "{least}: {run:?}");
        }
        let seconds: f64 = off.trace.iter().map(|tick| tick.seconds).sum();
        assert!((seconds - off.trace.last().unwrap().at).abs() < 0.05, "{:?}", off.trace);
        // The text of the report follows from the times, whatever they are.
        let waited = |run: &bench::Run| device_seconds(run) / run.write_seconds;
        for run in [off, lz4] {
            assert!(waited(run) < SCARCE || run.write_limit == Some(bench::Limit::Device), "{run:?}");
        }
        if waited(off) >= SCARCE && waited(lz4) >= SCARCE {
            assert!(lz4.write_seconds < off.write_seconds, "{:?}", report.runs);
        }
        let busy = is_busy(&report);
        holds(report.machine.source_in_memory, busy, &report)?;
        holds(lz4.write_seconds < off.write_seconds && waited(off) >= SCARCE, busy, &report)?;
        let through =
            |run: &bench::Run| run.read_rate() * run.allocated_bytes as f64 / run.logical_bytes as f64;
        let is_faster = lz4.read_rate() > 1.3 * off.read_rate();
        holds(through(lz4) > 0.85 * RATE as f64 && is_faster, busy, &report)
    });
}

/// A warm read copies cached data to its reader, so it takes about as long as copying so many bytes. When records were
/// only handed over, it took less than a tenth of that.
#[test]
fn a_warm_read_takes_as_long_as_a_copy() {
    const BYTES: usize = 64 << 20;
    let _alone = ALONE.lock();
    undisturbed(|| {
        let dir = folder();
        let mut source = Source::named(&[format!("noise:{BYTES}")]).unwrap();
        let plan = Plan { threads: vec![1], ..plan(dir.path(), &["off"]) };
        let report = bench::run(&plan, &mut source, &Deaf).unwrap();
        // A cache for which the machine has no memory is not read.
        let Some(warm) = report.runs[0].warm_read_seconds else { return Ok(()) };
        let (from, mut to) = (vec![7u8; BYTES], vec![0u8; 1 << 20]);
        let copy = || {
            let started = Instant::now();
            for part in from.chunks(to.len()) {
                to.copy_from_slice(black_box(part));
                black_box(&to);
            }
            started.elapsed().as_secs_f64()
        };
        // Other work makes copies longer, too: the shortest of many counts.
        let copied = std::iter::repeat_with(copy).take(25).fold(f64::INFINITY, f64::min);
        println!("read from the cache in {warm:.6} s, copied in {copied:.6} s");
        holds(warm > copied / 4.0, is_busy(&report), &report)
    });
}

/// The progress of writing: seconds since the first accepted byte, and the number of bytes accepted by then.
#[derive(Default)]
struct Accepted {
    writing: Mutex<Vec<(Instant, u64)>>,
    counts: AtomicBool,
}

impl Watch for Accepted {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Begin { .. } => self.writing.lock().unwrap().clear(),
            Event::Phase(phase) => self.counts.store(phase == bench::Phase::Write, Ordering::Relaxed),
            Event::Bytes(bytes) if self.counts.load(Ordering::Relaxed) => {
                let mut writing = self.writing.lock().unwrap();
                let before = writing.last().map_or(0, |(_, bytes)| *bytes);
                writing.push((Instant::now(), before + bytes));
            }
            _ => {}
        }
    }

    fn stopped(&self) -> bool {
        false
    }
}

/// Behind a network of 100 MB/s and before a disk of 15 MB/s, a writer is held up where the model says.
#[test]
fn writing_slows_down_at_the_predicted_byte() {
    let _alone = ALONE.lock();
    undisturbed(|| {
        let (network, disk, dirty_max) = (100_000_000, 15_000_000, 48 << 20);
        let dir = folder();
        let mut source = Source::named(&["noise:80M".to_owned()]).unwrap();
        let plan = Plan {
            network: Some(network),
            device: bench::Device { write_bytes: Some(disk), read_bytes: None },
            dirty_max: Some(dirty_max),
            ..plan(dir.path(), &["off"])
        };
        let accepted = Accepted::default();
        let report = bench::run(&plan, &mut source, &accepted).unwrap();
        let run = &report.runs[0];
        let (network, disk) = (network as f64, disk as f64);
        let foretold = bench::knee_bytes(dirty_max, 60, 128 << 10, network, disk).unwrap() as f64;
        const SPAN: u64 = 8 << 20;
        let writing = accepted.writing.lock().unwrap();
        let since = |at: &Instant| at.duration_since(writing[0].0).as_secs_f64();
        // However slow the machine is: no more is accepted than was stored by then and may be dirty.
        for (at, bytes) in writing.iter() {
            let most = disk * since(at) / FLOOR + (dirty_max + SPAN) as f64;
            assert!(*bytes as f64 <= most, "{bytes} bytes after {} s", since(at));
        }
        assert!(run.write_seconds > FLOOR * run.logical_bytes as f64 / disk, "{run:?}");
        let rate_from = |begin: &Instant, from: u64| {
            let (end, until) = writing.iter().find(|(_, until)| *until >= from + SPAN)?;
            Some((until - from) as f64 / end.duration_since(*begin).as_secs_f64())
        };
        // The first 8 MiB that take longer than in the middle between both rates.
        let held_up = writing.iter().find_map(|(begin, from)| {
            (rate_from(begin, *from)? < (network + disk) / 2.0).then_some(*from as f64)
        });
        // The network brings the beginning at its rate, and the disk is never idle, unless something else keeps them waiting.
        let first = rate_from(&writing[0].0, writing[0].1).unwrap_or(0.0);
        let is_late = first < 0.9 * network || run.write_seconds > 1.1 * run.logical_bytes as f64 / disk;
        let explained = is_late || is_busy(&report);
        let measured = held_up.unwrap_or(f64::INFINITY) + 0.75 * SPAN as f64;
        println!("knee foretold {foretold:.0}, measured {measured:.0}");
        holds((foretold / measured - 1.0).abs() < 0.15, explained, &report).map_err(|otherwise| {
            Otherwise {
                what: format!("foretold {foretold}, measured {measured}: {}", otherwise.what),
                ..otherwise
            }
        })?;
        holds(run.accepted_limit == Some(bench::Limit::DirtyLimit), explained, &report)?;
        holds(run.write_limit == Some(bench::Limit::Device), explained, &report)?;
        holds(run.read_limit == Some(bench::Limit::Network), explained, &report)
    });
}

//! With devices and networks of limited speed, the report names what was waited for. This test is alone in its program,
//! because load from other tests would count as waiting.

use std::hint::black_box;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::{Event, Place, Plan, Report, Source, Watch};

/// How long an attempt without disturbance is waited for: other work may last.
const PATIENCE: Duration = Duration::from_secs(240);

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

/// Other work on the machine can only make a time longer, so the first undisturbed attempt counts.
fn undisturbed(attempt: impl Fn() -> Result<(), String>) {
    let began = Instant::now();
    let Err(first) = attempt() else { return };
    let mut attempts = 1;
    while attempts < 8 || began.elapsed() < PATIENCE {
        if attempt().is_ok() {
            return;
        }
        attempts += 1;
    }
    panic!("none of {attempts} attempts; the first: {first}");
}

fn holds(what: bool, report: &Report) -> Result<(), String> {
    if what { Ok(()) } else { Err(format!("{:?}", report.runs)) }
}

/// Behind a slow device whatever compresses beats off, and the report says why. What compresses is read as
/// much faster than the device as it is smaller.
#[test]
fn a_slow_device_is_what_off_waits_for() {
    let _alone = ALONE.lock();
    undisturbed(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut source = Source::named(&["fastq:24M".to_owned()]).unwrap();
        let device = bench::Device { write_bytes: Some(30 << 20), read_bytes: Some(30 << 20) };
        let plan = Plan { device, ..plan(dir.path(), &["off", "lz4"]) };
        let report = bench::run(&plan, &mut source, &Deaf).unwrap();
        let [off, lz4] = &report.runs[..] else { panic!("two runs") };
        assert!(off.write_seconds > 0.75 && off.read_seconds > 0.75, "{off:?}");
        // What follows from the times alone may be disturbed.
        assert!(report.machine.source_in_memory, "only the target is measured");
        let seconds: f64 = off.trace.iter().map(|tick| tick.seconds).sum();
        assert!((seconds - off.trace.last().unwrap().at).abs() < 0.05, "{:?}", off.trace);
        let through =
            |run: &bench::Run| run.read_rate() * run.allocated_bytes as f64 / run.logical_bytes as f64;
        holds(lz4.write_seconds < off.write_seconds, &report)?;
        holds(off.write_limit == Some(bench::Limit::Device), &report)?;
        holds(through(lz4) > 0.85 * f64::from(30 << 20) && lz4.read_rate() > 1.3 * off.read_rate(), &report)
    });
}

/// What the cache has is copied to its reader: that takes about as long as copying so many bytes does. When records were only
/// handed over, it took less than a tenth of it.
#[test]
fn a_warm_read_takes_as_long_as_a_copy() {
    const BYTES: usize = 64 << 20;
    let _alone = ALONE.lock();
    undisturbed(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut source = Source::named(&[format!("noise:{BYTES}")]).unwrap();
        let plan = Plan { threads: vec![1], ..plan(dir.path(), &["off"]) };
        let report = bench::run(&plan, &mut source, &Deaf).unwrap();
        let (from, mut to) = (vec![7u8; BYTES], vec![0u8; 1 << 20]);
        let copy = || {
            let started = Instant::now();
            for part in from.chunks(to.len()) {
                to.copy_from_slice(black_box(part));
                black_box(&to);
            }
            started.elapsed().as_secs_f64()
        };
        let copied = std::iter::repeat_with(copy).take(9).fold(f64::INFINITY, f64::min);
        let warm = report.runs[0].warm_read_seconds.expect("the cache holds it");
        println!("read from the cache in {warm:.6} s, copied in {copied:.6} s");
        holds(warm > copied / 4.0, &report)
    });
}

/// When bytes were accepted while writing: seconds since the first of them, and how many by then.
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
fn the_knee_of_a_throttled_disk_is_where_the_limit_and_the_rates_say() {
    let _alone = ALONE.lock();
    undisturbed(|| {
        let (network, disk, dirty_max) = (100_000_000, 15_000_000, 48 << 20);
        let dir = tempfile::tempdir().unwrap();
        let mut source = Source::named(&["noise:80M".to_owned()]).unwrap();
        let plan = Plan {
            network: Some(network),
            device: bench::Device { write_bytes: Some(disk), read_bytes: None },
            dirty_max: Some(dirty_max),
            ..plan(dir.path(), &["off"])
        };
        let accepted = Accepted::default();
        let report = bench::run(&plan, &mut source, &accepted).unwrap();
        let foretold =
            bench::knee_bytes(dirty_max, 60, 128 << 10, network as f64, disk as f64).unwrap() as f64;
        // The first 8 MiB that take longer than in the middle between both rates.
        const SPAN: u64 = 8 << 20;
        let writing = accepted.writing.lock().unwrap();
        let slow = (network + disk) as f64 / 2.0;
        let held_up = writing.iter().find_map(|(begin, from)| {
            let (end, until) = writing.iter().find(|(_, until)| *until >= from + SPAN)?;
            let rate = (until - from) as f64 / end.duration_since(*begin).as_secs_f64();
            (rate < slow).then_some(*from as f64)
        });
        let measured = held_up.ok_or("it was not held up")? + 0.75 * SPAN as f64;
        println!("knee foretold {foretold:.0}, measured {measured:.0}");
        holds((foretold / measured - 1.0).abs() < 0.15, &report)
            .map_err(|runs| format!("foretold {foretold}, measured {measured}: {runs}"))?;
        let run = &report.runs[0];
        holds(run.accepted_limit == Some(bench::Limit::DirtyLimit), &report)?;
        holds(run.write_limit == Some(bench::Limit::Device), &report)?;
        holds(run.read_limit == Some(bench::Limit::Network), &report)
    });
}

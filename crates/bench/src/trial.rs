//! All measurements of a plan, one after the other, and their results.
//!
//! From:   a [`Plan`] and a [`Source`].
//! To:     a [`Report`]; finished runs also go to the caller's [`Watch`] and to the plan's journal.

use procfs::Current as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::application::StepSample;
use crate::configuration::{SOME_DATASET, cores};
use crate::journal::Journal;
use crate::limit::{BurstRates, Limit, Use, knee_bytes};
use crate::measure::{self, Sample, Sizes, Work, measure};
use crate::stats::{deviation, is_outlier, median};
use crate::stopwatch::{Elapsed, micros};
use crate::target::Target;
use crate::throttle::Networked;
use crate::trace::{bytes_in, cpus, others_share};
use crate::uncertain::busy;
use crate::{
    Application, Configuration, Ended, Error, Event, Machine, Place, Plan, Repetition, Report, Result, Run,
    SCHEMA, Source, Spread, StepRun, Stream, Watch, against, in_pool, recommend, shell_word, stream,
};

/// A source of up to this size is measured once before it counts, so that the machine is warm for all alike.
const WARM_UP_BYTES: u64 = 256 << 20;
/// More names than these are only counted.
const NAMES_MAX: usize = 4;
/// A median that scatters more than this part is not to be relied on.
const UNSTEADY: f64 = 0.05;

/// Measures all configurations of `plan` on `source`.
///
/// # Errors
/// See [`Error`]. Whatever was made for the measurement is gone then; what was measured by then is in [`Ended`].
pub fn run(plan: &Plan, source: &mut Source, watch: &dyn Watch) -> Result<Report, Ended> {
    let configurations = plan.configurations()?;
    if source.bytes() == 0 {
        return Err(Error::EmptyList("file").into());
    }
    source.notes().iter().for_each(|note| watch.event(Event::Note(note)));
    let largest = configurations.iter().filter_map(|c| c.total_bytes).max();
    let largest = largest.map_or_else(|| Ok(source.view()), |total| source.sized(total))?;
    plan.place.check_room(&largest, &configurations)?;
    // Steps that run twice get a copy of the files, so that both runs begin with the same.
    let copies = if plan.application.as_ref().is_some_and(Application::has_repetitions) { 2 } else { 1 };
    let needed = largest.bytes().saturating_mul(copies);
    plan.against.iter().try_for_each(|folder| against::check(folder, needed))?;
    source.load(plan.memory_bytes.unwrap_or_else(half_of_free_memory), watch)?;
    let machine = Machine::with(
        plan.place.backing(),
        source.file_count() as u64,
        source.bytes(),
        source.is_in_memory(),
    );
    let mut journal = plan.journal.as_deref().map(|path| Journal::open(path, plan, source)).transpose()?;
    let (mut runs, mut streams) = (Vec::new(), Vec::new());
    let done = Measuring { plan, journal: journal.as_mut(), runs: &mut runs, watch }
        .all(source, &configurations)
        .and_then(|()| {
            if plan.streams {
                streams = stream::compare(source, &runs, watch)?;
            }
            Ok(())
        });
    name_limits(&mut runs, plan);
    match done {
        Ok(()) => Ok(report(plan, machine, runs, streams)),
        Err(error) if runs.is_empty() => Err(error.into()),
        Err(error) => {
            let count = format!("{} of {} configurations were measured", runs.len(), configurations.len());
            let unfinished = Some(format!("{count}, then: {error}"));
            let report = Report { unfinished, ..report(plan, machine, runs, streams) };
            Err(Ended { error, report: Some(Box::new(report)) })
        }
    }
}

fn report(plan: &Plan, machine: Machine, runs: Vec<Run>, streams: Vec<Stream>) -> Report {
    let dataset = match &plan.place {
        Place::Pool { name, .. } => name,
        Place::Folder(_) => SOME_DATASET,
    };
    let totals = runs.iter().any(|run| run.total_bytes.is_some());
    let options = plan.options();
    let knee = runs.iter().filter(|_| totals).max_by_key(|run| run.logical_bytes).and_then(|longest| {
        let fastest = runs.iter().filter_map(Run::accepted_rate).fold(0.0, f64::max);
        knee_bytes(
            options.dirty_max,
            options.delay_min_dirty_percent,
            longest.recordsize,
            fastest,
            longest.write_rate(),
        )
    });
    Report {
        schema: SCHEMA,
        about: plan.about.clone(),
        machine,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        recommendation: recommend(&runs, &shell_word(dataset)),
        warnings: warnings(&runs),
        streams,
        dirty_max: totals.then_some(options.dirty_max),
        knee_bytes: knee,
        unfinished: None,
        published: plan.published.clone(),
        runs,
    }
}

/// A measurement, and where its runs are kept.
struct Measuring<'a> {
    plan: &'a Plan,
    /// Has the runs of an earlier measurement that was stopped.
    journal: Option<&'a mut Journal>,
    /// The runs that were measured, also after an error.
    runs: &'a mut Vec<Run>,
    watch: &'a dyn Watch,
}

impl Measuring<'_> {
    /// Measures those that the journal does not have yet.
    ///
    /// # Errors
    /// As [`run`].
    fn all(self, source: &Source, configurations: &[Configuration]) -> Result<()> {
        let Measuring { plan, mut journal, runs, watch } = self;
        let repeat = plan.repeat.max(1);
        let count = configurations.len() * repeat as usize;
        let begin = |configuration, index, warm_up| {
            watch.event(Event::Begin { configuration, index, count, warm_up });
        };
        let mut is_warm = !source.is_in_memory() || source.bytes() > WARM_UP_BYTES;
        for configuration in configurations {
            if let Some(run) = journal.as_ref().and_then(|journal| journal.has(configuration)) {
                watch.event(Event::Done(&run));
                runs.push(run);
                continue;
            }
            let sized = configuration.total_bytes.map(|total| source.sized(total)).transpose()?;
            let source = sized.as_ref().unwrap_or(source);
            if !is_warm {
                begin(configuration, 0, true);
                pass(plan, source, configuration, watch)?;
                is_warm = true;
            }
            let mut samples = Vec::new();
            for _ in 0..repeat {
                begin(configuration, runs.len() * repeat as usize + samples.len(), false);
                match trial(plan, source, configuration, watch) {
                    Ok(sample) => samples.push(sample),
                    Err(error) => {
                        if !samples.is_empty() {
                            runs.push(summary(configuration, source, samples));
                        }
                        return Err(error);
                    }
                }
            }
            let run = summary(configuration, source, samples);
            watch.event(Event::Done(&run));
            runs.push(run);
            if let (Some(journal), Some(run)) = (journal.as_mut(), runs.last()) {
                journal.add(configuration, run)?;
            }
        }
        Ok(())
    }
}

/// The memory that the source may take; the pool needs the rest.
fn half_of_free_memory() -> u64 {
    procfs::Meminfo::current().ok().and_then(|memory| memory.mem_available).unwrap_or(0) / 2
}

fn summary(configuration: &Configuration, source: &Source, mut samples: Vec<Sample>) -> Run {
    let values = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let middle = |of: &dyn Fn(&Sample) -> f64| micros(median(&values(of)));
    let spread = |of: &dyn Fn(&Sample) -> f64| micros(deviation(&values(of)));
    // Metadata may come out a few blocks larger or smaller: take the middle one here too.
    let mut sizes: Vec<Sizes> = samples.iter().map(|s| s.sizes).collect();
    sizes.sort_unstable();
    let Sizes { allocated_bytes, compressratio } = sizes[sizes.len() / 2];
    let repeated = samples.len() > 1;
    let (writes, reads) = (values(&|s| s.write.seconds), values(&|s| s.read.seconds));
    let repetition = |(index, s): (usize, &Sample)| Repetition {
        write_seconds: s.write.seconds,
        read_seconds: s.read.seconds,
        outlier: is_outlier(writes[index], &writes) || is_outlier(reads[index], &reads),
    };
    let warm: Vec<f64> = samples.iter().filter_map(|s| s.warm_seconds).collect();
    let run = Run {
        compression: configuration.compression.clone(),
        recordsize: configuration.recordsize,
        threads: configuration.threads,
        logical_bytes: source.bytes(),
        allocated_bytes,
        compressratio: compressratio as f64 / 100.0,
        write_seconds: middle(&|s| s.write.seconds),
        write_cpu_seconds: middle(&|s| s.write.cpu_seconds),
        read_seconds: middle(&|s| s.read.seconds),
        read_cpu_seconds: middle(&|s| s.read.cpu_seconds),
        verified: samples.iter().all(|s| s.verified),
        spread: repeated.then(|| Spread {
            repeat: samples.len() as u32,
            write_seconds: spread(&|s| s.write.seconds),
            write_cpu_seconds: spread(&|s| s.write.cpu_seconds),
            read_seconds: spread(&|s| s.read.seconds),
            read_cpu_seconds: spread(&|s| s.read.cpu_seconds),
        }),
        against: configuration.against.as_ref().map(|folder| against::name(folder)),
        total_bytes: configuration.total_bytes,
        accepted_seconds: Some(middle(&|s| s.accepted_seconds)),
        warm_read_seconds: (warm.len() == samples.len()).then(|| micros(median(&warm))),
        cold_reads: samples.last().map(|s| s.cold_reads),
        cold_device_bytes: samples
            .last()
            .map(|s| bytes_in(&s.ticks, "read").0 / u64::from(s.cold_reads.max(1))),
        warm_device_bytes: samples
            .last()
            .filter(|s| s.warm_seconds.is_some())
            .map(|s| bytes_in(&s.ticks, "warm read").0),
        // The work that a kernel's file system does in threads of the kernel is its own, no noise.
        others_cpu: samples
            .iter()
            .filter(|_| configuration.against.is_none())
            .filter_map(|s| others_share(&s.ticks, cpus()))
            .max_by(f64::total_cmp)
            .map(|share| (share * 1000.0).round() / 1000.0),
        repetitions: if repeated { samples.iter().enumerate().map(repetition).collect() } else { Vec::new() },
        steps: steps(&samples),
        ..Run::default()
    };
    let trace = samples.pop().map(|last| last.ticks).unwrap_or_default();
    Run { trace, ..run }
}

/// The medians of each step.
fn steps(samples: &[Sample]) -> Vec<StepRun> {
    let Some(first) = samples.first() else { return Vec::new() };
    let step = |(index, step): (usize, &StepSample)| {
        let values =
            |of: fn(&StepSample) -> f64| samples.iter().map(|s| of(&s.steps[index])).collect::<Vec<_>>();
        let seconds = values(|step| step.seconds);
        StepRun {
            name: step.name.clone(),
            threads: step.threads,
            seconds: micros(median(&seconds)),
            cpu_seconds: micros(median(&values(|step| step.cpu_seconds))),
            pool_cpu_seconds: micros(median(&values(|step| step.pool_cpu_seconds))),
            spread_seconds: micros(deviation(&seconds)),
        }
    };
    first.steps.iter().enumerate().map(step).collect()
}

/// Names what held each run up. The rate of the device is the given one, or the highest that any run got from it.
fn name_limits(runs: &mut [Run], plan: &Plan) {
    let written = |run: &Run| run.allocated_bytes as f64 / run.write_seconds;
    let read = |run: &Run| run.cold_device_bytes.unwrap_or(0) as f64 / run.read_seconds;
    let pools = || runs.iter().filter(|run| run.against.is_none());
    let most = |of: &dyn Fn(&Run) -> f64| pools().map(of).fold(0.0, f64::max).max(1.0);
    let write_rate = plan.device.write_bytes.map_or_else(|| most(&written), |rate| rate as f64);
    let read_rate = plan.device.read_bytes.map_or_else(|| most(&read), |rate| rate as f64);
    let network = |rate: f64| plan.network.map_or(0.0, |most| rate / most.max(1) as f64);
    let source = plan
        .network
        .map_or_else(|| runs.iter().filter_map(Run::accepted_rate).fold(0.0, f64::max), |rate| rate as f64);
    for run in runs.iter_mut().filter(|run| run.against.is_none()) {
        let share = |cpu: f64, seconds: f64| cpu / (seconds * f64::from(run.threads.min(cores()).max(1)));
        let cpu = share(run.write_cpu_seconds, run.write_seconds);
        let write = Use { cpu, device: written(run) / write_rate, network: network(run.write_rate()) };
        let cpu = share(run.read_cpu_seconds, run.read_seconds);
        let read = Use { cpu, device: read(run) / read_rate, network: network(run.read_rate()) };
        run.write_limit = Some(Limit::of(write));
        run.read_limit = Some(Limit::of(read));
        run.accepted_limit = accepted_limit(run, plan, source);
    }
}

/// The bottleneck until the writer's last write was accepted, where that is a question: for several totals, a dirty
/// limit or a network.
fn accepted_limit(run: &Run, plan: &Plan, source: f64) -> Option<Limit> {
    if run.total_bytes.is_none() && plan.dirty_max.is_none() && plan.network.is_none() {
        return None;
    }
    let options = plan.options();
    let (mean, drain) = (run.accepted_rate()?, run.write_rate());
    let percent = options.delay_min_dirty_percent;
    let knee = knee_bytes(options.dirty_max, percent, run.recordsize, source, drain);
    let knee = knee.map_or(f64::INFINITY, |bytes| bytes as f64);
    let burst = BurstRates { total: run.logical_bytes as f64, knee, mean, drain };
    let from = if plan.network.is_some() { Limit::Network } else { Limit::Cpu };
    Some(Limit::of_burst(&burst, from, run.write_limit?))
}

/// Remarks about the reliability of the times.
fn warnings(runs: &[Run]) -> Vec<String> {
    let mut warnings = Vec::new();
    let noisiest =
        runs.iter().max_by(|a, b| a.others_cpu.unwrap_or(0.0).total_cmp(&b.others_cpu.unwrap_or(0.0)));
    let share = noisiest.and_then(|run| Some((run, run.others_cpu?)));
    warnings.extend(share.and_then(|(run, share)| busy(share, Some(&run.label(runs)))));
    let unsteady = |run: &&Run| {
        let spread = run.spread.as_ref();
        spread.is_some_and(|s| {
            s.write_seconds > run.write_seconds * UNSTEADY || s.read_seconds > run.read_seconds * UNSTEADY
        })
    };
    let names: Vec<String> = runs.iter().filter(unsteady).map(|run| run.label(runs)).collect();
    if !names.is_empty() {
        let which = match names.len() {
            1..=NAMES_MAX => names.join(", "),
            count => format!("{count} of {} configurations", runs.len()),
        };
        warnings.push(format!(
            "the times of {which} differ by more than 5 % from run to run: measure more often (--repeat)"
        ));
    }
    let outliers = runs.iter().flat_map(|run| &run.repetitions).filter(|each| each.outlier).count();
    if outliers > 0 {
        let (are, s) = if outliers == 1 { ("is", "") } else { ("are", "s") };
        warnings.push(format!(
            "{outliers} measurement{s} {are} far from the others; this hardly changes the medians"
        ));
    }
    warnings
}

/// Measures once, and removes its files even after an error.
fn trial(plan: &Plan, source: &Source, configuration: &Configuration, watch: &dyn Watch) -> Result<Sample> {
    let watch = &Networked::over(watch, plan.network);
    placed(plan, source, configuration, watch, |work| measure(work, plan, watch))
}

/// Writes and reads once, and removes its files even after an error; returns both times.
///
/// # Errors
/// As [`run`].
pub(crate) fn pass(
    plan: &Plan,
    source: &Source,
    configuration: &Configuration,
    watch: &dyn Watch,
) -> Result<(Elapsed, Elapsed)> {
    placed(plan, source, configuration, watch, |work| measure::pass(work, |reads| !reads.is_empty(), watch))
}

/// Does `work` in the place of a configuration, held to its cores.
fn placed<T: Send>(
    plan: &Plan,
    source: &Source,
    configuration: &Configuration,
    watch: &dyn Watch,
    work: impl FnOnce(&mut dyn Work) -> Result<T> + Send,
) -> Result<T> {
    if let Some(folder) = &configuration.against {
        return held_to_cores(configuration.threads, || {
            against::within(folder, source, configuration, watch, work)
        });
    }
    let target = Target::new(&plan.place, source.footprint(configuration.recordsize), plan)?;
    let done = held_to_cores(configuration.threads, || {
        in_pool::within(&target, &in_pool::Job { plan, source, configuration, watch }, work)
    });
    match (done, target.remove(configuration)) {
        (done, Ok(())) => done,
        // A user who stopped the measurement knows why it ended, but not which files were not removed.
        (Ok(_) | Err(Error::Interrupted), Err(left)) => Err(left),
        (Err(error), Err(left)) => {
            watch.event(Event::Note(&left.to_string()));
            Err(error)
        }
    }
}

/// Runs `work` in a thread of its own, bound to some cores. The threads of a pool stay on the cores of the thread that
/// opens it.
fn held_to_cores<T: Send>(threads: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            hold_to_cores(threads);
            work()
        });
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Holds this thread and those it starts to `count` cores, where there are more.
fn hold_to_cores(count: u32) {
    if count >= cores() {
        return;
    }
    // A system that does not let us still measures, only with more cores than asked for.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut fewer = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .take(count as usize)
        .for_each(|cpu| fewer.set(cpu));
    let _ = sched_setaffinity(None, &fewer);
}

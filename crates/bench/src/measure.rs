//! One measurement: write, settle, read from cold caches, compare.
//!
//! From:   a [`Work`]: the source, and a pool or another file system that it goes to.
//! To:     a [`Sample`].
//!
//! What is timed:
//! - writing, from the first folder created until everything is durable. The source comes from memory where it fits.
//! - reading every byte once, from cold caches, by as many readers as there are threads. Each reader gets every byte in a
//!   buffer of its own, as `read(2)` gives it. Nothing is compared meanwhile,
//!   since comparing would take a good part of what a fast codec takes; a second pass, not timed, reads everything again
//!   in the same way and compares it with the source. Short reads are repeated several times, each from cold caches, and the
//!   median counts.
//! - reading once more, in the same way, what the caches hold, where they hold all of it.

use crate::application::StepSample;
use crate::stopwatch::{CpuClock, Elapsed, Stopwatch, is_enough, middle};
use crate::trace::Sampler;
use crate::{Application, Event, Phase, Plan, Result, Tick, Watch};

/// The result of one trial.
pub(crate) struct Sample {
    pub(crate) sizes: Sizes,
    /// Until the last write was accepted.
    pub(crate) accepted_seconds: f64,
    pub(crate) write: Elapsed,
    /// The median of [`Sample::cold_reads`] from cold caches.
    pub(crate) read: Elapsed,
    pub(crate) cold_reads: u32,
    /// The median of several; `None` where the cache is too small.
    pub(crate) warm_seconds: Option<f64>,
    pub(crate) verified: bool,
    pub(crate) steps: Vec<StepSample>,
    pub(crate) ticks: Vec<Tick>,
}

/// The space that the files take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sizes {
    pub(crate) allocated_bytes: u64,
    /// Hundredths.
    pub(crate) compressratio: u64,
}

/// A place into which the files of a source are written, and from which they are read.
pub(crate) trait Work {
    /// Whose CPU time the work takes.
    fn cpu_clock(&self) -> CpuClock;

    /// Writes all files; they need not be durable.
    fn write(&mut self) -> Result<()>;

    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;

    /// Waits until freed space is free, and returns the space in use then.
    fn settle(&mut self) -> Result<Sizes>;

    /// Makes the next reads come from devices.
    fn cool(&mut self) -> Result<()>;

    /// Reads every byte of every file into buffers of the readers.
    fn read(&mut self) -> Result<()>;

    /// Brings all files into the caches; `false` where they are too small for it.
    fn warm(&mut self) -> Result<bool>;

    /// Whether the caches answered all reads since [`Work::warm`].
    fn stayed_warm(&self) -> bool;

    /// Whether every file has the same bytes as its source.
    fn verify(&mut self) -> Result<bool>;

    /// Runs the steps of an application on the files.
    fn steps(&mut self, application: &Application) -> Result<Vec<StepSample>>;
}

/// Writes everything and reads it from cold caches, without settling or comparing: as good as a measurement to warm a
/// machine up, or to see how fast it is. Reads until `enough` of them were; returns the time of writing and the median of reading.
///
/// # Errors
/// Those of the work.
pub(crate) fn pass(
    work: &mut dyn Work,
    enough: impl Fn(&[Elapsed]) -> bool,
    watch: &dyn Watch,
) -> Result<(Elapsed, Elapsed)> {
    let clock = work.cpu_clock();
    watch.event(Event::Phase(Phase::Write));
    let stopwatch = Stopwatch::start(clock);
    work.write()?;
    work.sync()?;
    let write = stopwatch.elapsed();
    let mut reads = cold_reads(work, enough, |phase| watch.event(Event::Phase(phase)))?;
    Ok((write, middle(&mut reads)))
}

/// The times of reading everything from cold caches, until `enough` of them are known.
fn cold_reads(
    work: &mut dyn Work,
    enough: impl Fn(&[Elapsed]) -> bool,
    mut begin: impl FnMut(Phase),
) -> Result<Vec<Elapsed>> {
    let clock = work.cpu_clock();
    let mut reads = Vec::new();
    while !enough(&reads) {
        work.cool()?;
        begin(Phase::Read);
        let stopwatch = Stopwatch::start(clock);
        work.read()?;
        reads.push(stopwatch.elapsed());
        begin(Phase::Settle);
    }
    Ok(reads)
}

/// Measures once.
///
/// # Errors
/// Those of the work.
pub(crate) fn measure(work: &mut dyn Work, plan: &Plan, watch: &dyn Watch) -> Result<Sample> {
    let sampler = Sampler::start();
    let begin = |phase: Phase| {
        sampler.phase(phase.name());
        watch.event(Event::Phase(phase));
    };
    let clock = work.cpu_clock();
    begin(Phase::Write);
    let stopwatch = Stopwatch::start(clock);
    work.write()?;
    let accepted_seconds = stopwatch.elapsed().seconds;
    begin(Phase::Sync);
    work.sync()?;
    let write = stopwatch.elapsed();
    begin(Phase::Settle);
    let sizes = work.settle()?;
    let mut reads = cold_reads(work, is_enough, &begin)?;
    let mut warm_seconds = None;
    if work.warm()? {
        begin(Phase::WarmRead);
        let mut reads = Vec::new();
        while !is_enough(&reads) {
            let stopwatch = Stopwatch::start(clock);
            work.read()?;
            reads.push(stopwatch.elapsed());
        }
        warm_seconds = Some(middle(&mut reads).seconds).filter(|_| work.stayed_warm());
    }
    begin(Phase::Verify);
    let verified = work.verify()?;
    let mut steps = Vec::new();
    if let Some(application) = &plan.application {
        begin(Phase::Steps);
        steps = work.steps(application)?;
    }
    Ok(Sample {
        sizes,
        accepted_seconds,
        write,
        read: middle(&mut reads),
        cold_reads: reads.len() as u32,
        warm_seconds,
        verified,
        steps,
        ticks: sampler.finish(),
    })
}
